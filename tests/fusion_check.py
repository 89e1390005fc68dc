"""Fusions from the command line: switched off, profiled, compared.

usage: fusion_check.py --source DIR --build DIR --cli BINARY
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import unittest

CLI, SOURCE = None, None
NAME = "add_rms_norm"


def culet(*args, code=0):
    done = subprocess.run([CLI, *map(str, args)], capture_output=True, text=True,
                          env=dict(os.environ, CULET_CACHE="off"))
    if done.returncode != code:
        raise AssertionError(f"{args}: exit code {done.returncode}, not {code}\n{done.stderr}")
    return done.stdout, done.stderr


class Fusions(unittest.TestCase):
    def setUp(self):
        self.model = SOURCE / "tests" / "goldens" / "qwen3-moe-fp8"

    def run_model(self, *args):
        return json.loads(culet("run", "--model", self.model, "--token-ids", "1,2,3", "--max-new",
                                4, "--json", *args)[0])

    def operations(self, *args):
        return {n["op"] for n in self.run_model("--profile", *args)["profile"]["decode"]}

    def test_profile_shows_what_is_fused(self):
        self.assertIn(NAME, self.operations())
        self.assertNotIn(NAME, self.operations("--no-fusion", NAME))

    def test_the_tokens_are_the_same(self):
        tokens = [self.run_model(*args)["sequences"][0]["tokens"]
                  for args in ([], ["--no-fusion", "all"])]
        self.assertEqual(*tokens)

    def test_fusions_are_compared_as_a_whole(self):
        for args, fused in ([], True), (["--no-fusion", "all"], False):
            document = json.loads(culet("compare", "--model", self.model, "--token-ids", "1,2,3",
                                        "--json", *args)[0])
            self.assertEqual(document["beyond"], 0)
            self.assertEqual(NAME in {n["op"] for n in document["worst"]}, fused)

    def test_recordings_can_be_left_out(self):
        off = "recording is switched off"
        self.assertNotEqual(self.run_model()["decode_not_recorded"], off)
        document = self.run_model("--no-record")
        self.assertEqual(document["decode_not_recorded"], off)
        self.assertFalse(document["decode_recorded"])

    def test_unknown_names_are_refused(self):
        _, err = culet("run", "--model", self.model, "--token-ids", "1", "--no-fusion", "pear",
                       code=1)
        self.assertIn("no fusion 'pear'", err)
        self.assertIn(NAME, err)
        culet("run", "--model", self.model, "--token-ids", "1", "--dispatch", "reference",
              "--no-fusion", NAME, code=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in "--source", "--build", "--cli":
        parser.add_argument(option, required=True)
    options, rest = parser.parse_known_args()
    CLI, SOURCE = options.cli, pathlib.Path(options.source)
    unittest.main(argv=[sys.argv[0], *rest])
