#!/usr/bin/env python3
"""scripts/ranks-check with processes instead of GPUs, and that it can say WRONG.

usage: ranks_script_check.py --source DIR --build DIR --cli BINARY
"""

import argparse
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import unittest
from pathlib import Path

from exports_check import package_environment

sys.dont_write_bytecode = True
SOURCE, BUILD = None, None
SECONDS = 400


def script():
    loader = importlib.machinery.SourceFileLoader("ranks_check", str(SOURCE / "scripts/ranks-check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("ranks_check", loader))
    loader.exec_module(module)
    return module


def run(*args):
    command = [sys.executable, SOURCE / "scripts/ranks-check", "--bin", BUILD, "--device", "cpu", *args]
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=SECONDS,
                          env=package_environment(SOURCE, BUILD))


class Parts(unittest.TestCase):
    def test_all_that_need_no_gpu_are_right(self):
        folders = [p for p in (Path(os.environ.get("CULET_FIXTURES", SOURCE.parent / "shared/fixtures")),) if p.is_dir()]
        parts = ["soak", "kills", *(["models"] if folders else [])]
        fixtures = ["--fixtures", *folders] if folders else []
        done = run("--steps", 200, "--kills", 4, "--jobs", 2, *fixtures, "--", *parts)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = [line.split()[:2] for line in done.stdout.splitlines() if not line.startswith(" ")]
        self.assertEqual(lines, [[part, "right"] for part in parts])

    def test_no_time(self):
        done = run("--seconds", 0)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, "kills +WRONG .* left out: no time")

    def test_a_part_that_needs_gpus(self):
        done = run("bench")
        self.assertEqual(done.returncode, 2)
        self.assertIn("part 'bench' needs --device cuda", done.stderr)

    def test_distances(self):
        distance = script().distance
        self.assertEqual(distance([1, 2], [1, 2]), 0)
        self.assertEqual(distance([3, 8], [3, 4]), 0.8)
        self.assertEqual(distance([float("nan"), 2], [1, 2]), float("inf"))


def main():
    global SOURCE, BUILD
    parser = argparse.ArgumentParser()
    for name in ("source", "build", "cli"):
        parser.add_argument("--" + name, type=Path, required=True)
    args, rest = parser.parse_known_args()
    SOURCE, BUILD = args.source, args.build
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
