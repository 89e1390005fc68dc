"""What the tests on a GPU share: whether there is one, exact inputs, programs in processes of their own."""

import os
import subprocess
import sys
import unittest

try:
    import torch
    HAVE_GPU = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9
except ImportError:
    HAVE_GPU = False

needs_gpu = unittest.skipUnless(HAVE_GPU, "no torch with a Hopper GPU")


def whole(*shape, seed=0, dtype=None, device="cuda"):
    """Small whole numbers: sums of their products are exact."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, shape, generator=generator).to(device, dtype or torch.bfloat16)


def exact(a, b):
    """a b^T in BF16, by FP64."""
    return (a.double() @ b.double().t()).to(torch.bfloat16)


def ran(program, *arguments):
    """(exit status, output) of a Python program in a process of its own; of one that fails with its errors."""
    done = subprocess.run([sys.executable, "-c", program, *arguments], text=True, capture_output=True,
                          check=False, timeout=120, cwd=os.path.dirname(os.path.abspath(__file__)))
    return done.returncode, done.stdout + (done.stderr if done.returncode else "")
