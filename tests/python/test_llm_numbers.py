"""Numbers, tokens and devices of culet.LLM as numpy, torch and tokenizers give them."""

import json
import shutil
import tempfile
import unittest
import warnings
from pathlib import Path

import culet

ADDER = Path(__file__).resolve().parents[2] / "examples/adder"
PROMPT, ANSWER = "481516+42108=", "523624"


class Whole:
    """An integer that is no int, as numpy's and torch's are."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


class Real:
    """A number that is no float."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return self.value


class Listed:
    """An array of tokens."""

    def __init__(self, tokens):
        self.tokens = tokens

    def tolist(self):
        return self.tokens


class Device:
    """torch.device."""

    def __str__(self):
        return "cpu"


class Arguments(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = culet.LLM(ADDER, device=Device(), max_context=Whole(64))

    def test_numbers(self):
        self.assertEqual((self.llm.device, self.llm.max_context), ("cpu", 64))
        short = self.llm.generate(PROMPT, max_new_tokens=Whole(3), temperature=Real(0.0), top_k=Whole(0))
        self.assertEqual(short, ANSWER[:3])
        drawn = [self.llm.generate(PROMPT, temperature=Real(2.0), seed=seed) for seed in (7, Whole(7))]
        self.assertEqual(*drawn)

    def test_tokens(self):
        tokens = list(PROMPT.encode())
        for prompt in (Listed(tokens), [Whole(token) for token in tokens]):
            self.assertEqual(self.llm.generate(prompt), ANSWER)
            self.assertEqual("".join(self.llm.stream(prompt)), ANSWER)
        self.assertEqual(self.llm.generate(Listed([tokens, tokens])), [ANSWER, ANSWER])

    def test_refused(self):
        for words, prompt, options in (
                ("max_new_tokens is True", "1", {"max_new_tokens": True}),
                ("temperature is True", "1", {"temperature": True}), ("top_p is None", "1", {"top_p": None}),
                (r"temperature is an integer of 1329 bits; give", "1", {"temperature": 10**400}),
                ("prompt is a list", [True], {}), ("prompt is a list", [1.0], {}),
                ("prompt is a float", Listed(1.0), {}), ("the token 300", Listed([300]), {})):
            with self.subTest(words=words), self.assertRaisesRegex(culet.InvalidArgument, words):
                self.llm.generate(prompt, **options)
        for value in (2**31 - 1, 10**12):
            with self.assertRaisesRegex(culet.InvalidArgument, f"max_context is {value}; give less"):
                culet.LLM(ADDER, max_context=value)
        with self.assertRaisesRegex(culet.InvalidArgument, "max_context is 65; the model was made for at most 64"):
            culet.LLM(ADDER, max_context=65)

    def test_a_config_with_keys_without_effect_is_warned_of(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            culet.LLM(ADDER, device="cpu")
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ADDER / "model.safetensors", folder)
            config = json.loads((ADDER / "config.json").read_text())
            Path(folder, "config.json").write_text(json.dumps({**config, "no_such_key": 8}))
            with self.assertWarnsRegex(RuntimeWarning, "unknown keys, which have no effect: no_such_key") as found:
                culet.LLM(folder, device="cpu")
            self.assertEqual(found.filename, __file__)

    def test_arrays_of_torch(self):
        try:
            import torch
        except ImportError as error:
            raise unittest.SkipTest(f"no torch: {error}") from error
        llm = culet.LLM(ADDER, torch.device("cpu"))
        tokens = torch.tensor(list(PROMPT.encode()))
        self.assertEqual(llm.generate(tokens, temperature=torch.tensor(0.0)), ANSWER)
        self.assertEqual(llm.generate(tokens[None]), [ANSWER])


if __name__ == "__main__":
    unittest.main()
