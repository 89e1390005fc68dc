"""LLM: text in, text out."""

import os
import warnings
from collections import deque
from operator import index
from typing import Any, Deque, Dict, Iterator, List, Optional, Protocol, Sequence, Tuple, Union, overload

from culet import _library
from culet._cache import place_of
from culet._gguf import metadata_of
from culet._library import Error, InvalidArgument, no_pickle, path_bytes, shown
from culet._observe import LOGGER, Coverage, coverage
from culet._operand import HOST, MOST, flag
from culet._session import BatchSession, Model, OnToken, Session, cache_type_of, exchange_of
from culet._tokenizer import ChatTemplate, load_tokenizer, read_json

Prompt = Union[str, Sequence[Dict[str, Any]], Sequence[int]]


class TokenArray(Protocol):
    """Tokens as numpy, torch and tokenizers have them: one prompt, or a row for each of several."""

    def tolist(self) -> Any: ...


class LLM:
    """A checkpoint's folder (config.json, safetensors, tokenizer.json), or a GGUF file, that continues text.

        llm = culet.LLM("Qwen3-0.6B")
        print(llm.generate("The capital of France is", max_new_tokens=8))
        for piece in llm.stream([{"role": "user", "content": "Hello!"}], temperature=0.7, seed=1):
            print(piece, end="", flush=True)
        answers = llm.generate(["2 + 2 =", "3 + 3 ="], max_new_tokens=4)  # as one batch

    device: "cpu", "cuda" or "cuda:N"; None takes the first GPU that runs models, else the CPU.
    max_context: tokens of a prompt and its answer together; by default the model's own, at most 4096.
    cache_type: of the cache of keys and values, "float32", "float16", "bfloat16" or "float8_e4m3fn", or
    torch's names of them. The last one takes a byte an element, with a scale for each head. By default that
    of the values, bfloat16 on a GPU with weights of it, else float32.
    batch_invariant: products take kernels that add a row alike whatever stands beside it
    (CULET_DETERMINISM_BATCH_INVARIANT), so that on the CPU an answer has the same logits alone and in a batch,
    bit for bit. Such kernels are much slower.
    tensor_parallel_size: so many processes of this host share the model, on a GPU each, or the CPU. This one
    starts the others; under torchrun, mpirun or srun each of theirs makes one LLM and the same calls, with
    seeds. A rank that dies or differs is named by an Error on the others (docs/parallel.md).
    exchange_type: "float32", or "bfloat16", which halves what crosses between their GPUs and rounds each summand.
    Threads may share it: they take turns. It needs the packages of `pip install culet[text]`, but for
    models without a tokenizer and with 256 tokens, whose tokens are bytes.
    Raises Error and InvalidArgument for a folder that is no checkpoint, or that culet cannot run."""

    def __init__(self, folder: "str | os.PathLike[str]", device: Optional[str] = None, *,
                 max_context: Optional[int] = None, cache_type: Any = None, batch_invariant: bool = False,
                 tensor_parallel_size: int = 1, exchange_type: Any = None) -> None:
        self._folder = os.fsdecode(path_bytes("folder", folder))
        if not os.path.exists(self._folder):
            raise InvalidArgument(f"folder is {self._folder!r}, which is no folder; give that of a "
                                  "checkpoint, with config.json and safetensors, or a GGUF file", "NOT_FOUND")
        gguf = metadata_of(self._folder)
        if gguf is None and not os.path.isdir(self._folder):
            raise InvalidArgument(f"folder is {self._folder!r}, which is no folder and no GGUF file; give that of a "
                                  "checkpoint, with config.json and safetensors")
        if max_context is not None:
            given, max_context = max_context, _count("max_context", max_context, 1)
            if max_context == MOST:
                raise InvalidArgument(f"max_context is {shown(given)}; give less than 2^31")
        ranks = _count("tensor_parallel_size", tensor_parallel_size, 1)
        self._model, self.device = _load(self._folder, device, ranks, exchange_of(exchange_type, ranks))
        for sentence in self._model.warnings:
            warnings.warn(sentence, RuntimeWarning, stacklevel=2)
        self._determinism = (_library.DETERMINISM_BATCH_INVARIANT if flag("batch_invariant", batch_invariant) else
                             _library.DETERMINISM_FAST)
        self._session = Session(self._model, max_context, cache_type_of(cache_type), self._determinism)
        # Tokens that a stream has made at a time: a GPU makes them without waiting for the host, and
        # faster than a text is read.
        self._ahead = 1 if self.device == "cpu" else 8
        self._tokenizer = load_tokenizer(self._folder, self._model.info.vocab, gguf)
        self._template = ChatTemplate(self._folder, gguf)
        self._session.plan()
        LOGGER.info("%s on %s: %s", self._folder, self.device, self.coverage)

    __reduce_ex__ = no_pickle

    def __repr__(self) -> str:
        return (f"culet.LLM({self._folder!r}, device={self.device!r}, "
                f"max_context={self.max_context})")

    @property
    def coverage(self) -> Coverage:
        """How many of the products that the process has planned on the device have a measured kernel: after
        loading those of a step of one token, later those of prompts, too. The logger "culet" says it when a
        model is loaded (INFO)."""
        return coverage(self.device)

    @property
    def max_context(self) -> int:
        """Tokens of a prompt and its answer together."""
        return self._session.max_context

    @overload
    def generate(self, prompt: Prompt, *, max_new_tokens: int = ..., temperature: float = ..., top_p: float = ...,
                 top_k: int = ..., min_p: float = ..., stop: Union[str, Sequence[str], None] = ...,
                 seed: Optional[int] = ...) -> str: ...

    @overload  # Any: a text of one prompt, texts of rows
    def generate(self, prompt: TokenArray, *, max_new_tokens: int = ..., temperature: float = ..., top_p: float = ...,
                 top_k: int = ..., min_p: float = ..., stop: Union[str, Sequence[str], None] = ...,
                 seed: Optional[int] = ...) -> Any: ...

    @overload
    def generate(self, prompt: Sequence[Union[Prompt, TokenArray]], *, max_new_tokens: int = ...,
                 temperature: float = ..., top_p: float = ..., top_k: int = ..., min_p: float = ...,
                 stop: Union[str, Sequence[str], None] = ..., seed: Optional[int] = ...) -> List[str]: ...

    def generate(self, prompt: Union[Prompt, TokenArray, Sequence[Union[Prompt, TokenArray]]], *,
                 max_new_tokens: int = 256,
                 temperature: float = 0.0, top_p: float = 1.0, top_k: int = 0, min_p: float = 0.0,
                 stop: Union[str, Sequence[str], None] = None,
                 seed: Optional[int] = None) -> Union[str, List[str]]:
        """The text that follows a prompt; of a list of prompts the list of texts, made as one batch.

        prompt: text; or messages, [{"role": "user", "content": "..."}, ...], for the model's chat
        template; or tokens, as a list or an array; or a list of such prompts.
        max_new_tokens: at most so many; the model's end token, a stop string and max_context end it,
        too.
        temperature: 0 takes the likeliest token. Above, tokens are drawn, of the top_k likeliest (0:
        all), of the likeliest that have the probability top_p together, of those with min_p of the
        likeliest one's. seed: the same one draws the same tokens again; prompt i of a list has
        seed + i.
        stop: text, or several, at which to end; it is not part of the answer."""
        options = {"max_new_tokens": max_new_tokens, "temperature": temperature, "top_p": top_p,
                   "top_k": top_k, "min_p": min_p, "stop": stop}
        prompt = _listed(prompt)
        if not _is_batch(prompt):
            return self.stream(prompt, seed=seed, **options)._whole()
        seed = _seed(seed)
        streams = [self.stream(each, seed=(seed + i) % 2**64, **options) for i, each in enumerate(prompt)]
        return _together(self._model, self._session.cache_type, self._determinism, streams)

    def stream(self, prompt: Union[Prompt, TokenArray], *, max_new_tokens: int = 256, temperature: float = 0.0,
               top_p: float = 1.0, top_k: int = 0, min_p: float = 0.0,
               stop: Union[str, Sequence[str], None] = None, seed: Optional[int] = None) -> "Stream":
        """What generate gives, piece by piece: whole characters, and nothing that may turn out to be
        the beginning of a stop string. Several streams of one LLM may be read in turns."""
        tokens = self.tokens(prompt)
        if not tokens:
            raise InvalidArgument("prompt has no tokens; give some text")
        if len(tokens) >= self.max_context:
            raise InvalidArgument(f"prompt has {len(tokens)} tokens, but max_context is "
                                  f"{self.max_context}, answer included; shorten it, or give "
                                  "LLM(max_context=) more")
        sampling = _library.Sampling(
            temperature=_real("temperature", temperature), top_p=_real("top_p", top_p),
            min_p=_real("min_p", min_p), top_k=_count("top_k", top_k, 0), seed=_seed(seed))
        if not 0 < sampling.top_p <= 1:
            raise InvalidArgument(f"top_p is {shown(top_p)}; give a number above 0, at most 1")
        return Stream(self, tokens, _count("max_new_tokens", max_new_tokens, 0), _stops(stop),
                      sampling)

    def tokens(self, prompt: Union[Prompt, TokenArray]) -> List[int]:
        """The tokens of text, with those that tokenizer.json puts around it; of messages, as the chat
        template writes them; of tokens, themselves."""
        if isinstance(prompt, str):
            return self._encoded(prompt)
        prompt = _listed(prompt)
        if isinstance(prompt, (list, tuple)):
            if prompt and all(isinstance(message, dict) for message in prompt):
                # The template writes the special tokens.
                return self._encoded(self._template.render(prompt), special=False)
            tokens = [token for token in map(_whole, prompt) if token is not None]
            if len(tokens) == len(prompt):
                wrong = [token for token in tokens if not 0 <= token < self._model.info.vocab]
                if wrong:
                    raise InvalidArgument(f"prompt has the token {shown(wrong[0])}, but the model's are 0 to "
                                          f"{self._model.info.vocab - 1}")
                return tokens
        raise InvalidArgument(f"prompt is a {type(prompt).__name__}; give text, a list of messages "
                              '({"role": "user", "content": "..."}), or a list of tokens')

    def _encoded(self, text, special=True):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"prompt is no Unicode text: {error}") from None
        return self._tokenizer.encode(text, special=special)

    def chat_prompt(self, messages: Sequence[Dict[str, Any]], **variables: Any) -> str:
        """The text that the chat template makes of messages. variables: the template's own, such as
        tools, enable_thinking or add_generation_prompt (True by default)."""
        return self._template.render(messages, **variables)

    def sampling_defaults(self) -> Dict[str, float]:
        """What the checkpoint's generation_config.json recommends, for stream(**it); {} when it says
        to take the likeliest token, or nothing."""
        config = read_json(self._folder, "generation_config.json")
        if not config.get("do_sample"):
            return {}
        found = {"temperature": 1.0}
        found.update({name: config[name] for name in ("temperature", "top_p", "top_k", "min_p")
                      if isinstance(config.get(name), (int, float))})
        return found


class Stream(Iterator[str]):
    """The pieces of an answer. Iterating computes; an exception, Ctrl-C too, leaves a stream that can be
    read on.

    prompt_tokens: the prompt's. tokens: the answer's until now, without the end token. finish_reason:
    "stop" for the end token or a stop string, "length" for max_new_tokens and max_context, None before
    the end."""

    def __init__(self, llm: LLM, prompt: List[int], max_new_tokens: int, stops: Tuple[str, ...],
                 sampling: "_library.Sampling") -> None:
        self.prompt_tokens = tuple(prompt)
        self.tokens: List[int] = []
        self.finish_reason: Optional[str] = None
        self._llm, self._all = llm, list(prompt)
        self._limit = min(max_new_tokens, llm.max_context - len(prompt))
        self._sampling = sampling
        self._text = llm._tokenizer.detokenizer(prompt)
        self._stops = StopStrings(stops)
        self._ready: Deque[int] = deque()  # made, and not read yet

    __reduce_ex__ = no_pickle

    def __next__(self) -> str:
        while self.finish_reason is None:
            piece = self._advance()
            if piece:
                return piece
        raise StopIteration

    def _advance(self) -> str:
        if not self._ready and self._limit:
            left = self._limit - len(self.tokens)
            # The first token is there as soon as the prompt is read.
            steps = min(left, self._llm._ahead) if self.tokens else 1
            self._ready.extend(self._made(steps))
        return self._take(self._ready.popleft()) if self._ready else self._finish("length")

    def _made(self, steps: int, on_token: Optional[OnToken] = None) -> List[int]:
        return self._llm._session.extend(self._all, self._sampling, steps,
                                         self._llm._model.end_tokens, on_token)

    def _whole(self) -> str:
        """All of a text that nobody has read."""
        pieces: List[str] = []

        def take(_: int, token: int) -> bool:
            pieces.append(self._take(token))
            return self.finish_reason is None

        if self._limit:
            self._made(self._limit, take)
        return "".join(pieces) + self._rest()

    def _take(self, token: int) -> str:
        """The text that is certain with the next token."""
        if token in self._llm._model.end_tokens:
            return self._finish("stop")
        self._all.append(token)
        self.tokens.append(token)
        piece = self._stops.feed(self._text.step(token), self._llm._tokenizer.hidden(token))
        if self._stops.found:
            self.finish_reason = "stop"
        elif len(self.tokens) >= self._limit:
            piece += self._finish("length")
        return piece

    def _rest(self) -> str:
        """What was held back, of a text that nothing ended."""
        return "" if self.finish_reason else self._finish("length")

    def _finish(self, reason: str) -> str:
        piece = self._stops.feed(self._text.finish())
        self.finish_reason = "stop" if self._stops.found else reason
        return piece if self._stops.found else piece + self._stops.rest()


def _together(model: Model, cache_type: int, determinism: int, streams: "List[Stream]") -> List[str]:
    """The whole texts of streams that nobody has read, as one batch."""
    texts = [""] * len(streams)
    room = max(len(stream._all) + stream._limit for stream in streams)
    session = BatchSession(model, [stream._sampling for stream in streams], room, cache_type, determinism)

    def take(i: int, token: int) -> bool:
        texts[i] += streams[i]._take(token)
        return streams[i].finish_reason is None

    try:
        prompts = [(i, stream._all) for i, stream in enumerate(streams) if stream._limit]
        first = session.prefill(prompts) if prompts else []
        parts = [(i, token) for (i, _), token in zip(prompts, first) if take(i, token)]
        if parts:
            steps = max(streams[i]._limit for i, _ in parts) - 1
            session.decode(parts, steps, model.end_tokens, take)
    finally:
        session.close()
    return [text + stream._rest() for text, stream in zip(texts, streams)]


class StopStrings:
    """Ends a text before the first of some strings, though pieces split them: what may be the
    beginning of one is held back. Special tokens are no part of a text, but a string may name them: it
    is looked for in the text with them and in the text without."""

    def __init__(self, stops: Tuple[str, ...]) -> None:
        self._stops = stops
        self._held: List[Tuple[str, bool]] = []  # characters, and whether they are shown
        self.found = False

    def feed(self, piece: str, hidden: str = "") -> str:
        """What of the text until now is certain to be out. hidden: what a special token behind the piece is
        called."""
        if self.found:
            return ""
        if not self._stops:
            return piece
        held = self._held + [(letter, True) for letter in piece] + [(letter, False) for letter in hidden]
        first = end = len(held)
        for places in (range(len(held)), [i for i, (_, shown) in enumerate(held) if shown]):
            text = "".join(held[i][0] for i in places)
            for stop in self._stops:
                found = text.find(stop)
                if found >= 0:
                    first, self.found = min(first, places[found]), True
                elif overlap := self._overlap(text, stop):
                    end = min(end, places[len(text) - overlap])
        cut = first if self.found else end
        self._held = [] if self.found else held[cut:]
        return "".join(letter for letter, shown in held[:cut] if shown)

    def rest(self) -> str:
        """What was held back, when nothing more comes."""
        text, self._held = "".join(letter for letter, shown in self._held if shown), []
        return text

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """The length of the longest end of `text` that a stop string begins with."""
        return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])),
                    0)


def _stops(stop: Union[str, Sequence[str], None]) -> Tuple[str, ...]:
    if stop is not None and not isinstance(stop, (str, list, tuple)):
        raise InvalidArgument(f"stop is {shown(stop)}; give a text, or a list of texts")
    found = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    for each in found:
        if not isinstance(each, str) or not each:
            raise InvalidArgument(f"stop has {shown(each)}; give texts of at least one character")
    return found


def _listed(prompt: Any) -> Any:
    """Tokens that lie in an array, as tokenizers give them, as a list; all else as it is."""
    return prompt.tolist() if hasattr(prompt, "tolist") else prompt


def _is_batch(prompt: Any) -> bool:
    return (isinstance(prompt, (list, tuple)) and bool(prompt)
            and all(isinstance(each, (str, list, tuple)) or _is_row(each) for each in prompt))


def _is_row(prompt: Any) -> bool:
    """Whether it is tokens in an array, not one token of numpy's or torch's."""
    return hasattr(prompt, "tolist") and isinstance(prompt.tolist(), list)


def _seed(seed: Optional[int]) -> int:
    return (int.from_bytes(os.urandom(8), "little") if seed is None
            else _count("seed", seed, 0) % 2**64)


def _whole(value: Any) -> Optional[int]:
    """A Python number of an int, or of numpy's or torch's; None of others, True and False among them."""
    try:
        return None if isinstance(value, bool) else index(value)
    except Exception:  # what an argument's own __index__ raises, too
        return None


def _count(name: str, value: Any, least: int) -> int:
    found = _whole(value)
    if found is None or found < least or found >= 2**64:
        raise InvalidArgument(f"{name} is {shown(value)}; give a whole number of at least {least}, below 2^64")
    return min(found, MOST) if name != "seed" else found


def _real(name: str, value: Any) -> float:
    try:
        found = -1.0 if isinstance(value, (bool, str)) else float(value)
    except Exception:  # what an argument's own __float__ raises, too
        found = -1.0
    if not 0 <= found < 1e30:
        raise InvalidArgument(f"{name} is {shown(value)}; give a number of at least 0")
    return found


def _load(folder: str, device: Optional[str], ranks: int, exchange: int) -> Tuple[Model, str]:
    if ranks > 1 and device in (None, "cuda"):
        device = _device_of_rank(device)
    if device is None:
        return _load_anywhere(folder)
    place = place_of(device)
    return Model(folder, place, ranks, exchange), "cpu" if place == HOST else f"cuda:{place}"


def _device_of_rank(device: Optional[str]) -> str:
    """The GPU of the launcher's local rank, the first without one; the CPU where there is no GPU."""
    from culet import devices
    if device is None and not any(each.ordinal >= 0 for each in devices()):
        return "cpu"
    names = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
    return "cuda:" + next((os.environ[name] for name in names if os.environ.get(name)), "0")


def _load_anywhere(folder: str) -> Tuple[Model, str]:
    """On the first GPU that there is, else on the CPU; a GPU that cannot run models is warned of."""
    from culet import devices
    place = next((device.ordinal for device in devices() if device.ordinal >= 0), HOST)
    if place != HOST:
        try:
            return Model(folder, place), f"cuda:{place}"
        except Error as error:
            if error.status != "UNSUPPORTED":
                raise
            warnings.warn(f"culet runs the model on the CPU: {error}", RuntimeWarning, stacklevel=4)
    return Model(folder, HOST), "cpu"
