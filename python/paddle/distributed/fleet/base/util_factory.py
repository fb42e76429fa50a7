# SPDX-License-Identifier: Apache-2.0
"""fleet.util: small things that the workers of a job do together."""

import os

__all__ = ["UtilBase"]


class UtilBase:
    """Belongs to a Fleet, which gives it its role. Before fleet.init it raises."""

    def __init__(self):
        self.role_maker = None
        self.dist_strategy = None

    def _set_strategy(self, dist_strategy):
        self.dist_strategy = dist_strategy

    def _set_role_maker(self, role_maker):
        self.role_maker = role_maker

    def _role(self):
        if self.role_maker is None:
            raise RuntimeError("fleet.util needs a role: call fleet.init() first")
        return self.role_maker

    def all_reduce(self, input, mode="sum", comm_world="worker"):
        """An array of what `input` sums up to over the job.

        Args:
            input: an array, a list or a number; of the same shape everywhere.
            mode: "sum", "max" or "min".
            comm_world: "worker", "server" or "all".
        """
        return self._role()._all_reduce(input, mode, comm_world)

    def all_gather(self, input, comm_world="worker"):
        """The list of what every process of the job gave, by rank."""
        return self._role()._all_gather(input, comm_world)

    def barrier(self, comm_world="worker"):
        """Waits for all others."""
        self._role()._barrier(comm_world)

    def get_file_shard(self, files):
        """This worker's part of `files`: a block of neighbours. The blocks are of
        equal size, the first ones longer by one where it does not divide."""
        if not isinstance(files, list):
            raise TypeError("files should be a list of file need to be read.")
        rank, size = self._role()._worker_index(), self._role()._worker_num()
        length, longer = divmod(len(files), size)
        begin = rank * length + min(rank, longer)
        return files[begin : begin + length + (rank < longer)]

    def print_on_rank(self, message, rank_id):
        """Prints on one worker."""
        if self._role()._worker_index() == rank_id:
            print(message)

    def _save_program(self, program, model_filename="__model__", is_text=False):
        """Writes a program to a file, as Paddle's message or as its text here."""
        from ....static.io import save_to_file

        if is_text:
            save_to_file(model_filename, program.to_string().encode())
        else:
            save_to_file(model_filename, program.desc.serialize_to_string())

    def _load_program(self, path, is_text):
        """The program in a file of _save_program(), or in one of Paddle's messages."""
        from .... import _core
        from ....static import Program
        from ....static.io import load_from_file

        content = load_from_file(path)
        if not is_text:
            return Program.parse_from_string(content)
        program = Program()
        _core.parse_program_text(program, content.decode(), os.fspath(path))
        return program

    def _program_type_trans(self, prog_dir, prog_fn, is_text):
        """Writes the program of a file in its other form beside it; returns the name."""
        program = self._load_program(os.path.join(prog_dir, prog_fn), is_text)
        name = prog_fn + (".bin" if is_text else ".pbtxt")
        self._save_program(program, os.path.join(prog_dir, name), not is_text)
        return name

    def __getattr__(self, name):
        if name in _OF_PADDLE:
            raise NotImplementedError(
                f"fleet.util.{name}: use static.load_inference_model, which says what is "
                "wrong with a model, and Program.to_string"
            )
        raise AttributeError(f"'UtilBase' object has no attribute '{name}'")


# They look into Paddle's own files.
_OF_PADDLE = ("_params_check", "_proto_check", "_visualize_graphviz")
