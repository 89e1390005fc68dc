#!/usr/bin/env python3
"""Times culet.gemm beside PyTorch's BF16 and scaled FP8 products on one GPU, and beside DeepGEMM's
of BF16 and of FP8 blocks: CUDA graphs over rotating inputs of more than 220 MB, replayed in turn,
medians. FP8 with scales of rows and FP8 with those of tensors are both timed beside PyTorch's of
either.

usage: formats.py [--formats bf16,row,tensor,block] [--ms 1,16,64] [--layers SUBSTRING|--shapes NxK,...]
                  [--culet tuned,pdl,gated] [--modes fast,precise] [--budget 2] [--limit 400]
                  [--out CSV] [--warm]
needs: Python with torch, and the package culet importable (PYTHONPATH, CULET_LIBRARY). DeepGEMM
takes part where it is importable (deep_gemm). It compiles a kernel for each problem; --warm does
nothing else, for all problems at a time.

--culet: which of culet's choices to time: untuned (in a process of its own: neighbours that were
tuned would help it), tuned, pdl (tuned and launched with pdl=True), gated (tuned; SwiGLU of the
product of BF16 or FP8 blocks, D in E4M3 with scales, beside the peers' plain products). --budget:
seconds of tuning a problem. The limit of a row is what --read and --bf16, --fp8 allow: bytes /
TB/s, flop / TFLOP/s.
"""

import argparse
import csv
import functools
import gc
import importlib.util
import math
import random
import statistics
import subprocess
import sys
import time

import torch

LAYERS = [  # (name, N, K)
    ("dsv3.qkv_a", 2112, 7168), ("dsv3.q_b", 24576, 1536), ("dsv3.kv_b", 32768, 512),
    ("dsv3.o", 7168, 16384), ("dsv3.gate_up", 4096, 7168), ("dsv3.down", 7168, 2048),
    ("llama8b.qkv", 6144, 4096), ("llama8b.o", 4096, 4096), ("llama8b.gate_up", 28672, 4096),
    ("llama8b.down", 4096, 14336), ("llama70b.o", 8192, 8192), ("llama70b.down", 8192, 28672),
]
DEEP_GEMM = ("bf16", "block")  # the formats that it has
CHOICES = ("untuned", "tuned", "pdl", "gated")  # culet's; all else is a peer
ROTATED_BYTES = 220_000_000  # more than L2, several times
REPLAYS = 15


def captured(calls, count):
    """A CUDA graph of `count` calls that take turns. Nothing is collected meanwhile: a graph that is
    destroyed while another is captured makes the capture fail."""
    for call in calls:
        call()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        calls[0]()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    gc.collect()
    gc.disable()
    try:
        with torch.cuda.graph(graph):
            for i in range(count):
                calls[i % len(calls)]()
    finally:
        gc.enable()
    return graph


def replay_us(graph, count):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / count


class Operands:
    """Rotating inputs and outputs of one problem; FP8 ones hold the same values as the BF16 ones,
    rounded, with scales that are not all one."""

    def __init__(self, form, m, n, k, sets=None):
        self.form, self.m, self.n, self.k = form, m, n, k
        element = 2 if form == "bf16" else 1
        self.bytes = element * (m * k + n * k) + 2 * m * n
        sets = sets or max(1, min(48, -(-ROTATED_BYTES // self.bytes)))
        kind = torch.bfloat16 if form == "bf16" else torch.float8_e4m3fn
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16).to(kind)
        b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16).to(kind)
        self.a = [a] + [a.clone() for _ in range(sets - 1)]
        self.b = [b] + [b.clone() for _ in range(sets - 1)]
        self.d = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
        self.scales = {}  # of A and B by what has one
        self.rows = min(m, 64)  # that are compared
        first, all_b = self.a[0][:self.rows].float(), b.float()
        if form == "block":
            self.scales["block"] = scale_a, scale_b = block_scales(m, n, k)
            first = first * scale_a[:self.rows].repeat_interleave(128, 1)[:, :k]
            all_b = all_b * scale_b.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
        elif form != "bf16":
            self.scales["row"] = (torch.rand(m, 1, device="cuda") + 0.5,
                                  torch.rand(1, n, device="cuda") + 0.5)
            self.scales["tensor"] = (torch.full((), 0.75, device="cuda"),
                                     torch.full((), 1.25, device="cuda"))
        self.sums = first @ all_b.t()

    def error(self, kind):
        """The relative L2 error of D's first rows, with scales of that kind."""
        expected = self.sums
        if kind in ("row", "tensor"):
            scale_a, scale_b = self.scales[kind]
            expected = self.sums * (scale_a[:self.rows] if kind == "row" else scale_a) * scale_b
        return relative(self.d[0][:self.rows].float(), expected)

    def gate(self):
        """Makes room for SwiGLU of the product, gate and up by eights, in E4M3 with scales."""
        half = self.d[0].shape[1] // 2
        self.codes = [torch.empty(d.shape[0], half, device="cuda", dtype=torch.float8_e4m3fn)
                      for d in self.d]
        self.code_scales = [torch.empty(d.shape[0], -(-half // 128), device="cuda") for d in self.d]

    def gated_error(self):
        """The relative L2 error of the first rows of that; E4M3 alone has some 0.026."""
        gate, up = self.sums.unflatten(1, (-1, 2, 8)).unbind(2)
        expected = (torch.nn.functional.silu(gate) * up).flatten(1)
        scales = self.code_scales[0][:self.rows].repeat_interleave(128, 1)[:, :expected.shape[1]]
        return relative(self.codes[0][:self.rows].float() * scales, expected)


def relative(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


def block_scales(m, n, k):
    """Scales (M, K / 128), rows side by side as DeepGEMM and cuBLASLt want them, and (N / 128, K / 128),
    rows as far apart as cuBLASLt wants them. Small, so that SiLU's argument is some units."""
    blocks_k, blocks_n = -(-k // 128), -(-n // 128)
    columns = -(-m // 4) * 4  # 16 bytes
    scale_a = (torch.rand(blocks_k, columns, device="cuda") + 0.5)[:, :m].t()
    scale_b = (torch.rand(blocks_n, -(-blocks_k // 4) * 4, device="cuda") + 0.5) / math.sqrt(k)
    return scale_a, scale_b[:, :blocks_k]


def torch_calls(o, mode, kind):
    if kind == "bf16":
        return [lambda i=i: torch.mm(o.a[i], o.b[i].t(), out=o.d[i]) for i in range(len(o.a))]
    scale_a, scale_b = o.scales[kind]
    if kind == "block":
        if o.m % 4 != 0:
            raise ValueError("cuBLASLt's rows with block scales come in fours")
        from torch.nn.functional import ScalingType, scaled_mm
        kinds = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128

        def call(i):
            o.d[i] = scaled_mm(o.a[i], o.b[i].t(), scale_a, kinds[0], scale_b.t(), kinds[1],
                               output_dtype=torch.bfloat16)
        return [lambda i=i: call(i) for i in range(len(o.a))]
    return [lambda i=i: torch._scaled_mm(o.a[i], o.b[i].t(), scale_a, scale_b,
                                         out_dtype=torch.bfloat16, use_fast_accum=mode == "fast",
                                         out=o.d[i])
            for i in range(len(o.a))]


def has_deep_gemm():
    return importlib.util.find_spec("deep_gemm") is not None


def deep_gemm_calls(o):
    import deep_gemm
    if o.form == "block":
        scale_a, scale_b = o.scales["block"]
        scale_b = scale_b.contiguous()
        return [lambda i=i: deep_gemm.fp8_gemm_nt((o.a[i], scale_a), (o.b[i], scale_b), o.d[i])
                for i in range(len(o.a))]
    return [lambda i=i: deep_gemm.bf16_gemm_nt(o.a[i], o.b[i], o.d[i]) for i in range(len(o.a))]


def warm_deep_gemm(forms, problems, processes=16):
    """Compiles DeepGEMM's kernels for problems (m, n, k), in several processes."""
    texts = [f"{form},{m},{n},{k}" for form in forms if form in DEEP_GEMM for m, n, k in problems]
    shares = [texts[i::processes] for i in range(min(processes, len(texts)))]
    for process in [subprocess.Popen([sys.executable, __file__, "--warm-one", *share])
                    for share in shares]:
        process.wait()


def warm_one(texts):
    for text in texts:
        form, m, n, k = text.split(",")
        deep_gemm_calls(Operands(form, int(m), int(n), int(k), sets=1))[0]()
    torch.cuda.synchronize()


def culet_calls(o, mode, pdl=False, gated=False):
    import culet
    scales = {}
    if o.form in o.scales:
        scale_a, scale_b = o.scales[o.form]
        scales = dict(a_scale=scale_a, b_scale=scale_b)
        if o.form != "block":
            scales["accumulate"] = mode
    if gated:
        o.gate()
        return [lambda i=i: culet.gemm(o.a[i], o.b[i], o.codes[i], epilogue="gated_silu",
                                       out_scale=o.code_scales[i], **scales)
                for i in range(len(o.a))]
    return [lambda i=i: culet.gemm(o.a[i], o.b[i], o.d[i], pdl=pdl, **scales)
            for i in range(len(o.a))]


def measure(o, mode, choices, budget, peak_us):
    """peer -> (microseconds, relative L2 error)."""
    count = max(len(o.a), min(200, int(4000 / peak_us)), 4)
    graphs, errors = {}, {}

    def add(peer, make, kind=o.form):
        try:
            calls = make()
            o.d[0].fill_(float("nan"))
            calls[0]()
            torch.cuda.synchronize()
            errors[peer] = o.gated_error() if peer == "gated" else o.error(kind)
            graphs[peer] = captured(calls, count)
        except Exception as error:  # a peer that refuses a shape is reported, not fatal
            torch.cuda.synchronize()
            print(f"# {peer} {o.form} {mode} m={o.m} n={o.n} k={o.k}: {str(error).splitlines()[0][:160]}")

    for kind in o.scales or ("bf16",):
        add(f"torch_{kind}", lambda: torch_calls(o, mode, kind), kind)
    if o.form in DEEP_GEMM and has_deep_gemm():
        add("deep_gemm", lambda: deep_gemm_calls(o))
    kernels = {}
    for choice in choices:
        make = functools.partial(culet_calls, o, mode, choice == "pdl", choice == "gated")
        if choice != "untuned":
            import culet
            with culet.autotune(budget=budget) as tuned:
                make()[0]()
            kernels[choice] = tuned.results[0].kernel if tuned.results else "?"
        add(choice, make)
    times = {peer: [] for peer in graphs}
    # At the power limit a replay's clock depends on what ran before it: each turn has its own order.
    order = random.Random(1)
    for _ in range(REPLAYS + 1):
        for peer in order.sample(list(graphs), len(graphs)):
            times[peer].append(replay_us(graphs[peer], count))
    return {peer: (statistics.median(t[1:]), errors[peer]) for peer, t in times.items()}, kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--formats", default="bf16,row,tensor")
    parser.add_argument("--modes", default="fast,precise")
    parser.add_argument("--ms", default="1,16,64,128,512,2048,8192")
    parser.add_argument("--layers", default="")
    parser.add_argument("--shapes", help="layers NxK instead, of any name")
    parser.add_argument("--culet", default="tuned,pdl")
    parser.add_argument("--budget", type=float, default=2)
    parser.add_argument("--limit", type=float, default=400)
    parser.add_argument("--read", type=float, default=4.31)
    parser.add_argument("--bf16", type=float, default=788)
    parser.add_argument("--fp8", type=float, default=1550)
    parser.add_argument("--out")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--warm-one", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.warm_one:
        return warm_one(options.warm_one)
    layers = [layer for layer in LAYERS if options.layers in layer[0]]
    if options.shapes:
        layers = [(shape, *map(int, shape.split("x"))) for shape in options.shapes.split(",")]
    if options.warm:
        return warm_deep_gemm(options.formats.split(","), [
            (int(m), n, k) for name, n, k in layers for m in options.ms.split(",")])
    choices = options.culet.split(",")
    if "untuned" in choices and len(choices) > 1:
        sys.exit("time the untuned choice in a process of its own: tuned neighbours would help it")
    print(torch.cuda.get_device_name(0), torch.__version__, flush=True)
    began, rows = time.time(), []
    for name, n, k in layers:
        for m in (int(v) for v in options.ms.split(",")):
            for form in options.formats.split(","):
                if time.time() - began > options.limit:
                    print("# time limit")
                    break
                o = Operands(form, m, n, k)
                peak = options.bf16 if form == "bf16" else options.fp8
                limit = max(o.bytes / options.read, 2.0 * m * n * k / peak) * 1e-6
                for mode in ("-",) if form in ("bf16", "block") else options.modes.split(","):
                    found, kernels = measure(o, mode, choices, options.budget, limit)
                    print(f"{name:16s} {form:6s} {mode:7s} M={m:5d} limit {limit:8.2f} | " + " | ".join(
                        f"{peer} {us:.2f} ({us / limit:.2f}, {error:.0e})"
                        for peer, (us, error) in found.items()) + "".join(
                            f" | {kernel}" for kernel in kernels.values()), flush=True)
                    for peer, (us, error) in found.items():
                        rows.append(dict(name=name, format=form, mode=mode, M=m, N=n, K=k, peer=peer,
                                         us=round(us, 3), limit_us=round(limit, 3),
                                         over_limit=round(us / limit, 3), rel_l2=f"{error:.2e}",
                                         kernel=kernels.get(peer, "")))
                del o
                torch.cuda.empty_cache()
    if options.out and rows:
        with open(options.out, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    for form, mode, m in sorted({(r["format"], r["mode"], r["M"]) for r in rows}):
        group = [r for r in rows if (r["format"], r["mode"], r["M"]) == (form, mode, m)]
        means = {}
        for peer in dict.fromkeys(r["peer"] for r in group):
            over = [r["over_limit"] for r in group if r["peer"] == peer]
            means[peer] = math.exp(statistics.mean(map(math.log, over)))
        print(f"{form:6s} {mode:7s} M={m:5d} over limit: " +
              "  ".join(f"{peer} {mean:.3f}" for peer, mean in means.items()))
        # A row's time over that of the best other library.
        for choice in CHOICES:
            ratios = {}
            for row in (r for r in group if r["peer"] == choice):
                peers = [r["us"] for r in group
                         if r["name"] == row["name"] and r["peer"] not in CHOICES]
                if peers:
                    ratios[row["name"]] = row["us"] / min(peers)
            if ratios:
                worst = max(ratios, key=ratios.get)
                mean = math.exp(statistics.mean(map(math.log, ratios.values())))
                print(f"{'':20s}{choice} over the best peer: {mean:.3f}, at most "
                      f"{ratios[worst]:.3f} ({worst})")


if __name__ == "__main__":
    main()
