"""A checkpoint's file that gets shorter while it is mapped: culet.LLM and culet chat say so before the process ends."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import culet

ADDER = Path(__file__).resolve().parents[2] / "examples/adder"

ANSWERS_TWICE = """
import os, sys, culet
llm = culet.LLM(sys.argv[1], device="cpu")
print(llm.generate("1+1=", max_new_tokens=4), flush=True)
os.truncate(sys.argv[1] + "/model.safetensors", 4096)
print(llm.generate("1+1=", max_new_tokens=4), flush=True)
"""


class LostFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.model = Path(folder) / "model"
        shutil.copytree(ADDER, self.model)
        self.environment = dict(os.environ, CULET_CACHE="off")

    def said(self, err):
        path = self.model / "model.safetensors"
        self.assertIn(f"culet: {path} got shorter while culet read it; replace a file by renaming", err)

    def test_llm_says_so_and_the_signal_ends_it(self):
        ended = subprocess.run([sys.executable, "-c", ANSWERS_TWICE, self.model], capture_output=True, text=True,
                               env=self.environment, timeout=120, check=False)
        self.assertEqual((ended.returncode, ended.stdout), (-signal.SIGBUS, "2\n"), ended.stderr)
        self.said(ended.stderr)

    def test_another_handler_stays(self):
        handled = "import faulthandler; faulthandler.enable()\n" + ANSWERS_TWICE
        ended = subprocess.run([sys.executable, "-c", handled, self.model], capture_output=True, text=True,
                               env=self.environment, timeout=120, check=False)
        self.assertEqual(ended.returncode, -signal.SIGBUS, ended.stderr)
        self.assertIn("Fatal Python error: Bus error", ended.stderr)
        self.assertNotIn("got shorter", ended.stderr)

    def test_chat_says_so_and_exits_with_1(self):
        chat = subprocess.Popen([sys.executable, "-m", "culet", "chat", self.model, "--raw", "--device", "cpu",
                                 "--max-new-tokens", "4"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=self.environment)
        chat.stdin.write("1+1=\n")
        chat.stdin.flush()
        self.assertEqual(chat.stdout.readline(), "2\n")
        os.truncate(self.model / "model.safetensors", 4096)
        _, err = chat.communicate("1+1=\n", timeout=120)
        self.assertEqual(chat.returncode, 1, err)
        self.said(err)

    def test_exit_codes(self):
        for code in (-1, 256):
            with self.assertRaisesRegex(culet.InvalidArgument, f"exit_code is {code}; give 0 to 255"):
                culet._library.check(culet._library.LIBRARY.culet_explain_lost_files(code))


if __name__ == "__main__":
    unittest.main()
