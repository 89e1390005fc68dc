"""culet.nn: layers against double precision, what patch swaps and leaves, torch.compile."""

import copy
import io
import unittest

import culet

try:
    import torch
    from culet import nn as culet_nn
except ImportError as error:
    raise unittest.SkipTest(f"no torch: {error}") from error


def normal(*shape, seed=0, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def blocks_of(scales, shape):
    """Every element's scale."""
    return scales.double().repeat_interleave(128, 0)[:shape[0]].repeat_interleave(128, 1)[:, :shape[1]]


def linear_of(n, k, bias=True, dtype=torch.bfloat16, seed=0):
    layer = torch.nn.Linear(k, n, bias=bias, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(normal(n, k, seed=seed, dtype=dtype))
        if bias:
            layer.bias.copy_(normal(n, seed=seed + 1, dtype=dtype))
    return layer.requires_grad_(False)


class Layers(unittest.TestCase):
    def expected_fp8(self, layer, x):
        from culet._torch_quantize import quantize_rows
        values, scales = quantize_rows(x.reshape(-1, x.shape[-1]))
        rows = scales.double().repeat_interleave(128, 1)[:, :x.shape[-1]]
        weight = layer.weight.double() * blocks_of(layer.weight_scale_inv, layer.weight.shape)
        out = (values.double() * rows) @ weight.T
        if layer.bias is not None:
            out += layer.bias.double()
        return out.view(*x.shape[:-1], -1)

    def near(self, found, wanted, bound):
        self.assertEqual(found.shape, wanted.shape)
        error = (found.double() - wanted).norm() / wanted.norm()
        self.assertLess(float(error), bound)

    def test_rows_of_weights_begin_on_16_bytes(self):
        layer = culet_nn.LinearFP8.from_linear(linear_of(64, 200))
        again = culet_nn.LinearFP8(200, 64)
        again.load_state_dict(layer.state_dict())
        for each in (layer, again, copy.deepcopy(layer).to(torch.float16).to("cpu")):
            self.assertEqual(each.weight.stride(), (208, 1))
            self.assertEqual(each.weight.shape, (64, 200))
            self.assertTrue(torch.equal(each.weight.view(torch.uint8), layer.weight.view(torch.uint8)))
        whole = culet_nn.LinearFP8.from_linear(linear_of(64, 384))
        self.assertTrue(whole.weight.is_contiguous())
        self.assertEqual(culet_nn.LinearFP8.from_checkpoint(whole.weight, whole.weight_scale_inv).weight.data_ptr(),
                         whole.weight.data_ptr())

    def test_fp8(self):
        for n, k, bias, shape in ((130, 200, True, (3,)), (256, 128, False, (2, 5)), (1, 1, True, ()),
                                  (64, 384, True, (1, 1, 4))):
            linear = linear_of(n, k, bias)
            layer = culet_nn.LinearFP8.from_linear(linear)
            for dtype, bound in ((torch.bfloat16, 3e-3), (torch.float32, 2e-6), (torch.float16, 4e-4)):
                with self.subTest(n=n, k=k, shape=shape, dtype=dtype):
                    x = normal(*shape, k, seed=3, dtype=dtype)
                    y = layer(x)
                    self.assertEqual(y.dtype, dtype)
                    self.near(y, self.expected_fp8(layer, x), bound)
            self.near(layer(normal(7, k)), linear.double()(normal(7, k).double()), 0.06)

    def test_bf16(self):
        for n, k, bias in ((130, 200, True), (5, 1024, False)):
            linear = linear_of(n, k, bias)
            layer = culet_nn.LinearBF16.from_linear(linear)
            exact = copy.deepcopy(linear).double()
            for dtype, bound in ((torch.bfloat16, 3e-3), (torch.float32, 1e-6), (torch.float16, 4e-4)):
                x = normal(2, 3, k, seed=5, dtype=dtype)
                self.assertEqual(layer(x).dtype, dtype)
                self.near(layer(x), exact(x.double()), bound)

    def test_strided_and_empty_inputs(self):
        linear = linear_of(96, 160)
        for layer in (culet_nn.LinearFP8.from_linear(linear), culet_nn.LinearBF16.from_linear(linear)):
            wide = normal(6, 320, seed=2)
            self.assertTrue(torch.equal(layer(wide[::2, ::2]), layer(wide[::2, ::2].contiguous())))
            self.assertEqual(layer(normal(0, 160)).shape, (0, 96))

    def test_a_checkpoint(self):
        values = normal(130, 200, dtype=torch.float32).to(torch.float8_e4m3fn)
        scales = normal(2, 2, seed=4, dtype=torch.float32).abs()
        layer = culet_nn.LinearFP8.from_checkpoint(values, scales, normal(130, seed=6))
        x = normal(4, 200)
        self.near(layer(x), self.expected_fp8(layer, x), 3e-3)
        empty = culet_nn.LinearFP8(200, 130)
        empty.load_state_dict(layer.state_dict())
        self.assertTrue(torch.equal(empty(x), layer(x)))
        self.assertTrue(torch.equal(copy.deepcopy(layer)(x), layer(x)))
        file = io.BytesIO()
        torch.save(layer.state_dict(), file)
        file.seek(0)
        self.assertEqual(torch.load(file)["weight"].dtype, torch.float8_e4m3fn)

    def test_a_cast_leaves_the_weight(self):
        layer = culet_nn.LinearFP8.from_linear(linear_of(130, 200))
        x = normal(4, 200)
        before = layer(x)
        layer.half()
        self.assertEqual((layer.weight.dtype, layer.weight_scale_inv.dtype, layer.bias.dtype),
                         (torch.float8_e4m3fn, torch.float32, torch.float16))
        layer.to(torch.bfloat16)
        self.assertTrue(torch.equal(layer.double().bfloat16()(x), before))

    def test_a_bias_of_any_type(self):
        x = normal(4, 200)
        for dtype in (torch.float16, torch.float64):
            layer = culet_nn.LinearFP8.from_linear(linear_of(130, 200)).to(dtype)
            for given, bound in ((torch.bfloat16, 3e-3), (torch.float32, 2e-6), (torch.float16, 4e-4)):
                y = layer(x.to(given))
                self.assertEqual((y.dtype, layer.bias.dtype), (given, dtype))
                self.near(y, self.expected_fp8(layer, x), bound)
        linear = linear_of(130, 200, dtype=torch.float16)
        layer = culet_nn.LinearFP8.from_linear(linear)
        self.near(layer(x.half()), self.expected_fp8(layer, x), 4e-4)

    def test_quantisers(self):
        from culet._torch_quantize import quantize_blocks, quantize_rows
        x = torch.zeros(2, 384)
        x[0, :128], x[0, 128], x[0, 300] = 3.5, 1e-45, 448
        x[1, 0], x[1, 200] = float("inf"), float("nan")
        values, scales = quantize_rows(x)
        self.assertEqual(scales[0].tolist(), [3.5 / 448, 2.0**-149, 1.0])
        self.assertTrue(scales[1, :2].isnan().all() and values[1, :256].float().isnan().all())
        self.assertEqual((values[0, 5].item(), values[0, 300].item(), scales[1, 2].item()), (448, 448, 1))
        for quantise, name in ((quantize_rows, "group"), (quantize_blocks, "block")):
            for dtype in (torch.bfloat16, torch.float16, torch.float32):
                for source in (x.to(dtype), normal(300, 200, dtype=dtype) * 3, normal(1, 129, dtype=dtype) / 7):
                    for found, wanted in zip(quantise(source), culet.quantize_fp8(source, name)):
                        kind = torch.uint8 if found.dtype == torch.float8_e4m3fn else torch.int32
                        nan = found.float().isnan() & wanted.float().isnan()
                        self.assertTrue((nan | (found.view(kind) == wanted.view(kind))).all(), (name, dtype))
        wide = normal(6, 500, seed=3)
        for source in (wide[:, :200], wide[::2, 16:216], wide[2:3, 100:300], wide.t()[:200].t()):
            for found, wanted in zip(culet.quantize_fp8(source), culet.quantize_fp8(source.clone())):
                self.assertTrue(torch.equal(found.view(torch.uint8), wanted.view(torch.uint8)))
        for quantise, group_rows in ((quantize_rows, 1), (quantize_blocks, 128)):
            source = normal(130, 200, dtype=torch.float32)
            values, scales = quantise(source)
            each = scales.double().repeat_interleave(group_rows, 0)[:130].repeat_interleave(128, 1)[:, :200]
            error = (values.double() * each - source.double()).abs()
            self.assertTrue((error <= source.double().abs() / 16 + each * 2.0**-10).all())

    def refused(self, words, kind, call):
        with self.assertRaisesRegex(kind, words):
            call()

    def test_refusals(self):
        linear = linear_of(130, 200)
        layer = culet_nn.LinearFP8.from_linear(linear)
        bf16 = culet_nn.LinearBF16.from_linear(linear)
        invalid = culet.InvalidArgument
        values, scales = layer.weight, layer.weight_scale_inv
        of = culet_nn.LinearFP8.from_checkpoint
        self.refused("last axis must be 200", invalid, lambda: layer(normal(3, 199)))
        self.refused("bfloat16, float16 or float32", invalid, lambda: layer(torch.zeros(3, 200).int()))
        self.refused("bfloat16, float16 or float32", invalid, lambda: bf16(torch.zeros(3, 200).double()))
        self.refused("no backward", culet.Error, lambda: layer(normal(3, 200).requires_grad_()))
        self.refused("no backward", culet.Error, lambda: bf16(normal(3, 200).requires_grad_()))
        self.refused("it must be \\(2, 2\\)", invalid, lambda: of(values, scales[:1]))
        self.refused("it must be \\(130,\\)", invalid, lambda: of(values, scales, normal(131)))
        self.refused("use from_linear", invalid, lambda: of(linear.weight, scales))
        self.refused("give a torch.nn.Linear", invalid,
                     lambda: culet_nn.LinearFP8.from_linear(torch.nn.Embedding(3, 4)))
        self.refused("torch.bfloat16\\) first", invalid,
                     lambda: culet_nn.LinearBF16.from_linear(linear_of(3, 4, dtype=torch.float32)))
        self.refused("at least 1", invalid, lambda: culet_nn.LinearFP8(0, 4))


class Model(torch.nn.Module):
    def __init__(self, dtype=torch.bfloat16):
        super().__init__()
        self.embed = torch.nn.Embedding(16, 64, dtype=dtype)
        self.up = torch.nn.Linear(64, 160, dtype=dtype)
        self.again = self.up
        self.hooked = torch.nn.Linear(64, 64, dtype=dtype)
        self.hooked.register_forward_hook(lambda *_: None)
        self.special = torch.nn.modules.linear.NonDynamicallyQuantizableLinear(64, 64, dtype=dtype)
        self.experts = torch.nn.Conv1d(4, 4, 3, dtype=dtype)
        self.norm = torch.nn.LayerNorm(64, dtype=dtype)
        self.layers = torch.nn.Sequential(torch.nn.Linear(160, 64, bias=False, dtype=dtype),
                                          torch.nn.SiLU())
        self.lm_head = torch.nn.Linear(64, 16, bias=False, dtype=dtype)
        self.lm_head.weight = self.embed.weight
        self.requires_grad_(False)

    def forward(self, ids):
        return self.lm_head(self.layers(self.up(self.norm(self.embed(ids)))))


class Patch(unittest.TestCase):
    def test_what_is_swapped_and_left(self):
        model = Model()
        report = culet_nn.patch(model)
        self.assertEqual(report.swapped, {"up": "LinearFP8", "again": "LinearFP8",
                                          "layers.0": "LinearFP8"})
        self.assertIs(model.up, model.again)
        self.assertEqual(set(report.left), {"embed", "hooked", "special", "experts", "lm_head"})
        self.assertIn("keep names it", report.left["lm_head"])
        self.assertIn("forward hooks", report.left["hooked"])
        self.assertIn("NonDynamicallyQuantizableLinear", report.left["special"])
        self.assertIn("more than two axes", report.left["experts"])
        self.assertIn("3 swapped, 5 left", str(report))
        again = culet_nn.patch(model)
        self.assertEqual(again.swapped, {})
        self.assertIn("culet's already", again.left["up"])

    def test_the_model_still_computes(self):
        ids = torch.arange(12).view(2, 6)
        for format, bound in (("fp8", 0.1), ("bf16", 0.01)):
            model = Model()
            wanted = model(ids).double()
            report = culet_nn.patch(model, format, keep=())
            self.assertIn("lm_head", report.swapped)
            error = (model(ids).double() - wanted).norm() / wanted.norm()
            self.assertLess(float(error), bound)
            if format == "bf16":
                self.assertIs(model.lm_head.weight, model.embed.weight)  # still tied

    def test_another_type(self):
        report = culet_nn.patch(Model(torch.float32), "bf16")
        self.assertEqual(report.swapped, {})
        self.assertIn("torch.bfloat16) first", report.left["up"])

    def test_refusals(self):
        for words, options in (("give 'fp8', 'u4' or 'bf16'", {"format": "fp4"}), ("list of patterns", {"keep": "x"})):
            with self.assertRaisesRegex(culet.InvalidArgument, words):
                culet_nn.patch(Model(), **options)

    def test_transformers(self):
        try:
            import transformers
        except ImportError as error:
            self.skipTest(f"no transformers: {error}")
        config = transformers.Qwen3Config(
            hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=32, vocab_size=64, max_position_embeddings=64)
        torch.manual_seed(0)
        model = transformers.Qwen3ForCausalLM(config).to(torch.bfloat16).eval()
        ids = torch.arange(10)[None]
        with torch.no_grad():
            wanted = model(ids).logits.double()
            report = culet_nn.patch(model)
            found = model(ids).logits.double()
        self.assertEqual(len(report.swapped), 2 * 7)
        self.assertEqual(set(report.left), {"lm_head", "model.embed_tokens"})
        self.assertLess(float((found - wanted).norm() / wanted.norm()), 0.1)


class Compile(unittest.TestCase):
    """aot_eager traces, functionalises and runs without a compiler, which a machine may lack."""

    def compiled(self, function, **options):
        torch._dynamo.reset()
        return torch.compile(function, backend="aot_eager", fullgraph=True, **options)

    def test_a_model(self):
        for format in ("fp8", "bf16"):
            model = Model()
            culet_nn.patch(model, format, keep=())
            compiled = self.compiled(model)
            for ids in (torch.arange(12).view(2, 6), torch.arange(5)[None], torch.arange(9)[None]):
                with torch.no_grad():
                    self.assertTrue(torch.equal(compiled(ids), model(ids)))

    def test_functions(self):
        a, b, bias = normal(3, 130), normal(7, 130, seed=1), normal(7, seed=2)
        from culet._torch_quantize import quantize_blocks, quantize_rows
        x, w = quantize_rows(a), quantize_blocks(b)

        def steps(out):
            y = culet.gemm(a, b, bias=bias, alpha=0.5)
            culet.gemm(a, b, out, c=y, beta=2)
            culet.gemm(a, b, out, beta=1)
            scaled = culet.gemm(x[0], w[0], a_scale=0.5, b_scale=2, out_dtype=torch.float32)
            culet.fp8_gemm_nt(x, w, y)
            return y, out, scaled

        for found, wanted in zip(self.compiled(steps)(a.new_zeros(3, 7)), steps(a.new_zeros(3, 7))):
            self.assertTrue(torch.equal(found, wanted))
            self.assertGreater(float(wanted.abs().sum()), 0)
        # Gated: leaves the graph, and is computed all the same.
        gate = normal(32, 130, seed=4)
        for epilogue in ("gated_silu", "gated_silu_halves"):
            torch._dynamo.reset()
            gated = torch.compile(lambda: culet.gemm(a, gate, a.new_empty(3, 16), epilogue=epilogue) + 1,
                                  backend="aot_eager")
            self.assertTrue(torch.equal(
                gated(), culet.gemm(a, gate, a.new_empty(3, 16), epilogue=epilogue) + 1))

    def test_operators(self):
        a, b = normal(3, 130), normal(7, 130, seed=1)
        bias = normal(7, seed=2)
        compiled = self.compiled(lambda a, b: torch.ops.culet.gemm(a, b, bias=bias) + 1)
        self.assertTrue(torch.equal(compiled(a, b), culet.gemm(a, b, bias=bias) + 1))
        samples = [(a, b), (a, b, None, None, bias)]
        for sample in samples:
            torch.library.opcheck(torch.ops.culet.gemm, sample)
        from culet._torch_quantize import quantize_blocks, quantize_rows
        torch.library.opcheck(  # its other parts compare E4M3 tensors, which torch's CPU does not
            torch.ops.culet.fp8_gemm_nt, (*quantize_rows(a), *quantize_blocks(b)),
            test_utils="test_faketensor")
        with self.assertRaisesRegex(Exception, "as many columns"):
            with torch._subclasses.FakeTensorMode():
                torch.ops.culet.gemm(torch.empty(2, 3), torch.empty(2, 4))


if __name__ == "__main__":
    unittest.main()
