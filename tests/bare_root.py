"""A root folder with a Python, the C and C++ run time and nothing else of the machine: what a wheel
finds in a bare container. packaging_check.py enters it."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

# What every system of the manylinux policies has.
RUN_TIME = re.compile(r"(ld-linux\S*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+))\.so")
# Of the standard library: what runs no test here.
LEFT_OUT = shutil.ignore_patterns("test", "tests", "site-packages", "dist-packages", "idlelib", "tkinter",
                                  "ensurepip", "lib2to3", "config-*", "__pycache__")


def _libraries(binary):
    """The paths of the libraries that the loader takes for a binary."""
    listed = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", listed)]


class BareRoot:
    def __init__(self, folder, wheel):
        self.folder = folder
        program = Path(os.path.realpath(sys.executable))
        self.python = program
        stdlib = Path(sysconfig.get_path("stdlib"))
        self._copy(program)
        shutil.copytree(stdlib, self._inside(stdlib), ignore=LEFT_OUT, dirs_exist_ok=True)
        for binary in [program, *stdlib.glob("lib-dynload/*.so")]:
            for library in _libraries(binary):
                self._copy(library)
        package = folder / "wheel"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(package)
        (package / "culet/culet").chmod(0o755)
        for library in _libraries(package / "culet/libculet.so.0"):
            if RUN_TIME.match(library.name):
                self._copy(library)
        (folder / "tmp").mkdir()

    def _inside(self, path):
        return self.folder / path.relative_to("/")

    def _copy(self, path):
        target = self._inside(path)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)

    def run(self, *command):
        """The ended process."""
        enter = ["chroot"] if os.getuid() == 0 else ["unshare", "--map-root-user", "chroot"]
        environment = {"PATH": "/nowhere", "PYTHONPATH": "/wheel:/tests", "PYTHONHOME": sys.base_prefix,
                       "CULET_CACHE": "off", "HOME": "/tmp",
                       "LD_ORIGIN_PATH": "/wheel/culet"}  # a program's folder, where there is no /proc
        return subprocess.run(
            [shutil.which(enter[0], path=os.environ["PATH"] + ":/usr/sbin:/sbin"), *enter[1:],
             self.folder, *command],
            env=environment, capture_output=True, text=True, check=False)

    def refused(self):
        """Why this machine lets nobody enter, or None."""
        done = self.run(self.python, "-c", "print('entered')")
        return None if done.stdout == "entered\n" else done.stderr.strip()
