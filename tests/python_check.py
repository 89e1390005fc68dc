#!/usr/bin/env python3
"""Runs the Python package's tests (tests/python) against this build's libculet.so, then against what
a wheel carries, in a folder of its own. packaging_check.py has pip do it."""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from exports_check import package_environment


def run_tests(source, environment):
    done = subprocess.run([sys.executable, "-m", "unittest"], cwd=source / "tests/python",
                          env=environment, check=False)
    return [] if done.returncode == 0 else [f"tests/python failed with {environment['PYTHONPATH']}"]


def check_component(source, build):
    """The tests with the component `wheel` of the installation."""
    environment = package_environment(source, build)
    tools = {key: value for key, value in environment.items() if key != "LD_PRELOAD"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["cmake", "--install", build, "--component", "wheel", "--prefix", folder], text=True,
            env=tools, capture_output=True, check=False)
        if done.returncode != 0:
            return [f"the component wheel was not installed: {done.stdout}{done.stderr}"]
        shutil.copytree(source / "python/culet", Path(folder, "culet"), dirs_exist_ok=True)
        environment["PYTHONPATH"] = folder
        del environment["CULET_LIBRARY"]
        return run_tests(source, environment)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    args, _ = parser.parse_known_args()
    faults = run_tests(args.source, package_environment(args.source, args.build))
    faults += check_component(args.source, args.build)
    print("\n".join(faults) or "python_check: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
