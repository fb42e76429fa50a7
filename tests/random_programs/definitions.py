# SPDX-License-Identifier: Apache-2.0
"""Which definitions the models draw, and why some have no recipe of their own."""

from paddle import _core
from recipes import load

# Drawn by lines and optimizers that stand for several ops: found in the program.
THROUGH = {
    "sgd": "optimizers.py",
    "momentum": "optimizers.py",
    "adam": "optimizers.py",
    "adamw": "optimizers.py",
    "lamb": "optimizers.py",
    "adagrad": "optimizers.py",
    "adamax": "optimizers.py",
    "adadelta": "optimizers.py",
    "rmsprop": "optimizers.py",
    "lars_momentum": "optimizers.py",
    "ftrl": "optimizers.py",
    "conditional_block": "recipes_faces.py: branch",
    "select_input": "recipes_faces.py: branch",
    "while": "recipes_faces.py: loop",
    "write_to_array": "recipes_faces.py: loop",
    "read_from_array": "recipes_faces.py: loop",
    "c_allreduce_start": "programs on two ranks",
    "c_allreduce_wait": "programs on two ranks",
    "c_broadcast_state": "programs on two ranks",
    "distributed_lookup_table": "programs with servers",
    "distributed_push_sparse": "programs with servers",
    "send": "programs with servers",
    "send_barrier": "programs with servers",
    "ps_init": "programs with servers",
    "fake_init": "programs with servers",
}

# Not drawn: the reason.
NOT_DRAWN = {
    "select_output": "no function of the API makes it; only programs of Paddle hold it",
    "py_func": "calls into Python; test_static_python_ops.py has it",
    "print": "prints; test_static_python_ops.py has it",
    "lod_array_length": "a number in a program alone; tests of control flow have it",
    "add_to_array": "the gradient of read_from_array, made by it",
    "take_from_array": "the gradient of write_to_array, made by it",
    "recv": "asynchronous servers: what arrives depends on time",
    "geo_step": "geo servers: what arrives depends on time",
    "c_allreduce_sum": "a call between ranks without gradient; tests/collective_programs has it",
    "c_allreduce_max": "a call between ranks without gradient; tests/collective_programs has it",
    "c_allreduce_min": "a call between ranks without gradient; tests/collective_programs has it",
    "c_allreduce_prod": "a call between ranks without gradient; tests/collective_programs has it",
    "c_broadcast": "a call between ranks without gradient; tests/collective_programs has it",
    "c_allgather": "a call between ranks without gradient; tests/collective_programs has it",
    "c_reducescatter": "a call between ranks without gradient; tests/collective_programs has it",
    "c_sync_comm_stream": "order on GPUs; does nothing on the CPU",
    "c_sync_calc_stream": "order on GPUs; does nothing on the CPU",
}


def missing():
    """Definitions that neither a recipe, a line nor a reason accounts for, and names in
    the tables that no definition has."""
    recipes, _ = load()
    known = recipes.keys() | THROUGH.keys() | NOT_DRAWN.keys()
    defined = set(_core.op_definitions())
    return sorted(defined - known), sorted(known - defined)


def drawn():
    """All definitions that models should hold."""
    return sorted(set(_core.op_definitions()) - NOT_DRAWN.keys())
