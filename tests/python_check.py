#!/usr/bin/env python3
"""Runs the Python package's tests (tests/python) against this build's libculet.so, then those of each
part that is installed against what a wheel carries, in a folder of its own. packaging_check.py has
pip do it.

The tests of other packages' arrays and texts run in a virtual environment of the build folder with
those packages, where PyPI is to be had; those of torch where the machine has torch."""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from exports_check import package_environment


PACKAGES = ("numpy", "ml_dtypes", "tokenizers>=0.19", "jinja2>=3.1", "mypy")


# Of what an installation can lack: modules, the library, tables of choices, the report's page.
INSTALLED_TESTS = ("test_import", "test_gemm", "test_tuning", "test_report", "test_deep_gemm", "test_nn",
                   "test_llm_text")
# A file that is skipped as a whole is no failure to discover, but to a name it is.
RUNNER = """import sys, unittest
found = [unittest.TestLoader().discover(".", name + ".py") for name in sys.argv[1:]]
sys.exit(not unittest.TextTestRunner().run(unittest.TestSuite(found)).wasSuccessful())"""


def installed_tests(python):
    """The command that runs INSTALLED_TESTS from tests/python."""
    return [python, "-c", RUNNER, *INSTALLED_TESTS]


def python_with_packages(build):
    """The Python of a virtual environment with PACKAGES; this one where they are not to be had."""
    folder = build / "python-tests"
    python = folder / "bin/python"
    commands = [(python, "-m", "pip", "--disable-pip-version-check", "--retries", "1",
                 "--timeout", "20", "install", "--quiet", *PACKAGES)]
    if not python.exists():
        commands.insert(0, (sys.executable, "-m", "venv", "--system-site-packages", folder))
    for command in commands:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode != 0:
            print(f"python_check: without {', '.join(PACKAGES)}: {done.stdout}")
            return sys.executable
    return python


def run_tests(command, source, environment):
    done = subprocess.run(command, cwd=source / "tests/python", env=environment, check=False)
    return [] if done.returncode == 0 else [f"tests/python failed with {environment['PYTHONPATH']}"]


def check_component(python, source, build):
    """INSTALLED_TESTS with the component `wheel` of the installation."""
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
        return run_tests(installed_tests(python), source, environment)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    args, _ = parser.parse_known_args()
    args.source, args.build = args.source.resolve(), args.build.resolve()
    python = python_with_packages(args.build)
    faults = run_tests([python, "-m", "unittest"], args.source, package_environment(args.source, args.build))
    if "LD_PRELOAD" not in package_environment(args.source, args.build):  # no sanitizer: as a user has it
        faults += check_component(python, args.source, args.build)
    print("\n".join(faults) or "python_check: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
