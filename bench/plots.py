"""Small plots as SVG: lines over M, and bars. Light and dark by the reader's setting."""

import math
from html import escape

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 58, 44
STYLE = """<style>
text{font:12px sans-serif;fill:#24292f}.t{font-size:14px;font-weight:600}
.g{stroke:#d0d7de}.one{stroke:#57606a;stroke-dasharray:4 3}
.s0{stroke:#0969da;fill:#0969da}.s1{stroke:#bc4c00;fill:#bc4c00}.s2{stroke:#1a7f37;fill:#1a7f37}
.s3{stroke:#8250df;fill:#8250df}.s4{stroke:#9a6700;fill:#9a6700}.l{fill:none;stroke-width:2}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.g{stroke:#30363d}.one{stroke:#8b949e}
.s0{stroke:#58a6ff;fill:#58a6ff}.s1{stroke:#f0883e;fill:#f0883e}.s2{stroke:#3fb950;fill:#3fb950}
.s3{stroke:#bc8cff;fill:#bc8cff}.s4{stroke:#d29922;fill:#d29922}.l{fill:none}}
</style>"""


def word(x, y, words, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}"{extra}>{escape(str(words))}</text>'


def frame(title, series, low, high, step, y_of):
    """Title, legend, grid and its labels."""
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
           f'height="{HEIGHT}" role="img"><title>{escape(title)}</title>{STYLE}')
    yield word(LEFT, 18, title, ' class="t"')
    x = LEFT
    for index, name in enumerate(series):
        yield f'<rect x="{x}" y="30" width="10" height="10" class="s{index}"/>' + word(x + 14, 40, name)
        x += 28 + 7 * len(name)
    for tick in range(round(low / step), round(high / step) + 1):
        y = y_of(tick * step)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="g"/>'
        yield word(LEFT - 6, y + 4, f"{tick * step:g}", ' text-anchor="end"')


def scale(values, zero):
    """Least, largest and step of an axis with some six lines."""
    high, low = max(values), 0 if zero else min([*values, 1])
    step = next(s for s in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if (high - low) / s <= 6.5)
    return math.floor(low / step) * step, math.ceil(high / step) * step, step


def vertical(low, high):
    return lambda value: HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def lines(title, labels, axis, series):
    """Series of one value a label; the line at 1 is dashed."""
    low, high, step = scale([v for values in series.values() for v in values], False)
    y_of = vertical(low, high)

    def x_of(index):
        return LEFT + 24 + index * (WIDTH - LEFT - RIGHT - 48) / (len(labels) - 1)
    parts = list(frame(title, series, low, high, step, y_of))
    parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(1):.1f}" y2="{y_of(1):.1f}" class="one"/>')
    parts += [word(x_of(i), HEIGHT - 26, label, ' text-anchor="middle"') for i, label in enumerate(labels)]
    parts.append(word(WIDTH / 2, HEIGHT - 8, axis, ' text-anchor="middle"'))
    for index, values in enumerate(series.values()):
        points = " ".join(f"{x_of(i):.1f},{y_of(v):.1f}" for i, v in enumerate(values))
        parts.append(f'<polyline points="{points}" class="s{index} l"/>')
        parts += [f'<circle cx="{x_of(i):.1f}" cy="{y_of(v):.1f}" r="3" class="s{index}"/>'
                  for i, v in enumerate(values)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def bars(title, labels, series):
    """Groups of bars; a value of 0 is none."""
    low, high, step = scale([v for values in series.values() for v in values], True)
    y_of = vertical(low, high)
    group = (WIDTH - LEFT - RIGHT) / len(labels)
    width = min(40, group * 0.8 / len(series))
    parts = list(frame(title, series, low, high, step, y_of))
    for i, label in enumerate(labels):
        middle = LEFT + (i + 0.5) * group
        for line, part in enumerate(broken(label, max(8, int(group / 6.5)))):
            parts.append(word(middle, HEIGHT - 28 + 13 * line, part, ' text-anchor="middle"'))
        for index, values in enumerate(series.values()):
            if not values[i]:
                continue
            x = middle + (index - len(series) / 2) * width
            parts.append(f'<rect x="{x:.1f}" y="{y_of(values[i]):.1f}" width="{width - 2:.1f}" '
                         f'height="{y_of(low) - y_of(values[i]):.1f}" class="s{index}"/>')
            parts.append(word(x + width / 2 - 1, y_of(values[i]) - 3, f"{values[i]:.0f}", ' text-anchor="middle"'))
    return "\n".join([*parts, "</svg>"]) + "\n"


def broken(label, width):
    """A label in two lines."""
    if len(label) <= width or " " not in label:
        return [label]
    cut = min((i for i, c in enumerate(label) if c == " "), key=lambda i: abs(i - len(label) / 2))
    return [label[:cut], label[cut + 1:]]
