"""quantize_fp8, tune_model, load_cache and save_cache on the CPU."""

import json
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

os.environ["CULET_CACHE"] = "off"

import culet
from host_arrays import E4M3, POISON, rows, to_bf16
from test_gemm import FakeTensor
from test_operands import NAN, get, made, numbers


class Quantiser(unittest.TestCase):
    """With a torch that has no more than quantize_fp8 asks of it."""

    def setUp(self):
        class dtype(str):
            pass

        def empty(shape, dtype, device):
            kind, fill = ("u1", 0x7F) if "float8" in dtype else ("f4", NAN)
            return FakeTensor(made(shape, kind, fill=fill), str(dtype))

        torch = types.SimpleNamespace(Tensor=FakeTensor, empty=empty, bfloat16=None,
                                      float8_e4m3fn=dtype("torch.float8_e4m3fn"),
                                      float32=dtype("torch.float32"))
        patch = mock.patch.dict(sys.modules, torch=torch)
        patch.start()
        self.addCleanup(patch.stop)

    # Powers of two times 448, 2 and 0: exact in E4M3.
    M, K = 3, 200

    def source(self, kind):
        array = made((self.M, self.K), {"bfloat16": "u2", "float32": "f4"}[kind])
        for i in range(self.M):
            for j in range(self.K):
                value = float((448, 2, 0)[j % 3] << i << (j // 128))
                put = to_bf16(value) if kind == "bfloat16" else value
                array[i, j] = put
        return FakeTensor(array, f"torch.{kind}")

    def check(self, kind, granularity, shape, scale):
        values, scales = culet.quantize_fp8(self.source(kind), granularity)
        self.assertEqual((values.shape, scales.shape), ((self.M, self.K), shape))
        for i in range(self.M):
            for j in range(self.K):
                expected, at = scale(i, j)
                self.assertEqual(get(scales.array, at), expected)
                largest = 1 << i << (j // 128)
                if largest == expected:
                    wanted = (0x7E, E4M3[2], E4M3[0])[j % 3]
                    self.assertEqual(values.array[i, j], wanted, (i, j))

    def test_granularities(self):
        for kind in ("bfloat16", "float32"):
            with self.subTest(kind=kind):
                self.check(kind, "group", (3, 2), lambda i, j: (1 << i << j // 128, (i, j // 128)))
                self.check(kind, "row", (3, 1), lambda i, j: (2 << i, (i, 0)))
                self.check(kind, "tensor", (1, 1), lambda i, j: (8, (0, 0)))
                self.check(kind, "block", (1, 2), lambda i, j: (4 << j // 128, (0, j // 128)))

    def test_what_gemm_takes(self):
        x, w = self.source("float32"), self.source("float32")
        out = FakeTensor(rows("u2", (3, 3), fill=POISON), "torch.bfloat16")
        (a, u), (b, v) = culet.quantize_fp8(x), culet.quantize_fp8(w, "block")
        culet.fp8_gemm_nt((a, u), (b, v), out)
        plain = sum((448, 2, 0)[j % 3] ** 2 << 2 * (j // 128) for j in range(self.K))
        # All values are exact; the sum passes 2^24, and FP32 rounds it.
        self.assertLessEqual(abs(out.array[0, 0] - to_bf16(float(plain))), 1)

    def test_refused(self):
        x = self.source("float32")
        for words, arguments in (("granularity is 'column'", (x, "column")),
                                 ("granularity is 128", (x, 128)), ("x is a list", ([1],)),
                                 ("x is a Array", (x.array,)),
                                 ("x holds float8", (FakeTensor(made((2, 2), "u1"),
                                                                "torch.float8_e4m3fn"),))):
            with self.subTest(words=words), self.assertRaisesRegex(culet.InvalidArgument, words):
                culet.quantize_fp8(*arguments)


CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 96,
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "torch_dtype": "bfloat16",
}


class Models(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.config = self.folder / "config.json"
        self.config.write_text(json.dumps(CONFIG))

    def test_each_product_once(self):
        results = culet.tune_model(self.folder, tokens=(1, 3), budget=60, persist=False)
        shapes = {(tuned.n, tuned.k) for tuned in results}
        self.assertEqual(shapes, {(64, 32), (32, 32), (96, 32), (32, 48)})
        self.assertEqual({tuned.m for tuned in results}, {1, 3})
        self.assertEqual(len(results), 8)  # gate and up have the head's shape here
        file = self.folder / "cache.jsonl"
        culet.save_cache(file)
        report = culet.load_cache(file)
        self.assertGreaterEqual(report["used"], 8)
        self.assertEqual(report["damaged"], 0)

    def test_formats(self):
        for name, kernel_type in (("f32", "f4"), ("fp8-block", None), ("fp8-row", None), ("fp8-tensor", None)):
            results = culet.tune_model(str(self.config), tokens=2, format=name, persist=False)
            self.assertTrue(all(tuned.measurements or tuned.kernel for tuned in results))
            if kernel_type:  # later plans know
                (a, _), (b, _) = numbers((2, 32), 1), numbers((96, 32), 2)
                self.assertIn("measured", culet.explain(a, b, made((2, 96))))

    def test_refused(self):
        for words, arguments, options in (
                ("tokens is 0", (self.folder, 0), {}), ("tokens is True", (self.folder, True), {}),
                ("tokens is \\[\\]", (self.folder, []), {}),
                ("format is 'int3'", (self.folder,), {"format": "int3"}),
                ("device is 'tpu'", (self.folder,), {"device": "tpu"}),
                ("budget is 0", (self.folder,), {"budget": 0})):
            with self.subTest(words=words), self.assertRaisesRegex(culet.InvalidArgument, words):
                culet.tune_model(*arguments, **options)
        with self.assertRaises(culet.Error) as raised:
            culet.tune_model(self.folder / "none")
        self.assertEqual(raised.exception.status, "NOT_FOUND")

    def test_cache_files(self):
        file = self.folder / "cache.jsonl"
        with self.assertRaises(culet.Error) as raised:
            culet.load_cache(file)
        self.assertEqual(raised.exception.status, "NOT_FOUND")
        file.write_text("no cache\n")
        for call in (culet.load_cache, culet.save_cache):
            with self.assertRaises(culet.Error) as raised:
                call(file)
            self.assertEqual(raised.exception.status, "DATA_LOSS")
        culet.save_cache()  # CULET_CACHE=off: nothing
        with self.assertRaisesRegex(culet.InvalidArgument, "device is 'gpu'"):
            culet.save_cache(file, "gpu")
        with self.assertRaisesRegex(culet.InvalidArgument, "path is empty"):
            culet.save_cache("")


if __name__ == "__main__":
    unittest.main()
