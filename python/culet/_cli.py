"""The command `culet`: the program that lies beside the library, and what is written in Python."""

import importlib
import os
import sys

from culet._library import beside

_IN_PYTHON = {"chat": "culet._chat", "doctor": "culet._doctor", "report": "culet._report"}


def main():
    command = _IN_PYTHON.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if command is not None:
        sys.exit(importlib.import_module(command).main(sys.argv[2:]))
    program = beside("culet")
    if program is None:
        sys.exit(f"culet: there is no program beside {os.path.dirname(__file__)}; install culet with "
                 "pip, or run the culet of your build folder")
    os.execv(program, ["culet", *sys.argv[1:]])


if __name__ == "__main__":
    main()
