"""A torch Linear in FP8: the layer quantises the weight once and each input as it comes, and
torch.compile goes through it. Needs torch; runs on a GPU where there is one, else on the CPU."""

import torch

import culet
from culet import nn as culet_nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
linear = torch.nn.Linear(1024, 512, dtype=torch.bfloat16, device=device)
layer = culet_nn.LinearFP8.from_linear(linear)
x = torch.randn(4, 1024, dtype=torch.bfloat16, device=device)

with torch.no_grad():
    with culet.autotune(budget=2) as tuning:  # this shape's kernels, measured
        y = layer(x)
    error = (y.float() - linear(x).float()).norm() / linear(x).float().norm()
    print(layer)
    print(f"relative error of FP8 against BF16: {error:.3f}")
    print(f"kernel: {tuning.results[0].kernel or 'by the cost model'}")
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    print(f"torch.compile gives the same: {torch.equal(compiled(x), y)}")
assert error < 0.06
