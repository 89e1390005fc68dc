"""`culet doctor` and culet.doctor()."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import culet


def run(*arguments, **environment):
    done = subprocess.run([sys.executable, "-m", "culet", "doctor", *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, "CULET_SITE_CACHE": "off", **environment})
    return done.returncode, done.stdout, done.stderr


class Doctor(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_this_machine(self):
        found = culet.doctor(self.folder / "cache.jsonl")
        self.assertTrue(found.ok, found)
        self.assertEqual(found["version"], culet.__version__)
        self.assertEqual(found["devices"][0]["device"], "cpu")
        self.assertIsNone(found["devices"][0]["error"])
        self.assertEqual([library["name"] for library in found["libraries"]], ["cuBLASLt", "oneDNN", "NCCL"])
        text = str(found)
        for words in ("Driver and GPUs", "Devices", "Libraries", "Caches", "Python", "Nothing is broken."):
            self.assertIn(words, text)
        self.assertEqual(os.listdir(self.folder), [])  # looking makes nothing

    def test_the_command(self):
        code, out, _ = run(CULET_CACHE="off")
        self.assertEqual(code, 0)
        self.assertIn("Nothing is broken.", out)
        code, out, _ = run("--json", CULET_CACHE="off")
        self.assertEqual(code, 0)
        self.assertTrue(json.loads(out)["ok"])

    def test_what_is_broken_is_exit_code_1(self):
        bad = self.folder / "cache.jsonl"
        bad.write_text("a diary\n")
        for arguments, environment in (((), {"CULET_CACHE": str(bad)}), (("--cache", str(bad)), {}),
                                       ((), {"CULET_THREADS": "many"}), ((), {"CULET_SIMD": "mmx"})):
            with self.subTest(arguments=arguments, environment=environment):
                code, out, _ = run(*arguments, **{"CULET_CACHE": "off", **environment})
                self.assertEqual(code, 1)
                self.assertIn("broken", out)
                self.assertIn("->", out)  # and what to do
        self.assertEqual(bad.read_text(), "a diary\n")

    def test_findings_are_sorted_and_have_a_way_out(self):
        found = culet.doctor(self.folder / "none.jsonl")
        order = [("broken", "slow", "note").index(finding["severity"]) for finding in found["findings"]]
        self.assertEqual(order, sorted(order))
        self.assertTrue(any("by prediction" in finding["what"] and "culet tune" in finding["remedy"]
                            for finding in found["findings"]))

    def test_a_path_that_is_none(self):
        with self.assertRaises(culet.InvalidArgument):
            culet.doctor("a\0b")


if __name__ == "__main__":
    unittest.main()
