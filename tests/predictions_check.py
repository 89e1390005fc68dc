#!/usr/bin/env python3
"""What the Hopper families' predictions choose for layers that no fit saw, by measurements of every
launch on an H200 and an H100 (bench/unseen_*.csv.gz, bench/direct_*.csv.gz): how far from the best launch, and how far the
predicted times are off. Bounds are a little above what docs/performance.md reports."""

import argparse
import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

# Measurements, read rate that TypicalRates gives the card, what else the program is told; regret,
# worst regret, error of the prediction. BF16 and FP8 `fast` are judged by what they were fitted to:
# that they stay so good.
CARDS = {
    "unseen_h200": (4310, [], {"plain": (1.045, 1.20, 1.11), "pdl": (1.045, 1.25, 1.11)}),
    "unseen_h100": (3010, [], {"plain": (1.05, 1.20, 1.15), "pdl": (1.04, 1.20, 1.15)}),
    "direct_h200": (4310, ["direct"], {"plain": (1.04, 1.24, 1.14), "pdl": (1.055, 1.27, 1.14)}),
}
LINE = re.compile(r"(plain|pdl) +(\d+) rows +regret ([\d.]+) +worst ([\d.]+) +off by ([\d.]+) +(.*)")


def judged(program, data, read_gbps, words):
    done = subprocess.run([program, "judge", *words], input=gzip.decompress(data.read_bytes()), check=True,
                          stdout=subprocess.PIPE, env=dict(os.environ, READ_GBPS=str(read_gbps)))
    for line in done.stdout.decode().splitlines():
        if found := LINE.fullmatch(line):
            yield found[1], int(found[2]), [float(found[i]) for i in (3, 4, 5)], found[6]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--cli")
    args = parser.parse_args()
    program = args.build / "tests" / "fit_predictions"
    if not program.exists():
        print("skipped: the predictions of GPU kernels belong to builds with CUDA")
        return 77
    failed = 0
    for card, (read_gbps, words, bounds) in CARDS.items():
        found = set()
        data = args.source / "bench" / f"{card}.csv.gz"
        for mode, rows, values, worst in judged(program, data, read_gbps, words):
            found.add(mode)
            good = rows >= 12 and all(v <= most for v, most in zip(values, bounds[mode]))
            print(f"{'ok  ' if good else 'FAIL'} {card} {mode}: {rows} rows, {values}; bounds "
                  f"{bounds[mode]}; worst {worst}")
            failed += not good
        if found != set(bounds):
            print(f"FAIL {card}: judged {sorted(found)} alone")
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
