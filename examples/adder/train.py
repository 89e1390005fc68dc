#!/usr/bin/env python3
"""Trains examples/adder: a small Llama of bytes that adds numbers of up to six digits.

Writes model.safetensors (BF16) and config.json into --out. Needs PyTorch; a GPU makes it minutes
instead of hours. A sample is the text "481516+42108=523624\\n": two numbers without leading zeros, and
the plain sum. Only the sum and the line end are learnt, the rest is the prompt. Sums that `held_out`
names are never learnt from; the evaluation, and tests/adder_test.cc, take theirs from them.
"""
import argparse
import json
import math
import struct
import time

import torch
import torch.nn.functional as F

VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, MLP = 256, 192, 6, 6, 2, 32, 512
EPS, THETA, DIGITS, LENGTH = 1e-5, 1000.0, 6, 22  # LENGTH: 6 + '+' + 6 + '=' + 7 + '\n'
PLUS, EQUALS, END, ZERO = ord("+"), ord("="), ord("\n"), ord("0")


def held_out(a, b):
    """Which sums are for evaluation only: one in 64. Works on numbers and on tensors."""
    return (a * 7919 + b) % 64 == 0


# --- Samples ---------------------------------------------------------------------------------------


def numbers(n, device, generator):
    """n pairs: all lengths up to six digits, long ones more often, a quarter rich in carries."""
    def uniform(*shape):
        return torch.rand(*shape, device=device, generator=generator)

    def lengths():
        short = (uniform(n) * DIGITS).long() + 1
        return torch.where(uniform(n) < 0.5, short, DIGITS)

    place = torch.arange(DIGITS, device=device)
    a, b = (uniform(n, DIGITS) * 10).long(), (uniform(n, DIGITS) * 10).long()
    # Digits that sum to nine hand a carry on; a run of them makes one digit decide about all.
    chain = (uniform(n, 1) < 0.25) & (uniform(n, DIGITS) < 0.8)
    b = torch.where(chain, 9 - a, b)
    pair = []
    for digits in (a, b):
        length = lengths()[:, None]
        leading = (place == length - 1) & (digits == 0) & (length > 1)
        digits = torch.where(leading, 1, digits) * (place < length)
        pair.append((digits * 10**place).sum(1))
    return pair


def text_of(a, b):
    """(n, LENGTH) bytes, zeros behind the line end, and the place of '=' in each."""
    total = a + b
    powers = 10 ** torch.arange(8, device=a.device)
    width = [(x[:, None] >= powers[1:]).sum(1) + 1 for x in (a, b, total)]
    plus = width[0]
    equals = plus + 1 + width[1]
    end = equals + 1 + width[2]
    at = torch.arange(LENGTH, device=a.device)[None]
    text = torch.zeros(len(a), LENGTH, dtype=torch.long, device=a.device)
    for number, first, digits in ((a, 0, width[0]), (b, plus + 1, width[1]), (total, equals + 1, width[2])):
        first = torch.as_tensor(first, device=a.device).expand(len(a))
        place = (first + digits - 1)[:, None] - at
        digit = number[:, None] // powers[place.clamp(0, 7)] % 10
        text = torch.where((place >= 0) & (at >= first[:, None]), digit + ZERO, text)
    for where, byte in ((plus, PLUS), (equals, EQUALS), (end, END)):
        text.scatter_(1, where[:, None], byte)
    return text, equals


# --- The model, in the names of a Hugging Face checkpoint ------------------------------------------


class Llama(torch.nn.Module):
    def __init__(self):
        super().__init__()
        weights = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
        for i in range(LAYERS):
            p = f"model.layers.{i}."
            weights[p + "input_layernorm.weight"] = (HIDDEN,)
            weights[p + "post_attention_layernorm.weight"] = (HIDDEN,)
            weights[p + "self_attn.q_proj.weight"] = (HEADS * HEAD_DIM, HIDDEN)
            weights[p + "self_attn.k_proj.weight"] = (KV_HEADS * HEAD_DIM, HIDDEN)
            weights[p + "self_attn.v_proj.weight"] = (KV_HEADS * HEAD_DIM, HIDDEN)
            weights[p + "self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD_DIM)
            weights[p + "mlp.gate_proj.weight"] = (MLP, HIDDEN)
            weights[p + "mlp.up_proj.weight"] = (MLP, HIDDEN)
            weights[p + "mlp.down_proj.weight"] = (HIDDEN, MLP)
        self.tensors = torch.nn.ParameterDict()
        for name, shape in weights.items():
            if len(shape) == 1:
                value = torch.ones(shape)
            else:
                out = name.endswith(("o_proj.weight", "down_proj.weight"))
                scale = 0.02 if "embed" in name else shape[1] ** -0.5
                value = torch.randn(shape) * (scale / math.sqrt(2 * LAYERS) if out else scale)
            self.tensors[name.replace(".", "/")] = torch.nn.Parameter(value)
        angle = torch.arange(LENGTH)[:, None] * THETA ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)[None]
        angle = torch.cat((angle, angle), 1)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def weight(self, name):
        return self.tensors[name.replace(".", "/") + "/weight"]

    def rope(self, x):  # (n, heads, T, head_dim), halves rotated against each other
        first, second = x.chunk(2, -1)
        turned = torch.cat((-second, first), -1)
        cos, sin = self.cos[: x.shape[2]], self.sin[: x.shape[2]]
        return (x.float() * cos + turned.float() * sin).to(x.dtype)

    def forward(self, ids):
        n, t = ids.shape
        norm = lambda x, name: F.rms_norm(x.float(), (HIDDEN,), self.weight(name), EPS)
        x = F.embedding(ids, self.weight("model.embed_tokens"))
        for i in range(LAYERS):
            p = f"model.layers.{i}."
            linear = lambda y, name: F.linear(y, self.weight(p + name))
            heads = lambda y: y.view(n, t, -1, HEAD_DIM).transpose(1, 2)
            y = norm(x, p + "input_layernorm")
            q = self.rope(heads(linear(y, "self_attn.q_proj")))
            k = self.rope(heads(linear(y, "self_attn.k_proj")))
            v = heads(linear(y, "self_attn.v_proj"))
            group = HEADS // KV_HEADS
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + linear(y.transpose(1, 2).reshape(n, t, -1), "self_attn.o_proj")
            y = norm(x, p + "post_attention_layernorm")
            x = x + linear(F.silu(linear(y, "mlp.gate_proj")) * linear(y, "mlp.up_proj"), "mlp.down_proj")
        return F.linear(norm(x, "model.norm"), self.weight("model.embed_tokens"))


def config():
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "intermediate_size": MLP, "hidden_act": "silu", "rms_norm_eps": EPS, "rope_theta": THETA,
        "max_position_embeddings": 64, "tie_word_embeddings": True, "attention_bias": False,
        "mlp_bias": False, "eos_token_id": END,
    }


def save(folder, state):
    header, blobs, at = {}, [], 0
    for name, value in state.items():
        raw = value.to(torch.bfloat16).contiguous().cpu().view(torch.int16).flatten().tolist()
        blob = struct.pack(f"<{len(raw)}h", *raw)
        header[name.replace("/", ".")] = {
            "dtype": "BF16", "shape": list(value.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{folder}/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        file.write(json.dumps(config(), indent=2) + "\n")


# --- Training --------------------------------------------------------------------------------------


@torch.no_grad()
def right(model, a, b):
    """The share of sums right to the last byte, with weights rounded to BF16 and the rest in FP32.

    One pass decides: the greedy text is right exactly when every byte is the most likely one after
    the right bytes before it.
    """
    kept = {name: value.clone() for name, value in model.tensors.items()}
    for value in model.tensors.values():
        value.copy_(value.bfloat16())
    count = 0
    for i in range(0, len(a), 5000):
        text, equals = text_of(a[i:i + 5000], b[i:i + 5000])
        logits = model(text[:, :-1])
        answer = (torch.arange(LENGTH - 1, device=text.device)[None] >= equals[:, None]) & (text[:, 1:] != 0)
        count += ((logits.argmax(-1) == text[:, 1:]) | ~answer).all(1).sum().item()
    for name, value in model.tensors.items():
        value.copy_(kept[name])
    return count / len(a)


def held_out_numbers(n, device, generator):
    a, b = numbers(200 * n, device, generator)
    chosen = held_out(a, b).nonzero()[:n, 0]
    return a[chosen], b[chosen]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=".")
    parser.add_argument("--seconds", type=float, default=240, help="the learning rate falls over this time")
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--goal", type=float, default=0.9998, help="stop early when so much is right, twice")
    parser.add_argument("--eval", type=int, default=5000, help="sums of an evaluation")
    parser.add_argument("--every", type=int, default=1000, help="steps between two evaluations")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("highest")
    generator = torch.Generator(device).manual_seed(2)
    test = held_out_numbers(args.eval, device, torch.Generator(device).manual_seed(3))
    model = Llama().to(device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters on {device}", flush=True)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05},
                                   {"params": others, "weight_decay": 0.0}],
                                  lr=args.rate, betas=(0.9, 0.98), fused=device == "cuda")
    start, step, reached, best = time.time(), 0, 0, -1.0
    while True:
        share = (time.time() - start) / args.seconds
        rate = args.rate * min(1, (step + 1) / 400) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1, share))))
        for group in optimizer.param_groups:
            group["lr"] = rate
        a, b = numbers(args.batch, device, generator)
        text, equals = text_of(a, b)
        known = torch.arange(LENGTH - 1, device=device)[None] < equals[:, None]
        target = torch.where(known | (text[:, 1:] == 0) | held_out(a, b)[:, None], -100, text[:, 1:])
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = model(text[:, :-1])
        loss = F.cross_entropy(logits.float().view(-1, VOCAB), target.view(-1), ignore_index=-100)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % args.every == 0 or share >= 1:
            score = right(model, *test)
            print(f"step {step}, {time.time() - start:.0f} s, loss {loss.item():.5f}, right {score:.4%}", flush=True)
            if score >= best:
                best = score
                save(args.out, model.tensors)
            reached = reached + 1 if score >= args.goal else 0
            if reached == 2 or share >= 1:
                break
    print(f"saved: {best:.4%} of {args.eval} held-out sums right", flush=True)


if __name__ == "__main__":
    main()
