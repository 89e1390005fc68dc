"""A decoder model, and the sequence of tokens that it continues: culet_model and culet_session."""

import os
import threading
import weakref
from ctypes import byref, c_int32, c_size_t, create_string_buffer, pointer
from typing import Any, Callable, Collection, List, Optional, Sequence, Tuple

from culet import _library
from culet._engine import engine
from culet._interrupt import call
from culet._library import LIBRARY, check, create
from culet._observe import explain_lost_files


class Model:
    """A checkpoint's weights on a device, or on those of several ranks."""

    def __init__(self, folder: str, place: int, ranks: int = 1, exchange: int = 0) -> None:
        owner = engine(place)
        explain_lost_files()
        options: Any = None
        if ranks > 1:
            program = _library.beside("culet")
            options = byref(_library.ModelOptions(ranks=ranks, rank_program=program and os.fsencode(program),
                                                  exchange=exchange))
        self.handle = create(LIBRARY.culet_model_load, owner.handle, os.fsencode(folder), options)
        weakref.finalize(self, LIBRARY.culet_model_destroy, self.handle).atexit = False
        self.info = _library.ModelInfo()
        check(LIBRARY.culet_model_get_info(self.handle, byref(self.info)))
        ends = (c_int32 * max(self.info.end_tokens, 1))()
        check(LIBRARY.culet_model_end_tokens(self.handle, ends, self.info.end_tokens, None))
        self.end_tokens = frozenset(ends[:self.info.end_tokens])
        needed = c_size_t()
        check(LIBRARY.culet_model_warnings(self.handle, None, 0, byref(needed)))
        text = create_string_buffer(needed.value)
        check(LIBRARY.culet_model_warnings(self.handle, text, needed, None))
        self.warnings = text.value.decode(errors="replace").splitlines()


# What a session's cache of keys and values can be of.
_CACHE_TYPES = {"float32": _library.FLOAT32, "float16": _library.FLOAT16,
                "bfloat16": _library.BFLOAT16, "float8_e4m3fn": _library.FLOAT8_E4M3}


def _type_name(dtype) -> str:
    return (dtype.__name__ if isinstance(dtype, type) else str(dtype)).removeprefix("torch.")


def cache_type_of(dtype) -> int:
    """CULET_FLOAT32, ... of "float32" or torch.float32; 0, the library's default, of None."""
    if dtype is None:
        return 0
    name = _type_name(dtype)
    if name not in _CACHE_TYPES:
        raise _library.InvalidArgument(f"cache_type is {_library.shown(dtype)}; give {', '.join(_CACHE_TYPES)}")
    return _CACHE_TYPES[name]


def exchange_of(dtype, ranks: int) -> int:
    """Likewise of what crosses between ranks."""
    if dtype is None:
        return 0
    if _type_name(dtype) not in ("float32", "bfloat16") or ranks == 1:
        raise _library.InvalidArgument(f"exchange_type is {_library.shown(dtype)}; give float32 or bfloat16, "
                                       "beside a tensor_parallel_size")
    return _CACHE_TYPES[_type_name(dtype)]


# The number of a sequence and a token of its answer -> whether it goes on.
OnToken = Callable[[int, int], bool]


class _Handle:
    """A culet_session."""

    def __init__(self, model: Model, max_sequences: int, max_context: int, cache_type: int,
                 determinism: int) -> None:
        self._stop = c_int32(0)
        options = _library.SessionOptions(max_sequences=max_sequences, max_context=max_context,
                                          cache_type=cache_type, determinism=determinism,
                                          stop=pointer(self._stop))
        self._handle = create(LIBRARY.culet_session_create, model.handle, byref(options))
        self._destroy = weakref.finalize(self, LIBRARY.culet_session_destroy, self._handle)
        self._destroy.atexit = False
        self._model = model  # must live as long

    def _add(self) -> int:
        sequence = c_int32()
        check(LIBRARY.culet_session_add(self._handle, byref(sequence)))
        return sequence.value

    def _prefill(self, sequences: Sequence[int], tokens: Sequence[Sequence[int]]) -> List[int]:
        """The tokens that follow new ones of some sequences. Ctrl-C ends it before its next node."""
        count, flat = len(sequences), [token for some in tokens for token in some]
        batch = _library.Batch(count=count, sequences=_numbers(sequences),
                               lengths=_numbers([len(some) for some in tokens]), tokens=_numbers(flat))
        following = (c_int32 * count)()
        outputs = _library.Outputs(next=following)
        self._call(LIBRARY.culet_session_prefill, byref(batch), byref(outputs))
        return list(following)

    def _decode(self, sequences: Sequence[int], tokens: Sequence[int], steps: int,
                ends: Collection[int], on_token: Optional[OnToken]) -> List[List[int]]:
        """At most `steps` tokens of each sequence that follow one: culet_session_decode. With on_token
        Ctrl-C ends it before its next node; without, after its steps."""
        count, failures = len(sequences), []

        def call_back(_, part, token):
            try:
                return 0 if not failures and on_token(part, token) else 1
            except BaseException as error:  # raised below: it cannot pass through the library
                failures.append(error)
                return 1

        batch = _library.Batch(count=count, sequences=_numbers(sequences), tokens=_numbers(tokens))
        options = _library.DecodeOptions(steps=steps, end_token_count=len(ends),
                                         end_tokens=_numbers(list(ends)))
        if on_token is not None:
            options.on_token = _library.ON_TOKEN(call_back)
        found, made = (c_int32 * (count * steps))(), (c_int32 * count)()
        self._call(LIBRARY.culet_session_decode, byref(batch), byref(options), found, made, None,
                   at_once=on_token is not None)
        if failures:
            raise failures[0]
        return [found[i * steps:i * steps + made[i]] for i in range(count)]

    def _call(self, function, *arguments, at_once: bool = True) -> None:
        """at_once: Ctrl-C does not wait for its end."""
        self._stop.value = 0
        if at_once and threading.current_thread() is threading.main_thread():
            call(lambda: check(function(self._handle, *arguments)), self._stop, "culet-session")
        else:
            check(function(self._handle, *arguments))


def _numbers(values: Sequence[int]):
    return (c_int32 * len(values))(*values)


class Session(_Handle):
    """One sequence with its cache of keys and values. Of tokens that are asked for again, the cache
    keeps what it has: a conversation that goes on costs its new tokens alone."""

    def __init__(self, model: Model, max_context: Optional[int], cache_type: int, determinism: int) -> None:
        super().__init__(model, 1, max_context or 0, cache_type, determinism)
        info = _library.SessionInfo()
        check(LIBRARY.culet_session_get_info(self._handle, byref(info)))
        self.max_context = info.max_context
        self.cache_type = info.cache_type
        self._sequence = self._add()
        self._held: List[int] = []  # tokens in the cache
        self._unsure = False        # whether it may hold more: an exception came before the answer
        self._lock = threading.Lock()

    def plan(self) -> None:
        """Plans a step of one token before the first one."""
        check(LIBRARY.culet_session_plan(self._handle))

    def extend(self, tokens: Sequence[int], sampling: "_library.Sampling", steps: int,
               ends: Collection[int], on_token: Optional[OnToken] = None) -> List[int]:
        """At most `steps` tokens that follow `tokens`, drawn as culet_session_sampling says: to one of
        `ends`, until on_token says so, or as far as there is room. Ctrl-C ends a prompt, and what
        on_token watches, before the next node and is raised; the session stays as it was."""
        with self._lock:
            tokens = list(tokens)  # on_token may make the caller's longer
            kept = self._shared(tokens)
            if kept < len(self._held) or self._unsure:
                check(LIBRARY.culet_session_truncate(self._handle, self._sequence, kept))
                del self._held[kept:]
            check(LIBRARY.culet_session_sampling(self._handle, self._sequence, byref(sampling)))
            self._unsure = True
            sequences, made, more = [self._sequence], [], True
            if kept + 1 < len(tokens):
                made += self._prefill(sequences, [tokens[kept:]])
                more = (on_token is None or on_token(0, made[0])) and made[0] not in ends
            if more and len(made) < steps:
                made += self._decode(sequences, (tokens + made)[-1:], steps - len(made), ends,
                                     on_token)[0]
            self._held = (tokens + made)[:-1]
            self._unsure = False
            return made

    def _shared(self, tokens: Sequence[int]) -> int:
        """How many tokens of the cache these begin with; one is left, whose logits are wanted."""
        limit = min(len(self._held), len(tokens) - 1)
        if self._held[:limit] == tokens[:limit]:
            return limit
        return next(i for i in range(limit) if self._held[i] != tokens[i])


class BatchSession(_Handle):
    """Several sequences that are read, and go on, as one batch."""

    def __init__(self, model: Model, samplings: "Sequence[_library.Sampling]",
                 max_context: int, cache_type: int, determinism: int) -> None:
        super().__init__(model, len(samplings), max_context, cache_type, determinism)
        self._sequences = [self._add() for _ in samplings]
        for sequence, sampling in zip(self._sequences, samplings):
            check(LIBRARY.culet_session_sampling(self._handle, sequence, byref(sampling)))

    def prefill(self, parts: Sequence[Tuple[int, Sequence[int]]]) -> List[int]:
        """The next tokens of some sequences, (number, new tokens) each."""
        return self._prefill([self._sequences[i] for i, _ in parts], [some for _, some in parts])

    def decode(self, parts: Sequence[Tuple[int, int]], steps: int, ends: Collection[int],
               on_token: OnToken) -> None:
        """Goes on with some sequences, (number, last token) each, until each has ended."""
        numbers = [i for i, _ in parts]
        self._decode([self._sequences[i] for i in numbers], [token for _, token in parts], steps, ends,
                     lambda part, token: on_token(numbers[part], token))

    def close(self) -> None:
        self._destroy()
