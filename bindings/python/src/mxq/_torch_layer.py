"""The expert layer of torch: its forward pass and its gradients, each as one operator made of the library's verbs.

Rows of tokens are read by index and sorted by expert: S of them, one for each choice of each token. `kept` is what the forward
operator gives to the other one, in this order:

    routing     int32: the ends of the experts, the token of each row, the row of each choice
    halves      (S, 2 I), what the first product gave
    rows        (S, K), what the second product gave; where the router's weights have a gradient
    weights     of quantized weights their columnwise parts
    inputs      of both products their columnwise parts, or rowwise ones that are dequantized; where weights have a gradient
"""
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, library

from . import _kind_torch
from ._activation import activate, activate_backward
from ._descriptors import Spec, checked_spec
from ._layer import Routing, combine, combine_backward, computed_routing, route
from ._layer_rows import outer_product, product, quantize_token_rows, rows_operand, token_rows_operand
from ._names import ROW_SCALINGS
from ._parts import Part
from ._qtensor import QTensor
from ._torch_ops import fake_parts
from ._torch_pack import device_of, unpack
from ._torch_products import group_sums
from ._verbs import dequantize, quantize

class Settings(NamedTuple):
    """The options of a layer, which operators take as one text. format is None where weights are quantized and rows are plain."""

    activation: str
    gate_layout: Optional[str]
    clamp: Optional[Tuple[float, ...]]
    format: Optional[str]
    scaling: Optional[str]
    scale_rounding: Optional[str]
    weight_gradient: str

    @property
    def text(self) -> str:
        clamp = "-" if self.clamp is None else ",".join([repr(number) for number in self.clamp])
        names = (self.activation, self.gate_layout, self.format, self.scaling, self.scale_rounding, self.weight_gradient)
        return " ".join([*["-" if name is None else name for name in names], clamp])

    @staticmethod
    def of(text: str) -> "Settings":
        activation, layout, format, scaling, rounding, gradient, clamp = [None if word == "-" else word for word in text.split()]
        numbers = None if clamp is None else tuple([float(number) for number in clamp.split(",")])
        return Settings(str(activation), layout, numbers, format, scaling, rounding, str(gradient))

    @property
    def weight_spec(self) -> Spec:
        return checked_spec(str(self.format), self.scaling, False, "tensor", 448)

    @property
    def row_spec(self) -> Spec:
        spec = self.weight_spec
        return spec._replace(scaling=ROW_SCALINGS.get(spec.scaling, spec.scaling))

    @property
    def activated(self) -> Dict[str, Any]:
        return {"activation": self.activation, "gate_layout": self.gate_layout, "clamp": self.clamp}

    def quantized(self, parts: str) -> Dict[str, Any]:
        """How rows are quantized."""
        spec = self.row_spec
        return {"format": spec.format, "parts": parts, "scaling": spec.scaling, "scale_rounding": self.scale_rounding}

    @property
    def input_part(self) -> Optional[str]:
        """The part of quantized inputs of products that the gradient of weights reads."""
        return {"quantized": "columnwise", "dequantized": "rowwise"}.get(self.weight_gradient)


def _empty(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device)


def _tensors(q: QTensor, part: str) -> List[Tensor]:
    return [field for field in q.part(part)[:3] if field is not None]


# ---- Forward -----------------------------------------------------------------------------------------------------------


def run_layer(x: Tensor, ids: Tensor, weights: Optional[Tensor], gate_up: List[Tensor], gate_up_text: str,
              gate_up_shape: List[int], down: List[Tensor], down_text: str, down_shape: List[int],
              gate_up_bias: Optional[Tensor], down_bias: Optional[Tensor], settings: str, keeps: bool, keeps_rows: bool,
              keeps_inputs: bool) -> List[Tensor]:
    """The result, and what is kept."""
    chosen, experts = Settings.of(settings), gate_up_shape[0]
    routing, rows = route(ids, experts, weights), ids.shape[0] * ids.shape[1]
    operands = [unpack(gate_up, gate_up_text, gate_up_shape, None, False), unpack(down, down_text, down_shape, None, False)]
    spec, both = chosen.weight_spec if chosen.format else None, "both" if keeps else "rowwise"
    if spec is not None:
        operands = [quantize(each, spec.format, parts=both, scaling=spec.scaling, scale_rounding=chosen.scale_rounding)
                    for each in operands]
    parts = "both" if keeps_inputs and chosen.input_part == "columnwise" else "rowwise"
    inner = {"groups": routing.groups, **chosen.activated}
    halves, summed = _empty(x, rows, gate_up_shape[1]), _empty(x, rows, down_shape[1])
    if spec is None:
        first = token_rows_operand(routing, x)
        product(first, operands[0].mT, halves, gate_up_bias)
        second = activate(halves, out=_empty(x, rows, down_shape[2]), **inner)
    else:
        tokens = quantize_token_rows(routing, x, **chosen.quantized(parts))
        product(rows_operand(routing, tokens), operands[0].mT, halves, gate_up_bias)
        second = activate(halves, **inner, **chosen.quantized(parts))
    product(rows_operand(routing, second), operands[1].mT, summed, down_bias)
    out = [combine(routing, summed)]
    if keeps:
        out += [torch.cat([routing.ends, routing.row_tokens, routing.choice_rows.reshape(-1)]), halves]
        out += [summed] if keeps_rows else []
    if keeps and spec is not None:
        out += [*_tensors(operands[0], "columnwise"), *_tensors(operands[1], "columnwise")]
        if keeps_inputs and chosen.input_part:
            out += [*_tensors(tokens, chosen.input_part), *_tensors(second, chosen.input_part)]
    return out


expert_layer_op = library.custom_op("mxq::expert_layer", run_layer, mutates_args=())


@expert_layer_op.register_fake
def _(x: Tensor, ids: Tensor, weights: Optional[Tensor], gate_up: List[Tensor], gate_up_text: str, gate_up_shape: List[int],
      down: List[Tensor], down_text: str, down_shape: List[int], gate_up_bias: Optional[Tensor], down_bias: Optional[Tensor],
      settings: str, keeps: bool, keeps_rows: bool, keeps_inputs: bool) -> List[Tensor]:
    chosen, experts, rows = Settings.of(settings), gate_up_shape[0], ids.shape[0] * ids.shape[1]
    out = [x.new_empty((x.shape[0], down_shape[1]))]
    if keeps:
        out += [x.new_empty((experts + 2 * rows,), dtype=torch.int32), x.new_empty((rows, gate_up_shape[1]))]
        out += [x.new_empty((rows, down_shape[1]))] if keeps_rows else []
    if keeps and chosen.format:
        for weight in (gate_up[0], down[0]):
            out += fake_parts(weight, chosen.weight_spec, "columnwise", None)
        if keeps_inputs and chosen.input_part:
            for width in (x.shape[1], down_shape[2]):
                out += fake_parts(x.new_empty((rows, width)), chosen.row_spec, chosen.input_part, experts)
    return out


# ---- Gradients ---------------------------------------------------------------------------------------------------------


class _Kept:
    """What the forward operator kept, taken from its list in order."""

    def __init__(self, kept: Sequence[Tensor], chosen: Settings, weights: Optional[Tensor], wanted: Iterable[str], experts: int,
                 choices: int, widths: Tuple[int, int, int]):
        self._left, self._dtype = list(kept), str(kept[1].dtype).rsplit(".", 1)[-1]
        packed, self.halves = self._left.pop(0), self._left.pop(0)
        rows = self.halves.shape[0]
        ends, tokens = packed[:experts], packed[experts : experts + rows]
        choice_rows = packed[experts + rows :].view(rows // choices, choices)
        self.routing, self.unweighted = (computed_routing(ends, tokens, choice_rows, each) for each in (weights, None))
        self.rows = self._left.pop(0) if "weights" in wanted else None
        self.weights: List[Any] = []
        self.inputs: List[Any] = []
        columns, halves, inner = widths
        if chosen.format:
            self.weights = [self._tensor(chosen.weight_spec, shape, "columnwise", None)
                            for shape in ((experts, halves, columns), (experts, columns, inner))]
        if chosen.format and chosen.input_part and ("gate_up" in wanted or "down" in wanted):
            self.inputs = [self._tensor(chosen.row_spec, (rows, width), chosen.input_part, self.routing) for width in (columns, inner)]

    def _tensor(self, spec: Spec, shape: Tuple[int, ...], part: str, routing: Optional[Routing]) -> QTensor:
        codes, scales = self._left.pop(0), self._left.pop(0)
        made = Part(codes, scales, self._left.pop(0) if spec.format == "nvfp4" else None)
        return QTensor(spec, shape, routing and routing.groups, {part: made}, self._dtype, device_of(codes), _kind_torch)


def _weight_gradient(kept: _Kept, chosen: Settings, gradient: Any, quantized: Any, input: Any, out: Tensor, accumulate: bool) -> None:
    """Writes or adds the gradient of the weights of a product. gradient, quantized: that of its result, plain and quantized.
    input: of the product, plain or an operand, or quantized."""
    routing, part = kept.routing, chosen.input_part
    if part == "rowwise":
        gradient, input = (dequantize(q, part=part, out=_empty(kept.halves, *q.shape)) for q in (quantized, input))
    elif part == "columnwise":
        gradient = quantized
    right = rows_operand(routing, input) if isinstance(input, (Tensor, QTensor)) else input
    outer_product(rows_operand(routing, gradient), right, out, accumulate)


def _parts(rowwise: bool, columnwise: bool) -> str:
    return "both" if rowwise and columnwise else "columnwise" if columnwise else "rowwise"


def run_backward(dy: Tensor, x: Optional[Tensor], weights: Optional[Tensor], gate_up: List[Tensor], gate_up_text: str,
                 gate_up_shape: List[int], down: List[Tensor], down_text: str, down_shape: List[int], kept: List[Tensor], choices: int,
                 settings: str, places: List[Tensor], wanted: str, added: List[bool]) -> None:
    """Writes the gradients that are wanted to their places, or adds them there. wanted: the names of these inputs."""
    chosen, of = Settings.of(settings), dict(zip(wanted.split(), places))
    adds = dict(zip(of, added))
    (experts, two, columns), inner = gate_up_shape, down_shape[2]
    held = _Kept(kept, chosen, weights, of, experts, choices, (columns, two, inner))
    routing, halves, rows = held.routing, held.halves, held.halves.shape[0]
    operands = held.weights or [unpack(gate_up, gate_up_text, gate_up_shape, None, False), unpack(down, down_text, down_shape, None, False)]
    groups, inputs, columnwise = routing.groups, held.inputs, chosen.input_part == "columnwise"
    below = "x" in of or "gate_up" in of or "gate_up_bias" in of
    quantizes, reads_codes = bool(chosen.format), chosen.input_part is not None

    summed = combine_backward(routing, dy, held.rows, weight_gradient="weights" in of, out=_empty(halves, rows, columns))
    if "weights" in of:
        of["weights"].copy_(summed.weights)
    if "down_bias" in of:
        of["down_bias"].copy_(group_sums(summed.rows, routing.ends))
    second = summed.rows
    if quantizes and (below or ("down" in of and reads_codes)):
        second = quantize(summed.rows, groups=groups, **chosen.quantized(_parts(below, "down" in of and columnwise)))
    if "down" in of:
        input = inputs[1] if inputs else activate(halves, groups=groups, out=_empty(halves, rows, inner), **chosen.activated)
        _weight_gradient(held, chosen, summed.rows, second, input, of["down"], adds["down"])
    if not below:
        return

    of_inner = product(rows_operand(routing, second), operands[1], _empty(halves, rows, inner))
    options: Dict[str, Any] = {"groups": groups, "bias_gradient": "gate_up_bias" in of, **chosen.activated}
    if quantizes and columnwise:
        made = activate_backward(of_inner, halves, **options, **chosen.quantized(_parts("x" in of, "gate_up" in of)))
        first = made.x
    else:
        made = activate_backward(of_inner, halves, out=_empty(halves, rows, two), **options)
        first = made.x
        if quantizes and ("x" in of or reads_codes):
            first = quantize(made.x, groups=groups, **chosen.quantized("rowwise"))
    if "gate_up_bias" in of:
        of["gate_up_bias"].copy_(made.bias)
    if "gate_up" in of:
        input = inputs[0] if inputs else token_rows_operand(routing, x)
        _weight_gradient(held, chosen, made.x, first, input, of["gate_up"], adds["gate_up"])
    if "x" in of:
        combine(held.unweighted, product(rows_operand(routing, first), operands[0], _empty(halves, rows, columns)), out=of["x"])


expert_layer_backward_op = library.custom_op("mxq::expert_layer_backward", run_backward, mutates_args=("places",))
