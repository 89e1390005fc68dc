"""What this machine has for culet, what is broken or slow, and what to do: `culet doctor`."""

import argparse
import ctypes
import json
import os
import platform
import sys
from ctypes import byref, c_size_t
from importlib import metadata, util
from typing import Any, Dict, List, Optional, Sequence, Union

from culet import _library
from culet._library import LIBRARY, check, path_bytes

_SEVERITIES = ("broken", "slow", "note")  # worst first


class Diagnosis(Dict[str, Any]):
    """What `culet doctor --json` prints, as a dict; as text what it prints without."""

    @property
    def ok(self) -> bool:
        """Nothing is broken."""
        return bool(self["ok"])

    def __str__(self) -> str:
        lines = [self["text"].rstrip("\n"), "", "Python"]
        lines += [f"  {name:<10} {value}" for name, value in self["python"].items() if value]
        lines.append("")
        for finding in self["findings"]:
            lines.append(f"{finding['severity']:<7} {finding['about']}: {finding['what']}")
            if finding["remedy"]:
                lines.append(f"        -> {finding['remedy']}")
        lines.append("Nothing is broken." if self.ok else "Something is broken: see above.")
        return "\n".join(lines)


def doctor(cache: Union[str, "os.PathLike[str]", None] = None) -> Diagnosis:
    """Looks at the driver, GPUs, libraries, caches and this Python, computes a small product on each
    device, and says what is broken, what will be slow, and what to do about each:

        print(culet.doctor())

    cache: the cache file to look at; by default the one that culet uses. Takes a second or two."""
    path = None if cache is None else path_bytes("cache", cache)
    needed = c_size_t()
    text = ctypes.create_string_buffer(1 << 18)
    check(LIBRARY.culet_doctor_json(path, text, len(text), byref(needed)))
    if needed.value > len(text):
        text = ctypes.create_string_buffer(2 * needed.value)
        check(LIBRARY.culet_doctor_json(path, text, len(text), byref(needed)))
    diagnosis = Diagnosis(json.loads(text.value))
    diagnosis["python"] = _packages()
    diagnosis["findings"] += _findings(diagnosis)
    diagnosis["findings"].sort(key=lambda finding: _SEVERITIES.index(finding["severity"]))
    diagnosis["ok"] = all(finding["severity"] != "broken" for finding in diagnosis["findings"])
    return diagnosis


def _version(package: str) -> Optional[str]:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _packages() -> Dict[str, Optional[str]]:
    found = {"python": f"{platform.python_version()} ({sys.executable})",
             "library": LIBRARY._name}  # noqa: SLF001  the path that was opened
    for package in ("culet", "torch", "numpy", "transformers", "tokenizers", "jinja2"):
        found[package] = _version(package)
    return found


def _findings(diagnosis: Diagnosis) -> List[Dict[str, Optional[str]]]:
    found: List[Dict[str, Optional[str]]] = []

    def add(severity: str, about: str, what: str, remedy: Optional[str] = None) -> None:
        found.append({"severity": severity, "about": about, "what": what, "remedy": remedy})

    packages = diagnosis["python"]
    installed, loaded = packages["culet"], diagnosis["version"]
    if os.environ.get("CULET_LIBRARY"):
        add("note", "python", f"CULET_LIBRARY has {LIBRARY._name} opened instead of the package's own",
            "unset it for the package's")
    elif installed and installed != loaded:
        add("broken", "python", f"the package is culet {installed}, the library that it opened {loaded}",
            "pip install --force-reinstall culet")
    if _library.beside("culet") is None:
        add("note", "python", "there is no program culet beside the package: of the commands only chat, "
            "doctor and report work", "install culet with pip")
    if packages["torch"]:
        _compare_with_torch(diagnosis, add)
    missing = [name for name in ("tokenizers", "jinja2") if util.find_spec(name) is None]
    if missing:
        add("note", "python", f"{' and '.join(missing)} not installed: culet.LLM takes tokens, not text",
            "pip install 'culet[text]'")
    return found


def _compare_with_torch(diagnosis: Diagnosis, add: Any) -> None:
    try:
        import torch
        sees_gpu = torch.cuda.is_available()
    except Exception as error:  # noqa: BLE001  whatever a broken installation raises
        add("broken", "torch", f"import torch fails: {error}", "install torch anew")
        return
    has_gpu = any(device["arch"] for device in diagnosis["devices"])
    if sees_gpu and not has_gpu:
        add("slow", "torch", "torch uses a GPU that this culet does not: "
            f"{diagnosis['cuda_note'] or 'it has no device for it'}",
            "install a culet with CUDA parts, else culet's layers run on CPU tensors alone")
    elif has_gpu and not sees_gpu:
        add("note", "torch", f"this torch ({torch.__version__}) uses no GPU, culet does",
            "install a torch with CUDA for culet.nn on the GPU")


def main(arguments: Sequence[str]) -> int:
    """The exit status: 1 if something is broken."""
    parser = argparse.ArgumentParser(
        prog="culet doctor", description="Look at driver, GPUs, libraries and caches: what is broken, what "
        "will be slow, and what to do about each. Exit code 1 if something is broken.")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--cache", metavar="FILE", help="the cache file to look at")
    parsed = parser.parse_args(arguments)
    try:
        diagnosis = doctor(parsed.cache)
    except _library.Error as error:
        print(f"culet: {error}", file=sys.stderr)
        return 1
    print(json.dumps(diagnosis, indent=2) if parsed.json else diagnosis)
    return 0 if diagnosis.ok else 1
