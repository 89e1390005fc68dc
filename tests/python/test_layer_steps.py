"""culet.nn's layers step after step: what they keep of the first call serves the next, and no other."""

import gc
import threading
import unittest

import culet

try:
    import torch
    from culet import nn as culet_nn
    from culet import _linear, _plans
except ImportError as error:
    raise unittest.SkipTest(f"no torch: {error}") from error


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def layers_of(n, k, bias=True, seed=0):
    linear = torch.nn.Linear(k, n, bias=bias, dtype=torch.bfloat16).requires_grad_(False)
    linear.weight.copy_(normal(n, k, seed=seed))
    if bias:
        linear.bias.copy_(normal(n, seed=seed + 1))
    return culet_nn.LinearFP8.from_linear(linear), culet_nn.LinearBF16.from_linear(linear)


def plainly(layer, x):
    """The layer's product by the public functions."""
    rows = x.reshape(-1, x.shape[-1])
    if isinstance(layer, culet_nn.LinearBF16):
        out = culet.gemm(rows, layer.weight, bias=layer.bias)
    else:
        values, scales = culet.quantize_fp8(rows)
        out = torch.ops.culet.fp8_gemm_nt(values, scales, layer.weight, layer.weight_scale_inv, layer.bias,
                                          torch.bfloat16)
    return out.view(*x.shape[:-1], -1)


class Tensors(unittest.TestCase):
    """What is a tensor and lies in no memory that could be read as it is."""

    def test_views_that_negate(self):
        x, w = normal(3, 64).float(), normal(8, 64).float()
        for function in (culet.gemm, culet.plan):
            with self.assertRaisesRegex(culet.InvalidArgument, r"a is a view that negates .*a.resolve_neg\(\)"):
                function(torch._neg_view(x), w, torch.empty(3, 8))

    def test_sparse_tensors(self):
        x, w = normal(3, 64), normal(8, 64)
        step = culet.plan(x, w, torch.empty(3, 8, dtype=torch.bfloat16))
        for call in (lambda: culet.gemm(x.to_sparse(), w), lambda: culet.gemm(x, w.to_sparse()),
                     lambda: culet.plan(x.to_sparse(), w, torch.empty(3, 8, dtype=torch.bfloat16)),
                     lambda: step(x.to_sparse()), lambda: culet.quantize_fp8(x.to_sparse())):
            with self.assertRaisesRegex(culet.InvalidArgument, "is a tensor without memory of its own"):
                call()

    def test_differences(self):
        from culet.deep_gemm import calc_diff
        zeros = torch.zeros(3, 4)
        self.assertEqual(float(calc_diff(zeros, zeros)), 0)
        self.assertEqual(float(calc_diff(zeros + 1, zeros + 1)), 0)
        with self.assertRaisesRegex(culet.InvalidArgument, r"y has the shape \(4,\), but x is \(3, 4\)"):
            calc_diff(zeros, zeros[0])
        with self.assertRaisesRegex(culet.InvalidArgument, "x is a NoneType"):
            calc_diff(None, zeros)

    def test_a_parametrised_weight_is_left(self):
        linear = torch.nn.Linear(128, 128, dtype=torch.bfloat16)
        torch.nn.utils.parametrizations.weight_norm(linear)
        model = torch.nn.Sequential(linear)
        report = culet_nn.patch(model)
        self.assertEqual(list(report.left), ["0"])
        self.assertIn("its weight is parametrised", report.left["0"])
        self.assertIs(model[0], linear)

    def test_a_model_that_is_one_layer(self):
        report = culet_nn.patch(torch.nn.Linear(8, 8))
        self.assertIn("use from_linear", report.left[""])


class Steps(unittest.TestCase):
    def same(self, layer, x):
        found = layer(x)
        self.assertEqual((found.dtype, found.is_contiguous()), (torch.bfloat16, True))
        self.assertTrue(torch.equal(found, plainly(layer, x)))

    def test_shapes_in_turns(self):
        for n, k, bias in ((130, 200, True), (64, 384, False), (1, 1, True)):
            for layer in layers_of(n, k, bias):
                for seed in range(3):
                    for shape in ((k,), (1, k), (1, 1, k), (2, 3, k), (7, k), (2, 1, 3, k)):
                        self.same(layer, normal(*shape, seed=seed))

    def test_what_changes_between(self):
        x = normal(3, 200)
        for layer in layers_of(130, 200):
            self.same(layer, x)
            layer.bias.copy_(normal(130, seed=5))  # in place
            self.same(layer, x)
            layer.bias = None
            self.same(layer, x)
            other = normal(130, 200, seed=9).to(layer.weight.dtype)
            layer.weight = torch.nn.Parameter(other, requires_grad=False)
            self.same(layer, x)
            layer.bias = torch.nn.Parameter(normal(130, seed=6).float(), requires_grad=False)
            self.same(layer, x)
            layer.bias = torch.nn.Parameter(normal(131, seed=6), requires_grad=False)
            with self.assertRaisesRegex(culet.InvalidArgument, r"bias has the shape \(131,\)"):
                layer(x)

    def test_weights_that_are_no_parameters(self):
        x = normal(3, 200)
        for layer in layers_of(130, 200):
            wanted = layer(x)
            for name in ("weight", "bias"):
                value = getattr(layer, name).detach()
                delattr(layer, name)
                setattr(layer, name, value)
                self.assertTrue(torch.equal(layer(x), wanted))

    def test_plans_that_were_dropped(self):
        layer, x = layers_of(96, 256)[0], normal(2, 256)
        self.same(layer, x)
        with culet.autotune(budget=0.2) as tuning:
            self.same(layer, x)
        self.assertTrue(tuning.results)
        self.same(layer, x)
        _plans.PLANS.clear()
        gc.collect()
        self.assertTrue(any(plan() is None for plan in _linear._READY.values()))  # it keeps none alive
        self.same(layer, x)

    def test_layers_that_come_and_go(self):
        for seed in range(20):  # where a weight was, another comes to lie
            layer, _ = layers_of(64, 128 + seed % 2 * 128, seed=seed)
            self.same(layer, normal(2, layer.in_features, seed=seed))

    def test_threads(self):
        layer, wrong = layers_of(130, 200)[0], []

        def work(seed):
            x = normal(1 + seed % 3, 200, seed=seed)
            wanted = plainly(layer, x)
            for _ in range(50):
                wrong.append(not torch.equal(layer(x), wanted))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [False] * 200)

    def test_what_goes_another_way(self):
        for layer in layers_of(130, 200):
            with self.assertRaisesRegex(culet.InvalidArgument, "its last axis must be 200 long"):
                layer(torch.tensor(1.0, dtype=torch.bfloat16))
            with self.assertRaisesRegex(culet.InvalidArgument, "its last axis must be 200 long"):
                layer(normal(3, 201))
            self.assertEqual(layer(normal(0, 200)).shape, (0, 130))
            with self.assertRaises(culet.Error):
                layer(torch.empty(3, 200, dtype=torch.bfloat16, device="meta"))


if __name__ == "__main__":
    unittest.main()
