"""docs/python.md, "Troubleshooting": what it quotes is what the sources say."""

import re
import unittest
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


if __name__ == "__main__":
    unittest.main()
