#!/usr/bin/env python3
"""Tokens a second of decoding on the CPU: culet's u4 beside llama.cpp's Q4_0, of one model with random weights.

    python bench/llama_cpp_decode.py [--config examples/models/llama-3.2-1b] [--threads 2] [--context 512]
        [--tokens 32] [--rounds 3] [--culet build/cpu/culet] [--llama-bench PATH] [--keep FILE]

Writes the model as a GGUF file of Q4_0 (embedding and head, too), runs both programs in turns and prints the medians.
llama.cpp is its program llama-bench; without a PATH the package llama_cpp (pip install llama-cpp-python). culet has
groups of 128, so 4.25 bits a weight for Q4_0's 4.5, and a head of 16 bits."""

import argparse
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
F32, Q4_0 = 0, 2
BLOCK = 32          # elements of Q4_0: a half and 16 bytes
ALIGNMENT = 32
UINT32, FLOAT32, STRING, ARRAY, INT32 = 4, 6, 8, 9, 5


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


class Writer:
    """A GGUF file of version 3."""

    def __init__(self):
        self.metadata, self.tensors = [], []

    def add(self, key, kind, value):
        packed = text(value) if kind == STRING else struct.pack("<I" if kind == UINT32 else "<f", value)
        self.metadata.append(text(key) + struct.pack("<I", kind) + packed)

    def add_list(self, key, kind, values):
        items = b"".join(text(value) if kind == STRING else struct.pack("<f" if kind == FLOAT32 else "<i", value)
                         for value in values)
        self.metadata.append(text(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + items)

    def write(self, path, noise):
        with open(path, "wb") as file:
            file.write(b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.metadata)) + b"".join(self.metadata))
            offset = 0
            for name, sizes, kind in self.tensors:
                file.write(text(name) + struct.pack("<I", len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes) +
                           struct.pack("<IQ", kind, offset))
                offset += -(-self.bytes(sizes, kind) // ALIGNMENT) * ALIGNMENT
            for name, sizes, kind in self.tensors:
                file.write(b"\0" * (-file.tell() % ALIGNMENT))
                if kind == F32:
                    file.write(struct.pack("<f", 1.0) * sizes[0])
                else:
                    left = self.bytes(sizes, kind)
                    while left:
                        file.write(noise[:left])
                        left -= min(left, len(noise))

    @staticmethod
    def bytes(sizes, kind):
        count = 1
        for size in sizes:
            count *= size
        return count * 4 if kind == F32 else count // BLOCK * 18


def write_model(path, config):
    """Of a config.json of Llama's: norms of ones, other weights of about 0.02."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads, width = config.get("num_key_value_heads", heads), config["intermediate_size"]
    head_dim, vocab = config.get("head_dim", hidden // heads), config["vocab_size"]
    writer = Writer()
    writer.add("general.architecture", STRING, "llama")
    for key, value in (("block_count", config["num_hidden_layers"]), ("embedding_length", hidden),
                       ("context_length", config["max_position_embeddings"]), ("feed_forward_length", width),
                       ("attention.head_count", heads), ("attention.head_count_kv", kv_heads),
                       ("attention.key_length", head_dim), ("attention.value_length", head_dim),
                       ("rope.dimension_count", head_dim), ("vocab_size", vocab)):
        writer.add(f"llama.{key}", UINT32, value)
    writer.add("llama.attention.layer_norm_rms_epsilon", FLOAT32, config.get("rms_norm_eps", 1e-5))
    writer.add("llama.rope.freq_base", FLOAT32, config.get("rope_theta", 1e4))
    writer.add("tokenizer.ggml.model", STRING, "llama")
    writer.add_list("tokenizer.ggml.tokens", STRING, [f"t{i}" for i in range(vocab)])
    writer.add_list("tokenizer.ggml.scores", FLOAT32, [0.0] * vocab)
    writer.add_list("tokenizer.ggml.token_type", INT32, [1] * vocab)
    writer.tensors.append(("token_embd.weight", (hidden, vocab), Q4_0))
    writer.tensors.append(("output_norm.weight", (hidden,), F32))
    if not config.get("tie_word_embeddings", False):
        writer.tensors.append(("output.weight", (hidden, vocab), Q4_0))
    for layer in range(config["num_hidden_layers"]):
        for name, rows, cols in (("attn_q", heads * head_dim, hidden), ("attn_k", kv_heads * head_dim, hidden),
                                 ("attn_v", kv_heads * head_dim, hidden), ("attn_output", hidden, heads * head_dim),
                                 ("ffn_gate", width, hidden), ("ffn_up", width, hidden), ("ffn_down", hidden, width)):
            writer.tensors.append((f"blk.{layer}.{name}.weight", (cols, rows), Q4_0))
        for name in ("attn_norm", "ffn_norm"):
            writer.tensors.append((f"blk.{layer}.{name}.weight", (hidden,), F32))
    pick, scale = random.Random(1), struct.pack("<e", 0.004)
    writer.write(path, b"".join(scale + pick.randbytes(16) for _ in range(1 << 16)))


def of_culet(given):
    done = subprocess.run(
        [given.culet, "bench", "--decode", "--model", given.config, "--format", "u4", "--device", "cpu", "--threads",
         str(given.threads), "--context", str(given.context), "--steps", str(given.tokens), "--prefill", "16", "--json"],
        capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["decode_tokens_per_s"]


def of_llama_bench(given, path):
    done = subprocess.run(
        [given.llama_bench, "-m", path, "-t", str(given.threads), "-p", "0", "-n", str(given.tokens), "-d",
         str(given.context), "-r", "1", "-ngl", "0", "-o", "json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)[-1]["avg_ts"]


def of_package(given, path):
    import llama_cpp
    model = llama_cpp.Llama(path, n_ctx=given.context + given.tokens + 8, n_threads=given.threads, n_gpu_layers=0,
                            verbose=False)
    model.eval([1 + i % 100 for i in range(given.context)])
    start = time.perf_counter()
    for i in range(given.tokens):
        model.eval([1 + i % 100])
    return given.tokens / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=str(ROOT / "examples/models/llama-3.2-1b"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--culet", default=str(ROOT / "build/cpu/culet"))
    parser.add_argument("--llama-bench", default=shutil.which("llama-bench"))
    parser.add_argument("--keep", help="write the GGUF file here, and leave it")
    given = parser.parse_args()
    place = Path(given.config)
    config = json.loads((place / "config.json" if place.is_dir() else place).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        path = given.keep or str(Path(folder) / "model.gguf")
        write_model(path, config)
        ways = {"culet u4": lambda: of_culet(given)}
        if given.llama_bench:
            ways["llama.cpp Q4_0"] = lambda: of_llama_bench(given, path)
        else:
            try:
                import llama_cpp  # noqa: F401
                ways["llama.cpp Q4_0"] = lambda: of_package(given, path)
            except ImportError:
                print("no llama-bench and no package llama_cpp: culet alone", file=sys.stderr)
        found = {name: [] for name in ways}
        for _ in range(given.rounds):  # in turns
            for name, way in ways.items():
                found[name].append(way())
        for name, values in found.items():
            print(f"{name}: {statistics.median(values):.2f} tokens/s of {', '.join(f'{value:.2f}' for value in values)}")


if __name__ == "__main__":
    main()
