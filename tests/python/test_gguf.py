"""culet.LLM on GGUF files: the tokenizer in them, chat templates, what is refused; and quantize_checkpoint. The
oracle is the package transformers, whose answers (5.24) stand here."""

import json
import os
import tempfile
import unittest
from pathlib import Path

import culet
from culet import _gguf
from culet._tokenizer import ChatTemplate, Tokenizer
from test_llm import ADDER, SOURCE, package

FIXTURES = Path(os.environ.get("CULET_FIXTURES", SOURCE.parent / "shared/fixtures"))

ENCODED = {
    "gguf-llama": {
        "Hello, the set of facets would 1234567 it's":
            [39, 68, 270, 78, 11, 262, 388, 416, 442, 82, 444, 220, 307, 308, 21, 22, 297, 6, 82],
        "naïve Größe\n\n  x  fällt 😀 <|im_start|>user":
            [77, 320, 361, 220, 311, 127, 114, 127, 378, 198, 198, 220, 371, 220, 443, 220, 172, 253, 246, 222, 220,
             598, 358, 268]},
    "gguf-qwen3": {
        "Hello, the set of facets would 1234567 it's":
            [39, 68, 270, 78, 11, 262, 383, 411, 435, 82, 437, 220, 16, 17, 18, 19, 20, 21, 22, 296, 6, 82],
        "naïve Größe\n\n  x  fällt 😀 <|im_start|>user":
            [77, 315, 356, 220, 306, 127, 114, 127, 373, 198, 198, 220, 366, 220, 436, 220, 172, 253, 246, 222, 220,
             618, 353, 268]},
}


def metadata(**more):
    """Of a vocabulary of letters, with keys under tokenizer.ggml."""
    found = {"model": "gpt2", "pre": "llama-bpe", "tokens": ["a", "b", "ab", "Ġ", "<s>", "</s>", "<tool>"],
             "token_type": [1, 1, 1, 1, 3, 3, 4], "merges": ["a b"], "bos_token_id": 4, "eos_token_id": 5, **more}
    return {f"tokenizer.ggml.{key}": value for key, value in found.items()}


class Tokenizers(unittest.TestCase):
    def reader(self, **more):
        package("tokenizers")
        return Tokenizer("some.gguf", _gguf.tokenizer_json("some.gguf", metadata(**more)))

    def test_the_fixtures(self):
        package("tokenizers")
        for name, texts in ENCODED.items():
            folder = FIXTURES.with_name(FIXTURES.name + "2") / name
            if not folder.is_dir():
                self.skipTest(f"no fixture {name}")
            for path in (folder, folder / "model.gguf"):
                llm = culet.LLM(path, device="cpu")
                for text, tokens in texts.items():
                    with self.subTest(path=path, text=text):
                        self.assertEqual(llm.tokens(text), tokens)
                self.assertEqual(llm._tokenizer.decode(llm.tokens("naïve 12")), "naïve 12")
            self.assertEqual(len(llm.generate([1, 2, 3], max_new_tokens=4)) > 0, True)

    def test_what_is_around_a_text(self):
        self.assertEqual(self.reader().encode("ab a"), [4, 2, 3, 0])  # of Llama 3 by default
        self.assertEqual(self.reader().encode("ab", special=False), [2])
        self.assertEqual(self.reader(add_bos_token=False).encode("ab"), [2])
        self.assertEqual(self.reader(pre="qwen2").encode("ab"), [2])
        self.assertEqual(self.reader(pre="qwen2", add_bos_token=True, add_eos_token=True).encode("ab"), [4, 2, 5])

    def test_special_tokens(self):
        reader = self.reader()
        self.assertEqual(reader.encode("a</s><tool>b", special=False), [0, 5, 6, 1])
        self.assertEqual(reader.decode([0, 5, 6, 1]), "a<tool>b")
        self.assertEqual([reader.hidden(token) for token in (0, 5, 6)], ["", "</s>", ""])

    def test_sentence_pieces(self):
        """Pieces are joined by their scores, as the package sentencepiece does it."""
        tokens = ["<unk>", "<s>", "</s>", "<0xC3>", "<0xA4>", "<tool>", "\u2581", "a", "b", "c", "ab", "bc", "\u2581a",
                  "abc", "\u2581\u2581"]
        more = {"model": "llama", "tokens": tokens, "token_type": [2, 3, 3, 6, 6, 4, *[1] * 9],
                "scores": [0.0] * 6 + [-float(i) for i in (9, 10, 11, 12, 3, 0, 2, 4, 5)], "bos_token_id": 1,
                "eos_token_id": 2, "unknown_token_id": 0}
        reader = self.reader(**more)
        # "bc" before "\u2581a" before "ab", of which none is left.
        self.assertEqual(reader.encode("abc"), [1, 12, 11])
        self.assertEqual(reader.encode("cab  ä<tool>z", special=False)[:5], [6, 9, 10, 14, 3])
        self.assertEqual(reader.decode([12, 11, 3, 4, 6, 7]), "abcä a")
        plain = self.reader(**more, add_space_prefix=False, add_bos_token=False)
        self.assertEqual(plain.encode("abab ab"), [10, 10, 12, 8])
        self.assertEqual(plain.decode([10, 12, 8]), "ab ab")
        self.assertEqual(plain.encode("z"), [0])

    def test_refusals(self):
        for more, words in (({"model": "t5"}, "a tokenizer of the kind 't5'; known are gpt2, .*, and llama"),
                            ({"model": "llama"}, "no list of 7 numbers under tokenizer.ggml.scores"),
                            ({"pre": "gpt-4o"}, "the pre-tokenizer 'gpt-4o'; known are llama-bpe, "),
                            ({"merges": None}, "no list of texts under tokenizer.ggml.merges"),
                            ({"tokens": [1]}, "no list of texts under tokenizer.ggml.tokens")):
            with self.subTest(more=more), self.assertRaisesRegex(culet.Error, words):
                _gguf.tokenizer_json("some.gguf", metadata(**more))
        with self.assertRaisesRegex(culet.Error, "some.gguf cannot be read: "):
            self.reader(merges=["a x"])

    def test_a_template(self):
        package("jinja2")
        found = {**metadata(), "tokenizer.chat_template":
                 "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"}
        template = ChatTemplate("/nowhere/some.gguf", found)
        self.assertEqual(template.render([{"role": "user", "content": "hi"}]), "<s>[user]hi</s>")


class Quantize(unittest.TestCase):
    def test_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out"
            culet.quantize_checkpoint(ADDER, out, format="fp8-row")
            config = json.loads((out / "config.json").read_text())
            self.assertEqual(config["quantization_config"]["format"], "float-quantized")
            self.assertEqual(len(culet.LLM(out, device="cpu").generate("1+1=", max_new_tokens=2)) > 0, True)
            for arguments, words in (((ADDER, out, "u4"), "exists and is no empty folder"),
                                     ((out, out / "x", "u4"), "is quantised already"),
                                     ((ADDER, out / "x", "q8"), "the format 'q8' is unknown; known are u4, "),
                                     ((ADDER, out / "x", 4), "format is 4; give 'u4'")):
                with self.subTest(words=words), self.assertRaisesRegex(culet.InvalidArgument, words):
                    culet.quantize_checkpoint(*arguments)
            kept = Path(folder) / "kept"
            culet.quantize_checkpoint(ADDER, kept, "fp8-row", keep=["o_proj", "re:.*mlp"])
            ignored = json.loads((kept / "config.json").read_text())["quantization_config"]["ignore"]
            self.assertIn("model.layers.0.self_attn.o_proj", ignored)
            self.assertIn("model.layers.0.mlp.up_proj", ignored)
            self.assertNotIn("model.layers.0.self_attn.q_proj", ignored)
            for keep, words in (("o_proj", r"give a list of names, \['o_proj'\]"), ([3], "keep has 3;"),
                                (["x"], "keep has 'x', which names no linear layer")):
                with self.subTest(words=words), self.assertRaisesRegex(culet.InvalidArgument, words):
                    culet.quantize_checkpoint(ADDER, out / "x", keep=keep)
            self.assertEqual(sorted(os.listdir(folder)), ["kept", "out"])


if __name__ == "__main__":
    unittest.main()
