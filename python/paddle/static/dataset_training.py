# SPDX-License-Identifier: Apache-2.0
"""Executor.train_from_dataset and infer_from_dataset: arguments; the threads are the
engine's (fleet/exec/trainer.h)."""

import os
import weakref

# Copies without backward and updates, by program: (its version, the copy).
_test_copies = weakref.WeakKeyDictionary()


def names_and_titles(fetch_list, fetch_info):
    """Names of variables, and what lines call them."""
    names = [v if isinstance(v, str) else v.name for v in fetch_list]
    if fetch_info is None:
        return names, names
    titles = [fetch_info] if isinstance(fetch_info, str) else list(fetch_info)
    if len(titles) != len(names):
        raise ValueError(
            f"fetch_info has {len(titles)} texts for {len(names)} variables of fetch_list"
        )
    return names, titles


def thread_count(thread, dataset, program):
    """What the call says, else the dataset, else CPU_NUM, else 1."""
    if thread > 0:
        return thread
    count = dataset._thread_count()
    if count is None:
        text = os.environ.get("CPU_NUM", "1")
        if not text.isdigit() or int(text) < 1:
            raise ValueError(f"CPU_NUM={text!r} is not a number of threads")
        count = int(text)
    if count > 1 and any(op.type.startswith("c_") for op in program.global_block().ops):
        return 1  # all ranks must meet in the same order
    return count


def for_inference(program):
    """`program`, or a copy of it without backward and updates where it has them."""
    known = _test_copies.get(program)
    if known is None or known[0] != program._version:
        copy = program.clone(for_test=True)
        same = len(copy.global_block().ops) == len(program.global_block().ops)
        known = (program._version, None if same else copy)
        _test_copies[program] = known
    return known[1] or program


def watched(fetch_handler):
    """(names, seconds, function of values) for a FetchHandler or None."""
    if fetch_handler is None:
        return [], 0.0, None
    variables = {k: v for k, v in fetch_handler.var_dict.items() if v is not None}
    names = [v if isinstance(v, str) else v.name for v in variables.values()]

    def look(values):
        fetch_handler.handler(dict(zip(variables, values)))

    return names, float(fetch_handler.period_secs), look
