#!/usr/bin/env python3
"""scripts/gpu-check --report keeps what other programs found, and describes every section that there is."""

import argparse
import importlib.machinery
import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True


def script():
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(SOURCE / "scripts/gpu-check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


class Report(unittest.TestCase):
    def test_what_other_programs_found_stays(self):
        gpu_check = script()
        gpu_check.text_of = lambda command: "a GPU"
        rows = [("soak", True, 1.0, "all right")]
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.md"
            self.assertEqual(gpu_check.kept_text(report), "")
            kept = "<!-- other runs: begin -->\n## Others\n\nright\n<!-- other runs: end -->\n"
            for _ in range(2):
                report.write_text(gpu_check.report_text(rows, "gpu-check soak", "1234567",
                                                        gpu_check.kept_text(report) or kept + "\n"))
                self.assertEqual(report.read_text().count(kept), 1)
                self.assertIn("**1 of 1 right**", report.read_text())

    def test_failures_are_told_and_the_rest_is_counted(self):
        gpu_check = script()
        gpu_check.text_of = lambda command: "a GPU"
        rows = [("memcheck cuda_any", True, 1.0, "0 errors"), ("memcheck cublaslt", False, 2.0, "3 errors"),
                ("cuda_dispatch_ops_test", True, 4.0, "13 tests passed"),
                ("cuda_dispatch_sample_test", True, 1.0, "7 tests passed")]
        text = gpu_check.report_text(rows, "gpu-check", "1234567")
        for line in ("| memcheck | 1 | 2 | 3 |", "| dispatch | 2 | 2 | 5 |", "- **WRONG** memcheck cublaslt: 3 errors"):
            self.assertIn(line + "\n", text)
        self.assertNotIn("13 tests", text)
        self.assertIn("Failures: none.", gpu_check.report_text(rows[:1], "gpu-check", "1234567"))
        self.assertLessEqual(max(map(len, text.splitlines())), 120)

    def test_the_repositorys_report_has_its_marks(self):
        self.assertIn("## ", script().kept_text(SOURCE / "docs/gpu-verification.md"))

    def test_sections_are_described(self):
        gpu_check = script()
        for section in gpu_check.SECTIONS:
            self.assertIn(section, gpu_check.HOW)
            self.assertIn(section, gpu_check.RUNNERS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in "--source", "--build", "--cli":
        parser.add_argument(option)
    options, rest = parser.parse_known_args()
    SOURCE = Path(options.source)
    unittest.main(argv=[sys.argv[0], *rest])
