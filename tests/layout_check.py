#!/usr/bin/env python3
"""Layouts that cannot be must not compile, and the compiler must say why in a sentence."""

import argparse
import subprocess
import sys
from pathlib import Path

SOUND = "SmemLayoutV2<64, 64, 8, 64, Swizzle<3, 3, 3>>::kSize"
IMPOSSIBLE = {
    "Swizzle<-1, 0, 3>::kBlock": "cannot move a negative number of bits",
    "Swizzle<3, -1, 3>::kBlock": "lowest target bit is bit 0",
    "Swizzle<3, 4, 2>::kBlock": "must not overlap",
    "Swizzle<3, 40, 30>::kBlock": "an offset has at most 63 bits",
    "Swizzle<3, 20, 10>::apply(1)": "the offset's type lacks the bits",
    "SmemLayoutV2<0, 64>::kSize": "at least one row and one column",
    "SmemLayoutV2<64, -64>::kSize": "at least one row and one column",
    "SmemLayoutV2<64, 64, 0>::kSize": "S0 is a number of rows",
    "SmemLayoutV2<64, 64, 8, -8>::kSize": "C0 is a number of columns",
    "SmemLayoutV2<65536, 65536>::kSize": "at most 2^31 - 1 elements",
    "SmemLayoutV2<64, 64, 7, 64>::kSize": "S must be a multiple of S0",
    "SmemLayoutV2<64, 64, 8, 48>::kSize": "C must be a multiple of C0",
    "SmemLayoutV2<64, 24, 1, 24, Swizzle<3, 3, 3>>::kSize": "would leave its sub-tile",
}


def compile_errors(source, compiler, expression):
    """The compiler's complaints about using the expression; empty when there are none."""
    code = f'#include "culet/layout/smem_layout.h"\nusing namespace culet;\nauto value = {expression};\n'
    command = [compiler, "-std=c++20", "-fsyntax-only", "-I", source / "include", "-x", "c++", "-"]
    return subprocess.run(command, input=code, capture_output=True, text=True, check=False).stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    args, _ = parser.parse_known_args()
    faults = []
    if errors := compile_errors(args.source, "c++", SOUND):
        faults.append(f"{SOUND} does not compile: {errors}")
    for expression, sentence in IMPOSSIBLE.items():
        errors = compile_errors(args.source, "c++", expression)
        if sentence not in errors:
            faults.append(f"{expression}: expected '{sentence}', but: {errors or 'it compiles'}")
    print("\n".join(faults) or "layout_check: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
