#!/usr/bin/env python3
"""Tokens a second of a transformers model with random weights: its own nn.Linear, culet's layers in their
place, and culet's own session of the same config.

    python bench/transformers_llama.py [--config examples/models/llama-3.1-8b] [--layers N] [--tokens 64]
        [--context 128] [--compile] [--only session|nn.Linear|LinearFP8] [--device cuda]

Batch 1, greedy. transformers runs with a static cache, eagerly or, with --compile, as it compiles itself
(mode reduce-overhead). Prints one line for each way. Needs torch and transformers."""

import argparse
import gc
import json
import os
import tempfile
import time
from ctypes import byref, c_int32, c_void_p, pointer
from pathlib import Path

import torch
import transformers
import transformers.initialization

import culet
import culet.nn
from culet import _engine, _library, _tune_model

ROOT = Path(__file__).resolve().parents[1]


def synchronize(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def of_transformers(model, given, compiled):
    """Tokens a second behind the prompt, the best of three answers."""
    prompt = torch.randint(0, 1000, (1, given.context), device=given.device)
    step = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True) if compiled else model.forward
    best = 0.0
    with torch.no_grad():
        for _ in range(3):
            cache = transformers.StaticCache(config=model.config, max_cache_len=given.context + given.tokens + 8)
            out = model(prompt, past_key_values=cache, use_cache=True,
                        cache_position=torch.arange(given.context, device=given.device))
            token = out.logits[:, -1:].argmax(-1)
            place = torch.tensor([given.context], device=given.device)
            for i in range(given.tokens):
                if i == 4:  # what is compiled and recorded is behind
                    synchronize(given.device)
                    start = time.perf_counter()
                if compiled:
                    torch.compiler.cudagraph_mark_step_begin()
                out = step(input_ids=token, past_key_values=cache, use_cache=True, cache_position=place)
                token = out.logits[:, -1:].argmax(-1).clone()
                place = place + 1
            synchronize(given.device)
            best = max(best, (given.tokens - 4) / (time.perf_counter() - start))
    return best


def of_culet(folder, given, kind):
    """Tokens a second of culet_session_decode behind the prompt, the best of three answers."""
    library, check = _library.LIBRARY, _library.check
    owner = _engine.engine(_tune_model.place_of(given.device))
    options = _library.ModelOptions(random_weights=kind, seed=1)
    model = _library.create(library.culet_model_load, owner.handle, os.fsencode(folder), byref(options))
    settings = _library.SessionOptions(max_context=given.context + given.tokens + 8)
    session = _library.create(library.culet_session_create, model, byref(settings))
    sequence, following = c_int32(), c_int32()
    check(library.culet_session_add(session, byref(sequence)))
    best = 0.0
    for _ in range(3):
        check(library.culet_session_truncate(session, sequence, 0))
        prompt = (c_int32 * given.context)(*range(given.context))
        length = c_int32(given.context)
        batch = _library.Batch(count=1, sequences=pointer(sequence), lengths=pointer(length), tokens=prompt)
        check(library.culet_session_prefill(session, byref(batch),
                                            byref(_library.Outputs(next=pointer(following)))))
        rest = None
        for steps in (4, given.tokens - 4):
            made = (c_int32 * steps)()
            batch = _library.Batch(count=1, sequences=pointer(sequence), tokens=pointer(following))
            start = time.perf_counter()
            check(library.culet_session_decode(session, byref(batch), byref(_library.DecodeOptions(steps=steps)),
                                               made, None, None))
            rest = time.perf_counter() - start
            following.value = made[steps - 1]
        best = max(best, (given.tokens - 4) / rest)
    library.culet_session_destroy(c_void_p(session))
    library.culet_model_destroy(c_void_p(model))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--config", type=Path, default=ROOT / "examples/models/llama-3.1-8b")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--compile", action="store_true", help="compiled, too")
    parser.add_argument("--only", choices=("session", "nn.Linear", "LinearFP8"))
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    settings = json.loads((given.config / "config.json").read_text())
    if given.layers:
        settings["num_hidden_layers"] = given.layers
    print(f"{settings['num_hidden_layers']} layers, batch 1, context {given.context}, {given.tokens} tokens", flush=True)

    def show(name, rate):
        print(f"{name:48} {rate:7.1f} tokens/s", flush=True)

    if given.only in (None, "session"):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(settings))
            for name, kind in (("BF16", _library.BFLOAT16), ("FP8", _library.FLOAT8_E4M3)):
                show(f"culet's session, {name}", of_culet(folder, given, kind))
    if given.only == "session":
        return
    config = transformers.LlamaConfig(**settings)
    started = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(given.device), transformers.initialization.no_init_weights():
        model = transformers.LlamaForCausalLM(config)
    torch.set_default_dtype(started)
    model = model.eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.normal_(0, 0.02)
    ways = (False, True) if given.compile else (False,)
    for layers in ("nn.Linear", "LinearFP8"):
        if layers == "LinearFP8":
            culet.nn.patch(model, "fp8")
            gc.collect()
        for compiled in ways if given.only in (None, layers) else ():
            torch._dynamo.reset()
            show(f"transformers, {layers}{', compiled' * compiled}", of_transformers(model, given, compiled))


if __name__ == "__main__":
    main()
