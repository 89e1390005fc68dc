"""Text around an answer: stop strings that name special tokens, prompts that end within a character, what a
checkpoint's files say of special tokens, JSON in chat templates. The oracle is the package transformers, whose
answers (5.24) stand here."""

import json
import unittest

import culet
from culet._llm import StopStrings
from culet._tokenizer import ByteDetokenizer, ChatTemplate, special_tokens
from test_llm import Folder, byte_fallback, byte_level, package, reader_of


class Answers:
    """An LLM that gives tokens of a list."""

    def __init__(self, tokenizer, tokens):
        self._tokenizer, self._tokens = tokenizer, tokens
        self.max_context, self._ahead = 4096, 1
        self._model = self
        self.end_tokens = frozenset()
        self._session = self

    def extend(self, tokens, sampling, steps, ends, on_token):
        made, self._tokens = self._tokens[:steps], self._tokens[steps:]
        return made


def answer(tokenizer, tokens, prompt=(), stops=()):
    """The text, how many tokens it took, and why it ended."""
    from culet._llm import Stream
    stream = Stream(Answers(tokenizer, list(tokens)), list(prompt) or [65], len(tokens), tuple(stops), None)
    text = "".join(stream)
    return text, len(stream.tokens), stream.finish_reason


class StopsOfSpecialTokens(unittest.TestCase):
    def setUp(self):
        made = byte_level()
        made.add_special_tokens(["<|im_end|>", "<|x|>"])
        self.end, self.other = made.token_to_id("<|im_end|>"), made.token_to_id("<|x|>")
        self.tokenizer = reader_of(self, made)

    def test_a_special_token(self):
        hi = list(b"hi")
        for stops, wanted in ((["<|im_end|>"], ("hi", 3, "stop")), (["nothing", "<|im_end|>"], ("hi", 3, "stop")),
                              (["i<|im"], ("h", 3, "stop")), (["<|im_end|>y"], ("hi", 4, "stop")),
                              (["iyo"], ("h", 5, "stop")),  # which stands in the text, too
                              (["<|x|>"], ("hiyou", 6, "length")), ([], ("hiyou", 6, "length"))):
            with self.subTest(stops=stops):
                self.assertEqual(answer(self.tokenizer, [*hi, self.end, *b"you"], stops=stops), wanted)

    def test_pieces(self):
        def fed(stops, *pieces):
            reader = StopStrings(tuple(stops))
            out = [reader.feed(*piece) for piece in pieces]
            return out, reader.rest(), reader.found

        self.assertEqual(fed(["<e>"], ("a",), ("<",), ("b", "<e>")), (["a", "", "<b"], "", True))
        self.assertEqual(fed(["b<e>"], ("ab",), ("", "<e>")), (["a", ""], "", True))
        self.assertEqual(fed(["b<e>c"], ("ab",), ("", "<e>"), ("d",)), (["a", "", "bd"], "", False))
        self.assertEqual(fed(["b<e>c"], ("ab",), ("", "<e>")), (["a", ""], "b", False))

    def test_what_ends_first_counts(self):
        self.assertEqual(answer(self.tokenizer, [*b"ab", self.end, *b"cd"], stops=["cd", "b<|im_end|>"]), ("a", 3, "stop"))
        self.assertEqual(answer(self.tokenizer, [*b"a", self.other, *b"b"], stops=["ab", "<|x|>b"]), ("", 3, "stop"))


class CutCharacters(unittest.TestCase):
    """A prompt of tokens may end within a character. What the answer's first token adds to it is not lost, and what
    it does not go on with is no part of the answer."""

    def bytes_and_tokenizers(self):
        from culet._tokenizer import ByteTokenizer
        yield ByteTokenizer(), 0
        yield reader_of(self, byte_level()), 0
        yield reader_of(self, byte_fallback()), 1  # behind <unk>

    def test_cut(self):
        package("tokenizers")
        for tokenizer, first in self.bytes_and_tokenizers():
            for prompt, tokens, wanted in ((b"a\xc3", b"\xa9b", "éb"), (b"a\xe2\x82", b"\xacb", "€b"),
                                           (b"a\xe2", b"\x82\xac", "€"), (b"\xf0\x9f\x98", b"\x80", "😀"),
                                           (b"a\xc3", b"bc", "bc"), (b"\xe2\x82", b"b\xc3\xa9", "bé"),
                                           (b"a\xc3", b"\xc3\xa9", "é"), (b"\xc3\xa9", b"b", "b"),
                                           (b"a\xef\xbf\xbd", b"b", "b"), (b"\xf0\x9f", b"", ""),
                                           (b"a" * 20 + b"\xc3", b"\xa9", "é")):
                with self.subTest(tokenizer=type(tokenizer).__name__, prompt=prompt, tokens=tokens):
                    text, _, _ = answer(tokenizer, [b + first for b in tokens], [b + first for b in prompt])
                    self.assertEqual(text, wanted)

    def test_bytes_one_by_one(self):
        reader = ByteDetokenizer(b"\xe2")
        self.assertEqual([reader.step(0x82), reader.step(0xAC), reader.step(0x62)], ["", "€", "b"])


class SpecialTokens(unittest.TestCase):
    def named(self, config, others=None):
        folder = Folder(self, tokenizer_config=config, **({} if others is None else {"special_tokens_map": others}))
        return special_tokens(str(folder.path), config)

    def test_where_they_stand(self):
        decoder = {"added_tokens_decoder": {"257": {"content": "<b>", "special": True}}}
        b, e = {"bos_token": "<b>"}, {"bos_token": "<e>"}
        for config, others, wanted in (
                ({}, b, b), ({}, {"bos_token": {"content": "<b>", "lstrip": False}}, b),
                ({"bos_token": None}, b, b), ({"bos_token": None, **decoder}, b, {}), (decoder, b, {}),
                (e, b, b), (e, {"bos_token": None}, {}), ({**e, **decoder}, b, e),
                ({"extra_special_tokens": {"image_token": "<x>", "bos_token": "<b>"}}, None,
                 {"image_token": "<x>", "bos_token": "<b>"}),
                ({"extra_special_tokens": ["<x>"]}, None, {}), ({}, {"extra_special_tokens": {"image_token": "<x>"}},
                                                                {"image_token": "<x>"}),
                ({"model_specific_special_tokens": {"image_token": "<x>"}}, None, {"image_token": "<x>"}),
                ({"additional_special_tokens": ["<x>"]}, None, {}), ({"foo_token": "<x>"}, None, {"foo_token": "<x>"}),
                ({"bos_token": {"__type": "AddedToken", "content": "<b>"}}, None, b), ({"add_bos_token": True}, None, {}),
                ({"bos_token": {}}, None, {}), ({"bos_token": 3}, None, {})):
            with self.subTest(config=config, others=others):
                self.assertEqual(self.named(config, others), wanted)

    def test_null_is_to_have_none(self):
        """Where the configuration says nothing, the tokenizer's class does."""
        kind = {"tokenizer_class": "Qwen2Tokenizer"}
        self.assertEqual(self.named(kind)["eos_token"], "<|endoftext|>")
        self.assertNotIn("bos_token", self.named(kind))
        self.assertNotIn("eos_token", self.named({**kind, "eos_token": None}))
        self.assertEqual(self.named({"tokenizer_class": "LlamaTokenizerFast"})["bos_token"], "<s>")
        self.assertNotIn("bos_token", self.named({"tokenizer_class": "LlamaTokenizer", "bos_token": None}))
        self.assertEqual(self.named({"tokenizer_class": ["x"]}), {})

    def test_in_a_template(self):
        package("jinja2")
        folder = Folder(self, tokenizer_config={"chat_template": "{{ bos_token }}{{ image_token }}",
                                                "extra_special_tokens": {"image_token": "<x>"}},
                        special_tokens_map={"bos_token": {"content": "<b>"}})
        self.assertEqual(ChatTemplate(str(folder.path)).render([]), "<b><x>")


class Files(unittest.TestCase):
    def test_json_in_templates(self):
        package("jinja2")
        value = {"ü": "<é>", "a": [1, 2]}

        def rendered(arguments):
            folder = Folder(self, tokenizer_config={"chat_template": "{{ x | tojson" + arguments + " }}"})
            return ChatTemplate(str(folder.path)).render([], x=value)

        for arguments, options in (("", {}), ("(indent=2)", {"indent": 2}), ("(True)", {"ensure_ascii": True}),
                                   ("(false, 4)", {"indent": 4}), ("(False, none, (',', ':'))", {"separators": (",", ":")}),
                                   ("(ensure_ascii=True, separators=(', ', '='), sort_keys=True)",
                                    {"ensure_ascii": True, "separators": (", ", "="), "sort_keys": True}),
                                   ("(False, 1, none, True)", {"indent": 1, "sort_keys": True})):
            self.assertEqual(rendered(arguments), json.dumps(value, **{"ensure_ascii": False, **options}), arguments)
        with self.assertRaisesRegex(culet.InvalidArgument, "do not fit"):
            rendered("(default=1)")

    def test_byte_order_marks(self):
        package("jinja2")
        folder = Folder(self)
        mark = b"\xef\xbb\xbf"
        (folder.path / "tokenizer_config.json").write_bytes(mark + b'{"bos_token": "1"}')
        (folder.path / "chat_template.jinja").write_bytes(mark + b"{{ bos_token }}+")
        self.assertEqual(ChatTemplate(str(folder.path)).render([]), "1+")


class Prompts(unittest.TestCase):
    def test_arrays(self):
        numpy = package("numpy")
        llm = culet.LLM(Folder(self).path, device="cpu")
        one, two = (numpy.frombuffer(text, numpy.uint8) for text in (b"1+2=", b"3+4="))
        self.assertEqual(llm.generate(one), "3")
        self.assertEqual(llm.generate([one, two]), ["3", "7"])
        self.assertEqual(llm.generate([one, "5+5=", list(b"2+2=")]), ["3", "10", "4"])
        self.assertEqual(llm.generate(numpy.stack([one, two])), ["3", "7"])
        self.assertEqual(llm.generate(list(one)), "3")  # tokens of numpy's own kind


if __name__ == "__main__":
    unittest.main()
