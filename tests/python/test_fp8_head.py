"""An FP8 checkpoint whose head is FP8, as a model is saved that culet.nn.patch(model, keep=()) swapped."""

import json
import os
import shutil
import struct
import tempfile
import unittest
from pathlib import Path

os.environ["CULET_CACHE"] = "off"

import culet
from culet import _library, _session
from host_arrays import Array
from test_batch_bits import logits

FOLDER = Path(__file__).resolve().parents[1] / "goldens/qwen3-moe-fp8"


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[8 + size:][slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def write(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


class Head(unittest.TestCase):
    def test_logits(self):
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        shutil.copy(FOLDER / "config.json", folder)
        tensors = read(FOLDER / "model.safetensors")
        dtype, (vocab, hidden), data = tensors["lm_head.weight"]
        self.assertEqual(dtype, "BF16")
        weight = Array("u2", (vocab, hidden), (hidden, 1))
        weight.data[:len(data)] = data
        blocks = -(-vocab // 128), -(-hidden // 128)
        values, scales = Array("u1", (vocab, hidden), (hidden, 1)), Array("f4", blocks, (blocks[1], 1))
        culet.quantize_fp8(weight, "block", out=(values, scales))
        tensors["lm_head.weight"] = "F8_E4M3", [vocab, hidden], bytes(values.data)[:vocab * hidden]
        tensors["lm_head.weight_scale_inv"] = "F32", list(blocks), bytes(scales.data)[:4 * blocks[0] * blocks[1]]
        write(folder / "model.safetensors", tensors)
        prompt = [5, 17, 3, 40, 22, 9]
        wanted, found = (logits(_session.Model(str(path), -1), [prompt], _library.DETERMINISM_FAST)[0]
                         for path in (FOLDER, folder))
        error = sum((a - b) ** 2 for a, b in zip(wanted, found)) ** 0.5
        error /= sum(a * a for a in wanted) ** 0.5
        self.assertLess(error, 0.06)  # the noise of E4M3 in both operands
        self.assertGreater(error, 1e-3)  # which is there


if __name__ == "__main__":
    unittest.main()
