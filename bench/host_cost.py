#!/usr/bin/env python3
"""What a product costs the host: microseconds of a call from Python, of the smallest useful product, so
that on a GPU none waits for the device and on the CPU little is computed.

    python bench/host_cost.py [--device cuda] [--m 1] [--n 128] [--k 128]

Needs torch for most rows; without it numpy's are printed. Medians of rounds, all rows in turns."""

import argparse
import statistics
import time

import culet

ROUNDS, CALLS = 31, 200


def torch_rows(torch, device, m, n, k):
    from culet import nn as culet_nn
    x = torch.randn(m, k, device=device).to(torch.bfloat16)
    w = torch.randn(n, k, device=device).to(torch.bfloat16)
    y, wt = torch.empty(m, n, device=device, dtype=torch.bfloat16), w.t()
    fp8 = lambda rows, blocks: (torch.zeros(rows, k, device=device).to(torch.float8_e4m3fn),
                                torch.ones(blocks, -(-k // 128), device=device))
    a, b = fp8(m, m), fp8(n, -(-n // 128))
    planned, planned_fp8 = culet.plan(x, w, y), culet.plan(a, b, y)
    linear = torch.nn.Linear(k, n, bias=False, device=device, dtype=torch.bfloat16)
    linear.requires_grad_(False)
    bf16, quantised = culet_nn.LinearBF16.from_linear(linear), culet_nn.LinearFP8.from_linear(linear)
    return {
        "plan()": planned,
        "plan(x, y)": lambda: planned(x, y),
        "plan of pairs()": planned_fp8,
        "gemm(x, w, y)": lambda: culet.gemm(x, w, y),
        "gemm(x, w)": lambda: culet.gemm(x, w),
        "fp8_gemm_nt(a, b, y)": lambda: culet.fp8_gemm_nt(a, b, y),
        "quantize_fp8(x)": lambda: culet.quantize_fp8(x),
        "torch.ops.culet.gemm(x, w)": lambda: torch.ops.culet.gemm(x, w),
        "torch.mm(x, w.t(), out=y)": lambda: torch.mm(x, wt, out=y),
        "torch.mm(x, w.t())": lambda: torch.mm(x, wt),
        "nn.Linear": lambda: linear(x),
        "culet.nn.LinearBF16": lambda: bf16(x),
        "culet.nn.LinearFP8": lambda: quantised(x),
    }


def numpy_rows(numpy, m, n, k):
    x, w, y = (numpy.ones(shape, numpy.float32) for shape in ((m, k), (n, k), (m, n)))
    planned, wt = culet.plan(x, w, y), w.T
    return {"plan()": planned, "plan(x, y)": lambda: planned(x, y),
            "gemm(x, w, y)": lambda: culet.gemm(x, w, y),
            "numpy.matmul(x, w.T, out=y)": lambda: numpy.matmul(x, wt, out=y)}


def measured(rows, synchronize):
    """Row -> microseconds of a call."""
    samples = {name: [] for name in rows}
    for _ in range(ROUNDS):
        for name, call in rows.items():
            call()
            synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            samples[name].append((time.perf_counter() - start) / CALLS * 1e6)
            synchronize()
    return {name: statistics.median(times) for name, times in samples.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    for name, value in (("m", 1), ("n", 128), ("k", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    shape, synchronize, all_rows = (given.m, given.n, given.k), lambda: None, {}
    try:
        import torch
        if given.device.startswith("cuda"):
            torch.cuda.set_device(given.device if ":" in given.device else 0)
            synchronize = torch.cuda.synchronize
        with torch.no_grad():
            all_rows["torch"] = torch_rows(torch, given.device, *shape)
    except ImportError as error:
        print(f"without torch: {error}")
    if given.device == "cpu":
        try:
            import numpy
            all_rows["numpy"] = numpy_rows(numpy, *shape)
        except ImportError as error:
            print(f"without numpy: {error}")
    print(f"M = {given.m}, N = {given.n}, K = {given.k} on {given.device}; us a call\n\n| arrays | call | us |\n|---|---|---|")
    for arrays, rows in all_rows.items():
        for name, time_us in measured(rows, synchronize).items():
            print(f"| {arrays} | `{name}` | {time_us:.2f} |")


if __name__ == "__main__":
    main()
