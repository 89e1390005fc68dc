"""The culet binary with its streams closed or full, its cache locked or broken, its options wrong.

usage: cli_streams_check.py --source DIR --build DIR --cli BINARY [TEST ...]
"""
import argparse
import fcntl
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest

CLI = SOURCE = None
SMALL = ["--m", "1", "--n", "64", "--k", "96"]


def run(arguments, streams="", env=None, folder=None):
    """Runs `culet ARGUMENTS STREAMS`, the latter as a shell has them; pipes take what is left."""
    command = " ".join(shlex.quote(str(a)) for a in [CLI, *arguments])
    return subprocess.run(["sh", "-c", f"exec {command} {streams}"], capture_output=True, text=True,
                          env=dict(os.environ, CULET_CACHE="off", **(env or {})), cwd=folder)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = self.folder / "cache.jsonl"

    def records(self, path=None):
        done = run(["cache", "ls", path or self.cache, "--json"])
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["records"]


class Streams(Case):
    # Each ends well, and says something on stderr or not.
    COMMANDS = [["kernels", "--json"], ["explain", *SMALL, "--json"], ["devices", "--json"],
                ["bench", *SMALL, "--rounds", "2", "--json"], ["tune", *SMALL, "--json"],
                ["verify", "--quick", "--kernel", "cpu_reference", "--budget", "1", "--json"]]

    def test_stderr_closed_or_full_loses_nothing(self):
        damaged = self.folder / "damaged.jsonl"
        run(["tune", *SMALL, "--cache", damaged])
        with damaged.open("a") as file:
            file.write("no record\n")
        noisy = ["explain", *SMALL, "--cache", damaged, "--json"]
        self.assertIn("damaged", run(noisy).stderr)
        for streams in ["2>&-", "2>/dev/full"]:
            for command in [*self.COMMANDS, noisy]:
                done = run(command, streams)
                self.assertEqual(done.returncode, 0, (command, streams))
                json.loads(done.stdout)
            # What fails has its own code, not that of an abort, and its document.
            done = run(["explain", "--model", "missing", "--m", "1", "--json"], streams)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(json.loads(done.stdout)["error"]["code"], "NOT_FOUND")
            self.assertEqual(run(["tune"], streams).returncode, 2)

    def test_stdout_closed_or_full_is_an_error(self):
        for streams in ["1>&-", "1>/dev/full"]:
            for command in [*self.COMMANDS, ["kernels"], ["--help"], ["--version"],
                            ["bench", *SMALL, "--rounds", "2", "--csv"]]:
                done = run(command, streams)
                self.assertEqual(done.returncode, 1, (command, streams))
                self.assertIn("stdout could not be written", done.stderr)
            self.assertEqual(run(["tune", "--json"], streams).returncode, 2)
        self.assertEqual(run(["kernels", "--json"], ">&- 2>&-").returncode, 1)

    def test_no_cache_becomes_a_stream(self):
        for streams in ["2>&-", "0<&- 2>&-", "0<&- 1>&- 2>&-"]:
            self.cache.unlink(missing_ok=True)
            self.cache.write_text("")
            code = run(["tune", *SMALL, "--cache", self.cache], streams).returncode
            self.assertEqual(code, 1 if "1>" in streams else 0)
            # A note while the file is open would be a damaged line of it.
            with self.cache.open("a") as file:
                file.write("no record\n")
            run(["tune", "--m", "2", "--n", "64", "--k", "96", "--cache", self.cache], streams)
            self.assertEqual([r["m"] for r in self.records()], [1, 2])

    def test_what_is_closed_is_held(self):
        """So that nothing that a library opens gets the number of a standard stream."""
        shapes = self.folder / "shapes.txt"
        shapes.write_text("".join(f"p{m} {m} 64 64\n" for m in range(1, 4000)))
        command = shlex.join([CLI, "tune", "--shapes", str(shapes), "--cache", "off"])
        process = subprocess.Popen(["sh", "-c", f"exec {command} 0<&- 2>&-"], stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertTrue(process.stdout.readline())
        for number in (0, 2):
            self.assertEqual(os.readlink(f"/proc/{process.pid}/fd/{number}"), "/dev/null")

    def test_tuning_goes_on_without_stdout(self):
        run(["tune", "--m", "1,2,3", "--n", "64", "--k", "96", "--cache", self.cache],
            "1>/dev/full")
        self.assertEqual(len(self.records()), 3)


class Misuse(Case):
    def test_json_has_a_document(self):
        for command in ["tune", "tune --m 1", "explain --nonsense", "bench --m x --n 1 --k 1",
                        "", "bench --csv", "tune --m 1 --n 1 --k 1 --budget 0",
                        "explain --m 0 --n 1 --k 1", "run", "compare", "nonsense"]:
            done = run([*command.split(), "--json"])
            self.assertEqual(done.returncode, 2, command)
            error = json.loads(done.stdout)["error"]
            self.assertEqual(error["code"], "INVALID_ARGUMENT")
            self.assertIn(error["message"], done.stderr)
            plain = run(command.split())
            self.assertEqual((plain.returncode, plain.stdout), (2, ""), command)

    def test_a_bound_is_a_number_above_0(self):
        for bound in ["nan", "-1", "0", "inf", "soon"]:
            done = run(["compare", "--model", "none", "--token-ids", "1", "--bound", bound])
            self.assertEqual(done.returncode, 2, bound)
            self.assertIn(f"--bound: {bound} is not", done.stderr)


class Explain(Case):
    def test_a_twin_speaks_of_the_transposed_problem(self):
        done = run(["explain", *SMALL, "--json"])
        (problem,) = json.loads(done.stdout)["problems"]
        twins = [r for r in problem["rejected"] if r["kernel"].endswith("/t") and not r["feasible"]]
        self.assertTrue(twins)
        for rejected in twins:
            self.assertTrue(rejected["reason"].startswith("for D^T = B^T A^T: "), rejected)


class Saving(Case):
    def break_while_tuning(self, *arguments, env=None, shell="exec"):
        """Tunes until three rows are out, puts a folder in the cache's place, goes on, interrupts.
        Returns stdout and stderr of what followed."""
        shapes = self.folder / "shapes.txt"
        shapes.write_text("".join(f"p{m} {m} 256 256\n" for m in range(1, 4000)))
        command = shlex.join([CLI, "tune", "--shapes", str(shapes), "--cache", str(self.cache)])
        process = subprocess.Popen(["sh", "-c", f"{shell} {command}"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True,
                                   env=dict(os.environ, **(env or {})))
        for _ in range(3):
            self.assertTrue(process.stdout.readline())
        # Stopped: a file that it saves in between would be in the folder's place.
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        self.cache.rename(self.folder / "was.jsonl")
        self.cache.mkdir()
        process.send_signal(signal.SIGCONT)
        for _ in range(3):
            self.assertTrue(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        self.assertNotEqual(process.returncode, 0)
        return out, err

    def test_the_rescue_is_private(self):
        temporary = self.folder / "tmp"
        temporary.mkdir()
        victim = self.folder / "victim"
        victim.write_text("")
        # A name that can be guessed, put there before.
        link = f"ln -s {victim} {temporary}/culet-$$.jsonl; exec"
        out, err = self.break_while_tuning(env={"TMPDIR": str(temporary)}, shell=link)
        self.assertEqual(victim.read_text(), "")
        (rescue,) = temporary.glob("culet-*/dispatch.jsonl")
        self.assertEqual(rescue.parent.stat().st_mode & 0o777, 0o700)
        self.assertEqual(err.count(str(rescue)), 1, err)
        self.assertIn(f"saved in {rescue}", out)
        self.assertGreaterEqual(len(self.records(rescue)), 5)

    def test_what_was_not_saved_is_not_called_so(self):
        # A folder in which none can be made, whoever asks.
        out, err = self.break_while_tuning(env={"TMPDIR": "/proc/self/fd"})
        self.assertIn("nor could a copy be kept", err)
        self.assertNotIn("saved in", out)
        self.assertIn("; not saved\n", out)

    def test_a_held_lock_is_told(self):
        with open(f"{self.cache}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            process = subprocess.Popen([CLI, "tune", *SMALL, "--cache", self.cache],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            told = process.stderr.readline()
            self.assertRegex(told, r"waiting for the cache's lock, which (another process|process "
                                   rf"{os.getpid()} \(.*\)) holds; \d+ s at most")
        out, err = process.communicate()
        self.assertEqual((process.returncode, err), (0, ""))
        self.assertIn("saved in", out)

    def test_what_is_known_needs_no_place_to_save(self):
        while not self.cache.exists() or any(record["noisy"] for record in self.records()):
            run(["tune", *SMALL, "--cache", self.cache])  # a noisy record is measured again
        with open(f"{self.cache}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = run(["tune", *SMALL, "--cache", self.cache])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("measured before", done.stdout)

    def test_a_noisy_record_is_marked_and_measured_again(self):
        run(["tune", *SMALL, "--cache", self.cache])
        lines = self.cache.read_text().splitlines()
        # The record's own writer makes the checksum: FNV-1a of what is before it.
        text = lines[1][:lines[1].index(',"checksum"')]
        head, tail = text.split('"spread_us":')
        text = f'{head}"spread_us":1e9{tail[tail.index(","):]}'
        checksum = 0xcbf29ce484222325
        for byte in text.encode():
            checksum = (checksum ^ byte) * 0x100000001b3 % (1 << 64)
        self.cache.write_text(f'{lines[0]}\n{text},"checksum":"{checksum:016x}"}}\n')
        (record,) = self.records()
        self.assertTrue(record["noisy"])
        self.assertIn("measured, noisy", run(["cache", "ls", self.cache]).stdout)
        self.assertIn("noisy", run(["explain", *SMALL, "--cache", self.cache]).stdout)
        document = json.loads(run(["tune", *SMALL, "--cache", self.cache, "--json"]).stdout)
        self.assertEqual(document["problems"][0]["outcome"], "tuned")
        self.assertEqual(document["saved_in"], str(self.cache))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--cli", required=True)
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    CLI, SOURCE = os.path.abspath(options.cli), options.source
    unittest.main(argv=[sys.argv[0], *options.tests], verbosity=2)
