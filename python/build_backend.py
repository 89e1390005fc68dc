"""Builds the wheel (PEP 517): libculet.so by CMake, the package of python/culet beside it.

It needs cmake, a compiler and the packages of scripts/install-dependencies, and nothing from Python.
The wheel serves every Python 3 of one platform: the package loads the library through ctypes.
Configuration (pip install . --config-settings NAME=VALUE):
  build-dir  an existing or new CMake build folder; default build/wheel
  cmake      arguments for the configuration, e.g. "-DCULET_CUDA=OFF"
"""

import base64
import hashlib
import os
import re
import shlex
import subprocess
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python/culet"


def _project():
    """The fields of pyproject.toml's [project] that are plain strings."""
    text = (ROOT / "pyproject.toml").read_text()
    return dict(re.findall(r'^([\w-]+) = "(.*)"$', text[text.index("[project]"):], re.MULTILINE))


def _tag():
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


def _metadata():
    project = _project()
    fields = {
        "Metadata-Version": "2.1", "Name": project["name"], "Version": project["version"],
        "Summary": project["description"], "License": "Apache-2.0",
        "Requires-Python": project["requires-python"],
        "Description-Content-Type": "text/markdown",
    }
    head = "".join(f"{name}: {value}\n" for name, value in fields.items())
    return head + "\n" + (ROOT / "README.md").read_text()


def _install_library(settings, prefix):
    """Builds culet_shared and installs the component `wheel` under `prefix`."""
    build = (ROOT / settings.get("build-dir", "build/wheel")).resolve()
    if not (build / "CMakeCache.txt").exists():
        arguments = shlex.split(settings.get("cmake", ""))
        subprocess.run(["cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
                        "-DCULET_TESTS=OFF", *arguments], check=True)
    jobs = str(len(os.sched_getaffinity(0)))
    subprocess.run(["cmake", "--build", build, "--target", "culet_shared", "-j", jobs], check=True)
    subprocess.run(["cmake", "--install", build, "--component", "wheel", "--strip", "--prefix",
                    prefix], check=True)


def _record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    del metadata_directory
    project = _project()
    stem = f"{project['name']}-{project['version']}"
    info = f"{stem}.dist-info"
    files = {f"culet/{path.name}": path.read_bytes() for path in sorted(PACKAGE.glob("*.py"))}
    with tempfile.TemporaryDirectory() as prefix:
        _install_library(config_settings or {}, prefix)
        for path in sorted(Path(prefix, "culet").iterdir()):
            files[f"culet/{path.name}"] = path.read_bytes()
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: culet\nRoot-Is-Purelib: false\n"
                              f"Tag: {_tag()}\n").encode()
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = "".join(_record_line(name, content) for name, content in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    name = f"{stem}-{_tag()}.whl"
    with zipfile.ZipFile(Path(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
    return name
