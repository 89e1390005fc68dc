#!/usr/bin/env python3
"""bench/peers_table.py on runs whose ratios are known."""

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

ANCHORS = ("layer,M,N,K,deep_gemm_us,cublaslt_block_us,turbomind_us,limit_us\n"
           "one,1,64,128,8,10,9,2\n"        # DeepGEMM 0.8 of cuBLASLt
           "one,256,64,128,30,20,,10\n")    # 1.5 of it, no TurboMind


def rows_of(m, **times):
    return [dict(name="one", M=m, N=64, K=128, peer=peer, us=us, rel_l2="1.5e-03")
            for peer, us in times.items()]


def table(folder, runs, *arguments):
    (folder / "anchors.csv").write_text(ANCHORS)
    paths = []
    for number, rows in enumerate(runs):
        paths.append(folder / f"run{number}.csv")
        with open(paths[-1], "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    program = Path(__file__).parents[1] / "bench/peers_table.py"
    done = subprocess.run(
        [sys.executable, program, "--anchors", folder / "anchors.csv", *arguments, *paths],
        capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def cells(text, *start):
    """The cells of the table line that begins with `start`."""
    for line in text.splitlines():
        found = [cell.strip() for cell in line.strip("|").split("|")]
        if found[:len(start)] == list(start):
            return found
    return None


def check(folder):
    # cuBLASLt took 12 us here, so DeepGEMM is 9.6 and TurboMind 10.8; at M = 256 24 and 36.
    tuned = (rows_of(1, culet_tuned=4.8, culet_pdl=2.4, cublaslt_block=12) +
             rows_of(256, culet_tuned=27, culet_pdl=27, cublaslt_block=24))
    # The other process met a slower card: half the speed at M = 1.
    untuned = (rows_of(1, culet=19.2, cublaslt_block=24) +
               rows_of(256, culet=27, cublaslt_block=24))
    code, text, error = table(folder, [tuned, untuned], "--title", "One H200")
    if code != 0:
        yield f"the table failed: {error}"
    expected = {
        ("one", "1"): ["64", "128", "2.00", "4.80", "2.40", "9.60", "12.00", "9.60",
                       "0.50", "0.50", "2.40", "1.20", "2.00"],
        ("one", "256"): ["64", "128", "10.00", "27.00", "27.00", "27.00", "24.00", "36.00",
                         "0.75", "1.12", "2.70", "2.70", "1.00"],
        # tuned over DeepGEMM: sqrt(0.5 x 0.75); untuned over tuned: sqrt(2).
        ("all", "2"): ["0.612", "0.433", "0.671", "0.750", "2.546", "1.800", "1.414"],
    }
    for start, rest in expected.items():
        if (found := cells(text, *start)) != [*start, *rest]:
            yield f"expected {rest} behind {start}, found {found}"
    for words in ("One H200", "tuned / best peer above 1.05: 1 rows: one M = 256: 1.12.",
                  "untuned / tuned above 1.25: 1 rows: one M = 1: 2.00.", "1.50e-03"):
        if words not in text:
            yield f"'{words}' is missing"

    code, swapped, _ = table(folder, [untuned, tuned], "--title", "One H200")
    if swapped != text:
        yield "the order of the runs matters"

    rows = folder / "rows.csv"
    code, text, _ = table(folder, [tuned, untuned], "--csv", rows, "--fact", "commit=1234567", "--fact", "note=a = b")
    if code or text or rows.read_text().splitlines() != [
            "# commit: 1234567", "# note: a = b", "# note: Largest relative L2 error: 1.50e-03.",
            "layer,M,N,K,limit_us,tuned_us,pdl_us,untuned_us,cublaslt_us,deep_gemm_us",
            "one,1,64,128,2.00,4.80,2.40,9.60,12.00,9.60",
            "one,256,64,128,10.00,27.00,27.00,27.00,24.00,36.00"]:
        yield f"--csv: {code} {text} {rows.read_text()}"

    code, text, error = table(folder, [tuned[:3]])
    if code != 1 or "not measured: one M = 256" not in error or cells(text, "one", "1")[7] != "":
        yield f"a missing row was not reported: {code} {error}"


def main():
    argparse.ArgumentParser(description=__doc__).parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        faults = list(check(Path(folder)))
    print("\n".join(faults) or "peers_table_check: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
