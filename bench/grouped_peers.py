#!/usr/bin/env python3
"""Grouped products of culet, DeepGEMM and torch on one GPU: six layers of mixtures of experts, with the counts that
top-k routing at random leaves.

Times are of a CUDA graph, over `limit`: what the routed rows, their results and the weights of experts with a row cost
at the device's rates, without padding. Below the rows are their geometric means. What is not installed is left out."""

import argparse
import csv
import math
import random
import statistics
import sys
import time

import torch

import culet
from culet import deep_gemm as ours

LAYERS = (  # name, experts here, all experts, experts a token, N, K
    ("dsv3-ep8.gate_up", 32, 256, 8, 4096, 7168), ("dsv3-ep8.down", 32, 256, 8, 7168, 2048),
    ("qwen3-30b.gate_up", 128, 128, 8, 1536, 2048), ("qwen3-30b.down", 128, 128, 8, 2048, 768),
    ("mixtral.gate_up", 8, 8, 2, 28672, 4096), ("mixtral.down", 8, 8, 2, 4096, 14336))
BYTES_A_US, FP8_A_US, BF16_A_US = 4.31e6, 1550e6, 788e6  # an H200's, measured
MOST_SLAB = 24e9  # bytes that the masked layout may take


def routing(seed, tokens, local, experts, active):
    """Rows of each expert here; never all 0."""
    for attempt in range(1000):
        rng, counts = random.Random(seed + attempt), [0] * local
        for _ in range(tokens):
            for e in rng.sample(range(experts), active):
                if e < local:
                    counts[e] += 1
        if sum(counts):
            return counts
    raise RuntimeError("no token reached an expert")


def graph_us(calls, count, rounds=7):
    """Microseconds of each of `count` launches in a graph, which takes the calls in turns."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            calls[i % len(calls)]()
    times = []
    for _ in range(rounds + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / count)
    return statistics.median(times[1:])


def ints(values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def e4m3(*shape):
    return torch.randint(0, 120, shape, device="cuda", dtype=torch.uint8).view(torch.float8_e4m3fn)


def scales(*shape):
    return torch.rand(*shape, device="cuda") + 0.5


class Layer:
    """The weights of a layer, and what each peer makes of a routing's counts: a call to be timed."""

    def __init__(self, shape, tokens, bf16):
        _, self.local, self.experts, self.active, self.n, self.k = shape
        self.tokens, self.blocks = tokens, -(-self.k // 128)
        self.values = e4m3(self.local, self.n, self.k)
        self.scales = scales(self.local, -(-self.n // 128), self.blocks)
        self.bf16 = torch.randn(self.local, self.n, self.k, device="cuda", dtype=torch.bfloat16) if bf16 else None

    def rows(self, m, bf16):
        if bf16:
            return torch.randn(m, self.k, device="cuda", dtype=torch.bfloat16)
        return e4m3(m, self.k), ours.get_mn_major_tma_aligned_tensor(scales(m, self.blocks))

    def weights(self, bf16):
        return self.bf16 if bf16 else (self.values, self.scales)

    def out(self, *shape):
        return torch.empty(*shape, self.n, device="cuda", dtype=torch.bfloat16)

    def ragged(self, counts, bf16):
        """Rows as routing leaves them."""
        offsets = ints([sum(counts[:e]) for e in range(self.local + 1)])
        x, w, d = self.rows(sum(counts), bf16), self.weights(bf16), self.out(sum(counts))
        expected = self.tokens, self.active, self.experts
        return lambda: culet.grouped_gemm_nt(x, w, d, offsets=offsets, expected=expected)

    def contiguous(self, package, counts, bf16):
        layout = ints([g for e, count in enumerate(counts) for g in [e] * count + [-1] * (-count % 128)])
        x, w, d = self.rows(len(layout), bf16), self.weights(bf16), self.out(len(layout))
        call = getattr(package, f"m_grouped_{'bf16' if bf16 else 'fp8'}_gemm_nt_contiguous")
        return lambda: call(x, w, d, layout)

    def masked(self, package, counts):
        most = max(64, -(-max(counts) // 64) * 64)
        if self.local * most * (self.k + 2 * self.n) > MOST_SLAB:
            raise RuntimeError("the masked layout is too large")
        x = e4m3(self.local, most, self.k), ours.get_mn_major_tma_aligned_tensor(
            scales(self.local, most, self.blocks))
        d, rows, expected = self.out(self.local, most), ints(counts), max(1, round(sum(counts) / self.local))
        return lambda: package.m_grouped_fp8_gemm_nt_masked(x, (self.values, self.scales), d, rows, expected)

    def torch_bf16(self, counts):
        x, ends = self.rows(sum(counts), True), ints([sum(counts[:e + 1]) for e in range(self.local)])
        return lambda: torch._grouped_mm(x, self.bf16.transpose(-2, -1), offs=ends)


def makers():
    """Peer -> what makes its call of a layer and counts."""
    found = {"culet": lambda layer, counts: layer.ragged(counts, False),
             "culet_contiguous": lambda layer, counts: layer.contiguous(ours, counts, False),
             "culet_masked": lambda layer, counts: layer.masked(ours, counts),
             "culet_bf16": lambda layer, counts: layer.ragged(counts, True)}
    try:
        import deep_gemm
        found |= {"dg_contiguous": lambda layer, counts: layer.contiguous(deep_gemm, counts, False),
                  "dg_masked": lambda layer, counts: layer.masked(deep_gemm, counts),
                  "dg_bf16": lambda layer, counts: layer.contiguous(deep_gemm, counts, True)}
    except ImportError as error:
        print(f"# without DeepGEMM: {error}")
    if hasattr(torch, "_grouped_mm"):
        found["torch_bf16"] = lambda layer, counts: layer.torch_bf16(counts)
    return found


def limits(layer, all_counts):
    """Microseconds of the device's rates, with FP8 and with BF16."""
    rows = statistics.mean(map(sum, all_counts))
    active = statistics.mean(sum(count > 0 for count in counts) for counts in all_counts)
    n, k = layer.n, layer.k
    fp8 = rows * k * (1 + 4 / 128) + active * n * k * (1 + 4 / 16384) + 2 * rows * n
    bf16 = 2 * (rows * k + active * n * k + rows * n)
    work = 2 * rows * n * k
    return max(fp8 / BYTES_A_US, work / FP8_A_US), max(bf16 / BYTES_A_US, work / BF16_A_US)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="a CSV file to write")
    parser.add_argument("--seconds", type=float, default=240, help="begin no layer after so many")
    parser.add_argument("--peers", help="names, with commas; by default all that are here")
    parser.add_argument("--tokens", default="1,8,64,256,1024,4096")
    options = parser.parse_args()
    known, begin, lines = makers(), time.monotonic(), []
    peers = options.peers.split(",") if options.peers else list(known)
    if unknown := [peer for peer in peers if peer not in known]:
        parser.error(f"--peers: {', '.join(unknown)} is not here; there are {', '.join(known)}")
    print(torch.cuda.get_device_name(0), flush=True)
    for shape in LAYERS:
        for tokens in map(int, options.tokens.split(",")):
            if time.monotonic() - begin > options.seconds:
                print("# the time is over")
                break
            layer = Layer(shape, tokens, any("bf16" in peer for peer in peers))
            turns = 6 if tokens <= 64 else 2
            all_counts = [routing(17 * tokens + turn, tokens, *shape[1:4]) for turn in range(turns)]
            limit, limit_bf16 = limits(layer, all_counts)
            count = max(turns, min(48, int(3000 / limit)) // turns * turns)
            shown = []
            for peer in peers:
                bound = limit_bf16 if "bf16" in peer else limit
                try:
                    over = graph_us([known[peer](layer, counts) for counts in all_counts], count) / bound
                except Exception as error:  # a peer's own, whatever it is
                    torch.cuda.synchronize()
                    print(f"# {peer} {shape[0]} {tokens}: {str(error).splitlines()[0][:140]}", flush=True)
                    continue
                shown.append(f"{peer} {over:.2f}")
                lines.append({"name": shape[0], "tokens": tokens, "peer": peer, "limit_us": round(bound, 3),
                              "over_limit": round(over, 3)})
            print(f"{shape[0]:18} T={tokens:5} limit {limit:8.2f} us, BF16 {limit_bf16:8.2f} | {' | '.join(shown)}",
                  flush=True)
            del layer
            torch.cuda.empty_cache()
    for peer in peers:
        for tokens in sorted({line["tokens"] for line in lines}):
            found = [line["over_limit"] for line in lines if (line["peer"], line["tokens"]) == (peer, tokens)]
            if found:
                mean = math.exp(statistics.mean(map(math.log, found)))
                print(f"{peer:18} T={tokens:5} geometric mean of {len(found)}: {mean:.3f}")
    if options.out and lines:
        with open(options.out, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, lines[0])
            writer.writeheader()
            writer.writerows(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
