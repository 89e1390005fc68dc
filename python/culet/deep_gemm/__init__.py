"""DeepGEMM's names, argument conventions and layouts for SM90, on culet's kernels: a program changes
`import deep_gemm` into `import culet.deep_gemm as deep_gemm`.

The products accept any M, N and K and any stride of rows, on the GPU and, for the tests of a program, on
the CPU. Nothing is compiled at run time. What culet cannot do is there by name and raises
NotImplementedError with the reason."""

import inspect
import operator
from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from culet._call import call
from culet._library import BFLOAT16, FLOAT32, InvalidArgument, shown
from culet._operand import MOST, check_tensor, flag
from culet._plan import number
from culet._problem import ANY, FP8_BLOCK
from culet.deep_gemm import _grouped, testing, utils
from culet.deep_gemm._missing import missing
from culet.deep_gemm.testing import calc_diff
from culet.deep_gemm.utils import (
    align, ceil_div, ceil_to_ue8m0, get_col_major_tma_aligned_tensor, get_k_alignment_for_contiguous_layout,
    get_m_alignment_for_contiguous_layout, get_mk_alignment_for_contiguous_layout,
    get_mn_major_tma_aligned_tensor, get_tma_aligned_size, layout, math,
    per_block_cast_to_fp8, per_channel_cast_to_fp8, per_custom_dims_cast_to_fp8,
    per_token_cast_to_fp8, set_mk_alignment_for_contiguous_layout)

__all__ = [
    "align", "bf16_gemm_nn", "bf16_gemm_nt", "bf16_gemm_tn", "bf16_gemm_tt", "calc_diff", "ceil_div",
    "ceil_to_ue8m0",
    "fp8_gemm_nn", "fp8_gemm_nt", "fp8_gemm_tn", "fp8_gemm_tt", "gemm_fp8_fp8_bf16_nt",
    "get_col_major_tma_aligned_tensor", "get_deterministic_algorithms",
    "get_k_alignment_for_contiguous_layout", "get_m_alignment_for_contiguous_layout",
    "get_mk_alignment_for_contiguous_layout", "get_mn_major_tma_aligned_tensor", "get_num_sms", "get_pdl",
    "get_tc_util", "get_tma_aligned_size", "layout",
    "m_grouped_bf16_gemm_nn_contiguous", "m_grouped_bf16_gemm_nt_contiguous", "m_grouped_bf16_gemm_nt_masked",
    "m_grouped_fp8_gemm_nn_contiguous", "m_grouped_fp8_gemm_nt_contiguous", "m_grouped_fp8_gemm_nt_masked",
    "math", "per_block_cast_to_fp8",
    "per_channel_cast_to_fp8", "per_custom_dims_cast_to_fp8", "per_token_cast_to_fp8",
    "set_ignore_compile_dims", "set_mk_alignment_for_contiguous_layout", "set_num_sms", "set_pdl", "set_tc_util", "testing",
    "transform_sf_into_required_layout", "utils", "wgrad_gemm_fp8_fp8_fp32_nt"]

Scaled = Tuple[Tensor, Tensor]

_NAMES = ("a", "a's scales", "b", "b's scales", "d", "c", "bias", "d's scales", "", "")
_BF16 = ANY._replace(names=_NAMES, outputs=(BFLOAT16, FLOAT32), elements=(BFLOAT16,),
                     ranks=FP8_BLOCK.ranks)  # no batches
_FP8 = FP8_BLOCK._replace(names=_NAMES)
_FP8_ROWS = _FP8._replace(block="group")


class _Settings:
    """What the set_* functions set, for all threads."""

    pdl = False
    num_sms: Optional[int] = None  # None: all
    tc_util = 100
    fp8, fp8_rows, bf16 = _FP8, _FP8_ROWS, _BF16  # with num_sms as their budget


def fp8_gemm_nt(a: Scaled, b: Scaled, d: Tensor, c: Optional[Tensor] = None,
                recipe: Optional[Tuple[int, int, int]] = None,
                recipe_a: Optional[Tuple[int, int]] = None,
                recipe_b: Optional[Tuple[int, int]] = None, compiled_dims: str = "nk",
                disable_ue8m0_cast: bool = False, alpha: Optional[float] = None, epilogue: Any = None) -> None:
    """d = (a's scales . a) (b's scales . b)^T + c.

    a: values (M, K) E4M3 and scales (M, ceil(K / 128)) FP32, in either order, MN-major as
    get_mn_major_tma_aligned_tensor leaves them or not: culet's kernels take both as they are.
    b: values (N, K) and scales (ceil(N / 128), ceil(K / 128)), or (N, ceil(K / 128)) with the recipe
    (1, 1, 128), that of a weight's gradient. d (M, N): BF16 or FP32. c: of d's shape and type, d itself to
    accumulate.
    recipe: (1, 128, 128) or (1, 1, 128); recipe_a (1, 128) with recipe_b (128, 128) or (1, 128). compiled_dims says nothing to
    culet; disable_ue8m0_cast neither, whose scales are FP32 always. alpha: a factor of the product.
    Raises NotImplementedError for another recipe, UE8M0 scales and an epilogue, culet.InvalidArgument for
    what is wrong."""
    (av, au), (bv, bu) = _pair("a", a), _pair("b", b)
    form = _Settings.fp8
    if recipe is not None or recipe_a is not None or recipe_b is not None:
        if _b_rows(recipe, recipe_a, recipe_b) == 1:
            form = _Settings.fp8_rows
    for name, scales in (("a's scales", au), ("b's scales", bu)):
        if getattr(scales, "dtype", None) == torch.int32:
            raise NotImplementedError(f"{name} are packed UE8M0, the layout of SM100; SM90's are float32")
    _product(form, av, au, bv, bu, d, c, alpha, epilogue)


def _with_options_of(function):
    """Names what *args and **options stand for: the arguments of `function` behind d."""
    options = list(inspect.signature(function).parameters.values())[3:]

    def named(form):
        own = list(inspect.signature(form).parameters.values())[:3]
        form.__signature__ = inspect.Signature([*own, *options], return_annotation=None)
        return form

    return named


@_with_options_of(fp8_gemm_nt)
def fp8_gemm_nn(a: Scaled, b: Scaled, d: Tensor, *args, **options) -> None:
    """fp8_gemm_nt with b (K, N) and its scales (ceil(K / 128), ceil(N / 128)), each the transpose of
    a matrix with contiguous rows: SM90's FP8 units read K-major operands alone."""
    fp8_gemm_nt(a, _turned("b", b), d, *args, **options)


@_with_options_of(fp8_gemm_nt)
def fp8_gemm_tn(a: Scaled, b: Scaled, d: Tensor, *args, **options) -> None:
    """fp8_gemm_nt with a (K, M) and b (K, N); see fp8_gemm_nn."""
    fp8_gemm_nt(_turned("a", a), _turned("b", b), d, *args, **options)


@_with_options_of(fp8_gemm_nt)
def fp8_gemm_tt(a: Scaled, b: Scaled, d: Tensor, *args, **options) -> None:
    """fp8_gemm_nt with a (K, M) and b (N, K); see fp8_gemm_nn."""
    fp8_gemm_nt(_turned("a", a), b, d, *args, **options)


fp8_fp4_gemm_nt, fp8_fp4_gemm_nn = fp8_gemm_nt, fp8_gemm_nn
fp8_fp4_gemm_tn, fp8_fp4_gemm_tt = fp8_gemm_tn, fp8_gemm_tt


def gemm_fp8_fp8_bf16_nt(lhs: Scaled, rhs: Scaled, out: Tensor) -> None:
    """fp8_gemm_nt by its name in DeepGEMM 1."""
    fp8_gemm_nt(lhs, rhs, out)


def wgrad_gemm_fp8_fp8_fp32_nt(lhs: Scaled, rhs: Scaled, out: Tensor) -> None:
    """out (M, N) FP32 += the product of lhs and rhs by the recipe (1, 1, 128): DeepGEMM 1's gradient of a
    weight."""
    fp8_gemm_nt(lhs, rhs, out, out, recipe=(1, 1, 128))


def bf16_gemm_nt(a: Tensor, b: Tensor, d: Tensor, c: Optional[Tensor] = None,
                 compiled_dims: str = "nk", alpha: Optional[float] = None, epilogue: Any = None) -> None:
    """d = a b^T + c: a (M, K) and b (N, K) BF16, rows or columns contiguous; d (M, N) BF16 or FP32;
    c of d's shape and type, d itself to accumulate. compiled_dims says nothing to culet.
    Raises NotImplementedError for an epilogue, culet.InvalidArgument for what is wrong."""
    _product(_Settings.bf16, a, None, b, None, d, c, alpha, epilogue)


@_with_options_of(bf16_gemm_nt)
def bf16_gemm_nn(a: Tensor, b: Tensor, d: Tensor, *args, **options) -> None:
    """bf16_gemm_nt with b (K, N)."""
    bf16_gemm_nt(a, _transposed("b", b), d, *args, **options)


@_with_options_of(bf16_gemm_nt)
def bf16_gemm_tn(a: Tensor, b: Tensor, d: Tensor, *args, **options) -> None:
    """bf16_gemm_nt with a (K, M) and b (K, N)."""
    bf16_gemm_nt(_transposed("a", a), _transposed("b", b), d, *args, **options)


@_with_options_of(bf16_gemm_nt)
def bf16_gemm_tt(a: Tensor, b: Tensor, d: Tensor, *args, **options) -> None:
    """bf16_gemm_nt with a (K, M) and b (N, K)."""
    bf16_gemm_nt(_transposed("a", a), b, d, *args, **options)


def m_grouped_fp8_gemm_nt_contiguous(
        a: Scaled, b: Scaled, d: Tensor, grouped_layout: Optional[Tensor] = None,
        recipe: Optional[Tuple[int, int, int]] = None, recipe_a: Optional[Tuple[int, int]] = None,
        recipe_b: Optional[Tuple[int, int]] = None, compiled_dims: str = "nk", disable_ue8m0_cast: bool = False,
        use_psum_layout: bool = False, ensure_zero_padding: bool = True,
        expected_m_for_psum_layout: Optional[int] = None, m_indices: Optional[Tensor] = None) -> None:
    """Each row of d (M, N) = the row of a (M, K), times the transpose of its group's matrix of b (G, N, K).

    a and b: pairs of E4M3 values and FP32 scales, (M, ceil(K / 128)), plain or MN-major, and (G, ceil(N / 128),
    ceil(K / 128)). d: BF16 or FP32.
    grouped_layout, or m_indices, its older name: int32 (M), the group of each row, -1 for rows between
    groups. A group's rows lie together; they may begin anywhere, not at multiples of
    get_mk_alignment_for_contiguous_layout() alone. With use_psum_layout: int32 (G), the end of each group, which
    begins at the next multiple of that alignment behind the end of the one before it.
    Rows between groups are neither multiplied nor written, also with ensure_zero_padding.
    expected_m_for_psum_layout: rows of a group on average, for the choice of a kernel.
    Nothing waits for the device, and a CUDA graph can capture it.
    Raises NotImplementedError for another recipe, culet.InvalidArgument for what is wrong."""
    (av, au), (bv, bu) = _grouped_pairs(a, b, recipe, recipe_a, recipe_b)
    _contiguous(av, au, bv, bu, d, grouped_layout, m_indices, use_psum_layout, expected_m_for_psum_layout)


def m_grouped_fp8_gemm_nn_contiguous(a: Scaled, b: Scaled, d: Tensor, grouped_layout: Optional[Tensor] = None,
                                     *args, **options) -> None:
    """m_grouped_fp8_gemm_nt_contiguous with b (G, K, N) and its scales, each the transpose of contiguous
    matrices (N, K)."""
    values, scales = _pair("b", b)
    m_grouped_fp8_gemm_nt_contiguous(a, (_turned_groups("b", values), _turned_groups("b's scales", scales)), d,
                                     grouped_layout, *args, **options)


def m_grouped_fp8_gemm_nt_masked(
        a: Scaled, b: Scaled, d: Tensor, masked_m: Tensor, expected_m: int,
        recipe: Optional[Tuple[int, int, int]] = None, recipe_a: Optional[Tuple[int, int]] = None,
        recipe_b: Optional[Tuple[int, int]] = None, compiled_dims: str = "nk",
        disable_ue8m0_cast: bool = False) -> None:
    """d[g] (M, N) = a[g] (M, K) b[g]^T, of which the first masked_m[g] rows are multiplied and written.

    a and b: pairs of E4M3 values (G, M, K) and (G, N, K) and FP32 scales (G, M, ceil(K / 128)), plain or
    MN-major, which are copied, and (G, ceil(N / 128), ceil(K / 128)). d (G, M, N): BF16 or FP32. masked_m: int32
    (G). expected_m: rows of a group on average, for the choice of a kernel.
    The rest is as in m_grouped_fp8_gemm_nt_contiguous."""
    (av, au), (bv, bu) = _grouped_pairs(a, b, recipe, recipe_a, recipe_b)
    _grouped.masked(av, au, bv, bu, d, masked_m, _positive("expected_m", expected_m), *_launch())


def m_grouped_bf16_gemm_nt_contiguous(a: Tensor, b: Tensor, d: Tensor, grouped_layout: Optional[Tensor] = None,
                                      compiled_dims: str = "nk", use_psum_layout: bool = False,
                                      ensure_zero_padding: bool = True,
                                      expected_m_for_psum_layout: Optional[int] = None,
                                      m_indices: Optional[Tensor] = None) -> None:
    """m_grouped_fp8_gemm_nt_contiguous of a (M, K) and b (G, N, K) in BF16."""
    _contiguous(a, None, b, None, d, grouped_layout, m_indices, use_psum_layout, expected_m_for_psum_layout)


def m_grouped_bf16_gemm_nn_contiguous(a: Tensor, b: Tensor, d: Tensor, grouped_layout: Optional[Tensor] = None,
                                      *args, **options) -> None:
    """m_grouped_bf16_gemm_nt_contiguous with b (G, K, N), the transpose of contiguous matrices (N, K)."""
    m_grouped_bf16_gemm_nt_contiguous(a, _turned_groups("b", b), d, grouped_layout, *args, **options)


def m_grouped_bf16_gemm_nt_masked(a: Tensor, b: Tensor, d: Tensor, masked_m: Tensor, expected_m: int,
                                  compiled_dims: str = "nk") -> None:
    """m_grouped_fp8_gemm_nt_masked of a (G, M, K) and b (G, N, K) in BF16."""
    _grouped.masked(a, None, b, None, d, masked_m, _positive("expected_m", expected_m), *_launch())


def m_grouped_gemm_fp8_fp8_bf16_nt_contiguous(lhs: Scaled, rhs: Scaled, out: Tensor, m_indices: Tensor) -> None:
    """m_grouped_fp8_gemm_nt_contiguous by its name in DeepGEMM 1."""
    m_grouped_fp8_gemm_nt_contiguous(lhs, rhs, out, m_indices)


def m_grouped_gemm_fp8_fp8_bf16_nt_masked(lhs: Scaled, rhs: Scaled, out: Tensor, masked_m: Tensor,
                                          expected_m: int) -> None:
    """m_grouped_fp8_gemm_nt_masked by its name in DeepGEMM 1."""
    m_grouped_fp8_gemm_nt_masked(lhs, rhs, out, masked_m, expected_m)


m_grouped_fp8_fp4_gemm_nt_contiguous = m_grouped_fp8_gemm_nt_contiguous
m_grouped_fp8_fp4_gemm_nn_contiguous = m_grouped_fp8_gemm_nn_contiguous
m_grouped_fp8_fp4_gemm_nt_masked = fp8_m_grouped_gemm_nt_masked = m_grouped_fp8_gemm_nt_masked
bf16_m_grouped_gemm_nt_masked = m_grouped_bf16_gemm_nt_masked


def _contiguous(a, u, b, v, d, grouped_layout, m_indices, use_psum_layout, expected) -> None:
    if (grouped_layout is None) == (m_indices is None):
        raise InvalidArgument("give grouped_layout, or m_indices, its older name, one of the two")
    if expected is not None:
        expected = _positive("expected_m_for_psum_layout", expected)
    _grouped.contiguous(a, u, b, v, d, m_indices if grouped_layout is None else grouped_layout,
                        flag("use_psum_layout", use_psum_layout), expected, *_launch())


def _launch():
    """How a grouped product is launched, as set: pdl, multiprocessors."""
    return _Settings.pdl, _Settings.bf16.sm_budget


def _grouped_pairs(a, b, recipe, recipe_a, recipe_b):
    found = _pair("a", a), _pair("b", b)
    if (recipe is not None or recipe_a is not None or recipe_b is not None) and (
            _b_rows(recipe, recipe_a, recipe_b) == 1):
        raise NotImplementedError("the recipe (1, 1, 128): grouped products have kernels for (1, 128, 128)")
    for name, (_, scales) in zip(("a's scales", "b's scales"), found):
        if getattr(scales, "dtype", None) == torch.int32:
            raise NotImplementedError(f"{name} are packed UE8M0, the layout of SM100; SM90's are float32")
    return found


def _turned_groups(name: str, x: Tensor) -> Tensor:
    check_tensor(name, x)
    if x.dim() != 3:
        raise InvalidArgument(f"{name} has the shape {tuple(x.shape)}; give a tensor of three axes")
    return x.transpose(1, 2)


def _positive(name: str, value: Any) -> int:
    found = _number(name, value, MOST)
    if not found:
        raise InvalidArgument(f"{name} is 0; give 1 or more")
    return found


def _product(form, a, u, b, v, d, c, alpha, epilogue) -> None:
    if epilogue is not None:
        raise NotImplementedError(f"epilogue is {shown(epilogue)}: these products have none but alpha and c; culet.gemm has "
                                  "a bias and the gated SiLU, with and without FP8")
    if c is not None and getattr(c, "dtype", None) != getattr(d, "dtype", None):
        raise InvalidArgument(f"c holds {getattr(c, 'dtype', type(c).__name__)} and d "
                              f"{getattr(d, 'dtype', type(d).__name__)}; give both one type")
    if isinstance(a, Tensor) and isinstance(d, Tensor) and a.dim() == 2 and not a.shape[1]:
        d.copy_(c) if c is not None else d.zero_()  # the empty sum
        return
    added = None if c is None or c is d else c
    call(form, a, u, b, v, d, added, None, 1.0 if alpha is None else number("alpha", alpha),
         0.0 if c is None else 1.0, "precise", _Settings.pdl)


def _pair(name, value):
    try:
        values, scales = value
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name} is a {type(value).__name__}; give a pair (values, scales)"
                              ) from None
    return values, scales


def _transposed(name: str, matrix: Tensor) -> Tensor:
    if not isinstance(matrix, Tensor) or matrix.dim() != 2:
        shown = tuple(matrix.shape) if isinstance(matrix, Tensor) else type(matrix).__name__
        raise InvalidArgument(f"{name} is {shown}; give a torch tensor of two axes")
    return matrix.t()


def _turned(name: str, pair: Scaled) -> Scaled:
    values, scales = _pair(name, pair)
    return _transposed(name, values), _transposed(f"{name}'s scales", scales)


def _b_rows(recipe, recipe_a, recipe_b) -> int:
    """How many rows of b share a scale, as a recipe says."""
    for name, value in (("recipe", recipe), ("recipe_a", recipe_a), ("recipe_b", recipe_b)):
        if value is not None and not isinstance(value, (tuple, list)):
            raise InvalidArgument(f"{name} is {shown(value)}; give a tuple of numbers")
    if recipe is not None and recipe_a is None and recipe_b is None:
        given = tuple(recipe)
    elif recipe is None and recipe_a is not None and recipe_b is not None:
        given = tuple(recipe_a)[0], *tuple(recipe_b)
        if tuple(recipe_a)[1:] != tuple(recipe_b)[1:]:
            given = tuple(recipe_a), tuple(recipe_b)
    else:
        raise InvalidArgument(f"recipe is {recipe}, recipe_a {recipe_a} and recipe_b {recipe_b}; give "
                              "recipe alone, or the two others")
    if given not in ((1, 128, 128), (1, 1, 128)):
        raise NotImplementedError(
            f"the recipe {given}: culet has kernels for (1, 128, 128), a scale for 128 values of a row "
            "of a and for 128 x 128 of b, and for (1, 1, 128), for 128 values of a row of each")
    return given[1]


def set_num_sms(new_num_sms: int) -> None:
    """Products from now on use so many multiprocessors at most, 0 for all (on the CPU threads, where a kernel
    can be held to them). Kernels that cannot keep to it do not compete."""
    count = _number("new_num_sms", new_num_sms, MOST)
    if torch.cuda.is_available():
        most = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
        if count > most:
            raise InvalidArgument(f"new_num_sms is {count}; the device has {most}")
        if count == most:
            count = 0  # all: no budget
    _Settings.num_sms = count or None
    _Settings.fp8, _Settings.fp8_rows, _Settings.bf16 = (
        form._replace(sm_budget=count) for form in (_FP8, _FP8_ROWS, _BF16))


def get_num_sms() -> int:
    """What set_num_sms set, else the multiprocessors of the current device."""
    if _Settings.num_sms is not None:
        return _Settings.num_sms
    if not torch.cuda.is_available():
        raise RuntimeError("there is no CUDA device, and set_num_sms was not called")
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


def set_pdl(new_enable_pdl: bool) -> None:
    """Whether products are launched as programmatic dependents. They may then read b before the kernel
    in front of them has ended, so it must not write b."""
    _Settings.pdl = flag("new_enable_pdl", new_enable_pdl)


def get_pdl() -> bool:
    """What set_pdl set."""
    return _Settings.pdl


def set_tc_util(new_tc_util: int) -> None:
    """A wish, in percent of the tensor cores' time, 0 for all, which get_tc_util repeats: culet's kernels are
    not throttled, set_num_sms limits their multiprocessors."""
    _Settings.tc_util = _number("new_tc_util", new_tc_util, 100) or 100


def get_tc_util() -> int:
    """What set_tc_util set."""
    return _Settings.tc_util


def _number(name: str, value: Any, most: int) -> int:
    try:
        found = operator.index(value)
    except Exception:  # what an argument's own __index__ raises, too
        found = -1
    if not 0 <= found <= most:
        raise InvalidArgument(f"{name} is {shown(value)}; give a number from 0 to {most}")
    return found


def get_deterministic_algorithms() -> bool:
    """False: see use_deterministic_algorithms."""
    return False


def set_ignore_compile_dims(new_value: bool) -> None:
    """Without effect: it is about what is compiled at run time, which nothing is."""
    flag("new_value", new_value)


def transform_sf_into_required_layout(sf: Tensor, mn: int, k: int, recipe, num_groups=None, is_sfa=None,
                                      disable_ue8m0_cast: bool = False, psum_layout=None) -> Tensor:
    """The scales of a, (mn, ceil(k / 128)), MN-major and aligned; those of b, (ceil(mn / 128),
    ceil(k / 128)), as they are; of num_groups groups with an axis in front. recipe: (1, 128, 128) with
    is_sfa, or (1, 128), (128, 128)."""
    check_tensor("sf", sf)
    recipe = tuple(recipe)
    grains = (recipe[0 if is_sfa else 1], recipe[2]) if len(recipe) == 3 else recipe
    if psum_layout is not None:
        raise NotImplementedError("psum_layout is for packed scales, SM100's; SM90's are float32")
    if sf.dtype != torch.float32 or grains not in ((1, 128), (128, 128)):
        raise NotImplementedError(f"scales of {sf.dtype} with the recipe {recipe}: SM90's are float32, "
                                  "a scale for 1 x 128 or 128 x 128 values")
    wanted = ceil_div(mn, grains[0]), ceil_div(k, grains[1])
    if num_groups is not None:
        wanted = num_groups, *wanted
    if tuple(sf.shape) != wanted:
        raise InvalidArgument(f"sf has the shape {tuple(sf.shape)}; it must be {wanted}")
    return get_mn_major_tma_aligned_tensor(sf) if grains[0] == 1 else sf


def __getattr__(name: str):
    return missing(__name__, name)
