"""A decoder model, and the sequence of tokens that it continues: culet_model and culet_session."""

import os
import threading
import weakref
from ctypes import byref, c_int32, pointer
from typing import List, Optional, Sequence, Tuple

from culet import _library
from culet._engine import engine
from culet._interrupt import call
from culet._library import LIBRARY, check, create


class Model:
    """A checkpoint's weights on a device."""

    def __init__(self, folder: str, place: int) -> None:
        owner = engine(place)
        self.handle = create(LIBRARY.culet_model_load, owner.handle, os.fsencode(folder), None)
        weakref.finalize(self, LIBRARY.culet_model_destroy, self.handle).atexit = False
        self.info = _library.ModelInfo()
        check(LIBRARY.culet_model_get_info(self.handle, byref(self.info)))
        ends = (c_int32 * max(self.info.end_tokens, 1))()
        check(LIBRARY.culet_model_end_tokens(self.handle, ends, self.info.end_tokens, None))
        self.end_tokens = frozenset(ends[:self.info.end_tokens])


class Session:
    """One sequence with its cache of keys and values. Of tokens that are asked for again, the cache
    keeps what it has: a conversation that goes on costs its new tokens alone."""

    def __init__(self, model: Model, max_context: Optional[int]) -> None:
        self._stop = c_int32(0)
        options = _library.SessionOptions(max_sequences=1, max_context=max_context or 0,
                                          stop=pointer(self._stop))
        self._handle = create(LIBRARY.culet_session_create, model.handle, byref(options))
        weakref.finalize(self, LIBRARY.culet_session_destroy, self._handle).atexit = False
        self._model = model  # must live as long
        info = _library.SessionInfo()
        check(LIBRARY.culet_session_get_info(self._handle, byref(info)))
        self.max_context = info.max_context
        self._sequence = c_int32()
        check(LIBRARY.culet_session_add(self._handle, byref(self._sequence)))
        self._held: List[int] = []  # tokens in the cache
        self._unsure = False        # whether it may hold more: an exception came before the answer
        self._next = c_int32()
        self._lock = threading.Lock()

    def draw(self, tokens: Sequence[int], sampling: "_library.Sampling") -> int:
        """The token that follows `tokens`, drawn as culet_session_sampling says. Ctrl-C ends a long
        prompt before its next node and is raised; the session stays as it was."""
        with self._lock:
            kept = self._shared(tokens)
            if kept < len(self._held) or self._unsure:
                check(LIBRARY.culet_session_truncate(self._handle, self._sequence, kept))
                del self._held[kept:]
            check(LIBRARY.culet_session_sampling(self._handle, self._sequence, byref(sampling)))
            self._unsure = True
            self._run(tokens[kept:])
            self._held += tokens[kept:]
            self._unsure = False
            return self._next.value

    def _shared(self, tokens: Sequence[int]) -> int:
        """How many tokens of the cache these begin with; one is left, whose logits are wanted."""
        limit = min(len(self._held), len(tokens) - 1)
        if self._held[:limit] == tokens[:limit]:
            return limit
        return next(i for i in range(limit) if self._held[i] != tokens[i])

    def _run(self, tokens: Sequence[int]) -> None:
        count = len(tokens)
        values, length = (c_int32 * count)(*tokens), c_int32(count)
        batch = _library.Batch(count=1, sequences=pointer(self._sequence), lengths=pointer(length),
                               tokens=values)
        outputs = _library.Outputs(next=pointer(self._next))
        _run_batch(self._handle, batch, outputs, self._stop, count == 1)


class BatchSession:
    """Several sequences that are read, and go on, as one batch."""

    def __init__(self, model: Model, samplings: "Sequence[_library.Sampling]",
                 max_context: int) -> None:
        self._stop = c_int32(0)
        options = _library.SessionOptions(max_sequences=len(samplings), max_context=max_context,
                                          stop=pointer(self._stop))
        self._handle = create(LIBRARY.culet_session_create, model.handle, byref(options))
        self._destroy = weakref.finalize(self, LIBRARY.culet_session_destroy, self._handle)
        self._destroy.atexit = False
        self._model = model  # must live as long
        self._sequences = []
        for sampling in samplings:
            sequence = c_int32()
            check(LIBRARY.culet_session_add(self._handle, byref(sequence)))
            check(LIBRARY.culet_session_sampling(self._handle, sequence, byref(sampling)))
            self._sequences.append(sequence.value)

    def run(self, parts: Sequence[Tuple[int, Sequence[int]]]) -> List[int]:
        """The next tokens of some sequences, (number, new tokens) each."""
        count = len(parts)
        tokens = [token for _, some in parts for token in some]
        following = (c_int32 * count)()
        batch = _library.Batch(
            count=count, sequences=(c_int32 * count)(*(self._sequences[i] for i, _ in parts)),
            lengths=(c_int32 * count)(*(len(some) for _, some in parts)),
            tokens=(c_int32 * len(tokens))(*tokens))
        _run_batch(self._handle, batch, _library.Outputs(next=following), self._stop,
                   len(tokens) == count)
        return list(following)

    def close(self) -> None:
        self._destroy()


def _run_batch(handle, batch, outputs, stop, short) -> None:
    """short: one token a sequence, which Ctrl-C waits for."""
    stop.value = 0
    if short or threading.current_thread() is not threading.main_thread():
        check(LIBRARY.culet_session_prefill(handle, byref(batch), byref(outputs)))
        return
    call(lambda: check(LIBRARY.culet_session_prefill(handle, byref(batch), byref(outputs))),
         stop, "culet-prefill")
