"""Arguments that no error could show: integers of thousands of digits, paths of any bytes, objects that raise. And
what stands for memory and handles of a process, which is not pickled."""

import copy
import os
import pickle
import shutil
import tempfile
import unittest
from fractions import Fraction
from pathlib import Path

os.environ["CULET_CACHE"] = "off"

import culet
from host_arrays import rows

ADDER = Path(__file__).resolve().parents[2] / "examples/adder"
HUGE = (10**400, -10**400, 10**5000)  # no float, and the last has no repr() either


class Raising:
    def _raise(self, *_):
        raise ArithmeticError("no")

    __float__ = __index__ = __eq__ = __repr__ = __str__ = __bool__ = _raise
    __hash__ = None


class ClearErrors(unittest.TestCase):
    def refused(self, name, function, kind=culet.InvalidArgument):
        with self.assertRaisesRegex(kind, name) as caught:
            function()
        str(caught.exception).encode()  # can be printed

    def test_paths(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(os.rmdir, folder)
        for name in ("a\udc80b", "ü", "a\x01b"):
            path = os.path.join(folder, name)
            for function in (culet.load_cache, culet.tune_model, lambda path: culet.LLM(path, device="cpu"),
                             lambda path: culet.LLM(folder + "/" + name, device="cpu")):
                with self.assertRaises(culet.Error) as caught:
                    function(path)
                self.assertIn(os.path.basename(folder), str(caught.exception))
        with self.assertRaises(culet.Error) as caught:
            culet.load_cache(os.path.join(folder, "a\udc80b"))
        self.assertIn(r"a\x80b", str(caught.exception))
        self.assertEqual(caught.exception.status, "NOT_FOUND")

    def test_a_folder_of_any_name(self):
        """What is wrong inside is said in words that can be printed."""
        outer = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, outer)
        folder = Path(outer, "a\udc80b")
        folder.mkdir()
        for name in ("config.json", "model.safetensors"):
            os.symlink(ADDER / name, folder / name)
        (folder / "tokenizer_config.json").write_text("{")
        with self.assertRaisesRegex(culet.Error, r"a\\udc80b/tokenizer_config.json cannot be read") as caught:
            culet.LLM(folder, device="cpu")
        str(caught.exception).encode()

    def test_numbers(self):
        a, b, out = rows("f4", (2, 4)), rows("f4", (3, 4)), rows("f4", (2, 3))
        llm = culet.LLM(ADDER, device="cpu")
        for value in (*HUGE, Raising(), Fraction(10**400)):
            self.refused("budget is", lambda: culet.autotune(budget=value))
            self.refused("budget is", lambda: culet.tune_model(ADDER, 1, budget=value))
            self.refused("alpha is", lambda: culet.gemm(a, b, out, alpha=value))
            self.refused("beta is", lambda: culet.gemm(a, b, out, beta=value))
            self.refused("pdl is", lambda: culet.gemm(a, b, out, pdl=value))
            self.refused("accumulate is", lambda: culet.gemm(a, b, out, accumulate=value))
            self.refused("epilogue is", lambda: culet.gemm(a, b, out, epilogue=value))
            self.refused("granularity is", lambda: culet.quantize_fp8(a, value))
            self.refused("format is", lambda: culet.pack(b, value))
            self.refused("tokens is", lambda: culet.tune_model(ADDER, value))
            self.refused("device is", lambda: culet.load_cache("x", value))
            for name in ("temperature", "top_p", "min_p", "top_k", "seed", "max_new_tokens"):
                self.refused(name, lambda: llm.generate("1+", **{name: value}))
            self.refused("max_context", lambda: culet.LLM(ADDER, device="cpu", max_context=value))
            self.refused("prompt", lambda: llm.generate([value]))
            self.refused("stop", lambda: llm.generate("1+", stop=value))

    def test_a_device_of_many_digits(self):
        self.refused("device is", lambda: culet.load_cache("x", "cuda:" + "9" * 5000))

    def test_an_infinite_budget_is_one(self):
        culet.autotune(budget=float("inf"))

    def test_what_is_not_pickled(self):
        a, b, out = rows("f4", (2, 64)), rows("f4", (64, 64)), rows("f4", (2, 64))
        llm = culet.LLM(ADDER, device="cpu")
        for value in (culet.pack(b), culet.plan(a, b, out), llm, llm.stream("1+1="), culet.autotune()):
            for function in (pickle.dumps, lambda value: pickle.dumps([value], 2)):
                with self.assertRaisesRegex(culet.Error, f"a {type(value).__name__} of culet belongs to the process"):
                    function(value)
            if not isinstance(value, culet.Packed):
                with self.assertRaisesRegex(culet.Error, "not pickled or copied"):
                    copy.deepcopy(value)

    def test_a_packed_weight_is_its_own_copy(self):
        packed = culet.pack(rows("f4", (64, 64), fill=1))
        for other in (copy.copy(packed), copy.deepcopy([packed])[0]):
            self.assertIs(other, packed)


if __name__ == "__main__":
    unittest.main()
