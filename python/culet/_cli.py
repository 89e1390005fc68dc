"""The command `culet`: the program that lies beside the library, and `culet chat`, which is Python."""

import os
import sys

from culet._library import beside


def main():
    if sys.argv[1:2] == ["chat"]:
        from culet._chat import main as chat
        sys.exit(chat(sys.argv[2:]))
    program = beside("culet")
    if program is None:
        sys.exit(f"culet: there is no program beside {os.path.dirname(__file__)}; install culet with "
                 "pip, or run the culet of your build folder")
    os.execv(program, ["culet", *sys.argv[1:]])


if __name__ == "__main__":
    main()
