"""Checkpoints made from others."""

import os
from collections.abc import Iterable
from ctypes import byref, c_char_p, c_int32
from typing import Union

from culet._interrupt import call
from culet._library import LIBRARY, InvalidArgument, check, path_bytes, shown
from culet._observe import explain_lost_files

Path = Union[str, "os.PathLike[str]"]


def quantize_checkpoint(folder: Path, out: Path, format: str = "u4", *, keep: Iterable[str] = ()) -> None:
    """Writes the folder `out`, new or empty: the checkpoint `folder` with its linear layers rounded to the nearest
    codes, in the form of compressed-tensors, which transformers and vLLM read, and the tokenizer beside it.

    format: "u4", 4 bits with a scale for 128 input features; "u4-asymmetric", with a zero point beside it; "fp8-row",
    E4M3 with a scale an output feature; "fp8-block", E4M3 with a scale for 128 x 128.
    keep: layers that stay, as a config's `ignore` names them: "down_proj", "model.layers.3", "re:.*mlp.*".
    Embedding, head, routers and norms stay. `out` is there whole or not at all; Ctrl-C ends it.
    Raises Error, and InvalidArgument for a checkpoint that is quantised already, an `out` that holds something, or a
    `keep` that names no layer."""
    if not isinstance(format, str):
        raise InvalidArgument(f"format is {shown(format)}; give 'u4', 'u4-asymmetric', 'fp8-row' or 'fp8-block'")
    if isinstance(keep, str) or not isinstance(keep, Iterable):
        raise InvalidArgument(f"keep is {shown(keep)}; give a list of names, [{shown(keep)}]")
    names = list(keep)
    for name in names:
        if not isinstance(name, str) or "\0" in name:
            raise InvalidArgument(f"keep has {shown(name)}; give names of layers, as text")
    kept = (c_char_p * len(names))(*(name.encode(errors="replace") for name in names))
    source, target = path_bytes("folder", folder), path_bytes("out", out)
    explain_lost_files()
    stop = c_int32(0)
    call(lambda: check(LIBRARY.culet_quantize_checkpoint(source, target, format.encode(errors="replace"), kept, len(names),
                                                         byref(stop))),
         stop, "culet.quantize_checkpoint")
