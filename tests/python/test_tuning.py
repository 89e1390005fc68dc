"""autotune, explain, devices, the cache file and how the library is found."""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

import culet
from culet import _problem
from host_arrays import Product

# One tuned product in a process of its own, then what explain says of it.
PROGRAM = """
import sys
import culet
from host_arrays import Product
product = Product(2, 4, 128)
if sys.argv[1] != "none":
    with culet.autotune(budget=20, persist=sys.argv[1] == "persist"):
        culet.fp8_gemm_nt(*product.operands, product.output())
print(culet.explain(*product.operands, product.output()))
"""


def run(*arguments, **environment):
    done = subprocess.run([sys.executable, *arguments], env=os.environ | environment, text=True,
                          capture_output=True, cwd=Path(__file__).parent, check=False)
    return done.returncode, done.stdout + done.stderr


class Tuning(unittest.TestCase):
    def choice(self, product, **options):
        text = culet.explain(*product.operands, product.output(), **options)
        return re.search(r"choice +(\S+) \((.*)\)", text).groups()

    def test_a_problem_is_tuned_once(self):
        product = Product(3, 70, 128)
        d = product.output()
        culet.fp8_gemm_nt(*product.operands, d)  # an untuned plan is there already
        self.assertEqual(self.choice(product)[1], "predicted")
        with culet.autotune(budget=20) as tuning:
            for _ in range(3):
                d = product.output()
                culet.fp8_gemm_nt(*product.operands, d)
                self.assertEqual(product.wrong(d), 0)
        self.assertEqual(len(tuning.results), 1)
        tuned = tuning.results[0]
        self.assertEqual((tuned.m, tuned.n, tuned.k), (3, 70, 128))
        self.assertGreater(tuned.measurements, 0)
        self.assertGreater(tuned.time_us, 0)
        self.assertEqual(self.choice(product), (tuned.kernel, "measured"))
        d = product.output()
        culet.fp8_gemm_nt(*product.operands, d)
        self.assertEqual(product.wrong(d), 0)
        self.tune_until_sound(product)
        with culet.autotune(budget=20) as again:
            culet.fp8_gemm_nt(*Product(3, 70, 128, seed=9).operands, d)  # another weight
        self.assertEqual(sum(result.measurements for result in again.results), 0)

    def tune_until_sound(self, product):
        """A busy machine's measurement may be noisy, and is repeated by the next tuning."""
        for _ in range(100):
            if "noisy" not in culet.explain(*product.operands, product.output()):
                return
            with culet.autotune(budget=20):
                culet.fp8_gemm_nt(*product.operands, product.output())
        self.skipTest("other programs keep the machine too busy: all measurements were noisy")

    def test_plans_of_other_weights_are_renewed(self):
        first, second = Product(3, 71, 128), Product(3, 71, 128, seed=2)
        culet.fp8_gemm_nt(*second.operands, second.output())
        with culet.autotune(budget=20):
            culet.fp8_gemm_nt(*first.operands, first.output())
        with mock.patch.object(_problem, "Plan", wraps=_problem.Plan) as plan:
            culet.fp8_gemm_nt(*second.operands, second.output())
            self.assertEqual(plan.call_count, 1)
            culet.fp8_gemm_nt(*first.operands, first.output())
            self.assertEqual(plan.call_count, 1)

    def test_pdl_takes_the_record_without_it(self):
        product = Product(2, 90, 128)
        with culet.autotune(budget=20) as tuning:
            culet.fp8_gemm_nt(*product.operands, product.output(), pdl=True)
        self.assertEqual([result.pdl for result in tuning.results], [False])
        self.assertEqual(self.choice(product)[1], "measured")
        self.assertEqual(self.choice(product, pdl=True), self.choice(product))

    def test_a_spent_budget(self):
        first, second = Product(2, 33, 128), Product(2, 34, 128)
        with culet.autotune(budget=1e-9) as tuning:
            for product in (first, second):
                d = product.output()
                culet.fp8_gemm_nt(*product.operands, d)
                self.assertEqual(product.wrong(d), 0)
        self.assertEqual([result.measurements for result in tuning.results], [0, 0])
        self.assertEqual(self.choice(first)[1], "predicted")

    def test_the_budget_is_for_all_together(self):
        first, second = Product(2, 39, 128), Product(2, 40, 128)
        times = iter(range(0, 10**9, 1000))  # each problem seems to take that long
        with mock.patch("culet._tuning.time", mock.Mock(monotonic=lambda: next(times))):
            with culet.autotune(budget=900) as tuning:
                for product in (first, second):
                    culet.fp8_gemm_nt(*product.operands, product.output())
        self.assertEqual([result.seconds for result in tuning.results][:1], [1000])
        self.assertEqual([bool(result.measurements) for result in tuning.results], [True, False])

    def test_untuned_plans_are_kept_in_the_block(self):
        product, other = Product(2, 37, 128), Product(2, 38, 128)
        outputs = [product.output(), other.output()]
        culet.fp8_gemm_nt(*other.operands, outputs[1])
        with mock.patch.object(_problem, "Plan", wraps=_problem.Plan) as plan:
            with culet.autotune(budget=1e-9):
                for _ in range(3):
                    culet.fp8_gemm_nt(*product.operands, outputs[0])
                self.assertEqual(plan.call_count, 1)
                thread = threading.Thread(
                    target=culet.fp8_gemm_nt, args=(*other.operands, outputs[1]))
                thread.start()
                thread.join()
                self.assertEqual(plan.call_count, 1)

    def test_other_threads_do_not_tune(self):
        product = Product(2, 35, 128)
        with culet.autotune(budget=20) as tuning:
            thread = threading.Thread(
                target=culet.fp8_gemm_nt, args=(*product.operands, product.output()))
            thread.start()
            thread.join()
        self.assertEqual(tuning.results, [])
        self.assertEqual(self.choice(product)[1], "predicted")

    def test_an_error_ends_the_block(self):
        product = Product(2, 36, 128)
        with self.assertRaises(ZeroDivisionError):
            with culet.autotune():
                raise ZeroDivisionError
        culet.fp8_gemm_nt(*product.operands, product.output())
        self.assertEqual(self.choice(product)[1], "predicted")
        for budget in (0, -1, float("nan")):
            with self.assertRaisesRegex(culet.InvalidArgument, "budget"):
                culet.autotune(budget=budget)


class Processes(unittest.TestCase):
    def test_persist_is_found_by_the_next_process(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = os.path.join(folder, "cache.jsonl")
            self.assertIn("(predicted", run("-c", PROGRAM, "none", CULET_CACHE=cache)[1])
            self.assertIn("(measured)", run("-c", PROGRAM, "tune", CULET_CACHE=cache)[1])
            self.assertFalse(os.path.exists(cache))
            self.assertIn("(measured)", run("-c", PROGRAM, "persist", CULET_CACHE=cache)[1])
            with open(cache) as file:
                self.assertEqual(len([json.loads(line) for line in file]), 2)  # header, record
            self.assertIn("(measured)", run("-c", PROGRAM, "none", CULET_CACHE=cache)[1])
            self.assertIn("(predicted", run("-c", PROGRAM, "none", CULET_CACHE="off")[1])

    def test_a_loaded_cache_renews_plans(self):
        product = Product(2, 4, 128)
        culet.fp8_gemm_nt(*product.operands, product.output())
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(_problem, "Plan", wraps=_problem.Plan) as plan:
            cache = os.path.join(folder, "cache.jsonl")
            self.assertIn("(measured)", run("-c", PROGRAM, "persist", CULET_CACHE=cache)[1])
            culet.fp8_gemm_nt(*product.operands, product.output())
            self.assertEqual(plan.call_count, 0)
            self.assertEqual(culet.load_cache(cache)["used"], 1)
            for _ in range(2):
                d = product.output()
                culet.fp8_gemm_nt(*product.operands, d)
                self.assertEqual(product.wrong(d), 0)
            self.assertEqual(plan.call_count, 1)

    def test_off_writes_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {"CULET_CACHE": "off", "HOME": folder, "XDG_CACHE_HOME": folder}
            self.assertIn("(measured)", run("-c", PROGRAM, "persist", **environment)[1])
            # A CUDA driver may keep files of its own there.
            names = [name for _, *found in os.walk(folder) for name in sum(found, [])]
            self.assertEqual([name for name in names if "culet" in name or "dispatch" in name], [])

    def test_a_damaged_cache_is_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = os.path.join(folder, "cache.jsonl")
            with open(cache, "w") as file:
                file.write("no cache\n")
            code, text = run("-c", PROGRAM, "none", CULET_CACHE=cache)
            self.assertEqual(code, 0)
            self.assertIn("RuntimeWarning: culet's cache", text)
            self.assertIn("(predicted", text)

    def test_a_missing_library(self):
        code, text = run("-c", "import culet", CULET_LIBRARY="/nowhere/libculet.so")
        self.assertNotEqual(code, 0)
        self.assertIn("ImportError: CULET_LIBRARY is /nowhere/libculet.so", text)

    def test_torch_is_not_imported(self):
        program = ("import sys; before = set(sys.modules); import culet\n"
                   "print({'torch', 'numpy'} & (set(sys.modules) - before))")
        self.assertEqual(run("-c", program), (0, "set()\n"))


class Machine(unittest.TestCase):
    def test_devices(self):
        host = culet.devices()[0]
        self.assertEqual((host.arch, host.ordinal), (0, -1))
        self.assertTrue(host.device_class.startswith("cpu/"))
        self.assertRegex(culet.__version__, r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main()
