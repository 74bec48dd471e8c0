"""Linear layers of mxq.torch, whose three products are quantized: of the result, and of the gradients of x and of the weights."""
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _kind_torch, _torch_calls
from ._descriptors import Spec, checked_spec
from ._groups import Groups
from ._library import Error
from ._names import ROW_SCALINGS
from ._parts import Part
from ._qtensor import QTensor
from ._torch_ops import columnwise_op
from ._torch_pack import Packed, device_of, pack, unpack
from ._torch_products import group_sums, grouped_outer_op
from ._torch_verbs import dequantize, grouped_matmul, groups_of, matmul, quantize, rows_of

_WEIGHT_GRADIENTS = ("quantized", "dequantized", "high_precision")


class _Settings(NamedTuple):
    """How a layer is quantized. scaling: of weights."""

    format: str
    scaling: Optional[str]
    scale_rounding: Optional[str]
    weight_gradient: str
    alignment: Tuple[int, int]
    cover_rows: bool
    row_invariant: bool

    @property
    def weight_spec(self) -> Spec:
        return checked_spec(self.format, self.scaling, False, "tensor", 448)

    @property
    def row_spec(self) -> Spec:
        spec = self.weight_spec
        return spec._replace(scaling=ROW_SCALINGS.get(spec.scaling, spec.scaling))

    def weights(self, weight: Tensor) -> QTensor:
        return quantize(weight, self.format, parts="both", scaling=self.scaling, scale_rounding=self.scale_rounding)

    def rows(self, x: Tensor, rowwise: bool, columnwise: bool, groups: Optional[Groups]) -> QTensor:
        parts = "both" if rowwise and columnwise else "columnwise" if columnwise else "rowwise"
        return quantize(x, self.format, parts=parts, scaling=self.row_spec.scaling, scale_rounding=self.scale_rounding, ends=groups)

    def groups(self, ends: Optional[Tensor]) -> Optional[Groups]:
        return None if ends is None else Groups(ends, self.alignment, self.cover_rows)


class _Linear(torch.autograd.Function):
    """y = x w^T + bias of quantized operands, for each group of rows where there are groups; its gradients are products of the same
    kind. x is plain, or its tensors are those of a quantized one, of which `x_text` and `x_shape` tell."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Optional[Tensor], ends: Optional[Tensor], settings: _Settings, x_text: str, x_shape: Any,
                *x: Tensor) -> Tensor:
        groups, quantized = settings.groups(ends), settings.weight_gradient == "quantized"
        qx = unpack(x, x_text, x_shape, ends, settings.cover_rows) if x_text else settings.rows(x[0], True, quantized, groups)
        qw = settings.weights(weight)
        kept: Sequence[Tensor] = x
        if not x_text and settings.weight_gradient != "high_precision":
            kept = _fields(qx, "columnwise" if quantized else "rowwise")
        ctx.settings, ctx.x_text, ctx.dtypes = settings, x_text, (x[0].dtype, None if bias is None else bias.dtype)
        ctx.weight_fields, ctx.has_ends, ctx.x_tensors = len(_fields(qw, "columnwise")), ends is not None, len(x)
        ctx.save_for_backward(weight, *_fields(qw, "columnwise"), *kept, *([] if ends is None else [ends]))
        product = matmul if ends is None else grouped_matmul
        return product(qx, qw.mT, bias=bias, row_invariant=settings.row_invariant)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tuple[Optional[Tensor], ...]:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # second derivatives would be lost without a word
            raise Error("layers whose weights are not quantized have first derivatives only, found create_graph=True; quantize the "
                        "weights and use a product, which has more")
        settings, saved = ctx.settings, list(ctx.saved_tensors)
        groups = settings.groups(saved.pop() if ctx.has_ends else None)
        weight, qw, x = saved[0], saved[1 : 1 + ctx.weight_fields], saved[1 + ctx.weight_fields :]
        of_weight, of_bias, of_x = ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.needs_input_grad[6] and not ctx.x_text
        dy, x_shape = dy.contiguous(), [dy.shape[0], weight.shape[-1]]
        of_rows, of_columns = (of_weight and settings.weight_gradient == each for each in ("dequantized", "quantized"))
        qdy = settings.rows(dy, of_x or of_rows, of_columns, groups) if of_x or of_rows or of_columns else None
        dx = dw = dbias = None
        if of_x:
            product = matmul if groups is None else grouped_matmul
            dx = product(qdy, _kept(qw, settings.weight_spec, weight.shape, None, "columnwise", dy), dtype=ctx.dtypes[0],
                         row_invariant=settings.row_invariant)
        if of_weight:
            dw = _weight_gradient(settings, dy, qdy, x, Packed(x, ctx.x_text, x_shape), groups, weight.dtype)
        if of_bias:
            dbias = (dy.float().sum(0) if groups is None else group_sums(dy, groups.ends)).to(ctx.dtypes[1])
        return (dw, dbias, None, None, None, None, dx, *[None] * (ctx.x_tensors - 1))


def _weight_gradient(settings: _Settings, dy: Tensor, qdy: Any, kept: List[Tensor], x: Packed, groups: Optional[Groups],
                     dtype: torch.dtype) -> Tensor:
    """dy^T x, of columnwise parts, of the values of rowwise ones, or of both as they are."""
    if settings.weight_gradient == "quantized":
        product = matmul if groups is None else grouped_matmul
        return product(qdy.T, _columnwise(settings, kept, x, groups, dy), dtype=dtype)
    if settings.weight_gradient == "dequantized":
        ends, cover_rows = (None, False) if groups is None else (groups.ends, groups.cover_rows)
        qx = (unpack(x.tensors, x.text, x.shape, ends, cover_rows) if x.text
              else _kept(kept, settings.row_spec, x.shape, groups, "rowwise", dy))
        left, right = dequantize(qdy, dy.dtype, part="rowwise"), dequantize(qx, dy.dtype, part="rowwise")
    else:
        left, right = dy, kept[0]
    outer: Tensor = left.t() @ right if groups is None else grouped_outer_op(left, right, groups.ends, groups.cover_rows)
    return outer.to(dtype)


def _columnwise(settings: _Settings, kept: List[Tensor], x: Packed, groups: Optional[Groups], dy: Tensor) -> QTensor:
    """The columnwise part of x: kept, its own, or made of its rowwise part."""
    if not x.text:
        return _kept(kept, settings.row_spec, x.shape, groups, "columnwise", dy)
    ends, cover_rows = (None, False) if groups is None else (groups.ends, groups.cover_rows)
    q: QTensor = unpack(x.tensors, x.text, x.shape, ends, cover_rows)
    if q.columnwise is not None:
        return q
    made = columnwise_op(x.tensors, x.text, x.shape, ends, cover_rows)
    return _kept(made, q.spec._replace(swizzled=False), x.shape, groups, "columnwise", dy)


def _fields(q: QTensor, part: str) -> List[Tensor]:
    return [field for field in q.part(part)[:3] if field is not None]


def _kept(fields: Sequence[Tensor], spec: Spec, shape: Any, groups: Optional[Groups], part: str, like: Tensor) -> QTensor:
    """A quantized tensor around a part that was kept for the backward pass."""
    made = Part(fields[0], fields[1], fields[2] if len(fields) > 2 else None)
    return QTensor(spec, tuple(shape), groups, {part: made}, str(like.dtype).rsplit(".", 1)[-1], device_of(like), _kind_torch)


def _check(x: Any, weight: Any, format: Optional[str], scaling: Optional[str], scale_rounding: Optional[str],
           weight_gradient: str) -> None:
    if weight_gradient not in _WEIGHT_GRADIENTS:
        raise Error(f"weight_gradient is {weight_gradient!r}, expected \"quantized\", \"dequantized\" or \"high_precision\"")
    for name, value in (("format", format), ("scaling", scaling), ("scale_rounding", scale_rounding)):
        if isinstance(weight, QTensor) and value is not None:
            remedy = ", where x stays as it is; or quantize x and use matmul" if name == "format" else ", where x stays as it is"
            raise Error(f"{name} is {value!r}, expected None with quantized weights{remedy}")
    if not isinstance(weight, (Tensor, QTensor)):
        raise Error(f"weight is a {type(weight).__name__}, expected a torch tensor (outputs, inputs), or a QTensor of that shape")
    if isinstance(x, QTensor) and _torch_calls.wants_gradient(weight):
        if weight_gradient == "high_precision":
            raise Error("weight_gradient is 'high_precision', but x is quantized; expected \"quantized\" or \"dequantized\", or x as a "
                        "plain tensor")
        if any(part.hadamard is not None for part in x.parts.values()):
            raise Error("x has a Hadamard transform, which the gradient of weights does not take; quantize x without one")


def _layer(x: Any, weight: Any, bias: Optional[Tensor], groups: Optional[Groups], format: Optional[str], scaling: Optional[str],
           scale_rounding: Optional[str], weight_gradient: str, row_invariant: bool) -> Tensor:
    _check(x, weight, format, scaling, scale_rounding, weight_gradient)
    if isinstance(weight, QTensor):
        if groups is None:
            return _torch_calls.matmul(x, weight.T, bias=bias, row_invariant=row_invariant)
        return _torch_calls.grouped_matmul(x, weight.mT, groups=None if isinstance(x, QTensor) else groups, bias=bias,
                                           row_invariant=row_invariant)
    if not torch.compiler.is_compiling():
        _torch_calls.refuse_transforms("linear layers")
    quantized = isinstance(x, QTensor)
    if quantized and format in (None, x.format):
        format, scaling = x.format, scaling or x.scaling
    settings = _Settings(format or "mxfp8_e4m3", scaling, scale_rounding, weight_gradient,
                         (1, 0) if groups is None else groups.alignment,
                         groups is not None and groups.cover_rows, row_invariant)
    packed = pack(x, "x") if quantized else Packed([x], "", [])
    apply: Any = _Linear.apply
    y: Tensor = apply(weight, bias, None if groups is None else groups.ends, settings, packed.text, packed.shape, *packed.tensors)
    return y


def linear(x: Any, weight: Any, format: Optional[str] = None, *, scaling: Optional[str] = None, scale_rounding: Optional[str] = None,
           bias: Optional[Tensor] = None, weight_gradient: str = "quantized", row_invariant: bool = False) -> Tensor:
    """x weight^T + bias. x (tokens, inputs), weight (outputs, inputs), bias (outputs).

    A plain weight and x are quantized on the way to `format`, by default "mxfp8_e4m3", and so are the operands of the gradients. A
    quantized weight is frozen: x stays as it is, and its gradient is dy weight.
    x may have more dimensions of tokens in front, as in torch.nn.functional.linear.

    A quantized x is a constant. Its rowwise part is multiplied; by default weights have its format and scaling.
    scaling: of the weights; with "32x32", "128x128" and "16x16" plain rows have "1x32", "1x128" and "1x16".
    weight_gradient: "quantized" (dy and x as columnwise parts; that of a quantized x is requantized where it has none),
        "dequantized" (the values of their rowwise parts), or "high_precision" (dy and x as they are).
    row_invariant: the bits of a row of the result, and of the gradient of x where weights are plain, depend on no other row of x.
    """
    if isinstance(x, QTensor):
        return _layer(x, weight, bias, None, format, scaling, scale_rounding, weight_gradient, row_invariant)
    y = _layer(x.reshape(-1, x.shape[-1]), weight, bias, None, format, scaling, scale_rounding, weight_gradient, row_invariant)
    return y.reshape(*x.shape[:-1], y.shape[-1])


def grouped_linear(x: Any, weights: Any, ends: Any = None, format: Optional[str] = None, *, scaling: Optional[str] = None,
                   scale_rounding: Optional[str] = None, bias: Optional[Tensor] = None, weight_gradient: str = "quantized",
                   row_invariant: bool = False, check_ends: bool = False) -> Tensor:
    """linear with one weight for each group of rows, such as the tokens of each expert. weights (groups, outputs, inputs), bias
    (groups, outputs).

    ends: one past the last row of each group: torch.cumsum(sizes, 0), and no starts or sizes; or Groups, whose alignment is that of
        quantized rows. A quantized x has its own, or was quantized without groups.
    """
    if len(x.shape) != 2:
        raise Error(f"x has shape {tuple(x.shape)}, expected (tokens, inputs): ends count its rows; flatten it with x.flatten(0, -2)")
    if isinstance(x, QTensor) and x.groups is not None:
        if ends is not None:
            raise Error("ends were given with a quantized x, which has its own groups; give None")
        groups: Optional[Groups] = x.groups
    else:
        padded = not isinstance(weights, QTensor) and not isinstance(x, QTensor)
        groups = groups_of(ends, rows_of(x), check_ends, padded)
        if groups is None:
            raise Error("x has no groups; give ends, or quantize x with groups")
        x = x.grouped(groups) if isinstance(x, QTensor) else x
    return _layer(x, weights, bias, groups, format, scaling, scale_rounding, weight_gradient, row_invariant)
