"""Drives the culet binary as a user and as a script would.

usage: cli_check.py --source DIR --build DIR --cli BINARY [TEST ...]
"""
import argparse
import array
import csv
import io
import json
import os
import pathlib
import re
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

CLI = SOURCE = None
SMALL = ["--n", "64", "--k", "96"]

def culet(*args, cache="off", code=0, env=None):
    """Runs a command; returns stdout and stderr. The exit code must be `code`."""
    full = dict(os.environ, CULET_CACHE=str(cache), **(env or {}))
    done = subprocess.run([CLI, *map(str, args)], env=full, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == code, f"{args}: {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


def culet_json(*args, **kwargs):
    """The one document that --json prints; json.loads refuses anything before or after it."""
    return json.loads(culet(*args, "--json", **kwargs)[0])


def quoted(path):
    return shlex.quote(str(path))


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = self.folder / "cache.jsonl"

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def records(self):
        return culet_json("cache", "ls", self.cache)["records"]


class Listings(Case):
    def test_devices(self):
        devices = culet_json("devices")["devices"]
        self.assertEqual(devices[0]["device"], "cpu")
        self.assertRegex(devices[0]["class"], r"^cpu/.+/\d+t/llc\d+m$")
        self.assertFalse(devices[0]["rates"]["measured"])
        self.assertEqual(culet_json("devices", "--threads", 1)["devices"][0]["units"], 1)
        self.assertIn(devices[0]["name"], culet("devices")[0])

    def test_devices_measure(self):
        done = subprocess.run([CLI, "devices", "--measure", "--json"], capture_output=True, text=True)
        document = json.loads(done.stdout)
        if done.returncode != 0:  # the only way out: no memory beyond the last-level cache
            self.assertEqual(document["error"]["code"], "RESOURCE_EXHAUSTED")
            return
        rates = document["devices"][0]["rates"]
        self.assertTrue(rates["measured"])
        self.assertGreater(min(rates["read_gbps"], rates["gflops"]), 0)

    def test_kernels(self):
        kernels = culet_json("kernels")["kernels"]
        ids = [k["id"] for k in kernels]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertGreaterEqual(len(ids), 2)
        self.assertEqual([k["backend"] for k in kernels].index("reference"), len(ids) - 1)
        out, err = culet("kernels")
        self.assertEqual(err, "")
        for kernel_id in ids:
            self.assertIn(kernel_id, out)

    def test_version_and_help(self):
        self.assertRegex(culet("--version")[0], r"^culet \d+\.\d+\.\d+\n$")
        for command in ["devices", "kernels", "explain", "bench", "tune", "verify", "cache"]:
            self.assertIn(command, culet("--help")[0])
            self.assertIn("--help", culet(command, "--help")[0])


class Problems(Case):
    def explained(self, *args, **kwargs):
        return culet_json("explain", *args, **kwargs)["problems"]

    def test_sizes_and_lists(self):
        problems = self.explained("--m", "1,16,128", *SMALL)
        self.assertEqual([p["m"] for p in problems], [1, 16, 128])
        self.assertEqual({(p["n"], p["k"], p["format"], p["out"]) for p in problems},
                         {(64, 96, "bf16", "bf16")})

    def test_formats_and_outputs(self):
        usual = {"fp8-block": "bf16", "fp8-row": "bf16", "fp8-tensor": "bf16", "bf16": "bf16",
                 "f16": "f16", "f32": "f32", "f32-bf16": "f32", "f32-f16": "f32", "u4": "bf16"}
        for fmt, out in usual.items():
            self.assertEqual(self.explained("--m", 3, *SMALL, "--format", fmt)[0]["out"], out)
            for other in ["f32", "f16", "bf16"]:
                (problem,) = self.explained("--m", 3, *SMALL, "--format", fmt, "--out", other)
                self.assertEqual((problem["format"], problem["out"]), (fmt, other))
            (fast,) = self.explained("--m", 3, "--n", 40, "--k", 42, "--format", fmt, "--fast", "--aligned-weights")
            self.assertEqual((problem["fast"], fast["fast"], fast["align_b"]), (False, True, 16))

    def test_every_problem_has_a_choice_and_a_reason_for_every_other_kernel(self):
        ids = {k["id"] for k in culet_json("kernels")["kernels"]}
        for problem in self.explained("--m", "1,200", "--n", 65, "--k", 129, "--format",
                                      "fp8-block"):
            rejected = {r["kernel"]: r["reason"] for r in problem["rejected"]}
            self.assertEqual(set(rejected) | {problem["choice"]["kernel"]}, ids)
            self.assertTrue(all(rejected.values()))

    def test_shapes_file(self):
        path = self.write("s.txt", "# layers\nqkv 1 64 32\nqkv 8 64 32 # eight\no 1 48 32\n")
        self.assertEqual([(p["name"], p["m"]) for p in self.explained("--shapes", path)],
                         [("qkv", 1), ("qkv", 8), ("o", 1)])
        self.assertEqual([(p["name"], p["m"]) for p in
                          self.explained("--shapes", path, "--m", "1,4")], [("qkv", 1), ("o", 1)])
        self.assertEqual(len(self.explained("--shapes", SOURCE / "bench/llm_shapes.txt",
                                            "--m", "1,8,16,32,64,128")), 72)

    def test_equal_problems_are_one(self):
        path = self.write("s.txt", "a 1 64 32\nb 2 64 32\nc 1 64 32\na 1 64 32\n")
        self.assertEqual([p["name"] for p in self.explained("--shapes", path)], ["a,c", "b"])

    def test_every_shipped_model(self):
        models = [p for p in (SOURCE / "examples/models").iterdir() if p.is_dir()]
        self.assertGreaterEqual(len(models), 6)
        for model in models:
            names = [p["name"] for p in self.explained("--model", model, "--m", "1,16")]
            self.assertTrue(any("lm_head" in name for name in names), model)

    def test_model_format_and_experts(self):
        models = SOURCE / "examples/models"
        problems = self.explained("--model", models / "deepseek-v3", "--m", 64)
        self.assertEqual({p["format"] for p in problems}, {"fp8-block"})
        experts = [p for p in problems if "experts.down" in p["name"]]
        # 64 tokens, 8 of 256 experts each: 2 rows an expert.
        self.assertEqual([(p["m"], p["n"], p["k"]) for p in experts], [(2, 7168, 2048)])
        problems = self.explained("--model", models / "deepseek-v3/config.json", "--m", 64,
                                  "--format", "f16")
        self.assertEqual({p["format"] for p in problems}, {"f16"})


class Misuse(Case):
    def test_one_sentence_and_exit_2(self):
        llama = quoted(SOURCE / "examples/models/llama-3.1-8b")
        for args, says in [
                ("", "a command is missing"),
                ("frobnicate", "frobnicate"),
                ("cache", "a command is missing"),
                ("explain", "no problem given"),
                ("explain --m 1", "--m alone names no problem"),
                ("explain --m 1 --n 2", "--k is missing"),
                ("explain --m 1 --k 2", "--n is missing"),
                ("explain --n 1 --k 2", "--m is missing"),
                ("explain --m 0 --n 2 --k 3", "--m is 0"),
                ("explain --m 1,-4 --n 2 --k 3", "--m is -4"),
                ("explain --m 1 --n 0 --k 3", "--n is 0"),
                ("explain --m 1 --n 1 --k -3", "--k is -3"),
                ("explain --m x --n 2 --k 3", "--m: 'x' is not a whole number"),
                ("explain --m 99999999999 --n 2 --k 3", "--m: '99999999999' is not a whole number"),
                ("explain --m 1 --n 2 --k 3 --format int3", "'int3' is unknown; known are f32,"),
                ("explain --m 1 --n 2 --k 3 --out int3", "'int3' is unknown; known are f32,"),
                (f"explain --model {llama}", "--model needs --m"),
                (f"explain --model {llama} --shapes x --m 1", "exclude each other"),
                (f"explain --model {llama} --m 1 --n 2 --k 3", "exclude each other"),
                ("tune --m 1 --n 2 --k 3 --budget 0", "--budget: 0 is not"),
                ("tune --m 1 --n 2 --k 3 --budget soon", "--budget: soon is not"),
                ("bench --m 1 --n 2 --k 3 --rounds 0", "--rounds"),
                ("bench --m 1 --n 2 --k 3 --kernels ,", "--kernels is empty"),
                ("bench --m 1 --n 2 --k 3 --regret --kernels all", "leave out --kernels"),
                ("bench --m 1 --n 2 --k 3 --regret --cache x", "leave out --cache"),
                ("bench --m 1 --n 2 --k 3 --regret --untuned", "leave out --untuned"),
                ("bench --m 1 --n 2 --k 3 --csv --json", "exclude each other"),
                ("bench --m 1 --n 2 --k 3 --kernels cpu@sw=1", "none of swizzle=N, splits=N, variant=N, serial"),
                ("bench --m 1 --n 2 --k 3 --launch-overhead", "takes no problems"),
                ("kernels --threads 0", "--threads"),
                ("kernels --surprise", "--surprise")]:
            for json_flag in ["", " --json"] if " --" in args else [""]:
                out, err = culet(*shlex.split(args + json_flag), code=2)
                if "--json" in args + json_flag:
                    self.assertIn(says, json.loads(out)["error"]["message"], args)
                else:
                    self.assertEqual(out, "", args)
                self.assertIn(says, err, args)
                self.assertEqual(err.count("\n"), 1, err)

    def test_failures_exit_1_and_are_json_too(self):
        config = self.write("config.json", '{"architectures": ["GPT2LMHeadModel"]}')
        bad_key = self.write("bad.json", '{"model_type": "llama", "vocab_size": 9, "hidden_size": 0}')
        no_type = self.write("plain.json", (SOURCE / "examples/models/llama-3.1-8b/config.json")
                             .read_text().replace("bfloat16", "int2"))
        shapes = self.write("s.txt", "a 1 2\n")
        for args, says in [
                ("explain --shapes missing.txt", "missing.txt does not exist"),
                (f"explain --shapes {quoted(shapes)}", f"{shapes}:1"),
                (f"explain --model {quoted(config)} --m 1", "GPT2LMHeadModel is unknown; known are"),
                (f"explain --model {quoted(bad_key)} --m 1", "hidden_size is 0"),
                (f"explain --model {quoted(no_type)} --m 1", "give --format"),
                (f"explain --model {quoted(self.folder / 'none')} --m 1", "does not exist"),
                ("explain --m 1 --n 2 --k 3 --device cuda:99", "cuda:99"),
                ("bench --m 1 --n 2 --k 3 --kernels nope", "'nope'"),
                ("verify --kernel nope", "'nope'"),
                ("cache ls missing.jsonl", "missing.jsonl"),
                (f"cache ls {quoted(shapes)}", str(shapes)),
                ("cache ls", "the cache is off")]:
            out, err = culet(*shlex.split(args), code=1)
            self.assertEqual(out, "", args)
            self.assertIn(says, err, args)
            self.assertEqual(err.count("\n"), 1, err)
            self.assertIn(says, culet_json(*shlex.split(args), code=1)["error"]["message"])


class Tune(Case):
    def tune(self, *args, **kwargs):
        return culet_json("tune", *args, "--cache", self.cache, **kwargs)

    def tune_until_sound(self, *args):
        """A busy machine's measurement may be noisy, and is repeated by the next run. The first run's
        report, with the winners of the last."""
        first = last = self.tune(*args)
        for _ in range(100):
            if not any(p["winner"]["noisy"] for p in last["problems"]):
                return dict(first, problems=[dict(a, winner=b["winner"]) for a, b in
                                             zip(first["problems"], last["problems"])])
            last = self.tune(*args)
        raise AssertionError("all measurements were noisy")

    def test_the_second_run_measures_nothing(self):
        first = self.tune_until_sound("--m", "1,16", *SMALL)
        self.assertEqual([p["outcome"] for p in first["problems"]], ["tuned", "tuned"])
        self.assertGreater(first["measurements"], 0)
        before = self.cache.read_bytes()
        second = self.tune("--m", "1,16", *SMALL)
        self.assertEqual(second["measurements"], 0)
        self.assertEqual([p["outcome"] for p in second["problems"]], ["measured before"] * 2)
        self.assertEqual([p["winner"] for p in second["problems"]],
                         [p["winner"] for p in first["problems"]])
        self.assertEqual(self.cache.read_bytes(), before)
        out, err = culet("tune", "--m", "1,16", *SMALL, "--cache", self.cache)
        self.assertIn("2 problems, 2 measured before; 0 measurements", out)
        self.assertEqual(err, "")
        self.assertGreater(self.tune("--m", 1, *SMALL, "--force")["measurements"], 0)

    def test_the_winner_serves_explain_and_is_listed(self):
        winner = self.tune("--m", 4, *SMALL)["problems"][0]["winner"]
        self.assertEqual(winner["origin"], "measured")
        self.assertLessEqual(winner["time_us"], winner["baseline_us"])
        (problem,) = culet_json("explain", "--m", 4, *SMALL, cache=self.cache)["problems"]
        self.assertEqual(problem["choice"]["kernel"], winner["kernel"])
        self.assertEqual(problem["source"], "measured")
        (record,) = self.records()
        self.assertEqual((record["m"], record["n"], record["k"]), (4, 64, 96))
        self.assertEqual(record["kernel"], winner["kernel"])
        out, _ = culet("cache", "ls", self.cache)
        self.assertIn(winner["kernel"], out)
        self.assertIn("1 record; on this machine", out)

    def test_where_the_cache_is(self):
        culet("tune", "--m", 1, *SMALL, cache=self.cache)
        self.assertEqual(len(self.records()), 1)
        other = self.folder / "other.jsonl"
        culet("tune", "--m", 1, *SMALL, "--cache", other, cache=self.cache)
        self.assertTrue(other.exists())
        out, _ = culet("tune", "--m", 1, *SMALL, "--cache", "off", cache=self.cache)
        self.assertIn("not saved (cache off)", out)
        env = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "xdg"))
        env.pop("CULET_CACHE", None)
        subprocess.run([CLI, "tune", "--m", "1", *SMALL], env=env, check=True,
                       stdout=subprocess.DEVNULL)
        self.assertTrue((self.folder / "xdg/culet/dispatch.jsonl").exists())

    def test_the_budget_leaves_problems_out(self):
        # A nanosecond is over before the first problem.
        report = self.tune("--m", "1,2,3,4,5,6", *SMALL, "--budget", 1e-9)
        self.assertEqual([p["outcome"] for p in report["problems"]], ["left out by the budget"] * 6)
        self.assertEqual(report["measurements"], 0)
        # What was tuned before stays known, budget or not.
        known = self.tune_until_sound("--m", 7, *SMALL)["measurements"]
        self.assertGreater(known, 0)
        report = self.tune("--m", 7, *SMALL, "--budget", 1e-9)
        self.assertEqual(report["problems"][0]["outcome"], "measured before")

    def test_a_stopped_run_keeps_what_it_finished(self):
        shapes = self.write("s.txt", "".join(f"p{m} {m} 256 256\n" for m in range(1, 4000)))
        kept = 0
        for sig, code in [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]:
            process = subprocess.Popen([CLI, "tune", "--shapes", shapes, "--cache", self.cache],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            # The header and two more problems than before. It cannot end by itself meanwhile: the
            # pipe holds no more than some hundred rows.
            lines = [process.stdout.readline() for _ in range(kept + 3)]
            self.assertTrue(all(lines))
            process.send_signal(sig)
            out, err = process.communicate()
            self.assertEqual(process.returncode, code, err)
            if sig != signal.SIGKILL:
                self.assertIn("interrupted; finished results are kept", err)
                self.assertRegex(out, r"problems, .*\d+ interrupted")
                rows = sum(line.startswith("p") for line in [*lines[1:], *out.splitlines()])
                summary = re.search(r"\d+ problems, .*", out)[0]
                done = sum(map(int, re.findall(r"(\d+) (?:tuned|measured before)", summary)))
                self.assertEqual(rows, done, summary)  # no row for what was not reached
            records = self.records()
            self.assertGreaterEqual(len(records), kept + 2)
            self.assertTrue(all("damage" not in r for r in records))
            kept = len(records)
        first = self.write("first.txt", "".join(f"p{m} {m} 256 256\n" for m in range(1, kept + 1)))
        self.tune_until_sound("--shapes", first)
        self.assertEqual(self.tune("--shapes", first)["measurements"], 0)

    def test_a_file_that_breaks_meanwhile_loses_nothing(self):
        shapes = self.write("s.txt", "".join(f"p{m} {m} 256 256\n" for m in range(1, 4000)))
        process = subprocess.Popen([CLI, "tune", "--shapes", shapes, "--cache", self.cache],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=dict(os.environ, TMPDIR=str(self.folder)))
        for _ in range(3):
            self.assertTrue(process.stdout.readline())
        self.cache.rename(self.folder / "was.jsonl")
        self.cache.mkdir()
        # Rows that were printed before may still wait in the pipe.
        rows = 2
        while not (found := [path for path in self.folder.rglob("*.jsonl")
                             if path.name not in ("was.jsonl", "cache.jsonl")]):
            self.assertTrue(process.stdout.readline())
            rows += 1
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        (rescue,) = found
        self.assertEqual(err.count(str(rescue)), 1, err)
        records = culet_json("cache", "ls", rescue)["records"]
        self.assertGreaterEqual(len(records), rows)


class CacheFaults(Case):
    def setUp(self):
        super().setUp()
        culet("tune", "--m", "1,2", *SMALL, "--cache", self.cache)

    def explain(self):
        _, err = culet("explain", "--m", 1, *SMALL, "--cache", self.cache)
        return err

    def test_damage_is_told_once_and_put_aside(self):
        self.assertEqual(self.explain(), "")
        with self.cache.open("a") as file:
            file.write("\x01 no record\n")
        err = self.explain()
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn("1 damaged (line 4)", err)
        listed = culet_json("cache", "ls", self.cache)
        self.assertEqual(listed["report"]["damaged"], 1)
        self.assertEqual(listed["report"]["used"], 2)
        self.assertEqual([r["line"] for r in listed["records"] if "damage" in r], [4])
        out, _ = culet("cache", "ls", self.cache)
        self.assertIn("damaged: ", out)
        self.assertNotIn("\x01", out)
        culet("tune", "--m", 3, *SMALL, "--cache", self.cache)
        report = culet_json("cache", "ls", self.cache)["report"]
        self.assertEqual((report["used"], report["damaged"]), (3, 0))
        self.assertEqual((self.folder / "cache.jsonl.damaged").read_text(), "\x01 no record\n")

    def test_another_device_is_a_miss_and_kept(self):
        text = self.cache.read_text()
        (own,) = {d["class"] for d in culet_json("devices")["devices"][:1]}
        args = ["--m", 1, *SMALL, "--cache", self.cache]
        threads = 1 if "/1t/" not in own else 2
        _, err = culet("explain", *args, "--threads", threads)
        self.assertIn("2 of another device class", err)
        culet("tune", *args, "--threads", threads)
        for line in text.splitlines():
            self.assertIn(line, self.cache.read_text())
        self.assertEqual(len(self.records()), 3)

    def test_what_is_no_cache_is_not_touched(self):
        for content in [b"# notes\n", b"\x00\xff" * 1000]:
            self.cache.write_bytes(content)
            err = self.explain()  # works on, without a cache
            self.assertEqual(err.count("\n"), 1, err)
            self.assertIn("the cache is not used", err)
            out, err = culet("tune", "--m", 1, *SMALL, "--cache", self.cache, code=1)
            self.assertEqual(out, "")
            self.assertIn("nothing was measured", err)
            self.assertEqual(err.count("header"), 1, err)  # the reason, once
            self.assertEqual(self.cache.read_bytes(), content)

    def test_a_folder_that_cannot_be_written(self):
        path = self.cache / "below-a-file.jsonl"
        out, err = culet("tune", "--m", 1, *SMALL, "--cache", path, code=1)
        self.assertEqual(out, "")
        self.assertIn("nothing was measured", err)
        self.assertIn("--cache off", err)


class Bench(Case):
    def test_fields_and_the_command_that_repeats(self):
        document = culet_json("bench", "--m", "1,16", *SMALL, "--rounds", 3)
        for problem in document["problems"]:
            choices = [k for k in problem["kernels"] if k["choice"]]
            self.assertEqual(len(choices), 1)
            times = [k["time_us"] for k in problem["kernels"]]
            self.assertEqual(times, sorted(times))
            for kernel in problem["kernels"]:
                self.assertNotIn("reference", kernel["kernel"])
                self.assertEqual(kernel["samples"], 3)
                self.assertLess(kernel["relative_l2"], 0.01)
                self.assertLessEqual(kernel["max_over_bound"], 1)
                self.assertAlmostEqual(kernel["roofline_share"] * kernel["time_us"],
                                       problem["roofline_us"], places=6)
                self.assertAlmostEqual(kernel["gbps"] * kernel["time_us"] * 1e3, problem["bytes"],
                                       delta=1e-6 * problem["bytes"])
        last = document["problems"][-1]
        repro = shlex.split(last["kernels"][-1]["repro"])
        self.assertEqual(repro[0], "culet")
        (again,) = culet_json(*repro[1:], "--rounds", 1)["problems"]
        self.assertEqual([k["kernel"] for k in again["kernels"]], [last["kernels"][-1]["kernel"]])
        self.assertEqual([again[f] for f in ["m", "n", "k", "format", "out"]],
                         [last[f] for f in ["m", "n", "k", "format", "out"]])

    def test_rows(self):
        out, _ = culet("bench", "--m", 2, *SMALL, "--rounds", 2, "--kernels",
                       "cpu_reference,cpu_simd", "--repro")
        self.assertRegex(out, r"reads [\d.]+ GB/s, computes \d+ GFLOP/s in float32 \((measured|typical)")
        self.assertRegex(out, r"(?m)^- +2 +64 +96 +bf16>bf16 +\* cpu_simd/\S+ +[\d.]+ (ns|us|ms) ")
        self.assertIn("culet bench --m 2 --n 64 --k 96 --format bf16 --out bf16 --kernels "
                      "cpu_reference@swizzle=0@splits=1 --threads", out)

    def test_all_is_all_but_the_reference(self):
        (problem,) = culet_json("bench", "--m", 2, *SMALL, "--rounds", 1, "--kernels",
                                "all")["problems"]
        kernels = culet_json("kernels")["kernels"]
        reference = {k["id"] for k in kernels if k["backend"] == "reference"}
        (explained,) = culet_json("explain", "--m", 2, *SMALL)["problems"]
        feasible = {r["kernel"] for r in explained["rejected"] if r["feasible"]}
        feasible.add(explained["choice"]["kernel"])
        self.assertEqual({k["kernel"] for k in problem["kernels"]}, feasible - reference)

    def test_a_refusal_is_told(self):
        reasons = {r["kernel"]: r["reason"] for p in
                   culet_json("explain", "--m", 300, *SMALL)["problems"] for r in p["rejected"]
                   if not r["feasible"]}
        if not reasons:
            self.skipTest("every kernel takes this problem")
        kernel, reason = reasons.popitem()
        out, _ = culet("bench", "--m", 300, *SMALL, "--kernels", kernel, code=1)
        self.assertIn("UNSUPPORTED: " + reason, out)

    def test_regret(self):
        document = culet_json("bench", "--m", "1,8", "--n", 96, "--k", 64, "--regret", "--rounds", 3,
                              cache=self.cache)
        ratios = []
        for problem in document["problems"]:
            (choice,) = [k["time_us"] for k in problem["kernels"] if k["choice"]]
            ratios.append(choice / min(k["time_us"] for k in problem["kernels"] if "time_us" in k))
        regret = document["regret"]
        self.assertEqual(regret["problems"], 2)
        self.assertAlmostEqual(regret["worst"], max(ratios), places=4)
        self.assertAlmostEqual(regret["geometric_mean"], (ratios[0] * ratios[1]) ** 0.5, places=4)

    def test_csv(self):
        out, _ = culet("bench", "--m", "2,3", *SMALL, "--rounds", 2, "--csv", "--untuned",
                       "--kernels", "choice")
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual([row["m"] for row in rows], ["2", "3"])
        for row in rows:
            self.assertEqual((row["choice"], row["untuned"], row["pdl"]), ("1", "1", "0"))
            self.assertTrue(row["kernel"].startswith("cpu_simd/"))
            limit = max(float(row["gbps"]) / float(row["read_gbps"]),
                        float(row["tflops"]) / float(row["peak_tflops"]))
            over = float(row["over_limit"])
            self.assertAlmostEqual(1 / over, limit, delta=(0.01 + 1e-4 / over) * limit)
            # Times have three decimals, whatever machine is fast enough to need more.
            low, high = ((float(row["time_us"]) + d) / (float(row["limit_us"]) - d)
                         for d in (-0.001, min(0.001, float(row["limit_us"]) / 2)))
            self.assertTrue(low <= over <= high, row)

    def test_a_launch_is_named_with_its_parameters(self):
        (problem,) = culet_json("bench", "--m", 2, *SMALL, "--rounds", 1, "--kernels",
                                "cpu_simd/skinny/m4n2@swizzle=0@splits=1,cpu_reference")["problems"]
        self.assertEqual({k["kernel"] for k in problem["kernels"]},
                         {"cpu_simd/skinny/m4n2", "cpu_reference"})
        out, _ = culet("bench", "--m", 2, *SMALL, "--kernels", "cpu_reference@splits=7", code=1)
        self.assertIn("no such launch", out)

    def test_pdl_is_part_of_the_problem(self):
        document = culet_json("bench", "--m", 2, *SMALL, "--rounds", 1, "--pdl")
        (problem,) = document["problems"]
        self.assertTrue(problem["pdl"])
        self.assertIn(" --pdl ", problem["kernels"][0]["repro"])

    def test_a_budget_that_is_spent_leaves_all_out(self):
        # tests/cli_bench_test.cc has budgets that end in between.
        document = culet_json("bench", "--m", "1,8", *SMALL, "--regret", "--budget", 1e-9)
        self.assertEqual((document["left_out"], document["problems"]), (2, []))
        self.assertNotIn("regret", document)

    def test_the_cost_of_a_launch_is_printed(self):
        overhead = culet_json("bench", "--launch-overhead")["launch_overhead"]
        self.assertEqual(set(overhead), {"plan_us", "kernel_us"})
        out, _ = culet("bench", "--launch-overhead")
        self.assertRegex(out, r"does nothing: [\d.]+ (ns|us|ms); .* directly: [\d.]+ (ns|us|ms)\n$")


class Verify(Case):
    def test_quick(self):
        document = culet_json("verify", "--quick", "--kernel", "cpu_reference", "--budget", 5)
        self.assertGreater(document["passed"], 0)
        self.assertEqual(document["failed"], 0)
        out, err = culet("verify", "--quick", "--kernel", "cpu_simd/skinny", "--budget", 5)
        self.assertRegex(out, r"^\d+ passed, 0 failed, \d+ refused with a reason")
        self.assertEqual(err, "")


def safetensors(path):
    """The F32 tensors of a file: name -> (shape, values). Others have no values."""
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    tensors = {}
    for name, entry in json.loads(raw[8:8 + length]).items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        code = {"F32": "f", "I64": "q"}[entry["dtype"]]
        tensors[name] = entry["shape"], array.array(code, raw[begin:end])
    return tensors


def relative_l2(values, expected):
    error = sum((a - b) ** 2 for a, b in zip(values, expected, strict=True))
    return (error / sum(b * b for b in expected)) ** 0.5


class Models(Case):
    """examples/adder, and the checkpoints with goldens where they are."""
    PROMPT, ANSWER = "481516+42108=", "523624"

    def setUp(self):
        super().setUp()
        self.adder = SOURCE / "examples" / "adder"

    def refused(self, *args, code=1, command="run"):
        out, err = culet(command, *args, code=code)
        self.assertEqual(out, "")
        return err

    def test_the_adder_answers(self):
        out, err = culet("run", "--model", self.adder, "--prompt", self.PROMPT)
        self.assertEqual(out, self.PROMPT + self.ANSWER + "\n")
        self.assertRegex(err, r"^culet: a step of one token: \d+ of \d+ products have a measured kernel.*\n"
                              r"culet: 13 tokens read in .*; 6 steps at .* tokens/s\n$")

    def test_bytes_are_tokens_and_an_end_token_ends(self):
        ids = ",".join(str(byte) for byte in self.PROMPT.encode())
        out, _ = culet("run", "--model", self.adder, "--token-ids", ids)
        self.assertEqual(out, ",".join(str(byte) for byte in (self.ANSWER + "\n").encode()) + "\n")
        (sequence,) = culet_json("run", "--model", self.adder, "--token-ids", ids)["sequences"]
        self.assertEqual(sequence["end"], "eos")
        (sequence,) = culet_json("run", "--model", self.adder, "--token-ids", ids,
                                 "--max-new", 2)["sequences"]
        self.assertEqual((sequence["tokens"], sequence["end"]), ([53, 50], "max_new"))

    def test_all_positions_are_used_and_no_more(self):
        config = json.loads((self.adder / "config.json").read_text())
        config["max_position_embeddings"] = len(self.PROMPT) + 2
        self.write("config.json", json.dumps(config))
        (self.folder / "model.safetensors").symlink_to(self.adder / "model.safetensors")
        (sequence,) = culet_json("run", "--model", self.folder, "--prompt", self.PROMPT)["sequences"]
        # Two more are read; the third needs no position.
        self.assertEqual((sequence["text"], sequence["end"]), (self.ANSWER[:3], "max_position"))

    def test_a_batch_answers_alike(self):
        sequences = culet_json("run", "--model", self.adder, "--prompt", self.PROMPT,
                               "--batch", 3)["sequences"]
        self.assertEqual([s["text"] for s in sequences], [self.ANSWER] * 3)

    def test_tuned_choices_are_kept(self):
        for _ in range(2):
            document = culet_json("run", "--model", self.adder, "--prompt", self.PROMPT, "--tune",
                                  cache=self.cache)
            self.assertEqual(document["sequences"][0]["text"], self.ANSWER)
            self.assertGreater(len(self.records()), 0)

    def test_a_profile_has_every_node(self):
        profile = culet_json("run", "--model", self.adder, "--prompt", self.PROMPT,
                             "--profile")["profile"]
        for step in (profile["prompt"], profile["decode"]):
            products = [node for node in step if node["op"] == "mul_mat"]
            self.assertEqual(len(products), 6 * 7 + 1)
            for node in products:
                self.assertTrue(node["kernel"].startswith("cpu_simd/"), node)
                self.assertGreater(node["bytes"], 0)
                # Shares are of one machine's rates: a node's time and share give its roofline.
                self.assertGreaterEqual(min(node["time_us"], node["roofline_share"]), 0)
        (head,) = [node for node in profile["decode"] if node["name"] == "logits"]
        self.assertGreaterEqual(head["bytes"], 2 * 256 * 192)
        out, _ = culet("run", "--model", self.adder, "--prompt", self.PROMPT, "--profile")
        self.assertIn("a step of decoding, medians\n", out)

    def test_a_dump_has_what_the_prompt_gave(self):
        path = self.folder / "dump.safetensors"
        out, _ = culet("run", "--model", self.adder, "--prompt", self.PROMPT, "--max-new", 1,
                       "--dump", path)
        tensors = safetensors(path)
        self.assertEqual({name: t[0] for name, t in tensors.items()},
                         {"logits": [13, 256], "hidden": [7, 13, 192]})
        last = tensors["logits"][1][-256:]
        self.assertEqual(out, self.PROMPT + chr(last.index(max(last))) + "\n")

    def test_dumps_are_the_goldens(self):
        root = pathlib.Path(os.environ.get("CULET_FIXTURES", SOURCE / ".." / "shared" / "fixtures"))
        names = ["llama-gqa", "llama3-scaled-tied", "qwen2-bias-tied", "qwen3-qknorm", "qwen3-moe",
                 "qwen3-fp8"]
        if not all((root / name / "golden.safetensors").exists() for name in names):
            self.skipTest("no checkpoints with goldens; set CULET_FIXTURES")
        for name in names:
            path = self.folder / "dump.safetensors"
            goldens = safetensors(root / name / "golden.safetensors")
            for dispatch in ("cpu", "reference"):
                document = culet_json("run", "--model", root / name, "--max-new", 0, "--dump", path,
                                      "--token-ids", ",".join(map(str, goldens["input_ids"][1])),
                                      "--dispatch", dispatch)
                self.assertEqual(document["dispatch"], dispatch)
                for tensor, (shape, values) in safetensors(path).items():
                    self.assertEqual(shape, goldens[tensor][0])
                    self.assertLessEqual(relative_l2(values, goldens[tensor][1]),
                                         1e-4 if name == "qwen3-fp8" else 1e-5, (name, tensor))

    def test_compare(self):
        model = ["--model", self.adder, "--prompt", self.PROMPT]
        for out, err in (culet("compare", *model, "--kv", cache) for cache in ("bf16", "fp8")):
            self.assertEqual(err, "")
            self.assertRegex(out, r"\n\d+ nodes, all within their bounds\n$")
        document = culet_json("compare", *model, "--bound", 1e-9, code=1)
        self.assertGreater(document["beyond"], 0)
        # The embedding is exact; the first rounding is the first norm's.
        self.assertIn("(layers.0.attention_norm) rms_norm", document["first_beyond"]["node"])
        self.assertEqual(document["first_beyond"]["step"], "prompt")
        self.assertIn("rounding tie", culet("compare", "--help")[0])

    def test_what_was_tuned_is_kept(self):
        for command in ("run", "compare"):
            path = self.folder / f"{command}.jsonl"
            culet(command, "--model", self.adder, "--prompt", "1+1=", "--tune", "--cache", path)
            records = path.read_text().splitlines()
            self.assertGreater(len(records), 5, command)

    def test_refusals_name_what_is_wrong(self):
        model = ["--model", self.adder]
        self.assertIn("does not exist", self.refused("--model", self.folder / "no", "--prompt", 1))
        self.assertIn("nothing to run on", self.refused(*model, code=2))
        both = self.refused(*model, "--prompt", 1, "--token-ids", 1, code=2)
        self.assertIn("exclude each other", both)
        tuned = self.refused(*model, "--prompt", 1, "--dispatch", "reference", "--tune", code=2)
        self.assertIn("--tune is for the kernels of --dispatch cpu; reference has none", tuned)
        self.assertIn("not in {cpu,reference}",
                      self.refused(*model, "--prompt", 1, "--dispatch", "double", code=2))
        elsewhere = self.refused(*model, "--prompt", 1, "--device", "cuda", "--dispatch", "reference", code=2)
        self.assertIn("--dispatch reference computes on the CPU; leave out --device cuda", elsewhere)
        devices = json.loads(culet("devices", "--json")[0])["devices"]
        for command in ("run", "compare"):
            if len(devices) == 1:
                gpu = self.refused(*model, "--prompt", 1, "--device", "cuda", command=command)
                self.assertIn("device 'cuda' is not there; use 'cpu'", gpu)
            exact = self.refused(*model, "--prompt", 1, "--exact", code=2, command=command)
            self.assertIn("--exact is for --device cuda", exact)
            for tokens, wrong in (("49,256", "token 1 of the prompt is 256"),
                                  ("-1", "token 0 of the prompt is -1")):
                self.assertIn(wrong, self.refused(*model, "--token-ids", tokens, command=command))
        self.assertIn("has 65 tokens", self.refused(*model, "--prompt", "1" * 65))
        (self.folder / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
        self.assertIn("GPT2LMHeadModel is unknown; known are Llama", self.refused("--model", self.folder, "--prompt", 1))
        weights = self.refused("--model", SOURCE / "examples/models/qwen3-0.6b", "--prompt", 1)
        self.assertIn("holds neither model.safetensors", weights)
        dump = self.refused(*model, "--prompt", 1, "--dump", self.folder / "no" / "dump")
        self.assertIn("cannot be written", dump)


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
