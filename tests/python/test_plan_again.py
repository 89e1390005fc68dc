"""Launches of a culet.Plan that change nothing, of a kernel without a workspace: their arguments are kept."""

import os
import threading
import unittest

os.environ["CULET_CACHE"] = "off"

import culet
from test_operands import NAN, dot, get, made, numbers

M, N, K = 2, 3, 8


class Again(unittest.TestCase):
    def setUp(self):
        (self.a, self.a_values), (self.b, self.b_values) = numbers((M, K), 1), numbers((N, K), 2)
        self.out = made((M, N), fill=NAN)
        ones, zeros = made((M,), fill=1), made((M,), fill=0)
        # Zero points, which the reference alone computes: it needs no workspace.
        self.step = culet.plan(self.a, self.b, self.out, a_scale=ones, a_zero=zeros)

    def wrong(self, out, values=None, alpha=1):
        values = self.a_values if values is None else values
        return sum(get(out, (i, j)) != alpha * dot(values, self.b_values, (i,), (j,), K)
                   for i in range(M) for j in range(N))

    def test_they_are_kept(self):
        self.assertFalse(self.step._again)
        for _ in range(3):
            self.assertIs(self.step(), self.out)
            self.assertEqual(self.wrong(self.out), 0)
            self.out[0, 0] = NAN
        self.assertTrue(self.step._again)

    def test_others_are_not(self):
        other, (a, a_values) = made((M, N), fill=NAN), numbers((M, K), 3)
        for options, values, alpha in (({"out": other}, self.a_values, 1), ({"a": a, "out": other}, a_values, 1),
                                       ({"alpha": 2.0, "out": other}, self.a_values, 2)):
            for _ in range(2):
                self.assertIs(self.step(**options), other)
                self.assertEqual(self.wrong(other, values, alpha), 0)
                other[0, 0] = NAN
                self.assertIs(self.step(), self.out)
                self.assertEqual(self.wrong(self.out), 0)
                self.assertNotEqual(get(other, (0, 0)), get(other, (0, 0)))
                self.out[0, 0] = NAN
        self.step(a)
        self.assertEqual(self.wrong(self.out, a_values), 0)
        self.step(alpha=2.0)
        self.assertEqual(self.wrong(self.out, alpha=2), 0)
        self.step()
        self.assertEqual(self.wrong(self.out), 0)

    def test_closed(self):
        self.step()
        self.step.close()
        self.out[0, 0] = NAN
        with self.assertRaisesRegex(culet.Error, "the plan is closed"):
            self.step()
        self.assertEqual(self.wrong(self.out), 1)

    def test_closing_while_others_launch(self):
        refused = []

        def work():
            while len(refused) < 3:
                try:
                    self.step()
                except culet.Error as error:
                    refused.append(error.status)
                    return

        self.step()
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        self.step.close()
        for thread in threads:
            thread.join()
        self.assertEqual(refused, ["FAILED_PRECONDITION"] * 3)


if __name__ == "__main__":
    unittest.main()
