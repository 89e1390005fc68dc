"""The library's messages in Python's logging, ranges, coverage, the record of untuned problems."""

import json
import logging
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import culet
from culet._library import LIBRARY, ON_LOG

ADDER = str(Path(__file__).resolve().parents[2] / "examples/adder")
RUN = f"""
import culet, logging, sys
logging.basicConfig(level=logging.DEBUG, format="%(name)s %(levelname)s %(message)s", stream=sys.stdout)
culet.set_log(LEVEL)
llm = culet.LLM({ADDER!r}, device="cpu")
print("answer", llm.generate("12+34=", max_new_tokens=3))
print("coverage", *llm.coverage)
culet.set_log("off")
culet.coverage()
"""


def run(level, **environment):
    done = subprocess.run([sys.executable, "-c", RUN.replace("LEVEL", repr(level))], capture_output=True, text=True,
                          check=True, env={**os.environ, "CULET_CACHE": "off", **environment})
    return done.stdout.splitlines()


class Log(unittest.TestCase):
    def tearDown(self):
        culet.set_log("off")

    def test_nothing_is_said_unless_asked(self):
        lines = run("off")
        self.assertFalse([line for line in lines if " DEBUG " in line or "plan" in line])

    def test_plans_are_debug_messages_of_the_logger(self):
        lines = run("debug")
        self.assertTrue([line for line in lines if line.startswith("culet DEBUG plan m=")], lines)

    def test_the_coverage_is_said_once(self):
        lines = run("info")
        said = [line for line in lines if "products have a measured kernel" in line]
        self.assertEqual(len(said), 1, lines)
        self.assertRegex(said[0], r"^culet INFO .*adder on cpu: 0 of \d+ products")

    def test_a_model_is_covered_when_it_is_loaded(self):
        before = culet.coverage().problems
        llm = culet.LLM(ADDER, device="cpu")
        self.assertGreater(llm.coverage.problems, 0)
        loaded = llm.coverage.problems
        llm.generate("1", max_new_tokens=2)  # a step of one token: nothing is planned anew
        self.assertEqual(llm.coverage.problems, loaded)
        self.assertGreaterEqual(loaded, before)

    def test_coverage_counts(self):
        found = next(line for line in run("off") if line.startswith("coverage")).split()
        problems, measured = map(int, found[1:])
        self.assertGreater(problems, 0)
        self.assertEqual(measured, 0)

    def test_levels(self):
        with self.assertRaisesRegex(culet.InvalidArgument, "level is 'loud'"):
            culet.set_log("loud")
        for level in ("debug", "info", "warning", "off"):
            culet.set_log(level)

    def test_a_handler_that_fails_does_not_disturb(self):
        class Broken(logging.Handler):
            def emit(self, record):
                if record.levelno == logging.DEBUG:  # the library's; what Python code says, Python raises
                    raise OSError("no disk")

        logger = logging.getLogger("culet")
        handler, before = Broken(), (logger.level, logger.propagate)
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        try:
            culet.set_log("debug")
            culet.LLM(ADDER, device="cpu").generate("1+1=", max_new_tokens=1)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before[0])
            logger.propagate = before[1]

    def test_the_interface_refuses_other_levels(self):
        for level in (-1, 4, 257):
            self.assertNotEqual(LIBRARY.culet_set_log(ON_LOG(), None, level), 0)

    def test_tracing(self):
        try:
            culet.set_tracing(True)
        except culet.Error as error:
            self.assertEqual(error.status, "UNSUPPORTED")
            self.assertIn("NVTX", str(error))
        culet.set_tracing(False)


class Record(unittest.TestCase):
    def test_untuned_problems_are_written_down(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "untuned.jsonl")
            run("off", CULET_RECORD=str(path))
            lines = path.read_text().splitlines()
            self.assertEqual(json.loads(lines[0]), {"format": "culet-untuned", "version": 1})
            problems = [json.loads(line)["problem"] for line in lines[1:]]
            self.assertEqual(len(problems), len({json.dumps(problem) for problem in problems}))
            self.assertTrue(any(problem["m"] == 1 for problem in problems))


if __name__ == "__main__":
    unittest.main()
