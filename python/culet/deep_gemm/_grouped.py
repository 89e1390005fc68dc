"""DeepGEMM's layouts of groups as starts and counts."""

import torch
from torch import Tensor

from culet._grouped import product
from culet._library import InvalidArgument
from culet._operand import check_tensor
from culet.deep_gemm.utils.layout import get_mk_alignment_for_contiguous_layout


def contiguous(a, a_scales, b, b_scales, d, layout, by_ends, expected, pdl, sm_budget) -> None:
    """d (M, N) of a (M, K). layout: the group of each row, or with `by_ends` the end of each group."""
    groups = _groups("b", b)
    _check_ints("grouped_layout", layout, (groups,) if by_ends else (_rows("a", a, 2),))
    starts, counts = _of_ends(layout) if by_ends else _of_indices(layout, groups)
    _product(a, a_scales, b, b_scales, d, starts, counts, expected and (expected * groups, 1, groups), pdl, sm_budget)


def masked(a, a_scales, b, b_scales, d, masked_m, expected_m, pdl, sm_budget) -> None:
    """d (G, M, N) of a (G, M, K); of group g the first masked_m[g] rows count."""
    groups, rows = _groups("b", b), _rows("a", a, 3)
    _check_ints("masked_m", masked_m, (groups,))
    for name, x in (("a", a), ("d", d)):
        _rows(name, x, 3)
        if tuple(x.shape[:2]) != (groups, rows):
            raise InvalidArgument(f"{name} has the shape {tuple(x.shape)}, but b has {groups} groups and a {rows} rows "
                                  f"a group: it must begin with {(groups, rows)}")
        if groups > 1 and x.stride(0) != rows * x.stride(1):
            raise InvalidArgument(f"{name} has the strides {tuple(x.stride())}; rows of all groups must lie equally "
                                  "far apart: pass a contiguous copy")
    if a_scales is not None:
        check_tensor("a's scales", a_scales)
        if a_scales.dim() != 3:
            raise InvalidArgument(f"a's scales have the shape {tuple(a_scales.shape)}; give (groups, rows, "
                                  "blocks of k)")
        # Those of MN-major groups do not lie at one distance, which kernels take: a small copy.
        a_scales = a_scales.reshape(-1, a_scales.shape[2])
    starts = torch.arange(0, groups * rows, rows, device=masked_m.device, dtype=torch.int32)
    _product(_flat(a), a_scales, b, b_scales, _flat(d), starts, masked_m.clamp(max=rows),
             (expected_m * groups, 1, groups), pdl, sm_budget)


def _product(a, a_scales, b, b_scales, d, starts, counts, expected, pdl, sm_budget) -> None:
    if a_scales is None:
        pairs = a, b
    else:
        pairs = (a, a_scales), (b, b_scales)
    product(*pairs, d, None, starts, counts, None, None, None, None, None, expected, pdl, sm_budget)


def _flat(x):
    """(G, M, K) as (G * M, K), the same memory."""
    groups, rows, cols = x.shape
    return x.as_strided((groups * rows, cols), (x.stride(1), x.stride(2)))


def _groups(name, x) -> int:
    check_tensor(name, x)
    if x.dim() != 3 or not x.shape[0]:
        raise InvalidArgument(f"{name} has the shape {tuple(x.shape)}; give (groups, N, K)")
    return x.shape[0]


def _rows(name, x, axes) -> int:
    check_tensor(name, x)
    if x.dim() != axes:
        raise InvalidArgument(f"{name} has the shape {tuple(x.shape)}; give {axes} axes")
    return x.shape[-2]


def _check_ints(name, x, shape) -> None:
    check_tensor(name, x)
    if x.dtype != torch.int32 or tuple(x.shape) != shape:
        raise InvalidArgument(f"{name} is {tuple(x.shape)} {x.dtype}; give int32 of the shape {shape}")


def _of_indices(indices: Tensor, groups: int):
    """Starts and counts of groups whose rows lie together, from each row's group; rows of -1, or of a group
    that is none, are nobody's. Nothing waits, so that a capture may have it."""
    rows, device = indices.shape[0], indices.device
    bins = indices.clamp(-1, groups).add_(1).long()  # the first and the last are nobody's
    ones = torch.ones(1, device=device, dtype=torch.int32).expand(rows)
    counts = torch.zeros(groups + 2, device=device, dtype=torch.int32).scatter_add_(0, bins, ones)
    starts = torch.full_like(counts, rows).scatter_reduce_(
        0, bins, torch.arange(rows, device=device, dtype=torch.int32), "amin")
    return starts[1:-1], counts[1:-1]


def _of_ends(ends: Tensor):
    """Starts and counts of groups that begin at multiples of the alignment."""
    alignment = get_mk_alignment_for_contiguous_layout()
    starts = torch.zeros_like(ends)
    starts[1:] = (ends[:-1] + (alignment - 1)) // alignment * alignment
    return starts, ends - starts
