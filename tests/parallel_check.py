"""`culet run --tp` and culet.LLM over several ranks: the answers of one, launchers' variables, and
what is said of a rank that dies or was started otherwise. No process or shared memory is left.

usage: parallel_check.py --source DIR --build DIR --cli BINARY
"""
import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from exports_check import package_environment

CLI, SOURCE, BUILD = None, None, None
PROMPT, ANSWER = "481516+42108=", "523624"
SECONDS = 60


def environment(**variables):
    return dict(os.environ, CULET_CACHE="off", CULET_RANK_WAIT="20", **variables)


def run(*args, **variables):
    return subprocess.Popen([CLI, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment(**variables))


def children(pid):
    """Processes that `pid` started, by their numbers."""
    found = []
    for each in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int((each / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(each.name))
        except OSError:
            pass  # it has ended
    return found


def is_there(pid):
    return pathlib.Path(f"/proc/{pid}").exists()


def gone(pids):
    """Whether none of them is there any more, zombies included."""
    end = time.monotonic() + 10
    while any(map(is_there, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Case(unittest.TestCase):
    def setUp(self):
        self.adder = SOURCE / "examples/adder"
        self.memory = set(os.listdir("/dev/shm"))

    def tearDown(self):
        self.assertEqual(set(os.listdir("/dev/shm")) - self.memory, set())

    def launched(self, size, meeting, models=(), tp=None):
        """A process for each rank, as a launcher starts them."""
        models = list(models) or [self.adder] * size
        return [run("run", "--model", models[rank], "--prompt", PROMPT, "--max-new", 8, "--tp", tp or size,
                    RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                    MASTER_PORT="29500", TORCHELASTIC_RUN_ID=f"{os.getpid()}-{meeting}") for rank in range(size)]

    def ends(self, process, seconds=SECONDS):
        """Its code, output and errors; one that does not end is killed, and its others with it."""
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            for pid in [*children(process.pid), process.pid]:
                os.kill(pid, signal.SIGKILL)
            out, err = process.communicate()
            self.fail(f"{process.args} did not end within {seconds} s: {out[-500:]} {err[-500:]}")
        return process.returncode, out, err


class Answers(Case):
    def test_ranks_that_are_started_give_the_answer_of_one(self):
        for size in (1, 2):
            code, out, err = self.ends(run("run", "--model", self.adder, "--prompt", PROMPT, "--max-new", 8,
                                           "--tp", size))
            self.assertEqual(code, 0, err)
            self.assertEqual(out.strip(), PROMPT + ANSWER)

    def test_ranks_of_a_launcher(self):
        first, *others = self.launched(2, "answer")
        code, out, err = self.ends(first)
        self.assertEqual((code, out.strip()), (0, PROMPT + ANSWER), err)
        for other in others:
            self.assertEqual(self.ends(other), (0, "", ""))

    def test_whole_experts(self):
        moe = SOURCE / "tests/goldens/mixtral-shards"
        if not moe.is_dir():
            self.skipTest("no model with experts")
        answers = []
        for options in (["--tp", 1], ["--tp", 2, "--experts-by", "expert"]):
            code, out, err = self.ends(run("run", "--model", moe, "--token-ids", "1,2,3", "--max-new", 6, "--json", *options))
            self.assertEqual(code, 0, err)
            answers.append(json.loads(out)["sequences"])
        self.assertEqual(answers[0], answers[1])
        code, out, err = self.ends(run("explain", "--tp", 2, "--model", moe, "--experts-by", "expert"))
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"experts of 2 ranks: by expert, \d+, \d+ of \d+")
        code, _, err = self.ends(run("run", "--model", self.adder, "--prompt", PROMPT, "--tp", 2, "--experts-by", "expert"))
        self.assertNotEqual(code, 0)
        self.assertIn("has no routed experts", err)
        code, _, err = self.ends(run("run", "--model", moe, "--token-ids", "1", "--experts-by", "expert"))
        self.assertNotEqual(code, 0)
        self.assertIn("give --tp N beside it", err)

    def test_a_bench(self):
        code, out, err = self.ends(run("bench", "--decode", "--model", self.adder, "--format", "f32", "--tp", 2,
                                       "--context", 16, "--prefill", 8, "--steps", 3, "--json"))
        self.assertEqual(code, 0, err)
        kernels = [group["kernel"] for group in json.loads(out)["decode"]["nodes"]]
        self.assertIn("shared_memory/all_reduce", kernels)

    def test_llm(self):
        program = f"""
import culet
llm = culet.LLM({str(self.adder)!r}, "cpu", tensor_parallel_size=2)
print(llm.generate({PROMPT!r}, max_new_tokens=8), *llm.generate(["1+1=", "20+22="], max_new_tokens=8))
print("".join(llm.stream({PROMPT!r}, max_new_tokens=8)))
"""
        variables = package_environment(SOURCE, BUILD)
        variables.update(CULET_CACHE="off", PATH=f"{BUILD}:{os.environ['PATH']}")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=variables,
                              timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.split(), [ANSWER, "2", "42", ANSWER])


def gpus():
    done = subprocess.run([CLI, "devices", "--json"], capture_output=True, text=True, env=environment(), check=False)
    return done.stdout.count('"class": "cuda/') if done.returncode == 0 else 0


class Gpus(Case):
    """Two GPUs and NCCL."""

    def setUp(self):
        super().setUp()
        if gpus() < 2:
            self.skipTest("two GPUs are needed")

    def test_the_answer_of_one(self):
        for exchange in ("peers", "nccl"):
            code, out, err = self.ends(run("run", "--device", "cuda", "--model", self.adder, "--prompt", PROMPT,
                                           "--max-new", 8, "--tp", 2, CULET_EXCHANGE=exchange), 15)
            self.assertEqual((code, out.strip()), (0, PROMPT + ANSWER), err)
            self.assertNotIn("node by node", err)

    def test_a_rank_that_is_killed(self):
        """Within the time of a test, from a start, in which nothing can be seen, to the midst of steps."""
        for seconds in (2, 6):
            process = run("bench", "--decode", "--device", "cuda", "--model", self.adder, "--format", "bf16",
                          "--context", 16, "--prefill", 8, "--steps", 20000, "--tp", 2)
            time.sleep(seconds)
            started = children(process.pid)
            for pid in started:
                os.kill(pid, signal.SIGKILL)
            code, _, err = self.ends(process, 15)
            if code != 0:
                self.assertIn("rank 1", err)
            self.assertTrue(gone(started))


class Failures(Case):
    def test_another_call(self):
        """In a program that a launcher starts several times."""
        program = f"""
import os, culet
llm = culet.LLM({str(self.adder)!r}, "cpu", tensor_parallel_size=2)
print(llm.generate({PROMPT!r}, max_new_tokens=8), flush=True)
llm.generate("1+1=" if os.environ["RANK"] == "0" else "2+2=", max_new_tokens=4)
"""
        variables = package_environment(SOURCE, BUILD)
        variables.update(CULET_CACHE="off", CULET_RANK_WAIT="20", WORLD_SIZE="2", MASTER_PORT="29501",
                         CULET_MEETING=f"call-{os.getpid()}")
        ranks = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, env=dict(variables, RANK=rank, LOCAL_RANK=rank)) for rank in "01"]
        for rank in ranks:
            code, out, err = self.ends(rank)
            self.assertEqual((code, out.strip()), (1, ANSWER), err)
            self.assertRegex(err, "rank 1 has 'call .* where rank 0 has 'call ")

    def test_another_model(self):
        with tempfile.TemporaryDirectory() as folder:
            config = json.loads((self.adder / "config.json").read_text()) | {"rms_norm_eps": 1e-3}
            pathlib.Path(folder, "config.json").write_text(json.dumps(config))
            pathlib.Path(folder, "model.safetensors").symlink_to(self.adder / "model.safetensors")
            for process in self.launched(2, "model", [self.adder, folder]):
                code, _, err = self.ends(process)
                self.assertEqual(code, 1)
                self.assertIn("rank 1 has 'config.json ", err)

    def test_another_number_of_ranks(self):
        first, other = self.launched(2, "number", tp=3)
        code, _, err = self.ends(other)
        self.assertNotEqual(code, 0)
        self.assertIn("--tp is 3, and the launcher started 2 ranks", err)
        code, _, err = self.ends(first)
        self.assertNotEqual(code, 0)
        self.assertIn("3 ranks are asked for, and the launcher started 2", err)

    def test_more_ranks_than_parts(self):
        code, _, err = self.ends(run("run", "--model", self.adder, "--prompt", PROMPT, "--tp", 500))
        self.assertEqual(code, 1)
        self.assertIn("can be cut into at most ", err)

    def test_tuning_without_gpus_is_refused_once(self):
        code, _, err = self.ends(run("tune", "--tp", 3))
        self.assertEqual(code, 1)
        self.assertEqual(err.count("ranks on the CPU make all sums in one way"), 1)
        self.assertEqual(len(err.splitlines()), 1, err)

    def test_missing_variables(self):
        code, _, err = self.ends(run("run", "--model", self.adder, "--prompt", PROMPT, "--tp", 2, RANK="1"))
        self.assertEqual(code, 1)
        self.assertIn("the variable RANK is set and WORLD_SIZE is not", err)

    def test_a_rank_that_is_killed(self):
        """At any moment: the first one says who died, or is dead, and all others end."""
        rng = random.Random(20261128)
        killed = 0
        for turn in range(12):
            process = run("bench", "--decode", "--model", self.adder, "--format", "f32", "--context", 16,
                          "--prefill", 8, "--steps", 5000, "--tp", 2)
            started = []
            end = time.monotonic() + 20
            while not started and time.monotonic() < end and process.poll() is None:
                started = children(process.pid)
            time.sleep(rng.random() * 0.3)
            victim = started[0] if turn % 2 == 0 else process.pid
            try:
                os.kill(victim, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
            code, _, err = self.ends(process)
            if victim == process.pid:
                self.assertIn(code, (-signal.SIGKILL, 0))
            elif code != 0:
                self.assertRegex(err, "rank 1 (died|did not come|left)")
            self.assertTrue(gone(started), f"turn {turn}: {started}")
        self.assertGreater(killed, 6)


def main():
    global CLI, SOURCE, BUILD
    parser = argparse.ArgumentParser()
    for name in ("source", "build", "cli"):
        parser.add_argument("--" + name, type=pathlib.Path, required=True)
    args, rest = parser.parse_known_args()
    CLI, SOURCE, BUILD = args.cli, args.source, args.build
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
