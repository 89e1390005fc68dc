"""What docs/python.md quotes under "Troubleshooting" is what the sources say, and programs in Python run: that of
README.md, and blocks of docs/*.md that begin with `# file: name.py`."""

import re
import subprocess
import sys
import unittest
from importlib import util
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
OTHERS = {"GLIBC_", " not found", "Failed to trace builtin operator", "NotImplementedError: culet.deep_gemm"}


class Troubleshooting(unittest.TestCase):
    @unittest.skipUnless((SOURCE / "docs/python.md").is_file(), "not in a checkout")
    def test_each_quoted_text_is_in_the_sources(self):
        page = (SOURCE / "docs/python.md").read_text()
        table = page[page.index("## Troubleshooting"):]
        files = [file for folder, pattern in (("python/culet", "**/*.py"), ("src", "**/*.cc"), ("src", "**/*.h"))
                 for file in (SOURCE / folder).glob(pattern)]
        # Sentences go over lines: without quotes and breaks between their parts.
        text = re.sub(r"\s*\"\s+f?\"", lambda found: " " if found[0][0] == " " else "",
                      "\n".join(file.read_text() for file in files))
        rows = re.findall(r"^\| (.*?) \| .* \|$", table, re.MULTILINE)[2:]
        self.assertGreater(len(rows), 20)
        for row in rows:
            for quoted in re.findall(r"`(.*?)`", row):
                for part in quoted.split("..."):
                    part = part.strip(" .")
                    if part and not any(other.strip() in quoted for other in OTHERS) and "/" not in part:
                        with self.subTest(part=part):
                            self.assertIn(part.rstrip(","), text)


class Programs(unittest.TestCase):
    def blocks(self, path):
        return re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)

    @unittest.skipUnless((SOURCE / "README.md").is_file(), "not in a checkout")
    @unittest.skipUnless(util.find_spec("numpy"), "no numpy")
    def test_programs_run(self):
        programs = [("README.md", code) for code in self.blocks(SOURCE / "README.md")]
        self.assertEqual(len(programs), 1)
        for path in sorted((SOURCE / "docs").glob("*.md")):
            programs += [(path.name, code) for code in self.blocks(path) if code.startswith("# file: ")]
        self.assertGreater(len(programs), 1)
        for name, code in programs:
            with self.subTest(page=name):
                done = subprocess.run([sys.executable, "-c", code], cwd=SOURCE, capture_output=True, text=True,
                                      check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("choice", done.stdout)
                if name == "README.md":
                    self.assertIn("523624", done.stdout)


if __name__ == "__main__":
    unittest.main()
