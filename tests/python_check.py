#!/usr/bin/env python3
"""Runs the Python package's tests (tests/python) against this build's libculet.so, then builds the
wheel, installs it into an empty folder and runs them against that."""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from exports_check import package_environment


def run_tests(source, environment):
    done = subprocess.run([sys.executable, "-m", "unittest"], cwd=source / "tests/python",
                          env=environment, check=False)
    return [] if done.returncode == 0 else [f"tests/python failed with {environment['PYTHONPATH']}"]


def check_wheel(source, build):
    program = ("import sys, build_backend\n"
               "print(build_backend.build_wheel(sys.argv[1], {'build-dir': sys.argv[2]}))")
    environment = package_environment(source, build)
    tools = {key: value for key, value in environment.items() if key != "LD_PRELOAD"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", program, folder, build], text=True, env=tools,
                              capture_output=True, check=False)
        if done.returncode != 0:
            return [f"the wheel was not built: {done.stdout}{done.stderr}"]
        wheel = Path(folder, done.stdout.splitlines()[-1])
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(Path(folder, "site"))
            faults = list(check_contents(source, archive))
        environment["PYTHONPATH"] = str(Path(folder, "site"))
        del environment["CULET_LIBRARY"]
        return faults + run_tests(source, environment)


def check_contents(source, archive):
    names = archive.namelist()
    for needed in ("culet/__init__.py", "culet/libculet.so.0", "culet/libfmt", "culet/libhwy",
                   ".dist-info/METADATA", ".dist-info/RECORD", ".dist-info/LICENSE"):
        if not any(needed in name for name in names):
            yield f"the wheel lacks {needed}"
    record = next(name for name in names if name.endswith("RECORD"))
    listed = {line.split(",")[0] for line in archive.read(record).decode().splitlines()}
    if listed != set(names):
        yield f"RECORD lists {sorted(listed ^ set(names))} wrongly"
    version = record.split("-")[1].removesuffix(".dist")
    if f"project(culet VERSION {version} " not in (source / "CMakeLists.txt").read_text():
        yield f"pyproject.toml says version {version}, CMakeLists.txt another"
    if sum(info.compress_size for info in archive.infolist()) > 50e6:
        yield "the wheel is larger than 50 MB"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    args, _ = parser.parse_known_args()
    faults = run_tests(args.source, package_environment(args.source, args.build))
    faults += check_wheel(args.source, args.build)
    print("\n".join(faults) or "python_check: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
