#!/usr/bin/env python3
"""Compares culet with its peers on a Hopper GPU: the rows of bench/results/h200_fp8_block.csv.

usage: peers_table.py --anchors ANCHORS.csv [--title TEXT] [--csv FILE --fact KEY=VALUE ...] RUN.csv [RUN.csv ...]

RUN.csv: what peers.py writes (columns name, M, N, K, peer, us, rel_l2), for the peers culet_tuned,
culet_pdl and cublaslt_block of one process, and culet, untuned, with cublaslt_block of another.
bench/peers_run.sh makes them. ANCHORS.csv: one row a problem with the peers' times on one machine
(deep_gemm_us, cublaslt_block_us, turbomind_us) and the limit (limit_us).

Whatever was not timed beside culet_tuned is scaled to that run by cublaslt_block, the yardstick that
is everywhere: X / cublaslt_block there x cublaslt_block here. So clocks and power, which differ by a
tenth between cards and between processes, fall out.

Prints Markdown; --csv writes the times to FILE instead, as a result file of bench/performance_page.py. The --fact
of command, commit, device and date stand above its rows. Exits with 1 when a problem of the anchors was not
measured."""

import argparse
import csv
import math
import sys
from pathlib import Path

YARDSTICK = "cublaslt_block"
SCALED = ("deep_gemm", "turbomind")
WORST_OVER_BEST = 1.05     # what no row may exceed
WORST_OVER_TUNED = 1.25    # the same for the untuned choice
RANGES = (("M <= 128", 0, 128), ("M = 256", 129, 256), ("M = 512 to 2048", 257, 2048),
          ("M >= 4096", 2049, 1 << 30))


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def key_of(row, name):
    return row[name], int(row["M"]), int(row["N"]), int(row["K"])


def measured(paths):
    """(name, M, N, K) -> peer -> (us, rel_l2), in the conditions of the run of culet_tuned."""
    runs = []
    for path in paths:
        run = {}
        for row in read(path):
            times = run.setdefault(key_of(row, "name"), {})
            times[row["peer"]] = (float(row["us"]), float(row["rel_l2"]))
        runs.append(run)
    main, found = "culet_tuned", {}
    for run in runs:
        found |= {key: dict(times) for key, times in run.items() if main in times}
    for run in runs:
        for key, times in run.items():
            here = found.get(key, {}).get(YARDSTICK)
            if main in times or here is None or YARDSTICK not in times:
                continue
            scale = here[0] / times[YARDSTICK][0]
            for peer, (us, error) in times.items():
                found[key].setdefault(peer, (us * scale, error))
    return found


class Row:
    """One problem: times in microseconds, None for what was not measured."""

    def __init__(self, anchor, peers):
        self.layer, self.m, self.n, self.k = key_of(anchor, "layer")
        time = {peer: us for peer, (us, _) in peers.items()}
        self.limit = float(anchor["limit_us"])
        self.tuned, self.pdl = time.get("culet_tuned"), time.get("culet_pdl")
        self.untuned, self.cublaslt = time.get("culet"), time.get(YARDSTICK)
        self.error = max((e for peer, (_, e) in peers.items() if peer.startswith("culet")),
                         default=None)
        self.scaled = {}
        for peer in SCALED:
            if anchor[f"{peer}_us"] and self.cublaslt is not None:
                self.scaled[peer] = (float(anchor[f"{peer}_us"]) /
                                     float(anchor[f"{YARDSTICK}_us"]) * self.cublaslt)

    @property
    def complete(self):
        return None not in (self.tuned, self.pdl, self.cublaslt)

    @property
    def deep_gemm(self):
        return self.scaled.get("deep_gemm")

    @property
    def best(self):
        return min([self.cublaslt, *self.scaled.values()])


# Heading, value of a row. Ratios are averaged geometrically.
RATIOS = (
    ("tuned / DeepGEMM", lambda r: r.tuned / r.deep_gemm),
    ("PDL / DeepGEMM", lambda r: r.pdl / r.deep_gemm),
    ("tuned / cuBLASLt", lambda r: r.tuned / r.cublaslt),
    ("tuned / best peer", lambda r: r.tuned / r.best),
    ("tuned / limit", lambda r: r.tuned / r.limit),
    ("PDL / limit", lambda r: r.pdl / r.limit),
    ("untuned / tuned", lambda r: None if r.untuned is None else r.untuned / r.tuned),
)
TIMES = (
    ("limit", lambda r: r.limit), ("tuned", lambda r: r.tuned), ("with PDL", lambda r: r.pdl),
    ("untuned", lambda r: r.untuned), ("cuBLASLt", lambda r: r.cublaslt),
    ("DeepGEMM by ratio", lambda r: r.deep_gemm),
)


def geometric_mean(values):
    values = [value for value in values if value is not None]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def number(value, digits):
    return "" if value is None else f"{value:.{digits}f}"


def table(head, lines):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for line in lines:
        yield "| " + " | ".join(line) + " |"


def mean_line(label, rows):
    return [label, str(len(rows)),
            *(number(geometric_mean(map(ratio, rows)), 3) for _, ratio in RATIOS)]


def worst(rows, ratio, bound):
    """Lines of the rows above a bound, worst first."""
    found = sorted(((ratio(row), row) for row in rows if (ratio(row) or 0) > bound),
                   key=lambda pair: -pair[0])
    for value, row in found:
        yield f"{row.layer} M = {row.m}: {value:.2f}"


def report(rows, title):
    ratios = dict(RATIOS)
    if title:
        yield from (title, "")
    yield "Geometric means:"
    yield ""
    batches = sorted({row.m for row in rows})
    lines = [mean_line(f"M = {m}", [row for row in rows if row.m == m]) for m in batches]
    lines += [mean_line(label, part) for label, low, high in RANGES
              if len(part := [row for row in rows if low <= row.m <= high]) and label != "M = 256"]
    lines.append(mean_line("all", rows))
    yield from table(["", "rows", *ratios], lines)
    yield ""
    for name, bound in (("tuned / best peer", WORST_OVER_BEST),
                        ("untuned / tuned", WORST_OVER_TUNED)):
        found = list(worst(rows, ratios[name], bound))
        highest = max((ratios[name](row) or 0 for row in rows))
        listing = f"{len(found)} rows" + (": " + "; ".join(found) if found else "")
        yield f"{name} above {bound}: {listing}. The highest is {highest:.2f}."
    yield f"Largest relative L2 error: {max(row.error for row in rows):.2e}."
    yield ""
    yield "Microseconds:"
    yield ""
    shown = ("tuned / DeepGEMM", "tuned / best peer", "tuned / limit", "PDL / limit",
             "untuned / tuned")
    yield from table(
        ["layer", "M", "N", "K", *(name for name, _ in TIMES), *shown],
        ([row.layer, str(row.m), str(row.n), str(row.k),
          *(number(time(row), 2) for _, time in TIMES),
          *(number(ratios[name](row), 2) for name in shown)] for row in rows))


COLUMNS = ("layer", "M", "N", "K", "limit_us", "tuned_us", "pdl_us", "untuned_us", "cublaslt_us", "deep_gemm_us")


def result_file(rows, facts):
    """The text of a result file."""
    lines = [f"# {fact.replace('=', ': ', 1)}" for fact in facts]
    lines.append(f"# note: Largest relative L2 error: {max(row.error for row in rows):.2e}.")
    lines.append(",".join(COLUMNS))
    lines += [",".join([row.layer, str(row.m), str(row.n), str(row.k), *(number(time(row), 2) for _, time in TIMES)])
              for row in rows]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anchors", type=Path, required=True)
    parser.add_argument("--title", default="", help="what stands above: machine, date, commands")
    parser.add_argument("--csv", type=Path, metavar="FILE")
    parser.add_argument("--fact", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("runs", nargs="+", type=Path)
    args = parser.parse_args()
    found = measured(args.runs)
    rows = [Row(anchor, found.get(key_of(anchor, "layer"), {})) for anchor in read(args.anchors)]
    missing = [row for row in rows if not row.complete]
    rows = [row for row in rows if row.complete]
    for row in missing:
        print(f"not measured: {row.layer} M = {row.m}", file=sys.stderr)
    if not rows:
        raise SystemExit("no problem of the anchors was measured with culet_tuned, culet_pdl and "
                         "cublaslt_block")
    if args.csv:
        args.csv.write_text(result_file(rows, args.fact))
    else:
        print("\n".join(report(rows, args.title)))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
