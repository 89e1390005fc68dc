"""What mypy says of programs that call culet as its documentation has it: nothing of right ones."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]

RIGHT = """
from typing import Any, Dict, List, Tuple
import numpy as np
import culet

llm = culet.LLM("folder", max_context=64, cache_type="float8_e4m3fn")
text: str = llm.generate("a", max_new_tokens=8)
text = llm.generate([1, 2, 3])
text = llm.generate([{"role": "user", "content": "x"}], temperature=0.7, stop=["\\n"])
text = llm.generate(np.array([1, 2]))
texts: List[str] = llm.generate(["a", "b"])
texts = llm.generate([[1, 2], [3]])
texts = llm.generate([np.array([1, 2]), np.array([3])])
texts = llm.generate([np.array([1]), "x", [{"role": "user", "content": "y"}]])
texts = llm.generate(np.ones((2, 3), dtype=np.int64))
for piece in llm.stream(np.array([1]), stop="x", seed=1):
    text = piece
tokens: List[int] = llm.tokens(np.array([1]))
x = np.ones((2, 4), dtype=np.float32)
out = culet.gemm(x, x, a_scale=2.0, bias=None)
with culet.autotune(budget=30, persist=True) as tuner:
    results: List[culet.Tuned] = tuner.results
report: Dict[str, int] = culet.load_cache("x")
pair: Tuple[Any, Any] = culet.quantize_fp8(x, "row")
"""
WRONG = RIGHT + """
llm.generate(3)
texts = llm.generate("a")
"""


class Types(unittest.TestCase):
    def said(self, code):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "program.py")
            path.write_text(code, encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--cache-dir", str(Path(folder, "cache")), "--follow-imports=silent",
                 "--ignore-missing-imports", str(path)],
                capture_output=True, text=True, check=False, env=os.environ | {"MYPYPATH": str(SOURCE / "python")})
            if "No module named mypy" in done.stderr:
                self.skipTest("no mypy")
            return [line for line in done.stdout.splitlines() if ": error:" in line]

    def test_documented_calls(self):
        try:
            import numpy  # noqa: F401
        except ImportError as error:
            self.skipTest(f"no numpy: {error}")
        self.assertEqual(self.said(RIGHT), [])
        self.assertEqual(len(self.said(WRONG)), 2)


if __name__ == "__main__":
    unittest.main()
