#!/usr/bin/env python3
"""CULET_SIMD: every level at or below the machine's is obeyed by the kernels, the rates and the
device class; a level above is what the machine has; anything else is an error. And the sources: no
file with SIMD code can miss the cap."""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

# The last one, for CPUs with none of the others, is named by how Highway emulates vectors there.
KNOWN = {"x86_64": ["avx3_dl", "avx3", "avx2"], "aarch64": ["neon"]}


def culet(cli, level, *arguments):
    environment = {key: value for key, value in os.environ.items() if key != "CULET_SIMD"}
    if level is not None:
        environment["CULET_SIMD"] = level
    return subprocess.run([cli, *arguments, "--json"], env=environment, text=True,
                          capture_output=True, check=False)


def levels_of(cli, level):
    answer = json.loads(culet(cli, level, "devices").stdout)
    host = answer["devices"][0]["class"].split("/")[1]
    return host, answer["simd_levels"]


def check_levels(cli):
    best, levels = levels_of(cli, None)
    if levels[-1] not in ("scalar", "emu128", "sse2"):
        yield f"the last level is {levels[-1]}"
    if levels[0] != best or len(set(levels)) != len(levels):
        yield f"uncapped: class {best}, levels {levels}"
    known = KNOWN.get(os.uname().machine, levels[:-1]) + levels[-1:]
    if known[len(known) - len(levels):] != levels:
        yield f"levels {levels} are no end of {known}"
    for place, level in enumerate(known):
        # A level that the machine lacks caps nothing.
        expected = levels[max(0, place - (len(known) - len(levels))):]
        host, capped = levels_of(cli, level)
        if capped != expected or host != expected[0]:
            yield f"CULET_SIMD={level}: class {host}, levels {capped}, not {expected}"


def check_kernels(cli):
    """Kernels for 32 registers are there at the levels that have them alone."""
    for level in levels_of(cli, None)[1]:
        done = culet(cli, level, "kernels")
        names = [kernel["id"] for kernel in json.loads(done.stdout)["kernels"]]
        wide = "cpu_simd/blocked/mr6nr4" in names
        if wide != (level.startswith("avx3") or level == "neon"):
            yield f"CULET_SIMD={level}: the kernels are {names}"


def check_bad_values(cli):
    for value in ("", "AVX2", "avx", "avx512", "sse4", "avx2 ", "off", "7"):
        for command in (["devices"], ["explain", "--m", "1", "--n", "8", "--k", "8"]):
            done = culet(cli, value, *command)
            message = done.stdout + done.stderr
            if done.returncode == 0 or f"CULET_SIMD is '{value}'" not in message:
                yield f"CULET_SIMD='{value}' {command[0]}: exit code {done.returncode}: {message}"
            elif "avx2" not in message and "neon" not in message:
                yield f"CULET_SIMD='{value}': the message names no level: {message}"


def check_sources(source):
    """Highway's choice is changed in one place; every file with SIMD code includes the cap."""
    for path in sorted((source / "src").rglob("*")):
        if path.suffix not in (".cc", ".h") or path.name == "host_simd.cc":
            continue
        text = path.read_text()
        if re.search(r"\b(SupportedTargets|DisableTargets|GetChosenTarget)\s*\(", text):
            yield f"{path}: asks Highway for the targets; SimdTargets() knows CULET_SIMD"
        dispatches = re.search(r"#include [<\"]hwy/foreach_target.h", text)
        if dispatches and '#include "base/simd_targets.h"' not in text:
            yield f"{path}: lacks base/simd_targets.h, which puts CULET_SIMD into force"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--cli", type=Path, required=True)
    args, _ = parser.parse_known_args()
    faults = [*check_levels(args.cli), *check_kernels(args.cli), *check_bad_values(args.cli),
              *check_sources(args.source)]
    print("\n".join(faults) or "simd_level_check: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
