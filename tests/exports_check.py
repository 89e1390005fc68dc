#!/usr/bin/env python3
"""What libculet.so shows the world: the functions of culet.h and what it includes, the commands for the
program culet (apps/cli_main.h), and no other symbol, no libraries but those that a machine or the wheel
has; culet.h is C99; the Python package's structs are culet.h's; docs/c-api.md names each function.

Each check first proves on a broken library, header or struct that it can fail."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Of the C and C++ run time, and the two that a wheel carries.
LIBRARIES = re.compile(r"(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|atomic|fmt|hwy|asan|ubsan)|ld-linux\S*)\.so")


HEADERS = ("c_base.h", "culet.h", "session.h")
COMMANDS = "culet_cli_main"  # where CULET_CLI is on


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def declared(header):
    return set(re.findall(r"^CULET_API [\w* ]+?\*?(culet_\w+)\(", header, re.MULTILINE))


def exported(library):
    lines = run("nm", "-D", "--defined-only", library).stdout.splitlines()
    return {line.split()[-1] for line in lines}


def check_exports(library, header):
    found, wanted = exported(library), declared(header)
    for name in sorted(found - wanted - {COMMANDS}):
        yield f"{library}: exports {name}, which culet.h does not declare"
    for name in sorted(wanted - found):
        yield f"{library}: does not export {name}"


def check_documented(header, page):
    """Each function by name; of the destroying ones the page speaks together."""
    named = set(re.findall(r"\bculet_\w+", page))
    for name in sorted(declared(header) - named):
        if not name.endswith("_destroy"):
            yield f"docs/c-api.md: does not name {name}"


def check_needed(library):
    for name in re.findall(r"NEEDED +(\S+)", run("objdump", "-p", library).stdout):
        if not LIBRARIES.match(name):
            yield f"{library}: needs {name}"


def check_c99(header, folder):
    command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
               "-x", "c", "-", "-I", folder]
    done = run(*command, input=f'#include "{header}"\n#include "{header}"\nint main(void) {{ return 0; }}\n')
    if done.returncode != 0:
        yield f"{header}: is no C99: {done.stderr.strip().splitlines()[0]}"


def check_structs(sizes, source, build, python_sizes=None):
    """`sizes` is what culet_c_test prints; the package's are asked of the package."""
    if python_sizes is None:
        program = ("import ctypes, sys; from culet import _library as l\n"
                   "for name in sys.argv[1:]: print(name, ctypes.sizeof(getattr(l, name)))")
        names = [line.split()[0] for line in sizes.splitlines()]
        done = run(sys.executable, "-c", program, *names, env=package_environment(source, build))
        if done.returncode != 0:
            yield f"the package cannot be imported: {done.stderr}"
            return
        python_sizes = done.stdout
    for c, python in zip(sizes.splitlines(), python_sizes.splitlines()):
        if c != python:
            yield f"a struct's bytes in C and in the package: {c}, {python}"
    if not sizes.strip():
        yield "culet_c_test prints no sizes"


def package_environment(source, build):
    """The environment in which Python finds the package and the library of this build."""
    environment = os.environ | {
        "PYTHONPATH": str(source / "python"), "CULET_LIBRARY": str(build / "libculet.so"),
        "CULET_CACHE": "off", "PYTHONDONTWRITEBYTECODE": "1",
    }
    if "CULET_SANITIZE:BOOL=ON" in (build / "CMakeCache.txt").read_text():
        # The sanitizers must come before Python, which leaks, and leave SIGBUS to culet.
        libraries = [run("cc", f"-print-file-name={name}.so").stdout.strip()
                     for name in ("libasan", "libubsan")]
        environment |= {"LD_PRELOAD": ":".join(libraries), "ASAN_OPTIONS": "detect_leaks=0:handle_sigbus=0"}
    return environment


def self_test(header):
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "libbad.so")
        run("cc", "-shared", "-x", "c", "-", "-o", library, "-lm", "-Wl,--no-as-needed", "-lutil",
            input="int culet_version; int _ZN3fmt3barEv;")
        faults = list(check_exports(library, header))
        if not any("exports _ZN3fmt3barEv" in fault for fault in faults) or not any(
                "does not export culet_launch" in fault for fault in faults):
            failures.append(f"self-test: a bad library passed: {faults}")
        (Path(folder) / "bad.h").write_text("bool f(int x = 1);\n")
        if not list(check_c99("bad.h", folder)):
            failures.append("self-test: a bad header passed")
    if not list(check_documented("\nCULET_API int culet_new(void);\n", "culet_newer")):
        failures.append("self-test: a function without documentation passed")
    if not list(check_structs("Problem 8\n", None, None, "Problem 9\n")):
        failures.append("self-test: a struct of another size passed")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    args, _ = parser.parse_known_args()
    header = "\n".join((args.source / "include/culet" / name).read_text() for name in HEADERS)
    library = args.build / "libculet.so"
    faults = self_test(header)
    if len(declared(header)) != header.count("\nCULET_API "):
        faults.append("culet.h: not every CULET_API line was understood")
    faults += check_exports(library, header)
    faults += check_documented(header, (args.source / "docs/c-api.md").read_text())
    faults += check_needed(library)
    for name in HEADERS:
        faults += check_c99(f"culet/{name}", args.source / "include")
    sizes = run(args.build / "tests/capi/culet_c_test", "sizes").stdout
    faults += check_structs(sizes, args.source, args.build)
    print("\n".join(faults) or "exports_check: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
