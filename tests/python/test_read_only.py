"""persist where the cache file cannot be written: an error before anything is measured."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

# Ends with the error's words, and how much was measured. Root may write everywhere, so it is
# another user from its first access to the cache on.
PROGRAM = """
import os
import culet
from host_arrays import Product
product = Product(2, 4, 128)
if os.geteuid() == 0:
    os.seteuid(65534)
tuning = culet.autotune(budget=20, persist=True)
try:
    with tuning:
        culet.fp8_gemm_nt(*product.operands, product.output())
except culet.Error as error:
    print(error.status, error)
print("measured", len(tuning.results))
"""

def run(program, **environment):
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | environment, text=True,
                          capture_output=True, cwd=Path(__file__).parent, check=False)
    return done.returncode, done.stdout + done.stderr


class ReadOnly(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.cache = self.folder / "cache.jsonl"

    def make_read_only(self):
        self.folder.chmod(0o555)
        self.addCleanup(self.folder.chmod, 0o755)

    def expect_refusal(self):
        code, text = run(PROGRAM, CULET_CACHE=str(self.cache))
        self.assertEqual(code, 0, text)
        self.assertIn("IO", text)
        self.assertIn(str(self.cache), text)
        self.assertIn("Permission denied", text)
        self.assertIn("measured 0", text)

    def test_a_folder_without_a_cache(self):
        self.make_read_only()
        self.expect_refusal()

    def test_a_folder_with_a_cache(self):
        self.cache.write_text('{"format":"culet-dispatch-cache","version":1}\n')
        self.make_read_only()
        self.expect_refusal()

    def test_a_folder_that_can_be_written(self):
        self.folder.chmod(0o777)
        code, text = run(PROGRAM, CULET_CACHE=str(self.cache))
        self.assertEqual((code, text), (0, "measured 1\n"))
        self.assertTrue(self.cache.is_file())


if __name__ == "__main__":
    unittest.main()
