"""An expert block of DeepSeek-V3 in FP8, from the router's logits to the sum, with one grouped product for
gate and up of all experts and one for down; beside it the same steps as separate calls, expert by expert.
The separate calls need every expert's count of rows on the host, the grouped ones nothing. Needs torch; of the
model's size on a Hopper GPU (one of 8 ranks), else small, on the CPU."""

import time

import torch

import culet
from culet import deep_gemm

CUDA = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
DEVICE = "cuda" if CUDA else "cpu"
TOKENS, HIDDEN, INNER, EXPERTS = (64, 7168, 2048, 32) if CUDA else (24, 512, 256, 16)
ACTIVE, GROUPS, KEPT_GROUPS, SCALE = 8 if CUDA else 4, 4, 2, 2.5


def weights(*shape):
    """Matrices (experts, n, k) in blocks of 128 x 128: codes and scales."""
    made = torch.randn(*shape, device=DEVICE) / shape[-1] ** 0.5
    each = [deep_gemm.per_block_cast_to_fp8(matrix.bfloat16(), False) for matrix in made]
    return torch.stack([codes for codes, _ in each]), torch.stack([scales for _, scales in each])


def quantised(x):
    return deep_gemm.per_token_cast_to_fp8(x, False)


def of(pair, expert):
    return pair[0][expert], pair[1][expert]


def routes(x, router, bias):
    """Sigmoid scores, a bias that balances the choice alone, the best groups of experts first."""
    return culet.route(x.float() @ router.float().T, ACTIVE, scoring="sigmoid", bias=bias, groups=GROUPS,
                       kept_groups=KEPT_GROUPS, renormalize=True, scale=SCALE)


def shared(x, gate_up, down):
    """The expert that every token goes to: a dense product."""
    return swiglu_mlp(quantised(x), of(gate_up, 0), of(down, 0))


def swiglu_mlp(x, gate_up, down):
    both = torch.empty(len(x[0]), 2 * INNER, dtype=torch.bfloat16, device=DEVICE)
    deep_gemm.fp8_gemm_nt(x, gate_up, both)
    gate, up = both.float().split(INNER, 1)
    out = torch.empty(len(both), HIDDEN, dtype=torch.bfloat16, device=DEVICE)
    deep_gemm.fp8_gemm_nt(quantised((torch.nn.functional.silu(gate) * up).bfloat16()), down, out)
    return out


def grouped(x, router, bias, gate_up, down):
    found = routes(x, router, bias)
    expected = (TOKENS, ACTIVE, EXPERTS)
    # Tokens are quantised once and gathered by the product.
    inner = culet.grouped_gemm_nt(quantised(x), gate_up, offsets=found.offsets, index=found.order // ACTIVE,
                                  epilogue="gated_silu_halves", out_dtype=torch.bfloat16, expected=expected)
    rows = culet.grouped_gemm_nt(quantised(inner), down, offsets=found.offsets, out_dtype=torch.bfloat16,
                                 expected=expected)
    chosen = rows[found.places.long()].view(TOKENS, ACTIVE, HIDDEN).float()
    return (chosen * found.weights[..., None]).sum(1)


def separate(x, router, bias, gate_up, down):
    found = routes(x, router, bias)
    begins = found.offsets.tolist()  # waits for the GPU
    out = torch.zeros(TOKENS, HIDDEN, device=DEVICE)
    by_route = found.weights.reshape(-1)
    for expert in range(EXPERTS):
        order = found.order[begins[expert]:begins[expert + 1]].long()
        if len(order):
            rows = swiglu_mlp(quantised(x[order // ACTIVE]), of(gate_up, expert), of(down, expert))
            out.index_add_(0, order // ACTIVE, rows.float() * by_route[order, None])
    return out


def milliseconds(function, *args):
    function(*args)
    begin = time.perf_counter()
    for _ in range(5):
        function(*args)
    if CUDA:
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / 5 * 1e3


torch.manual_seed(0)
x = torch.randn(TOKENS, HIDDEN, device=DEVICE).bfloat16()
router = (torch.randn(EXPERTS, HIDDEN, device=DEVICE) / HIDDEN ** 0.5).bfloat16()
bias = torch.randn(EXPERTS, device=DEVICE) / 10
experts = weights(EXPERTS, 2 * INNER, HIDDEN), weights(EXPERTS, HIDDEN, INNER)
always = shared(x, weights(1, 2 * INNER, HIDDEN), weights(1, HIDDEN, INNER)).float()

one, other = (block(x, router, bias, *experts) + always for block in (grouped, separate))
error = float((one - other).norm() / other.norm())
print(f"{TOKENS} tokens, {ACTIVE} of {EXPERTS} experts, {GROUPS} groups: relative difference {error:.4f}")
for block in (grouped, separate):
    print(f"{block.__name__}: {milliseconds(block, x, router, bias, *experts):.2f} ms")
assert error < 0.02
