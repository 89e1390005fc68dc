#!/usr/bin/env python3
"""The CUDA objects of the build hold exactly the architectures that are promised: machine code for
every kind of multiprocessor from compute capability 8.0 on and PTX for those to come, or, where
Hopper's own instructions are used, machine code for sm_90a alone.

Reads the fat binaries itself: the toolkit's cuobjdump need not be there."""

import argparse
import re
import struct
import sys
from pathlib import Path

# Of a wheel; a build says in its CMakeCache.txt which ones it chose (CULET_CUDA_ARCHS).
EVERYWHERE = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "compute_80"}
HOPPER = {"sm_90a"}
PORTABLE_FOLDERS = ("src/cuda", "src/kernels/cublaslt", "src/kernels/cuda",
                    "src/kernels/cuda_ops")
HOPPER_FOLDERS = ("src/cuda/sm90a", "src/kernels/sm90", "src/kernels/cuda_ops/sm90a")

MAGIC = struct.pack("<I", 0xBA55ED50)
PTX, ELF = 1, 2
ARCH_OFFSET, FLAGS_OFFSET = 28, 40
ARCH_SPECIFIC = 0x100000


def images(data):
    """Names of the images of the first fat binary in `data`, in their order."""
    start = data.find(MAGIC)
    if start < 0:
        return []
    header, size = struct.unpack_from("<HQ", data, start + 6)
    at, end, names = start + header, start + header + size, []
    while at < end:
        kind, _, entry_header, payload = struct.unpack_from("<HHIQ", data, at)
        (arch,) = struct.unpack_from("<I", data, at + ARCH_OFFSET)
        (flags,) = struct.unpack_from("<Q", data, at + FLAGS_OFFSET)
        suffix = "a" if flags & ARCH_SPECIFIC else ""
        names.append({PTX: "compute_", ELF: "sm_"}.get(kind, f"kind{kind}_") + f"{arch}{suffix}")
        at += entry_header + payload
    return names


def expected_of(path):
    """What the object of a CUDA source must hold; None for a folder without a rule."""
    for folders, expected in ((HOPPER_FOLDERS, HOPPER), (PORTABLE_FOLDERS, EVERYWHERE)):
        if any(f"/{folder}/" in path for folder in folders):
            return expected
    return None


def fault_of(path, data):
    """What is wrong with one object, or nothing."""
    expected, found = expected_of(path), images(data)
    if expected is None:
        return f"{path}: no rule says which architectures it is for"
    if len(found) != len(set(found)):
        return f"{path}: holds an architecture twice: {' '.join(found)}"
    missing, surplus = expected - set(found), set(found) - expected
    if missing or surplus:
        return f"{path}: lacks {sorted(missing)}, holds {sorted(surplus)} besides"
    return None


def chosen(cache):
    """The images that a build's CMakeCache.txt asks for; None where it does not say."""
    found = re.search(r"^CULET_CUDA_ARCHS:STRING=(.*)$", cache, re.MULTILINE)
    return {f"sm_{arch}" for arch in found[1].split(";")} | {"compute_80"} if found else None


def make(names):
    """A fat binary with empty images of these names."""
    body = b""
    for name in names:
        kind = PTX if name.startswith("compute_") else ELF
        digits = name.split("_")[1]
        flags = ARCH_SPECIFIC if digits.endswith("a") else 0
        body += struct.pack("<HHIQIIIIIIQ", kind, 0x101, 64, 8, 0, 0, 0, int(digits.rstrip("a")),
                            64, 0, flags).ljust(64, b"\0") + b"\1" * 8
    return b"ELF before" + MAGIC + struct.pack("<HHQ", 1, 16, len(body)) + body + b"behind"


def self_test():
    """Whether the check sees each way to be wrong, and nothing else."""
    portable, hopper = "/b/src/kernels/cuda/x.cu.o", "/b/src/kernels/sm90/instances/x.cu.o"
    whole = sorted(EVERYWHERE)
    cases = [
        (portable, whole, None), (hopper, ["sm_90a"], None),
        (portable, whole[1:], "lacks"), (portable, whole + ["sm_75"], "besides"),
        (portable, [n for n in whole if n != "sm_90"] + ["sm_90a"], "lacks ['sm_90']"),
        (portable, whole + ["sm_80"], "twice"), (hopper, ["sm_90"], "lacks ['sm_90a']"),
        (portable, [], "lacks"), ("/b/src/gemm/x.cu.o", whole, "no rule"),
    ]
    failures = []
    for path, names, wanted in cases:
        fault = fault_of(path, make(names))
        if (fault is None) != (wanted is None) or (wanted and wanted not in fault):
            failures.append(f"self-test: {path} with {names} gives {fault}")
    if chosen("A:STRING=1\nCULET_CUDA_ARCHS:STRING=80;90\n") != {"sm_80", "sm_90", "compute_80"}:
        failures.append("self-test: the build's own choice is not read")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    args, _ = parser.parse_known_args()
    faults = self_test()
    listing = args.build / "cuda_objects.txt"
    objects = listing.read_text().split() if listing.is_file() else []
    cache = args.build / "CMakeCache.txt"
    if objects and cache.is_file():
        EVERYWHERE.clear()
        EVERYWHERE.update(chosen(cache.read_text()) or {"sm_? of CULET_CUDA_ARCHS"})
    faults += filter(None, (fault_of(path, Path(path).read_bytes()) for path in objects))
    for fault in faults:
        print(fault)
    if not faults:
        print(f"fatbin_check: ok, {len(objects)} objects" if objects
              else "fatbin_check: this build has no CUDA parts; only the check itself was checked")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
