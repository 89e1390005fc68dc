"""Text to tokens and back, as a checkpoint's tokenizer.json says."""

import codecs
import json
import os
from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Sequence, Tuple, Union

from culet import _gguf
from culet._library import Error, InvalidArgument


def read_json(folder: str, name: str) -> Dict[str, Any]:
    """A JSON file of the checkpoint, {} where it has none."""
    path = os.path.join(folder, name)
    try:
        with open(path, encoding="utf-8-sig") as file:
            found = json.load(file)
    except (FileNotFoundError, NotADirectoryError):  # beside a GGUF file there is nothing
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise Error("DATA_LOSS", f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise Error("DATA_LOSS", f"{path} is not a JSON object")
    return found


class ByteTokenizer:
    """Of models without a tokenizer and with a vocabulary of 256: the bytes of a text are its
    tokens, as `culet run` has it."""

    def encode(self, text: str, special: bool = True) -> List[int]:
        return list(text.encode())

    def hidden(self, token: int) -> str:
        """What a token is called that is no part of the text: no byte is one."""
        return ""

    def detokenizer(self, context: Sequence[int]) -> "ByteDetokenizer":
        return ByteDetokenizer(context)


class ByteDetokenizer:
    """A character that the context ends within is part of the text if the first token goes on with it."""

    def __init__(self, context: Sequence[int] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder.decode(bytes(context[-_CONTEXT:]))
        self._cut, _ = self._decoder.getstate()

    def step(self, token: int) -> str:
        byte = bytes([token])
        if self._cut and len((self._cut + byte).decode(errors="replace")) > 1:  # another character
            self._decoder.reset()
        self._cut = b""
        return self._decoder.decode(byte)

    def finish(self) -> str:
        return "" if self._cut else self._decoder.decode(b"", True)


# Special tokens that say which part of an answer follows, so that they are a part of its text: of thinking, as
# several families name it, and where all of HARMONY are there (gpt-oss), of channels.
_THINKING = ("<think>", "</think>", "<seed:think>", "</seed:think>", "[THINK]", "[/THINK]", "<|START_THINKING|>",
             "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>")
HARMONY = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>")


def shown_of(special: Iterable[str]) -> FrozenSet[str]:
    """Those of the names of special tokens that are a part of the text."""
    names = frozenset(special)
    return names & frozenset(_THINKING + (HARMONY if names.issuperset(HARMONY) else ()))


class Tokenizer:
    """tokenizer.json by the package tokenizers: the file `path`, or `text` that was made of it."""

    def __init__(self, path: str, text: Optional[str] = None) -> None:
        try:
            import tokenizers
        except ImportError as error:
            raise Error("FAILED_PRECONDITION",
                        f"{path} needs the package tokenizers ({error}); pip install 'culet[text]'"
                        ) from None
        try:
            made = tokenizers.Tokenizer
            self._tokenizer = made.from_file(path) if text is None else made.from_str(text)
        except Exception as error:  # the package raises Exception itself
            raise Error("DATA_LOSS", f"{path} cannot be read: {error}") from None
        self._tokenizer.no_truncation()  # what was right for training batches, and no_padding too
        self._tokenizer.no_padding()
        special = {number: token.content for number, token in
                   self._tokenizer.get_added_tokens_decoder().items() if token.special}
        shown = shown_of(special.values())
        self._hidden = {number: name for number, name in special.items() if name not in shown}

    def encode(self, text: str, special: bool = True) -> List[int]:
        """special: with what tokenizer.json puts around a text, a beginning mostly."""
        return self._tokenizer.encode(text, add_special_tokens=special).ids

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode([token for token in tokens if token not in self._hidden],
                                      skip_special_tokens=False)

    def hidden(self, token: int) -> str:
        """What a special token that is no part of the text is called; "" of others."""
        return self._hidden.get(token, "")

    def detokenizer(self, context: Sequence[int]) -> "Detokenizer":
        return Detokenizer(self, context)


# Tokens in front that can decide how the first of an answer is written.
_CONTEXT = 8
_LONGEST = 4  # tokens of a character
_UNFINISHED = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """Text of tokens that come one by one. A token's text depends on those before it (a space that
    the first one loses) and may be a part of a character, so each piece is what a decoding of the
    last pieces together gains. A character that the context ends within is part of the text if the first token
    goes on with it. tokenizers' own DecodeStream raises on what a model may well emit."""

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int]) -> None:
        self._decode = tokenizer.decode
        self._before = list(context[-_CONTEXT:])  # whose text is out
        self._pending: List[int] = []             # whose text is not
        self._cut: List[int] = []                 # of the context, those of a character that it ends within
        for place in range(len(self._before) - 1, max(len(self._before) - _LONGEST - 1, -1), -1):
            if not self._text(self._before[:place + 1]).endswith(_UNFINISHED):
                break
            if not self._text(self._before[:place]).endswith(_UNFINISHED):
                self._before, self._cut = self._before[:place], self._before[place:]
                break

    def step(self, token: int) -> str:
        """The text that is certain now; "" within a character."""
        self._pending.append(token)
        if self._cut:
            text = self._gained(self._cut + self._pending)
            if not text or text.endswith(_UNFINISHED):
                if len(self._cut) + len(self._pending) <= _LONGEST:
                    return ""
            elif not text.startswith(self._gained(self._cut)):
                return self._give(text)
            self._cut = []  # another character began
        text = self._gained(self._pending)
        return "" if not text or text.endswith(_UNFINISHED) else self._give(text)

    def finish(self) -> str:
        """What is left: a character that never ended."""
        text = self._gained(self._pending)
        if self._cut and self._pending:
            whole = self._gained(self._cut + self._pending)
            text = text if whole.startswith(self._gained(self._cut)) else whole
        self._before, self._cut, self._pending = self._before + self._pending, [], []
        return text

    def _give(self, text: str) -> str:
        self._before, self._cut, self._pending = self._cut + self._pending, [], []
        return text

    def _text(self, tokens: Sequence[int]) -> str:
        return self._decode(tokens) if tokens else ""

    def _gained(self, tokens: List[int]) -> str:
        """What tokens add to the text that is out."""
        return self._text(self._before + tokens)[len(self._text(self._before)):] if tokens else ""


def load_tokenizer(folder: str, vocab: int, gguf: Optional[Dict[str, Any]] = None) -> Any:
    """The tokenizer of a checkpoint's folder, or of a GGUF file with this metadata and no tokenizer.json beside it.
    Raises Error where there is none that culet reads."""
    path = os.path.join(folder, "tokenizer.json")
    if os.path.isfile(path):
        return Tokenizer(path)
    if gguf is not None:
        return Tokenizer(folder, _gguf.tokenizer_json(folder, gguf))
    others = [name for name in ("tokenizer.model", "tiktoken.model", "vocab.json", "merges.txt", "tekken.json")
              if os.path.isfile(os.path.join(folder, name))]
    if others:
        raise Error("UNSUPPORTED",
                    f"{folder} has {', '.join(others)} and no tokenizer.json; write one with "
                    "transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)")
    if vocab == 256:
        return ByteTokenizer()
    raise Error("NOT_FOUND", f"{folder} has no tokenizer.json; copy the model's beside config.json")


# Of the classes that tokenizer_config.json can name, what they take where it says nothing; null is to have none.
_OF_CLASSES = {
    **dict.fromkeys(("LlamaTokenizer", "LlamaTokenizerFast"),
                    {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}),
    **dict.fromkeys(("Qwen2Tokenizer", "Qwen2TokenizerFast"),
                    dict.fromkeys(("eos_token", "unk_token", "pad_token"), "<|endoftext|>")),
    **dict.fromkeys(("GPT2Tokenizer", "GPT2TokenizerFast"),
                    dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")),
    **dict.fromkeys(("GemmaTokenizer", "GemmaTokenizerFast"),
                    {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}),
    **dict.fromkeys(("CohereTokenizer", "CohereTokenizerFast"),
                    {"bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>", "unk_token": "<UNK>",
                     "pad_token": "<PAD>"}),
}


def special_tokens(folder: str, config: Dict[str, Any]) -> Dict[str, str]:
    """The named special tokens of a checkpoint, bos_token and the like, from where transformers has them:
    tokenizer_config.json, `config`, and its extra_special_tokens; special_tokens_map.json, which counts more,
    in checkpoints from before added_tokens_decoder; what the tokenizer's class takes."""
    given = dict(config)
    if "added_tokens_decoder" not in config:
        given.update(read_json(folder, "special_tokens_map.json"))
    named = {name: value for name, value in given.items() if name.endswith("_token")}
    for extra in ("model_specific_special_tokens", "extra_special_tokens"):
        if isinstance(given.get(extra), dict):  # else a list: tokens without names
            named.update(given[extra])
    kind = config.get("tokenizer_class")
    found: Dict[str, Any] = dict(_OF_CLASSES.get(kind, {}) if isinstance(kind, str) else {})
    for name, value in named.items():
        found[name] = value.get("content") if isinstance(value, dict) else value
    return {name: value for name, value in found.items() if isinstance(value, str)}


class ChatTemplate:
    """The template of chat_template.jinja, or of tokenizer_config.json beside it, of chat_template.json (of models with
    a processor) or of a GGUF file's metadata, by jinja2 in its sandbox, with what transformers puts at a template's
    hand."""

    def __init__(self, folder: str, gguf: Optional[Dict[str, Any]] = None) -> None:
        config = read_json(folder, "tokenizer_config.json")
        source = config.get("chat_template", _gguf.template_of(gguf or {}))
        if source is None:
            source = read_json(folder, "chat_template.json").get("chat_template")
        path = os.path.join(folder, "chat_template.jinja")
        if os.path.isfile(path):
            try:
                with open(path, encoding="utf-8-sig") as file:
                    source = file.read()
            except (OSError, ValueError) as error:
                raise Error("DATA_LOSS", f"{path} cannot be read: {error}") from None
        if isinstance(source, list):  # of {name, template}
            named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
            source = named.get("default")
        self.source: Optional[str] = source if isinstance(source, str) else None
        self._folder = folder
        self._tokens = {**_gguf.special_tokens_of(gguf or {}), **special_tokens(folder, config)}
        self._compiled = None

    def render(self, messages: Sequence[Dict[str, Any]], **variables: Any) -> str:
        if self.source is None:
            raise Error("NOT_FOUND", f"{self._folder} has no chat template (tokenizer_config.json, "
                        "chat_template.jinja, chat_template.json, a GGUF file's metadata); give the prompt as text")
        try:
            import jinja2
        except ImportError as error:
            raise Error("FAILED_PRECONDITION", f"a chat template needs the package jinja2 ({error}); "
                        "pip install 'culet[text]'") from None
        values = {"add_generation_prompt": True, "tools": None, "documents": None, **self._tokens,
                  **variables}
        try:
            if self._compiled is None:
                self._compiled = _environment(jinja2).from_string(self.source)
            return self._compiled.render(messages=messages, **values)
        except Exception as error:  # jinja2's, and what a template's expressions raise
            raise InvalidArgument(f"the messages and the chat template do not fit: {error}") from None


def _environment(jinja2: Any) -> Any:
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """{% generation %} marks answers for training; here it is transparent."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def strftime_now(format: str) -> str:
        import datetime
        return datetime.datetime.now().strftime(format)

    def tojson(x: Any, ensure_ascii: bool = False, indent: Union[int, str, None] = None,
               separators: Optional[Tuple[str, str]] = None, sort_keys: bool = False) -> str:
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return made
