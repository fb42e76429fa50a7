# SPDX-License-Identifier: Apache-2.0
"""Tensors from one rank to another.

A message without waiting is put off until somebody waits for it, asks whether it is
completed or calls anything else, so that two ranks that both send first and then
receive do not wait for each other: all that was put off takes its turn then, in an
order common to all ranks.

Messages and collectives of a group run one after the other. So a large isend before a
collective waits in that collective until its receiver calls recv or irecv, and a
receiver that makes the collective first waits for the sender: that ends with an error
at the timeout. Receive, or irecv, before the collective.
"""

import atexit
import os
import sys

from .. import _core

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]

# Messages that nobody has waited for, as they were given.
put_off = []
os.register_at_fork(after_in_child=put_off.clear)  # a child is no rank


def send(tensor, dst=0, group=None, sync_op=True, use_calc_stream=True):
    """Sends `tensor` to rank `dst`, which receives it."""
    return _wait_if(sync_op and use_calc_stream, isend(tensor, dst, group))


def recv(tensor, src=0, group=None, sync_op=True, use_calc_stream=True):
    """Overwrites `tensor` with what rank `src` sends."""
    return _wait_if(sync_op and use_calc_stream, irecv(tensor, src, group))


def isend(tensor, dst, group=None):
    """As send; returns a task at once."""
    return _put_off(_core.send, tensor, dst, group)


def irecv(tensor, src=None, group=None):
    """As recv; returns a task at once."""
    return _put_off(_core.recv, tensor, 0 if src is None else src, group)


class P2POp:
    """One isend or irecv of a batch."""

    def __init__(self, op, tensor, peer, group=None):
        if op not in (isend, irecv):
            raise RuntimeError(
                "P2POp: op must be paddle.distributed.isend or "
                f"paddle.distributed.irecv, but is {op!r}"
            )
        self.op, self.tensor, self.peer, self.group = op, tensor, peer, group


def batch_isend_irecv(p2p_op_list):
    """Starts all of them; returns their tasks."""
    return [p2p.op(p2p.tensor, p2p.peer, p2p.group) for p2p in p2p_op_list]


def run_put_off():
    """Sends and receives all that was put off."""
    for message in _take_put_off():
        message.run()


def start_put_off():
    """As run_put_off, in the background."""
    for message in _take_put_off():
        message.start()


def _take_put_off():
    messages = sorted(put_off, key=_Message.turn)
    put_off.clear()
    return messages


class _Message:
    """The task of an isend or irecv."""

    def __init__(self, call, tensor, peer, group):
        self._call, self._tensor, self._peer, self._group = call, tensor, peer, group
        self._done = False
        self._task = None  # once it runs in the background

    def turn(self):
        # All ranks take the pairs of ranks in one order, and in each pair the lower
        # rank sends first: nobody waits for somebody who waits for him.
        me = self._group.ranks[self._group.rank]
        sends = self._call is _core.send
        return min(me, self._peer), max(me, self._peer), sends != (me < self._peer)

    def run(self):
        self._call(self._tensor, self._peer, self._group, True)
        self._done = True
        self._tensor = None

    def start(self):
        self._task = self._call(self._tensor, self._peer, self._group, False)
        self._tensor = None

    def wait(self, timeout=None):
        """Until it was sent or received, or for `timeout` seconds; whether it was."""
        if not self._done and self._task is None:
            if timeout is None:
                run_put_off()
            else:
                start_put_off()
        if self._task is not None:
            return self._task.wait(timeout)
        if not self._done:
            raise RuntimeError("this message was given up, because another one failed")
        return True

    def is_completed(self):
        """Whether it was sent or received, or failed; wait() raises then. Begins it,
        and all that was put off, and does not wait."""
        if not self._done and self._task is None:
            start_put_off()
        return self._done or self._task is None or self._task.is_completed()


def _put_off(call, tensor, peer, group):
    group = _core.get_group(group)
    if group.rank < 0:
        return None
    if group.get_group_rank(peer) < 0:
        raise ValueError(f"rank {peer} is not in group {group.id}")
    if group.get_group_rank(peer) == group.rank:
        raise ValueError(f"rank {peer} cannot exchange messages with itself")
    message = _Message(call, tensor, peer, group)
    put_off.append(message)
    return message


def _wait_if(sync, task):
    if task is None or not sync:
        return task
    task.wait()
    return None


@atexit.register
def _run_at_exit():
    # Python does not tell the exit status here. What is started now is waited for if
    # it turns out to be 0, and else aborted with the job.
    if put_off and not hasattr(sys, "last_type"):  # no exception ended the program
        start_put_off()
