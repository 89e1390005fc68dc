#!/usr/bin/env python3
"""Writes docs/performance.md, its plots and README.md's table of results from the files in bench/results.

usage: performance_page.py [--check]

A result file is CSV. Lines `# key: value` before the head say where it comes from: command (once for each),
commit, device, date, note. --check writes nothing and names what is not as it would be written."""

import argparse
import csv
import sys
from pathlib import Path

from peers_table import geometric_mean, number, table
from plots import bars, lines

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
README_BEGIN, README_END = "<!-- results: begin -->", "<!-- results: end -->"
NEEDED = ("command", "commit", "device", "date")


class Result:
    """The rows of a file, and what its first lines say."""

    def __init__(self, name):
        self.name = name
        lines_of_file = (RESULTS / f"{name}.csv").read_text().splitlines()
        self.said = {}
        while lines_of_file[0].startswith("# "):
            key, _, value = lines_of_file.pop(0)[2:].partition(": ")
            self.said.setdefault(key, []).append(value)
        for key in NEEDED:
            if key not in self.said:
                raise SystemExit(f"bench/results/{name}.csv does not say its {key}")
        self.rows = list(csv.DictReader(lines_of_file))
        self.columns = list(self.rows[0])

    def where(self, **wanted):
        return [row for row in self.rows
                if all(row[key] == str(value) for key, value in wanted.items())]

    def values(self, key):
        """The different values of a column, in the file's order."""
        return list(dict.fromkeys(row[key] for row in self.rows))

    def origin(self):
        """Command, commit, card and date, below a table."""
        yield ""
        for command in self.said["command"]:
            yield from broken_command(command)
        yield ""
        facts = [*self.said.get("note", []),
                 f"Measured: {self.said['device'][0]}; {self.said['date'][0]}; commit {self.said['commit'][0]}; "
                 f"[rows](../bench/results/{self.name}.csv)."]
        yield from wrapped(" ".join(facts))
        yield ""


def wrapped(text, width=118):
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    if line:
        yield line


def broken_command(command):
    """A command as code, its long lines continued."""
    parts = list(wrapped(command, 108))
    yield from (("    " if i == 0 else "        ") + part + (" \\" if i + 1 < len(parts) else "")
                for i, part in enumerate(parts))


def spaced(value):
    """1234567 as 1,234,567; everything else as it is."""
    return f"{int(value):,}" if value.isdigit() and int(value) >= 10000 else value


def plain(name, headings):
    """A file as it is, under other headings."""
    result = Result(name)
    yield from table(headings, ([spaced(row[column]) for column in result.columns] for row in result.rows))
    yield from result.origin()


def pivot(name, across, cell, label, headings):
    """One column for each value of `across`."""
    result = Result(name)
    found = {}
    for row in result.rows:
        found.setdefault(label(row), {})[row[across]] = cell(row)
    yield from table([headings[0], *(headings[1].format(value) for value in result.values(across))],
                     ([name_of, *(cells.get(value, "") for value in result.values(across))]
                      for name_of, cells in found.items()))
    yield from result.origin()


def mean_of(rows, over, under):
    return geometric_mean(float(row[over]) / float(row[under]) for row in rows)


BLOCK_RATIOS = (("tuned / DeepGEMM", "tuned_us", "deep_gemm_us"), ("PDL / DeepGEMM", "pdl_us", "deep_gemm_us"),
                ("tuned / cuBLASLt", "tuned_us", "cublaslt_us"), ("tuned / limit", "tuned_us", "limit_us"),
                ("PDL / limit", "pdl_us", "limit_us"), ("untuned / tuned", "untuned_us", "tuned_us"))


def fp8_block():
    result = Result("h200_fp8_block")
    parts = [(m, result.where(M=m)) for m in result.values("M")] + [("all", result.rows)]
    yield from table(["M", "rows", *(name for name, _, _ in BLOCK_RATIOS)],
                     ([label, str(len(rows)), *(number(mean_of(rows, a, b), 3) for _, a, b in BLOCK_RATIOS)]
                      for label, rows in parts))
    yield from result.origin()


def unseen_rows():
    return Result("h200_fp8_block_unseen").where(deep_gemm_outlier=0)


def fp8_block_unseen():
    result = Result("h200_fp8_block_unseen")
    kept = unseen_rows()
    keys = ("tuned_over_deep_gemm", "pdl_over_deep_gemm")

    def cells(rows):
        return [str(len(rows)), *(number(geometric_mean(float(row[key]) for row in rows), 3) for key in keys),
                number(max(float(row[keys[0]]) for row in rows), 2)]
    yield from table(["M", "rows", "tuned / DeepGEMM", "with PDL / DeepGEMM", "worst row, tuned"],
                     [[m, *cells([row for row in kept if row["M"] == m])] for m in result.values("M")]
                     + [["all", *cells(kept)]])
    yield from result.origin()


def bf16_mean():
    result = Result("h200_bf16")
    return geometric_mean(float(row["tuned_over_better"]) for row in result.rows)


GATED_RATIOS = (("over_plain", "/ plain"), ("over_plain_and_kernel", "/ plain + kernel"))


def gated(name):
    """Over the layers of a format and an M: mean and most."""
    result = Result(name)

    def cells(m):
        for form in result.values("format"):
            for key, _ in GATED_RATIOS:
                values = [float(row[key]) for row in result.where(M=m, format=form)]
                yield f"{geometric_mean(values):.2f} ({max(values):.2f})"
    yield from table(["M", *(f"{form} {what}" for form in result.values("format") for _, what in GATED_RATIOS)],
                     ([m, *cells(m)] for m in result.values("M")))
    yield from result.origin()


def grouped():
    result = Result("h200_grouped")
    tokens = result.values("tokens")

    wide = Result("h200_grouped_wide")

    def mean(form, count):
        over = {r["name"]: float(r["over_limit"]) for each in (result, wide)
                for r in each.where(format=form, tokens=count)}
        return number(geometric_mean(over.values()), 2)

    yield from table(["time over the limit", *(f"{t} tokens" for t in tokens)],
                     ([label, *(mean(form, t) for t in tokens)]
                      for label, form in (("BF16", "bf16"), ("FP8 blocks", "fp8"))))
    yield from result.origin()
    yield from wide.origin()


def codes():
    result = Result("h200_codes")
    tokens = result.values("M")

    def mean(form, count):
        return number(geometric_mean(float(r["over_limit"]) for r in result.where(format=form, M=count)), 2)

    yield from table(["time over the limit", *(f"M = {m}" for m in tokens)],
                     ([form, *(mean(form, m) for m in tokens)] for form in result.values("format")))
    yield from result.origin()


def cpu_layers():
    """Over the layers of a format and an m: shares of the roofline."""
    result = Result("cpu_layers")

    def cells(form):
        for m in result.values("M"):
            values = [float(row["share_of_roofline"]) for row in result.where(M=m, format=form)]
            yield f"{geometric_mean(values):.0f} % ({min(values):.0f} to {max(values):.0f})"
    yield from table(["twelve layers, of the roofline", *(f"m = {m}" for m in result.values("M"))],
                     ([form, *cells(form)] for form in result.values("format")))
    yield from result.origin()


def time_of(us):
    value = float(us)
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} us"


def cpu_formats():
    return pivot("cpu_formats", "M", lambda row: f"{time_of(row['us'])}, {row['share_of_roofline']} %",
                 lambda row: row["format"], ("format", "m = {}"))


def decode():
    result = Result("h200_decode")
    goal = {"Llama-3.1-8B BF16": 78, "Llama-3.1-8B FP8 blocks": 68, "Llama-3.1-70B FP8 blocks": 85,
            "Llama-3.2-1B BF16": 68, "Qwen3-0.6B BF16": 50}
    head = ["model, batch 1", "us a step", "tokens/s", "of the limit", "goal", "transformers + torch.compile"]
    yield from table(head, (
                      [name, spaced(row["us"]), row["tokens_per_s"], f"{row['share_of_limit']} %", f"{goal[name]} %",
                       row["transformers_share"] and f"{row['transformers_tokens_per_s']} tokens/s, "
                       f"{row['transformers_share']} %"]
                      for row in result.where(batch=1) for name in [f"{row['model']} {row['format']}"]))
    yield ""
    more = [value for value in result.values("batch") if value != "1"]
    found = {}
    for row in result.rows:
        if row["batch"] != "1":
            found.setdefault(f"{row['model']} {row['format']}", {})[row["batch"]] = row
    yield from table(["tokens/s, of the limit", *(f"batch {value}" for value in more)],
                     ([name, *(f"{spaced(rows[value]['tokens_per_s'])}, {rows[value]['share_of_limit']} %"
                               for value in more)] for name, rows in found.items()))
    yield from result.origin()


def attention_prefill():
    return plain("h200_attention_prefill", ["us", "512 tokens", "2,048", "8,192"])


# ---- plots: file name -> SVG

def plots():
    block = Result("h200_fp8_block")
    batches = block.values("M")
    yield "fp8-block", lines(
        "Block-scaled FP8 on one H200: time over the peer's, twelve layers", batches, "M",
        {f"culet / {peer}": [mean_of(block.where(M=m), "tuned_us", key) for m in batches]
         for peer, key in (("DeepGEMM", "deep_gemm_us"), ("cuBLASLt", "cublaslt_us"))} |
        {"culet with PDL / DeepGEMM": [mean_of(block.where(M=m), "pdl_us", "deep_gemm_us") for m in batches]})
    bf16 = Result("h200_bf16").rows
    yield "bf16", lines("BF16 on one H200: time over the limit, twelve layers", [row["M"] for row in bf16], "M", {
        "culet": [float(row["tuned_over_limit"]) for row in bf16],
        "cuBLAS": [float(row["cublas_over_limit"]) for row in bf16],
        "DeepGEMM": [float(row["deep_gemm_over_limit"]) for row in bf16]})
    row = Result("h200_fp8_row").rows
    yield "fp8-row", lines("FP8 with scales of rows on H200s: time over cuBLASLt's, twelve layers",
                           [r["M"] for r in row], "M",
                           {"fast": [float(r["fast_over_better"]) for r in row],
                            "precise": [float(r["precise_over_better"]) for r in row]})
    decoded = Result("h200_decode").where(batch=1)
    yield "decode", bars("Decoding on one H200, batch 1: share of the memory limit in %",
                         [f"{r['model']} {r['format']}" for r in decoded],
                         {"culet": [float(r["share_of_limit"]) for r in decoded],
                          "transformers + torch.compile": [float(r["transformers_share"] or 0) for r in decoded]})
    attention = Result("h200_attention_decode").rows
    yield "attention", bars("Decode attention on H200s: time over cuDNN's in %",
                            [f"batch {r['batch']}, {int(r['context']):,} keys" for r in attention],
                            {"culet / cuDNN": [100 * float(r["culet_us"]) / float(r["cudnn_us"])
                                               for r in attention]})
    cpu = Result("cpu_formats")
    yield "cpu", bars("One shape on 2 CPU cores (n = k = 8192): share of the roofline in %",
                      [f"m = {m}" for m in cpu.values("M")],
                      {form: [float(r["share_of_roofline"]) for r in cpu.where(format=form)]
                       for form in cpu.values("format")})


def plot(name):
    yield f"![{name}](plots/{name}.svg)"
    yield ""


# ---- the page

def text(words):
    yield from wrapped(words)
    yield ""


def page():
    yield "<!-- Written by bench/performance_page.py from bench/results: change those. -->"
    yield "# Performance"
    yield ""
    yield from text(
        "Every table stands with its command, card, date and commit, and links to the file that it is made of. "
        "Times are medians of cold launches over rotating inputs larger than the last-level cache, the candidates "
        "interleaved. Ratios are of one run unless a note says otherwise; means are geometric. Data are standard "
        "normal, quantised where the format is. *Limit* is the larger of bytes over read rate and operations over arithmetic "
        "rate: on the H200 4.31 TB/s and 788 (BF16) or 1550 (FP8) TFLOP/s. *PDL* is programmatic dependent launch. "
        "*Tuned* is what `culet tune` chose, *untuned* what the cost model chooses. The twelve layers are "
        "`bench/llm_shapes.txt`. Lower is better, except for shares of a limit. To measure on your machine: "
        "[tuning.md](tuning.md).")
    yield from plot("decode")
    yield "## FP8 with scales of blocks"
    yield ""
    yield from plot("fp8-block")
    yield from fp8_block()
    yield from text("Layers of other models, for which no kernel was made and to which no prediction was fitted:")
    yield from fp8_block_unseen()
    yield from text("Untuned choices on such layers:")
    yield from plain("predictions", ["device", "launched", "rows", "untuned / best", "worst"])
    yield "## BF16"
    yield ""
    yield from plot("bf16")
    yield from plain("h200_bf16", ["M", "cuBLAS / limit", "DeepGEMM / limit", "tuned / limit",
                                   "tuned / better of both", "worst row", "with PDL / better"])
    yield from text(f"All rows: {number(bf16_mean(), 3)} of the better one's time. The goal is 0.95 and no row above "
                    "1.05.")
    yield "## FP8 with scales of rows or tensors"
    yield ""
    yield from plot("fp8-row")
    yield from plain("h200_fp8_row", ["M", "fast / better", "worst row", "precise / better", "worst row",
                                      "fast / limit"])
    yield from text("The choice among all kernels, cuBLASLt's own among them:")
    yield from plain("h200_choice_over_cublaslt",
                     ["format", "M", "rows", "choice / cuBLASLt's fastest", "worst row", "cuBLASLt won",
                      "commit"])
    yield "## Gated products"
    yield ""
    yield from text("Products whose epilogue applies SwiGLU, over the plain product and over the plain product followed "
                    "by a separate kernel: mean of four layers, in brackets the highest. To E4M3 codes with scales:")
    yield from gated("h100_gated_e4m3")
    yield from text("To BF16:")
    yield from gated("gated_bf16")
    yield "## Routed experts"
    yield ""
    yield from text("Products as routing leaves rows, six layers of DeepSeek-V3 (eight ranks), Qwen3-30B and "
                    "Mixtral:")
    yield from grouped()
    yield "## Weights of 4 and 8 bits by BF16"
    yield ""
    yield from codes()
    yield "## Decoding and prompts"
    yield ""
    yield from decode()
    yield from plain("h200_models", ["model", "format", "tokens/s", "% of the limit", "prompt, tokens/s"])
    yield from text("The products' time alone over their time in the step:")
    yield from plain("h200_decode_products", ["model", "format", "batch 1", "8", "32", "64", "128"])
    yield from text("Prompts:")
    yield from plain("h200_prefill", ["model", "format", "tokens", "ms", "heads and SwiGLU not fused, ms"])
    yield from text("Through Python, beside transformers:")
    yield from plain("h200_transformers", ["tokens/s", "BF16", "FP8"])
    yield "## Attention"
    yield ""
    yield from plot("attention")
    yield from plain("h200_attention_decode", ["batch", "keys", "culet, us", "cuDNN, us"])
    yield from text("Over a cache of E4M3:")
    yield from plain("h200_attention_e4m3", ["batch", "keys", "E4M3, us", "BF16, us"])
    yield from text("Prompts:")
    yield from attention_prefill()
    yield "## Other GPU kernels"
    yield ""
    yield from text("The activation quantiser; the goal is at most 1.2 times 1.9 us + bytes / 4.5 TB/s, and 85 % of the "
                    "copy bandwidth from 80 MB:")
    yield from plain("h200_quantize", ["rows", "K", "MB", "us", "over 1.9 us + bytes / 4.5 TB/s", "% of the copy rate"])
    yield from text("The kernels for any shape and any GPU (`cuda_any`), to which problems fall that the Hopper "
                    "families refuse:")
    yield from plain("h200_any_shape", ["format", "M", "N", "K", "bytes a copy", "kernel", "us"])
    yield "## CPU"
    yield ""
    yield from plot("cpu")
    yield from cpu_formats()
    yield from cpu_layers()
    yield from text("Beside oneDNN:")
    yield from plain("cpu_onednn_own", ["M", "BF16, own / best", "range", "F32, own / best", "range"])
    yield from plain("cpu_onednn_alone", ["culet / oneDNN", "M = 1", "4", "16", "64", "128", "512"])
    yield from text("Tuned and untuned choices:")
    yield from plain("cpu_tuned", ["machine", "format", "M", "tuned / best", "worst", "untuned / best", "worst"])
    yield from text("Decoding Qwen3-0.6B:")
    yield from plain("cpu_decode", ["SIMD", "format", "tokens/s", "% of the read rate", "prompt of 256, tokens/s"])
    yield "## Host time, size, build"
    yield ""
    yield from plain("dispatch_cost", ["what", "ns"])
    yield from plain("host_cost", ["us a call from Python", "CPU", "H200"])
    yield from plain("package", ["what", "MB"])
    yield from plain("build", ["machine", "build", "tests"])


def page_text():
    found = "\n".join(page()) + "\n"
    while "\n\n\n" in found:
        found = found.replace("\n\n\n", "\n\n")
    return found.rstrip("\n") + "\n"


# ---- README.md

def readme_table():
    decoded = {f"{r['model']} {r['format']}": r for r in Result("h200_decode").where(batch=1)}
    eight = decoded["Llama-3.1-8B BF16"]
    block = Result("h200_fp8_block").rows
    bf16 = Result("h200_bf16").rows
    unseen = unseen_rows()
    size = {row["what"]: row["megabytes"] for row in Result("package").rows}

    def speed(row):
        return f"{row['tokens_per_s']} tokens/s, {float(row['share_of_limit']):.0f} % of what memory allows"
    yield from table(["on one H200", "culet", "beside"], [
        ["Llama-3.1-8B in BF16, decoding", speed(eight),
         f"transformers + torch.compile: {eight['transformers_tokens_per_s']}, {eight['transformers_share']} %"],
        ["Llama-3.1-8B in FP8", speed(decoded["Llama-3.1-8B FP8 blocks"]), ""],
        ["Llama-3.1-70B in FP8", speed(decoded["Llama-3.1-70B FP8 blocks"]), ""],
        [f"FP8 blocks, {len(block)} products", f"{mean_of(block, 'tuned_us', 'deep_gemm_us'):.2f} of DeepGEMM's time",
         f"{mean_of(block, 'tuned_us', 'cublaslt_us'):.2f} of cuBLASLt's"],
        ["the same, layers that nothing was fitted to",
         f"{geometric_mean(float(r['tuned_over_deep_gemm']) for r in unseen):.2f} of DeepGEMM's time",
         f"{geometric_mean(float(r['pdl_over_deep_gemm']) for r in unseen):.2f} with dependent launches"],
        [f"BF16, {12 * len(bf16)} products", f"{bf16_mean():.2f} of the faster peer's time", "cuBLAS, DeepGEMM"],
        ["wheel", f"{size['wheel with CUDA kernels of six architectures']} MB, six GPU architectures",
         f"{size['wheel without CUDA']} MB without CUDA"],
        ["compiler or CUDA toolkit at run time", "none; nothing is compiled on your machine", ""],
    ])


def readme_text(old):
    if old.count(README_BEGIN) != 1 or old.count(README_END) != 1:
        raise SystemExit(f"README.md must hold one line {README_BEGIN} and one line {README_END}")
    before, rest = old.split(README_BEGIN)
    rows = "\n".join(readme_table())
    return f"{before}{README_BEGIN}\n{rows}\n{README_END}{rest.split(README_END)[1]}"


def wanted():
    """Path -> what it should hold."""
    files = {ROOT / "docs/performance.md": page_text(),
             ROOT / "README.md": readme_text((ROOT / "README.md").read_text())}
    return files | {ROOT / f"docs/plots/{name}.svg": svg for name, svg in plots()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    files = wanted()
    used = {path.stem for path in RESULTS.glob("*.csv")}
    wrong = [path for path, content in files.items() if not path.exists() or path.read_text() != content]
    unused = [name for name in used if f"bench/results/{name}.csv" not in files[ROOT / "docs/performance.md"]]
    for name in unused:
        print(f"bench/results/{name}.csv is on no page")
    if args.check:
        for path in wrong:
            print(f"{path.relative_to(ROOT)} is not what bench/performance_page.py writes: run it")
        return 1 if wrong or unused else 0
    (ROOT / "docs/plots").mkdir(exist_ok=True)
    for path, content in files.items():
        path.write_text(content)
    return 1 if unused else 0


if __name__ == "__main__":
    sys.exit(main())
