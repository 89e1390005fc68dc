"""`culet chat` at its terminal, pipes and files: interrupts, exit statuses, encodings, streams that are full or
closed. None ends with a traceback."""

import os
import pty
import select
import signal
import subprocess
import sys
import unittest

import culet
from test_llm import ADDER, ANSWER, PROMPT

# Models in the place of culet.LLM: one that never ends, and one that repeats a line.
FAKES = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import culet, culet._llm

class Endless:
    def __init__(self, *_, **__): pass
    def chat_prompt(self, messages): return ""
    def sampling_defaults(self): return {}
    def stream(self, prompt, **_):
        said = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        if said == "history":
            yield repr([message["content"][:3] for message in prompt])
        elif said == "snow":
            yield "\\u2603"
        elif said == "go on":
            while True:
                yield "abc "
        else:
            yield ascii(said)

culet._llm.LLM = Endless
from culet._chat import main
sys.exit(main(["folder", *sys.argv[1:]]))
"""
FAKE = (sys.executable, "-c", FAKES)
RAW = (sys.executable, "-m", "culet", "chat", "--raw", "--device", "cpu", str(ADDER))


def run(command, lines, **options):
    data = lines if isinstance(lines, bytes) else lines.encode()
    environment = os.environ | options.pop("environment", {})
    return subprocess.run(command, input=data, capture_output=True, check=False, env=environment, timeout=60, **options)


class Pipes(unittest.TestCase):
    def start(self, *command):
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, bufsize=1)
        for close in (child.stderr.close, child.stdout.close, child.wait, child.kill):
            self.addCleanup(close)
        return child

    def test_lines(self):
        done = run(RAW, f"{PROMPT}\n\n1+2=\n/new\n/quit\nignored")
        self.assertEqual((done.returncode, done.stdout.decode()), (0, f"{ANSWER}\n3\n"), done.stderr)

    def test_a_prompt_that_fails(self):
        """Those behind it are answered, and the exit status tells."""
        done = run(RAW, "9" * 80 + "\n1+2=\n")
        self.assertEqual((done.returncode, done.stdout), (1, b"3\n"), done.stderr)
        self.assertIn(b"prompt has 80 tokens", done.stderr)

    def test_no_template(self):
        done = run((sys.executable, "-m", "culet", "chat", str(ADDER)), "")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"or give --raw", done.stderr)

    def test_an_interrupt_ends_it(self):
        child = self.start(*FAKE)
        child.stdin.write("go on\nhistory\n")
        child.stdin.flush()
        self.assertEqual(child.stdout.read(8), "abc abc ")
        child.send_signal(signal.SIGINT)
        self.assertTrue(child.stdout.read().endswith(" [stopped]\n"))  # and no answer to the next line
        self.assertEqual(child.wait(), 130)
        self.assertEqual(child.stderr.read(), "")

    def test_an_interrupt_between_lines_ends_it(self):
        child = self.start(*FAKE)
        child.stdin.write("x\n")
        child.stdin.flush()
        self.assertEqual(child.stdout.readline(), "'x'\n")
        child.send_signal(signal.SIGINT)
        self.assertEqual((child.wait(), child.stdout.read(), child.stderr.read()), (130, "", ""))

    def test_a_reader_that_leaves(self):
        child = self.start(*FAKE)
        child.stdin.write("go on\n")
        child.stdin.flush()
        self.assertEqual(child.stdout.read(4), "abc ")
        child.stdout.close()
        child.stdin.close()
        self.assertEqual((child.wait(), child.stderr.read()), (1, ""))

    def test_a_byte_order_mark_is_no_text(self):
        for encoding in ("utf-8", "latin-1", "ascii"):
            done = run(FAKE, "\ufeffé\né\n", environment={"PYTHONIOENCODING": encoding})
            self.assertEqual((done.returncode, done.stdout), (0, b"'\\xe9'\n'\\xe9'\n"), done.stderr)

    def test_encodings_of_the_input(self):
        for encoding, data, wanted in (("latin-1", b"\xe9", b"'\\xe9'\n"), ("ascii", "é".encode(), b"'\\xe9'\n"),
                                       ("utf-8", "é".encode(), b"'\\xe9'\n")):
            done = run(FAKE, data, environment={"PYTHONIOENCODING": encoding})
            self.assertEqual((done.returncode, done.stdout), (0, wanted), done.stderr)
        for encoding in ("utf-8", "ascii"):
            done = run(FAKE, b"\xe9\nx\n", environment={"PYTHONIOENCODING": encoding})
            self.assertEqual((done.returncode, done.stdout), (1, b"'x'\n"))
            self.assertRegex(done.stderr, rb"culet: a line is no text.*convert it to UTF-8\n$")

    def test_encodings_of_the_output(self):
        for encoding, wanted in (("ascii", b"\\u2603\n"), ("latin-1", b"\\u2603\n"), ("utf-8", "\u2603\n".encode())):
            done = run(FAKE, "snow\n", environment={"PYTHONIOENCODING": encoding})
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, wanted, b""))

    @unittest.skipUnless(os.path.exists("/bin/sh"), "needs a shell")
    def test_full_and_closed_streams(self):
        def shell(redirection, lines="x\n"):
            command = " ".join(f"'{part}'" for part in FAKE[:1]) + ' -c "$CODE" ' + redirection
            return run(("/bin/sh", "-c", command), lines, environment={"CODE": FAKES})

        for redirection, status, words in (
                (">/dev/full", 1, b"culet: standard output cannot be written: .*No space left"),
                (">&-", 1, b"culet: standard output is closed"),
                ("<&-", 1, b"culet: standard input is closed"),
                ("2>/dev/full", 0, b""), ("2>&-", 0, b""), (">/dev/full 2>/dev/full", 1, b""),
                (">&- 2>&-", 1, b""), ("--help >/dev/full", 0, b"")):
            with self.subTest(redirection=redirection):
                done = shell(redirection)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertRegex(done.stderr, b"^" + words)
                self.assertNotIn(b"Traceback", done.stderr + done.stdout)
                self.assertNotIn(b"Exception ignored", done.stderr)
        done = shell("2>&-", b"\xff\n")  # what is complained of goes nowhere, least of all among the answers
        self.assertEqual((done.returncode, done.stdout), (1, b""))


class Terminal(unittest.TestCase):
    def test_an_interrupt_ends_the_answer_alone(self):
        child, terminal = pty.fork()
        if child == 0:
            os.execve(FAKE[0], FAKE, os.environ | {"TERM": "dumb"})
        self.addCleanup(os.close, terminal)
        self.said = b""

        def until(words):
            while words not in self.said:
                self.assertTrue(select.select([terminal], [], [], 30)[0], self.said)
                self.said += os.read(terminal, 1000)
            self.said = self.said.partition(words)[2]

        until(b"> ")
        os.write(terminal, b"go on\n")
        until(b"abc abc ")
        os.kill(child, signal.SIGINT)
        until(b" [stopped]")
        until(b"> ")
        while b"Ctrl-D" not in self.said:  # between answers it tells how to end, once it waits for a line
            os.kill(child, signal.SIGINT)
            # A second interrupt, too early, would take the line that comes next.
            if select.select([terminal], [], [], 5)[0]:
                self.said += os.read(terminal, 1000)
        until(b"> ")
        os.write(terminal, b"history\n")
        until(b"['go ', 'abc', 'his']")
        until(b"> ")
        os.write(terminal, b"/quit\n")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


if __name__ == "__main__":
    unittest.main()
