"""What the plan of a product is looked up by: all that it depends on, each alone."""

import os
import sys
import types
import unittest
from unittest import mock

os.environ["CULET_CACHE"] = "off"

import culet
from culet import _call, _plans

M, N, K = 4, 32, 128


class Tensor:
    """What a product asks of a torch tensor."""

    def __init__(self, pointer, shape, dtype="torch.bfloat16", strides=None, place=-1):
        self.pointer, self.shape, self.dtype, self.place = pointer, shape, dtype, place
        self.strides = strides or (shape[1], 1)[-len(shape):]

    def but(self, **changes):
        changed = Tensor(self.pointer, self.shape, self.dtype, self.strides, self.place)
        changed.__dict__.update(changes)
        return changed

    def data_ptr(self):
        return self.pointer

    def stride(self):
        return self.strides

    def is_neg(self):
        return False

    def get_device(self):
        return self.place


A, B, OUT = Tensor(0x1000, (M, K)), Tensor(0x2000, (N, K)), Tensor(0x3000, (M, N))
U, V = Tensor(0x4000, (M, 1), "torch.float32"), Tensor(0x5000, (1, 1), "torch.float32")
C, BIAS = Tensor(0x6000, (M, N)), Tensor(0x7000, (N,), strides=(1,))
NARROW, W = Tensor(0x3000, (M, N // 2)), Tensor(0x8000, (M, 1), "torch.float32")
SCALED = {"a_scale": U, "b_scale": V}
ADDED = {"c": C, "beta": 1.0}
GATED = {"out": NARROW, "epilogue": "gated_silu"}
HALVES = {"out": NARROW, "epilogue": "gated_silu_halves"}
WRITTEN = {**GATED, "out_scale": W}


def others(name, tensor, given, bound):
    """`given` with the tensor of a name changed in each way that matters."""
    changes = [{"strides": (7, 3)[-len(tensor.shape):]}, {"dtype": "torch.other"}, {"shape": (99,) * len(tensor.shape)}]
    changes.append({"pointer": tensor.pointer + (0x100000 if bound else 4)})
    return [{**given, name: tensor.but(**change)} for change in changes]


class Keys(unittest.TestCase):
    def setUp(self):
        for patch in (mock.patch.dict(sys.modules, torch=types.SimpleNamespace(Tensor=Tensor)),
                      mock.patch.dict(_plans.PLANS, clear=True), mock.patch.object(_call, "launch"),
                      mock.patch.object(_call, "plan", side_effect=lambda *_: types.SimpleNamespace(
                          handle=1, workspace=None, measured=True, used=False))):
            made = patch.start()
            self.addCleanup(patch.stop)
        self.plan = made

    def test_each_has_its_own(self):
        products = [{}, SCALED, {"a_scale": U}, {"b_scale": V}, ADDED, {"bias": BIAS}, {"beta": 1.0}, GATED, WRITTEN,
                    HALVES, {**HALVES, "out_scale": W}, {"out": NARROW}, {"pdl": True}, {"accumulate": "fast"}]
        for name, tensor, given, bound in (
                ("a", A, {}, False), ("b", B, {}, True), ("out", OUT, {}, False), ("a_scale", U, SCALED, False),
                ("b_scale", V, SCALED, True), ("c", C, ADDED, False), ("bias", BIAS, {"bias": BIAS}, True),
                ("out_scale", W, WRITTEN, True)):
            products += others(name, tensor, given, bound)
        for turn in range(2):
            for count, given in enumerate(products, 1):
                given = {"a": A, "b": B, "out": OUT, **given}
                culet.gemm(given.pop("a"), given.pop("b"), given.pop("out"), **given)
                self.assertEqual(self.plan.call_count, len(products) if turn else count, given)

    def test_what_a_launch_gives_has_none(self):
        for given in ({}, {"alpha": 2.0}, {"a": A.but(pointer=0x9000)}, {"out": OUT.but(pointer=0x9000)}):
            given = {"a": A, "b": B, "out": OUT, **given}
            culet.gemm(given.pop("a"), given.pop("b"), given.pop("out"), **given)
        self.assertEqual(self.plan.call_count, 1)


if __name__ == "__main__":
    unittest.main()
