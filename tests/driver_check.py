#!/usr/bin/env python3
"""What runs on the host leaves the CUDA driver alone: it would take a context on a GPU, and CUDA from the
children of a later fork. A library of the driver's name stands in for it and says when it is opened. Nor
is it looked for, along all paths of libraries, at each of many calls.

Exits with 77, skipped, for a build without CUDA, which opens no driver."""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from exports_check import package_environment

SKIPPED = 77
MOST_LOOKS = 50  # a look for each library that Python loads, and those of culet.devices()
STAND_IN = """#include <unistd.h>
__attribute__((constructor)) static void Opened(void) {
  if (write(1, "opened\\n", 7) != 7) _exit(3);
}
"""
PROGRAM = """
import os, sys
import culet
from culet import _plans
from host_arrays import Array
kinds = {"f4": 1.0, "u2": 0x3F80}
for m, n, k in ((1, 64, 64), (4, 4, 64), (64, 130, 72), (3, 1024, 512)):
    for kind, one in kinds.items():
        a, b, d = (Array(kind, shape, (shape[1], 1), one) for shape in ((m, k), (n, k), (m, n)))
        culet.gemm(a, b, d)
        culet.plan(a, culet.pack(b), d)()
        culet.explain(a, b, d)
    values, scales = Array("u1", (m, k), (k, 1)), Array("f4", (m, -(-k // 128)), (-(-k // 128), 1))
    culet.quantize_fp8(a, out=(values, scales))
plans = [plan for plan in _plans.PLANS.values() if plan.workspace]
assert plans, "no product had a workspace"
for _ in range(200):
    plans[0].engine.workspaces = type(plans[0].engine.workspaces)(plans[0].engine)
    plans[0].engine.workspaces.get(plans[0].workspace, None)
print("products ended", flush=True)
culet.devices()
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    args, _ = parser.parse_known_args()
    args.source, args.build = args.source.resolve(), args.build.resolve()
    if not (args.build / "cuda_objects.txt").is_file():
        print("driver_check: skipped, a build without CUDA")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", Path(folder, "libcuda.so.1")],
                       input=STAND_IN, text=True, check=True)
        environment = package_environment(args.source, args.build)
        paths = folder, environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
        # The loader writes down what it looks for.
        environment.update(LD_DEBUG="libs", LD_DEBUG_OUTPUT=str(Path(folder, "loader")))
        done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=args.source / "tests/python", text=True,
                              env=environment, capture_output=True, check=False)
        looked = sum(file.read_text(errors="replace").count("find library=libcuda.so.1")
                     for file in Path(folder).glob("loader.*"))
    before, _, after = done.stdout.partition("products ended\n")
    faults = []
    if done.returncode != 0:
        faults.append(f"the program exited with {done.returncode}: {done.stdout}{done.stderr}")
    elif before:
        faults.append("a product on the host opened the CUDA driver")
    elif not after:
        faults.append("culet.devices() did not open the driver, so that nothing was checked")
    elif looked > MOST_LOOKS:
        faults.append(f"the driver was looked for {looked} times")
    print("\n".join(faults) or "driver_check: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
