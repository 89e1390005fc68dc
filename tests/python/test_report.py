"""`culet report`: what it reads, what it says of other files, and how the page looks in a browser: at 1280 and
at 400 pixels, light and dark, every plot is there, within the page, and its text is large enough, does not
collide and stands out."""

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import browser
from culet._report import main, plots
from culet._report.page import page
from culet._report.read import BadFile, read
from culet._report.svg import Log, ratio_axis, ratio_ticks, shown_time

DEVICE = "cuda/900/132sm/1980mhz/l2-60m/mem150g/4800gbps"
LAYERS = (("qkv", 6144, 4096), ("o", 4096, 4096), ("gate_up", 28672, 4096), ("down", 4096, 14336),
          ("lm_head_of_a_long_name", 128256, 4096))
KERNELS = ("sm90_bf16_skinny/8x128x64", "sm90_bf16_swap/16x128", "sm90_bf16_block/128x128x64", "cublaslt/bf16",
           "any_shape_mma/64x64x32")
READ_GBPS, GFLOPS = 4100.0, 700000.0


def bench():
    """As `culet bench --json` on a GPU."""
    dice, problems = random.Random(3), []
    for m in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192):
        for name, n, k in LAYERS:
            size, operations = 2 * (m * k + n * k + m * n), 2.0 * m * n * k
            limit = max(size / READ_GBPS / 1e3, operations / GFLOPS / 1e3)
            kernels = [{"kernel": kernel, "swizzle": 0, "splits": 1, "choice": False, "untuned": False,
                        "time_us": limit * (1.05 + 0.3 * dice.random() + 0.4 * abs(i - min(3, math.log2(m) / 3)))}
                       for i, kernel in enumerate(KERNELS)]
            kernels.sort(key=lambda entry: entry["time_us"])
            kernels[0]["choice"] = True
            kernels[dice.choice((0, 0, 1))]["untuned"] = True
            kernels.append({"kernel": "refused", "error": {"code": "UNSUPPORTED", "message": "no"}})
            problems.append({"name": name, "m": m, "n": n, "k": k, "format": "bf16", "out": "bf16", "pdl": False,
                             "fast": False, "roofline_us": limit, "bytes": size, "operations": operations,
                             "kernels": kernels})
    problems.append({"name": "failed", "m": 1, "n": 2, "k": 3, "format": "bf16", "out": "bf16", "error": "no memory"})
    return {"device": DEVICE, "name": "NVIDIA H200", "units": 132, "left_out": 0, "interrupted": False,
            "rates": {"read_gbps": READ_GBPS, "gflops": GFLOPS, "type": "bfloat16", "measured": True},
            "problems": problems}


def tune():
    dice = random.Random(4)
    return {"device": "cpu/avx3/2t/llc32m", "cache": None, "saved_in": None, "save_error": None, "measurements": 100,
            "interrupted": False, "problems": [
                {"name": name, "m": m, "n": n, "k": k, "format": "f32", "out": "f32", "pdl": False, "fast": False,
                 "outcome": "tuned", "measurements": 7, "dropped": [],
                 "winner": {"kernel": "cpu_simd/skinny/m8n3", "time_us": 100.0 * m,
                            "baseline_us": 100.0 * m * (1 + 0.2 * dice.random())},
                 "standings": [{"kernel": "cpu_simd/skinny/m8n3", "time_us": 100.0 * m},
                               {"kernel": "cpu_simd/blocked/mr6nr4", "time_us": 180.0 * m}]}
                for m in (1, 16) for name, n, k in LAYERS]}


def decode():
    nodes = [("mul_mat", "sm90_bf16_skinny/8x128x64", 64, 1800.0), ("attention", "cuda/attention_decode", 32, 210.0),
             ("mul_mat", "sm90_bf16_skinny_fused/8x128x64 + cuda/rms_norm of a layer", 32, 1600.0),
             ("embedding", "embedding", 1, 2.0)]
    return {"device": DEVICE, "config": "Llama-3.1-8B", "format": "bf16", "interrupted": False, "batch": 1,
            "context": 512, "read_gbps": READ_GBPS, "gflops": GFLOPS, "decode_tokens_per_s": 257.3,
            "prefill_tokens_per_s": 21000.0, "read_share": 0.9, "not_recorded": "",
            "decode": {"tokens": 1, "step_us": 3890.0, "nodes_us": 3612.0, "products": [], "nodes": [
                {"op": op, "kernel": kernel, "nodes": count, "time_us": time} for op, kernel, count, time in nodes]},
            "prefill": {"nodes": [], "products": [], "step_us": None}}


def verify():
    return {"device": "cpu/avx3/2t/llc32m", "passed": 4000, "failed": 1, "refused": 120, "left_out": 0,
            "interrupted": False,
            "failures": [{"kernel": "cpu_simd/skinny/m8n3", "problem": "m=3", "message": "D(0, 1) is <3>"}],
            "accuracy": [{"family": "cpu_simd/skinny", "type_a": "bfloat16", "type_d": "bfloat16",
                          "relative_l2": 1.6e-3, "limit": 2.8e-3, "problems": 300}]}


# Each visible text of a plot: where it is, how large it is, and its contrast with what is behind it.
MEASURE = """(() => {
  const visible = e => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0; };
  const luminance = color => { const c = color.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; };
  const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05); };
  const ground = getComputedStyle(document.body).backgroundColor;
  const plots = [...document.querySelectorAll('section[data-plot]')].map(section => ({
    plot: section.dataset.plot,
    heading: contrast(getComputedStyle(section.querySelector('h2')).color, ground),
    svgs: [...section.querySelectorAll('svg')].filter(visible).map(svg => {
      const box = svg.getBoundingClientRect();
      return { width: box.width, height: box.height, left: box.left, right: box.right,
        marks: [...svg.querySelectorAll('circle, rect')].map(mark => contrast(getComputedStyle(mark).fill, ground)),
        texts: [...svg.querySelectorAll('text')].map(text => {
          const r = text.getBoundingClientRect(), style = getComputedStyle(text);
          const cell = /^t\\d/.test(text.getAttribute('class') || '') ? text.previousElementSibling : null;
          return { text: text.firstChild ? text.firstChild.textContent : '', left: r.left, right: r.right, top: r.top,
            bottom: r.bottom, size: parseFloat(style.fontSize) * box.width / svg.viewBox.baseVal.width,
            contrast: contrast(style.fill, cell ? getComputedStyle(cell).fill : ground) }; }) }; }) }));
  return { page: innerWidth, scroll: document.documentElement.scrollWidth, plots,
    quiet: contrast(getComputedStyle(document.querySelector('p.quiet')).color, ground), ground,
    rows: [...document.querySelectorAll('td, th, .tile')].map(e => e.getBoundingClientRect().right) }; })()"""

PLOTS = {"roofline", "heat", "others", "regret", "waterfall", "accuracy", "machine"}


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, **documents):
        paths = []
        for name, document in documents.items():
            path = self.folder / f"{name}.json"
            path.write_text(document if isinstance(document, str) else json.dumps(document))
            paths.append(str(path))
        return paths

    def all(self):
        return self.write(bench=bench(), tune=tune(), decode=decode(), verify=verify())


class Reading(Files):
    def test_kinds(self):
        self.assertEqual([read(path).kind for path in self.all()], ["bench", "tune", "decode", "verify"])

    def test_a_product(self):
        product = read(self.write(bench=bench())[0]).products[0]
        best = min(bench()["problems"][0]["kernels"][:5], key=lambda entry: entry["time_us"])
        self.assertEqual((product.name, product.m, product.n, product.k, product.format),
                         ("qkv", 1, 6144, 4096, "bf16>bf16"))
        self.assertEqual(product.choice, (best["kernel"], best["time_us"]))
        self.assertEqual(len(product.kernels), 5)  # the one that refused has no time

    def test_what_is_no_document_is_named(self):
        for text, words in (("hello", "is no JSON"), ("[1]", "is not what bench"), ("{}", "is not what bench"),
                            ("[" * 100000, "is no JSON"), ('{"device": "x", "problems": [{}]}', "is not what bench"),
                            ('{"error": {"code": "IO", "message": "no cache"}}', "the command failed: no cache")):
            with self.subTest(text=text[:20]), self.assertRaisesRegex(BadFile, words):
                read(self.write(bad=text)[0])
        with self.assertRaisesRegex(BadFile, "none.json cannot be read"):
            read(str(self.folder / "none.json"))

    def test_the_command(self):
        out = self.folder / "report.html"
        self.assertEqual(main([*self.all(), "-o", str(out), "--title", "a <b>"]), 0)
        text = out.read_text()
        self.assertIn("<title>a &lt;b&gt;</title>", text)
        self.assertIn("&lt;3&gt;", text)  # a message of a file is text, not markup
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ["bench.json", "decode.json", "report.html", "tune.json", "verify.json"])
        with open(os.devnull, "w", encoding="utf-8") as quiet:
            self.assertEqual(subprocess.run([sys.executable, "-m", "culet", "report", "/none"], stderr=quiet,
                                            check=False).returncode, 1)
            self.assertEqual(subprocess.run([sys.executable, "-m", "culet", "report", *self.all(), "-o", "/none/x"],
                                            stderr=quiet, stdout=quiet, check=False).returncode, 1)

    def test_self_contained(self):
        text = page([read(path) for path in self.all()], "report")
        for reference in ("src=", "href=", "url(", "@import", "<script", "http:", "https:"):
            self.assertNotIn(reference, text)

    def test_each_plot_is_there(self):
        text = page([read(path) for path in self.all()], "report")
        for plot in PLOTS:
            self.assertIn(f'data-plot="{plot}"', text)
        self.assertNotIn("nan", text.lower().replace("nanosecond", ""))

    def test_a_single_product_and_an_empty_run(self):
        one = {**bench(), "problems": bench()["problems"][:1]}
        self.assertIn('data-plot="roofline"', page([read(self.write(one=one)[0])], "one"))
        none = {**bench(), "problems": []}
        self.assertIn("Nothing in these files", page([read(self.write(none=none)[0])], "none"))
        self.assertIn('data-plot="waterfall"', page([read(self.write(
            cut={**decode(), "decode": {"nodes": [], "step_us": None}})[0])], "cut"))

    def test_figures(self):
        """The heat map's and the strips' numbers, against the document's own."""
        products = read(self.write(bench=bench())[0]).products
        first = products[0]
        self.assertIn(f">{first.choice.time_us / first.limit_us:.2f}<", plots.heat_map(products))
        regret = [p.untuned_us / p.choice.time_us for p in products if p.name == "qkv"]
        mean = math.exp(sum(map(math.log, regret)) / len(regret))
        self.assertIn(f">{mean:.2f}<", plots.regret(products))

    def test_regret_of_an_untuned_run(self):
        """With --regret the choice is the untuned one; the best kernel is what it is compared with."""
        document = {**bench(), "regret": {"geometric_mean": 1.1}}
        for problem in document["problems"]:
            for entry in problem.get("kernels", []):
                entry["choice"] = entry["untuned"] = False
            if "kernels" in problem:
                problem["kernels"][1]["choice"] = True
        ratios = [p["kernels"][1]["time_us"] / p["kernels"][0]["time_us"] for p in document["problems"] if "kernels" in p]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        text = page([read(self.write(regret=document)[0])], "regret")
        self.assertIn(f"<b>{mean:.3f}</b>", text)
        self.assertIn('data-plot="regret"', text)

    def test_axes(self):
        axis = Log(1, 1000, 0, 300)
        self.assertAlmostEqual(axis(10), 100)
        self.assertEqual(axis(1e9), 300)
        self.assertLessEqual(len(Log(1e-3, 1e9, 0, 100).ticks(5)), 5)
        self.assertIn(1, ratio_ticks(ratio_axis(0.2, 900, 0, 300), 6))
        self.assertEqual([shown_time(t) for t in (0.5, 12.34, 4560, 1.2e6)], ["500 ns", "12.3 us", "4.56 ms", "1.20 s"])


PROGRAM = browser.find()


@unittest.skipUnless(PROGRAM, "there is no Chromium (Debian: apt install chromium), so no plot is looked at")
class InABrowser(Files):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "report.html"
        self.path.write_text(page([read(path) for path in self.all()], "report"))
        self.browser = browser.Browser(PROGRAM)
        self.addCleanup(self.browser.close)

    def test_plots_are_readable(self):
        for width in (1280, 400):
            for scheme in ("light", "dark"):
                with self.subTest(width=width, scheme=scheme):
                    self.browser.open(self.path, width, scheme)
                    self.check(self.browser.ask(MEASURE), width, scheme)

    def check(self, found, width, scheme):
        self.assertEqual(found["page"], width)
        self.assertLessEqual(found["scroll"], width)
        self.assertLessEqual(max(found["rows"]), width)
        self.assertEqual(found["ground"], "rgb(255, 255, 255)" if scheme == "light" else "rgb(13, 17, 23)")
        self.assertGreaterEqual(found["quiet"], 4.5)
        self.assertEqual({plot["plot"] for plot in found["plots"]}, PLOTS)
        for plot in found["plots"]:
            self.assertGreaterEqual(plot["heading"], 4.5)
            if plot["plot"] == "machine":  # a table
                continue
            self.assertEqual(len(plot["svgs"]), 1, plot["plot"])  # of the two widths one
            for svg in plot["svgs"]:
                self.check_drawing(plot["plot"], svg, width)

    def check_drawing(self, plot, svg, width):
        self.assertGreaterEqual(svg["width"], 0.8 * min(width, 900), plot)
        self.assertGreaterEqual(svg["height"], 50, plot)
        self.assertGreaterEqual(svg["left"], 0)
        self.assertLessEqual(svg["right"], width)
        self.assertTrue(svg["marks"], plot)
        if plot != "heat":  # where colour is what is shown, and the numbers stand beside it
            self.assertGreaterEqual(min(svg["marks"]), 3, plot)
        texts = svg["texts"]
        self.assertGreaterEqual(len(texts), 3, plot)
        for text in texts:
            self.assertGreaterEqual(text["size"], 11, text)
            self.assertGreaterEqual(text["contrast"], 4.5, text)
            self.assertGreaterEqual(text["left"], -0.5, text)
            self.assertLessEqual(text["right"], width, text)
        for i, a in enumerate(texts):
            for b in texts[:i]:
                across = min(a["right"], b["right"]) - max(a["left"], b["left"])
                down = min(a["bottom"], b["bottom"]) - max(a["top"], b["top"])
                self.assertFalse(across > 1 and down > 4, (plot, a, b))


if __name__ == "__main__":
    unittest.main()
