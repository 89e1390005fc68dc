"""The culet binary with files of models and shapes that are odd, or change under it.

usage: cli_files_check.py --source DIR --build DIR --cli BINARY [TEST ...]
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

CLI = SOURCE = None
PROMPT, ANSWER = "481516+42108=", "523624"
# What turns a terminal's text red, renames its window, begins a command in one character, and turns
# the direction of writing.
STEERING = "\x1b[31m\x1b]0;x\x07\x9b1m\u202e\x7f"


def run(*arguments):
    return subprocess.run([CLI, *map(str, arguments)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env=dict(os.environ, CULET_CACHE="off"))


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def adder(self, **keys):
        """A copy of examples/adder with more keys in its config."""
        source = pathlib.Path(SOURCE) / "examples" / "adder"
        shutil.copy(source / "model.safetensors", self.folder)
        config = json.loads((source / "config.json").read_text())
        (self.folder / "config.json").write_text(json.dumps({**config, **keys}))
        return self.folder

    def assert_plain(self, text):
        steering = [c for c in text if c in STEERING and c not in "[]0;x31m"]
        self.assertEqual(steering, [], repr(text))


class Warnings(Case):
    def test_a_config_without_oddities_says_nothing(self):
        done = run("run", "--model", self.adder(), "--prompt", PROMPT)
        self.assertEqual((done.returncode, done.stdout), (0, f"{PROMPT}{ANSWER}\n"), done.stderr)
        self.assertNotIn("effect", done.stderr)
        self.assertNotIn("config.json", done.stderr)

    def test_keys_without_effect_are_said_once(self):
        model = self.adder(no_other_key=8, layer_types=["full_attention"], no_such_key=None)
        for command in (["run"], ["run", "--json"], ["compare"]):
            done = run(*command, "--model", model, "--prompt", PROMPT)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count("unknown keys, which have no effect: no_other_key, "
                                               "no_such_key\n"), 1, done.stderr)
            self.assertEqual(done.stderr.count("layer_types"), 1, done.stderr)
        done = run("bench", "--decode", "--model", model, "--context", 8, "--prefill", 8, "--steps", 1)
        self.assertEqual(done.stderr.count("no_other_key"), 1, done.stderr)


class Steering(Case):
    def test_text_of_a_config(self):
        for keys in ({STEERING: 1}, {"hidden_act": STEERING}, {"architectures": [STEERING]},
                     {"rope_scaling": {"rope_type": STEERING, "factor": 2}},
                     {"rope_scaling": {"rope_type": "default", STEERING: 2}}):
            model = self.adder(**keys)
            done = run("run", "--model", model, "--prompt", PROMPT)
            self.assertRegex(done.stderr, r"\\(x1b|u001b)\[31m")
            self.assert_plain(done.stderr + done.stdout)
            done = run("run", "--model", model, "--prompt", PROMPT, "--json")
            json.loads(done.stdout)
            self.assert_plain(done.stderr + done.stdout)

    def test_names_of_shapes(self):
        shapes = self.folder / "shapes.txt"
        shapes.write_text(f"{STEERING}name 1 64 64\n")
        for command in (["explain"], ["bench", "--rounds", 1], ["tune"],
                        ["bench", "--rounds", 1, "--csv"]):
            for json_too in ([], ["--json"]):
                if json_too and "--csv" in command:
                    continue
                done = run(*command, "--shapes", shapes, *json_too)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("name", done.stdout)
                self.assert_plain(done.stdout + done.stderr)
                if json_too:
                    self.assertIn(f"{STEERING}name", self.texts(json.loads(done.stdout)))
        shapes.write_text(f"{STEERING}\n")
        done = run("explain", "--shapes", shapes)
        self.assertEqual(done.returncode, 1)
        self.assertIn("\\x1b[31m", done.stderr)
        self.assert_plain(done.stderr)

    def texts(self, value):
        """All texts of a document."""
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            return "".join(map(self.texts, value))
        return value if isinstance(value, str) else ""


class LostFiles(Case):
    """A checkpoint that is cut, or written anew, while its weights are read."""

    # The address sanitizer's own handler of SIGBUS would stand where culet's must.
    ENVIRONMENT = dict(os.environ, CULET_CACHE="off",
                       ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":handle_sigbus=0")

    def lose(self, *options):
        model = self.adder()
        path = model / "model.safetensors"
        process = subprocess.Popen(
            [CLI, "run", "--model", model, "--prompt", PROMPT, "--batch", "512", "--dispatch", "reference", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.ENVIRONMENT)
        maps = pathlib.Path(f"/proc/{process.pid}/maps")
        deadline = time.monotonic() + 60
        while str(path) not in maps.read_text():
            self.assertLess(time.monotonic(), deadline)
        os.truncate(path, 4096)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 1, err)
        self.assertIn(f"culet: {path} got shorter while culet read it", err)
        self.assertIn("by renaming a whole new one", err)
        return out, path

    def test_a_sentence_and_an_exit_code(self):
        self.lose()

    def test_a_document(self):
        out, path = self.lose("--json")
        error = json.loads(out)["error"]
        self.assertEqual(error["code"], "IO")
        self.assertIn(f"{path} got shorter", error["message"])

    def test_a_file_that_is_renamed_onto_it_does_no_harm(self):
        model = self.adder()
        process = subprocess.Popen(
            [CLI, "run", "--model", model, "--prompt", PROMPT, "--batch", "8", "--dispatch", "reference"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.ENVIRONMENT)
        maps = pathlib.Path(f"/proc/{process.pid}/maps")
        while "model.safetensors" not in maps.read_text():
            self.assertIsNone(process.poll())
        (model / "new").write_text("another")
        os.rename(model / "new", model / "model.safetensors")
        out, err = process.communicate(timeout=120)
        self.assertEqual((process.returncode, out), (0, f"{PROMPT}{ANSWER}\n" * 8), err)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--cli", required=True)
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    CLI, SOURCE = os.path.abspath(options.cli), options.source
    unittest.main(argv=[sys.argv[0], *options.tests], verbosity=2)
