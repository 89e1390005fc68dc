"""Matrices in host memory for the tests: exact block-scaled inputs, poisoned outputs with guard
zones, and an oracle in whole numbers."""

import ctypes
import random
import struct

E4M3 = {0: 0x00, 1: 0x38, 2: 0x40, 3: 0x44, 4: 0x48, -1: 0xB8, -2: 0xC0}
NAN = 0x7F                 # of E4M3: lies between the rows
POISON = 0x7FED            # a NaN of BF16
GUARD = 64                 # elements around an output
_FORMATS = {"u1": ("B", 1), "u2": ("H", 2), "f4": ("f", 4)}


class Array:
    """rows x cols elements at any strides, as numpy shows its arrays."""

    def __init__(self, kind, shape, strides, fill=0, offset=0):
        self.kind, self.shape, self.strides, self.offset = kind, shape, strides, offset
        self.format, self.size = _FORMATS[kind]
        span = sum((extent - 1) * stride for extent, stride in zip(shape, strides)) + 1
        count = offset + span + offset
        self.data = ctypes.create_string_buffer(struct.pack(f"={count}{self.format}",
                                                            *[fill] * count), count * self.size)

    @property
    def __array_interface__(self):
        return {
            "version": 3, "shape": self.shape, "typestr": ("|" if self.size == 1 else "<") + self.kind,
            "data": (self.pointer, False), "strides": tuple(s * self.size for s in self.strides),
        }

    @property
    def pointer(self):
        return ctypes.addressof(self.data) + self.offset * self.size

    def _at(self, row, col):
        return (self.offset + row * self.strides[0] + col * self.strides[1]) * self.size

    def __getitem__(self, at):
        return struct.unpack_from("=" + self.format, self.data, self._at(*at))[0]

    def __setitem__(self, at, value):
        struct.pack_into("=" + self.format, self.data, self._at(*at), value)

    def elements(self):
        """Everything in the memory, guards and gaps included."""
        return list(struct.unpack(f"={len(self.data) // self.size}{self.format}", self.data.raw))


def rows(kind, shape, ld=None, **options):
    return Array(kind, shape, (ld or shape[1], 1), **options)


def columns(kind, shape, ld=None, **options):
    return Array(kind, shape, (1, ld or shape[0]), **options)


def to_bf16(value):
    bits = struct.unpack("=I", struct.pack("=f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


class Product:
    """One fp8_gemm_nt with its expected result: every partial sum is a whole number."""

    def __init__(self, m, n, k, scales=rows, pad=0, seed=1):
        pick = random.Random(seed)
        groups, blocks = -(-k // 128), -(-n // 128)
        self.m, self.n, self.k, self.ld = m, n, k, n + pad
        self.a = rows("u1", (m, k), k + pad, fill=NAN)
        self.b = rows("u1", (n, k), k + pad, fill=NAN)
        self.u = scales("f4", (m, groups), fill=float("nan"))
        self.v = rows("f4", (blocks, groups))
        self.values = [self._fill(matrix, pick) for matrix in (self.a, self.b)]
        self.factors = [self._scale(matrix, pick) for matrix in (self.u, self.v)]
        self.expected = self._multiply()

    @property
    def operands(self):
        return (self.a, self.u), (self.b, self.v)

    def output(self):
        return rows("u2", (self.m, self.n), self.ld, fill=POISON, offset=GUARD)

    def wrong(self, d):
        """Elements of `d`, gaps and guards that are not as they must be."""
        found, wanted = d.elements(), self.output()
        for i in range(self.m):
            for j in range(self.n):
                wanted[i, j] = to_bf16(self.expected[i][j])
        return sum(x != y for x, y in zip(found, wanted.elements()))

    @staticmethod
    def _fill(matrix, pick):
        numbers = list(E4M3)
        out = []
        for i in range(matrix.shape[0]):
            out.append([pick.choice(numbers) for _ in range(matrix.shape[1])])
            for j, number in enumerate(out[-1]):
                matrix[i, j] = E4M3[number]
        return out

    @staticmethod
    def _scale(matrix, pick):
        out = []
        for i in range(matrix.shape[0]):
            out.append([pick.choice((1, 2, 4)) for _ in range(matrix.shape[1])])
            for j, number in enumerate(out[-1]):
                matrix[i, j] = number
        return out

    def _multiply(self):
        (a, b), (u, v) = self.values, self.factors
        out = []
        for i in range(self.m):
            line = []
            for j in range(self.n):
                line.append(sum(
                    u[i][g] * v[j // 128][g] *
                    sum(map(int.__mul__, a[i][g * 128:(g + 1) * 128], b[j][g * 128:(g + 1) * 128]))
                    for g in range(len(u[i]))))
            out.append(line)
        return out
