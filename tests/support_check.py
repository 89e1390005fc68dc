#!/usr/bin/env python3
"""docs/support.md's tables are what the registry says: build/.../tests/support_table prints them, those
of GPUs in builds with CUDA. `--write` brings the page up to date. And the words of errors that
docs/python.md explains are words of the sources."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

SECTION = re.compile(r"^## (.+)\n\n((?:\|.*\n)+)", re.MULTILINE)


def sections(text):
    """Title -> table, of the sections that begin with one."""
    return {match[1]: match[2] for match in SECTION.finditer(text)}


def check(page, printed):
    have, wanted = sections(page), sections(printed)
    if not wanted:
        yield "support_table prints no table"
    for title, table in wanted.items():
        if have.get(title) != table:
            yield (f"docs/support.md, '{title}', is not what the registry says; run "
                   f"tests/support_check.py --write on a build with CUDA. It says\n{table}")


# Of the loader, of Python, and those that a program makes up.
NOT_OURS = ("GLIBC_", "not found", "NotImplementedError: culet.deep_gemm")


def check_errors(page, source):
    """The table's first column, of which `...` stands for any words."""
    text = "".join(path.read_text() for folder, kind in (("python/culet", "*.py"), ("src", "*.cc"))
                   for path in sorted((source / folder).rglob(kind)))
    text = re.sub(r'"\s*\n\s*f?"', "", text)  # of literals over several lines
    rows = re.findall(r"^\| (`.*?) \| ", page.partition("## Troubleshooting")[2], re.MULTILINE)
    if not rows:
        yield "docs/python.md explains no error"
    for row in rows:
        for words in re.findall("`(.*?)`", row):
            for part in (part.strip(" .,:") for part in words.split("...")):
                if part and not part.startswith(NOT_OURS) and part not in text:
                    yield f"docs/python.md explains the error '{part}', which the sources do not have"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    args, _ = parser.parse_known_args()
    path = args.source / "docs/support.md"
    page = path.read_text()
    printed = subprocess.run([args.build.resolve() / "tests/support_table"], capture_output=True,
                             text=True, check=True).stdout
    if args.write:
        for title, table in sections(printed).items():
            old = sections(page).get(title)
            page = page.replace(f"## {title}\n\n{old or ''}",
                                f"## {title}\n\n{table}" + ("" if old else "\n"))
        path.write_text(page)
    faults = list(check(page, printed))
    if not list(check(page.replace("cpu_simd", "cpu", 1), printed)):
        faults.append("self-test: a table that is wrong passed")
    python = (args.source / "docs/python.md").read_text()
    faults += check_errors(python, args.source)
    if not list(check_errors(python.replace("has no backward", "has every backward"), args.source)):
        faults.append("self-test: an error that there is not passed")
    print("\n".join(faults) or "support_check: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
