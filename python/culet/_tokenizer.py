"""Text to tokens and back, as a checkpoint's tokenizer.json says."""

import codecs
import json
import os
from typing import Any, Dict, List, Optional, Sequence

from culet._library import Error, InvalidArgument


def read_json(folder: str, name: str) -> Dict[str, Any]:
    """A JSON file of the checkpoint, {} where it has none."""
    path = os.path.join(folder, name)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
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

    def detokenizer(self, context: Sequence[int]) -> "ByteDetokenizer":
        return ByteDetokenizer()


class ByteDetokenizer:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def step(self, token: int) -> str:
        return self._decoder.decode(bytes([token]))

    def finish(self) -> str:
        return self._decoder.decode(b"", True)


class Tokenizer:
    """tokenizer.json by the package tokenizers."""

    def __init__(self, path: str) -> None:
        try:
            import tokenizers
        except ImportError as error:
            raise Error("FAILED_PRECONDITION",
                        f"{path} needs the package tokenizers ({error}); pip install 'culet[text]'"
                        ) from None
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(path)
        except Exception as error:  # the package raises Exception itself
            raise Error("DATA_LOSS", f"{path} cannot be read: {error}") from None
        self._tokenizer.no_truncation()  # what was right for training batches, and no_padding too
        self._tokenizer.no_padding()

    def encode(self, text: str, special: bool = True) -> List[int]:
        """special: with what tokenizer.json puts around a text, a beginning mostly."""
        return self._tokenizer.encode(text, add_special_tokens=special).ids

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(tokens, skip_special_tokens=True)

    def detokenizer(self, context: Sequence[int]) -> "Detokenizer":
        return Detokenizer(self, context)


# Tokens in front that can decide how the first of an answer is written.
_CONTEXT = 8
_UNFINISHED = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """Text of tokens that come one by one. A token's text depends on those before it (a space that
    the first one loses) and may be a part of a character, so each piece is what a decoding of the
    last pieces together gains. tokenizers' own DecodeStream raises on what a model may well emit."""

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int]) -> None:
        self._decode = tokenizer.decode
        self._before = list(context[-_CONTEXT:])  # whose text is out
        self._pending: List[int] = []             # whose text is not

    def step(self, token: int) -> str:
        """The text that is certain now; "" within a character."""
        self._pending.append(token)
        text = self._gained()
        if not text or text.endswith(_UNFINISHED):
            return ""
        self._before, self._pending = self._pending, []
        return text

    def finish(self) -> str:
        """What is left: a character that never ended."""
        text = self._gained() if self._pending else ""
        self._before, self._pending = self._before + self._pending, []
        return text

    def _gained(self) -> str:
        return self._decode(self._before + self._pending)[len(self._decode(self._before)):]


def load_tokenizer(folder: str, vocab: int) -> Any:
    """The tokenizer of a checkpoint's folder. Raises Error where there is none that culet reads."""
    path = os.path.join(folder, "tokenizer.json")
    if os.path.isfile(path):
        return Tokenizer(path)
    others = [name for name in ("tokenizer.model", "vocab.json", "merges.txt", "tekken.json")
              if os.path.isfile(os.path.join(folder, name))]
    if others:
        raise Error("UNSUPPORTED",
                    f"{folder} has {', '.join(others)} and no tokenizer.json; write one with "
                    "transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)")
    if vocab == 256:
        return ByteTokenizer()
    raise Error("NOT_FOUND", f"{folder} has no tokenizer.json; copy the model's beside config.json")


class ChatTemplate:
    """The template of tokenizer_config.json, or chat_template.jinja beside it, by jinja2 in its
    sandbox, with what transformers puts at a template's hand."""

    def __init__(self, folder: str) -> None:
        config = read_json(folder, "tokenizer_config.json")
        source = config.get("chat_template")
        path = os.path.join(folder, "chat_template.jinja")
        if os.path.isfile(path):
            try:
                with open(path, encoding="utf-8") as file:
                    source = file.read()
            except (OSError, ValueError) as error:
                raise Error("DATA_LOSS", f"{path} cannot be read: {error}") from None
        if isinstance(source, list):  # of {name, template}
            named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
            source = named.get("default")
        self.source: Optional[str] = source if isinstance(source, str) else None
        self._folder = folder
        self._tokens = {name: value["content"] if isinstance(value, dict) else value
                        for name, value in config.items()
                        if name.endswith("_token") and isinstance(value, (str, dict))}
        self._compiled = None

    def render(self, messages: Sequence[Dict[str, Any]], **variables: Any) -> str:
        if self.source is None:
            raise Error("NOT_FOUND", f"{self._folder} has no chat template (tokenizer_config.json, "
                        "chat_template.jinja); give the prompt as text")
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

    def tojson(value: Any, indent: Optional[int] = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent, **options)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return made
