"""culet.nn.LinearW4: weights of 4 bits in groups, activations as they are."""

from typing import Any, Callable, Optional

import torch
from torch import Tensor, nn

from culet import _linear
from culet._layer import Linear, check_linear
from culet._library import InvalidArgument, shown
from culet._operand import check_tensor
from culet._torch_quantize import MIDDLE, pack_rows, quantize_groups, unpack_rows

GROUP_SIZE = 128
_OF_WORD = 8  # codes of an int32
_SCALES = (torch.bfloat16, torch.float16, torch.float32)
_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # which of a word's codes is column i of eight


class LinearW4(Linear):
    """A linear layer whose weight has codes u of 4 bits: (u - zero) * scale, with one scale for group_size input
    features of an output feature, and a zero point, which is 8 of symmetric weights. Inputs are not quantised.

    Its tensors have the form and the names of compressed-tensors' pack-quantized checkpoints: weight_packed
    (out_features, in_features / 8) int32, weight_scale (out_features, in_features / group_size), weight_shape and,
    unless symmetric, weight_zero_point (ceil(out_features / 8), in_features / group_size) int32.

    `LinearW4(in_features, out_features)` is empty, for load_state_dict; `from_linear` quantises an nn.Linear,
    `from_awq` and `from_gptq` take such checkpoints' tensors. model.to(dtype) leaves all but the bias alone.
    group_size: a multiple of 8 that divides in_features; None: all of them."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device=None,
                 dtype: Optional[torch.dtype] = None, *, group_size: Optional[int] = GROUP_SIZE,
                 symmetric: bool = True) -> None:
        super().__init__(in_features, out_features)
        groups = in_features // _checked_group(group_size, in_features)
        self.group_size, self.symmetric = in_features // groups, bool(symmetric)
        kind = dtype or torch.bfloat16
        self._constant("weight_packed", torch.zeros((out_features, in_features // _OF_WORD), device=device,
                                                    dtype=torch.int32))
        self._constant("weight_scale", torch.ones((out_features, groups), device=device, dtype=kind))
        self._constant("weight_zero_point", None if symmetric else torch.zeros(
            (-(-out_features // _OF_WORD), groups), device=device, dtype=torch.int32))
        self._constant("weight_shape", torch.tensor([out_features, in_features], device=device))
        self._constant("bias", torch.zeros(out_features, device=device, dtype=kind) if bias else None)
        self._constant("input_order", None)
        self.register_buffer("_zeros", None, persistent=False)
        self._find_zeros()

    @classmethod
    def from_linear(cls, linear: nn.Linear, group_size: Optional[int] = GROUP_SIZE,
                    symmetric: bool = True) -> "LinearW4":
        """The layer of an nn.Linear, its weight (BF16, F16 or FP32) rounded to the nearest codes, as
        culet.quantize_checkpoint rounds; scales have the weight's type. The bias is shared."""
        check_linear("linear", linear)
        group = _checked_group(group_size, linear.in_features)
        with torch.no_grad():
            codes, scales, zeros = quantize_groups(linear.weight, group, symmetric)
        return cls._of(codes, scales, None if symmetric else zeros, linear.bias)

    @classmethod
    def from_awq(cls, qweight: Tensor, qzeros: Tensor, scales: Tensor, bias: Optional[Tensor] = None) -> "LinearW4":
        """The layer of an AWQ checkpoint (version gemm): qweight (K, N / 8) and qzeros (groups, N / 8) int32,
        scales (groups, N), bias (N,)."""
        k, n, groups = _shape_of("qweight", qweight)[0], *_sizes_of_scales(scales)
        _check_words("qweight", qweight, (k, _words("scales", n)))
        _check_words("qzeros", qzeros, (groups, n // _OF_WORD))
        codes, zeros = _awq_codes(qweight).t(), _awq_codes(qzeros).t()
        return cls._of(codes, scales.t(), zeros, bias)

    @classmethod
    def from_gptq(cls, qweight: Tensor, qzeros: Tensor, scales: Tensor, g_idx: Optional[Tensor] = None,
                  bias: Optional[Tensor] = None, *, checkpoint_format: str = "gptq") -> "LinearW4":
        """The layer of a GPTQ checkpoint: qweight (K / 8, N) and qzeros (groups, N / 8) int32, scales (groups, N),
        g_idx (K,), the group of each input feature, bias (N,).

        checkpoint_format: "gptq" stores zero points less one, "gptq_v2" as they are.
        A g_idx that is not sorted (act-order) sorts the weight's columns, and x's on each call by input_order."""
        if checkpoint_format not in ("gptq", "gptq_v2"):
            raise InvalidArgument(f"checkpoint_format is {shown(checkpoint_format)}; give 'gptq' or 'gptq_v2'")
        k, n, groups = _shape_of("qweight", qweight)[0] * _OF_WORD, *_sizes_of_scales(scales)
        _check_words("qweight", qweight, (k // _OF_WORD, n))
        _check_words("qzeros", qzeros, (groups, _words("scales", n)))
        codes = unpack_rows(qweight.t().contiguous(), k)
        # Of the whole word, as it was stored: a zero point of 0 borrows from its neighbour.
        added = 0x11111111 if checkpoint_format == "gptq" else 0
        words = (qzeros.long() + added) & 0xFFFFFFFF
        zeros = unpack_rows(torch.where(words > 0x7FFFFFFF, words - (1 << 32), words).int(), n).t()
        order = None if g_idx is None else _order_of(g_idx, k, groups)
        made = cls._of(codes if order is None else codes[:, order.long()], scales.t(), zeros, bias)
        if order is not None:
            made._constant("input_order", order)
        return made

    @classmethod
    def _of(cls, codes: Tensor, scales: Tensor, zeros: Optional[Tensor], bias: Optional[Tensor]) -> "LinearW4":
        """Of codes (N, K) 0 to 15, scales and zero points (N, groups); zeros None: 8."""
        (n, k), groups = codes.shape, scales.shape[1]
        if scales.dtype not in _SCALES:
            raise InvalidArgument(f"scales hold {scales.dtype}; give bfloat16, float16 or float32")
        if not groups or k % groups:
            raise InvalidArgument(f"scales have {groups} groups, but the weight has {k} input features; give groups of "
                                  "one size")
        if not (scales.isfinite() & (scales != 0)).all():
            raise InvalidArgument("scales hold a number that is 0 or not finite; quantise the weight again")
        if bias is not None:
            check_tensor("bias", bias)
            if tuple(bias.shape) != (n,):
                raise InvalidArgument(f"bias has the shape {tuple(bias.shape)}, but the weight is {(n, k)}: it must be "
                                      f"{(n,)}")
        made = cls(k, n, False, device="meta", dtype=scales.dtype, group_size=k // groups, symmetric=zeros is None)
        made._constant("weight_packed", pack_rows(codes))
        made._constant("weight_scale", scales.detach().contiguous())
        if zeros is not None:
            made._constant("weight_zero_point", pack_rows(zeros.t()).t().contiguous())
        made._constant("weight_shape", torch.tensor([n, k], device=codes.device))
        if bias is not None:
            made._constant("bias", bias.detach())
        made._find_zeros()
        return made

    def quantization_config(self, ignore: "list[str]") -> "dict[str, Any]":
        """What config.json of a checkpoint says, all of whose linear layers but those of `ignore` are like this."""
        weights = {"num_bits": 4, "type": "int", "symmetric": self.symmetric, "strategy": "group",
                   "group_size": self.group_size, "dynamic": False, "actorder": None}
        group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None,
                 "format": "pack-quantized"}
        return {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
                "config_groups": {"group_0": group}, "ignore": ignore, "kv_cache_scheme": None,
                "global_compression_ratio": None}

    def _find_zeros(self) -> None:
        """The zero points as kernels read them: (N, groups) BF16, which holds 0 to 15."""
        scales, packed = self.weight_scale, self.weight_zero_point
        if packed is None:
            self._zeros = torch.full_like(scales, MIDDLE, dtype=torch.bfloat16, requires_grad=False)
        elif packed.is_meta:
            self._zeros = torch.empty_like(scales, dtype=torch.bfloat16, requires_grad=False)
        else:
            self._zeros = unpack_rows(packed.t().contiguous(), self.out_features).t().to(torch.bfloat16).contiguous()

    def _product(self, x: Tensor) -> Tensor:
        if self.input_order is not None:
            x = x.index_select(1, self.input_order)
        weight = self.weight_packed, self.weight_scale, self._zeros, self.bias
        if torch.compiler.is_compiling():
            return torch.ops.culet.w4_gemm_nt(x, *weight)
        return _linear.w4_linear(x, x.shape[0], *weight)

    def _rows_product(self, x: Tensor, rows: int) -> Optional[Tensor]:
        own = self._parameters
        packed, scales = own.get("weight_packed"), own.get("weight_scale")
        if packed is None or scales is None or "bias" not in own or own.get("input_order") is not None:
            return None
        return _linear.w4_linear(x, rows, packed, scales, self._zeros, own["bias"])

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "LinearW4":
        # A cast would change scales: only the device follows.
        scales = self.weight_scale.detach()
        super()._apply(fn, recurse)
        if self.weight_scale.dtype != scales.dtype:
            self._constant("weight_scale", scales.to(self.weight_scale.device))
        self._find_zeros()
        return self

    def _load_from_state_dict(self, state, prefix, *arguments) -> None:
        order = state.get(prefix + "input_order")
        if order is not None and self.input_order is None:  # made by from_gptq, of act-order
            self._constant("input_order", torch.empty_like(order, device=self.weight_packed.device))
        stated = state.get(prefix + "weight_shape")
        super()._load_from_state_dict(state, prefix, *arguments)
        if stated is not None and not stated.is_meta and stated.tolist() != [self.out_features, self.in_features]:
            raise InvalidArgument(f"{prefix}weight_shape is {stated.tolist()}, but the layer is "
                                  f"{[self.out_features, self.in_features]}; make one of that shape")
        self._find_zeros()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, group_size={self.group_size}, symmetric={self.symmetric}"


def _checked_group(group_size: Optional[int], k: int) -> int:
    if k % _OF_WORD:
        raise InvalidArgument(f"in_features is {k}; 8 codes share 32 bits: give a multiple of 8")
    group = k if group_size is None else group_size
    if not isinstance(group, int) or group < 1 or group % 8 or k % group:
        raise InvalidArgument(f"group_size is {shown(group_size)}, and in_features {k}; give a multiple of 8 that "
                              "divides in_features, or None for all of them")
    return group


def _shape_of(name: str, tensor: Tensor) -> "tuple[int, ...]":
    check_tensor(name, tensor)
    if tensor.dim() != 2 or tensor.dtype != torch.int32:
        raise InvalidArgument(f"{name} is {tuple(tensor.shape)} {tensor.dtype}; give a matrix of int32")
    return tuple(tensor.shape)


def _sizes_of_scales(scales: Tensor) -> "tuple[int, int]":
    """N and the number of groups of scales (groups, N)."""
    check_tensor("scales", scales)
    if scales.dim() != 2:
        raise InvalidArgument(f"scales has the shape {tuple(scales.shape)}; give (groups, out_features)")
    return scales.shape[1], scales.shape[0]


def _words(name: str, n: int) -> int:
    if n % _OF_WORD:
        raise InvalidArgument(f"{name} has {n} columns; 8 zero points share 32 bits: give a multiple of 8")
    return n // _OF_WORD


def _check_words(name: str, tensor: Tensor, shape: "tuple[int, int]") -> None:
    if _shape_of(name, tensor) != shape:
        raise InvalidArgument(f"{name} has the shape {tuple(tensor.shape)}, but the other tensors make it {shape}")


def _awq_codes(words: Tensor) -> Tensor:
    """words (R, C) -> codes (R, 8 C) uint8."""
    places = 4 * torch.tensor(_AWQ_PLACES, device=words.device, dtype=torch.int32)
    return (words.unsqueeze(-1) >> places & 15).to(torch.uint8).flatten(1)


def _order_of(g_idx: Tensor, k: int, groups: int) -> Optional[Tensor]:
    """The columns in the order of their groups, or None where they are in it."""
    check_tensor("g_idx", g_idx)
    if tuple(g_idx.shape) != (k,) or g_idx.is_floating_point():
        raise InvalidArgument(f"g_idx is {tuple(g_idx.shape)} {g_idx.dtype}; it must be {(k,)} of integers")
    if groups == 0 or k % groups:
        raise InvalidArgument(f"scales have {groups} groups for {k} input features; give groups of one size")
    index = g_idx.long()
    in_order = torch.arange(k, device=index.device) // (k // groups)
    if bool((index == in_order).all()) or bool((index == -1).all()):
        return None
    if int(index.min()) < 0 or int(index.max()) >= groups:
        raise InvalidArgument(f"g_idx holds {int(index.min())} to {int(index.max())}; there are groups 0 to {groups - 1}")
    sizes = torch.bincount(index, minlength=groups)
    if bool((sizes != k // groups).any()):
        raise InvalidArgument(f"g_idx puts {int(sizes.max())} input features into one group; each must have {k // groups}")
    return torch.argsort(index, stable=True).to(torch.int32)
