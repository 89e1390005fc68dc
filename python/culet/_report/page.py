"""The page: sections of plots and tables, with the style that both light and dark use."""

import os
from html import escape
from typing import Any, Dict, Iterable, List, Sequence, Tuple

from culet._report import plots
from culet._report.read import Document, Product, number
from culet._report.svg import geometric_mean, shown_time

# Contrast of each text with what is behind it is 4.5 and more, of marks 3 and more, in both schemes.
_STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1f2328; --quiet: #57606a; --line: #d8dee4;
  --s0: #0969da; --s1: #bc4c00; --s2: #1a7f37; --s3: #8250df; --s4: #bf3989; --s5: #6e7781; --limit: #cf222e;
  --idle: #8c959f; --panel: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --page: #0d1117; --ink: #e6edf3; --quiet: #9198a1; --line: #30363d;
  --s0: #4493f8; --s1: #f0883e; --s2: #3fb950; --s3: #ab7df8; --s4: #f778ba; --s5: #9198a1; --limit: #ff7b72;
  --idle: #6e7681; --panel: #161b22; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 900px; padding: 16px 20px 48px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 24px; margin: 8px 0 4px; }
h2 { font-size: 18px; margin: 36px 0 4px; }
p { margin: 4px 0 12px; }
.quiet { color: var(--quiet); }
.tiles { display: flex; flex-wrap: wrap; gap: 8px; margin: 12px 0; }
.tile { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: 8px 12px; min-width: 128px; }
.tile b { display: block; font-size: 20px; line-height: 1.3; }
.tile span { color: var(--quiet); font-size: 13px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 4px 8px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; color: var(--quiet); width: 34%; }
.broken td:first-child { color: var(--limit); font-weight: 600; }
svg { display: block; width: 100%; height: auto; margin: 8px 0; font-size: 12px; }
svg.narrow { display: none; }
@media (max-width: 899px) { svg.wide { display: none; } svg.narrow { display: block; } }
svg text { fill: var(--ink); paint-order: stroke; stroke: var(--page); stroke-width: 3px; stroke-linejoin: round; } svg text.quiet { fill: var(--quiet); } svg text.strong { font-weight: 600; }
.grid { stroke: var(--line); } .axis, .one { stroke: var(--quiet); } .limit { stroke: var(--limit); stroke-width: 1.5; }
.roof { fill: none; stroke: var(--quiet); stroke-width: 2; }
.s0 { fill: var(--s0); } .s1 { fill: var(--s1); } .s2 { fill: var(--s2); } .s3 { fill: var(--s3); }
.s4 { fill: var(--s4); } .s5 { fill: var(--s5); } .idle { fill: var(--idle); } .mean { fill: var(--ink); }
circle { stroke: var(--page); stroke-width: 1; } .faint { fill-opacity: 0.55; stroke: none; }
.h0 { fill: #d6e9ff; } .h1 { fill: #a8d1ff; } .h2 { fill: #74b4ff; } .h3 { fill: #1f6fc4; } .h4 { fill: #1c5aa8; }
.h5 { fill: #0b2f66; }
svg text.t0, svg text.t1, svg text.t2 { fill: #08203f; stroke: none; }
svg text.t3, svg text.t4, svg text.t5 { fill: #ffffff; stroke: none; }
"""


def page(documents: Sequence[Document], title: str) -> str:
    """One self-contained page."""
    sections: List[str] = []
    for document in documents:
        sections += _sections(document)
    if not sections:
        sections.append("<p>Nothing in these files was measured.</p>")
    sections.append(_machine(documents))
    files = ", ".join(document.file for document in documents)
    return (f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
            f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
            f'<p class="quiet">Made of {escape(files)}. Point at a mark for its figures.</p>\n'
            + "\n".join(sections) + "\n</body>\n</html>\n")


def _section(plot: str, heading: str, says: str, body: str) -> str:
    """plot: what it is, for tests and links."""
    return (f'<section data-plot="{escape(plot)}">\n<h2>{escape(heading)}</h2>\n<p class="quiet">{escape(says)}</p>\n'
            f"{body}\n</section>")


def _tiles(tiles: Iterable[Tuple[str, str]]) -> str:
    return '<div class="tiles">' + "".join(f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
                                           for value, name in tiles) + "</div>"


def _table(rows: Iterable[Tuple[str, str]], kind: str = "") -> str:
    return f'<table class="{kind}">' + "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
                                               for name, value in rows) + "</table>"


def _sections(document: Document) -> List[str]:
    if document.kind == "decode":
        return _decode(document)
    if document.kind == "verify":
        return _verify(document)
    if document.kind == "doctor":
        return _doctor(document)
    return _products(document)


def _by_format(products: Sequence[Product]) -> Dict[str, List[Product]]:
    found: Dict[str, List[Product]] = {}
    for product in products:
        found.setdefault(product.format, []).append(product)
    return found


def _products(document: Document) -> List[str]:
    where, products = f" · {document.file}", document.products
    timed = [p for p in products if p.choice is not None]
    if not timed:
        return []
    sections = []
    limits = [p.choice.time_us / p.limit_us for p in timed if p.choice and p.limit_us]
    predicted = timed
    if "regret" in document.raw:  # bench --regret: nothing was known, so the choice is the untuned one
        predicted = [p._replace(untuned_us=p.choice.time_us, choice=p.kernels[0]) for p in timed if p.choice]
    untuned = [p.untuned_us / p.choice.time_us for p in predicted if p.choice and p.untuned_us]
    tiles = [(str(len(timed)), "products measured")]
    if limits:
        tiles.append((f"{geometric_mean(limits):.2f}", "time over the limit"))
    if untuned:
        tiles.append((f"{geometric_mean(untuned):.3f}", "untuned over the best"))
    sections.append(f'<section><h2>{"Tuned" if document.kind == "tune" else "Measured"}{escape(where)}</h2>'
                    f'<p class="quiet">{escape(document.device)}; geometric means over the products.</p>'
                    + _tiles(tiles) + "</section>")
    if document.rates is not None and any(p.bytes for p in timed):
        kind = "measured in the same run" if document.rates.measured else "typical of this class of device"
        sections.append(_section(
            "roofline", "Roofline" + where, f"Each dot is the choice for one product; the line is what the device's "
            f"rates allow ({kind}).", plots.roofline(timed, document.rates)))
    for name, some in _by_format([p for p in timed if p.limit_us]).items():
        sections.append(_section(
            "heat", f"Time over the limit, {name}{where}", "The choice's time over the least that the machine's rates "
            "allow: 1.00 is the limit. Rows are layers, columns numbers of tokens.", plots.heat_map(some)))
    if body := plots.beside_others(timed):
        sections.append(_section(
            "others", "Speed beside each kernel and library" + where, "The best time of each family over the choice's, a dot "
            "a product (their number in brackets), with the geometric mean: right of 1 the choice is faster.", body))
    if body := plots.regret(predicted):
        sections.append(_section(
            "regret", "Regret of the untuned choice" + where, "What the kernel that is chosen without measuring takes, over "
            "the time of the best one that was measured: 1 is a perfect prediction.", body))
    return sections


def _decode(document: Document) -> List[str]:
    raw = document.raw
    tiles = [(f"{raw['decode_tokens_per_s']:.1f}", "tokens a second, decode")]
    if number(raw.get("prefill_tokens_per_s")):
        tiles.append((f"{raw['prefill_tokens_per_s']:.0f}", "tokens a second, prompt"))
    if number(raw["decode"].get("step_us")):
        tiles.append((shown_time(raw["decode"]["step_us"]), "a step"))
    if number(raw.get("read_share")):
        tiles.append((f"{raw['read_share']:.0%}", "of the read rate"))
    model = os.path.basename(str(raw.get("config", "")).rstrip("/"))
    says = (f"{model}, {raw.get('format', '')}, batch {raw.get('batch', '')}, context "
            f"{raw.get('context', '')}: all nodes of one step, the longest first.")
    if raw.get("not_recorded"):
        says += f" Launched node by node: {raw['not_recorded']}."
    body = plots.waterfall(document) if raw["decode"]["nodes"] else "<p>No step was measured.</p>"
    return [_section("waterfall", f"A decode step · {document.file}", says, _tiles(tiles) + body)]


def _verify(document: Document) -> List[str]:
    raw = document.raw
    tiles = [(str(raw["passed"]), "cases right"), (str(raw["failed"]), "wrong"), (str(raw["refused"]), "refused")]
    body = _tiles(tiles) + plots.accuracy(document)
    if raw.get("failures"):
        body += _table([(str(failure.get("kernel", "")), f"{failure.get('problem', '')}: {failure.get('message', '')}")
                        for failure in raw["failures"][:40]], "broken")
    return [_section("accuracy", f"Verified · {document.file}", f"{document.device}: the largest relative error of each "
                     "family over the limit of its format, against double precision.", body)]


def _doctor(document: Document) -> List[str]:
    rows = [(f"{finding['severity']}: {finding['about']}",
             finding["what"] + (f" → {finding['remedy']}" if finding.get("remedy") else ""))
            for finding in document.raw["findings"]]
    body = _table(rows) if rows else "<p>Nothing to say.</p>"
    return [_section("findings", f"What the doctor says · {document.file}", "What is broken, what will be slow, and what to "
                     "do about it.", body)]


def _gib(count: Any) -> str:
    return f"{count / (1 << 30):.1f} GiB"


def _machine(documents: Sequence[Document]) -> str:
    rows: Dict[str, str] = {}
    for document in documents:
        raw = document.raw
        if document.device:
            rows.setdefault(f"device of {document.file}", " ".join(
                str(part) for part in (raw.get("name"), f"({document.device})") if part))
        if document.rates is not None:
            rows.setdefault(f"rates of {document.file}", f"reads {document.rates.read_gbps:.1f} GB/s, computes "
                            f"{document.rates.gflops:.0f} GFLOP/s in {document.rates.type}"
                            f" ({'measured' if document.rates.measured else 'typical'})")
        if document.kind == "decode" and number(raw.get("read_gbps")):
            rows.setdefault(f"rates of {document.file}", f"reads {raw['read_gbps']:.1f} GB/s")
        if document.kind == "doctor":
            rows["culet"] = f"{raw['version']}, {'with' if raw['with_cuda'] else 'without'} CUDA, on {raw['system']}"
            if raw["driver"]["found"]:
                rows["driver"] = f"{raw['driver']['version']}, for CUDA {raw['driver']['cuda_version']}"
            for i, gpu in enumerate(raw["driver"]["gpus"]):
                limit = gpu.get("power_limit_watts")
                rows[f"gpu {i}"] = (f"{gpu['name']}, {_gib(gpu['memory_bytes'])}, {gpu['max_clock_mhz'] or 0:.0f} MHz"
                                    + (f", {limit:.0f} W" if limit else ""))
            for device in raw["devices"]:
                rows[device["device"]] = f"{device['name']} ({device['class']}), {_gib(device['memory_bytes'])}"
            for library in raw["libraries"]:
                rows[library["name"]] = (f"{library['version']} {library['path'] or ''}" if library["found"]
                                         else f"not used: {library['note']}")
    return _section("machine", "The machine", "Where the figures come from.", _table(rows.items()))
