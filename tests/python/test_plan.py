"""culet.plan on the CPU: launches, other operands, what is refused, closing."""

import gc
import os
import threading
import unittest
import weakref
from unittest import mock

os.environ["CULET_CACHE"] = "off"

import culet
from culet import _engine, _plans
from host_arrays import POISON, Product, rows, to_bf16
from test_operands import NAN, dot, get, made, numbers

M, N, K = 3, 5, 24


class Plans(unittest.TestCase):
    def setUp(self):
        self.a, self.a_values = numbers((M, K), 1)
        self.b, self.b_values = numbers((N, K), 2)
        self.out = made((M, N), fill=NAN)

    def right(self, out, a_values, alpha=1, added=None, beta=0):
        for i in range(M):
            for j in range(N):
                wanted = alpha * dot(a_values, self.b_values, (i,), (j,), K)
                if added is not None:
                    wanted += beta * added[i, j]
                self.assertEqual(get(out, (i, j)), wanted)

    def test_launches(self):
        known = dict(_plans.PLANS)
        step = culet.plan(self.a, self.b, self.out)
        self.assertNotEqual(get(self.out, (0, 0)), get(self.out, (0, 0)))  # still NaN
        self.assertIs(step(), self.out)
        self.right(self.out, self.a_values)
        other, values = numbers((M, K), 7)
        out = made((M, N), fill=NAN)
        self.assertIs(step(other, out), out)
        self.right(out, values)
        step(alpha=2)
        self.right(self.out, self.a_values, alpha=2)
        self.assertEqual(_plans.PLANS, known)  # they are gemm's
        self.assertIn("/", step.kernel)
        self.assertIn(step.kernel, repr(step))

    def test_c(self):
        c, values = numbers((M, N), 3)
        step = culet.plan(self.a, self.b, self.out, c=c, beta=2, alpha=3)
        step()
        self.right(self.out, self.a_values, 3, values, 2)
        c, values = numbers((M, N), 4)
        step(c=c, beta=-1)
        self.right(self.out, self.a_values, 3, values, -1)
        step(beta=0)
        self.right(self.out, self.a_values, 3)
        step = culet.plan(self.a, self.b, self.out, beta=1)  # c is out
        step()
        self.right(self.out, self.a_values, 6 / 1.5)
        out, values = numbers((M, N), 5)
        step(out=out)
        self.right(out, self.a_values, 1, values, 1)

    def test_scales(self):
        product = Product(4, 130, 200)
        (a, u), (b, v) = product.operands
        d = product.output()
        steps = [culet.plan((a, u), (b, v), d), culet.plan(a, b, d, a_scale=u, b_scale=v)]
        for step in steps:
            out = product.output()
            step(out=out)
            self.assertEqual(product.wrong(out), 0)
        doubled = rows("f4", (4, 2))
        for i in range(4):
            for j in range(2):
                doubled[i, j] = 2 * u[i, j]
        out = product.output()
        steps[0](a_scale=doubled, out=out, alpha=0.5)
        self.assertEqual(product.wrong(out), 0)

    def test_refused(self):
        step = culet.plan(self.a, self.b, self.out)
        for words, options in (
                (r"a is \(2, 24\) .*plan was made for \(3, 24\)", {"a": made((2, K))}),
                ("a is .* uint16", {"a": made((M, K), "u2")}),
                (r"strides \(25, 1\)", {"a": made((M, K + 1), gap=0)}),
                ("out is", {"out": made((M, N + 1))}), ("a is a int", {"a": 3}),
                ("c is given, but the plan was made without", {"c": self.out}),
                ("a_scale is given, but", {"a_scale": self.out}),
                ("alpha is 'x'; give a number", {"alpha": "x"}),
                ("beta is 1.0, but the plan was made without; give one to culet.plan", {"beta": 1}),
                ("overlaps", {"a": self.out, "out": self.out})):
            if "strides" in words:
                wide = made((M, K + 1))
                wide.shape = (M, K)
                options = {"a": wide}
            with self.subTest(words=words), self.assertRaisesRegex(culet.InvalidArgument, words if
                                                                   words != "overlaps" else "a is"):
                step(**options)
        self.assertNotEqual(get(self.out, (0, 0)), get(self.out, (0, 0)))
        for words, call in (
                ("plan of pairs takes no alpha", lambda: culet.plan((self.a, self.a), (self.b, self.b),
                                                                    self.out, alpha=2)),
                ("out is None", lambda: culet.plan((self.a, self.a), (self.b, self.b))),
                ("pairs", lambda: culet.plan((self.a, self.a), self.b, self.out)),
                ("b is None", lambda: culet.plan(self.a, None, self.out)),
                ("out has the shape", lambda: culet.plan(self.a, self.b, self.a))):
            with self.subTest(words=words), self.assertRaisesRegex(culet.InvalidArgument, words):
                call()

    def test_closed(self):
        handles, destroy = [], _engine.LIBRARY.culet_plan_destroy
        with mock.patch.object(_engine.LIBRARY, "culet_plan_destroy",
                                        lambda handle: (handles.append(handle), destroy(handle))):
            with culet.plan(self.a, self.b, self.out) as step:
                step()
                self.assertEqual(handles, [])
            gc.collect()
            self.assertEqual(len(handles), 1)
        for call in (step, lambda: step(self.a, self.out)):
            with self.assertRaisesRegex(culet.Error, "the plan is closed") as caught:
                call()
            self.assertEqual(caught.exception.status, "FAILED_PRECONDITION")
        self.assertIn("closed", repr(step))
        step.close()

    def test_operands_live_as_long(self):
        step = culet.plan(self.a, self.b, self.out)
        kept = weakref.ref(self.b)
        self.b = self.a = None
        gc.collect()
        self.assertIsNotNone(kept())
        step()

    def test_tensors_that_are_given_other_memory(self):
        try:
            import torch
        except ImportError as error:
            self.skipTest(f"no torch: {error}")
        a, b = (torch.randint(-2, 3, shape).float() for shape in ((64, 4096), (256, 4096)))
        wanted, out = a @ b.t(), torch.empty(64, 256)
        step = culet.plan(a, b, out)
        a.data, b.data = torch.zeros(64, 4096), torch.zeros(256, 4096)  # the old memory is nobody's else
        rubbish = [torch.full((256, 4096), float("nan")) for _ in range(8)]
        self.assertTrue(torch.equal(step(), wanted))
        del rubbish
        self.assertTrue(torch.equal(step(a), torch.zeros(64, 256)))

    def test_nothing_to_do(self):
        step = culet.plan(made((0, K)), self.b, made((0, N)))
        self.assertIsNone(step.kernel)
        self.assertEqual(step().shape, (0, N))
        step.close()
        with self.assertRaises(culet.Error):
            step()

    def test_closing_while_others_launch(self):
        for _ in range(20):
            step, refused = culet.plan(self.a, self.b, self.out), []

            def work():
                out = made((M, N), fill=NAN)
                while not refused:
                    try:
                        step(out=out)
                    except culet.Error as error:
                        refused.append(error.status)

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            step.close()
            for thread in threads:
                thread.join()
            self.assertEqual(set(refused), {"FAILED_PRECONDITION"})

    def test_autotune(self):
        with culet.autotune(budget=20) as tuning:
            step = culet.plan(self.a, self.b, self.out)
        self.assertEqual(len(tuning.results), 1)
        step()
        self.right(self.out, self.a_values)


class ZeroPoints(unittest.TestCase):
    def check(self, u_shape, v_shape, kind="u2"):
        m, n, k = 3, 4, 130
        (a, a_values), (b, b_values) = (numbers((count, k), count, kind="u1") for count in (m, n))
        u, us = numbers(u_shape, 5)
        v, vs = numbers(v_shape, 6)
        p, ps = numbers(u_shape, 7, kind=kind)
        q, qs = numbers(v_shape, 8, kind=kind)
        at = {(): lambda i, g: (), (1,): lambda i, g: (0,)}

        def of(values, shape, i, g):
            if len(shape) == 2:
                return values[min(i // (128 if shape == v_shape else 1), shape[0] - 1), g]
            return values[at.get(shape, lambda i, g: (i,))(i, g)]

        for zeros in ((p, q), (None, q), (p, None)):
            out = made((m, n), fill=NAN)
            options = {"a_scale": u, "b_scale": v, "a_zero": zeros[0], "b_zero": zeros[1]}
            step = culet.plan(a, b, out, **options)
            for launch in (lambda: culet.gemm(a, b, out, **options), step):
                launch()
                for i in range(m):
                    for j in range(n):
                        wanted = sum(
                            (a_values[i, l] - (of(ps, u_shape, i, l // 128) if zeros[0] else 0)) *
                            of(us, u_shape, i, l // 128) *
                            (b_values[j, l] - (of(qs, v_shape, j, l // 128) if zeros[1] else 0)) *
                            of(vs, v_shape, j, l // 128) for l in range(k))
                        self.assertEqual(get(out, (i, j)), wanted)
        self.assertIn("zeros", culet.explain(a, b, out, **options))

    def test_rows(self):
        self.check((3,), (4,))

    def test_numbers(self):
        self.check((1,), (1,), "f4")

    def test_blocks(self):
        self.check((3, 2), (1, 2))

    def test_refused(self):
        a, b, out = made((2, 8), "u1"), made((3, 8), "u1"), made((2, 3), "u2", fill=POISON)
        u, v = made((2,), fill=1), made((3,), fill=1)
        for words, options in (
                ("a_zero is given without a_scale", {"a_zero": u}),
                ("b_zero is given without b_scale", {"b_zero": u, "b_scale": 2.0}),
                (r"b_zero is \(2,\)", {"b_zero": u, "a_scale": u, "b_scale": v}),
                ("b_zero holds uint8", {"b_zero": made((3,), "u1"), "a_scale": u, "b_scale": v})):
            with self.subTest(words=words), self.assertRaisesRegex(culet.InvalidArgument, words):
                culet.gemm(a, b, out, **options)
        self.assertEqual(get(out, (0, 0)), POISON)


if __name__ == "__main__":
    unittest.main()
