"""A sequence of an FP8 model alone and in a batch. Kernels of few and of many rows add in different orders, so the
last bits of FP32 differ; an input of a product that lies that near the middle between two E4M3 numbers then falls to
the other side, and per cents follow. With batch_invariant no bit differs."""

import ctypes
import os
import random
import unittest
from ctypes import byref, c_float, c_int32
from pathlib import Path

os.environ["CULET_CACHE"] = "off"

import culet
from culet import _library, _session
from culet._library import LIBRARY, check

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"


def logits(model, prompts, determinism):
    """Each prompt's logits, all in one step."""
    session = _session.BatchSession(model, [_library.Sampling() for _ in prompts], 64, 0, determinism)
    flat = [token for prompt in prompts for token in prompt]
    found = (c_float * (len(flat) * model.info.vocab))()
    numbers = lambda values: (c_int32 * len(values))(*values)
    batch = _library.Batch(count=len(prompts), sequences=numbers(session._sequences), tokens=numbers(flat),
                           lengths=numbers([len(prompt) for prompt in prompts]))
    outputs = _library.Outputs(next=(c_int32 * len(prompts))(),
                               all_logits=ctypes.cast(found, ctypes.POINTER(c_float)))
    check(LIBRARY.culet_session_prefill(session._handle, byref(batch), byref(outputs)))
    session.close()
    rows, at = [], 0
    for prompt in prompts:
        end = at + len(prompt) * model.info.vocab
        rows.append(found[at:end])
        at = end
    return rows


class Batches(unittest.TestCase):
    def test_bits(self):
        model = _session.Model(str(GOLDENS / "qwen3-moe-fp8"), -1)
        pick = random.Random(1)
        prompts = [[pick.randrange(model.info.vocab) for _ in range(pick.randint(3, 12))] for _ in range(9)]
        invariant = _library.DETERMINISM_BATCH_INVARIANT
        together = logits(model, prompts, invariant)
        for prompt, row in zip(prompts, together):
            self.assertEqual(logits(model, [prompt], invariant)[0], row)
        # Without, most agree to the last bits, and none is far off: an E4M3 number is one part in 16 wide.
        differences = [max(map(abs, map(float.__sub__, one, row))) for one, row in zip(
            (logits(model, [prompt], 0)[0] for prompt in prompts), logits(model, prompts, 0))]
        self.assertLess(sorted(differences)[len(prompts) // 2], 1e-4)

    def test_the_option(self):
        adder = GOLDENS.parents[1] / "examples/adder"
        llm = culet.LLM(adder, device="cpu", batch_invariant=True)
        self.assertEqual(llm.generate(["1+2=", "481516+42108="]), ["3", "523624"])
        self.assertEqual(llm.generate("1+2="), "3")
        with self.assertRaisesRegex(culet.InvalidArgument, "batch_invariant is 'yes'"):
            culet.LLM(adder, device="cpu", batch_invariant="yes")


if __name__ == "__main__":
    unittest.main()
