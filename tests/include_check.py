#!/usr/bin/env python3
"""Checks of the source tree that no compiler makes: who includes whom, public headers that compile
alone, file lengths, silence of the library, the catalog, and no trace of a machine.

Prints one line for each fault and exits with 1. Before the tree, it checks itself on a small tree
into which it puts every fault in turn (--self-test does that alone)."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CODE = {".h", ".hpp", ".cc", ".cu", ".cuh", ".def"}
TEXT = CODE | {".py", ".cmake", ".txt", ".md", ".json", ".sh", ".yml", ".toml", ""}
MAX_LINES = 700

HOPPER = ["culet/", "base/", "cuda/", "sm90/", "kernels/catalog.h", "kernels/sm90/product/", "kernels/sm90/times/"]

# Folder -> what its files may include with quotes: folders (with a final slash) or single headers.
# The first entry that contains a file counts.
DIRECTIONS = [
    ("include/culet/", ["culet/"]),
    ("src/base/", ["culet/", "base/"]),
    ("src/no_cuda/", ["base/accelerator.h", "culet/dispatch.h", "culet/ranks.h"]),
    # The CUDA runtime implements the interface that gemm tunes through; the tensor cores' rate is
    # measured with their own instructions.
    ("src/cuda/sm90a/", ["cuda/", "sm90/"]),
    ("src/cuda/", ["culet/", "base/", "cuda/", "gemm/runtime.h"]),
    ("src/sm90/", ["base/", "culet/layout/", "sm90/"]),
    ("src/model/", ["culet/", "base/", "model/"]),
    ("src/ranks/", ["culet/", "base/", "graph/fusion_search.h", "model/text_file.h", "ranks/"]),
    # The CUDA dispatch is made of these, and of nothing that runs on the host alone.
    ("src/graph/cuda/", ["culet/", "base/", "cuda/", "graph/", "kernels/cuda_ops/", "kernels/sm90/grouped/"]),
    ("src/graph/", ["culet/", "base/", "graph/", "kernels/ops/"]),
    # The host's quantisers and the CPU families' quantised outputs are one code.
    ("src/gemm/quantize.cc", ["culet/", "base/", "gemm/", "kernels/cpu/simd_quantize.h"]),
    ("src/gemm/", ["culet/", "base/", "gemm/"]),
    ("src/doctor/", ["culet/", "base/accelerator.h", "base/trace.h", "doctor/"]),
    ("src/verify/", ["culet/", "base/", "gemm/", "verify/"]),
    ("src/kernels/catalog.", ["culet/", "kernels/catalog."]),
    # The operations beside products are vectorised with the tools of the CPU families.
    ("src/kernels/ops/", ["culet/", "base/", "kernels/ops/", "kernels/cpu/simd_"]),
    # A library's sums are stored as those of the CPU families are.
    ("src/kernels/onednn/", ["culet/", "base/", "kernels/onednn/", "kernels/catalog.h",
                             "kernels/cpu/simd_exact.h", "kernels/cpu/simd_store.h"]),
    # Hopper's kernels stand on what all their products share. A norm that is fused with a product has the
    # bits of the norm's own kernel.
    ("src/kernels/sm90/product/", ["culet/", "base/", "cuda/", "sm90/", "kernels/catalog.h",
                                   "kernels/sm90/product/"]),
    ("src/kernels/sm90/block/", HOPPER + ["kernels/sm90/block/"]),
    ("src/kernels/sm90/swap/", HOPPER + ["kernels/sm90/swap/"]),
    ("src/kernels/sm90/grouped/", HOPPER + ["kernels/sm90/grouped/", "kernels/sm90/skinny/"]),
    ("src/kernels/sm90/skinny/", HOPPER + ["kernels/sm90/skinny/", "kernels/cuda_ops/rms_norm.cuh",
                                           "kernels/cuda_ops/values.cuh"]),
    ("src/kernels/sm90/", ["culet/", "sm90/", "kernels/sm90/"]),
    # Products of codes use the operations' instructions, and a graph's codes are decoded as theirs.
    ("src/kernels/cuda/codes", ["culet/", "base/", "cuda/", "kernels/cuda/", "kernels/catalog.h",
                                "kernels/cuda_ops/code_product.h", "kernels/cuda_ops/ops.h"]),
    # The part of the CUDA operations that is Hopper's alone.
    ("src/kernels/cuda_ops/sm90a/", ["culet/", "sm90/", "kernels/cuda_ops/"]),
    # A device folder's families share headers of that folder and no other: see allowed_includes.
    ("src/kernels/", ["culet/", "base/", "cuda/", "sm90/", "kernels/catalog.h"]),
    # The C interface stands on the engine, as apps do.
    ("src/capi/", ["culet/", "base/accelerator.h", "base/device_scope.h", "capi/"]),
    ("apps/", ["culet/"]),
    ("examples/", ["culet/"]),
]
THIRD_PARTY_QUOTED = ("hwy/",)  # Highway re-includes its own headers, and asks for quotes

# What writes to the console or ends the process, in code without comments and strings.
NOISY = re.compile(
    r"\b(?:v?f?printf|puts|putchar|perror|abort|_?_?exit|quick_exit)\s*\(|std::(?:cout|cerr|clog|terminate)\b"
)
MACHINE_PATH = re.compile(r"(?<![\w.~$})])/(?:work|root|mnt|srv|home/(?!user\b)\w+)/")
URL_HOST = re.compile(r"\bhttps?://([\w.-]+)")
PUBLIC_HOSTS = {
    "arxiv.org", "cmake.org", "docs.nvidia.com", "git-lfs.github.com", "github.com", "google.github.io",
    "huggingface.co", "www.apache.org", "www.w3.org",
}


def walk(root):
    """Source files of the tree as paths relative to it, sorted."""
    for folder, folders, names in os.walk(root):
        if Path(folder) == Path(root):
            folders[:] = [f for f in folders if f not in ("build", "shared")]
        folders[:] = sorted(
            f for f in folders if f in (".ci", ".github") or not f.startswith((".", "__"))
        )
        for name in sorted(names):
            path = Path(folder, name)
            # .git is a file, with a path of the machine, in a worktree.
            if path.suffix in TEXT and not path.is_symlink() and name != ".git":
                yield path.relative_to(root)


def code_of(text):
    """The text with comments and the contents of literals blanked, lines kept."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
    return token.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def allowed_includes(path):
    """The includes that DIRECTIONS grants to a file; None where everything is allowed."""
    name = path.as_posix()
    for folder, allowed in DIRECTIONS:
        if not name.startswith(folder):
            continue
        if folder == "src/kernels/":
            return allowed + [path.parent.relative_to("src").as_posix() + "/"]
        return allowed
    return None  # tests and benchmarks look inside


def check_includes(root, path, text):
    allowed = allowed_includes(path)
    own_folder = path.parts[0] in ("apps", "examples")
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text, re.MULTILINE):
        where, header = f"{path}:{line_of(text, match.start())}", match[1]
        if header.startswith(THIRD_PARTY_QUOTED):
            continue
        beside = (root / path.parent / header).is_file()
        if not beside and not any((root / base / header).is_file() for base in ("include", "src", ".")):
            yield f"{where}: includes {header}, which does not exist"
        elif ".." in header.split("/"):
            yield f"{where}: includes {header}; name it from include/ or src/"
        elif allowed is not None and not header.startswith(tuple(allowed)):
            if not (own_folder and beside):
                yield f"{where}: includes {header}; from here only {', '.join(allowed)}"


def check_public_header(path, text):
    """Public headers use the standard library alone, and CUDA's vector types where they are.
    The headers of the C interface are C."""
    guarded = "#if __has_include(<vector_types.h>)\n#include <vector_types.h>\n"
    for match in re.finditer(r"#[ \t]*include[ \t]*<([^>]+)>", text):
        c_header = path.name == "c_base.h" and match[1] in ("stddef.h", "stdint.h")
        standard = c_header or re.fullmatch(r"[a-z_]+", match[1])
        if not standard and not (match[1] == "vector_types.h" and guarded in text):
            where = f"{path}:{line_of(text, match.start())}"
            yield f"{where}: includes <{match[1]}>; public headers use the standard library alone"


def check_compiles_alone(root, path):
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
               "-I", str(root / "include"), "-x", "c++", "-"]
    # Twice: a header must also bear being included again.
    include = f'#include "{path.relative_to("include").as_posix()}"\n'
    done = subprocess.run(command, input=include * 2, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        yield f"{path}: does not compile alone: {done.stderr.strip().splitlines()[0]}"


def check_guard(path, text):
    if path.name.endswith("-inl.h"):
        # Highway includes these once for each instruction set.
        if "HWY_TARGET_TOGGLE" not in text:
            yield f"{path}: lacks Highway's HWY_TARGET_TOGGLE guard"
    elif len(re.findall(r"^#pragma once$", text, re.MULTILINE)) != 1:
        yield f"{path}: lacks #pragma once"


def check_catalog(root):
    folder = root / "src/kernels"
    sources = []
    for number, line in enumerate((folder / "catalog.def").read_text().splitlines(), 1):
        if not line or line.startswith("//"):
            continue
        where = f"src/kernels/catalog.def:{number}"
        if re.fullmatch(r'CULET_PROVIDER\("[a-z0-9_]+"\)', line):
            continue
        # One line a family: CMake reads it with this pattern too.
        match = re.fullmatch(r'CULET_(?:CPU|CUDA)_FAMILY\("([^"]+)", (\w+)\)', line)
        if not match:
            yield f"{where}: is no CULET_CPU_FAMILY or CULET_CUDA_FAMILY line"
        elif not (folder / match[1]).is_file():
            yield f"{where}: names {match[1]}, which does not exist"
        elif match[2] not in (folder / match[1]).read_text():
            yield f"{where}: {match[1]} does not define {match[2]}"
        else:
            sources.append(match[1])
    if not sources:
        yield "src/kernels/catalog.def: names no family"


def check_traces(path, text):
    for match in MACHINE_PATH.finditer(text):
        yield f"{path}:{line_of(text, match.start())}: holds a path of one machine, {match[0]}"
    for match in URL_HOST.finditer(text):
        if match[1] not in PUBLIC_HOSTS:
            where = f"{path}:{line_of(text, match.start())}"
            yield f"{where}: holds the host {match[1]}; is it public? Then add it to PUBLIC_HOSTS"


def check_tree(root):
    """Every fault of the tree, one line each."""
    faults = []
    for path in walk(root):
        text = (root / path).read_text(errors="replace")
        faults += check_traces(path, text)
        if path.suffix not in CODE | {".py"}:
            continue
        lines = len(text.splitlines())
        if lines > MAX_LINES:
            faults.append(f"{path}: has {lines} lines, more than {MAX_LINES}; split it")
        if path.suffix not in CODE:
            continue
        faults += check_includes(root, path, text)
        if path.suffix in (".h", ".cuh"):
            faults += check_guard(path, text)
        # A program asks for the handler of SIGBUS there, whose process ends in any case.
        if path.parts[0] in ("src", "include") and str(path) != "src/base/lost_file.cc":
            for match in NOISY.finditer(code_of(text)):
                where = f"{path}:{line_of(text, match.start())}"
                faults.append(f"{where}: the library never prints, aborts or exits: {match[0]}")
        if path.parts[:2] == ("include", "culet"):
            faults += check_public_header(path, text)
            faults += check_compiles_alone(root, path)
    faults += check_catalog(root)
    return faults


# A tree without faults, and for each rule a file that breaks it with what must be reported.
SOUND_TREE = {
    "include/culet/c_base.h": "#pragma once\n#include <stddef.h>\n#include <stdint.h>\n",
    "include/culet/a.h": "#pragma once\n#include <cstddef>\ninline int A() { return 0; }\n",
    "src/base/b.cc": '#include "culet/a.h"\n// printf( and abort( in a comment\n'
                     'const char* text = "exit(1)"; int n = snprintf(nullptr, 0, "");\n',
    "src/sm90/l.h": "#pragma once\n",
    "src/kernels/catalog.def": '// families\nCULET_CPU_FAMILY("cpu/f.cc", AddF)\n',
    "src/kernels/cpu/f.cc": '#include "kernels/cpu/f.h"\n#include "sm90/l.h"\nvoid AddF() {}\n',
    "src/kernels/cpu/f.h": "#pragma once\n",
    "src/kernels/cpu/f-inl.h": "#if defined(X) == defined(HWY_TARGET_TOGGLE)\n#endif\n",
    "src/kernels/sm90/g.h": "#pragma once\n",
    "apps/own.h": "#pragma once\n",
    "apps/culet.cc": '#include "culet/a.h"\n#include "own.h"\nint main() { printf("hello"); }\n',
    "docs/a.md": "see https://github.com/google/highway and /usr/local/cuda\n",
}
FAULTS = [
    ("src/sm90/l.h", '#pragma once\n#include "culet/a.h"\n', "src/sm90/l.h:2: includes culet/a.h"),
    ("src/gemm/g.cc", '#include "kernels/cpu/f.h"\n', "src/gemm/g.cc:1: includes kernels/cpu/f.h"),
    ("src/kernels/cpu/f.cc", '#include "kernels/sm90/g.h"\nvoid AddF();\n', "includes kernels/sm90/g.h"),
    ("src/base/c.cc", '#include "nothing.h"\n', "nothing.h, which does not exist"),
    ("src/base/c.cc", '#include "base/../sm90/l.h"\n', "name it from include/ or src/"),
    ("examples/e.cc", '#include "sm90/l.h"\n', "examples/e.cc:1: includes sm90/l.h"),
    ("examples/e.cc", '#include "../src/sm90/l.h"\n', "includes ../src/sm90/l.h"),
    ("include/culet/a.h", '#pragma once\n#include "sm90/l.h"\n', "a.h:2: includes sm90/l.h"),
    ("include/culet/a.h", "#pragma once\n#include <fmt/format.h>\n", "a.h:2: includes <fmt/format.h>"),
    ("include/culet/a.h", "#pragma once\n#include <vector_types.h>\n", "includes <vector_types.h>"),
    ("include/culet/a.h", "#pragma once\n#include <stdint.h>\n", "includes <stdint.h>"),
    ("include/culet/a.h", "#pragma once\ninline std::string s;\n", "a.h: does not compile alone"),
    ("include/culet/a.h", "inline int A() { return 0; }\n", "a.h: lacks #pragma once"),
    ("src/sm90/t.cuh", "void F();\n", "src/sm90/t.cuh: lacks #pragma once"),
    ("src/kernels/cpu/f-inl.h", "#pragma once\n", "lacks Highway's HWY_TARGET_TOGGLE guard"),
    ("src/base/c.cc", "int x;\n" * 701, "src/base/c.cc: has 701 lines"),
    ("tests/t.py", "x = 1\n" * 701, "tests/t.py: has 701 lines"),
    ("src/base/c.cc", 'void F() { printf("x"); }\n', "src/base/c.cc:1: the library never prints"),
    ("src/base/c.cc", "void F() { std::cerr << 1; }\n", "std::cerr"),
    ("src/base/c.cc", "\nvoid F() { std::abort (); }\n", "src/base/c.cc:2: the library never"),
    ("src/base/c.cc", "void F() { exit(1); }\n", "exit("),
    ("src/kernels/catalog.def", 'CULET_CPU_FAMILY("cpu/no.cc", AddF)\n', "cpu/no.cc, which does not"),
    ("src/kernels/catalog.def", 'CULET_CPU_FAMILY("cpu/f.cc", AddG)\n', "does not define AddG"),
    ("src/kernels/catalog.def", 'CULET_CPU_FAMILLY("cpu/f.cc", AddF)\n', "is no CULET_CPU_FAMILY"),
    ("src/kernels/catalog.def", "// nothing\n", "names no family"),
    ("docs/a.md", "cd /" + "work/main\n", "docs/a.md:1: holds a path of one machine"),
    (".ci/run", "cd /" + "home/me/x\n", ".ci/run:1: holds a path of one machine"),
    ("docs/a.md", "https:/" + "/mirror.example.com/simple\n", "the host mirror.example.com"),
]


def self_test():
    """Whether each fault is reported, and nothing besides."""
    failures = []
    for name, content, expected in [("", "", "")] + FAULTS:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for file, text in {**SOUND_TREE, **({name: content} if name else {})}.items():
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).write_text(text)
            faults = check_tree(root)
            if name == "" and faults:
                failures.append(f"the sound tree is blamed: {faults}")
            elif name != "" and not any(expected in fault for fault in faults):
                failures.append(f"'{expected}' in {name} was not found, but: {faults}")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--self-test", action="store_true", help="check the checks alone")
    args, _ = parser.parse_known_args()
    faults = [f"self-test: {failure}" for failure in self_test()]
    if not args.self_test:
        faults += check_tree(args.source.resolve())
    for fault in faults:
        print(fault)
    print(f"include_check: {len(faults)} faults" if faults else "include_check: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
