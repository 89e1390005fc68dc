#!/usr/bin/env python3
"""The shipped tables of measured choices, tuned/*.jsonl: each is a cache of one class of device, which its name says,
with measured records alone, of culet's own kernels, each problem once.

Checks itself first on tables with one fault each."""

import argparse
import json
import sys
from pathlib import Path

HEADER = '{"format":"culet-dispatch-cache","version":1}'
GOOD = {"device": "cuda/900/132sm", "problem": {"m": 1}, "checksum": "0" * 16, "library": "0.1.0",
        "launch": {"kernel": "sm90_bf16_skinny", "origin": "measured", "time_us": 2.0, "spread_us": 0.1}}


def check(name, text):
    lines = text.splitlines()
    if not lines or lines[0] != HEADER:
        yield f"{name}: the first line is not {HEADER}"
        return
    seen = set()
    for number, line in enumerate(lines[1:], 2):
        try:
            record = json.loads(line)
            device, launch = record["device"], record["launch"]
            problem = json.dumps(record["problem"], sort_keys=True)
            noisy = launch["spread_us"] > launch["time_us"]
        except (ValueError, KeyError, TypeError) as error:
            yield f"{name}:{number}: is no record ({error!r})"
            continue
        if name != device.replace("/", "_") + ".jsonl":
            yield f"{name}:{number}: is of {device}, which is another table's"
        if launch.get("origin") != "measured" or noisy:
            yield f"{name}:{number}: is not a sound measurement"
        if "provider_version" in launch:
            yield f"{name}:{number}: depends on a library's version"
        if problem in seen:
            yield f"{name}:{number}: has a problem a second time"
        seen.add(problem)


def self_test():
    name = "cuda_900_132sm.jsonl"

    def table(**change):
        return "\n".join([HEADER, json.dumps({**GOOD, **change})])

    assert not list(check(name, table())), "a good table is refused"
    bad = {"another device": table(device="cpu/avx2"), "predicted": table(launch={**GOOD["launch"], "origin": "predicted"}),
           "noisy": table(launch={**GOOD["launch"], "spread_us": 9}), "no header": json.dumps(GOOD),
           "a library's": table(launch={**GOOD["launch"], "provider_version": "13.1"}), "cut": HEADER + "\n{",
           "twice": table() + "\n" + json.dumps(GOOD)}
    return [f"self-test: {fault} passed" for fault, text in bad.items() if not list(check(name, text))]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    args, _ = parser.parse_known_args()
    faults = self_test()
    for path in sorted((args.source / "tuned").glob("*.jsonl")):
        faults += check(path.name, path.read_text())
    print("\n".join(faults) or "tuned_check: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
