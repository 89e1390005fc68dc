"""Linear layers whose products are culet's, and the swap of a model's.

    import culet.nn
    report = culet.nn.patch(model)        # every nn.Linear -> LinearFP8, but for the last layer
    print(report)                         # what was swapped, and what was left and why
    y = model(x)

For inference: the layers have no backward. torch.compile goes through them."""

import fnmatch
from collections.abc import Iterable
from typing import Callable, NamedTuple, Optional

import torch
from torch import Tensor, nn

from culet import _linear, _torch_ops
from culet._gemm import gemm
from culet._library import Error, InvalidArgument, shown
from culet._operand import MOST, check_tensor
from culet._quantize import quantize_fp8
from culet._torch_quantize import GROUP, quantize_blocks, quantize_rows

__all__ = ["LinearBF16", "LinearFP8", "Patched", "patch"]


_INPUTS = (torch.bfloat16, torch.float16, torch.float32)


class _Linear(nn.Module):
    """What both layers share: y (..., out_features) = x (..., in_features) weight^T + bias."""

    in_features: int
    out_features: int

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        for name, value in (("in_features", in_features), ("out_features", out_features)):
            if not isinstance(value, int) or not 1 <= value <= MOST:
                raise InvalidArgument(f"{name} is {shown(value)}; give a number of at least 1, below 2^31")
        self.in_features, self.out_features = in_features, out_features

    def _constant(self, name: str, value: Optional[Tensor]) -> None:
        self.register_parameter(
            name, None if value is None else nn.Parameter(value, requires_grad=False))

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) in BF16, F16 or FP32 -> (..., out_features) of x's type."""
        # Not where torch.compile traces, for tensors that only look like one, or for an error's sake.
        if not torch.compiler.is_compiling() and type(x) is Tensor and not x.requires_grad:
            if rows := _linear.rows_of(x, self.in_features):
                product = self._rows_product(x, rows)
                if product is not None:
                    return product
        if not isinstance(x, Tensor):
            check_tensor("x", x)
        shape = x.shape
        if shape[-1:] != (self.in_features,):
            raise InvalidArgument(
                f"x has the shape {tuple(x.shape)}; its last axis must be {self.in_features} long")
        if x.dtype not in _INPUTS:
            raise InvalidArgument(f"x holds {x.dtype}; give bfloat16, float16 or float32")
        if x.requires_grad and torch.is_grad_enabled():
            raise Error("UNSUPPORTED", f"x requires a gradient, and {type(self).__name__} has no "
                        "backward; call it under torch.no_grad() or torch.inference_mode()")
        rows = x if len(shape) == 2 else x.reshape(-1, self.in_features)
        product = self._product(rows if rows.stride(1) == 1 else rows.contiguous())
        if product.dtype != x.dtype:
            product = product.to(x.dtype)
        return product if len(shape) == 2 else product.view(*shape[:-1], self.out_features)

    def _product(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _rows_product(self, x: Tensor, rows: int) -> Optional[Tensor]:
        """The product of contiguous BF16 x (..., in_features), or None where _product must do it."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}")


def _aligned(weight: Tensor) -> Tensor:
    """The weight (N, K), each row of which begins on 16 bytes: GPUs load no others by TMA."""
    k = weight.shape[1]
    pitch = -(-k * weight.element_size() // 16) * 16 // weight.element_size()
    if weight.stride() == (pitch, 1):
        return weight
    if pitch == k:
        return weight.contiguous()
    rows = weight.new_empty((weight.shape[0], pitch))[:, :k]
    return rows.copy_(weight)


class LinearFP8(_Linear):
    """A linear layer on block-scaled FP8: weight (out_features, in_features) E4M3 with
    weight_scale_inv (ceil(out_features / 128), ceil(in_features / 128)) FP32, as FP8 checkpoints
    have them and under their names; x is quantised per row and group of 128 on every call.

    `LinearFP8(in_features, out_features)` is empty, for load_state_dict; `from_linear` quantises an
    nn.Linear, `from_checkpoint` takes a checkpoint's tensors as they are. model.to(dtype) leaves
    the types of the weight and its scales alone."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device=None,
                 dtype: Optional[torch.dtype] = None) -> None:
        super().__init__(in_features, out_features)
        blocks = -(-out_features // GROUP), -(-in_features // GROUP)
        self._constant("weight", _aligned(torch.zeros((out_features, in_features), device=device).to(
            torch.float8_e4m3fn)))
        self._constant("weight_scale_inv", torch.ones(blocks, device=device))
        self._constant("bias", torch.zeros(out_features, device=device,
                                           dtype=dtype or torch.bfloat16) if bias else None)

    @classmethod
    def from_linear(cls, linear: nn.Linear) -> "LinearFP8":
        """The layer of an nn.Linear, its weight (BF16, F16 or FP32) quantised in blocks of
        128 x 128. The bias is shared."""
        _check_linear("linear", linear)
        with torch.no_grad():
            values, scales = quantize_blocks(linear.weight)
        return cls.from_checkpoint(values, scales, linear.bias)

    @classmethod
    def from_checkpoint(cls, weight: Tensor, weight_scale_inv: Tensor,
                        bias: Optional[Tensor] = None) -> "LinearFP8":
        """The layer of a checkpoint's weight (N, K) E4M3, weight_scale_inv (ceil(N / 128),
        ceil(K / 128)) FP32 (BF16 scales are widened) and bias (N,); shares their memory, except a
        weight whose rows do not begin on 16 bytes: that is copied so that they do."""
        for name, value in (("weight", weight), ("weight_scale_inv", weight_scale_inv), ("bias", bias)):
            if value is not None or name != "bias":
                check_tensor(name, value)
        if weight.dim() != 2 or weight.dtype != torch.float8_e4m3fn:
            raise InvalidArgument(f"weight is {tuple(weight.shape)} {weight.dtype}; give a matrix "
                                  "of float8_e4m3fn, or use from_linear")
        n, k = weight.shape
        blocks = -(-n // GROUP), -(-k // GROUP)
        if tuple(weight_scale_inv.shape) != blocks or not weight_scale_inv.is_floating_point():
            raise InvalidArgument(
                f"weight_scale_inv is {tuple(weight_scale_inv.shape)} {weight_scale_inv.dtype}, but "
                f"weight is {(n, k)}: it must be {blocks} float32, one scale for 128 x 128 values")
        if bias is not None and tuple(bias.shape) != (n,):
            raise InvalidArgument(f"bias has the shape {tuple(bias.shape)}, but weight is {(n, k)}: "
                                  f"it must be {(n,)}")
        made = cls(k, n, False, device="meta")
        made._constant("weight", _aligned(weight.detach()))
        made._constant("weight_scale_inv", weight_scale_inv.detach().float().contiguous())
        if bias is not None:
            made._constant("bias", bias.detach())
        return made

    def _product(self, x: Tensor) -> Tensor:
        # Kernels write BF16 or FP32, and add a bias of either.
        bias = self.bias
        late = bias is not None and bias.dtype not in (torch.bfloat16, torch.float32)
        out = torch.bfloat16 if x.dtype == torch.bfloat16 and not late else torch.float32
        weight = self.weight, self.weight_scale_inv, None if late else bias, out
        if torch.compiler.is_compiling():  # which fuses the quantiser
            product = torch.ops.culet.fp8_gemm_nt(*quantize_rows(x), *weight)
        else:
            # One launch on a GPU, whose quantiser takes BF16; torch's operations are a dozen.
            quantise = quantize_fp8 if x.dtype == torch.bfloat16 or x.is_cpu else quantize_rows
            product = _torch_ops.block_gemm(*quantise(x), *weight)
        return product.add_(bias) if late else product

    def _rows_product(self, x: Tensor, rows: int) -> Optional[Tensor]:
        own = self._parameters  # a module's attributes cost more
        weight, scales = own.get("weight"), own.get("weight_scale_inv")
        if weight is None or scales is None or "bias" not in own:  # parametrised, or plain attributes
            return None
        return _linear.fp8_linear(x, rows, weight, scales, own["bias"])

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "LinearFP8":
        # E4M3 values mean nothing in another type, and scales are FP32: only the device follows.
        before = {name: getattr(self, name).detach() for name in ("weight", "weight_scale_inv")}
        super()._apply(fn, recurse)
        for name, old in before.items():
            new = getattr(self, name)
            if new.dtype != old.dtype:
                self._constant(name, old.to(new.device))
        moved = _aligned(self.weight.detach())  # which torch left without gaps between rows
        if moved.stride() != self.weight.stride():
            self._constant("weight", moved)
        return self


class LinearBF16(_Linear):
    """A linear layer with a BF16 weight (out_features, in_features).

    `LinearBF16(in_features, out_features)` is empty, for load_state_dict; `from_linear` shares the
    weight and the bias of an nn.Linear."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True,
                 device=None) -> None:
        super().__init__(in_features, out_features)
        self._constant("weight", torch.zeros((out_features, in_features), device=device,
                                             dtype=torch.bfloat16))
        self._constant("bias", torch.zeros(out_features, device=device, dtype=torch.bfloat16)
                       if bias else None)

    @classmethod
    def from_linear(cls, linear: nn.Linear) -> "LinearBF16":
        """The layer of an nn.Linear of BF16; shares its parameters."""
        _check_linear("linear", linear)
        if linear.weight.dtype != torch.bfloat16:
            raise InvalidArgument(f"linear's weight is {linear.weight.dtype}; LinearBF16 takes "
                                  "bfloat16: call linear.to(torch.bfloat16) first")
        made = cls(linear.in_features, linear.out_features, False, device="meta")
        # The parameter itself, not its memory: a weight tied to an embedding stays tied.
        made.weight, made.bias = linear.weight, linear.bias
        return made

    def _product(self, x: Tensor) -> Tensor:
        a = x.float() if x.dtype == torch.float16 else x  # no kernel multiplies F16 by BF16
        if torch.compiler.is_compiling():
            return torch.ops.culet.gemm(a, self.weight, None, None, self.bias)
        return gemm(a, self.weight, bias=self.bias)

    def _rows_product(self, x: Tensor, rows: int) -> Optional[Tensor]:
        own = self._parameters
        weight = own.get("weight")
        if weight is None or "bias" not in own:
            return None
        return _linear.bf16_linear(x, rows, weight, own["bias"])


def _check_linear(name: str, linear: nn.Linear) -> None:
    if not isinstance(linear, nn.Linear):
        raise InvalidArgument(f"{name} is a {type(linear).__name__}; give a torch.nn.Linear")
    if linear.weight.is_meta:
        raise InvalidArgument(f"{name}'s weight is on the meta device; load it first")


class Patched(NamedTuple):
    """What `patch` did; str() of it is a table."""

    swapped: "dict[str, str]"  # a module's name -> its layer now
    left: "dict[str, str]"     # a module's name -> why it was left

    def __str__(self) -> str:
        lines = [f"{len(self.swapped)} swapped, {len(self.left)} left"]
        lines += [f"  {name}: {reason}" for name, reason in self.left.items()]
        return "\n".join(lines)


def patch(model: nn.Module, format: str = "fp8", *,
          keep: Iterable[str] = ("lm_head", "*.lm_head")) -> Patched:
    """Swaps every nn.Linear of a model, in place, for culet's layer. Returns what was swapped and,
    of all other modules that hold a matrix, why not.

    model: of transformers or any other; in inference, so eval() and without gradients.
    format: "fp8" quantises weights in blocks of 128 x 128, and takes those of transformers' own
    FP8 layers as they are; "bf16" takes BF16 weights as they are.
    keep: patterns (fnmatch) of names that stay as they are. By default the last layer, which FP8
    checkpoints do not quantise either; keep=() swaps it, too.
    The config of a transformers model says so: save_pretrained writes an FP8 checkpoint, which from_pretrained and
    culet.LLM read.
    Raises InvalidArgument for another format."""
    if format not in ("fp8", "bf16"):
        raise InvalidArgument(f"format is {shown(format)}; give 'fp8' or 'bf16'")
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"model is a {type(model).__name__}; give a torch.nn.Module")
    if isinstance(keep, str) or not isinstance(keep, Iterable):
        raise InvalidArgument(f"keep is {shown(keep)}; give a list of patterns, [{shown(keep)}]")
    keep = tuple(keep)
    for pattern in keep:
        if not isinstance(pattern, str):
            raise InvalidArgument(f"keep has {shown(pattern)}; give patterns of names, as text")
    report, made = Patched({}, {}), {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if "parametrizations" in name.split("."):  # the module that they belong to is told of
            continue
        parametrised = torch.nn.utils.parametrize.is_parametrized(module)
        shapes = [tuple(value.shape) for value in module.parameters(recurse=parametrised) if value.dim() > 1]
        if not name and type(module) is nn.Linear:
            report.left[name] = "it is the model itself, which has no parent to swap it in: use from_linear"
        if not name or not shapes:
            continue
        reason = _reason(name, module, shapes, format, keep)
        if reason is None and id(module) not in made:
            try:
                made[id(module)] = module, _swapped(module, format)
            except InvalidArgument as error:
                reason = str(error)
        if reason is not None:
            report.left[name] = reason
            continue
        layer = made[id(module)][1]
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, layer)
        report.swapped[name] = type(layer).__name__
    _tell_config(model)
    return report


def _tell_config(model: nn.Module) -> None:
    """What a transformers model's config.json must say for its weights to be read again: which of them are FP8."""
    config = getattr(model, "config", None)
    layers = {name: module for name, module in model.named_modules() if name}
    if not hasattr(config, "to_dict") or not any(isinstance(module, LinearFP8) for module in layers.values()):
        return
    left = [name for name, module in layers.items()
            if not isinstance(module, (LinearFP8, nn.Embedding))
            and any(value.dim() > 1 for value in module.parameters(recurse=False))]
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if not isinstance(head, LinearFP8):  # also of a model around this one
        left = list(dict.fromkeys([*left, "lm_head"]))
    elif getattr(config, "tie_word_embeddings", False):  # a weight of its own now
        config.tie_word_embeddings = False
    config.quantization_config = {
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [GROUP, GROUP],
        "modules_to_not_convert": left}


def _is_fp8_of_transformers(module: nn.Module) -> bool:
    return getattr(module, "weight_scale_inv", None) is not None and \
        getattr(module.weight, "dtype", None) == torch.float8_e4m3fn


def _reason(name, module, shapes, format, keep) -> Optional[str]:
    """Why a module is left, or None."""
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in keep):
        return "keep names it"
    if isinstance(module, (LinearFP8, LinearBF16)):
        return "it is culet's already"
    if isinstance(module, nn.Embedding):
        return "an embedding is a look-up, no product"
    if torch.nn.utils.parametrize.is_parametrized(module):  # which changes its class, too
        return "its weight is parametrised; remove the parametrisations first"
    if _is_fp8_of_transformers(module) and len(shapes) == 1 and format == "fp8":
        blocks = getattr(module, "block_size", None)
        if blocks is not None and tuple(blocks) != (GROUP, GROUP):
            return f"its scales are of blocks of {tuple(blocks)}; culet's layer takes (128, 128)"
        if getattr(module, "activation_scheme", "dynamic") != "dynamic":
            return "its activations have static scales; culet's layer quantises by row and group"
    elif type(module) is not nn.Linear:
        kind = type(module).__name__
        if any(len(shape) > 2 for shape in shapes):
            return f"a {kind}, whose weight has more than two axes: no layer of culet's takes it"
        return f"a {kind}, no torch.nn.Linear: its own forward may do more than a product"
    if module._forward_hooks or module._forward_pre_hooks:
        return "it has forward hooks, which a swap would drop; remove them first"
    return None


def _swapped(module: nn.Module, format: str) -> nn.Module:
    if _is_fp8_of_transformers(module):
        return LinearFP8.from_checkpoint(module.weight, module.weight_scale_inv, module.bias)
    return (LinearFP8 if format == "fp8" else LinearBF16).from_linear(module)
