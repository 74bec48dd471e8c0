"""mxq for torch programs that compile and train: the verbs as custom operators, linear layers with gradients, and torchao.

    import mxq.torch as mt
    y = mt.linear(x, weight, "mxfp8_e4m3")                      # x weight^T of quantized operands, differentiable
    y = mt.grouped_linear(x, weights, ends, "mxfp8_e4m3")       # one weight for each group of rows
    y = mt.expert_layer(x, ids, weights, gate_up, down)         # a mixture of experts, from tokens to tokens
    y = mt.linear(x, mt.quantize(weight))                       # frozen weights: x has a gradient
    q = mt.quantize(x, "nvfp4"); y = mt.matmul(q, w.T)          # inside of torch.compile, too

Products have gradients of plain tensors and biases; quantize and dequantize have none, and what they give is a constant.

ends: one past the last row of each group, as a tensor or a list, which must cover all rows; or mxq.Groups without padding, which say
for themselves (cover_rows). The CPU checks them. On a GPU the host does not know them, and rows that are in no group are zero;
check_ends=True compares them there, for which the host waits for the device.

mxq.quantize and the others take torch tensors as well, with all options; these here are for graphs.
"""
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from . import _kind_torch, _torch_calls
from ._descriptors import checked_spec
from ._groups import Groups
from ._library import Error
from ._parts import Part
from ._qtensor import QTensor
from ._torch_calls import row_groups
from ._torch_experts import expert_layer
from ._torch_ops import checked_ends_op, dequantize_op, quantize_op
from ._torch_pack import device_of, pack
from ._torch_products import group_sums, grouped_outer_op
from ._torch_weights import Weights
from ._torchao import from_mxtensor, to_mxtensor
from ._transformer_engine import from_transformer_engine, to_transformer_engine
from ._verbs import parts_of

__all__ = [
    "Weights", "dequantize", "expert_layer", "from_mxtensor", "from_transformer_engine", "grouped_linear", "grouped_matmul", "linear",
    "matmul", "quantize", "to_mxtensor", "to_transformer_engine",
]


def quantize(x: Tensor, format: str = "mxfp8_e4m3", *, parts: Any = "rowwise", scaling: Optional[str] = None, swizzled: bool = False,
             scope: str = "tensor", scale_rounding: Optional[str] = None, ends: Any = None, check_ends: bool = False) -> QTensor:
    """mxq.quantize as an operator of torch. ends: of groups of rows. The result is a constant: no gradient goes through it."""
    spec, names = checked_spec(format, scaling, swizzled, scope, 448), parts_of(parts)
    groups = _groups(ends, x, check_ends)
    if groups is not None and x.device.type == "cpu":
        groups = groups._replace(ends=groups.ends.clone())  # the result's own, as mxq.quantize has it
    made = quantize_op(x.detach(), format, names[0] if len(names) == 1 else "both", spec.scaling, swizzled, scope, scale_rounding,
                       None if groups is None else groups.ends, groups is not None and groups.cover_rows)
    each = len(made) // len(names)
    found = {}
    for i, name in enumerate(names):
        tensors = made[each * i : each * (i + 1)]
        found[name] = Part(tensors[0], tensors[1], tensors[2] if each == 3 else None)
    return QTensor(spec, tuple(x.shape), groups, found, str(x.dtype).rsplit(".", 1)[-1], device_of(x), _kind_torch)


def _groups(ends: Any, x: Tensor, check_ends: bool) -> Optional[Groups]:
    """The groups of the rows of x. Ends, and a list of them, cover all rows; Groups say for themselves."""
    groups = row_groups(ends, x)
    if groups is None or (isinstance(ends, Groups) and not check_ends):
        return groups
    if x.device.type != "cpu":
        if not check_ends and not isinstance(ends, (list, tuple)):
            return groups
        groups = groups._replace(ends=checked_ends_op(groups.ends, x.shape[0]))
    return groups._replace(cover_rows=True)


def dequantize(q: QTensor, dtype: Optional[torch.dtype] = None, *, part: Optional[str] = None) -> Tensor:
    """mxq.dequantize as an operator of torch."""
    packed = pack(q, "q", part or ("rowwise" if q.rowwise is not None else "columnwise"))
    out: Tensor = dequantize_op(packed.tensors, packed.text, packed.shape, packed.ends, packed.cover_rows,
                                dtype or getattr(torch, q.dtype))
    return out


def matmul(a: Any, b: Any, *, dtype: Optional[torch.dtype] = None, bias: Optional[Tensor] = None, exact_products: bool = False,
           row_invariant: bool = False) -> Tensor:
    """mxq.matmul as an operator of torch."""
    return _torch_calls.matmul(a, b, dtype=dtype, bias=bias, exact_products=exact_products, row_invariant=row_invariant)


def grouped_matmul(a: Any, b: Any, *, ends: Any = None, dtype: Optional[torch.dtype] = None, bias: Optional[Tensor] = None,
                   exact_products: bool = False, row_invariant: bool = False, check_ends: bool = False) -> Tensor:
    """mxq.grouped_matmul as an operator of torch. ends: of the groups of a plain a; a quantized one has its own."""
    groups = _groups(ends, a, check_ends) if isinstance(a, Tensor) else ends
    return _torch_calls.grouped_matmul(a, b, groups=groups, dtype=dtype, bias=bias, exact_products=exact_products,
                                       row_invariant=row_invariant)


class _Linear(torch.autograd.Function):
    """y = x w^T + bias of quantized operands, for each group of rows where there are groups; its gradients are products of the same
    kind.

    weight_gradient: "quantized" (dy and x as columnwise parts) or "high_precision" (dy and x as they are).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor], ends: Optional[Tensor], cover_rows: bool, format: str,
                weight_gradient: str) -> Tensor:
        groups = None if ends is None else Groups(ends, cover_rows=cover_rows)
        quantized = weight_gradient == "quantized"
        qx = quantize(x, format, parts="both" if quantized else "rowwise", ends=groups)
        qw = quantize(weight, format, parts="both")
        product = matmul if ends is None else grouped_matmul
        ctx.format, ctx.quantized, ctx.dtypes = format, quantized, (x.dtype, weight.dtype, None if bias is None else bias.dtype)
        ctx.x_shape, ctx.w_shape, ctx.has_ends, ctx.cover_rows = x.shape, weight.shape, ends is not None, cover_rows
        kept = _fields(qw) + (_fields(qx) if quantized else [x])
        ctx.save_for_backward(*kept, *([] if ends is None else [ends]))
        return product(qx, qw.mT, bias=bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tuple[Optional[Tensor], ...]:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # second derivatives would be lost without a word
            raise Error("layers whose weights are not quantized have first derivatives only, found create_graph=True; quantize the "
                        "weights and use a product, which has more")
        saved: List[Tensor] = list(ctx.saved_tensors)
        groups = Groups(saved.pop(), cover_rows=ctx.cover_rows) if ctx.has_ends else None
        product = matmul if groups is None else grouped_matmul
        fields = len(saved) // 2 if ctx.quantized else len(saved) - 1
        dy = dy.contiguous()
        qdy = quantize(dy, ctx.format, parts="both" if ctx.quantized else "rowwise", ends=groups)
        qw = _columnwise(saved[:fields], ctx.format, ctx.w_shape, None, dy)
        dx = product(qdy, qw, dtype=ctx.dtypes[0]) if ctx.needs_input_grad[0] else None
        dw = dbias = None
        if ctx.needs_input_grad[1] and ctx.quantized:
            dw = product(qdy.T, _columnwise(saved[fields:], ctx.format, ctx.x_shape, groups, dy), dtype=ctx.dtypes[1])
        elif ctx.needs_input_grad[1]:
            x = saved[fields]
            dw = (dy.t() @ x if groups is None else grouped_outer_op(dy, x, groups.ends, groups.cover_rows)).to(ctx.dtypes[1])
        if ctx.needs_input_grad[2]:
            dbias = (dy.float().sum(0) if groups is None else group_sums(dy, groups.ends)).to(ctx.dtypes[2])
        return dx, dw, dbias, None, None, None, None


def _fields(q: QTensor) -> List[Tensor]:
    """The tensors of the columnwise part."""
    return [field for field in q.part("columnwise")[:3] if field is not None]


def _columnwise(fields: List[Tensor], format: str, shape: Any, groups: Optional[Groups], like: Tensor) -> QTensor:
    """A quantized tensor around the columnwise part that was kept for the backward pass."""
    part = Part(fields[0], fields[1], fields[2] if len(fields) > 2 else None)
    name = str(like.dtype).rsplit(".", 1)[-1]
    spec = checked_spec(format, None, False, "tensor", 448)
    return QTensor(spec, tuple(shape), groups, {"columnwise": part}, name, device_of(like), _kind_torch)


def _layer(x: Tensor, weight: Any, bias: Optional[Tensor], groups: Optional[Groups], format: Optional[str],
           weight_gradient: str) -> Tensor:
    if weight_gradient not in ("quantized", "high_precision"):
        raise Error(f"weight_gradient is {weight_gradient!r}, expected \"quantized\" or \"high_precision\"")
    if isinstance(weight, QTensor):
        if format is not None:
            raise Error(f"format is {format!r}, expected None with quantized weights, where x stays as it is; or quantize x and use matmul")
        if groups is None:
            return _torch_calls.matmul(x, weight.T, bias=bias)
        return _torch_calls.grouped_matmul(x, weight.mT, groups=groups, bias=bias)
    if not isinstance(weight, Tensor):
        raise Error(f"weight is a {type(weight).__name__}, expected a torch tensor (outputs, inputs), or a QTensor of that shape")
    if not torch.compiler.is_compiling():
        _torch_calls.refuse_transforms("linear layers")
    ends, cover_rows = (None, False) if groups is None else (groups.ends, groups.cover_rows)
    apply: Any = _Linear.apply
    y: Tensor = apply(x, weight, bias, ends, cover_rows, format or "mxfp8_e4m3", weight_gradient)
    return y


def linear(x: Tensor, weight: Any, format: Optional[str] = None, *, bias: Optional[Tensor] = None,
           weight_gradient: str = "quantized") -> Tensor:
    """x weight^T + bias. x (tokens, inputs), weight (outputs, inputs), bias (outputs).

    A plain weight and x are quantized on the way to `format`, by default "mxfp8_e4m3", and so are the operands of the gradients. A
    quantized weight is frozen: x stays as it is, and its gradient is dy weight.
    x may have more dimensions of tokens in front, as in torch.nn.functional.linear.
    """
    y = _layer(x.reshape(-1, x.shape[-1]), weight, bias, None, format, weight_gradient)
    return y.reshape(*x.shape[:-1], y.shape[-1])


def grouped_linear(x: Tensor, weights: Any, ends: Any, format: Optional[str] = None, *, bias: Optional[Tensor] = None,
                   weight_gradient: str = "quantized", check_ends: bool = False) -> Tensor:
    """linear with one weight for each group of rows, such as the tokens of each expert. weights (groups, outputs, inputs), bias
    (groups, outputs).

    ends: one past the last row of each group: torch.cumsum(sizes, 0), and no starts or sizes.
    weight_gradient: "quantized", or "high_precision" for dy^T x of the tensors as they are.
    """
    if x.dim() != 2:
        raise Error(f"x has shape {tuple(x.shape)}, expected (tokens, inputs): ends count its rows; flatten it with x.flatten(0, -2)")
    return _layer(x, weights, bias, _groups(ends, x, check_ends), format, weight_gradient)
