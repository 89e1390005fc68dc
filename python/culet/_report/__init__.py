"""`culet report FILE... -o report.html`: what was measured, as one page to look at.

Nothing here needs the library: a report is made of files, on any machine."""

import argparse
import os
import sys
from typing import Sequence

from culet._report.page import page
from culet._report.read import BadFile, read

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        prog="culet report", description="Make one self-contained HTML page of the --json output of bench, bench "
        "--decode, tune, verify and doctor: roofline, time over the limit, speed beside each kernel and "
        "library, regret, a decode step, the machine.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="what a command printed with --json")
    parser.add_argument("-o", "--output", metavar="FILE", default="report.html",
                        help="the page (default: %(default)s)")
    parser.add_argument("--title", default="culet report", help="the page's title (default: %(default)s)")
    parsed = parser.parse_args(arguments)
    try:
        text = page([read(path) for path in parsed.files], parsed.title)
    except BadFile as error:
        print(f"culet: {error}", file=sys.stderr)
        return 1
    beside = f"{parsed.output}.{os.getpid()}.tmp"
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, parsed.output)
    except OSError as error:
        print(f"culet: {parsed.output} cannot be written ({error.strerror}); name another with -o", file=sys.stderr)
        try:
            os.remove(beside)
        except OSError:
            pass
        return 1
    print(f"{parsed.output}: {len(text.encode()) / 1024:.0f} KB")
    return 0
