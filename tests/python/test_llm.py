"""culet.LLM and `culet chat` on the model that learnt to add, whose tokens are bytes: answers, streams,
sampling, stop strings, tokenizers, chat templates, Ctrl-C, what is refused."""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

import culet
from culet import _chat, _session
from culet._llm import StopStrings
from culet._tokenizer import ByteDetokenizer, ChatTemplate, Tokenizer
from interrupts import interrupt_until

SOURCE = Path(__file__).resolve().parents[2]
ADDER = SOURCE / "examples/adder"
PROMPT, ANSWER = "481516+42108=", "523624"


def package(name):
    try:
        return __import__(name)
    except ImportError as error:
        raise unittest.SkipTest(f"no {name}: {error}") from error


class Folder:
    """A copy of the model's folder with files of its own."""

    def __init__(self, test, **files):
        self.path = Path(tempfile.mkdtemp())
        test.addCleanup(shutil.rmtree, self.path)
        for name in ("config.json", "model.safetensors"):
            os.symlink(ADDER / name, self.path / name)
        for name, content in files.items():
            (self.path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def byte_level():
    """A tokenizer whose tokens 0 to 255 are bytes, and 256 joins two of them."""
    tokenizers = package("tokenizers")
    from tokenizers import decoders, models, pre_tokenizers
    # The letters that byte-level tokenizers write bytes with: printable ones stand for themselves.
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    letters.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    vocab = {letters[byte]: byte for byte in range(256)}
    made = tokenizers.Tokenizer(models.BPE({**vocab, "he": 256}, [("h", "e")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return made


def byte_fallback():
    """A tokenizer of SentencePiece's kind: spaces as ▁, the first one dropped, bytes for the rest."""
    tokenizers = package("tokenizers")
    from tokenizers import decoders, models, normalizers
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "h", "e", "▁he", "▁w", "o"]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    made = tokenizers.Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                      decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return made


def reader_of(test, tokenizer):
    path = Path(tempfile.mkdtemp()) / "tokenizer.json"
    test.addCleanup(shutil.rmtree, path.parent)
    tokenizer.save(str(path))
    return Tokenizer(str(path))


class Generate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = culet.LLM(ADDER, device="cpu")

    def test_an_answer(self):
        self.assertEqual(self.llm.generate(PROMPT), ANSWER)
        self.assertEqual(self.llm.generate(list(PROMPT.encode())), ANSWER)
        self.assertIn("adder", repr(self.llm))

    def test_a_stream(self):
        stream = self.llm.stream(PROMPT)
        self.assertEqual((next(stream), stream.finish_reason), ("5", None))
        self.assertEqual(list(stream), list(ANSWER[1:]))
        self.assertEqual((stream.finish_reason, bytes(stream.tokens)), ("stop", ANSWER.encode()))
        self.assertEqual(bytes(stream.prompt_tokens), PROMPT.encode())
        self.assertEqual(list(stream), [])

    def test_limits(self):
        for options, text, reason in (({"max_new_tokens": 3}, "523", "length"),
                                      ({"max_new_tokens": 0}, "", "length"),
                                      ({"stop": "36"}, "52", "stop"), ({"stop": ["4", "62"]}, "523", "stop"),
                                      ({"stop": "524"}, ANSWER, "stop"),
                                      ({"stop": "249", "max_new_tokens": 6}, ANSWER, "length")):
            with self.subTest(options=options):
                stream = self.llm.stream(PROMPT, **options)
                self.assertEqual(("".join(stream), stream.finish_reason), (text, reason))
        short = culet.LLM(ADDER, device="cpu", max_context=16)
        stream = short.stream(PROMPT)
        self.assertEqual(("".join(stream), stream.finish_reason), (ANSWER[:3], "length"))

    def test_cache_types(self):
        for name in ("float32", "float16", "bfloat16", "float8_e4m3fn"):
            llm = culet.LLM(ADDER, device="cpu", cache_type=name)
            self.assertEqual(llm.generate([PROMPT, "111+222="]), [ANSWER, "333"], name)
            self.assertEqual("".join(llm.stream(PROMPT)), ANSWER, name)

    def test_streams_in_turns(self):
        one, two = self.llm.stream(PROMPT), self.llm.stream("111+222=")
        found = ["", ""]
        for _ in range(len(ANSWER)):
            found[0] += next(one, "")
            found[1] += next(two, "")
        self.assertEqual(found, [ANSWER, "333"])

    def test_threads(self):
        failures = []

        def work(a, b):
            failures.append(self.llm.generate(f"{a}+{b}=") != str(a + b))

        threads = [threading.Thread(target=work, args=(100 + i, 200 + i)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [False] * 4)

    def test_what_the_cache_holds_is_not_computed_again(self):
        llm = culet.LLM(ADDER, device="cpu")
        read, read_prompt, decode = [], llm._session._prefill, llm._session._decode

        def prefilled(sequences, tokens):
            read.append(len(tokens[0]))
            return read_prompt(sequences, tokens)

        def decoded(*arguments):
            made = decode(*arguments)
            read.append(-len(made[0]))
            return made

        with mock.patch.multiple(llm._session, _prefill=prefilled, _decode=decoded):
            llm.generate(PROMPT)
            self.assertEqual(read, [len(PROMPT), -len(ANSWER)])  # the end token's step with them
            read.clear()
            llm.generate(PROMPT[:-2] + "9=", max_new_tokens=1)
            self.assertEqual(read, [2])
            read.clear()
            llm.generate(PROMPT[:-2], max_new_tokens=1)  # the last one's logits are wanted
            self.assertEqual(read, [-1])
            read.clear()
            list(llm.stream(PROMPT))
            self.assertEqual(read, [2] + [-1] * len(ANSWER))

    def test_a_stream_that_is_ahead(self):
        for ahead in (2, 3, 8, 100):
            llm = culet.LLM(ADDER, device="cpu")
            llm._ahead = ahead
            self.assertEqual(list(llm.stream(PROMPT)), list(ANSWER))
            self.assertEqual("".join(llm.stream(PROMPT, stop="36")), "52")
            self.assertEqual("".join(llm.stream(PROMPT, max_new_tokens=4)), ANSWER[:4])
            one, two = llm.stream(PROMPT), llm.stream("111+222=")
            found = ["", ""]
            for _ in range(len(ANSWER)):
                found[0] += next(one, "")
                found[1] += next(two, "")
            self.assertEqual(found, [ANSWER, "333"])
            drawn = {"temperature": 20.0, "max_new_tokens": 12, "seed": 3}
            self.assertEqual("".join(llm.stream(PROMPT, **drawn)), self.llm.generate(PROMPT, **drawn))

    def test_no_room(self):
        """A session that is shorter than it says ends what it makes, and says so."""
        llm = culet.LLM(ADDER, device="cpu", max_context=16)
        llm._session.max_context = 64
        for text in (llm.generate(PROMPT), "".join(llm.stream(PROMPT))):
            self.assertEqual(text, ANSWER[:16 - len(PROMPT) + 1])

    def test_sampling(self):
        def draw(**options):
            return self.llm.generate(PROMPT, temperature=20.0, max_new_tokens=12, **options)
        self.assertEqual(draw(seed=1), draw(seed=1))
        self.assertGreater(len({draw(seed=seed) for seed in range(4)}), 1)
        self.assertGreater(len({draw() for _ in range(4)}), 1)
        for narrow in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
            self.assertEqual(draw(seed=5, **narrow), ANSWER)

    def test_a_list_of_prompts_is_one_batch(self):
        prompts = [PROMPT, "111+222=", list(b"5+5="), "1+1="]
        alone = [self.llm.generate(prompt) for prompt in prompts]
        runs, run = [], _session._Handle._call

        def counted(session, function, *arguments, **options):
            runs.append((function.__name__, arguments[0]._obj.count))
            return run(session, function, *arguments, **options)

        with mock.patch.object(_session._Handle, "_call", counted):
            self.assertEqual(self.llm.generate(prompts), alone)
        self.assertEqual(runs, [("culet_session_prefill", 4), ("culet_session_decode", 4)])
        self.assertEqual(self.llm.generate([PROMPT]), [ANSWER])
        self.assertEqual(self.llm.generate([PROMPT, "1+1="], max_new_tokens=2, stop="2"), ["5", ""])
        self.assertEqual(self.llm.generate([PROMPT, "1+1="], max_new_tokens=0), ["", ""])
        drawn = {"temperature": 20.0, "max_new_tokens": 9}
        self.assertEqual(self.llm.generate([PROMPT] * 3, seed=4, **drawn),
                         [self.llm.generate(PROMPT, seed=seed, **drawn) for seed in (4, 5, 6)])
        with self.assertRaisesRegex(culet.InvalidArgument, "prompt has no tokens"):
            self.llm.generate([PROMPT, ""])
        with self.assertRaisesRegex(culet.InvalidArgument, "min_p is 2"):
            self.llm.generate([PROMPT] * 2, temperature=1.0, min_p=2.0)

    def test_a_stream_outlives_an_interrupt(self):
        stream = self.llm.stream(PROMPT, temperature=0.0)
        found = next(stream)
        with mock.patch.object(self.llm._session, "_decode", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                next(stream)
        found += next(stream)
        session, decode = self.llm._session, self.llm._session._decode

        def too_late(*arguments):
            decode(*arguments)
            raise KeyboardInterrupt

        for _ in range(2):
            with mock.patch.object(session, "_decode", too_late):
                with self.assertRaises(KeyboardInterrupt):
                    next(stream)
        self.assertEqual(found + "".join(stream), ANSWER)

    def test_an_interrupt_ends_a_prefill(self):
        llm = culet.LLM(ADDER, device="cpu")
        session = llm._session

        def until_stopped(*_):
            interrupt_until(lambda: session._stop.value)
            return 1

        # A program in the background ignores the signal.
        self.addCleanup(signal.signal, signal.SIGINT,
                        signal.signal(signal.SIGINT, signal.default_int_handler))
        for _ in range(20):
            for name in ("culet_session_prefill", "culet_session_decode"):
                with mock.patch.object(_session.LIBRARY, name, until_stopped):
                    with self.assertRaises(KeyboardInterrupt):
                        llm.generate(PROMPT)
                self.assertEqual(llm.generate(PROMPT), ANSWER)
                next(llm.stream("1+1="))  # what the cache holds is read again

    def test_an_interrupt_ends_decoding(self):
        """The signal comes while the library makes tokens."""
        llm = culet.LLM(ADDER, device="cpu")
        detokenizer, sent = llm._tokenizer.detokenizer, []

        class Signals:
            """Asks for the end at the third token."""

            def __init__(self, context):
                self.made, self.count = detokenizer(context), 0

            def step(self, token):
                self.count += 1
                if self.count == 3:
                    interrupt_until(lambda: llm._session._stop.value)
                    sent.append(token)
                return self.made.step(token)

        self.addCleanup(signal.signal, signal.SIGINT,
                        signal.signal(signal.SIGINT, signal.default_int_handler))
        with mock.patch.object(llm._tokenizer, "detokenizer", Signals):
            with self.assertRaises(KeyboardInterrupt):
                llm.generate(PROMPT)
        self.assertEqual(len(sent), 1)
        self.assertEqual(llm.generate(PROMPT), ANSWER)

    def test_what_a_detokenizer_raises(self):
        llm = culet.LLM(ADDER, device="cpu")

        class Broken:
            def __init__(self, context):
                self.count = 0

            def step(self, token):
                self.count += 1
                if self.count == 3:
                    raise ZeroDivisionError
                return "x"

            def finish(self):
                return ""

        with mock.patch.object(llm._tokenizer, "detokenizer", Broken):
            for prompt in (PROMPT, [PROMPT, "1+1="]):
                with self.assertRaises(ZeroDivisionError):
                    llm.generate(prompt)
        self.assertEqual(llm.generate(PROMPT), ANSWER)

    def test_goldens(self):
        root = Path(os.environ.get("CULET_FIXTURES", SOURCE.parent / "shared/fixtures"))
        folders = [folder for folder in (root / "llama-gqa", root / "qwen3-qknorm")
                   if (folder / "golden.safetensors").is_file()]
        if not folders:
            self.skipTest(f"no fixtures below {root}")
        for folder in folders:
            golden = (folder / "golden.safetensors").read_bytes()
            size = int.from_bytes(golden[:8], "little")
            header, data = json.loads(golden[8:8 + size]), golden[8 + size:]

            def tensor(name, kind):
                begin, end = header[name]["data_offsets"]
                return list(memoryview(data[begin:end]).cast(kind))

            with self.subTest(folder=folder.name):
                with mock.patch("culet._llm.load_tokenizer", lambda *_: Numbers()):
                    llm = culet.LLM(folder, device="cpu")
                wanted = tensor("greedy_ids", "q")
                stream = llm.stream(tensor("input_ids", "q"), max_new_tokens=len(wanted))
                list(stream)
                sure = next((i for i, margin in enumerate(tensor("greedy_margin", "f")) if margin < 1e-4),
                            len(wanted))
                self.assertEqual(stream.tokens[:sure], wanted[:sure])


class Numbers:
    """Tokens as decimal numbers."""

    def hidden(self, token):
        return ""

    def detokenizer(self, context):
        return self

    def step(self, token):
        return f"{token} "

    def finish(self):
        return ""


class Stops(unittest.TestCase):
    def test_any_split(self):
        pick = random.Random(1)
        for _ in range(2000):
            text = "".join(pick.choice("ab") for _ in range(12))
            stops = tuple("".join(pick.choice("ab") for _ in range(pick.randrange(1, 5)))
                          for _ in range(pick.randrange(3)))
            places = [text.find(stop) for stop in stops if stop in text]
            searcher, found, at = StopStrings(stops), "", 0
            while at < len(text) and not searcher.found:
                step = pick.randrange(1, 4)
                found += searcher.feed(text[at:at + step])
                at += step
                if not searcher.found:  # nothing is out that a stop string could begin with
                    self.assertTrue(text.startswith(found))
            if not searcher.found:
                found += searcher.rest()
            # Where several end in one piece, the first to begin counts.
            self.assertEqual(searcher.found, bool(places))
            self.assertTrue(text.startswith(found))
            if len(stops) == 1 and places:
                self.assertEqual(found, text[:places[0]])
            if not places:
                self.assertEqual(found, text)


class Detokenize(unittest.TestCase):
    TEXTS = ("hehe héé 日本 🎉 hehe", " he wo", "👩‍👩‍👧", "\n\n  x", "")

    def pieces(self, detokenizer, tokens):
        found = [detokenizer.step(token) for token in tokens]
        for piece in found:
            self.assertNotIn("\N{REPLACEMENT CHARACTER}", piece)
        return "".join(found) + detokenizer.finish()

    def test_characters_over_tokens(self):
        for make in (byte_level, byte_fallback):
            reader = reader_of(self, make())
            for text in self.TEXTS:
                tokens = reader.encode(text, special=False)
                for split in (0, len(tokens) // 2, len(tokens)):
                    context = reader.decode(tokens[:split])
                    if context.endswith("\N{REPLACEMENT CHARACTER}"):
                        continue  # no prompt ends within a character
                    with self.subTest(make=make.__name__, text=text, split=split):
                        found = self.pieces(reader.detokenizer(tokens[:split]), tokens[split:])
                        self.assertEqual(context + found, reader.decode(tokens))

    def test_bytes(self):
        for text in self.TEXTS:
            self.assertEqual(self.pieces(ByteDetokenizer(), text.encode()), text)
        cut = ByteDetokenizer()
        self.assertEqual([cut.step(0xE6), cut.step(0x97), cut.finish()],
                         ["", "", "\N{REPLACEMENT CHARACTER}"])

    def test_nonsense(self):
        for make in (byte_level, byte_fallback):
            made = make()
            reader = reader_of(self, made)
            for seed in range(100):
                pick = random.Random(seed)
                tokens = [pick.randrange(made.get_vocab_size()) for _ in range(30)]
                detokenizer = reader.detokenizer(tokens[:5])
                found = "".join(detokenizer.step(token) for token in tokens[5:]) + detokenizer.finish()
                self.assertIsInstance(found, str)
            detokenizer = reader.detokenizer(reader.encode("he", special=False))
            self.assertEqual(detokenizer.finish(), "")

    def test_a_tokenizer_file(self):
        folder = Folder(self)
        byte_level().save(str(folder.path / "tokenizer.json"))
        llm = culet.LLM(folder.path, device="cpu")
        self.assertEqual(llm.generate(PROMPT), ANSWER)
        self.assertEqual(list(llm.stream(PROMPT)), list(ANSWER))
        self.assertEqual(llm.generate(PROMPT, stop="36"), "52")
        with self.assertRaisesRegex(culet.InvalidArgument, "256"):  # the model has no such token
            llm.generate("he+1=")


TEMPLATE = ("{{ bos_token }}{% for message in messages %}{% if message.role == 'system' %}"
            "{{ raise_exception('no system messages') }}{% endif %}\n"
            "    {%- generation %}{{ message.content }}{% endgeneration %}{% endfor %}"
            "{% if add_generation_prompt %}={% endif %}")


class Templates(unittest.TestCase):
    def setUp(self):
        package("jinja2")

    def rendered(self, template, messages, files=(), **variables):
        config = {"chat_template": template, "bos_token": {"content": "1", "lstrip": False}, "x": None}
        folder = Folder(self, tokenizer_config=config)
        for name, text in files:
            (folder.path / name).write_text(text)
        return ChatTemplate(str(folder.path)).render(messages, **variables)

    def test_render(self):
        user = [{"role": "user", "content": "2+3"}]
        self.assertEqual(self.rendered(TEMPLATE, user), "12+3=")
        self.assertEqual(self.rendered(TEMPLATE, user, add_generation_prompt=False), "12+3")
        named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": TEMPLATE}]
        self.assertEqual(self.rendered(named, user), "12+3=")
        self.assertEqual(self.rendered("no", user, [("chat_template.jinja", TEMPLATE)]), "12+3=")
        self.assertEqual(self.rendered("{{ tools | tojson }} {{ thinking }}", [], tools=[{"ü": "<"}],
                                       thinking=False), '[{"ü": "<"}] False')

    def test_errors(self):
        with self.assertRaisesRegex(culet.InvalidArgument, "no system messages"):
            self.rendered(TEMPLATE, [{"role": "system", "content": ""}])
        with self.assertRaisesRegex(culet.InvalidArgument, "do not fit"):
            self.rendered("{% for %}", [])
        with self.assertRaisesRegex(culet.InvalidArgument, "do not fit"):  # the sandbox
            self.rendered("{{ ''.__class__.__mro__[1].__subclasses__() }}", [])
        with self.assertRaisesRegex(culet.Error, "has no chat template"):
            culet.LLM(ADDER, device="cpu").generate([{"role": "user", "content": "1"}])

    def test_a_conversation(self):
        folder = Folder(self, tokenizer_config={"chat_template": TEMPLATE, "bos_token": "48"},
                        generation_config={"do_sample": True, "temperature": 0.01, "top_k": 3,
                                           "eos_token_id": 10})
        llm = culet.LLM(folder.path, device="cpu")
        self.assertEqual(llm.generate([{"role": "user", "content": "1516+42108"}]), ANSWER)
        self.assertEqual(llm.sampling_defaults(), {"temperature": 0.01, "top_k": 3})
        arguments = _chat.parser().parse_args([str(folder.path), "--seed", "1"])
        chat, out = _chat.Chat(llm, arguments), []
        chat.answer("1516+42108", out.append)
        self.assertEqual("".join(out), ANSWER + "\n")
        self.assertEqual(chat.messages, [{"role": "user", "content": "1516+42108"},
                                         {"role": "assistant", "content": ANSWER}])


class Devices(unittest.TestCase):
    def load(self, status):
        """What culet.LLM makes of a GPU whose models fail with a status."""
        gpu = culet.devices()[0]._replace(ordinal=0, arch=900)

        def model(folder, place):
            if place == 0:
                raise culet.Error(status, "no models here")
            return _session.Model(folder, place)

        with mock.patch("culet.devices", lambda: [gpu]), mock.patch("culet._llm.Model", model):
            return culet.LLM(ADDER)

    def test_a_gpu_that_runs_no_models(self):
        with self.assertWarnsRegex(RuntimeWarning, "on the CPU: no models here"):
            llm = self.load("UNSUPPORTED")
        self.assertEqual((llm.device, llm.generate(PROMPT)), ("cpu", ANSWER))
        with self.assertRaisesRegex(culet.Error, "no models here"):
            self.load("RESOURCE_EXHAUSTED")


class Refusals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = culet.LLM(ADDER, device="cpu")

    def test_arguments(self):
        cases = (
            ("prompt is a int", 5, {}), ("prompt has no tokens", "", {}), ("prompt is a list", ["x", 5], {}),
            ("the token 256", [256], {}), ("prompt has 70 tokens, but max_context is 64", "1" * 70, {}),
            ("max_new_tokens is -1", "1", {"max_new_tokens": -1}),
            ("max_new_tokens is 1.5", "1", {"max_new_tokens": 1.5}),
            ("temperature is nan", "1", {"temperature": float("nan")}),
            ("temperature is '1'", "1", {"temperature": "1"}), ("top_p is 0", "1", {"top_p": 0}),
            ("top_p is 1.5", "1", {"top_p": 1.5}), ("top_k is -1", "1", {"top_k": -1}),
            ("min_p", "1", {"min_p": 2, "temperature": 1}), ("stop has ''", "1", {"stop": ["a", ""]}),
            ("stop has 3", "1", {"stop": [3]}), ("seed is -1", "1", {"seed": -1}))
        for words, prompt, options in cases:
            with self.subTest(words=words):
                with self.assertRaisesRegex(culet.InvalidArgument, words):
                    self.llm.generate(prompt, **options)
        self.assertEqual(self.llm.generate(PROMPT), ANSWER)

    def test_folders(self):
        def refused(words, folder=ADDER, **options):
            with self.assertRaisesRegex(culet.Error, words):
                culet.LLM(folder, **options)

        refused("which is no folder", "/no/such/folder")
        for device in ("gpu", "cuda:", "cuda:x", 3, ""):
            refused("give 'cpu', 'cuda' or 'cuda:N'", device=device)
        refused("max_context is 0", max_context=0)
        refused("cache_type is 'fp4'; give float32", device="cpu", cache_type="fp4")
        with tempfile.TemporaryDirectory() as empty:
            refused("config.json", empty, device="cpu")
        folder = Folder(self)
        (folder.path / "vocab.json").write_text("{}")
        refused("no tokenizer.json; write one with", folder.path, device="cpu")
        broken = Folder(self, tokenizer_config={})
        (broken.path / "tokenizer_config.json").write_text("{")
        refused("tokenizer_config.json cannot be read", broken.path, device="cpu")
        package("tokenizers")
        broken = Folder(self, tokenizer={})
        refused("tokenizer.json cannot be read", broken.path, device="cpu")

    def test_a_package_that_is_missing(self):
        with mock.patch.dict(sys.modules, {"tokenizers": None, "jinja2": None}):
            with self.assertRaisesRegex(culet.Error, "pip install 'culet\\[text\\]'"):
                culet.LLM(Folder(self, tokenizer={}).path, device="cpu")
            llm = culet.LLM(Folder(self, tokenizer_config={"chat_template": "x"}).path, device="cpu")
            with self.assertRaisesRegex(culet.Error, "pip install 'culet\\[text\\]'"):
                llm.generate([{"role": "user", "content": "1"}])


if __name__ == "__main__":
    unittest.main()
