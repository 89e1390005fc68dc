#!/usr/bin/env python3
"""Times attention of single rows in PyTorch (cuDNN, FlashAttention-2) and in culet on one GPU, one row of the table
after the other: 32 query and 8 key-value heads of 128 in BF16, PyTorch's keys side by side, culet's in a paged cache
whose blocks are shuffled. CUDA graphs over rotating caches of more than 220 MB, medians.

usage: attention_peers.py --attention PROGRAM [--rows 1x512,1x4096,...] [--block 64] [--options "--pdl --early"]
needs: Python with torch; PROGRAM is cuda_attention (bench/cuda_attention.cc, built with the tests).
"""

import argparse
import statistics
import subprocess

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from formats import ROTATED_BYTES, captured, replay_us

HEADS, KV_HEADS, DIM = 32, 8, 128
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention-2": SDPBackend.FLASH_ATTENTION}
ROWS = "1x512,1x4096,1x32768,8x512,8x4096,8x32768,64x512,64x4096,64x32768"
REPLAYS = 7


def torch_us(backend, batch, context):
    """Microseconds of one call, or why there is none."""
    shape = (batch, KV_HEADS, context, DIM)
    sets = max(1, min(24, ROTATED_BYTES // (4 * batch * context * KV_HEADS * DIM) + 1))
    keys = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
    values = [torch.randn_like(k) for k in keys]
    query = torch.randn(batch, HEADS, 1, DIM, device="cuda", dtype=torch.bfloat16)
    attend = torch.nn.functional.scaled_dot_product_attention
    count = max(sets, 12)
    try:
        with sdpa_kernel(backend):
            graph = captured([lambda i=i: attend(query, keys[i], values[i], enable_gqa=True) for i in range(sets)],
                             count)
    except RuntimeError as error:
        return str(error).splitlines()[0][:60]
    replay_us(graph, count)
    return statistics.median(replay_us(graph, count) for _ in range(REPLAYS))


def culet_us(options, batch, context):
    command = [options.attention, "--only", "decode", "--batch", str(batch), "--context", str(context),
               "--block", str(options.block), *options.options.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["no message"])[-1]
    return float(done.stdout.strip().splitlines()[-1].split(",")[5])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attention", required=True, metavar="PROGRAM")
    parser.add_argument("--rows", default=ROWS, help="batch x context, a list")
    parser.add_argument("--block", type=int, default=64, help="positions in a block of culet's cache")
    parser.add_argument("--options", default="--pdl --early", help="of PROGRAM")
    options = parser.parse_args()
    print(torch.cuda.get_device_name(0), torch.__version__, flush=True)
    for row in options.rows.split(","):
        batch, context = map(int, row.split("x"))
        found = {name: torch_us(backend, batch, context) for name, backend in BACKENDS.items()}
        torch.cuda.empty_cache()
        found["culet"] = culet_us(options, batch, context)
        times = [v for name, v in found.items() if name != "culet" and isinstance(v, float)]
        ratio = found["culet"] / min(times) if times and isinstance(found["culet"], float) else float("nan")
        print(f"{row:>10} | " + " | ".join(f"{name} {v if isinstance(v, str) else f'{v:.2f} us'}"
                                           for name, v in found.items()) + f" | {ratio:.3f} of the best peer",
              flush=True)


if __name__ == "__main__":
    main()
