#!/usr/bin/env python3
"""oneDNN as `culet explain` and `culet bench` see it: found by a name in CULET_ONEDNN or beside a
Python environment, refused with a reason, left out, never loaded before a product may use it."""

import argparse
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PROBLEM = ["--m", "48", "--n", "64", "--k", "128", "--format", "f32", "--cache", "off"]
HALF = [word.replace("f32", "f16") for word in PROBLEM]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source")
    parser.add_argument("--build", required=True)
    parser.add_argument("--cli", required=True)
    args = parser.parse_args()
    fake = Path(args.build, "tests", "libfake_onednn.so").resolve()

    def culet(*words, **environment):
        clean = {k: v for k, v in os.environ.items()
                 if k not in ("CULET_ONEDNN", "CULET_PROVIDERS", "VIRTUAL_ENV")}
        found = subprocess.run([args.cli, *words], env=clean | environment, text=True,
                               capture_output=True, check=False)
        assert found.returncode == 0, found.stderr
        return found.stdout

    def reason(kernel="onednn/f32", **environment):
        """What `explain` says of a kernel."""
        problem = [word.replace("f32", kernel[7:]) for word in PROBLEM]
        lines = [line for line in culet("explain", *problem, **environment).splitlines()
                 if f" {kernel} " in line or line.rstrip().endswith(f"{kernel} (predicted)")]
        assert len(lines) == 1, lines
        return lines[0]

    absent = reason(CULET_ONEDNN="/nowhere/libdnnl.so.3")
    assert "/nowhere/libdnnl.so.3" in absent and "CULET_ONEDNN" in absent, absent
    for fault, words in (("old", "needs version 3"), ("new", "oneDNN 4.9.1"), ("tbb", "for TBB"),
                         ("engine", "no engine")):
        refused = reason(CULET_ONEDNN=str(fake), FAKE_ONEDNN=fault)
        assert words in refused, refused
    assert "predicted" in reason(CULET_ONEDNN=str(fake))
    assert "predicted" in reason("onednn/bf16", CULET_ONEDNN=str(fake))
    # Without AVX-512 BF16 the library would convert, and be slower than with F32.
    assert "predicted" in reason(CULET_ONEDNN=str(fake), FAKE_ONEDNN="avx2")
    assert "AVX-512 BF16" in reason("onednn/bf16", CULET_ONEDNN=str(fake), FAKE_ONEDNN="avx2")
    assert "left out" in reason(CULET_ONEDNN=str(fake), CULET_PROVIDERS="own")

    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "lib", "libdnnl.so.3")
        library.parent.mkdir()
        shutil.copy(fake, library)
        assert "predicted" in reason(VIRTUAL_ENV=folder)

    # It competes, and what it computes is checked: a bench row without an error.
    rows = culet("bench", *PROBLEM, "--kernels", "onednn/f32", "--rounds", "2",
                 CULET_ONEDNN=str(fake))
    assert "onednn/f32" in rows and "WRONG" not in rows, rows

    # Who lists devices, or has a product that it cannot serve, does not load it.
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "loaded")
        for words, loads in ((["devices"], False), (["explain", *HALF], False),
                             (["explain", *PROBLEM], True)):
            trace.unlink(missing_ok=True)
            culet(*words, CULET_ONEDNN=str(fake), FAKE_ONEDNN_TRACE=str(trace))
            assert trace.exists() == loads, words
    print("onednn_check: ok")


if __name__ == "__main__":
    main()
