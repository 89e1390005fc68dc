"""A decoder model, and the sequence of tokens that it continues: culet_model and culet_session."""

import os
import threading
import weakref
from ctypes import byref, c_float, c_int32, c_uint64, pointer
from typing import List, Optional, Sequence

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
        self._logits = (c_float * model.info.vocab)()
        self._lock = threading.Lock()

    def draw(self, tokens: Sequence[int], sampling: "_library.Sampling", state: c_uint64) -> int:
        """The token that follows `tokens`, drawn as culet_sample does. Ctrl-C ends a long prompt
        before its next node and is raised; the session stays as it was."""
        with self._lock:
            kept = self._shared(tokens)
            if kept < len(self._held) or self._unsure:
                check(LIBRARY.culet_session_truncate(self._handle, self._sequence, kept))
                del self._held[kept:]
            self._unsure = True
            self._run(tokens[kept:])
            self._held += tokens[kept:]
            self._unsure = False
            token = c_int32()
            check(LIBRARY.culet_sample(self._logits, len(self._logits), byref(sampling),
                                       byref(state), byref(token)))
            return token.value

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
        outputs = _library.Outputs(logits=self._logits)
        self._stop.value = 0
        if count == 1 or threading.current_thread() is not threading.main_thread():
            check(LIBRARY.culet_session_prefill(self._handle, byref(batch), byref(outputs)))
            return
        call(lambda: check(LIBRARY.culet_session_prefill(self._handle, byref(batch), byref(outputs))),
             self._stop, "culet-prefill")
