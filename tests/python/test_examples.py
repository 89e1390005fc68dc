"""Each Python example runs; those of torch where there is torch."""

import subprocess
import sys
import unittest
from importlib import util
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class Examples(unittest.TestCase):
    def ran(self, name, *needs):
        for package in needs:
            if util.find_spec(package) is None:
                self.skipTest(f"no {package}")
        done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_llm_generate(self):
        text = self.ran("llm_generate.py")
        self.assertIn("\n481516+42108=523624\n", text)
        self.assertIn("6 tokens, ended by stop", text)

    def test_torch_linear(self):
        text = self.ran("torch_linear.py", "torch")
        self.assertIn("in_features=1024, out_features=512", text)
        self.assertIn("the same: True", text)

    def test_deepseek_v3_experts(self):
        text = self.ran("deepseek_v3_experts.py", "torch")
        self.assertRegex(text, r"relative difference 0\.0[01]\d\d\ngrouped: .* ms\nseparate: .* ms\n")

    def test_transformers_patch(self):
        self.assertIn("14 swapped, 2 left", self.ran("transformers_patch.py", "torch", "transformers"))

    def test_none_is_forgotten(self):
        tested = {"deepseek_v3_experts.py", "llm_generate.py", "torch_linear.py", "transformers_patch.py"}
        self.assertEqual({path.name for path in EXAMPLES.glob("*.py")}, tested)


if __name__ == "__main__":
    unittest.main()
