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
from culet._layer import Linear, check_linear
from culet._library import InvalidArgument, shown
from culet._linear_w4 import GROUP_SIZE, LinearW4
from culet._operand import check_tensor
from culet._quantize import quantize_fp8
from culet._torch_quantize import GROUP, quantize_blocks, quantize_rows

__all__ = ["LinearBF16", "LinearFP8", "LinearW4", "Patched", "patch"]


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


class LinearFP8(Linear):
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
        check_linear("linear", linear)
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


class LinearBF16(Linear):
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
        check_linear("linear", linear)
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


class Patched(NamedTuple):
    """What `patch` did; str() of it is a table."""

    swapped: "dict[str, str]"  # a module's name -> its layer now
    left: "dict[str, str]"     # a module's name -> why it was left

    def __str__(self) -> str:
        lines = [f"{len(self.swapped)} swapped, {len(self.left)} left"]
        lines += [f"  {name}: {reason}" for name, reason in self.left.items()]
        return "\n".join(lines)


def patch(model: nn.Module, format: str = "fp8", *, keep: Iterable[str] = ("lm_head", "*.lm_head"),
          group_size: int = GROUP_SIZE, symmetric: bool = True) -> Patched:
    """Swaps every nn.Linear of a model, in place, for culet's layer. Returns what was swapped and,
    of all other modules that hold a matrix, why not.

    model: of transformers or any other; in inference, so eval() and without gradients.
    format: "fp8" quantises weights in blocks of 128 x 128, and takes those of transformers' own
    FP8 layers as they are; "u4" rounds weights to 4 bits in groups of group_size input features; "bf16" takes BF16
    weights as they are.
    keep: patterns (fnmatch) of names that stay as they are. By default the last layer, which FP8
    checkpoints do not quantise either; keep=() swaps it, too.
    group_size, symmetric: of "u4", as LinearW4.from_linear takes them.
    The config of a transformers model says so: save_pretrained writes an FP8 checkpoint, or of "u4" one of
    compressed-tensors, which from_pretrained and culet.LLM read.
    Raises InvalidArgument for another format, and for a transformers model with layers of culet's that one
    quantization_config cannot describe together."""
    if not isinstance(format, str) or format not in _LAYERS:
        raise InvalidArgument(f"format is {shown(format)}; give 'fp8', 'u4' or 'bf16'")
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"model is a {type(model).__name__}; give a torch.nn.Module")
    if isinstance(keep, str) or not isinstance(keep, Iterable):
        raise InvalidArgument(f"keep is {shown(keep)}; give a list of patterns, [{shown(keep)}]")
    keep = tuple(keep)
    for pattern in keep:
        if not isinstance(pattern, str):
            raise InvalidArgument(f"keep has {shown(pattern)}; give patterns of names, as text")
    if format != "u4" and (group_size != GROUP_SIZE or symmetric is not True):
        raise InvalidArgument(f"group_size and symmetric are of 'u4', but format is {format!r}; leave them out")
    _check_scheme(model, format, group_size, symmetric)
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
                made[id(module)] = module, _swapped(module, format, group_size, symmetric)
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


_LAYERS = {"fp8": LinearFP8, "u4": LinearW4, "bf16": LinearBF16}
_QUANTISED = (LinearFP8, LinearW4)


def _check_scheme(model, format, group_size, symmetric) -> None:
    """Raises InvalidArgument where what the model has already and what it shall have do not go into one config."""
    if not hasattr(getattr(model, "config", None), "to_dict") or format == "bf16":
        return
    for name, module in model.named_modules():
        same = isinstance(module, _LAYERS[format]) and (format == "fp8" or (
            (module.group_size, module.symmetric, module.input_order) == (group_size, symmetric, None)))
        if isinstance(module, _QUANTISED) and not same:
            raise InvalidArgument(f"model has a {type(module).__name__}({module.extra_repr()}) already, {name}, which the "
                                  f"quantization_config of {format!r} does not describe; swap that, or keep all others")


def _tell_config(model: nn.Module) -> None:
    """What a transformers model's config.json must say for its weights to be read again: which of them are
    quantised, and how."""
    config = getattr(model, "config", None)
    layers = {name: module for name, module in model.named_modules() if name}
    found = next((module for module in layers.values() if isinstance(module, _QUANTISED)), None)
    if not hasattr(config, "to_dict") or found is None:
        return
    left = [name for name, module in layers.items()
            if not isinstance(module, (*_QUANTISED, nn.Embedding))
            and any(value.dim() > 1 for value in module.parameters(recurse=False))]
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if not isinstance(head, _QUANTISED):  # also of a model around this one
        left = list(dict.fromkeys([*left, "lm_head"]))
    elif getattr(config, "tie_word_embeddings", False):  # a weight of its own now
        config.tie_word_embeddings = False
    if isinstance(found, LinearW4):
        config.quantization_config = found.quantization_config(left)
        return
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
    if isinstance(module, tuple(_LAYERS.values())):
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


def _swapped(module: nn.Module, format: str, group_size: int, symmetric: bool) -> nn.Module:
    if _is_fp8_of_transformers(module):
        return LinearFP8.from_checkpoint(module.weight, module.weight_scale_inv, module.bias)
    if format == "u4":
        return LinearW4.from_linear(module, group_size, symmetric)
    return _LAYERS[format].from_linear(module)
