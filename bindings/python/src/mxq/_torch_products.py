"""Products as custom operators of torch, with their gradients. A gradient is a product of the same kind, so it has gradients, too.

Only plain operands and the bias have gradients: a quantized tensor is a constant. Gradients read a quantized operand as a product
does that is written by hand: dx = dy w reads the columnwise part of w, or its rowwise part, transposed, where that is all.
"""
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, library

from ._groups import Groups
from ._products import prepare_grouped_matmul, prepare_matmul
from ._torch_pack import Packed, is_transposed, plain_operand, unpack

Grads = Tuple[Any, ...]


def seen_shape(text: str, shape: List[int]) -> List[int]:
    """The shape that an operand has in the product."""
    return [*shape[:-2], shape[-1], shape[-2]] if is_transposed(text) else shape


# ---- matmul ------------------------------------------------------------------------------------------------------------


@library.custom_op("mxq::matmul", mutates_args=())
def matmul_op(a: List[Tensor], a_text: str, a_shape: List[int], b: List[Tensor], b_text: str, b_shape: List[int],
              bias: Optional[Tensor], dtype: torch.dtype, exact_products: bool, row_invariant: bool, alpha: float, sm_count: int,
              implementation: Optional[str]) -> Tensor:
    out: Tensor = prepare_matmul(unpack(a, a_text, a_shape, None, False), unpack(b, b_text, b_shape, None, False), bias=bias, dtype=dtype,
                                 exact_products=exact_products, row_invariant=row_invariant, alpha=alpha, sm_count=sm_count,
                                 implementation=implementation).run()
    return out


@matmul_op.register_fake
def _(a: List[Tensor], a_text: str, a_shape: List[int], b: List[Tensor], b_text: str, b_shape: List[int],
      bias: Optional[Tensor], dtype: torch.dtype, exact_products: bool, row_invariant: bool, alpha: float, sm_count: int,
      implementation: Optional[str]) -> Tensor:
    return a[0].new_empty((seen_shape(a_text, a_shape)[-2], seen_shape(b_text, b_shape)[-1]), dtype=dtype)


def _wanted(tensors: List[Tensor], text: str) -> bool:
    return not text and tensors[0].requires_grad


def _keep(ctx: Any, inputs: Tuple[Any, ...], a: Packed, b: Packed, bias: Optional[Tensor], ends: Optional[Tensor]) -> None:
    """Keeps of each operand what the gradient of the other one reads."""
    ctx.a_wanted, ctx.b_wanted = _wanted(a.tensors, a.text), _wanted(b.tensors, b.text)
    kept_a, kept_b = a.tensors if ctx.b_wanted else [], b.tensors if ctx.a_wanted else []
    ctx.save_for_backward(*kept_a, *kept_b, *([] if ends is None else [ends]))
    ctx.a, ctx.b, ctx.kept, ctx.inputs = a._replace(tensors=[]), b._replace(tensors=[]), (len(kept_a), len(kept_b)), len(inputs)
    ctx.counts = (len(a.tensors), len(b.tensors))
    ctx.a_dtype, ctx.b_dtype = a.tensors[0].dtype, b.tensors[0].dtype
    ctx.bias_dtype = bias.dtype if bias is not None and bias.requires_grad else None


def _kept(ctx: Any) -> Tuple[Packed, Packed, Optional[Tensor]]:
    saved, (of_a, of_b) = list(ctx.saved_tensors), ctx.kept
    ends = saved[of_a + of_b] if len(saved) > of_a + of_b else None
    return ctx.a._replace(tensors=saved[:of_a]), ctx.b._replace(tensors=saved[of_a : of_a + of_b]), ends


def _given_back(ctx: Any, da: Optional[Tensor], db: Optional[Tensor], dbias: Optional[Tensor], bias_index: int) -> Grads:
    """A gradient for each input of an operator, of which a is the first and b the fourth."""
    grads: List[Any] = [None] * ctx.inputs
    grads[0] = [da] + [None] * (ctx.counts[0] - 1)
    grads[3] = [db] + [None] * (ctx.counts[1] - 1)
    grads[bias_index] = dbias
    return tuple(grads)


def _keep_matmul(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    a, a_text, a_shape, b, b_text, b_shape, bias, _, ctx.exact, ctx.invariant, ctx.alpha, ctx.sm_count, _ = inputs
    _keep(ctx, inputs, Packed(a, a_text, a_shape), Packed(b, b_text, b_shape), bias, None)


def _matmul_gradient(ctx: Any, dy: Tensor) -> Grads:
    a, b, _ = _kept(ctx)

    def times(left: Tensor, right: Packed, dtype: torch.dtype, invariant: bool) -> Tensor:
        left = left.to(dtype).contiguous()
        out: Tensor = matmul_op([left], "", list(left.shape), right.tensors, right.text, right.shape, None, dtype, ctx.exact,
                                invariant, ctx.alpha, ctx.sm_count, None)
        return out

    da = times(dy, b.mT, ctx.a_dtype, ctx.invariant) if ctx.a_wanted else None
    db = times(dy.mT, a, ctx.b_dtype, False).mT if ctx.b_wanted else None
    dbias = None if ctx.bias_dtype is None else dy.float().sum(0).to(ctx.bias_dtype)
    return _given_back(ctx, da, db, dbias, 6)


matmul_op.register_autograd(_matmul_gradient, setup_context=_keep_matmul)


# ---- grouped_matmul ----------------------------------------------------------------------------------------------------


@library.custom_op("mxq::grouped_matmul", mutates_args=())
def grouped_matmul_op(a: List[Tensor], a_text: str, a_shape: List[int], b: List[Tensor], b_text: str, b_shape: List[int],
                      ends: Tensor, cover_rows: bool, bias: Optional[Tensor], dtype: torch.dtype, exact_products: bool,
                      row_invariant: bool, alpha: float, sm_count: int, implementation: Optional[str]) -> Tensor:
    left = unpack(a, a_text, a_shape, ends, cover_rows)
    right = unpack(b, b_text, b_shape, ends if is_transposed(a_text) else None, cover_rows)
    groups = Groups(ends, cover_rows=cover_rows) if isinstance(left, Tensor) else None
    out: Tensor = prepare_grouped_matmul(left, right, groups=groups, bias=bias, dtype=dtype, exact_products=exact_products,
                                         row_invariant=row_invariant, alpha=alpha, sm_count=sm_count,
                                         implementation=implementation).run()
    return out


@grouped_matmul_op.register_fake
def _(a: List[Tensor], a_text: str, a_shape: List[int], b: List[Tensor], b_text: str, b_shape: List[int],
      ends: Tensor, cover_rows: bool, bias: Optional[Tensor], dtype: torch.dtype, exact_products: bool,
      row_invariant: bool, alpha: float, sm_count: int, implementation: Optional[str]) -> Tensor:
    rows, cols = seen_shape(a_text, a_shape)[-2], seen_shape(b_text, b_shape)[-1]
    return a[0].new_empty((ends.shape[0], rows, cols) if is_transposed(a_text) else (rows, cols), dtype=dtype)


def _keep_grouped(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    a, a_text, a_shape, b, b_text, b_shape, ends, ctx.cover_rows, bias, _, ctx.exact, ctx.invariant, ctx.alpha, ctx.sm_count, _ = inputs
    _keep(ctx, inputs, Packed(a, a_text, a_shape), Packed(b, b_text, b_shape), bias, ends)


def _grouped_gradient(ctx: Any, dy: Tensor) -> Grads:
    a, b, ends = _kept(ctx)
    assert ends is not None
    da = db = dbias = None
    if ctx.a_wanted:
        da = _grouped(dy.to(ctx.a_dtype), b.mT, ends, ctx.cover_rows, ctx.exact, ctx.invariant, ctx.alpha, ctx.sm_count)
    if ctx.b_wanted:
        db = ctx.alpha * grouped_outer_op(dy.to(ctx.a_dtype), a.tensors[0], ends, ctx.cover_rows).mT.to(ctx.b_dtype)
    if ctx.bias_dtype is not None:
        dbias = group_sums(dy, ends).to(ctx.bias_dtype)
    return _given_back(ctx, da, db, dbias, 8)


def _grouped(left: Tensor, right: Packed, ends: Tensor, cover_rows: bool, exact: bool, invariant: bool, alpha: float,
             sm_count: int) -> Tensor:
    left = left.contiguous()
    out: Tensor = grouped_matmul_op([left], "", list(left.shape), right.tensors, right.text, right.shape, ends, cover_rows, None,
                                    left.dtype, exact, invariant, alpha, sm_count, None)
    return out


def group_sums(dy: Tensor, ends: Tensor) -> Tensor:
    """The sum of the rows of each group, in float32: the gradient of a bias."""
    group = torch.searchsorted(ends, torch.arange(dy.shape[0], device=dy.device, dtype=ends.dtype), right=True)
    sums = torch.zeros(ends.shape[0] + 1, dy.shape[1], dtype=torch.float32, device=dy.device)
    return sums.index_add(0, group, dy.float())[:-1]


grouped_matmul_op.register_autograd(_grouped_gradient, setup_context=_keep_grouped)


# ---- dy^T x of each group ----------------------------------------------------------------------------------------------


@library.custom_op("mxq::grouped_outer", mutates_args=())
def grouped_outer_op(dy: Tensor, x: Tensor, ends: Tensor, cover_rows: bool) -> Tensor:
    """dy^T x for each group of rows, of plain tensors of one type: the gradient of weights in high precision."""
    if dy.is_cuda and dy.dtype is torch.bfloat16 and hasattr(torch, "_grouped_mm"):
        return torch._grouped_mm(dy.t(), x, offs=ends.int())
    out = dy.new_zeros((ends.shape[0], dy.shape[1], x.shape[1]))
    first = 0
    for group, last in enumerate(ends.tolist()):
        out[group] = dy[first:last].t() @ x[first:last]
        first = last
    return out


@grouped_outer_op.register_fake
def _(dy: Tensor, x: Tensor, ends: Tensor, cover_rows: bool) -> Tensor:
    return dy.new_empty((ends.shape[0], dy.shape[1], x.shape[1]))


def _keep_outer(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    dy, x, ends, ctx.cover_rows = inputs
    ctx.save_for_backward(dy, x, ends)


def _outer_gradient(ctx: Any, gradient: Tensor) -> Grads:
    dy, x, ends = ctx.saved_tensors
    gradient = gradient.contiguous()
    of_dy = _grouped(x, plain_operand(gradient.mT), ends, ctx.cover_rows, False, False, 1.0, 0) if ctx.needs_input_grad[0] else None
    of_x = _grouped(dy, plain_operand(gradient), ends, ctx.cover_rows, False, False, 1.0, 0) if ctx.needs_input_grad[1] else None
    return of_dy, of_x, None, None


grouped_outer_op.register_autograd(_outer_gradient, setup_context=_keep_outer)
