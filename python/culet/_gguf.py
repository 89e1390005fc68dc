"""The texts of a GGUF file: its tokenizer, as the tokenizer.json that it was made from, and its chat template."""

import json
from ctypes import byref, c_size_t, create_string_buffer
from typing import Any, Dict, List, Optional

from culet._library import LIBRARY, Error, check, path_bytes, shown

# What a text is split by before bytes are merged, by tokenizer.ggml.pre: the models' own expressions.
_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA = {"split": _LETTERS + r"\p{N}{1,3}" + _REST, "normalizer": None, "ignore_merges": True, "begins": True}
_QWEN = {"split": _LETTERS + r"\p{N}" + _REST, "normalizer": {"type": "NFC"}, "ignore_merges": False,
         "begins": False}
_KINDS: Dict[str, Dict[str, Any]] = {"llama-bpe": _LLAMA, "llama3": _LLAMA, "llama-v3": _LLAMA, "qwen2": _QWEN}

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # types of tokens
_SPACE = "\u2581"  # what SentencePiece writes for a space


def metadata_of(path: str) -> Optional[Dict[str, Any]]:
    """What a GGUF file says, by its keys; None for a path that means no such file."""
    needed = c_size_t()
    place = path_bytes("folder", path)
    check(LIBRARY.culet_gguf_json(place, None, 0, byref(needed)))
    made = create_string_buffer(needed.value)
    check(LIBRARY.culet_gguf_json(place, made, needed, None))
    found = json.loads(made.value)
    return None if found is None else dict(found)


def tokenizer_json(path: str, metadata: Dict[str, Any]) -> str:
    """The text of a tokenizer.json. Raises Error for kinds of tokenizers that are not known, by their names."""
    model, kind = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    way_out = "put the model's tokenizer.json beside the file, alone in a folder, and give the folder"
    if model not in ("gpt2", "llama"):
        raise Error("UNSUPPORTED", f"{path} has a tokenizer of the kind {shown(model)}; known are gpt2, BPE of "
                    f"bytes, and llama, SentencePiece's BPE; {way_out}")
    if model == "gpt2" and kind not in _KINDS:
        raise Error("UNSUPPORTED", f"{path} has the pre-tokenizer {shown(kind)}; known are "
                    f"{', '.join(_KINDS)}; {way_out}")
    tokens = _texts(path, metadata, "tokens")
    types = metadata.get("tokenizer.ggml.token_type")
    if not isinstance(types, list) or len(types) != len(tokens):
        types = [_NORMAL] * len(tokens)
    added = [{"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": of == _CONTROL}
             for number, (token, of) in enumerate(zip(tokens, types)) if of in (_CONTROL, _USER_DEFINED)]
    parts = _byte_pairs(path, metadata, tokens, _KINDS[kind]) if model == "gpt2" else \
        _sentence_pieces(path, metadata, tokens, types)
    return json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts})


def _byte_pairs(path: str, metadata: Dict[str, Any], tokens: List[str], rules: Dict[str, Any]) -> Dict[str, Any]:
    merges = _texts(path, metadata, "merges")
    return {
        "normalizer": rules["normalizer"],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": rules["split"]}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]},
        "post_processor": _around(metadata, tokens, rules["begins"]),
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": _bpe(tokens, [merge.split(" ", 1) for merge in merges], ignore_merges=rules["ignore_merges"])}


def _sentence_pieces(path: str, metadata: Dict[str, Any], tokens: List[str], types: List[int]) -> Dict[str, Any]:
    """SentencePiece joins the two neighbours whose piece has the best score; merges say it in this order."""
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise Error("DATA_LOSS", f"{path} has no list of {len(tokens)} numbers under tokenizer.ggml.scores")
    pieces = {token: number for number, token in enumerate(tokens) if types[number] in (_NORMAL, _UNUSED)}
    merges = []
    for token, number in pieces.items():
        if types[number] != _NORMAL:
            continue
        for at in range(1, len(token)):
            left, right = pieces.get(token[:at]), pieces.get(token[at:])
            if left is not None and right is not None:
                merges.append((-scores[number], number, left, right))
    merges.sort()
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    decoders = [{"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    return {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": _SPACE}, spaces]}
        if prefix else spaces,
        "pre_tokenizer": None,
        "post_processor": _around(metadata, tokens, True),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _bpe(tokens, [[tokens[left], tokens[right]] for _, _, left, right in merges], byte_fallback=True,
                      fuse_unk=True, unk_token=tokens[unknown] if 0 <= unknown < len(tokens) else None)}


def _bpe(tokens: List[str], merges: List[List[str]], **options: Any) -> Dict[str, Any]:
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **options,
            "vocab": {token: number for number, token in enumerate(tokens)}, "merges": merges}


def special_tokens_of(metadata: Dict[str, Any]) -> Dict[str, str]:
    """bos_token and the like, for templates."""
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    found = {}
    for name, key in (("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")):
        number = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(number, int) and 0 <= number < len(tokens):
            found[name] = tokens[number]
    return found


def template_of(metadata: Dict[str, Any]) -> Optional[str]:
    """The chat template."""
    found = metadata.get("tokenizer.chat_template")
    return found if isinstance(found, str) else None


def _texts(path: str, metadata: Dict[str, Any], name: str) -> List[str]:
    found = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise Error("DATA_LOSS", f"{path} has no list of texts under tokenizer.ggml.{name}")
    return found


def _around(metadata: Dict[str, Any], tokens: List[str], begins: bool) -> Optional[Dict[str, Any]]:
    """What is put around a text: the beginning, the end, or nothing."""
    parts: List[Dict[str, Any]] = [{"Sequence": {"id": "A", "type_id": 0}}]
    special = {}
    for name, default in (("bos", begins), ("eos", False)):
        number = metadata.get(f"tokenizer.ggml.{name}_token_id")
        wanted = metadata.get(f"tokenizer.ggml.add_{name}_token", default)
        if not wanted or not isinstance(number, int) or not 0 <= number < len(tokens):
            continue
        token = tokens[number]
        special[token] = {"id": token, "ids": [number], "tokens": [token]}
        part = {"SpecialToken": {"id": token, "type_id": 0}}
        parts = [part, *parts] if name == "bos" else [*parts, part]
    if not special:
        return None
    return {"type": "TemplateProcessing", "single": parts,
            "pair": [*parts, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": special}
