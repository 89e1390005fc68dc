"""What the commands print with --json, in one form."""

import json
import math
import os
from typing import Any, Dict, List, NamedTuple, Optional


class BadFile(Exception):
    """A file that is none of the commands' documents; the message names it and says why."""


class Timed(NamedTuple):
    """A kernel's time for a problem."""

    kernel: str
    time_us: float


class Product(NamedTuple):
    """A problem that was measured."""

    name: str                    # "qkv"; "4096 x 1024" where it has none
    m: int
    n: int
    k: int
    format: str                  # "bf16>bf16"
    choice: Optional[Timed]      # what the engine launches
    untuned_us: Optional[float]  # of what it would launch had nothing been measured
    kernels: List[Timed]         # the fastest launch of each kernel
    limit_us: Optional[float]    # the least time that the machine's rates allow
    bytes: Optional[float]
    operations: float


class Rates(NamedTuple):
    read_gbps: float
    gflops: float
    type: str
    measured: bool


class Group(NamedTuple):
    """All nodes of a step that are one operation by one kernel."""

    op: str
    kernel: str
    nodes: int
    time_us: float


class Document(NamedTuple):
    """One file."""

    file: str
    kind: str                # "bench", "tune", "decode", "verify", "doctor"
    device: str              # the device class
    products: List[Product]
    rates: Optional[Rates]
    raw: Dict[str, Any]


def read(path: str) -> Document:
    """Raises BadFile."""
    try:
        with open(path, encoding="utf-8") as file:
            raw = json.load(file)
    except OSError as error:
        raise BadFile(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} is no JSON ({error}); give what a command prints with --json") from None
    try:
        return _document(os.path.basename(path), raw)
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise BadFile(f"{path} is not what bench, tune, verify, doctor or bench --decode print with --json "
                      f"({type(error).__name__}: {error})") from None


def _document(file: str, raw: Any) -> Document:
    if "error" in raw and "problems" not in raw:
        raise ValueError(f"the command failed: {raw['error'].get('message', '')}")
    rates = raw.get("rates")
    if isinstance(rates, dict):
        rates = Rates(float(rates["read_gbps"]), float(rates["gflops"]), str(rates["type"]), bool(rates["measured"]))
    if raw.get("kind") == "culet doctor":
        return Document(file, "doctor", "", [], None, raw)
    device = str(raw["device"])
    if "decode_tokens_per_s" in raw:
        groups_of(raw["decode"])
        return Document(file, "decode", device, [], None, raw)
    if "accuracy" in raw:
        return Document(file, "verify", device, [], None, raw)
    problems = raw["problems"]
    if any("outcome" in problem for problem in problems) or "measurements" in raw:
        return Document(file, "tune", device, [_tuned(problem) for problem in problems], None, raw)
    return Document(file, "bench", device, [_benched(problem) for problem in problems], rates, raw)


def number(value: Any) -> Optional[float]:
    """A finite number above 0, or None."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return float(value)
    return None


def _fastest(entries: Any) -> List[Timed]:
    best: Dict[str, float] = {}
    for entry in entries:
        time_us = number(entry.get("time_us"))
        if time_us is not None:
            kernel = str(entry["kernel"])
            best[kernel] = min(best.get(kernel, math.inf), time_us)
    return [Timed(*item) for item in sorted(best.items(), key=lambda item: item[1])]


def _product(problem: Any, choice: Optional[Timed], untuned_us: Optional[float], kernels: List[Timed]) -> Product:
    m, n, k = (int(problem[name]) for name in "mnk")
    kind = f"{problem['format']}>{problem['out']}{'+pdl' if problem.get('pdl') else ''}"
    return Product(str(problem.get("name") or f"{n} x {k}"), m, n, k, kind + ("+fast" if problem.get("fast") else ""),
                   choice, untuned_us, kernels, number(problem.get("roofline_us")), number(problem.get("bytes")),
                   number(problem.get("operations")) or 2.0 * m * n * k)


def _benched(problem: Any) -> Product:
    choice, untuned_us = None, None
    entries = problem.get("kernels", [])
    for entry in entries:
        time_us = number(entry.get("time_us"))
        if time_us is not None and entry.get("choice"):
            choice = Timed(str(entry["kernel"]), time_us)
        if time_us is not None and entry.get("untuned"):
            untuned_us = time_us
    return _product(problem, choice, untuned_us, _fastest(entries))


def _tuned(problem: Any) -> Product:
    winner = problem.get("winner") or {}
    time_us = number(winner.get("time_us"))
    choice = Timed(str(winner["kernel"]), time_us) if time_us is not None else None
    return _product(problem, choice, number(winner.get("baseline_us")), _fastest(problem.get("standings", [])))


def groups_of(step: Any) -> List[Group]:
    """The operations of a step, longest first."""
    groups = [Group(str(node["op"]), str(node["kernel"]), int(node["nodes"]), number(node["time_us"]) or 0.0)
              for node in step["nodes"]]
    return sorted(groups, key=lambda group: -group.time_us)


def family(kernel: str) -> str:
    """"cpu_simd/skinny" of "cpu_simd/skinny/m8n3": kernels of one family stand in one row."""
    parts = kernel.split("/")
    return "/".join(parts[:2]) if parts[0].startswith("cpu_simd") else parts[0]
