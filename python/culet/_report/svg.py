"""Drawing: text of known size, axes, and marks, as SVG elements. Colours are the page's CSS classes."""

import math
from html import escape
from typing import List, Sequence, Tuple

FONT = 12      # of all text, in units that are pixels where a drawing is shown at its own size
CHAR = 6.9     # at most, of a character on average
LINE = 16


def fit(text: str, width: float) -> str:
    """As much of a text as has room."""
    most = max(3, int(width / CHAR))
    if len(text) <= most:
        return text
    front = (most - 1) * 2 // 3
    return text[:front] + "…" + text[len(text) - (most - 1 - front):]


class Drawing:
    """Elements, and the size of what they are drawn on."""

    def __init__(self, width: float) -> None:
        self.width, self.height = width, 0.0
        self._parts: List[str] = []

    def add(self, element: str, bottom: float = 0) -> None:
        self._parts.append(element)
        self.height = max(self.height, bottom)

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start", whole: str = "") -> None:
        """y: of the baseline. whole: what a pointer shows, where `text` is cut."""
        title = f"<title>{escape(whole)}</title>" if whole and whole != text else ""
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}{title}</text>',
                 y + 4)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.add(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>', max(y1, y2))

    def rect(self, x: float, y: float, width: float, height: float, kind: str, title: str = "") -> None:
        inside = f"<title>{escape(title)}</title>" if title else ""
        self.add(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.8):.1f}" height="{height:.1f}" '
                 f'class="{kind}">{inside}</rect>', y + height)

    def dot(self, x: float, y: float, kind: str, title: str, radius: float = 4) -> None:
        self.add(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{kind}"><title>{escape(title)}</title>'
                 "</circle>", y + radius)

    def path(self, points: Sequence[Tuple[float, float]], kind: str) -> None:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.add(f'<polyline points="{line}" class="{kind}"/>', max(y for _, y in points))

    def svg(self, label: str, kind: str) -> str:
        height = math.ceil(self.height + 4)
        return (f'<svg class="{kind}" viewBox="0 0 {self.width:g} {height}" role="img" '
                f'aria-label="{escape(label)}" style="max-width:{self.width * 1.25:g}px">'
                + "".join(self._parts) + "</svg>")


class Log:
    """A logarithmic axis: values from `low` to `high` between two places."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high, self._start, self._end = low, high, start, end

    def __call__(self, value: float) -> float:
        share = math.log(max(value, 1e-300) / self.low) / math.log(self.high / self.low)
        return self._start + min(max(share, 0.0), 1.0) * (self._end - self._start)

    def ticks(self, most: int) -> List[float]:
        """Round values, at most so many."""
        for steps in ((1, 2, 5), (1, 3), (1,)):
            found = [step * 10.0 ** power
                     for power in range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
                     for step in steps if self.low <= step * 10.0 ** power * 1.0000001
                     and step * 10.0 ** power <= self.high * 1.0000001]
            if len(found) <= most:
                return found
        return found[::math.ceil(len(found) / most)]


def ratio_axis(low: float, high: float, start: float, end: float) -> Log:
    """An axis of ratios around 1, no shorter than 0.9 to 1.25."""
    return Log(min(low / 1.02, 0.9), max(high * 1.02, 1.25), start, end)


def ratio_ticks(axis: Log, most: int) -> List[float]:
    known = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 5000]
    found = [value for value in known if axis.low <= value <= axis.high]
    places = []
    for value in sorted(found, key=lambda value: value != 1):  # 1 is always there
        if all(abs(axis(value) - axis(other)) >= 36 for other in places):
            places.append(value)
    return sorted(places)[:most] if 1 in sorted(places)[:most] else sorted(places)


def shown_time(time_us: float) -> str:
    """"820 ns", "12.3 us", "4.56 ms", "1.20 s": three digits, as the commands print it."""
    for unit, size in (("ns", 1e-3), ("us", 1.0), ("ms", 1e3), ("s", 1e6)):
        value = time_us / size
        if value < 999.5 or unit == "s":
            return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"
    return ""


def shown(value: float) -> str:
    """A number on an axis."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    if value >= 1e3:
        return f"{value / 1e3:g}k"
    return f"{value:g}"


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
