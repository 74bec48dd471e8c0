"""mxq.torch.expert_layer: a mixture of experts with gradients."""
from typing import Any, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _torch_calls, _torch_eager, _torch_native
from ._activation import Clamp
from ._arguments import number
from ._library import Error
from ._qtensor import QTensor
from ._torch_layer import Settings, expert_layer_backward_op, expert_layer_op, run_backward, run_layer
from ._torch_pack import pack
from ._torch_verbs import quantize

NAMES = ("x", "weights", "gate_up", "down", "gate_up_bias", "down_bias")
_WEIGHT_GRADIENTS = ("quantized", "dequantized", "high_precision")


class _ExpertLayer(torch.autograd.Function):
    """The layer with the gradients of x, the router's weights, plain gate_up and down, and biases.

    operands: the tensors of gate_up, then those of down. places: float32 tensors that the gradients of both are added to, or None.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Optional[Tensor], gate_up_bias: Optional[Tensor], down_bias: Optional[Tensor],
                gate_up_place: Optional[Tensor], down_place: Optional[Tensor], ids: Tensor, settings: str, wanted: Tuple[bool, ...],
                texts: Tuple[str, str], shapes: Tuple[Any, Any], gate_ups: int, *operands: Tensor) -> Tensor:
        of_weights = wanted[2] or wanted[3]
        forward: Any = run_layer if _torch_native.direct(x, ids, weights, gate_up_bias, down_bias, *operands) else expert_layer_op
        y, *kept = forward(x, ids, weights, *_packed(operands, gate_ups, texts, shapes), gate_up_bias, down_bias, settings,
                                   True, wanted[1], of_weights)
        reads_x = wanted[2] and Settings.of(settings).weight_gradient == "high_precision"
        saved = [x if reads_x else None, weights, gate_up_bias, down_bias, gate_up_place, down_place, ids, *operands, *kept]
        ctx.present = [tensor is not None for tensor in saved]
        ctx.save_for_backward(*[tensor for tensor in saved if tensor is not None])
        ctx.settings, ctx.wanted, ctx.texts, ctx.shapes = settings, wanted, texts, shapes
        ctx.gate_ups, ctx.operands = gate_ups, len(operands)
        made: Tensor = y
        return made

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tuple[Optional[Tensor], ...]:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # second derivatives would be lost without a word
            raise Error("expert layers have first derivatives only, found create_graph=True; build the layer of products of quantized "
                        "weights, which have more")
        left = list(ctx.saved_tensors)
        saved: List[Any] = [left.pop(0) if present else None for present in ctx.present]
        x, weights, gate_up_bias, down_bias, gate_up_place, down_place, ids = saved[:7]
        operands, kept = saved[7 : 7 + ctx.operands], saved[7 + ctx.operands :]
        packed = _packed(operands, ctx.gate_ups, ctx.texts, ctx.shapes)
        inputs: List[Any] = [dy, weights, operands[0], operands[ctx.gate_ups], gate_up_bias, down_bias]
        added: List[Any] = [None, None, gate_up_place, down_place, None, None]
        of: List[Any] = [None] * len(NAMES)
        for i, wanted in enumerate(ctx.wanted):
            if wanted:
                of[i] = _place_for(NAMES[i], inputs[i], dy, packed[2]) if added[i] is None else added[i]
        names = [name for name, place in zip(NAMES, of) if place is not None]
        backward: Any = run_backward if _torch_native.direct(dy, *ctx.saved_tensors) else expert_layer_backward_op
        backward(dy.contiguous(), x, weights, *packed, kept, ids.shape[1], ctx.settings,
                 [place for place in of if place is not None], " ".join(names),
                 [added[NAMES.index(name)] is not None for name in names])
        of = [None if place is not None else gradient for gradient, place in zip(of, added)]
        of_operands = [None] * ctx.operands if ctx.texts[0] else [of[2], of[3]]
        return (of[0], of[1], of[4], of[5], *[None] * 8, *of_operands)


def _packed(operands: Sequence[Tensor], gate_ups: int, texts: Tuple[str, str], shapes: Tuple[Any, Any]) -> Tuple[Any, ...]:
    """gate_up and down as the operators take them. shapes: of quantized ones."""
    gate_up, down = list(operands[:gate_ups]), list(operands[gate_ups:])
    first, second = (shapes if texts[0] else (list(gate_up[0].shape), list(down[0].shape)))
    return gate_up, texts[0], list(first), down, texts[1], list(second)


def _place_for(name: str, input: Tensor, dy: Tensor, gate_up_shape: List[int]) -> Tensor:
    """New memory for a gradient. x has the type of dy, and as many columns as gate_up."""
    shape = (dy.shape[0], gate_up_shape[2]) if name == "x" else input.shape
    return torch.empty(shape, dtype=input.dtype, device=dy.device)


def _check_options(weight_gradient: str, format: Optional[str], scaling: Optional[str], scale_rounding: Optional[str],
                   gate_up: Any, down: Any) -> None:
    if weight_gradient not in _WEIGHT_GRADIENTS:
        raise Error(f"weight_gradient is {weight_gradient!r}, expected \"quantized\", \"dequantized\" or \"high_precision\"")
    for name, weight, shape in (("gate_up", gate_up, "(experts, 2 I, K)"), ("down", down, "(experts, K, I)")):
        if not isinstance(weight, (Tensor, QTensor)):
            raise Error(f"{name} is a {type(weight).__name__}, expected a torch tensor {shape}, or a QTensor of that shape")
        if len(weight.shape) != 3:
            raise Error(f"{name} has shape {tuple(weight.shape)}, expected {shape}")
    if isinstance(gate_up, QTensor) != isinstance(down, QTensor):
        raise Error(f"down is a {type(down).__name__}, expected a {type(gate_up).__name__}, as gate_up is; quantize both, or none")
    for name, value in (("format", format), ("scaling", scaling), ("scale_rounding", scale_rounding)):
        if isinstance(gate_up, QTensor) and value is not None:
            raise Error(f"{name} is {value!r}, expected None with quantized weights, where x stays as it is")


def _place(name: str, weight: Any) -> Optional[Tensor]:
    """Where the gradient of a weight is added to: its main_grad, which trainers with weights of sixteen bits have."""
    place = getattr(weight, "main_grad", None) if _torch_calls.wants_gradient(weight) else None
    if place is None:
        return None
    if place.dtype != torch.float32 or place.shape != weight.shape or not place.is_contiguous():
        raise Error(f"{name}.main_grad has dtype {str(place.dtype).rsplit('.', 1)[-1]} and shape {tuple(place.shape)}, expected "
                    f"contiguous float32 of shape {tuple(weight.shape)}")
    found: Tensor = place
    return found


def expert_layer(x: Tensor, ids: Tensor, weights: Optional[Tensor], gate_up: Any, down: Any,
                 gate_up_bias: Optional[Tensor] = None, down_bias: Optional[Tensor] = None, *, format: Optional[str] = None,
                 scaling: Optional[str] = None, scale_rounding: Optional[str] = None, activation: str = "swiglu",
                 gate_layout: Optional[str] = None, clamp: Optional[Clamp] = None, weight_gradient: str = "quantized") -> Tensor:
    """A mixture of experts, from tokens to tokens: each token goes to the experts that its ids choose, and gets the sum of what
    these give, times the router's weights.

    x: (tokens, K). ids: (tokens, choices) of int32 or int64; -1 drops a choice. weights: the same shape, float32 or bfloat16, or
    None for 1. gate_up: (experts, 2 I, K), gate_up_bias: (experts, 2 I). down: (experts, K, I), down_bias: (experts, K).

    format, scaling, scale_rounding: plain gate_up and down are quantized to them, by default to "mxfp8_e4m3", and so are the rows
    that enter each product and the operands of the gradients. scaling is that of the weights; with "32x32", "128x128" and "16x16",
    whose values are the same in both directions, rows have "1x32", "1x128" and "1x16". Quantized weights are frozen: rows stay as
    they are, and weights have no gradient. activation, gate_layout, clamp: those of mxq.activate.

    weight_gradient: of "quantized" gradients and inputs as columnwise parts, of their rowwise parts "dequantized", or in
    "high_precision" of both as they are. Where a weight has a float32 main_grad, its gradient is added there, and its grad stays
    None.
    """
    _check_options(weight_gradient, format, scaling, scale_rounding, gate_up, down)
    if x.dim() != 2:
        raise Error(f"x has shape {tuple(x.shape)}, expected (tokens, K): ids have a row for each; flatten it with x.flatten(0, -2)")
    if ids.dim() != 2 or ids.shape[0] != x.shape[0]:
        raise Error(f"ids has shape {tuple(ids.shape)}, expected (tokens, choices) with {x.shape[0]} tokens, as x has")
    if clamp is not None and len(clamp) != 3:
        raise Error(f"clamp is {clamp!r}, expected (alpha, limit, addend)")
    if not torch.compiler.is_compiling():
        _torch_calls.refuse_transforms("expert layers")
    numbers = None if clamp is None else tuple([number(value, "clamp") for value in clamp])
    frozen = isinstance(gate_up, QTensor)
    if frozen and _torch_eager.quiet():
        found = _torch_native.expert_layer(x, ids, weights, gate_up, down, gate_up_bias, down_bias, None, scale_rounding, activation,
                                           gate_layout, numbers)
        if found is not None:
            return found
    settings = Settings(activation, gate_layout, numbers, None if frozen else format or "mxfp8_e4m3", scaling, scale_rounding,
                        weight_gradient).text
    leaves = (x, weights, gate_up, down, gate_up_bias, down_bias)
    wanted = tuple([_torch_calls.wants_gradient(leaf) for leaf in leaves])
    first, second = pack(gate_up, "gate_up"), pack(down, "down")
    if not any(wanted):
        weight, row = (None, None) if frozen else (Settings.of(settings).weight_spec, Settings.of(settings).row_spec)
        halves, out = [each if weight is None or _torch_native.ops is None else
                       quantize(each, weight.format, scaling=weight.scaling, scale_rounding=scale_rounding) for each in (gate_up, down)]
        found = _torch_native.expert_layer(x, ids, weights, halves, out, gate_up_bias, down_bias, row, scale_rounding, activation, gate_layout,
                                           numbers)
        if found is not None:
            return found
        forward: Any = run_layer if _torch_native.direct(x, ids, weights, gate_up_bias, down_bias, *first[0], *second[0]) else expert_layer_op
        y: Tensor = forward(x, ids, weights, *first[:3], *second[:3], gate_up_bias, down_bias, settings, False, False, False)[0]
        return y
    if wanted[0] or wanted[4]:
        _torch_calls.check_gradient("x" if wanted[0] else "gate_up_bias", x if wanted[0] else gate_up_bias, "down", down)
    if wanted[0]:
        _torch_calls.check_gradient("x", x, "gate_up", gate_up)
    apply: Any = _ExpertLayer.apply
    texts, shapes = (first.text, second.text), (first.shape, second.shape) if frozen else (None, None)
    made: Tensor = apply(x, weights, gate_up_bias, down_bias, _place("gate_up", gate_up), _place("down", down), ids, settings, wanted,
                         texts, shapes, len(first.tensors), *first.tensors, *second.tensors)
    return made
