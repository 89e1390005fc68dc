#!/usr/bin/env python3
"""cmake/audit_kernels.py, which a wheel's build runs: it finds a spill and a wgmma that was serialised, and
nothing in the reports of this build."""

import argparse
import subprocess
import sys
from pathlib import Path

GOOD = """ptxas info    : Compiling entry function 'good' for 'sm_86'
ptxas info    : Function properties for good
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers
"""
SPILL = GOOD.replace("good", "bad").replace("0 bytes spill loads", "16 bytes spill loads")
SERIAL = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    args, _ = parser.parse_known_args()
    sys.path.insert(0, str(args.source / "cmake"))
    from audit_kernels import faults_of

    faults = []
    for report, wanted in ((GOOD, []), (GOOD + SPILL, ["bad for sm_86 spills"]), (GOOD + SERIAL, ["C7510"]),
                           (SPILL + GOOD + SERIAL, ["bad for sm_86 spills", "C7510"])):
        found = faults_of(report)
        if len(found) != len(wanted) or any(part not in line for part, line in zip(wanted, found)):
            faults.append(f"self-test: {found} instead of {wanted}")
    done = subprocess.run([sys.executable, args.source / "cmake/audit_kernels.py", args.build],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        faults.append(done.stdout + done.stderr)
    print("\n".join(faults) or done.stdout.strip())
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
