"""What families of models write around an answer: channels and thinking tags, which are its text though their tokens
are special, the tokens that end a turn, and what a conversation remembers. The tokenizers are made here."""

import json
import unittest

import culet
from culet._chat import remembered
from culet._tokenizer import ChatTemplate, load_tokenizer, shown_of, special_tokens
from test_llm import ADDER, Folder, byte_level, package, reader_of
from test_llm_text import answer

HARMONY = ("<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>")


class Family:
    """A tokenizer of bytes with special tokens of these names, and tags that are no special ones."""

    def __init__(self, test, special, plain=()):
        made = byte_level()
        made.add_special_tokens(list(special))
        made.add_tokens(list(plain))
        self.number = made.token_to_id
        self.reader = reader_of(test, made)

    def tokens(self, text):
        return self.reader.encode(text, special=False)


class Answers(unittest.TestCase):
    def text(self, family, written, **options):
        return answer(family.reader, family.tokens(written), **options)[0]

    def test_channels_are_text(self):
        family = Family(self, HARMONY)
        written = ("<|channel|>analysis<|message|>2 + 2 is 4<|end|><|start|>assistant<|channel|>final<|message|>It "
                   "is 4 \N{SMILING FACE WITH SMILING EYES}")
        self.assertEqual(self.text(family, written), written)
        self.assertEqual(self.text(family, written, stops=["<|start|>"]), written[:written.index("<|start|>")])
        # What ends a turn is none.
        self.assertEqual(self.text(family, "4<|return|><|call|>"), "4")
        calls = "<|channel|>commentary to=f <|constrain|>json<|message|>{}"
        self.assertEqual(self.text(family, calls), calls)

    def test_their_names_alone_are_no_channels(self):
        """Phi has <|end|>, ChatML's <|im_start|>: both are hidden."""
        family = Family(self, ("<|end|>", "<|start|>", "<|im_start|>"))
        self.assertEqual(self.text(family, "a<|end|>b<|start|>c<|im_start|>d"), "abcd")
        self.assertEqual(shown_of(("<|end|>", "<|channel|>")), frozenset())

    def test_thinking_is_text(self):
        for begin, end in (("<think>", "</think>"), ("<seed:think>", "</seed:think>"), ("[THINK]", "[/THINK]"),
                           ("<|START_THINKING|>", "<|END_THINKING|>")):
            written = f"{begin}\nhm{end}\n\n4"
            for special, plain in (((begin, end, "<|x|>"), ()), (("<|x|>",), (begin, end))):
                with self.subTest(begin=begin, special=special):
                    self.assertEqual(self.text(Family(self, special, plain), f"{written}<|x|>"), written)

    def test_a_prompt_that_ends_within_them(self):
        family = Family(self, ("<think>", "</think>"))
        prompt = family.tokens("2+2<think>")
        self.assertEqual(self.text(family, "hm</think>4", prompt=prompt), "hm</think>4")


class EndTokens(unittest.TestCase):
    """Several tokens end a turn; those of generation_config.json count."""

    # The family, what its config.json says, what its generation_config.json.
    FAMILIES = (("gpt-oss", 5, [5, 7, 9]), ("Llama 4, GLM-4.5", [5, 6, 7], [5, 6, 7]), ("Phi-4", 5, [4, 5]),
                ("Gemma 3", [1, 5], [1, 5]), ("OLMo 2, DeepSeek", 5, 5), ("Qwen 3", 5, [5, 6]))

    def test_families(self):
        config = json.loads((ADDER / "config.json").read_text(encoding="utf-8"))
        for name, of_config, of_generation in self.FAMILIES:
            for generation in (of_generation, None):
                with self.subTest(family=name, generation=generation):
                    folder = Folder(self, **({} if generation is None else
                                             {"generation_config": {"eos_token_id": generation}}))
                    (folder.path / "config.json").unlink()
                    (folder.path / "config.json").write_text(json.dumps({**config, "eos_token_id": of_config}),
                                                             encoding="utf-8")
                    wanted = of_config if generation is None else generation
                    self.assertEqual(culet.LLM(folder.path, device="cpu")._model.end_tokens,
                                     frozenset(wanted if isinstance(wanted, list) else [wanted]))


class Conversations(unittest.TestCase):
    def test_what_is_remembered(self):
        plain = "<think>hm</think>4"  # whose template takes it apart
        self.assertEqual(remembered(plain), {"role": "assistant", "content": plain})
        self.assertEqual(remembered(""), {"role": "assistant", "content": ""})
        thought, final = "<|channel|>analysis<|message|>hm", "<|channel|>final<|message|>4 < 5"
        self.assertEqual(remembered(f"{thought}<|end|><|start|>assistant{final}"),
                         {"role": "assistant", "content": "4 < 5", "thinking": "hm"})
        self.assertEqual(remembered(final), {"role": "assistant", "content": "4 < 5"})
        self.assertEqual(remembered(thought), {"role": "assistant", "content": "", "thinking": "hm"})
        self.assertEqual(remembered(f"{thought}<|end|>{thought} more<|end|><|start|>assistant{final}"),
                         {"role": "assistant", "content": "4 < 5", "thinking": "hm more"})
        self.assertEqual(remembered("<|channel|>commentary to=f <|constrain|>json<|message|>{}"),
                         {"role": "assistant", "content": "{}"})

    def test_a_template_of_channels_takes_it(self):
        package("jinja2")
        template = ("{% for m in messages %}{% if m.role == 'assistant' %}{% if '<|channel|>' in m.content %}"
                    "{{ raise_exception('channels in the content') }}{% endif %}"
                    "{% if 'thinking' in m and loop.last %}({{ m.thinking }}){% endif %}{% endif %}"
                    "{{ m.content }}|{% endfor %}{{ strftime_now('%Y') | length }}")
        chat = ChatTemplate(str(Folder(self, tokenizer_config={"chat_template": template}).path))
        said = remembered("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>4")
        self.assertEqual(chat.render([{"role": "user", "content": "2+2"}, said]), "2+2|(hm)4|4")


class Files(unittest.TestCase):
    def test_where_a_template_is(self):
        """Models with a processor have a file of their own, which counts least."""
        package("jinja2")
        for files, wanted in (({"chat_template": {"chat_template": "a"}}, "a"),
                              ({"chat_template": {"chat_template": "a"}, "tokenizer_config": {"chat_template": "b"}}, "b"),
                              ({"chat_template": {"chat_template": [{"name": "default", "template": "c"}]}}, "c")):
            with self.subTest(files=files):
                self.assertEqual(ChatTemplate(str(Folder(self, **files).path)).render([]), wanted)
        with self.assertRaisesRegex(culet.Error, "chat_template.json is not a JSON object"):
            ChatTemplate(str(Folder(self, chat_template=[1]).path))
        with self.assertRaisesRegex(culet.Error, "has no chat template"):
            ChatTemplate(str(Folder(self, chat_template={}).path)).render([])

    def test_tokens_of_classes(self):
        for kind, begin, end in (("GemmaTokenizerFast", "<bos>", "<eos>"),
                                 ("CohereTokenizer", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>")):
            found = special_tokens(str(ADDER), {"tokenizer_class": kind})
            self.assertEqual((found["bos_token"], found["eos_token"]), (begin, end))

    def test_a_tokenizer_of_another_kind(self):
        """Kimi's and Moonlight's."""
        folder = Folder(self)
        (folder.path / "tiktoken.model").write_text("")
        with self.assertRaisesRegex(culet.Error, "has tiktoken.model and no tokenizer.json; write one"):
            load_tokenizer(str(folder.path), 256)
