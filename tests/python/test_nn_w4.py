"""culet.nn.LinearW4: products against double precision, checkpoints' tensors by their formats' rules, what is
refused, torch.compile, and patch."""

import copy
import io
import pickle
import unittest

import culet

try:
    import torch
    from culet import nn as culet_nn
except ImportError as error:
    raise unittest.SkipTest(f"no torch: {error}") from error

from culet._torch_quantize import pack_rows, quantize_groups, unpack_rows
from cuda_support import needs_gpu
from test_nn import Model, linear_of, normal


def words(*values):
    """int32 of what is written as unsigned."""
    return torch.tensor([value - (value >> 31 << 32) for value in values], dtype=torch.int32)


def packed(codes, places=range(8)):
    """codes (R, 8 C) -> words (R, C), code i of eight at the nibble places[i]."""
    found = torch.zeros(codes.shape[0], codes.shape[1] // 8, dtype=torch.int64)
    for i, place in enumerate(places):
        found |= codes[:, i::8].long() << 4 * place
    return torch.where(found > 0x7FFFFFFF, found - (1 << 32), found).int()


def random_codes(*shape, seed):
    return torch.randint(0, 16, shape, generator=torch.Generator().manual_seed(seed))


class LayersOfFourBits(unittest.TestCase):
    def weight(self, layer):
        """What the layer's tensors say, in FP64."""
        n, k, group = layer.out_features, layer.in_features, layer.group_size
        codes, zeros = unpack_rows(layer.weight_packed, k).double(), torch.full((n, k // group), 8.0)
        if layer.weight_zero_point is not None:
            for row in range(n):
                zeros[row] = layer.weight_zero_point[row // 8].long() >> 4 * (row % 8) & 15
        spread = [each.double().repeat_interleave(group, 1) for each in (zeros, layer.weight_scale)]
        return (codes - spread[0]) * spread[1]

    def near(self, found, wanted, bound):
        self.assertEqual(found.shape, wanted.shape)
        self.assertLess(float((found.double() - wanted).norm() / wanted.norm()), bound)

    def check(self, layer, weight, bias=None, seed=3):
        for shape in ((layer.in_features,), (7, layer.in_features), (2, 3, layer.in_features)):
            for dtype, bound in ((torch.bfloat16, 4e-3), (torch.float32, 1e-5), (torch.float16, 5e-4)):
                x = normal(*shape, seed=seed, dtype=dtype)
                y = layer(x)
                self.assertEqual(y.dtype, dtype)
                self.near(y, x.double() @ weight.T + (0 if bias is None else bias.double()), bound)

    def test_products(self):
        for n, k, group, bias in ((130, 256, 128, True), (5, 96, 32, False), (1, 64, None, True), (40, 80, 16, True),
                                  (24, 200, 40, False)):
            for symmetric in (True, False):
                with self.subTest(n=n, k=k, group=group, symmetric=symmetric):
                    linear = linear_of(n, k, bias)
                    layer = culet_nn.LinearW4.from_linear(linear, group, symmetric)
                    self.check(layer, self.weight(layer), linear.bias)
                    # Half a step of each group's scale, and what rounding the scale costs at the ends.
                    error = (self.weight(layer) - linear.weight.double()).abs()
                    steps = layer.weight_scale.double().repeat_interleave(layer.group_size, 1)
                    self.assertLess(float((error / steps).max()), 0.54)

    def test_codes_of_known_weights(self):
        weight = torch.zeros(2, 32)
        weight[0, :16] = torch.arange(16) - 3.0   # -3 to 12: a step of 1, and a zero point of 3
        weight[1, :] = 7.5
        codes, scales, zeros = quantize_groups(weight, 16, False)
        self.assertEqual((scales.tolist(), zeros.tolist()), ([[1, 1], [0.5, 0.5]], [[3, 0], [0, 0]]))
        self.assertEqual(codes[0].tolist(), [*range(16), *[0] * 16])
        self.assertEqual(codes[1].unique().tolist(), [15])
        codes, scales, zeros = quantize_groups(weight, 16, True)
        self.assertEqual((scales[1].tolist(), zeros.unique().tolist()), ([1, 1], [8]))
        self.assertEqual((codes[0, 16:].unique().tolist(), codes[1].unique().tolist()), ([8], [15]))
        least = torch.full((1, 16), 2.0**-149)
        self.assertEqual(quantize_groups(least, 16, True)[1].item(), 2.0**-149)
        # compressed-tensors' example: -8, -1, 0, 7, 1, 2, 3, 4, each plus 8.
        self.assertEqual(unpack_rows(words(0xCBA9F870)[None], 8).tolist(), [[0, 7, 8, 15, 9, 10, 11, 12]])
        self.assertEqual(pack_rows(torch.tensor([[0, 7, 8, 15, 9, 10, 11, 12]])).tolist(), [words(0xCBA9F870).tolist()])

    def test_awq(self):
        layer = culet_nn.LinearW4.from_awq(
            words(*[0x75316420] * 16)[:, None], words(0x88888888)[None], torch.full((1, 8), 0.5))
        self.assertEqual(self.weight(layer)[:, 0].tolist(), [-4, -3.5, -3, -2.5, -2, -1.5, -1, -0.5])
        n, k, group = 48, 192, 64
        codes, zeros = random_codes(k, n, seed=1), random_codes(k // group, n, seed=2)
        scales, bias = normal(k // group, n, dtype=torch.float16).abs() + 0.1, normal(n, dtype=torch.float16)
        places = (0, 4, 1, 5, 2, 6, 3, 7)
        layer = culet_nn.LinearW4.from_awq(packed(codes, places), packed(zeros, places), scales, bias)
        weight = ((codes.double() - zeros.double().repeat_interleave(group, 0)) *
                  scales.double().repeat_interleave(group, 0)).T
        self.assertTrue(torch.equal(self.weight(layer), weight))
        self.check(layer, weight, bias)

    def test_gptq(self):
        n, k, group = 40, 128, 32
        codes, zeros = random_codes(n, k, seed=1), random_codes(k // group, n, seed=2)
        scales = normal(k // group, n, dtype=torch.float16).abs() + 0.1
        qweight = packed(codes).t().contiguous()
        shuffled = torch.randperm(k, generator=torch.Generator().manual_seed(4))
        for order in (None, torch.arange(k) // group, (torch.arange(k) // group)[shuffled]):
            of = torch.arange(k) // group if order is None else order
            weight = ((codes.T.double() - zeros.double()[of]) * scales.double()[of]).T
            g_idx = None if order is None else order.int()
            for form in ("gptq", "gptq_v2"):
                stored = packed(zeros)
                if form == "gptq":  # the whole word less 0x11111111
                    less = (stored.long() - 0x11111111) & 0xFFFFFFFF
                    stored = torch.where(less > 0x7FFFFFFF, less - (1 << 32), less).int()
                layer = culet_nn.LinearW4.from_gptq(qweight, stored, scales, g_idx, checkpoint_format=form)
                self.check(layer, weight)
                if order is not None and layer.input_order is not None:
                    again = culet_nn.LinearW4(k, n, False, dtype=torch.float16, group_size=group, symmetric=False)
                    again.load_state_dict(layer.state_dict())
                    self.check(again, weight)
        self.assertIsNotNone(layer.input_order)
        example = culet_nn.LinearW4.from_gptq(
            torch.zeros(2, 8, dtype=torch.int32), words(0x7777776F)[None], torch.ones(1, 8))
        self.assertEqual((-self.weight(example)[:, 0]).tolist(), [0, 8, 8, 8, 8, 8, 8, 8])

    def test_state(self):
        x = normal(4, 256)
        for symmetric in (True, False):
            layer = culet_nn.LinearW4.from_linear(linear_of(130, 256), 64, symmetric)
            wanted = layer(x)
            names = ["weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "bias"]
            state = layer.state_dict()
            self.assertEqual(list(state), [name for name in names if name != "weight_zero_point" or not symmetric])
            again = culet_nn.LinearW4(256, 130, group_size=64, symmetric=symmetric)
            again.load_state_dict(state)
            empty = culet_nn.LinearW4(256, 130, group_size=64, symmetric=symmetric, device="meta")
            empty.load_state_dict(state, assign=True)
            file = io.BytesIO()
            torch.save(state, file)
            file.seek(0)
            saved = copy.deepcopy(again)
            saved.load_state_dict(torch.load(file))
            for each in (again, empty, saved, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
                self.assertTrue(torch.equal(each(x), wanted))
            other = culet_nn.LinearW4(256, 130, group_size=64, symmetric=symmetric)
            with self.assertRaisesRegex(culet.InvalidArgument, "weight_shape is .130, 192."):
                other.load_state_dict({**state, "weight_shape": torch.tensor([130, 192])})
        layer.half()
        self.assertEqual((layer.weight_scale.dtype, layer.bias.dtype), (torch.bfloat16, torch.float16))
        self.near(layer(x), wanted.double(), 1e-2)
        self.assertIn("group_size=64, symmetric=False", repr(layer))

    def test_refusals(self):
        layer, int32 = culet_nn.LinearW4, torch.int32
        ones, zeros = torch.ones(2, 16), torch.zeros(2, 2, dtype=int32)
        matrix = torch.zeros(64, 2, dtype=int32)
        for words_of, call in (
                ("in_features is 100; 8 codes", lambda: layer(100, 8)),
                ("group_size is 128, and in_features 192", lambda: layer(192, 8)),
                ("group_size is 12,", lambda: layer(24, 8, group_size=12)),
                ("give a torch.nn.Linear", lambda: layer.from_linear(torch.nn.Identity())),
                ("not finite", lambda: layer.from_linear(torch.nn.Linear(8, 2).requires_grad_(False).apply(
                    lambda each: each.weight.fill_(float("inf"))), 8)),
                ("qweight is .* give a matrix of int32", lambda: layer.from_awq(matrix.float(), zeros, ones)),
                (r"qzeros has the shape \(2, 1\)", lambda: layer.from_awq(matrix, zeros[:, :1], ones)),
                ("scales has 12 columns", lambda: layer.from_awq(matrix, zeros, ones[:, :12])),
                ("a number that is 0", lambda: layer.from_awq(matrix, zeros, ones * 0)),
                (r"bias has the shape \(3,\)", lambda: layer.from_awq(matrix, zeros, ones, torch.zeros(3))),
                ("checkpoint_format is 'v2'", lambda: layer.from_gptq(matrix, zeros, ones, checkpoint_format="v2")),
                (r"qweight has the shape \(64, 2\)", lambda: layer.from_gptq(matrix, zeros, ones)),
                ("groups 0 to 1", lambda: layer.from_gptq(
                    torch.zeros(8, 16, dtype=int32), zeros, ones, torch.full((64,), 2))),
                ("64 input features into one group", lambda: layer.from_gptq(
                    torch.zeros(8, 16, dtype=int32), zeros, ones, torch.zeros(64, dtype=int32) + 1)),
                ("its last axis must be 64", lambda: layer(64, 8, group_size=64)(torch.zeros(2, 32))),
                ("has no backward", lambda: layer(64, 8, group_size=64)(torch.zeros(2, 64, requires_grad=True)))):
            with self.subTest(words_of), self.assertRaisesRegex(ValueError if "backward" not in words_of
                                                                else culet.Error, words_of):
                call()

    def test_compiled(self):
        layer = culet_nn.LinearW4.from_linear(linear_of(130, 256), 64, False)
        torch._dynamo.reset()
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        for dtype in (torch.bfloat16, torch.float32):
            x = normal(3, 5, 256, dtype=dtype)
            self.assertTrue(torch.equal(compiled(x), layer(x)))
        torch.library.opcheck(torch.ops.culet.w4_gemm_nt, (
            normal(3, 256), layer.weight_packed, layer.weight_scale, layer._zeros, layer.bias))

    @needs_gpu
    def test_on_a_gpu(self):
        for group, symmetric in ((128, True), (128, False), (32, False), (None, True)):
            layer = culet_nn.LinearW4.from_linear(linear_of(192, 512), group, symmetric)
            weight, bias = self.weight(layer).cuda(), layer.bias.double().cuda()
            layer.cuda()
            self.assertTrue(layer._zeros.is_cuda)
            for rows in (1, 5, 64, 300):
                for dtype, bound in ((torch.bfloat16, 4e-3), (torch.float16, 4e-3), (torch.float32, 4e-3)):
                    x = normal(rows, 512, dtype=dtype).cuda()
                    y = layer(x)
                    self.assertEqual((y.dtype, y.device), (dtype, x.device))
                    self.near(y, x.double() @ weight.T + bias, bound)
            compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
            self.assertTrue(torch.equal(compiled(x), layer(x)))

    def test_patch(self):
        model = Model()
        ids = torch.arange(12).view(2, 6)
        with torch.no_grad():
            wanted = model(ids).double()
            report = culet_nn.patch(model, "u4", group_size=32, symmetric=False)
            self.assertEqual(set(report.swapped.values()), {"LinearW4"})
            self.assertLess(float((model(ids).double() - wanted).norm() / wanted.norm()), 0.2)
        left = culet_nn.patch(torch.nn.Sequential(torch.nn.Linear(192, 8), torch.nn.Linear(128, 8)), "u4")
        self.assertIn("group_size is 128, and in_features 192", left.left["0"])
        self.assertEqual(list(left.swapped), ["1"])
        with self.assertRaisesRegex(culet.InvalidArgument, "are of 'u4', but format is 'fp8'"):
            culet_nn.patch(model, "fp8", group_size=32)


class Packed(unittest.TestCase):
    """culet.pack's "u4" and gemm's refusals."""

    def test_refusals(self):
        b = culet.pack(torch.zeros(8, 32, dtype=torch.uint8), "u4")
        self.assertEqual((b.shape, b.dtype), ((8, 64), "uint4"))
        x, scale = torch.zeros(2, 64), torch.ones(8, 2)
        self.assertEqual(culet.gemm(x, b, b_scale=scale).shape, (2, 8))
        for words_of, call in (
                ("weight holds float32; of 'u4'", lambda: culet.pack(x, "u4")),
                ("must be contiguous", lambda: culet.pack(torch.zeros(8, 64, dtype=torch.uint8)[:, :32], "u4")),
                ("b_scale is None", lambda: culet.gemm(x, b)),
                ("groups that divide 64", lambda: culet.gemm(x, b, b_scale=torch.ones(8, 3))),
                ("a_scale has the shape", lambda: culet.gemm(x, b, a_scale=torch.ones(2), b_scale=scale)),
                ("b_zero is", lambda: culet.gemm(x, b, b_scale=scale, b_zero=torch.ones(8, 1))),
                ("b's values holds uint4", lambda: culet.fp8_gemm_nt(
                    (torch.zeros(2, 64, dtype=torch.uint8), x[:, :1]), (b, scale[:1, :1]), x[:, :8].bfloat16()))):
            with self.subTest(words_of), self.assertRaisesRegex(culet.InvalidArgument, words_of):
                call()


if __name__ == "__main__":
    unittest.main()
