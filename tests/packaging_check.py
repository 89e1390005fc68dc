#!/usr/bin/env python3
"""What pip makes of this checkout, with this build's libraries: a wheel, an editable installation, a
source distribution. The wheel runs the package's tests of what is installed and the CLI in a fresh environment
with nothing on the PATH, and in a root folder with nothing but a Python; auditwheel gives it the tag of
the oldest systems that it is for; a build of another checkout is refused.

Needs the package's build requirement, from the machine or from PyPI; exits with 77, skipped, where
neither has it."""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from bare_root import BareRoot
from exports_check import package_environment
from python_check import installed_tests

SKIPPED = 77
OLDEST_USER = (2, 34)     # the glibc of RHEL 9; Ubuntu 22.04 has 2.35
NEWEST_BUILDER = (2, 36)  # a newer one's headers ask for newer functions
CHECKOUT_ONLY = {".ci/run", ".clang-format", ".gitignore"}
EDITABLE = "import culet, sys; print(culet.__file__); print(culet.devices()[0].device_class)"


class Failure(Exception):
    """What is wrong, with what was printed."""


def run(*command, fails=False, **options):
    """The output; Failure when the command does not end as it should."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, **options)
    if (done.returncode != 0) != fails:
        raise Failure(f"{' '.join(map(str, command))} exited with {done.returncode}:\n{done.stdout}")
    return done.stdout


class Packaging:
    def __init__(self, source, build, folder):
        self.source, self.build, self.folder = source, build, folder
        self.environment = package_environment(source, build)
        for name in ("PYTHONPATH", "CULET_LIBRARY"):
            del self.environment[name]
        # A sanitizer's library is for what loads libculet.so alone.
        self.tools = {name: value for name, value in self.environment.items() if name != "LD_PRELOAD"}
        self.python = folder / "tools/bin/python"
        self.sanitized = "CULET_SANITIZE:BOOL=ON" in (build / "CMakeCache.txt").read_text()

    def prepare(self):
        """An environment with the build requirement; False when it is not to be had."""
        text = (self.source / "pyproject.toml").read_text()
        requirements = re.findall('"(.*?)"', re.search(r"^requires = (.*)$", text, re.MULTILINE)[1])
        run(sys.executable, "-m", "venv", "--system-site-packages", self.folder / "tools")
        try:
            self.pip("install", *requirements)
        except Failure as failure:
            print(f"packaging_check: skipped, no {requirements}: {failure}")
            return False
        return True

    def pip(self, *arguments, **options):
        return run(self.python, "-m", "pip", "--disable-pip-version-check", *arguments,
                   env=self.tools, **options)

    def build_options(self, build):
        # Not build/wheel: it is the user's.
        return ("--no-build-isolation", "--no-deps",
                "--config-settings", f"cmake.define.CULET_BUILD={build}",
                "--config-settings", f"build-dir={self.folder / 'skbuild'}")

    def fresh(self, name):
        run(sys.executable, "-m", "venv", "--without-pip", self.folder / name)
        return self.folder / name / "bin"

    def check_wheel(self):
        wheels = self.folder / "wheels"
        self.pip("wheel", *self.build_options(self.build), "--wheel-dir", wheels, self.source)
        wheel, = wheels.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            self.check_contents(wheel.name, archive)
        if not self.sanitized:
            self.check_tag(wheel)
            self.check_bare_root(wheel)
        programs = self.fresh("user")
        self.pip("--python", programs / "python", "install", "--no-index", wheel)
        away = self.environment | {"PATH": str(self.folder / "nowhere")}
        run(*installed_tests(programs / "python"), cwd=self.source / "tests/python", env=away)
        self.check_cli(programs, away)

    def check_tag(self, wheel):
        """The tag is the oldest that the libraries allow, and here not above that of RHEL 9."""
        shown = run(self.python, "-m", "auditwheel", "show", wheel, env=self.tools)
        consistent = re.search(r'following\s+platform\s+tag:\s+"(\w+)"', shown)[1]
        if f"-py3-none-{consistent}" not in wheel.name:
            raise Failure(f"{wheel.name} should be {consistent}: {shown}")
        here = tuple(map(int, platform.libc_ver()[1].split(".")))
        oldest = re.search(r"manylinux_(\d+)_(\d+)_", wheel.name)
        if here <= NEWEST_BUILDER and (oldest is None or
                                       tuple(map(int, oldest.groups())) > OLDEST_USER):
            raise Failure(f"{wheel.name} is for newer systems than RHEL 9 and Ubuntu 22.04: {shown}")

    def check_bare_root(self, wheel):
        root = BareRoot(self.folder / "root", wheel)
        if reason := root.refused():
            print(f"packaging_check: the wheel was not run in a bare root: {reason}")
            return
        shutil.copytree(self.source / "tests/python", root.folder / "tests")
        for command in ((root.python, "-m", "unittest", "discover", "-s", "/tests", "-p", "test_gemm.py"),
                        ("/wheel/culet/culet", "explain", "--m", "1", "--n", "64", "--k", "64"),
                        ("/wheel/culet/culet", "--version")):
            done = root.run(*command)
            if done.returncode != 0:
                raise Failure(f"in a bare root {command} exited with {done.returncode}: {done.stdout}"
                              f"{done.stderr}")

    @staticmethod
    def check_cli(programs, environment):
        version = run(programs / "python", "-c", "import culet; print(culet.__version__)",
                      env=environment)
        if run(programs / "culet", "--version", env=environment) != f"culet {version}":
            raise Failure("the CLI's version is not the package's")
        run(programs / "culet", "no-such-command", env=environment, fails=True)
        # Another version's library on the way is not taken.
        other = programs.parent / "other"
        other.mkdir()
        (other / "libculet.so.0").touch()
        run(programs / "culet", "--version", env=environment | {"LD_LIBRARY_PATH": str(other)})
        folder, = programs.parent.glob("lib/python*/site-packages/culet")
        for binary in ("culet", "libculet.so.0"):
            loaded = run(folder / binary, env=environment | {"LD_TRACE_LOADED_OBJECTS": "1"}) \
                if binary == "culet" else run("/usr/bin/ldd", folder / binary)
            for name in ("libfmt", "libhwy"):
                if not re.search(rf"{name}\S* => {folder}/", loaded):
                    raise Failure(f"{binary} does not take {name} from beside it: {loaded}")

    def check_contents(self, name, archive):
        if "-py3-none-" not in name:
            raise Failure(f"{name} is for some Pythons only")
        names = archive.namelist()
        needed = ["culet/__init__.py", "culet/py.typed", "culet/_cli.py", "culet/culet", "culet/libculet.so.0",
                  "culet/libfmt", "culet/libhwy", "dist-info/METADATA", "dist-info/RECORD",
                  "licenses/LICENSE", "licenses/fmt.txt", "licenses/highway.txt",
                  "licenses/nlohmann-json.txt", "licenses/cli11.txt"]
        needed += [f"culet/tuned/{table.name}" for table in (self.source / "tuned").glob("*.jsonl")]
        if re.search(r"^CULET_LICENSE_cuda-runtime:\w+=.", (self.build / "CMakeCache.txt").read_text(),
                     re.MULTILINE):
            needed.append("licenses/cuda-runtime.txt")
        for part in needed:
            if not any(part in name for name in names):
                raise Failure(f"the wheel lacks {part}; it has {names}")
        record = next(name for name in names if name.endswith("RECORD"))
        version = record.split("-")[1].removesuffix(".dist")
        if f"project(culet VERSION {version} " not in (self.source / "CMakeLists.txt").read_text():
            raise Failure(f"pyproject.toml says version {version}, CMakeLists.txt another")
        if sum(info.compress_size for info in archive.infolist()) > 50e6:
            raise Failure("the wheel is larger than 50 MB")
        # Sanitizers' own code is in every binary.
        if not self.sanitized and archive.getinfo("culet/culet").file_size > 1e6:
            raise Failure("the program culet holds more than calls of libculet.so")

    def check_own_build(self):
        """Without CULET_BUILD: configured anew and, for the time it takes, with this build's
        binaries in the place of its own."""
        cuda = "ON" if "CULET_CUDA:STRING=ON" in (self.build / "CMakeCache.txt").read_text() else "OFF"
        own, prefix = self.folder / "own", self.folder / "own-prefix"
        run("cmake", "-S", self.source / "python", "-B", own, f"-DCULET_CUDA={cuda}",
            f"-DSKBUILD_METADATA_DIR={self.folder / 'own-metadata'}", env=self.tools)
        for name in ("libculet.so.0", "culet"):
            shutil.copy2(self.build / name, own / "culet" / name)
        run("cmake", "--install", own, "--component", "wheel", "--strip", "--prefix", prefix,
            env=self.tools)
        held = {path.name.split(".so")[0] for path in (prefix / "culet").iterdir()}
        tables = {"tuned"} if any((self.source / "tuned").glob("*.jsonl")) else set()
        if held != {"culet", "libculet", "libfmt", "libhwy"} | tables:
            raise Failure(f"a build of its own installs {held}")
        if not (self.folder / "own-metadata/licenses/fmt.txt").is_file():
            raise Failure("a build of its own installs no licences")

    def check_missing_cmake(self):
        """Without isolation pip does not fetch it: a sentence, and no traceback. None is so new."""
        for editable in ((), ("--editable",)):
            text = self.pip("install", *self.build_options(self.build), "--config-settings",
                            "cmake.version=>=999", *editable, self.source, fails=True)
            if "culet: Could not find CMake" not in text or "--no-build-isolation" not in text:
                raise Failure(f"nothing tells that CMake is missing: {text}")
            if "Traceback" in text:
                raise Failure(f"CMake is missing, and there is a traceback: {text}")

    def check_editable(self):
        programs = self.python.parent  # without isolation, the requirement must be where it goes
        self.pip("install", *self.build_options(self.build), "--editable", self.source)
        found = run(programs / "python", "-c", EDITABLE, env=self.environment, cwd=self.folder)
        if Path(found.splitlines()[0]).parent != self.source / "python/culet":
            raise Failure(f"an editable installation imports {found}")
        run(programs / "python", "-m", "unittest", "test_gemm", cwd=self.source / "tests/python",
            env=self.environment)
        run(programs / "culet", "--version", env=self.environment)

    def check_source_distribution(self):
        run(self.python, "-c", "import sys, scikit_build_core.build as backend\n"
            "backend.build_sdist(sys.argv[1])", self.folder, cwd=self.source, env=self.tools)
        archive, = self.folder.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(self.folder / "unpacked")
        tree, = (self.folder / "unpacked").iterdir()
        held = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
        if (self.source / ".git").exists():
            listed = run("git", "ls-files", cwd=self.source).splitlines()
            wanted = {name for name in listed if (self.source / name).is_file()} - CHECKOUT_ONLY
            if missing := wanted - held:
                raise Failure(f"the source distribution lacks {sorted(missing)}")
        if strange := {name for name in held if name.startswith("build/") or name.endswith(".pyc")}:
            raise Failure(f"the source distribution holds {sorted(strange)}")
        self.check_refusals(tree)

    def check_refusals(self, tree):
        """A build of this checkout for another, and a folder that holds none."""
        for build, words in ((self.build, f"which builds {self.source} and not"),
                             (tree / "src", "is no build folder of CMake")):
            text = self.pip("wheel", *self.build_options(build), "--wheel-dir", self.folder, tree,
                            fails=True)
            # CMake folds its messages.
            if "".join(words.split()) not in "".join(text.split()):
                raise Failure(f"CULET_BUILD={build} for {tree}: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    args, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        packaging = Packaging(args.source.resolve(), args.build.resolve(), Path(folder).resolve())
        if not packaging.prepare():
            return SKIPPED
        failures = []
        for check in (packaging.check_wheel, packaging.check_own_build,
                      packaging.check_missing_cmake, packaging.check_editable,
                      packaging.check_source_distribution):
            try:
                check()
            except Failure as failure:
                failures.append(f"{check.__name__}: {failure}")
    print("\n".join(failures) or "packaging_check: ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
