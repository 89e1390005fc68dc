"""fp8_gemm_nt on the CPU: exact products, every kind of argument, errors, threads."""

import sys
import threading
import types
import unittest
from unittest import mock

import culet
from host_arrays import GUARD, Array, Product, columns, rows


class Exact(unittest.TestCase):
    def run_and_compare(self, product):
        for _ in range(2):  # planned, then from the table of plans
            d = product.output()
            self.assertIsNone(culet.fp8_gemm_nt(*product.operands, d))
            self.assertEqual(product.wrong(d), 0)

    def test_shapes(self):
        for m, n, k in ((1, 1, 1), (1, 130, 300), (3, 128, 128), (17, 5, 129), (33, 64, 260)):
            for scales in (rows, columns):
                with self.subTest(m=m, n=n, k=k, scales=scales.__name__):
                    self.run_and_compare(Product(m, n, k, scales))

    def test_leading_dimensions(self):
        self.run_and_compare(Product(7, 130, 140, rows, pad=9))
        self.run_and_compare(Product(7, 130, 140, columns, pad=16))

    def test_the_comparison_can_fail(self):
        product = Product(2, 3, 4)
        d = product.output()
        culet.fp8_gemm_nt(*product.operands, d)
        d[1, 2] ^= 1
        self.assertEqual(product.wrong(d), 1)

    def test_a_plan_of_other_scales_is_not_taken(self):
        product, other = Product(4, 6, 256), Product(4, 6, 256, seed=2)
        for one in (product, other, product):
            self.run_and_compare(one)

    def test_buffers(self):
        product = Product(3, 4, 256)
        bits = [memoryview(array.data).cast("B") for array in (product.a, product.u, product.b,
                                                              product.v)]
        a, u, b, v = (view.cast("f") if floats else view
                      for view, floats in zip(bits, (False, True, False, True)))
        d = product.output()
        inner = memoryview(d.data).cast("B")[2 * GUARD:-2 * GUARD].cast("H", (3, 4))
        culet.fp8_gemm_nt(
            (a.cast("B", (3, 256)), u.cast("B").cast("f", (3, 2))),
            (b.cast("B", (4, 256)), v.cast("B").cast("f", (1, 2))), inner)
        self.assertEqual(product.wrong(d), 0)

    def test_nothing_to_do(self):
        full, none = Product(2, 3, 4), rows("u1", (0, 4))
        d = rows("u2", (0, 3))
        self.assertIsNone(culet.fp8_gemm_nt((none, rows("f4", (0, 1))), (full.b, full.v), d))

    def test_threads_share_a_plan(self):
        product, failures = Product(9, 40, 200), []

        def work():
            for _ in range(40):
                d = product.output()
                culet.fp8_gemm_nt(*product.operands, d)
                failures.append(product.wrong(d))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [0] * 160)


class Errors(unittest.TestCase):
    def setUp(self):
        self.product = Product(2, 3, 256)
        self.d = self.product.output()

    def refused(self, words, a=None, u=None, b=None, v=None, d=None):
        p = self.product
        with self.assertRaisesRegex(culet.InvalidArgument, words):
            culet.fp8_gemm_nt((a or p.a, u or p.u), (b or p.b, v or p.v), d or self.d)
        self.assertEqual(self.d.elements(), self.product.output().elements())

    def test_shapes(self):
        self.refused("a's scales has the shape .*must be .2, 2.", u=rows("f4", (2, 1)))
        self.refused("b's scales .*must be .1, 2.", v=rows("f4", (2, 2)))
        self.refused("b's values .*must be .3, 256.", b=rows("u1", (3, 255)))
        self.refused("d has the shape .*must be .2, 3.", d=rows("u2", (3, 2)))
        self.refused("a's values has the shape .*give a matrix", a=Array("u1", (512,), (1,)))

    def test_types(self):
        self.refused("a's values holds float32; it must hold float8_e4m3fn", a=rows("f4", (2, 256)))
        self.refused("a's scales holds uint8; it must hold float32", u=rows("u1", (2, 2)))
        self.refused("d holds uint8; it must hold bfloat16", d=rows("u1", (2, 3)))
        self.refused("a's values is a str", a="no matrix")
        self.refused("read-only buffer", a=memoryview(bytes(512)).cast("B", (2, 256)))

    def test_strides(self):
        self.refused("a's values .*rows must be contiguous", a=columns("u1", (2, 256)))
        self.refused("d .*rows must be contiguous", d=columns("u2", (2, 3)))
        self.refused("a's scales .*contiguous", u=Array("f4", (2, 2), (4, 2)))
        self.refused("d of shape .* overlap or run backwards", d=Array("u2", (2, 3), (1, 1)))

    def test_overlap(self):
        both = rows("u1", (2, 256))
        d = rows("u2", (2, 3))
        d.data = both.data
        self.refused("overlaps", a=both, d=d)

    def test_pairs(self):
        p = self.product
        with self.assertRaisesRegex(culet.InvalidArgument, "pairs"):
            culet.fp8_gemm_nt(p.a, (p.b, p.v), self.d)
        with self.assertRaises(ValueError):
            culet.fp8_gemm_nt((p.a,), (p.b, p.v), self.d)


class FakeTensor:
    """What fp8_gemm_nt asks of a torch tensor."""

    def __init__(self, array, dtype, place=-1):
        self.array, self.shape, self.dtype, self.place = array, array.shape, dtype, place
        self.device = types.SimpleNamespace(type="cpu" if place < 0 else "cuda")

    def data_ptr(self):
        return self.array.pointer

    def stride(self):
        return self.array.strides

    def get_device(self):
        return self.place

    def is_neg(self):
        return False

    def detach(self):
        return self


class Tensors(unittest.TestCase):
    """The path of torch tensors, without torch."""

    def setUp(self):
        torch = types.SimpleNamespace(Tensor=FakeTensor)
        patch = mock.patch.dict(sys.modules, torch=torch)
        patch.start()
        self.addCleanup(patch.stop)

    @staticmethod
    def tensors(product, d):
        fp8, f32 = "torch.float8_e4m3fn", "torch.float32"
        return ((FakeTensor(product.a, fp8), FakeTensor(product.u, f32)),
                (FakeTensor(product.b, fp8), FakeTensor(product.v, f32)),
                FakeTensor(d, "torch.bfloat16"))

    def test_exact(self):
        for scales in (rows, columns):
            product = Product(5, 131, 140, scales, pad=3)
            for _ in range(2):
                d = product.output()
                culet.fp8_gemm_nt(*self.tensors(product, d))
                self.assertEqual(product.wrong(d), 0)

    def test_scales_of_another_order_have_their_own_plan(self):
        product = Product(5, 131, 256)
        turned = columns("f4", (5, 2))
        for i in range(5):
            for j in range(2):
                turned[i, j] = product.u[i, j]
        for scales in (product.u, turned, product.u):
            d = product.output()
            a, b, out = self.tensors(product, d)
            culet.fp8_gemm_nt((a[0], FakeTensor(scales, "torch.float32")), b, out)
            self.assertEqual(product.wrong(d), 0)

    def test_pointers_of_another_alignment(self):
        product = Product(4, 8, 128)
        for offset in (64, 63, 62, 60):
            d = product.output()
            shifted = rows("u2", (4, 8), fill=d[0, 0], offset=offset)
            a, b, _ = self.tensors(product, d)
            culet.fp8_gemm_nt(a, b, FakeTensor(shifted, "torch.bfloat16"))
            for i in range(4):
                for j in range(8):
                    d[i, j] = shifted[i, j]
            self.assertEqual(product.wrong(d), 0)

    def test_a_cached_plan_checks_types_and_devices(self):
        product = Product(4, 8, 128)
        d = product.output()
        a, b, out = self.tensors(product, d)
        culet.fp8_gemm_nt(a, b, out)
        with self.assertRaisesRegex(culet.InvalidArgument, "b's values holds float8_e5m2"):
            culet.fp8_gemm_nt(a, (FakeTensor(product.b, "torch.float8_e5m2"), b[1]), out)
        with self.assertRaisesRegex(culet.InvalidArgument, "a's scales is on cuda:1"):
            culet.fp8_gemm_nt((a[0], FakeTensor(product.u, "torch.float32", place=1)), b, out)

    def test_a_cached_plan_checks_what_memory_holds(self):
        """A view that negates, and a tensor without memory, look like the planned one. test_torch_views has torch's."""
        product = Product(4, 8, 128)
        d = product.output()
        (a, u), (b, v), out = self.tensors(product, d)
        plan = culet.plan((a, u), (b, v), out)
        for tensor in (a, u, b, v, out):
            for name, wrong, words in (("is_neg", True, "is a view that negates"), ("data_ptr", 0, "has no memory")):
                for call in (lambda: culet.fp8_gemm_nt((a, u), (b, v), out), lambda: plan(a, out, a_scale=u)):
                    if tensor in (b, v) and "plan" in call.__code__.co_freevars:
                        continue  # bound, with the memory that they had
                    call()
                    before = d.elements()
                    with mock.patch.object(tensor, name, lambda: wrong):
                        with self.assertRaisesRegex(culet.InvalidArgument, words):
                            call()
                    self.assertEqual(d.elements(), before)
        self.assertEqual(product.wrong(d), 0)


if __name__ == "__main__":
    unittest.main()
