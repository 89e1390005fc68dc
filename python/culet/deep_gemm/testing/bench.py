"""DeepGEMM's blocks around what is measured."""

import os
import sys

from culet.deep_gemm._missing import missing

__all__ = ["empty_suppress", "suppress_stdout_stderr"]


class empty_suppress:
    """A block that changes nothing."""

    def __enter__(self) -> "empty_suppress":
        return self

    def __exit__(self, *_) -> None:
        pass


class suppress_stdout_stderr:
    """In the block, what is written to standard output and standard error goes nowhere, also what libraries write
    to the descriptors."""

    def __enter__(self) -> "suppress_stdout_stderr":
        self._streams = sys.stdout, sys.stderr
        self._flush()
        self._kept = [os.dup(descriptor) for descriptor in (1, 2)]
        self._nowhere = open(os.devnull, "w", encoding="utf-8")
        for descriptor in (1, 2):
            os.dup2(self._nowhere.fileno(), descriptor)
        sys.stdout = sys.stderr = self._nowhere
        return self

    def __exit__(self, *_) -> None:
        sys.stdout, sys.stderr = self._streams
        self._flush()
        for descriptor, kept in zip((1, 2), self._kept):
            os.dup2(kept, descriptor)
            os.close(kept)
        self._nowhere.close()

    def _flush(self) -> None:
        for stream in self._streams:
            if stream is not None:
                stream.flush()


def __getattr__(name: str):
    return missing(__name__, name)
