#!/usr/bin/env python3
"""Fails when a kernel of a build spills registers or waits for wgmma where it should not.

    cmake/audit_kernels.py BUILD

Reads ptxas's report beside each CUDA object of the build folder (cmake/keep-report writes them). A wheel's
build runs this for all architectures that are released; tests/cuda/resources_test.cc compares the reports
of a build with tests with what the kernels say of themselves."""

import re
import sys
from pathlib import Path

KERNEL = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
WARNING = re.compile(r"C75\d\d")  # wgmma is serialised, or setmaxnreg ignored


def faults_of(report):
    """What is wrong with the kernels of one report, a line each."""
    faults, kernel = [], "a kernel"
    for line in report.splitlines():
        if found := KERNEL.search(line):
            kernel = f"{found[1]} for {found[2]}"
        elif (found := SPILLS.search(line)) and (found[1], found[2]) != ("0", "0"):
            faults.append(f"{kernel} spills: {line.strip()}")
        elif WARNING.search(line):
            faults.append(line.strip())
    return faults


def main():
    build = Path(sys.argv[1])
    listing = build / "cuda_objects.txt"
    objects = listing.read_text().split() if listing.is_file() else []
    faults = []
    for name in objects:
        report = Path(name + ".report")
        if not report.is_file():
            faults.append(f"{report} is missing; build again")
            continue
        faults += [f"{report.name}: {fault}" for fault in faults_of(report.read_text())]
    print("\n".join(faults) or f"audit_kernels: ok, {len(objects)} objects")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
