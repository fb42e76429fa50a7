# SPDX-License-Identifier: Apache-2.0
"""A progress bar for long training: one line that grows on a terminal, one line for
every tenth of the way where output goes to a file."""

import sys
import time


class Progress:
    """A bar that shows how far `total` steps have come. Speed is in steps/s, or in what
    `unit` counts of each step: (500, "examples")."""

    def __init__(self, total, unit=(1, "steps"), width=28, out=sys.stdout):
        self.total, self.unit, self.width, self.out = total, unit, width, out
        self.done = 0
        self.start = self.last_drawn = time.monotonic()
        self.terminal = out.isatty()
        self.next_tenth = 1

    def step(self, **figures):
        """One more step is done; `figures` are shown behind the bar."""
        self.done += 1
        now = time.monotonic()
        finished = self.done == self.total
        if self.terminal:
            if now - self.last_drawn < 0.1 and not finished:
                return
        elif self.done * 10 < self.next_tenth * self.total:
            return
        else:
            self.next_tenth = self.done * 10 // self.total + 1
        self.last_drawn = now
        self.draw(now, figures)

    def draw(self, now, figures):
        speed = self.done / max(now - self.start, 1e-9)
        left = (self.total - self.done) / speed
        count, unit = self.unit
        filled = self.width * self.done // self.total
        bar = "█" * filled + "·" * (self.width - filled)
        shown = "  ".join(
            f"{name} {value}" if isinstance(value, int) else f"{name} {value:.3f}"
            for name, value in figures.items()
        )
        line = (
            f"{bar} {self.done}/{self.total}  {shown}  "
            f"{speed * count:5.{0 if count > 1 else 1}f} {unit}/s  {int(left) // 60}:{int(left) % 60:02d} left"
        )
        ends = self.terminal and self.done < self.total
        self.out.write(("\r\033[K" if self.terminal else "") + line)
        self.out.write("" if ends else "\n")
        self.out.flush()
