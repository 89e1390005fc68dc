"""`culet chat`: what a conversation gives the model, and what the checkpoint's files say of sampling and of
special tokens."""

import contextlib
import io
import unittest
from unittest import mock

import culet
from culet import _chat
from culet._tokenizer import Tokenizer
from test_llm import ADDER, Folder, byte_level, package


class Model:
    """Repeats how many messages it was given; remembers what."""

    def __init__(self, **defaults):
        self.defaults, self.asked = defaults, []

    def sampling_defaults(self):
        return dict(self.defaults)

    def stream(self, prompt, **options):
        self.asked.append((prompt, options))
        if prompt[-1] == said("user", "wrong"):
            raise culet.InvalidArgument("that is wrong")
        yield from (str(len(prompt)), "!")


def said(role, text):
    return {"role": role, "content": text}


class Conversation(unittest.TestCase):
    def talk(self, model, *lines, options=()):
        """What a conversation printed, and what went to stderr."""
        chat = _chat.Chat(model, _chat.parser().parse_args(["folder", *options]))
        printed, errors = io.StringIO(), io.StringIO()
        with mock.patch("sys.stdin", io.StringIO("\n".join(lines))), contextlib.redirect_stdout(printed), \
                contextlib.redirect_stderr(errors):
            _chat._talk(chat)
        return printed.getvalue(), errors.getvalue()

    def test_what_was_said_goes_on(self):
        model = Model()
        self.assertEqual(self.talk(model, "a", "", "b"), ("1!\n3!\n", ""))
        self.assertEqual(model.asked[1][0], [said("user", "a"), said("assistant", "1!"), said("user", "b")])

    def test_a_new_one(self):
        model = Model()
        self.talk(model, "a", "/new", "b", "/quit", "c", options=("--system", "Be brief."))
        system = said("system", "Be brief.")
        self.assertEqual([prompt for prompt, _ in model.asked], [[system, said("user", "a")], [system, said("user", "b")]])

    def test_an_error_ends_no_conversation(self):
        model = Model()
        printed, errors = self.talk(model, "a", "wrong", "b")
        self.assertEqual((printed, errors), ("1!\n3!\n", "culet: that is wrong\n"))
        self.assertEqual([message["content"] for message in model.asked[-1][0]], ["a", "1!", "b"])

    def test_raw(self):
        model = Model()
        self.talk(model, "xyz", "xyz", options=("--raw",))
        self.assertEqual([prompt for prompt, _ in model.asked], ["xyz", "xyz"])

    def test_sampling(self):
        model = Model(temperature=0.6, top_p=0.9, top_k=20)
        self.talk(model, "a")
        self.talk(model, "a", options=("--temperature", "0", "--top-p", "0.5", "--top-k", "3", "--seed", "7",
                                       "--max-new-tokens", "5"))
        self.assertEqual(model.asked[0][1], {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "max_new_tokens": 1024})
        self.assertEqual(model.asked[1][1],
                         {"temperature": 0.0, "top_p": 0.5, "top_k": 3, "seed": 7, "max_new_tokens": 5})


class Files(unittest.TestCase):
    def test_what_generation_config_recommends(self):
        for config, wanted in (({}, {}), ({"do_sample": False, "temperature": 0.6, "top_p": 0.9}, {}),
                               ({"do_sample": True}, {"temperature": 1.0}),
                               ({"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": None, "eos_token_id": 2},
                                {"temperature": 0.6, "top_k": 20})):
            llm = culet.LLM(Folder(self, generation_config=config).path, device="cpu")
            self.assertEqual(llm.sampling_defaults(), wanted)
            llm.generate("1+1=", max_new_tokens=2, **llm.sampling_defaults())
        self.assertEqual(culet.LLM(ADDER, device="cpu").sampling_defaults(), {})

    def test_files_and_messages_that_are_none(self):
        package("jinja2")
        folder = Folder(self, tokenizer_config={"chat_template": "{{ messages[0].content + '!' }}"})
        llm = culet.LLM(folder.path, device="cpu")
        self.assertEqual(llm.chat_prompt([said("user", "x")]), "x!")
        for wrong in (said("user", None), said("user", 3), {"role": "user"}):
            with self.assertRaisesRegex(culet.InvalidArgument, "the messages and the chat template do not fit: "):
                llm.generate([wrong])
        for name in ("tokenizer_config", "generation_config"):
            folder = Folder(self, **{name: [1]})
            with self.assertRaisesRegex(culet.Error, f"{name}.json is not a JSON object"):
                culet.LLM(folder.path, device="cpu").sampling_defaults()
        folder = Folder(self, tokenizer_config={"chat_template": [1]})
        with self.assertRaisesRegex(culet.Error, "has no chat template"):
            culet.LLM(folder.path, device="cpu").generate([said("user", "1")])

    def test_one_beginning(self):
        """The tokenizer writes the beginning of a text, and the template that of a conversation."""
        package("jinja2")
        from tokenizers import processors
        made, begin = byte_level(), "!"
        made.post_processor = processors.TemplateProcessing(single=f"{begin} $A", special_tokens=[(begin, ord(begin))])
        folder = Folder(self, tokenizer_config={"bos_token": begin, "chat_template":
                                                "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"})
        made.save(str(folder.path / "tokenizer.json"))
        llm = culet.LLM(folder.path, device="cpu")
        wanted = list(b"!1+1")
        self.assertEqual(llm.tokens("1+1"), wanted)
        self.assertEqual(llm.tokens([said("user", "1+1")]), wanted)
        self.assertEqual(llm.chat_prompt([said("user", "1+1")]), "!1+1")

    def test_what_a_tokenizer_was_trained_with(self):
        """Truncation and padding are for batches; special tokens are no text."""
        made = byte_level()
        made.add_special_tokens(["<|end|>"])
        made.enable_truncation(2)
        made.enable_padding(length=8)
        folder = Folder(self)
        made.save(str(folder.path / "tokenizer.json"))
        tokenizer = Tokenizer(str(folder.path / "tokenizer.json"))
        self.assertEqual(tokenizer.encode("12345"), list(b"12345"))
        self.assertEqual(tokenizer.encode("1<|end|>"), [ord("1"), made.token_to_id("<|end|>")])
        self.assertEqual(tokenizer.decode([ord("1"), made.token_to_id("<|end|>"), ord("2")]), "12")


if __name__ == "__main__":
    unittest.main()
