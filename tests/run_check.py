"""What `culet run`, `compare` and `bench --decode` do with several prompts, with what they refuse,
and when they are interrupted.

usage: run_check.py --source DIR --build DIR --cli BINARY
"""
import argparse
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

CLI, SOURCE = None, None
NAN = 0x7FC0  # in BF16


def culet(*args, code=0):
    done = subprocess.run([CLI, *map(str, args)], capture_output=True, text=True,
                          env=dict(os.environ, CULET_CACHE="off"))
    if done.returncode != code:
        raise AssertionError(f"{args}: exit code {done.returncode}, not {code}\n{done.stderr}")
    return done.stdout, done.stderr


def culet_json(*args, **kwargs):
    return json.loads(culet(*args, "--json", **kwargs)[0])


class Case(unittest.TestCase):
    PROMPT, ANSWER = "481516+42108=", "523624"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = self.folder / "cache.jsonl"
        self.adder = SOURCE / "examples" / "adder"

    def copy(self, **config):
        """The adder with other keys in its config, in the test's folder."""
        keys = json.loads((self.adder / "config.json").read_text()) | config
        (self.folder / "config.json").write_text(json.dumps(keys))
        weights = self.folder / "model.safetensors"
        if not weights.exists():
            weights.symlink_to(self.adder / "model.safetensors")
        return self.folder

    def refused(self, *args, code=1):
        out, err = culet(*args, code=code)
        self.assertEqual(out, "")
        return err


class Prompts(Case):
    def test_tokens_as_they_come(self):
        run = ("run", "--model", self.adder, "--prompt", self.PROMPT)
        self.assertEqual(culet(*run, "--stream")[0], culet(*run)[0])
        error = culet_json(*run, "--stream", code=2)["error"]
        self.assertIn("--stream prints tokens as they come and --json", error["message"])

    def test_end_tokens_of_the_generation_config(self):
        folder = self.copy()
        run = ["run", "--model", folder, "--prompt", self.PROMPT]
        self.assertEqual(culet(*run)[0], self.PROMPT + self.ANSWER + "\n")
        for tokens in (ord("3"), [ord("6"), ord("3")]):
            (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": tokens}))
            self.assertEqual(culet(*run)[0], self.PROMPT + "52\n")
            (sequence,) = culet_json(*run)["sequences"]
            self.assertEqual((sequence["text"], sequence["end"]), ("52", "eos"))

    def test_an_end_token_that_is_no_text(self):
        """The adder, whose token 200 is what its end token 10 was."""
        folder = self.copy(eos_token_id=200)
        data = bytearray((self.adder / "model.safetensors").read_bytes())
        size, = struct.unpack("<Q", data[:8])
        table = json.loads(data[8:8 + size])["model.embed_tokens.weight"]
        width = 2 * table["shape"][1]
        a, b = (8 + size + table["data_offsets"][0] + token * width for token in (10, 200))
        data[a:a + width], data[b:b + width] = data[b:b + width], data[a:a + width]
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors").write_bytes(data)
        run = ["run", "--model", folder, "--prompt", self.PROMPT]
        self.assertEqual(culet(*run)[0], self.PROMPT + self.ANSWER + "\n")
        (sequence,) = culet_json(*run)["sequences"]
        self.assertEqual((sequence["tokens"][-1], sequence["end"]), (200, "eos"))
        self.assertEqual(sequence["text"], self.ANSWER)

    def test_a_file_of_prompts_is_one_batch(self):
        prompts = ["1+2=", self.PROMPT, "99+1=", "30000+4="]
        answers = ["3", self.ANSWER, "100", "30004"]
        texts, ids = self.folder / "texts", self.folder / "ids"
        texts.write_text("\n".join(prompts[:2]) + "\n\r\n" + "\r\n".join(prompts[2:]))
        ids.write_text("".join(", ".join(str(b) for b in p.encode()) + "\n" for p in prompts))
        out, err = culet("run", "--model", self.adder, "--prompt-file", texts)
        self.assertEqual(out, "".join(p + a + "\n" for p, a in zip(prompts, answers)))
        # All in one step, and as many steps more as the longest answer needs.
        self.assertRegex(err, r"(?m)^culet: 30 tokens read in .*; 6 steps at ")
        out, _ = culet("run", "--model", self.adder, "--token-ids-file", ids)
        self.assertEqual(out, "".join(",".join(str(b) for b in (a + "\n").encode()) + "\n"
                                      for a in answers))
        for option, file in (("--prompt-file", texts), ("--token-ids-file", ids)):
            sequences = culet_json("run", "--model", self.adder, option, file)["sequences"]
            self.assertEqual([bytes(s["prompt"]).decode() for s in sequences], prompts)
            self.assertEqual([bytes(s["tokens"]).decode() for s in sequences],
                             [a + "\n" for a in answers])

    def test_no_byte_of_a_file_is_lost(self):
        """A byte order mark says how a file is written; all other bytes are a prompt's, also half a character."""
        texts, ids = self.folder / "texts", self.folder / "ids"
        prompts = [b"1+2=", b"\xef\xbb", b"\xff\0x", b"1\xc3", b"\xef\xbb\xbf9"]
        texts.write_bytes(b"\xef\xbb\xbf" + b"\n".join(prompts))
        ids.write_bytes(b"\xef\xbb\xbf1,2\n3")
        run = ["run", "--model", self.adder, "--max-new", 1]
        for file, option, wanted in ((texts, "--prompt-file", prompts), (ids, "--token-ids-file", [b"\1\2", b"\3"])):
            sequences = culet_json(*run, option, file)["sequences"]
            self.assertEqual([bytes(s["prompt"]) for s in sequences], wanted)
        texts.write_bytes(b"\xef\xbb\xbf\n")
        self.assertIn("holds no prompt", self.refused("run", "--model", self.adder, "--prompt-file", texts))

    def test_a_batch_is_profiled_as_one(self):
        profile = culet_json("run", "--model", self.adder, "--prompt", self.PROMPT, "--batch", 3,
                             "--profile")["profile"]
        one = culet_json("run", "--model", self.adder, "--prompt", self.PROMPT,
                         "--profile")["profile"]
        operations = lambda part: sum(node["operations"] for node in part["prompt"]
                                      if node["name"] == "layers.0.up")
        self.assertEqual(operations(profile), 3 * operations(one))

    def test_refusals(self):
        run = ["run", "--model", self.adder]
        self.assertIn("--token-ids is empty", self.refused(*run, "--token-ids", "", code=2))
        self.assertIn("--token-ids is empty",
                      self.refused("compare", *run[1:], "--token-ids", " ", code=2))
        self.assertIn("token 1 of the prompt is ''", self.refused(*run, "--token-ids", "49,,50"))
        self.assertIn("token 0 of the prompt is '0x31'", self.refused(*run, "--token-ids", "0x31"))
        file = self.folder / "prompts"
        file.write_text("49\n49,x\n")
        self.assertIn(f"token 1 of line 2 of {file} is 'x'",
                      self.refused(*run, "--token-ids-file", file))
        file.write_text("\n")
        self.assertIn("holds no prompt", self.refused(*run, "--prompt-file", file))
        self.assertIn("cannot be read", self.refused(*run, "--prompt-file", self.folder / "no"))
        self.assertIn("--batch repeats one prompt",
                      self.refused(*run, "--prompt-file", file, "--batch", 2, code=2))
        self.assertIn("--dump takes one prompt", self.refused(*run, "--prompt", 1, "--batch", 2,
                                                              "--dump", self.folder / "d", code=2))
        self.assertIn("exclude each other",
                      self.refused(*run, "--prompt", 1, "--prompt-file", file, code=2))

    def test_tokens_are_drawn_by_a_seed(self):
        run = ["run", "--model", self.adder, "--prompt", "12+", "--max-new", 20]
        drawn = [*run, "--temperature", 5, "--seed", 3]
        tokens = lambda args: [s["tokens"] for s in culet_json(*args)["sequences"]]
        three = tokens([*drawn, "--batch", 3])
        self.assertEqual(three, tokens([*drawn, "--batch", 3, "--dispatch", "cpu"]))
        self.assertNotEqual(three[0], three[1])  # each has a seed of its own
        self.assertEqual(three[:1], tokens(drawn))
        self.assertEqual(three[1:2], tokens([*run, "--temperature", 5, "--seed", 4]))
        self.assertEqual(tokens(run), tokens([*drawn, "--top-k", 1]))
        self.assertEqual(tokens(run), tokens([*drawn, "--top-p", 1e-6]))
        self.assertEqual(tokens(run), tokens([*drawn, "--min-p", 1]))
        # What no seed was given for can be had again.
        document = culet_json(*run, "--temperature", 2, "--top-k", 7)
        sampling = document["sampling"]
        self.assertEqual((sampling["temperature"], sampling["top_k"]), (2, 7))
        again = tokens([*run, "--temperature", 2, "--top-k", 7, "--seed", sampling["seed"]])
        self.assertEqual([s["tokens"] for s in document["sequences"]], again)
        self.assertNotIn("sampling", culet_json(*run))
        self.assertIn("drawn with temperature 5, seed 3", culet(*drawn)[1])

    def test_sampling_that_has_no_meaning(self):
        run = ["run", "--model", self.adder, "--prompt", "1+1="]
        drawn = [*run, "--temperature", 1]
        for args, words in ((["--temperature", -1], "--temperature is -1"),
                            (["--temperature", "nan"], "--temperature is nan"),
                            (["--top-k", -1], "--top-k is -1"), (["--top-p", 0], "--top-p is 0"),
                            (["--top-p", 1.5], "--top-p is 1.5"), (["--min-p", 2], "--min-p is 2"),
                            (["--seed", -1], "--seed"), (["--top-k", "x"], "--top-k")):
            self.assertIn(words, self.refused(*(run if args[0] == "--temperature" else drawn), *args,
                                              code=2))
        for option in ("--top-k", "--top-p", "--min-p", "--seed"):
            self.assertIn(f"{option} is for tokens that are drawn", self.refused(*run, option, 1,
                                                                                 code=2))

    def test_a_text_is_refused_where_there_is_a_tokenizer(self):
        folder = self.copy()
        (folder / "tokenizer.json").write_text("{}")
        for command in ("run", "compare"):
            err = self.refused(command, "--model", folder, "--prompt", "1+1=")
            self.assertIn("has a tokenizer, tokenizer.json", err)
            self.assertIn("give --token-ids as the Python package transformers makes them", err)
        texts = folder / "texts"
        texts.write_text("1+1=\n")
        self.assertIn("give --token-ids-file",
                      self.refused("run", "--model", folder, "--prompt-file", texts))
        out, _ = culet("run", "--model", folder, "--token-ids", "49,43,49,61")
        self.assertEqual(out, "50,10\n")

    def test_compare_stays_within_the_models_positions(self):
        compare = ["compare", "--model", self.adder, "--prompt", "1+1="]
        self.assertIn("the prompt has 4 tokens and --steps is 61; ",
                      self.refused(*compare, "--steps", 61))
        out, _ = culet(*compare, "--steps", 60)
        self.assertIn("all within their bounds\n", out)

    def test_a_gguf_file(self):
        file = self.folder / "model.gguf"
        file.write_bytes(b"GGUF\3\0\0\0" + bytes(1000))
        for command in (["run", "--prompt", 1], ["compare", "--prompt", 1], ["bench", "--m", 1],
                        ["tune", "--m", 1]):
            err = self.refused(*command, "--model", file)
            self.assertIn("metadata general.architecture is missing; known in GGUF files are llama", err)


class Quantize(Case):
    def test_a_checkpoint_is_written_and_runs(self):
        out = self.folder / "out"
        made = culet_json("quantize", self.adder, out, "--format", "fp8-row")
        self.assertEqual(made["format"], "fp8-row")
        self.assertEqual((made["quantised"], made["plain"]), (42, []))  # its head is the embedding
        self.assertLess(made["bytes_after"], made["bytes_before"])
        again, _ = culet("run", "--model", out, "--prompt", self.PROMPT)
        self.assertIn(self.ANSWER, again)
        err = self.refused("quantize", self.adder, out, "--format", "u4")
        self.assertIn("exists and is no empty folder; name a new one", err)
        err = self.refused("quantize", out, self.folder / "again", "--format", "u4")
        self.assertIn("is quantised already", err)
        self.refused("quantize", self.adder, self.folder / "again", "--format", "q4", code=2)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["out"])


class Faults(Case):
    def with_nan(self, tensor):
        """The adder with a NaN in one weight."""
        folder = self.copy()
        data = bytearray((self.adder / "model.safetensors").read_bytes())
        size, = struct.unpack("<Q", data[:8])
        begin = 8 + size + json.loads(data[8:8 + size])[tensor]["data_offsets"][0]
        data[begin + 6:begin + 8] = struct.pack("<H", NAN)
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors").write_bytes(data)
        return folder

    def test_a_nan_names_the_first_node_that_made_it(self):
        for tensor, node in (("model.layers.3.mlp.up_proj.weight", "(layers.3.up) mul_mat"),
                             ("model.norm.weight", "(final_norm) rms_norm")):
            folder = self.with_nan(tensor)
            for command in ("run", "compare"):
                err = self.refused(command, "--model", folder, "--prompt", "1+1=")
                self.assertIn(node, err)
                self.assertIn("the first value with a NaN", err)
            error = culet_json("run", "--model", folder, "--prompt", 1, code=1)["error"]
            self.assertEqual(error["code"], "DATA_LOSS")

    def test_a_dump_is_opened_before_the_work_and_written_whole(self):
        run = ["run", "--model", self.adder, "--prompt", "1+1="]
        # Text comes with the first token: nothing was computed.
        for path in (self.folder / "no" / "dump", self.folder):
            self.assertIn("cannot be written", self.refused(*run, "--dump", path))
        out, err = culet(*run, "--dump", "/dev/full", code=1)
        self.assertIn("/dev/full cannot be written: No space left on device", err)
        # A run that fails leaves the file of the one before.
        dump = self.folder / "dump"
        dump.write_text("old")
        folder = self.with_nan("model.norm.weight")
        self.refused("run", "--model", folder, "--prompt", 1, "--dump", dump)
        self.assertEqual(dump.read_text(), "old")
        self.assertEqual(list(self.folder.glob("dump*")), [dump])
        culet(*run, "--dump", dump)
        self.assertGreater(dump.stat().st_size, 4 * 256 * 4)
        self.assertEqual(list(self.folder.glob("dump*")), [dump])

    def test_a_full_stdout_ends_the_run(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([CLI, "run", "--model", str(self.adder), "--prompt", "1+1="],
                                  stdout=full, stderr=subprocess.PIPE, text=True,
                                  env=dict(os.environ, CULET_CACHE="off"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("stdout could not be written", done.stderr)


class Tuned(Case):
    def test_a_bench_of_decoding_keeps_what_it_tuned(self):
        document = culet_json("bench", "--decode", "--model", self.adder, "--steps", 3, "--batch",
                              2, "--context", 20, "--prefill", 8, "--tune", "--cache", self.cache)
        self.assertFalse(document["interrupted"])
        self.assertGreater(document["decode_tokens_per_s"], 0)
        self.assertGreater(len(self.cache.read_text().splitlines()), 5)


class Interrupts(Case):
    """Each command would run for long."""

    def start(self, *args):
        process = subprocess.Popen([CLI, *map(str, args)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=dict(os.environ, CULET_CACHE="off"))
        self.addCleanup(process.kill)
        return process

    def await_handler(self, process):
        """Returns when the process notes Ctrl-C instead of dying of it."""
        bit = 1 << (signal.SIGINT - 1)
        while process.poll() is None:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            caught, = [line for line in status.splitlines() if line.startswith("SigCgt:")]
            if int(caught.split()[1], 16) & bit:
                return
            time.sleep(0.01)
        self.fail(f"ended at once: {process.stderr.read().decode()}")

    def interrupted(self, process):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        self.assertEqual(process.returncode, 130, err)
        return out.decode(), err.decode()

    def endless(self):
        return self.copy(max_position_embeddings=1 << 20, eos_token_id=255)

    def test_a_run_streams_and_keeps_what_was_said(self):
        run = ["run", "--model", self.endless(), "--prompt", "1+1=", "--max-new", 50000]
        process = self.start(*run, "--tune", "--cache", self.cache)
        said = process.stdout.read(6)  # would wait for the end of a run that does not stream
        self.assertIsNone(process.poll())
        out, err = self.interrupted(process)
        self.assertEqual(said, b"1+1=2\n")
        self.assertTrue(out.endswith("\n"))
        self.assertLess(len(out), 50000)
        self.assertIn("4 tokens read in ", err)
        self.assertIn("culet: interrupted", err)
        self.assertGreater(len(self.cache.read_text().splitlines()), 5)

    def test_a_runs_document_says_that_it_was_interrupted(self):
        process = self.start("run", "--model", self.endless(), "--token-ids", "49", "--batch", 2,
                             "--max-new", 50000, "--json")
        self.await_handler(process)
        document = json.loads(self.interrupted(process)[0])
        self.assertTrue(document["interrupted"])
        self.assertEqual([s["end"] for s in document["sequences"]], ["interrupted"] * 2)

    def test_compare_reports_the_nodes_until_then(self):
        compare = ["compare", "--model", self.endless(), "--prompt", "1+1=", "--steps", 50000]
        process = self.start(*compare, "--tune", "--cache", self.cache, "--json")
        self.await_handler(process)
        document = json.loads(self.interrupted(process)[0])
        self.assertTrue(document["interrupted"])
        self.assertEqual(document["beyond"], 0)
        process = self.start(*compare)
        self.await_handler(process)
        out, err = self.interrupted(process)
        self.assertRegex(out, r"\d+ nodes?, all within their bounds\n$")
        self.assertIn("interrupted", err)

    def test_a_bench_of_decoding_says_what_it_has(self):
        bench = ["bench", "--decode", "--model", self.adder, "--steps", 100000, "--context", 32,
                 "--prefill", 8]
        process = self.start(*bench, "--tune", "--cache", self.cache, "--json")
        self.await_handler(process)
        document = json.loads(self.interrupted(process)[0])
        self.assertTrue(document["interrupted"])
        process = self.start(*bench)
        self.await_handler(process)
        out, err = self.interrupted(process)
        self.assertIn("random weights", out)
        self.assertIn("interrupted", err)
        self.assertNotIn("inf", out)
        self.assertNotIn("nan", out)


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
