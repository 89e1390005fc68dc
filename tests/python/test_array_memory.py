"""Arrays that are not torch's: what a plan keeps of them, and what launches wait for."""

import array
import gc
import os
import sys
import types
import unittest
from unittest import mock

os.environ["CULET_CACHE"] = "off"

import culet
from culet import _driver, _operand, _plan, _quantize, _stream
from test_arrays import CudaArray
from test_gemm import FakeTensor
from test_operands import NAN, dot, get, made, numbers

M, N, K = 3, 5, 24


class Buffers(unittest.TestCase):
    def test_a_bound_buffer_does_not_move(self):
        (a, a_values), (b, b_values) = numbers((M, K), 1), numbers((N, K), 2)
        out, bias = made((M, N), fill=NAN), array.array("f", range(N))
        step = culet.plan(a, b, out, bias=bias)
        with self.assertRaises(BufferError):
            bias.extend([0.0] * 100000)
        step()
        for j in range(N):
            self.assertEqual(get(out, (1, j)), dot(a_values, b_values, (1,), (j,), K) + j)
        del step
        gc.collect()
        bias.extend([0.0])


class Streams(unittest.TestCase):
    """Plans of host memory that says that it is a GPU's; launches and waits are noted."""

    def setUp(self):
        self.waits, self.streams = [], []

        def wait(place, stream, other):
            self.waits.append((stream, other))

        def launch(*arguments):
            self.streams.append(arguments[-1])
            return 0

        torch = types.SimpleNamespace(Tensor=FakeTensor, cuda=types.SimpleNamespace(
            current_stream=lambda place: types.SimpleNamespace(cuda_stream=9)))
        for patch in (mock.patch.object(_driver, "place_of", lambda name, pointer: _operand.HOST),
                      mock.patch.object(_driver, "wait", wait), mock.patch.object(_plan, "launch", launch),
                      mock.patch.object(_stream, "current", lambda place: 9),
                      mock.patch.object(_plan, "HOST", None),
                      mock.patch.dict(sys.modules, torch=torch),
                      mock.patch.object(FakeTensor, "detach", lambda tensor: tensor, create=True)):
            patch.start()
            self.addCleanup(patch.stop)

    def planned(self, a, b, out, **options):
        step = culet.plan(a, b, out, **options)
        self.assertEqual(self.waits, [])  # nobody works on them yet
        step._place = 0
        return step

    @staticmethod
    def of_torch(*shape):
        return FakeTensor(made(shape), "torch.float32")

    def test_bound_operands(self):
        a, b, out = CudaArray(made((M, K)), stream=5), CudaArray(made((N, K)), stream=6), CudaArray(
            made((M, N)), stream=7)
        step = self.planned(a, b, out, bias=CudaArray(made((N,)), stream=8))
        for _ in range(2):
            step()
        self.assertEqual(self.streams, [7, 7])
        self.assertEqual(self.waits, [(7, 5), (7, 6), (7, 8)] * 2)

    def test_a_weight_beside_tensors(self):
        step = self.planned(self.of_torch(M, K), CudaArray(made((N, K)), stream=6), self.of_torch(M, N))
        for _ in range(2):
            step()
        self.assertEqual((self.streams, self.waits), ([9, 9], [(9, 6)] * 2))

    def test_operands_of_a_launch(self):
        step = self.planned(self.of_torch(M, K), self.of_torch(N, K), self.of_torch(M, N))
        step()
        self.assertEqual((self.streams, self.waits), ([9], []))
        out = CudaArray(made((M, N)), stream=4)
        self.assertIs(step(CudaArray(made((M, K)), stream=3), out), out)
        self.assertEqual(self.streams, [9, 9])
        self.assertEqual(sorted(self.waits), [(9, 3), (9, 4)])
        step(self.of_torch(M, K))
        self.assertEqual((self.streams, len(self.waits)), ([9] * 3, 2))


class Quantised(unittest.TestCase):
    def test_outputs_that_others_work_on(self):
        waits, m, k = [], 2, 256
        x = CudaArray(made((m, k)), stream=7)
        out = CudaArray(made((m, k), "u1"), stream=7), CudaArray(made((m, 2)), stream=5)
        for patch in (mock.patch.object(_driver, "place_of", lambda name, pointer: _operand.HOST),
                      mock.patch.object(_driver, "wait", lambda place, stream, other: waits.append((stream, other))),
                      mock.patch.object(_quantize, "HOST", None),
                      mock.patch.object(_quantize, "_quantize", lambda *arguments: 0),
                      mock.patch.object(_quantize, "ordered",
                                        lambda name, value, others: (_operand.operand(name, value), 7))):
            patch.start()
            self.addCleanup(patch.stop)
        self.assertIs(culet.quantize_fp8(x, out=out), out)
        self.assertEqual(waits, [(7, 5)])


if __name__ == "__main__":
    unittest.main()
