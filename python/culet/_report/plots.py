"""The plots. Each is drawn twice: for wide pages and for narrow ones, whose text is as large."""

import math
from typing import Callable, Dict, List, Sequence, Tuple

from culet._report.read import Document, Product, Rates, family, groups_of, number
from culet._report.svg import (CHAR, LINE, Drawing, Log, fit, geometric_mean, ratio_axis, ratio_ticks, shown,
                               shown_time)

WIDE, NARROW = 860.0, 360.0
_SERIES = 6  # colours that the page has


def both(label: str, draw: Callable[[Drawing], None]) -> str:
    """The drawing in two widths; the page's CSS shows one."""
    text = ""
    for width, kind in ((WIDE, "wide"), (NARROW, "narrow")):
        drawing = Drawing(width)
        draw(drawing)
        text += drawing.svg(label, kind)
    return text


def _label(product: Product) -> str:
    return f"{product.name} m={product.m}"


def roofline(products: Sequence[Product], rates: Rates) -> str:
    """The choices' arithmetic rates over their arithmetic intensity, under the machine's roof."""
    points = [(p.operations / p.bytes, p.operations / p.choice.time_us / 1e3, p) for p in products
              if p.choice is not None and p.bytes]
    families = sorted({family(p.choice.kernel) for _, _, p in points if p.choice})
    if len(families) > _SERIES:
        families = families[:_SERIES - 1] + ["others"]
    ridge = rates.gflops / rates.read_gbps
    low_x, high_x = min([x for x, _, _ in points] + [ridge / 4]), max([x for x, _, _ in points] + [ridge * 4])
    low_y = min([y for _, y, _ in points] + [rates.read_gbps * low_x]) / 1.5
    high_y = max([y for _, y, _ in points] + [rates.gflops]) * 1.6

    def draw(d: Drawing) -> None:
        left, right, top, bottom = 56.0, d.width - 14, 26.0, 26.0 + (330 if d.width > 500 else 260)
        x, y = Log(low_x / 1.3, high_x * 1.3, left, right), Log(low_y, high_y, bottom, top)
        d.text(0, 14, "GFLOP/s", "quiet")
        for value in x.ticks(int((right - left) / 48)):
            d.line(x(value), top, x(value), bottom, "grid")
            d.text(x(value), bottom + LINE, shown(value), "quiet", "middle")
        for value in y.ticks(8):
            d.line(left, y(value), right, y(value), "grid")
            d.text(left - 6, y(value) + 4, shown(value), "quiet", "end")
        d.path([(x(x.low), y(rates.read_gbps * x.low)), (x(ridge), y(rates.gflops)), (x(x.high), y(rates.gflops))],
               "roof")
        d.text(right, y(rates.gflops) - 8, f"{shown(round(rates.gflops))} GFLOP/s in {rates.type}", "", "end")
        d.text(x(ridge), y(rates.gflops) + 3 * LINE, f"{rates.read_gbps:.4g} GB/s", "", "start")
        for intensity, speed, p in points:
            name = family(p.choice.kernel)
            kind = families.index(name if name in families else "others")
            share = "" if p.limit_us is None else f", {p.limit_us / p.choice.time_us:.0%} of the limit"
            d.dot(x(intensity), y(speed), f"s{kind}",
                  f"{_label(p)} {p.format}: {p.choice.kernel}, {shown_time(p.choice.time_us)}{share}")
        d.text((left + right) / 2, bottom + 2 * LINE + 4, "operations a byte", "quiet", "middle")
        _legend(d, families, bottom + 3 * LINE + 12)

    return both("roofline", draw)


def _legend(d: Drawing, names: Sequence[str], y: float) -> None:
    x = 0.0
    for kind, name in enumerate(names):
        name = fit(name, d.width - 24)
        width = 18 + CHAR * len(name) + 16
        if x > 0 and x + width > d.width:
            x, y = 0.0, y + LINE + 4
        d.dot(x + 6, y - 4, f"s{kind}", name, 5)
        d.text(x + 16, y, name)
        x += width


def heat_map(products: Sequence[Product]) -> str:
    """The choice's time over the limit: a row for each layer, a column for each M."""
    cells: Dict[Tuple[str, int], Product] = {}
    for p in products:
        if p.choice is not None and p.limit_us:
            cells[p.name, p.m] = p
    names, columns = list(dict.fromkeys(name for name, _ in cells)), sorted({m for _, m in cells})

    def draw(d: Drawing) -> None:
        wide = d.width > 500
        labels, cell = (170.0, 52.0) if wide else (104.0, 42.0)
        at_once, top = int((d.width - labels) / cell), 0.0
        for start in range(0, len(columns), at_once):
            block = columns[start:start + at_once]
            d.text(labels - 8, top + 14, "M =", "quiet", "end")
            for i, m in enumerate(block):
                d.text(labels + (i + 0.5) * cell, top + 14, shown(m) if m >= 10000 else str(m), "quiet", "middle")
            top += 22
            for name in names:
                d.text(labels - 8, top + 17, fit(name, labels - 8), "", "end", name)
                for i, m in enumerate(block):
                    p = cells.get((name, m))
                    if p is None:
                        continue
                    over = p.choice.time_us / p.limit_us
                    d.rect(labels + i * cell + 1, top + 1, cell - 2, 24, f"h{_step(over)}",
                           f"{_label(p)}: {shown_time(p.choice.time_us)} by {p.choice.kernel}, "
                           f"{over:.2f} of {shown_time(p.limit_us)}")
                    d.text(labels + (i + 0.5) * cell, top + 17,
                           f"{over:.2f}" if over < 9.995 else f"{over:.1f}" if over < 99.95 else f"{over:.0f}",
                           f"t{_step(over)}", "middle")
                top += 26
            top += 10
        x = labels if wide else 0.0
        for step, name in enumerate(("≤ 1.1", "≤ 1.25", "≤ 1.5", "≤ 2", "≤ 4", "> 4")):
            d.rect(x, top + 2, 14, 14, f"h{step}")
            d.text(x + 18, top + 14, name, "quiet")
            x += 60 if not wide else 74

    return both("time over the limit", draw)


def _step(over: float) -> int:
    return next((i for i, most in enumerate((1.1, 1.25, 1.5, 2, 4)) if over <= most), 5)


def _strip(rows: Sequence[Tuple[str, List[Tuple[float, str]]]], left_words: str, right_words: str, what: str) -> str:
    """Rows of dots on an axis of ratios, each with its geometric mean."""
    values = [value for _, dots in rows for value, _ in dots]

    def draw(d: Drawing) -> None:
        wide = d.width > 500
        left, right = (250.0, d.width - 74) if wide else (8.0, d.width - 58)
        axis = ratio_axis(min(values), max(values), left + 6, right)
        height, y = (26.0, 34.0) if wide else (42.0, 34.0)
        bottom = y + height * len(rows)
        d.text(axis(1) - 6, 14, left_words if axis(1) - left > CHAR * len(left_words) else "", "quiet", "end")
        d.text(axis(1) + 6, 14, fit(right_words, d.width - axis(1) - 6), "quiet")
        for value in ratio_ticks(axis, 9 if wide else 6):
            d.line(axis(value), 22, axis(value), bottom, "one" if value == 1 else "grid")
            d.text(axis(value), bottom + LINE, f"{value:g}", "quiet", "middle")
        for name, dots in rows:
            at = y + (height / 2 if wide else height - 12)
            label = f"{name} ({len(dots)})"
            if wide:
                d.text(left - 10, at + 4, fit(label, left - 10), "", "end", label)
            else:
                d.text(0, at - 14, fit(label, d.width - 64), "", "start", label)
            for value, title in dots:
                d.dot(axis(value), at, "s0 faint", f"{title}: {value:.2f}")
            mean = geometric_mean([value for value, _ in dots])
            d.rect(axis(mean) - 1.5, at - 8, 3, 16, "mean", f"{name}: geometric mean {mean:.3f}")
            d.text(d.width, at + 4, f"{mean:.2f}" if mean < 99.95 else f"{mean:.0f}", "strong", "end")
            y += height

    return both(what, draw)


def beside_others(products: Sequence[Product], most: int = 16) -> str:
    """Each kernel family's and library's best time over the choice's; empty where nothing competed."""
    ratios: Dict[str, List[Tuple[float, str]]] = {}
    for p in products:
        if p.choice is None:
            continue
        best: Dict[str, float] = {}
        for kernel, time_us in p.kernels:
            best[family(kernel)] = min(best.get(family(kernel), math.inf), time_us)
        if len(best) < 2:
            continue
        for name, time_us in best.items():
            ratios.setdefault(name, []).append((time_us / p.choice.time_us, f"{_label(p)} {p.format}"))
    rows = sorted(ratios.items(), key=lambda row: geometric_mean([value for value, _ in row[1]]))[:most]
    return _strip(rows, "faster", "slower than the choice", "speed beside each kernel and library") if rows else ""


def regret(products: Sequence[Product], most: int = 20) -> str:
    """What the untuned choice costs: its time over the tuned one's."""
    rows: Dict[str, List[Tuple[float, str]]] = {}
    for p in products:
        if p.choice is not None and p.untuned_us is not None:
            rows.setdefault(f"{p.name} {p.format}", []).append((p.untuned_us / p.choice.time_us, _label(p)))
    if not rows:
        return ""
    worst = sorted(rows.items(), key=lambda row: -geometric_mean([value for value, _ in row[1]]))[:most]
    return _strip(worst, "faster", "slower untuned", "regret of the untuned choice")


def waterfall(document: Document) -> str:
    """A decode step, one operation behind the other, with what the memory's rate allows."""
    step = document.raw["decode"]
    groups = [group for group in groups_of(step) if group.time_us > 0]
    total = sum(group.time_us for group in groups)
    step_us = number(step["step_us"]) or total
    shown_groups = groups[:14]
    rest = groups[14:]
    rows = [(f"{g.op} · {g.kernel}" if g.kernel != g.op else g.op, g.nodes, g.time_us) for g in shown_groups]
    if rest:
        rows.append((f"{len(rest)} others", sum(g.nodes for g in rest), sum(g.time_us for g in rest)))
    if step_us > total * 1.005:
        rows.append(("between nodes", 0, step_us - total))
    share = number(document.raw.get("read_share"))
    limit_us = share * step_us if share is not None else None
    end_us = max(step_us, total)

    def draw(d: Drawing) -> None:
        wide = d.width > 500
        left, right = (300.0, d.width - 70) if wide else (0.0, d.width - 62)
        height, y, before = (24.0, 30.0, 0.0) if wide else (40.0, 30.0, 0.0)
        bottom = y + height * len(rows)

        def x(time_us: float) -> float:
            return left + time_us / end_us * (right - left)

        if limit_us is not None and limit_us <= end_us:
            d.line(x(limit_us), 20, x(limit_us), bottom, "limit")
            words = f"read limit {shown_time(limit_us)}"
            room = x(limit_us) - CHAR * len(words) > 0
            d.text(x(limit_us) - 4 if room else x(limit_us) + 4, 14, words, "quiet", "end" if room else "start")
        for name, nodes, time_us in rows:
            label = f"{name} × {nodes}" if nodes else name
            at = y + (4 if wide else 18)
            if wide:
                d.text(left - 8, y + 16, fit(label, left - 8), "", "end", label)
            else:
                d.text(0, y + 12, fit(label, d.width - 4), "", "start", label)
            d.rect(x(before), at, x(before + time_us) - x(before), 16, "idle" if nodes == 0 else "s0",
                   f"{label}: {shown_time(time_us)}")
            d.text(d.width, at + 12, shown_time(time_us), "strong", "end")
            before += time_us
            y += height
        d.line(left, bottom + 4, right, bottom + 4, "axis")
        d.text(left, bottom + 4 + LINE, "0", "quiet")
        d.text(right, bottom + 4 + LINE, shown_time(end_us), "quiet", "end")

    return both("a decode step's waterfall", draw)


def accuracy(document: Document) -> str:
    """Each family's error over its limit."""
    rows = [(f"{entry.get('family', '')} {entry.get('type_a', '')} to {entry.get('type_d', '')}",
             float(entry["relative_l2"]), float(entry["limit"]), int(entry.get("problems", 0)))
            for entry in document.raw["accuracy"] if number(entry.get("limit")) is not None]
    if not rows:
        return ""

    def draw(d: Drawing) -> None:
        wide = d.width > 500
        left, right = (300.0, d.width - 70) if wide else (0.0, d.width - 62)
        height, y = (24.0, 24.0) if wide else (40.0, 24.0)
        d.line(right, 18, right, y + height * len(rows), "limit")
        d.text(right, 12, "limit", "quiet", "end")
        for name, error, limit, problems in rows:
            at, label = y + (4 if wide else 18), f"{name} ({problems})"
            if wide:
                d.text(left - 8, y + 16, fit(label, left - 8), "", "end", label)
            else:
                d.text(0, y + 12, fit(label, d.width - 4), "", "start", label)
            d.rect(left, at, min(error / limit, 1.0) * (right - left), 16, "s0", f"{label}: {error:.2e} of {limit:.2e}")
            d.text(d.width, at + 12, f"{error:.1e}", "strong", "end")
            y += height

    return both("accuracy", draw)
