#!/usr/bin/env python3
"""Checks README.md and docs/*.md, and compiles their code as a user would: against the installed library.

A ```cpp block whose first line is `// file: name.cc` is a complete program: it is built through
find_package(culet) and run, and must exit with 0. `// file: src/...` is a file of the tree: it is
compiled with the tree's headers. What follows `// from: tests/...` must stand in that file as it is.
Blocks without such a line are fragments and left alone.

Python's blocks run in tests/python/test_docs.py. The pages keep their sizes: docs/ has at most 30,000 words, README.md
120 lines, no line more than 120 columns. Their links lead somewhere. The page of figures, its plots and README.md's
table are what bench/performance_page.py makes of bench/results.

Before that the check proves on pages and blocks with faults that it can fail."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

BLOCK = re.compile(r"^([ ]*)```cpp\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
FILE_LINE = re.compile(r"// file: ([\w./-]+\.cc)\n")
FROM_LINE = re.compile(r"// from: ([\w./-]+)\n")

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(docs LANGUAGES CXX)
find_package(culet REQUIRED)
add_compile_options(-Wall -Wextra -Werror)
foreach(name IN ITEMS {programs})
  add_executable(${{name}} ${{name}}.cc)
  target_link_libraries(${{name}} PRIVATE culet::culet)
endforeach()
"""


def named_blocks(document):
    """(name, code) of each block with a file line."""
    for match in BLOCK.finditer(document.read_text()):
        code = textwrap.dedent(match[2])
        if name := FILE_LINE.match(code):
            yield name[1], code


def misquoted(source, document):
    """A sentence for each block that is not what it says it is from."""
    for match in BLOCK.finditer(document.read_text()):
        code = textwrap.dedent(match[2])
        if (name := FROM_LINE.match(code)) and code[name.end():] not in (source / name[1]).read_text():
            yield f"{document.name}: a block from {name[1]} does not stand there"


MOST_WORDS, MOST_LINES, MOST_COLUMNS = 30000, 120, 120
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def words(text):
    """What holds a letter or a digit: not the lines of a table."""
    return sum(any(c.isalnum() for c in word) for word in text.split())


def anchors(text):
    """What a link behind # may name, as GitHub makes it of headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


def badly_laid_out(documents):
    """Sizes and links."""
    for document in documents:
        text = document.read_text()
        for number, line in enumerate(text.splitlines(), 1):
            generated = document.name == "support.md" and line.startswith("|")  # a row cannot be wrapped
            if len(line) > MOST_COLUMNS and not generated:
                yield f"{document.name}:{number}: has {len(line)} columns; {MOST_COLUMNS} are the most"
        if document.name == "README.md" and text.count("\n") > MOST_LINES:
            yield f"README.md: has {text.count(chr(10))} lines; {MOST_LINES} are the most"
        for link in LINK.findall(text):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = document.parent / path if path else document
            if not target.exists():
                yield f"{document.name}: links to {path}, which is not there"
            elif anchor and anchor not in anchors(target.read_text()):
                yield f"{document.name}: links to {link}, and {target.name} has no such heading"
    total = sum(words(document.read_text()) for document in documents if document.name != "README.md")
    if total > MOST_WORDS:
        yield f"docs/: has {total} words; {MOST_WORDS} are the most"


def run(command, **options):
    """None, or what the command printed before it failed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode == 0:
        return None
    return f"{' '.join(map(str, command))} exited with {done.returncode}:\n{done.stdout}{done.stderr}"


def cache_of(build):
    entries = re.findall(r"^(\w+):\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)
    return dict(entries)


def compile_source(source, compiler, name, code):
    command = [compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++",
               "-I", source / "include", "-I", source / "src", "-"]
    fault = run(command, input=code)
    return [f"{name}: {fault}"] if fault else []


def build_programs(build, cache, programs, folder):
    """Builds and runs the programs against an installation of `build`; what went wrong."""
    if fault := run(["cmake", "--install", build, "--prefix", folder / "prefix"]):
        return [fault]
    for name, code in programs.items():
        (folder / name).write_text(code)
    stems = [Path(name).stem for name in programs]
    (folder / "CMakeLists.txt").write_text(PROJECT.format(programs=" ".join(stems)))
    flags = "-fsanitize=address,undefined" if cache.get("CULET_SANITIZE") == "ON" else ""
    configure = ["cmake", "-G", cache["CMAKE_GENERATOR"], "-S", folder, "-B", folder / "build",
                 f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}", f"-DCMAKE_CXX_FLAGS={flags}",
                 "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON",
                 f"-DCMAKE_CXX_COMPILER={cache['CMAKE_CXX_COMPILER']}"]
    faults = [run(configure) or run(["cmake", "--build", folder / "build"])]
    if not faults[0]:
        faults = [run([folder / "build" / stem], timeout=120) for stem in stems]
    return [fault for fault in faults if fault]


def check(source, build, documents):
    cache = cache_of(build)
    programs, faults = {}, []
    for document in documents:
        faults += misquoted(source, document)
        for name, code in named_blocks(document):
            if name.startswith("src/"):
                faults += compile_source(source, cache["CMAKE_CXX_COMPILER"], name, code)
            elif name in programs:
                faults.append(f"{document.name}: a second program is called {name}")
            else:
                programs[name] = code
    if not programs:
        return faults + ["no document holds a program"]
    with tempfile.TemporaryDirectory() as folder:
        return faults + build_programs(build, cache, programs, Path(folder))


def self_test(source, build):
    """Whether a block that does not compile, and an empty document, are found."""
    compiler = cache_of(build)["CMAKE_CXX_COMPILER"]
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder, "a.md")
        document.write_text("```cpp\n// file: src/a.cc\nint a = b;\n```\n```cpp\nfragment\n```\n")
        blocks = list(named_blocks(document))
        if blocks != [("src/a.cc", "// file: src/a.cc\nint a = b;\n")]:
            return [f"self-test: found the blocks {blocks}"]
        if not compile_source(source, compiler, *blocks[0]):
            return ["self-test: a block that does not compile was accepted"]
        (Path(folder) / "b.cu").write_text("int a;\nint b;\n")
        document.write_text("```cpp\n// from: b.cu\nint b;\n```\n")
        if list(misquoted(Path(folder), document)):
            return ["self-test: a true quotation was refused"]
        (Path(folder) / "b.cu").write_text("int a;\n")
        if not list(misquoted(Path(folder), document)):
            return ["self-test: a false quotation was accepted"]
        readme = Path(folder) / "README.md"
        readme.write_text("## A b, c\n[x](a.md) [y](#a-b-c)\n" + "line\n" * 100)
        document.write_text("many words\n" * 100)
        if faults := list(badly_laid_out([readme, document])):
            return [f"self-test: sound pages were refused: {faults}"]
        readme.write_text("[x](none.md) [y](#d)\n" + "line\n" * 120)
        document.write_text("x" * 121 + "\n" + ("w " * 50 + "\n") * 600)
        if len(faults := list(badly_laid_out([readme, document]))) != 5:
            return [f"self-test: of five faults these were found: {faults}"]
        document.write_text("nothing\n")
        if not check(source, build, [document]):
            return ["self-test: a document without programs was accepted"]
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    args, _ = parser.parse_known_args()
    documents = sorted([args.source / "README.md", *(args.source / "docs").glob("*.md")])
    os.environ["CULET_CACHE"] = "off"
    faults = self_test(args.source, args.build)
    documents = [d for d in documents if d.exists()]
    faults += badly_laid_out(documents)
    fault = run([sys.executable, "-B", args.source / "bench/performance_page.py", "--check"])
    faults += [fault] if fault else []
    faults += check(args.source, args.build, documents)
    print("\n".join(faults) or "docs_check: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
