#!/usr/bin/env python3
"""Times decoding of whole models (random weights) and prints one table: microseconds a step, tokens/s,
and the share of the limit, which is the bytes of weights and cache that a step reads at --read TB/s.

usage: decode_table.py --culet PROGRAM [--device cuda] [--rows MODEL:FORMAT,...] [--batches 1,8]
                       [--context 512] [--read 4.31] [--tune] [--prefill 256] [--profile] [--seconds 120]

--profile adds, of the step and of a prompt of --prefill tokens, the share of the time that launches with products
take, and the products' time alone, as `culet bench` has it, over their time in the step.

MODEL is a folder of examples/models. Each row is a process of its own; one that fails is a row with the error.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROWS = "llama-3.1-8b:bf16,llama-3.1-8b:fp8-block,llama-3.2-1b:bf16,qwen3-0.6b:bf16"


def measured(args, model, form, batch):
    """The program's document, or the reason why there is none."""
    command = [args.culet, "bench", "--decode", "--json", "--device", args.device, "--context", str(args.context),
               "--batch", str(batch), "--format", form, "--model", str(ROOT / "examples/models" / model)]
    command += ["--prefill", str(args.prefill)]
    command += ["--tune"] * args.tune + ["--profile"] * args.profile
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.seconds)
    except subprocess.TimeoutExpired:
        return None, f"took more than {args.seconds} s"
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or ["no message"])[-1]
    return json.loads(done.stdout), ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--culet", default=str(ROOT / "build/cuda/culet"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--batches", default="1,8,32,64,128")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--read", type=float, default=4.31, help="TB/s of the limit")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--prefill", type=int, default=256, help="tokens of the prompt")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--seconds", type=int, default=120, help="at most, a row")
    args = parser.parse_args()
    shares = " in products, alone over in the step | the same of the prompt |" if args.profile else ""
    print(f"| model | format | batch | us a step | tokens/s | share of the limit | prefill of {args.prefill}, tokens/s |{shares}")
    print("|---|---|---|---|---|---|---|" + "---|---|" * args.profile)
    failed = False
    for row in args.rows.split(","):
        model, form = row.split(":")
        for batch in map(int, args.batches.split(",")):
            found, why = measured(args, model, form, batch)
            if found is None:
                failed = True
                print(f"| {model} | {form} | {batch} | {why} | | | |", flush=True)
                continue
            us = found["decode"]["step_us"]
            limit_us = (found["bytes_a_token"] + found["cache_read_bytes"]) / args.read / 1e6
            print(f"| {model} | {form} | {batch} | {us:.0f} | {batch / us * 1e6:.0f} | {limit_us / us:.1%} "
                  f"| {found['prefill_tokens_per_s']:.0f} |"
                  + "".join(f" {found[part]['product_share']:.1%}, {found[part]['product_speed']:.1%} |"
                            for part in ("decode", "prefill") if args.profile), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
