#!/usr/bin/env python3
"""Uses an installation of the build as other projects would: the examples c_link and cpp_link by
find_package, also where the compiler's own standard is older, pkg-config, and no CUDA toolkit, also
where culet was built with one. Nothing but Debug builds is installed with debug
information. Uses the checkout by add_subdirectory, too."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

C_PROGRAM = """#include <stdio.h>
#include <culet/culet.h>
int main(void) {
  culet_engine* engine;
  if (culet_engine_create(NULL, &engine) != CULET_OK) return puts(culet_last_error()), 1;
  culet_engine_destroy(engine);
  return 0;
}
"""
CXX_PROGRAM = """#include <cstdio>
#include "culet/gemm.h"
int main() {
  auto gemm = culet::Gemm::Create();
  if (!gemm) return std::puts(gemm.status().ToString().c_str()), 1;
  return static_cast<int>(gemm->device().arch);
}
"""
# Example -> its language, its programs, and packages that it needs none of.
EXAMPLES = {
    "c_link": ("C", ("c_link",), ("fmt", "hwy", "CUDAToolkit")),
    "cpp_link": ("CXX", ("cpp_link", "cpp_wrapper"), ("nlohmann_json", "CUDAToolkit")),
}
PROMPT, ANSWER = "481516+42108=", "481516+42108=523624"


def run(*command, **options):
    """None, or what the command printed before it failed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                          **options)
    if done.returncode == 0:
        return None
    return f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}"


class Installation:
    def __init__(self, build, folder):
        cache = (build / "CMakeCache.txt").read_text()
        self.cache = dict(re.findall(r"^(\w+):\w+=(.*)$", cache, re.MULTILINE))
        self.build, self.prefix = build, folder / "prefix"
        self.debug = self.cache["CMAKE_BUILD_TYPE"] == "Debug"
        self.flags = ("-fsanitize=address,undefined"
                      if self.cache.get("CULET_SANITIZE") == "ON" else "")
        # As on a machine without nvcc.
        self.environment = {key: value for key, value in os.environ.items()
                            if not key.startswith("CUDA")} | {"PATH": "/usr/bin:/bin"}

    def tool(self, name):
        return self.cache[f"CMAKE_{name}_COMPILER"]


def use_by_cmake(installation, source, folder, name):
    """Builds an example, and has its programs go on with a prompt."""
    language, programs, hidden = EXAMPLES[name]
    built = folder / name
    compiler = installation.tool("CXX") if language == "CXX" else "cc"
    hide = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON" for package in hidden]
    fault = (
        run(installation.cache["CMAKE_COMMAND"], "-G", "Unix Makefiles", "-S",
            source / "examples" / name, "-B", built,
            f"-DCMAKE_PREFIX_PATH={installation.prefix}", *hide,
            f"-DCMAKE_{language}_COMPILER={compiler}", f"-DCMAKE_{language}_FLAGS={installation.flags}",
            env=installation.environment)
        or run(installation.cache["CMAKE_COMMAND"], "--build", built,
               env=installation.environment))
    if fault:
        return fault
    for program in programs:
        done = subprocess.run([built / program, source / "examples/adder", PROMPT], text=True,
                              capture_output=True, check=False)
        if done.returncode != 0 or ANSWER not in done.stdout.splitlines():
            return f"{program}: {done.returncode}\n{done.stdout}{done.stderr}"
    return None


SUBDIRECTORY_PROJECT = """cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C CXX)
add_subdirectory({source} culet)
foreach(target IN ITEMS culet_cli example_quickstart unit_tests)
  if(TARGET ${{target}})
    message(FATAL_ERROR "a user of the library gets ${{target}}, too")
  endif()
endforeach()
add_executable(main_c main.c)
target_link_libraries(main_c PRIVATE culet::shared)
add_executable(main_cxx main.cc)
target_link_libraries(main_cxx PRIVATE culet::culet)
"""


def use_by_subdirectory(installation, source, folder):
    """add_subdirectory of the checkout. For the time it takes, this build's libraries stand in the
    place of the user's own."""
    folder = folder / "subdirectory"
    folder.mkdir()
    (folder / "main.c").write_text(C_PROGRAM)
    (folder / "main.cc").write_text(CXX_PROGRAM)
    (folder / "CMakeLists.txt").write_text(SUBDIRECTORY_PROJECT.format(source=source))
    cmake, built = installation.cache["CMAKE_COMMAND"], folder / "build"
    cuda = ["-DCULET_CUDA=OFF"]
    if compiler := installation.cache.get("CMAKE_CUDA_COMPILER"):
        cuda = ["-DCULET_CUDA=ON", f"-DCMAKE_CUDA_COMPILER={compiler}"]
    flags = [f"-DCMAKE_{language}_FLAGS={installation.flags}" for language in ("C", "CXX")]
    fault = run(cmake, "-G", "Unix Makefiles", "-S", folder, "-B", built, *cuda, *flags,
                f"-DCMAKE_CXX_COMPILER={installation.tool('CXX')}",
                "-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON")
    if fault:
        return fault
    for name in ("libculet.a", "libculet.so.0", "libculet.so"):
        shutil.copy2(installation.build / name, built / "culet" / name, follow_symlinks=False)
    for name in ("main_c", "main_cxx"):
        # /fast: what it depends on is there.
        if fault := run(cmake, "--build", built, "--target", f"{name}/fast") or run(built / name):
            return fault
    return None


def use_by_pkg_config(installation, folder, library, compiler, file, program):
    folder = folder / library
    folder.mkdir()
    (folder / file).write_text(program)
    directory, = installation.prefix.glob("**/pkgconfig")
    environment = os.environ | {"PKG_CONFIG_PATH": str(directory)}
    words = subprocess.run(["pkg-config", "--cflags", "--libs", library], env=environment, text=True,
                           capture_output=True, check=False)
    if words.returncode != 0:
        return f"pkg-config {library}: {words.stderr}"
    return (run(compiler, *installation.flags.split(), file, "-o", "main", *words.stdout.split(),
                cwd=folder)
            or run(folder / "main", env=os.environ | {"LD_LIBRARY_PATH": str(directory.parent)}))


def check_debug_information(installation):
    """Debug builds have it, others do not: archive, library and program."""
    for path in installation.prefix.rglob("*"):
        if path.is_symlink() or not (path.name.startswith("libculet.") or path.parent.name == "bin"):
            continue
        headers = subprocess.run(["objdump", "-h", path], capture_output=True, text=True, check=False)
        if (".debug_info" in headers.stdout) != installation.debug:
            yield f"{path.name} has {'no ' if installation.debug else ''}debug information"


def check_missing_package(installation, source, folder):
    """Configuring names what is missing, and the way out."""
    fault = run(installation.cache["CMAKE_COMMAND"], "-S", source, "-B", folder / "missing",
                "-DCULET_CUDA=OFF", "-DCMAKE_DISABLE_FIND_PACKAGE_hwy=ON")
    if fault is None or "culet needs hwy" not in fault or "install-dependencies" not in fault:
        yield f"a configuration without hwy: {fault}"


def check(source, build, folder):
    installation = Installation(build, folder)
    cmake = installation.cache["CMAKE_COMMAND"]
    if fault := run(cmake, "--install", build, "--prefix", installation.prefix):
        return [fault]
    faults = [use_by_cmake(installation, source, folder, name) for name in EXAMPLES]
    faults += check_debug_information(installation)
    uses = (("culet", "cc", "main.c", C_PROGRAM),
            ("culet-cxx", installation.tool("CXX"), "main.cc", CXX_PROGRAM))
    faults += [use_by_pkg_config(installation, folder, *use) for use in uses]
    faults.append(use_by_subdirectory(installation, source, folder))
    faults += check_moved(installation, source, folder)
    faults += check_missing_package(installation, source, folder)
    return [fault for fault in faults if fault]


def check_moved(installation, source, folder):
    """An installation may be moved as a whole."""
    moved = folder / "moved"
    shutil.move(installation.prefix, moved)
    for name in EXAMPLES:
        shutil.rmtree(folder / name)
    installation.prefix = moved
    yield use_by_cmake(installation, source, folder, "cpp_link")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    args, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        faults = check(args.source.resolve(), args.build.resolve(), Path(folder))
    print("\n".join(faults) or "install_check: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
