"""Checkpoints made from others."""

import os
from ctypes import byref, c_int32
from typing import Union

from culet._interrupt import call
from culet._library import LIBRARY, InvalidArgument, check, path_bytes, shown
from culet._observe import explain_lost_files

Path = Union[str, "os.PathLike[str]"]


def quantize_checkpoint(folder: Path, out: Path, format: str = "u4") -> None:
    """Writes the folder `out`, new or empty: the checkpoint `folder` with its linear layers rounded to the nearest
    codes, in the form of compressed-tensors, which transformers and vLLM read, and the tokenizer beside it.

    format: "u4", 4 bits with a scale for 128 input features; "fp8-row", E4M3 with a scale an output feature;
    "fp8-block", E4M3 with a scale for 128 x 128.
    Embedding, head, routers and norms stay. `out` is there whole or not at all; Ctrl-C ends it.
    Raises Error, and InvalidArgument for a checkpoint that is quantised already or an `out` that holds something."""
    if not isinstance(format, str):
        raise InvalidArgument(f"format is {shown(format)}; give 'u4', 'fp8-row' or 'fp8-block'")
    source, target = path_bytes("folder", folder), path_bytes("out", out)
    explain_lost_files()
    stop = c_int32(0)
    call(lambda: check(LIBRARY.culet_quantize_checkpoint(source, target, format.encode(errors="replace"), byref(stop))),
         stop, "culet.quantize_checkpoint")
