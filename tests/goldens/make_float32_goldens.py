#!/usr/bin/env python3
"""Makes qwen3-fp8-tie: a checkpoint with an input on an E4M3 rounding tie, and outputs in FP32.

    python3 tests/goldens/make_float32_goldens.py

Needs NumPy. The weights are those of make_goldens.Model; the forward pass has the operations and the
orders of addition that docs/graph.md gives for the reference in FP32, written from that page. Seeds
are tried until FP32 and float64 give one input of a product different codes, in the middle of
the prompt, and no input before it lies near a tie.
"""
import itertools
import math

import numpy as np

from make_goldens import GROUP, PROMPT, Model, NearTie, config, e4m3_codes, e4m3_values, run, write_checkpoint

NAME = "qwen3-fp8-tie"
CONFIG = config(
    "Qwen3MoeForCausalLM", "qwen3_moe", hidden_size=144, intermediate_size=272, head_dim=40,
    num_attention_heads=3, num_key_value_heads=1, num_experts=3, num_experts_per_tok=2,
    moe_intermediate_size=48, norm_topk_prob=True, mlp_only_layers=[0], attention_bias=True,
    rope_theta=1000000.0,
    quantization_config={"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                         "weight_block_size": [GROUP, GROUP]})
F32 = np.float32


def fused(a, b, c):
    """a b + c with one rounding to FP32: the product is exact in float64, the sum is rounded to odd."""
    product, c = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + c
    part = total - product
    lost = (product - (total - part)) + (c - part)
    bits = total.view(np.int64)
    step = np.where((lost > 0) == (total > 0), 1, -1)
    return (bits + np.where((lost != 0) & (bits % 2 == 0), step, 0)).view(np.float64).astype(F32)


def dot(x, w):
    """x (m, k), w (n, k): fused, in the order of k, 256 at a time."""
    total = np.zeros((x.shape[0], w.shape[0]), F32)
    for first in range(0, x.shape[1], 256):
        block = np.zeros_like(total)
        for k in range(first, min(first + 256, x.shape[1])):
            block = fused(x[:, k, None], w[None, :, k], block)
        total = total + block
    return total


def chain(x, axis=-1):
    """The sum along an axis, one addition after the other."""
    return np.take(np.cumsum(x, axis=axis, dtype=F32), -1, axis=axis)


def sum_of_squares(x):
    """Of the last axis: 4 vectors of 8 elements, then over the vectors, then over the elements."""
    squares = np.pad(x * x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % 32)])
    vectors = chain(squares.reshape(*x.shape[:-1], -1, 4, 8), axis=-3)
    return chain(chain(vectors, axis=-2))


def exp(x):
    return np.exp(x.astype(np.float64)).astype(F32)


class Float32Model(Model):
    def __init__(self, *args):
        super().__init__(*args)
        self.w.values = {name: values.astype(F32) for name, values in self.w.values.items()}

    def linear(self, x, name):
        if self.w.files[name + ".weight"][0] == "F8_E4M3":
            x = self.quantised(x)
        y = dot(x, self.w.values[name + ".weight"])
        bias = self.w.values.get(name + ".bias")
        return y if bias is None else y + bias

    def quantised(self, x):
        out = np.zeros_like(x)
        for first in range(0, x.shape[1], GROUP):
            group = x[:, first:first + GROUP]
            scale = np.abs(group).max(axis=1, keepdims=True) / F32(448)
            out[:, first:first + GROUP] = scale * e4m3_values(e4m3_codes(group / scale)).astype(F32)
        return out

    def norm(self, x, name):
        mean = sum_of_squares(x) / F32(x.shape[-1])
        scale = F32(1) / np.sqrt(mean + F32(self.c["rms_norm_eps"]))
        return x * scale[..., None] * self.w.values[name + ".weight"]

    def rotate(self, x):
        frequencies, _ = self.frequencies()
        angle = np.arange(x.shape[0])[:, None] * frequencies
        cosine, sine = (f(angle).astype(F32)[:, None, :] for f in (np.cos, np.sin))
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cosine - b * sine, a * sine + b * cosine], axis=-1)

    def mixed(self, q, k, v, layer):
        tokens, group = q.shape[0], self.heads // self.kv_heads
        seen = np.tril(np.ones((tokens, tokens), bool))
        heads = []
        for h in range(self.heads):
            scores = dot(q[:, h], k[:, h // group]) * F32(1 / math.sqrt(self.head_dim))
            scores = np.where(seen, scores, F32(-np.inf))
            weight = exp(scores - scores.max(axis=-1, keepdims=True))
            weight = weight / chain(weight)[:, None]
            heads.append(chain(weight[:, :, None] * v[None, :, h // group], axis=1))
        return np.stack(heads, axis=1)

    def gated(self, x, gate, up, down):
        g = self.linear(x, gate)
        return self.linear(g / (F32(1) + exp(-g)) * self.linear(x, up), down)

    def shares(self, logits):
        share = exp(logits - logits.max(axis=-1, keepdims=True))
        chosen = np.argsort(-share, axis=-1, kind="stable")[:, :self.c["num_experts_per_tok"]]
        parts = np.take_along_axis(share, chosen, axis=-1)
        return chosen, parts / chain(parts)[:, None]


def tie(seed, prompt):
    """The position of the first input whose code the arithmetic decides, when all is as it should be."""
    exact = Model(CONFIG, "BF16", seed)
    exact.least_margin = 1e-5
    try:
        exact.forward(prompt)
        return None
    except NearTie:
        exact.least_margin = 0
    single = Float32Model(CONFIG, "BF16", seed)
    right, left = exact.forward(prompt)[0], single.forward(prompt)[0]
    assert left.dtype == F32
    errors = np.linalg.norm(left - right, axis=1) / np.linalg.norm(right, axis=1)
    first = int(np.argmax(errors > 1e-5))
    if not PROMPT // 3 <= first <= 2 * PROMPT // 3 or np.linalg.norm(left - right) < 0.01 * np.linalg.norm(right):
        return None
    exact.least_margin = Model.least_margin
    try:
        exact.forward(prompt[:first])
        return first
    except NearTie:
        return None


def main():
    for seed in itertools.count(1):
        prompt = [int(i) for i in np.random.Generator(np.random.PCG64(seed + 1000)).integers(3, 96, PROMPT)]
        position = tie(seed, prompt)
        if position is not None:
            break
    single = Float32Model(CONFIG, "BF16", seed)
    goldens = run(single, prompt, 12)
    assert all(array.dtype == F32 for name, (_, array) in goldens.items() if name in ("logits", "hidden"))
    write_checkpoint(NAME, single, dict(single.w.files), goldens)
    print(f"{NAME}: seed {seed}, the tie is at position {position}, "
          f"greedy margins {np.round(goldens['greedy_margin'][1], 3)}")


if __name__ == "__main__":
    main()
