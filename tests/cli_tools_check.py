#!/usr/bin/env python3
"""The commands around measured choices, as a user drives them: doctor, cache merge, diff, verify and gc, the record of
untuned problems, layers of caches, messages, and a report of what the commands really print.

usage: cli_tools_check.py --source DIR --build DIR --cli BINARY [TEST ...]
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from exports_check import package_environment

CLI = SOURCE = BUILD = None
SIZES = ["--n", "64", "--k", "96", "--format", "f32"]


def culet(*args, cache="off", code=0, **environment):
    full = {**os.environ, "CULET_CACHE": str(cache), "CULET_SITE_CACHE": "off", "CULET_TUNED": "off", **environment}
    done = subprocess.run([CLI, *map(str, args)], env=full, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          check=False)
    assert done.returncode == code, f"{args}: {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


def culet_json(*args, **kwargs):
    return json.loads(culet(*args, "--json", **kwargs)[0])


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tuned(self, name, *m):
        """A cache file with a measured choice for each m."""
        path = self.folder / name
        culet("tune", "--m", ",".join(map(str, m)), *SIZES, "--budget", 5, cache=path)
        return path


class CacheTools(Case):
    def test_merge(self):
        a, b, into = self.tuned("a.jsonl", 1, 2), self.tuned("b.jsonl", 2, 3), self.folder / "new/all.jsonl"
        out, _ = culet("cache", "merge", a, b, "--output", into)
        self.assertIn("3 records; 3 added", out)
        self.assertEqual(culet_json("cache", "merge", a, b, "--output", into),
                         {"file": str(into), "records": 3, "added": 0, "replaced": 0, "kept": 4, "damaged": 0})
        _, err = culet("cache", "merge", self.folder / "none", "--output", into, code=1)
        self.assertIn("there is no cache", err)
        _, err = culet("cache", "merge", a, code=2)
        self.assertIn("the cache is off", err)
        culet("cache", "merge", a, cache=self.folder / "mine.jsonl")  # the one that is used, by default
        self.assertEqual((self.folder / "mine.jsonl").read_text(), a.read_text())

    def test_diff(self):
        a, b = self.tuned("a.jsonl", 1, 2), self.tuned("b.jsonl", 2, 3)
        found = culet_json("cache", "diff", a, b, "--times", code=1)["differences"]
        kinds = {(d["first"] or d["second"])["m"]: d["difference"] for d in found}
        self.assertEqual((kinds[1], kinds[3]), ("only in the first", "only in the second"))
        out, _ = culet("cache", "diff", a, a)
        self.assertEqual(len(out.splitlines()), 1)

    def test_verify(self):
        path = self.tuned("a.jsonl", 1, 2)
        out, _ = culet("cache", "verify", path, "--launch")
        self.assertIn("2 records, 2 usable; 2 launched, 0 wrong", out)
        with path.open("a") as file:
            file.write("rubbish\n")
        out, _ = culet("cache", "verify", path, code=1)
        self.assertIn("line 4: damaged: the checksum", out)
        records = culet_json("cache", "verify", path, code=1)["records"]
        self.assertEqual([r["usability"] for r in records], ["usable", "usable", "damaged"])

    def test_gc(self):
        path = self.tuned("a.jsonl", 1, 2)
        before = path.read_text()
        path.write_text(before + "rubbish\n")
        out, _ = culet("cache", "gc", path, "--dry-run")
        self.assertIn("1 would be removed, 2 kept", out)
        self.assertIn("rubbish", path.read_text())
        culet("cache", "gc", path)
        self.assertEqual(path.read_text(), before)
        self.assertEqual(culet_json("cache", "gc", path, "--threads", 1)["removed"], [])
        kept = culet_json("cache", "gc", path, "--threads", 1, "--other-devices")
        self.assertEqual((kept["kept"], len(kept["removed"])), (2, 0) if os.cpu_count() == 1 else (0, 2))


class Record(Case):
    def test_what_ran_untuned_is_tuned_later(self):
        record, cache = self.folder / "untuned.jsonl", self.folder / "cache.jsonl"
        model = SOURCE / "examples/adder"
        run = ["run", "--model", model, "--prompt", "12+34="]
        _, err = culet(*run, cache=cache, CULET_RECORD=str(record))
        self.assertRegex(err, r"^culet: a step of one token: 0 of [1-9]\d* products have a measured kernel, the "
                         "others a predicted one")
        problems = culet_json("tune", "--from", record, "--budget", 20, cache=cache)["problems"]
        self.assertTrue(all(problem["outcome"] == "tuned" for problem in problems), problems)
        _, err = culet(*run, cache=cache)
        self.assertRegex(err, r"^culet: a step of one token: (\d+) of \1 products have a measured kernel\n")
        self.assertEqual(culet_json(*run, cache=cache)["coverage"],
                         {"products": len(problems), "measured": len(problems)})
        out, _ = culet("tune", "--from", record, cache=cache)
        self.assertIn(f"{len(problems)} measured before", out)

    def test_misuse(self):
        record = self.folder / "none.jsonl"
        self.assertIn("there is no file", culet("tune", "--from", record, code=1)[1])
        self.assertIn("--from names the problems", culet("tune", "--from", record, "--m", 1, *SIZES, code=2)[1])
        cache = self.tuned("a.jsonl", 1)
        self.assertIn("not that of a file of untuned problems", culet("tune", "--from", cache, code=1)[1])


class Layers(Case):
    def test_a_shipped_table_serves_until_the_user_measured(self):
        name = culet_json("devices")["devices"][0]["class"].replace("/", "_") + ".jsonl"
        self.tuned(name, 4)
        mine, shipped = self.folder / "mine.jsonl", {"CULET_TUNED": str(self.folder)}
        explain = ["explain", "--m", 4, *SIZES]
        self.assertIn("(predicted", culet(*explain, cache=mine)[0])
        self.assertIn("(measured, shipped with culet)", culet(*explain, cache=mine, **shipped)[0])
        self.assertIn("(predicted", culet(*explain, cache="off", **shipped)[0])  # off is off
        tune = ["tune", "--m", 4, *SIZES, "--budget", 5]
        self.assertIn("measured before (shipped)", culet(*tune, cache=mine, **shipped)[0])
        self.assertFalse(mine.exists())
        culet(*tune, "--force", cache=mine, **shipped)
        self.assertIn("(measured)", culet(*explain, cache=mine, **shipped)[0])

    def test_a_site_file(self):
        site = self.tuned("site.jsonl", 4)
        out, _ = culet("explain", "--m", 4, *SIZES, cache=self.folder / "mine.jsonl", CULET_SITE_CACHE=str(site))
        self.assertIn("(measured, the site's)", out)
        site.write_text("a diary\n")
        _, err = culet("tune", "--m", 4, *SIZES, "--budget", 5, cache=self.folder / "mine.jsonl",
                       CULET_SITE_CACHE=str(site))
        self.assertIn("the site cache is not used", err)


class Doctor(Case):
    def test_sound(self):
        out, _ = culet("doctor")
        self.assertIn("a small product is right", out)
        self.assertTrue(out.endswith("Nothing is broken.\n"))
        self.assertTrue(culet_json("doctor")["ok"])

    def test_broken(self):
        bad = self.folder / "cache.jsonl"
        bad.write_text("a diary\n")
        out, _ = culet("doctor", cache=bad, code=1)
        self.assertIn("broken  user cache", out)
        self.assertFalse(culet_json("doctor", "--cache", bad, code=1)["ok"])
        self.assertIn("CULET_THREADS", culet("doctor", code=1, CULET_THREADS="many")[0])


class Messages(Case):
    def test_levels(self):
        explain = ["tune", "--m", 1, *SIZES, "--budget", 5]
        self.assertEqual(culet(*explain)[1], "")
        self.assertIn("culet: tuned m=1", culet(*explain, CULET_LOG="info")[1])
        self.assertIn("it can be debug, info", culet(*explain, CULET_LOG="loud")[1])

    def test_commands_of_the_package_are_named(self):
        for command in ("chat", "report"):
            self.assertIn("pip install culet", culet(command, "x", code=2)[1])


class Report(Case):
    def test_of_what_the_commands_print(self):
        files = []
        for name, arguments in {
                "bench": ["bench", "--m", "1,8", *SIZES, "--kernels", "all", "--budget", 10],
                "regret": ["bench", "--m", "1,8", *SIZES, "--regret", "--budget", 10],
                "tune": ["tune", "--m", "1,8", *SIZES, "--budget", 10],
                "verify": ["verify", "--quick", "--kernel", "cpu_simd/skinny/m4", "--budget", 5],
                "decode": ["bench", "--decode", "--model", SOURCE / "examples/adder", "--context", 16, "--prefill", 8],
                "doctor": ["doctor"]}.items():
            path = self.folder / f"{name}.json"
            path.write_text(culet(*arguments, "--json")[0])
            files.append(path)
        out = self.folder / "report.html"
        subprocess.run([sys.executable, "-m", "culet", "report", *files, "-o", out], check=True,
                       env=package_environment(SOURCE, BUILD), stdout=subprocess.DEVNULL)
        text = out.read_text()
        for plot in ("roofline", "heat", "others", "regret", "waterfall", "accuracy", "findings", "machine"):
            self.assertIn(f'data-plot="{plot}"', text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cli", required=True)
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    CLI, SOURCE, BUILD = options.cli, options.source.resolve(), options.build.resolve()
    unittest.main(argv=[sys.argv[0], *options.tests])
