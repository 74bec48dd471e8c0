"""mxq for torch programs that compile and train: the verbs as custom operators, linear layers with gradients, and torchao.

    import mxq.torch as mt
    y = mt.linear(x, weight, "mxfp8_e4m3")                      # x weight^T, differentiable
    y = mt.grouped_linear(x, weights, ends, "mxfp8_e4m3")       # one weight for each group of rows
    q = mt.quantize(x, "nvfp4"); y = mt.matmul(q, w.T)          # inside of torch.compile, too

mxq.quantize and the others take torch tensors as well, with all options; these here are for graphs. Groups have no padding.
"""
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from . import _kind_torch
from ._groups import Groups
from ._library import Error
from ._parts import Part
from ._qtensor import QTensor, Transposed, checked_spec
from ._torch_ops import (Packed, dequantize_op, device_of, grouped_matmul_op, grouped_outer_op, matmul_op, pack, quantize_op)
from ._torch_weights import Weights
from ._torchao import from_mxtensor, to_mxtensor
from ._transformer_engine import from_transformer_engine, to_transformer_engine
from ._verbs import parts_of

__all__ = [
    "Weights", "dequantize", "from_mxtensor", "from_transformer_engine", "grouped_linear", "grouped_matmul", "linear", "matmul", "quantize",
    "to_mxtensor", "to_transformer_engine",
]


def quantize(x: Tensor, format: str = "mxfp8_e4m3", *, parts: Any = "rowwise", scaling: Optional[str] = None, swizzled: bool = False,
             scope: str = "tensor", scale_rounding: Optional[str] = None, ends: Optional[Tensor] = None) -> QTensor:
    """mxq.quantize as an operator of torch. ends: of groups of rows."""
    spec, names = checked_spec(format, scaling, swizzled, scope, 448), parts_of(parts)
    made = quantize_op(x, format, names[0] if len(names) == 1 else "both", spec.scaling, swizzled, scope, scale_rounding, ends)
    each = len(made) // len(names)
    found = {}
    for i, name in enumerate(names):
        tensors = made[each * i : each * (i + 1)]
        found[name] = Part(tensors[0], tensors[1], tensors[2] if each == 3 else None)
    groups = None if ends is None else Groups(ends)
    return QTensor(spec, tuple(x.shape), groups, found, str(x.dtype).rsplit(".", 1)[-1], device_of(x), _kind_torch)


def dequantize(q: QTensor, dtype: Optional[torch.dtype] = None, *, part: Optional[str] = None) -> Tensor:
    """mxq.dequantize as an operator of torch."""
    packed = pack(q, part or ("rowwise" if q.rowwise is not None else "columnwise"), False)
    out: Tensor = dequantize_op(packed.tensors, packed.line, packed.shape, packed.ends, dtype or getattr(torch, q.dtype))
    return out


def _operands(a: Any, b: Any) -> Tuple[Packed, Packed, torch.dtype]:
    """Both operands, each with the part that the product reads, and the type of the result."""
    packed = []
    for x, rowwise_when_transposed in ((a, False), (b, True)):
        transposed = isinstance(x, Transposed)
        part = "rowwise" if transposed == rowwise_when_transposed else "columnwise"
        packed.append(pack(x.base if transposed else x, part, transposed))
    return packed[0], packed[1], a.dtype if isinstance(a, Tensor) else getattr(torch, (a.base if isinstance(a, Transposed) else a).dtype)


def matmul(a: Any, b: Any, *, dtype: Optional[torch.dtype] = None, bias: Optional[Tensor] = None, exact_products: bool = False) -> Tensor:
    """mxq.matmul as an operator of torch."""
    left, right, own = _operands(a, b)
    out: Tensor = matmul_op(left.tensors, left.line, left.shape, right.tensors, right.line, right.shape, bias, dtype or own,
                            exact_products)
    return out


def grouped_matmul(a: Any, b: Any, *, ends: Optional[Tensor] = None, dtype: Optional[torch.dtype] = None, bias: Optional[Tensor] = None,
                   exact_products: bool = False) -> Tensor:
    """mxq.grouped_matmul as an operator of torch. ends: of the groups of a plain a; a quantized one has its own."""
    left, right, own = _operands(a, b)
    ends = left.ends if left.ends is not None else ends
    if ends is None:
        raise Error("a has no groups; quantize it with ends, or give ends beside a plain tensor")
    out: Tensor = grouped_matmul_op(left.tensors, left.line, left.shape, right.tensors, right.line, right.shape, ends, bias,
                                    dtype or own, exact_products)
    return out


class _Linear(torch.autograd.Function):
    """y = x w^T of quantized operands, for each group of rows where there are ends; its gradients are products of the same kind.

    weight_gradient: "quantized" (dy and x as columnwise parts) or "high_precision" (dy and x as they are).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ends: Optional[Tensor], format: str, weight_gradient: str) -> Tensor:
        quantized = weight_gradient == "quantized"
        qx = quantize(x, format, parts="both" if quantized else "rowwise", ends=ends)
        qw = quantize(weight, format, parts="both")
        product = matmul if ends is None else grouped_matmul
        ctx.format, ctx.quantized, ctx.dtypes = format, quantized, (x.dtype, weight.dtype)
        ctx.x_shape, ctx.w_shape, ctx.has_ends = x.shape, weight.shape, ends is not None
        kept = _fields(qw) + (_fields(qx) if quantized else [x])
        ctx.save_for_backward(*kept, *([] if ends is None else [ends]))
        return product(qx, qw.mT)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tuple[Optional[Tensor], ...]:
        saved: List[Tensor] = list(ctx.saved_tensors)
        ends = saved.pop() if ctx.has_ends else None
        product = matmul if ends is None else grouped_matmul
        fields = len(saved) // 2 if ctx.quantized else len(saved) - 1
        dy = dy.contiguous()
        qdy = quantize(dy, ctx.format, parts="both" if ctx.quantized else "rowwise", ends=ends)
        qw = _columnwise(saved[:fields], ctx.format, ctx.w_shape, None, dy)
        dx = product(qdy, qw, dtype=ctx.dtypes[0]) if ctx.needs_input_grad[0] else None
        dw = None
        if ctx.needs_input_grad[1] and ctx.quantized:
            dw = product(qdy.T, _columnwise(saved[fields:], ctx.format, ctx.x_shape, ends, dy), dtype=ctx.dtypes[1])
        elif ctx.needs_input_grad[1]:
            x = saved[fields]
            dw = (dy.t() @ x if ends is None else grouped_outer_op(dy, x, ends)).to(ctx.dtypes[1])
        return dx, dw, None, None, None


def _fields(q: QTensor) -> List[Tensor]:
    """The tensors of the columnwise part."""
    return [field for field in q.part("columnwise")[:3] if field is not None]


def _columnwise(fields: List[Tensor], format: str, shape: Any, ends: Optional[Tensor], like: Tensor) -> QTensor:
    """A quantized tensor around the columnwise part that was kept for the backward pass."""
    part = Part(fields[0], fields[1], fields[2] if len(fields) > 2 else None)
    groups = None if ends is None else Groups(ends)
    name = str(like.dtype).rsplit(".", 1)[-1]
    return QTensor(checked_spec(format, None, False, "tensor", 448), tuple(shape), groups, {"columnwise": part}, name, device_of(like), _kind_torch)


def _checked(weight_gradient: str) -> str:
    if weight_gradient not in ("quantized", "high_precision"):
        raise Error(f"weight_gradient is {weight_gradient!r}, expected \"quantized\" or \"high_precision\"")
    return weight_gradient


def linear(x: Tensor, weight: Tensor, format: str = "mxfp8_e4m3", *, weight_gradient: str = "quantized") -> Tensor:
    """x weight^T with both operands quantized on the way, and so the gradients. x (tokens, inputs), weight (outputs, inputs).

    x may have more dimensions of tokens in front, as in torch.nn.functional.linear.
    """
    y: Tensor = _Linear.apply(x.reshape(-1, x.shape[-1]), weight, None, format, _checked(weight_gradient))
    return y.reshape(*x.shape[:-1], weight.shape[0])


def grouped_linear(x: Tensor, weights: Tensor, ends: Tensor, format: str = "mxfp8_e4m3", *, weight_gradient: str = "quantized") -> Tensor:
    """linear with one weight for each group of rows, such as the tokens of each expert. weights (groups, outputs, inputs).

    weight_gradient: "quantized", or "high_precision" for dy^T x of the tensors as they are.
    """
    y: Tensor = _Linear.apply(x, weights, ends, format, _checked(weight_gradient))
    return y
