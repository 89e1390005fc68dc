#!/usr/bin/env python3
"""bench --decode: the share of the read rate counts the keys and values that a step reads."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

LAYERS, KV_HEADS, HEAD_DIM = 2, 2, 32
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": HEAD_DIM,
          "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
          "num_hidden_layers": LAYERS, "num_key_value_heads": KV_HEADS,
          "tie_word_embeddings": True, "torch_dtype": "bfloat16", "vocab_size": 300}
A_KEY = 2 * LAYERS * KV_HEADS * HEAD_DIM  # elements of K and V for one position


def bench(cli, folder, *arguments):
    done = subprocess.run([cli, "bench", "--decode", "--model", folder, "--steps", "5", "--prefill",
                           "8", "--cache", "off", "--json", *arguments], text=True,
                          capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"bench --decode failed: {done.stderr}")
    return json.loads(done.stdout)


def check(cli, folder):
    for context, batch, kv, size in ((40, 1, "bf16", 2), (150, 3, "f32", 4), (60, 2, "fp8", 1)):
        found = bench(cli, folder, "--context", str(context), "--batch", str(batch), "--kv", kv,
                      "--format", "bf16")
        positions, rest = divmod(found["cache_read_bytes"], A_KEY * size * batch)
        # The context, and a position for each step before the median round.
        if rest != 0 or not context < positions <= context + 50:
            yield f"context {context}, batch {batch}, {kv}: {found['cache_read_bytes']} bytes"
        if found["read_share"] <= 0:
            yield f"a share of {found['read_share']}"
    # Where steps are not recorded each node is timed by itself, with the flag and without.
    for arguments in ((), ("--profile",)):
        step = bench(cli, folder, "--context", "16", "--format", "bf16", *arguments)["decode"]
        products = sum(p["nodes"] * p["graph_us"] for p in step["products"])
        share = step["product_share"] * step["nodes_us"]
        if step["among_others"] or not 0.99 * share < products < 1.01 * share:
            yield f"products of {products} us, a share of {share}, {step['among_others']}"
    # Twenty-five times the weights' bytes. The share is the median of shares, each by the rate and time
    # of its own round, so their medians give it back but roughly.
    found = bench(cli, folder, "--context", "5000", "--kv", "f32", "--format", "bf16")
    read = found["read_share"] * found["read_gbps"] * found["decode"]["step_us"] * 1e3
    if not found["cache_read_bytes"] / 10 < read < found["cache_read_bytes"] * 10:
        yield f"a share of {found['read_share']} is {read} bytes, not {found['cache_read_bytes']}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--cli", required=True)
    cli = parser.parse_args().cli
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        problems = list(check(cli, folder))
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
