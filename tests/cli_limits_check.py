"""The culet binary with files that have no end, no reader or no room, with a budget or a signal while it
is busy, with models that no memory holds, and with numbers that are none.

usage: cli_limits_check.py --source DIR --build DIR --cli BINARY [TEST ...]
"""
import argparse
import json
import os
import pathlib
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

CLI = SOURCE = None
SMALL = ["--n", "64", "--k", "96"]
PROMPT, ANSWER = "481516+42108=", "523624"
SOON_S = 60  # whatever hung before now ends at once; a busy machine may take its time


def start(*arguments, env=None, **kwargs):
    return subprocess.Popen([CLI, *map(str, arguments)], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE,
                            env=dict(os.environ, CULET_CACHE="off", **(env or {})),
                            **{"stdin": subprocess.DEVNULL, **kwargs})


def culet(*arguments, code=0, **kwargs):
    """Runs a command; returns stdout and stderr. The exit code must be `code`, and soon."""
    with start(*arguments, **kwargs) as process:
        try:
            out, err = process.communicate(timeout=SOON_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == code, f"{arguments}: {process.returncode}\n{out}\n{err}"
    return out, err


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.adder = SOURCE / "examples" / "adder"
        self.run_adder = ["run", "--model", self.adder]

    def pipe(self, name="pipe"):
        path = self.folder / name
        os.mkfifo(path)
        return path

    def write_config(self, **keys):
        """A small Qwen3's config.json, but for `keys`."""
        config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32,
                  "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
                  "num_hidden_layers": 2, "num_key_value_heads": 2, "torch_dtype": "bfloat16",
                  "vocab_size": 300, **keys}
        (self.folder / "config.json").write_text(json.dumps(config))
        return self.folder

    def refused(self, *arguments, code=1, **kwargs):
        out, err = culet(*arguments, code=code, **kwargs)
        self.assertEqual(out, "")
        return err


class Inputs(Case):
    def test_devices_without_an_end_are_refused(self):
        for device in ("/dev/zero", "/dev/urandom"):
            for option in ("--prompt-file", "--token-ids-file"):
                self.assertIn(f"{device} cannot be read: it is a device without an end; name a file",
                              self.refused(*self.run_adder, option, device))

    def test_a_folder_and_nothing_are_refused(self):
        self.assertIn("Is a directory", self.refused(*self.run_adder, "--prompt-file", self.folder))
        empty = self.folder / "empty"
        empty.write_text("\n\r\n")
        self.assertIn("holds no prompt", self.refused(*self.run_adder, "--prompt-file", empty))

    def test_pipes_are_read(self):
        pipe = self.pipe()
        writer = threading.Thread(target=lambda: pipe.write_text(f"{PROMPT}\r\n\n1+1=\n"))
        writer.start()
        out, _ = culet(*self.run_adder, "--prompt-file", pipe)
        writer.join()
        self.assertEqual(out, f"{PROMPT}{ANSWER}\n1+1=2\n")

    def test_a_pipe_without_an_end_is_read_to_a_bound(self):
        with subprocess.Popen(["yes", "1+1="], stdout=subprocess.PIPE) as endless:
            error = self.refused(*self.run_adder, "--prompt-file", "/dev/stdin",
                                 stdin=endless.stdout)
            endless.stdout.close()
        self.assertIn("/dev/stdin cannot be read: it is longer than 67108864 bytes", error)

    def test_other_files_are_regular(self):
        pipe = self.pipe()
        for path in (pipe, "/dev/zero"):
            self.assertIn("not a regular file",
                          self.refused("explain", "--shapes", path, "--m", 1))
            self.assertIn("not a regular file",
                          self.refused("explain", "--model", path, "--m", 1))
            self.assertIn("not a regular file", self.refused("cache", "ls", path))
            self.assertIn("not a regular file",
                          culet("explain", "--m", 1, *SMALL, "--cache", path)[1])
            self.assertIn("not a regular file",
                          self.refused("tune", "--m", 1, *SMALL, "--cache", path))
        for name in ("model.safetensors", "model.safetensors.index.json"):
            folder = self.folder / name.replace(".", "-")
            folder.mkdir()
            (folder / "config.json").write_bytes((self.adder / "config.json").read_bytes())
            os.mkfifo(folder / name)
            self.assertIn("not a regular file", self.refused("run", "--model", folder, "--prompt", 1))

    def test_a_cache_whose_lock_is_a_pipe(self):
        cache = self.folder / "cache.jsonl"
        self.pipe("cache.jsonl.lock")
        culet("tune", "--m", 1, *SMALL, "--cache", cache)
        self.assertTrue(cache.exists())

    def test_a_library_is_a_regular_file(self):
        pipe = self.pipe()
        out, _ = culet("explain", "--m", 1, *SMALL, env={"CULET_ONEDNN": str(pipe)})
        self.assertIn(f"oneDNN is not there ('{pipe}' is not a regular file)", out)


class Outputs(Case):
    def test_a_dump_into_a_pipe_that_nobody_reads(self):
        self.assertIn("is a pipe that nobody reads; start its reader first, or name a file",
                      self.refused(*self.run_adder, "--prompt", PROMPT, "--dump", self.pipe()))

    def test_a_dump_into_a_pipe(self):
        pipe = self.pipe()
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(reader, True)
        got = []

        def read():
            while not (part := os.read(reader, 1 << 16)):
                time.sleep(0.01)  # no writer yet
            while part:
                got.append(part)
                part = os.read(reader, 1 << 16)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        culet(*self.run_adder, "--prompt", PROMPT, "--dump", pipe)
        thread.join()
        os.close(reader)
        culet(*self.run_adder, "--prompt", PROMPT, "--dump", self.folder / "file")
        self.assertEqual(b"".join(got), (self.folder / "file").read_bytes())

    def test_a_dump_whose_reader_does_nothing_ends_by_a_signal(self):
        pipe = self.pipe()
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        with start(*self.run_adder, "--prompt", PROMPT * 4, "--dump", pipe) as process:
            while not poll(reader):
                time.sleep(0.01)
            time.sleep(0.2)  # now the pipe is full
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SOON_S)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)

    def test_a_limit_of_file_sizes_is_an_error(self):
        cache = self.folder / "cache.jsonl"
        culet("tune", "--m", 1, *SMALL, "--cache", cache)
        before = cache.read_text()
        files = sorted(path.name for path in self.folder.iterdir())

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10,) * 2)

        out, err = culet("tune", "--m", 2, *SMALL, "--cache", cache, code=1, preexec_fn=limit)
        self.assertIn("problem", out)
        self.assertIn("File too large", err)
        self.assertEqual(cache.read_text(), before)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), files)
        dump = self.folder / "dump"
        self.assertIn("File too large", culet(*self.run_adder, "--prompt", PROMPT, "--dump", dump,
                                              code=1, preexec_fn=limit)[1])
        self.assertFalse(dump.exists())
        # stdout, too, where it is a file.
        with open(self.folder / "out", "w", encoding="utf-8") as out:
            process = subprocess.run([CLI, "kernels"], stdout=out, stderr=subprocess.PIPE, text=True,
                                     preexec_fn=lambda: resource.setrlimit(
                                         resource.RLIMIT_FSIZE, (10, 10)), check=False)
        self.assertEqual(process.returncode, 1)
        self.assertIn("stdout could not be written", process.stderr)


def poll(descriptor):
    """Whether there is something to read."""
    return bool(select.select([descriptor], [], [], 0)[0])


def notes_interrupts(pid):
    """Whether the process has a handler for SIGINT."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    caught, = [line for line in status.splitlines() if line.startswith("SigCgt:")]
    return int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1 == 1


class Decode(Case):
    BIG = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 12,
           "vocab_size": 128000}  # 2 GB, made in seconds

    def bench(self, *arguments):
        return ["bench", "--decode", "--model", self.folder, "--format", "bf16", *arguments]

    def test_a_budget_ends_the_making_of_weights(self):
        self.write_config(**self.BIG)
        began = time.monotonic()
        document = json.loads(culet(*self.bench("--budget", 0.1, "--json"))[0])
        self.assertLess(time.monotonic() - began, 5)
        self.assertEqual((document["complete"], document["decode_tokens_per_s"]), (False, None))
        err = culet(*self.bench("--budget", 0.1))[1]
        self.assertIn("the budget of 0.1 s ended; what was not measured is left out", err)

    def test_a_budget_that_is_enough(self):
        self.write_config()
        document = json.loads(culet(*self.bench("--budget", 600, "--steps", 5, "--prefill", 8,
                                                "--context", 16, "--json"))[0])
        self.assertTrue(document["complete"])
        self.assertGreater(document["decode_tokens_per_s"], 0)

    def test_a_budget_ends_the_steps(self):
        self.write_config()
        began = time.monotonic()
        document = json.loads(culet(*self.bench("--budget", 1, "--steps", 100000, "--json"))[0])
        self.assertLess(time.monotonic() - began, 20)
        self.assertFalse(document["complete"])
        self.assertGreater(document["weight_bytes"], 0)

    def test_a_signal_ends_the_making_of_weights(self):
        self.write_config(**self.BIG)
        with start(*self.bench()) as process:
            # Once it makes weights, some hundred MB, as a sanitizer may hold before it notes signals.
            while resident(process.pid) < 100 << 20 or not notes_interrupts(process.pid):
                self.assertIsNone(process.poll())
                time.sleep(0.005)
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=SOON_S)
        self.assertLess(time.monotonic() - began, 5)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertIn("interrupted", err)

    def test_what_no_memory_holds_is_not_begun(self):
        layers, hidden, inner, vocab, queries, keys = 10000, 16384, 65536, 300, 4 * 32, 2 * 32
        self.write_config(num_hidden_layers=layers, hidden_size=hidden, intermediate_size=inner)
        layer = hidden * (2 * queries + 2 * keys + 3 * inner) + 2 * hidden + 2 * 32
        weights = 2 * (layers * layer + 2 * vocab * hidden + hidden)
        began = time.monotonic()
        err = self.refused(*self.bench())
        self.assertLess(time.monotonic() - began, 20)
        self.assertRegex(err, rf"random weights needs {weights} bytes of the device's memory for its "
                              r"weights and \d+ beside them; \d+ are free; take a smaller model")


def resident(pid):
    try:
        pages = pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (FileNotFoundError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Numbers(Case):
    def sizes(self, m):
        document = json.loads(culet("explain", "--m", m, *SMALL, "--json")[0])
        return [problem["m"] for problem in document["problems"]]

    def test_numbers_are_decimal(self):
        self.assertEqual(self.sizes("010"), [10])
        self.assertEqual(self.sizes("1,08,+16"), [1, 8, 16])
        document = json.loads(culet("explain", "--m", 1, "--n", "064", "--k", "0096", "--json")[0])
        self.assertEqual([(p["n"], p["k"]) for p in document["problems"]], [(64, 96)])

    def test_what_is_no_number_is_named(self):
        for m, word in ((",", ""), ("1,", ""), (",1", ""), ("1,,2", ""), ("0x10", "0x10"),
                        ("1e2", "1e2"), ("1 2", "1 2"), ("1,x", "x"), ("2147483648", "2147483648")):
            error = self.refused("explain", f"--m={m}", *SMALL, code=2)
            self.assertIn(f"--m: '{word}' is not a whole number from ", error, m)
        # What follows a list belongs to the next option.
        self.assertIn("--m: '' is not", self.refused("explain", "--m", ",", *SMALL, code=2))
        self.assertIn("--n: '64x' is not",
                      self.refused("explain", "--m", 1, "--n", "64x", "--k", 96, code=2))
        self.assertIn("--threads: '0' is not a whole number from 1 to 1024",
                      self.refused("devices", "--threads", 0, code=2))
        self.assertIn("--temperature: 'warm' is not a number",
                      self.refused(*self.run_adder, "--prompt", 1, "--temperature", "warm", code=2))

    def test_seeds_have_64_bits(self):
        draw = [*self.run_adder, "--prompt", PROMPT, "--temperature", 1, "--seed"]
        for seed in (0, 2**63, 2**64 - 1):
            self.assertIn(f"seed {seed}\n", culet(*draw, seed)[1])
        for seed in (2**64, 10**30, "1.5", "0x1"):
            self.assertIn(f"--seed: '{seed}' is not a whole number from 0 to {2**64 - 1}",
                          self.refused(*draw, seed, code=2))


def main():
    global CLI, SOURCE
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True, type=pathlib.Path)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--cli", required=True)
    arguments, tests = parser.parse_known_args()
    CLI, SOURCE = os.path.abspath(arguments.cli), arguments.source.resolve()
    unittest.main(argv=[sys.argv[0], *tests])


if __name__ == "__main__":
    main()
