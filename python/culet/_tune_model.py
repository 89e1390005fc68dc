"""tune_model: the products of a model, measured without it."""

import ctypes
import os
import sys
from ctypes import byref, c_size_t
from typing import List, Optional, Sequence, Union

from culet._cache import place_of
from culet._engine import engine
from culet._library import LIBRARY, InvalidArgument, check, path_bytes, shown, text
from culet._operand import HOST, MOST, Operand
from culet._problem import ANY, GROUP, kind_of, problem
from culet._tuning import Tuned, autotune

# Format -> the types of a, b and out, as `culet tune --format` has them.
_FORMATS = {
    "f32": ("float32",) * 3, "f16": ("float16",) * 3, "bf16": ("bfloat16",) * 3,
    "f32-bf16": ("float32", "bfloat16", "float32"), "f32-f16": ("float32", "float16", "float32"),
    **dict.fromkeys(("fp8-block", "fp8-row", "fp8-tensor"), ("float8_e4m3fn", "float8_e4m3fn", "bfloat16")),
}


def tune_model(path: Union[str, "os.PathLike[str]"], tokens: Union[int, Sequence[int]] = (1, 8, 64, 512), *,
               format: Optional[str] = None, device: str = "cpu", budget: float = 60,
               persist: bool = True) -> List[Tuned]:
    """Measures the products of a decoder model for so many tokens in flight, and keeps the fastest
    kernels as autotune does: later plans of such products use them.

    path: a config.json, or the folder of one; no weights are read. q, k and v count as one product,
    gate and up as one, as engines run them; a routed expert has its even share of the tokens.
    format: "bf16", "f16", "f32", "f32-bf16", "f32-f16", "fp8-block", "fp8-row" or "fp8-tensor"; by
    default what the config says. budget: seconds for all together. persist: merge what was found into the cache file.
    Returns a Tuned for each product, as autotune.results.
    Raises: Error for a file that is missing or no config, InvalidArgument.
    """
    sizes = [tokens] if isinstance(tokens, int) else tokens
    if not isinstance(sizes, (list, tuple, range)) or not sizes or not all(
            isinstance(m, int) and not isinstance(m, bool) and 0 < m <= MOST for m in sizes):
        raise InvalidArgument(f"tokens is {shown(tokens)}; give numbers from 1 to {MOST}")
    shapes = products(path)
    name = shapes["format"] if format is None else format
    if name not in _FORMATS:
        raise InvalidArgument(f"format is {shown(name)}; give {' or '.join(map(repr, _FORMATS))}")
    place = place_of(device)
    stream, torch = None, sys.modules.get("torch")
    if place != HOST and torch is not None:
        stream = torch.cuda.current_stream(place).cuda_stream
    with autotune(budget, persist) as tuner:
        for m in sizes:
            for product in shapes["products"]:
                found = _operands(name, _rows(product, m), product["n"], product["k"], place)
                kind = kind_of(ANY, found, "precise", False, None)
                tuner.tune(engine(place), kind, problem(ANY, found, 0, "precise", False), stream)
    return tuner.results


def products(path):
    """What culet_products_json says of a config."""
    import json  # not by everyone who imports culet
    needed = c_size_t()
    place = path_bytes("path", path)
    check(LIBRARY.culet_products_json(place, None, 0, byref(needed)))
    made = ctypes.create_string_buffer(needed.value)
    check(LIBRARY.culet_products_json(place, made, needed, None))
    return json.loads(text(made.value))


def _rows(product, tokens):
    if not product["experts"]:
        return tokens
    return -(-tokens * product["active_experts"] // product["experts"])


def _operands(name, m, n, k, place):
    """The operands of gemm, each without an address: taken as aligned."""
    def at(dtype, *shape):
        return Operand(0, dtype, shape, (shape[1], 1), place)

    a, b, out = _FORMATS[name]
    groups = -(-k // GROUP)
    scales = {"fp8-block": ((m, groups), (-(-n // GROUP), groups)), "fp8-row": ((m, 1), (n, 1)),
              "fp8-tensor": ((1, 1), (1, 1))}.get(name)
    u, v = (at("float32", *shape) for shape in scales) if scales else (None, None)
    return at(a, m, k), u, at(b, n, k), v, at(out, m, n), *[None] * 5
