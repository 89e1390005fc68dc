"""What a long run meets: weights that keep changing, Ctrl-C while it tunes, a cache file that
cannot be written."""

import json
import os
import re
import signal
import tempfile
import threading
import unittest
import warnings
from pathlib import Path
from unittest import mock

import culet
from culet import _engine, _library, _plans
from host_arrays import Product
from interrupts import interrupt_until
from test_tuning import run

PERSIST = """
import culet
from host_arrays import Product
product = Product(2, 4, 128)
with culet.autotune(budget=20, persist=True) as tuning:
    try:
        culet.fp8_gemm_nt(*product.operands, product.output())
    finally:
        print("results:", len(tuning.results))
"""

STOPPED = """
import resource
from ctypes import byref, c_int32, pointer
from culet import _engine, _library, _problem
from culet._operand import HOST, Operand

places = [0]

def matrix(dtype, rows, cols):
    places.append(places[-1] + (1 << 30))  # far from each other
    return Operand(places[-1], dtype, (rows, cols), (cols, 1), HOST)

def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

size = 1 << 14
problem = _problem.problem(
    _problem.FP8_BLOCK,
    (matrix("uint8", 1, size), matrix("float32", 1, size // 128), matrix("uint8", size, size),
     matrix("float32", size // 128, size // 128), matrix("uint16", 1, size), *[None] * 5),
    0, "precise", False)
options = _library.TuneOptions(budget_s=0, stop=pointer(c_int32(1)))
engine, before = _engine.engine(HOST), peak_mib()
status = _library.LIBRARY.culet_tune(engine.handle, byref(problem), byref(options), None)
print(_library.LIBRARY.culet_status_name(status).decode(),
      _library.LIBRARY.culet_last_error().decode(), peak_mib() - before)
"""


class Plans(unittest.TestCase):
    def setUp(self):
        for patch in (mock.patch.dict(_plans.PLANS, clear=True),
                      mock.patch.object(_plans, "MAX_PLANS", 4)):
            patch.start()
            self.addCleanup(patch.stop)

    def test_changing_weights_do_not_pile_up(self):
        handles = []
        with mock.patch.object(_library.LIBRARY, "culet_plan_destroy", handles.append):
            products = [Product(1, 3, 128, seed=seed) for seed in range(12)]
            for product in products:
                d = product.output()
                culet.fp8_gemm_nt(*product.operands, d)
                self.assertEqual(product.wrong(d), 0)
                self.assertLessEqual(len(_plans.PLANS), 4)
        self.assertEqual(len(handles), 8)

    def test_a_plan_in_use_stays(self):
        hot = Product(1, 3, 128)
        culet.fp8_gemm_nt(*hot.operands, hot.output())
        plan, = _plans.PLANS.values()
        for seed in range(1, 12):
            other = Product(1, 3, 128, seed=seed)
            culet.fp8_gemm_nt(*other.operands, other.output())
            culet.fp8_gemm_nt(*hot.operands, hot.output())
            self.assertIn(plan, _plans.PLANS.values())

    def test_the_default_bound(self):
        text = Path(_plans.__file__).read_text()
        self.assertLessEqual(int(re.search(r"^MAX_PLANS = (\d+)$", text, re.MULTILINE)[1]), 8192)


class Interrupts(unittest.TestCase):
    def setUp(self):  # a program in the background ignores the signal
        self.addCleanup(signal.signal, signal.SIGINT,
                        signal.signal(signal.SIGINT, signal.default_int_handler))

    def interrupted(self):
        """culet_tune that meets Ctrl-C and measures until it is told to stop."""
        def tune(handle, problem, options, choice):
            stop = options._obj.stop.contents
            interrupt_until(lambda: stop.value)
            told.append(True)
            return real(handle, problem, options, choice)

        real, told = _library.LIBRARY.culet_tune, []
        return mock.patch.object(_library.LIBRARY, "culet_tune", tune), told

    def test_ctrl_c_ends_the_measuring_and_keeps_what_is_known(self):
        first, second = Product(2, 51, 128), Product(2, 52, 128)
        saved = []
        patch, told = self.interrupted()
        before = threading.active_count()
        with mock.patch.object(_engine.Engine, "save", lambda engine: saved.append(engine)):
            with self.assertRaises(KeyboardInterrupt):
                with culet.autotune(budget=600, persist=True) as tuning:
                    culet.fp8_gemm_nt(*first.operands, first.output())
                    with patch:
                        culet.fp8_gemm_nt(*second.operands, second.output())
        self.assertEqual(told, [True])
        self.assertEqual([(result.n, result.measurements > 0) for result in tuning.results],
                         [(51, True)])
        self.assertEqual(len(saved), 1)  # at the end
        self.assertEqual((culet.autotune.running, threading.active_count()), (0, before))
        self.assertIn("(measured)", culet.explain(*first.operands, first.output()))
        for product in (first, second):
            d = product.output()
            culet.fp8_gemm_nt(*product.operands, d)
            self.assertEqual(product.wrong(d), 0)
        with culet.autotune(budget=20) as again:  # the interrupted problem can be tuned
            culet.fp8_gemm_nt(*second.operands, second.output())
        self.assertGreater(again.results[0].measurements, 0)

    def test_a_signal_handler_that_raises_a_runtime_error_ends_the_measuring(self):
        def handler(number, frame):
            raise RuntimeError("a worker died")

        product = Product(2, 55, 128)
        patch, told = self.interrupted()
        before = threading.active_count()
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, handler))
        with self.assertRaisesRegex(RuntimeError, "a worker died"), patch:
            with culet.autotune(budget=600):
                culet.fp8_gemm_nt(*product.operands, product.output())
        self.assertEqual((told, threading.active_count()), ([True], before))

    def test_a_thread_that_cannot_be_started(self):
        product = Product(2, 56, 128)
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start")):
            with self.assertRaisesRegex(RuntimeError, "can't start"), culet.autotune(budget=600):
                culet.fp8_gemm_nt(*product.operands, product.output())

    def test_a_failing_save_does_not_hide_the_interrupt(self):
        def save(engine):
            raise culet.Error("IO", "the disk is full")

        product = Product(2, 53, 128)
        with mock.patch.object(_engine.Engine, "save", save):
            with warnings.catch_warnings(record=True) as caught, self.assertRaises(ZeroDivisionError):
                warnings.simplefilter("always")
                with culet.autotune(budget=20, persist=True):
                    culet.fp8_gemm_nt(*product.operands, product.output())
                    raise ZeroDivisionError
            self.assertIn("not saved: the disk is full", str(caught[-1].message))
            with self.assertRaisesRegex(culet.Error, "the disk is full"):
                with culet.autotune(budget=20, persist=True) as tuning:
                    tuning._engines[-1] = _engine.engine(-1)


class Stops(unittest.TestCase):
    def test_stop_ends_the_making_of_inputs(self):
        """What is to be measured takes long to fill; a tuning that is stopped before has not."""
        code, text = run("-c", STOPPED)
        self.assertEqual(code, 0, text)
        self.assertRegex(text, "^RESOURCE_EXHAUSTED the tuning was stopped before any sample")
        self.assertLess(int(text.split()[-1]), 100)  # MiB, of the 256 that b takes


class Forks(unittest.TestCase):
    def test_locks_that_other_threads_hold(self):
        product = Product(2, 54, 128)
        with _plans._lock, _engine._engines_lock, culet.autotune._lock:
            child = os.fork()
            if child == 0:
                signal.alarm(60)  # a child that waits for ever ends
                d = product.output()
                with mock.patch.dict(_engine._engines, clear=True), culet.autotune(budget=20) as tuning:
                    culet.fp8_gemm_nt(*product.operands, d)
                os._exit(product.wrong(d) + (len(tuning.results) != 1))
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class Persist(unittest.TestCase):
    def test_a_bad_cache_file_is_refused_before_measuring(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder, "cache.jsonl")
            cache.write_text("no cache\n")
            code, text = run("-c", PERSIST, CULET_CACHE=str(cache))
            self.assertEqual(code, 1)
            self.assertIn("results: 0", text)
            self.assertRegex(text, "culet.*Error: '.*cache.jsonl'")
            self.assertEqual(cache.read_text(), "no cache\n")
            for place in (cache / "below" / "a_file.jsonl", Path(folder)):
                code, text = run("-c", PERSIST, CULET_CACHE=str(place))
                self.assertEqual((code, "results: 0" in text), (1, True), text)

    def test_a_good_one_is_written_once(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder, "cache.jsonl")
            self.assertEqual(run("-c", PERSIST, CULET_CACHE=str(cache)), (0, "results: 1\n"))
            self.assertEqual(len([json.loads(line) for line in cache.read_text().splitlines()]), 2)


if __name__ == "__main__":
    unittest.main()
