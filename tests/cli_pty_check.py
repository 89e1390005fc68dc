"""What the culet binary does on a terminal: the progress bar, and Ctrl-C.

usage: cli_pty_check.py --source DIR --build DIR --cli BINARY
"""
import argparse
import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

CLI = None
BAR = re.compile(rb"\r\[#*\.*\] +\d+ %  \d+/\d+ ")
COLUMNS = 48
ERASED = b"\r\x1b[K"


def read_all(fd):
    """What was written to the terminal until its last writer closed it."""
    chunks = []
    while True:
        try:
            chunk = os.read(fd, 65536)
        except OSError:  # Linux reports EIO once nobody holds the other end
            chunk = b""
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)


class OnATerminal(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = self.folder / "cache.jsonl"

    def start(self, *args, **streams):
        """Starts a command whose terminal is new; returns the process and the terminal's fd."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self.addCleanup(os.close, ours)
        streams = {"stdout": theirs, "stderr": theirs, **streams}
        # A session of its own makes the terminal its controlling one: Ctrl-C becomes SIGINT.
        process = subprocess.Popen(["setsid", "--ctty", "--wait", CLI, *map(str, args)],
                                   stdin=theirs, env=dict(os.environ, TERM="xterm"), **streams)
        os.close(theirs)
        return process, ours

    def tune(self, count, size, **streams):
        shapes = self.folder / "shapes.txt"
        shapes.write_text("".join(f"p{m} {m} {size} {size}\n" for m in range(1, count + 1)))
        return self.start("tune", "--shapes", shapes, "--cache", self.cache, **streams)

    def test_the_bar_is_drawn_and_erased(self):
        process, terminal = self.tune(3, 256)
        seen = read_all(terminal)
        self.assertEqual(process.wait(), 0, seen)
        self.assertRegex(seen, BAR)
        # After the last bar comes its removal, then the rest of the table alone.
        tail = seen[list(BAR.finditer(seen))[-1].end():]
        self.assertIn(ERASED, tail)
        after = tail[tail.rindex(ERASED) + len(ERASED):]
        self.assertIn(b"3 problems, 3 tuned", after)
        self.assertNotIn(b"\x1b", after)

    def test_the_bar_fits_the_terminal(self):
        process, terminal = self.tune(2, 256)
        seen = read_all(terminal)
        process.wait()
        for bar in seen.split(b"\r")[1:]:
            if bar.startswith(b"["):
                self.assertLess(len(bar.split(b"\x1b")[0]), COLUMNS)

    def test_a_pipe_gets_the_table_alone(self):
        process, terminal = self.tune(2, 256, stdout=subprocess.PIPE)
        on_terminal = read_all(terminal)
        out = process.stdout.read()
        process.stdout.close()
        self.assertEqual(process.wait(), 0)
        self.assertRegex(on_terminal, BAR)
        self.assertNotIn(b"\x1b", out)
        self.assertNotIn(b"\r", out)
        self.assertIn(b"2 problems, 2 tuned", out)

    def test_a_redirected_stderr_gets_no_bar(self):
        process, terminal = self.tune(2, 256, stderr=subprocess.PIPE)
        seen = read_all(terminal)
        err = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(), 0)
        self.assertEqual(err, b"")
        self.assertNotIn(b"\x1b", seen)

    def test_ctrl_c_keeps_what_is_finished(self):
        process, terminal = self.tune(4000, 256)
        seen = b""
        while not re.search(rb"(?:\n|\x1b\[K)p2 ", seen):  # the second problem's row
            seen += os.read(terminal, 65536)  # an OSError if it ends before
        os.write(terminal, b"\x03")
        seen += read_all(terminal)
        self.assertEqual(process.wait(), 130, seen[-500:])
        self.assertIn(b"interrupted; finished results are kept", seen)
        listed = subprocess.run([CLI, "cache", "ls", self.cache], capture_output=True, check=True)
        records = int(re.search(rb"(\d+) records?;", listed.stdout).group(1))
        self.assertGreaterEqual(records, 2)
        self.assertLess(records, 4000)


def main():
    global CLI
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--cli", required=True)
    arguments, tests = parser.parse_known_args()
    CLI = os.path.abspath(arguments.cli)
    unittest.main(argv=[sys.argv[0], *tests])


if __name__ == "__main__":
    main()
