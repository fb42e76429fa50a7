# SPDX-License-Identifier: Apache-2.0
"""Counts which ops were drawn in which modes, and says what was found."""

import collections

from definitions import NOT_DRAWN, drawn
from known import KNOWN

RARE = 5  # fewer draws than that are named


class Report:
    def __init__(self):
        self.counts = collections.defaultdict(collections.Counter)  # mode: op: models
        self.models = collections.Counter()  # by mode
        self.notes = collections.Counter()
        self.findings = []

    def add(self, mode, ops, notes=(), models=1):
        self.models[mode] += models
        self.counts[mode].update(set(ops))
        self.notes.update(set(notes))

    def rare(self):
        """Definitions in fewer than `RARE` models, with how many."""
        total = collections.Counter()
        for mode, counts in self.counts.items():
            # The others are the models of "eager" once more.
            if mode not in ("plain", "unfused", "planned"):
                total.update(counts)
        return {op: total[op] for op in drawn() if total[op] < RARE}

    def text(self):
        modes = sorted(self.models)
        lines = ["models: " + ", ".join(f"{self.models[m]} {m}" for m in modes)]
        for note, count in sorted(self.notes.items()):
            lines.append(f"{note}: {count} models")
        for mode in modes:
            seen = self.counts[mode]
            defined = [op for op in drawn() if seen[op]]
            lines.append(f"{mode}: {len(defined)} of {len(drawn())} definitions drawn")
        rare = self.rare()
        listed = ", ".join(f"{op} {n}" for op, n in rare.items()) or "none"
        lines.append(f"drawn in fewer than {RARE} models: {listed}")
        for name, modes, _, text in KNOWN:
            lines.append(f"known defect ({name}; {', '.join(modes)}): {text}")
        lines.append(f"not drawn, with a reason: {', '.join(sorted(NOT_DRAWN))}")
        lines.append(f"findings: {len(self.findings)}")
        return "\n".join(lines)

    def table(self):
        """A line for each definition: how many models held it, by mode."""
        modes = sorted(self.models)
        lines = ["\t".join(["op", *modes])]
        for op in drawn():
            lines.append("\t".join([op, *(str(self.counts[m][op]) for m in modes)]))
        return "\n".join(lines)
