#!/usr/bin/env python3
"""The C++ wrapper of the C interface, include/culet/culet.hpp, with other compilers and standards than
culet's own: tests/capi/culet_hpp_test.cc is compiled with each that is here and run with this build's
libculet.so; the header alone includes nothing of culet but culet.h."""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

STANDARDS = ("c++17", "c++20", "c++2b")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")


def run(*command):
    """None, or what the command printed before it failed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    return f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}"


def check_includes(header):
    for name in re.findall(r'^#include "(.*)"', header, re.MULTILINE):
        if name != "culet/culet.h":
            yield f"culet.hpp includes {name}"


def check(source, build, folder):
    faults = list(check_includes((source / "include/culet/culet.hpp").read_text()))
    if not list(check_includes('#include "culet/gemm.h"\n')):
        faults.append("self-test: a wrapper of C++ headers passed")
    sanitized = "CULET_SANITIZE:BOOL=ON" in (build / "CMakeCache.txt").read_text()
    program = source / "tests/capi/culet_hpp_test.cc"
    compilers = [name for name in ("g++", "clang++") if shutil.which(name)]
    for compiler in compilers:
        for standard in STANDARDS:
            command = (compiler, f"-std={standard}", *WARNINGS, "-I", source / "include", program)
            if sanitized:  # their run times are one compiler's
                faults.append(run(*command, "-fsyntax-only"))
                continue
            faults.append(run(*command, "-o", folder / "main", "-L", build, "-lculet",
                              f"-Wl,-rpath,{build}")
                          or run(folder / "main", source / "examples/adder", folder))
    if not compilers:
        faults.append("there is neither g++ nor clang++")
    return [fault for fault in faults if fault]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    args, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        faults = check(args.source.resolve(), args.build.resolve(), Path(folder))
    print("\n".join(faults) or "wrapper_check: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
