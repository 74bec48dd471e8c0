"""Products of torch tensors through the operators, as mxq.matmul, mxq.torch.matmul and the operator @ make them."""
import contextlib
from typing import Any, List, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _torch_native
from ._context import Context, context_for
from ._groups import Groups, alignments
from ._library import Error
from ._memory import CUDA
from ._names import plain_dtype
from ._products import folded, prepare_grouped_matmul, prepare_matmul
from ._qtensor import QTensor, Transposed
from ._torch_native import direct
from ._torch_pack import Packed, device_of, pack
from ._torch_products import grouped_matmul_op, matmul_op


def matmul(a: Any, b: Any, *, dtype: Any = None, out: Any = None, alpha: float = 1.0, beta: float = 0.0, accumulate: bool = False,
           bias: Optional[Tensor] = None, exact_products: bool = False, row_invariant: bool = False, sm_count: int = 0,
           implementation: Optional[str] = None, context: Optional[Context] = None) -> Tensor:
    """mxq.matmul as an operator of torch, with gradients of plain tensors and the bias."""
    if out is None and beta == 0 and not accumulate and implementation is None and context is None:
        found = _torch_native.product(a, b, None, False, dtype, bias, exact_products, row_invariant, sm_count, alpha)
        if found is not None:
            return found
    if direct(*_memories(a), *_memories(b), bias, out):
        made: Tensor = prepare_matmul(a, b, dtype=dtype, out=out, alpha=alpha, beta=beta, accumulate=accumulate, bias=bias,
                                      exact_products=exact_products, row_invariant=row_invariant, sm_count=sm_count,
                                      implementation=implementation, context=context).run()
        return made
    _refuse(a, b, bias, out, beta, accumulate)
    a, lead = folded(a, b)
    check_gradient("a", a, "b", b.mT if isinstance(b, (QTensor, Transposed)) else b)
    check_gradient("b", b, "a", a)
    left, right = pack(a, "a"), pack(b, "b")
    with _entered(context, left):
        y: Tensor = matmul_op(left.tensors, left.text, left.shape, right.tensors, right.text, right.shape, bias, _dtype(dtype, a),
                              exact_products, row_invariant, alpha, sm_count, implementation)
    return y if lead is None else y.reshape(*lead, y.shape[-1])


def grouped_matmul(a: Any, b: Any, *, groups: Any = None, dtype: Any = None, out: Any = None, alpha: float = 1.0, beta: float = 0.0,
                   accumulate: bool = False, bias: Optional[Tensor] = None, exact_products: bool = False, row_invariant: bool = False,
                   sm_count: int = 0, implementation: Optional[str] = None, context: Optional[Context] = None) -> Tensor:
    """mxq.grouped_matmul as an operator of torch, with gradients of plain tensors and the bias."""
    if out is None and beta == 0 and not accumulate and implementation is None and context is None:
        found = _torch_native.grouped_product(a, b, groups, dtype, bias, exact_products, row_invariant, sm_count, alpha)
        if found is not None:
            return found
    if direct(*_memories(a), *_memories(b), bias, out):
        groups = row_groups(groups, _memories(a)[0])
        made: Tensor = prepare_grouped_matmul(a, b, groups=groups, dtype=dtype, out=out, alpha=alpha, beta=beta, accumulate=accumulate,
                                      bias=bias, exact_products=exact_products, row_invariant=row_invariant, sm_count=sm_count,
                                      implementation=implementation, context=context).run()
        return made
    _refuse(a, b, bias, out, beta, accumulate)
    if isinstance(a, QTensor) and a.groups is None and groups is not None:
        a, groups = a.grouped(row_groups(groups, pack(a, "a").tensors[0])), None
    left, right = pack(a, "a"), pack(b, "b")
    if len(right.shape) == 3:
        check_gradient("a", a, "b", b.mT if isinstance(b, (QTensor, Transposed)) else b)
        if wants_gradient(b) and left.text:
            raise Error("b requires a gradient, which a quantized a does not give; give a as a plain tensor, or take b.detach()")
    elif wants_gradient(a) or wants_gradient(b):
        raise Error("a or b requires a gradient, which grouped_matmul(a.T, b) does not have; take their detach()")
    if left.text and groups is not None:
        raise Error("groups were given with a quantized a, which has its own; quantize it with groups")
    own = left.text and left.ends is not None
    rows = Groups(left.ends, cover_rows=left.cover_rows) if own else row_groups(groups, left.tensors[0])
    if rows is None:
        raise Error("a has no groups; quantize it with groups, or give groups with a plain tensor")
    with _entered(context, left):
        y: Tensor = grouped_matmul_op(left.tensors, left.text, left.shape, right.tensors, right.text, right.shape, rows.ends,
                                      rows.cover_rows, bias, _dtype(dtype, a), exact_products, row_invariant, alpha, sm_count,
                                      implementation)
    return y


def _memories(x: Any) -> List[Any]:
    """The tensors of an operand."""
    if isinstance(x, (QTensor, Transposed)):
        return (x.base if isinstance(x, Transposed) else x)._each_array()
    return list(x) if isinstance(x, (list, tuple)) else [x]


def row_groups(groups: Any, like: Tensor, padded: bool = False) -> Optional[Groups]:
    """Groups, ends or a list of ends as Groups with ends that are a tensor where `like` is. padded: they may have padding."""
    if groups is None:
        return None
    found = groups if isinstance(groups, Groups) else Groups(groups)
    found = found._replace(alignment=alignments(found.alignment, "groups.alignment"))
    if not padded and found.alignment[0] != 1:
        raise Error(f"groups.alignment is {found.alignment}, expected rows without padding; give Groups without alignment")
    if isinstance(found.ends, (list, tuple)):
        return found._replace(ends=torch.tensor([int(end) for end in found.ends], dtype=torch.int32, device=like.device))
    if not isinstance(found.ends, Tensor):
        raise Error(f"groups.ends is a {type(found.ends).__name__}, expected a torch tensor or a list")
    return found


def wants_gradient(x: Any) -> bool:
    tensors = x if isinstance(x, (list, tuple)) else (x,)
    return torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in tensors)


def _refuse(a: Any, b: Any, bias: Any, out: Any, beta: float, accumulate: bool) -> None:
    """Refuses what operators do not take."""
    if out is not None:
        raise Error("out is given, expected None where a gradient is wanted and inside of torch.compile; take the result, or "
                    "call it under torch.no_grad()")
    if accumulate or beta != 0:
        raise Error("out is None, expected the array that accumulate or beta adds to")
    if bias is not None and not isinstance(bias, Tensor):
        raise Error(f"bias is a {type(bias).__name__}, expected a torch tensor, as the operands are")
    if torch.compiler.is_compiling():
        return
    refuse_transforms("products")
    for name, x in (("a", a), ("b", b), ("bias", bias)):
        if isinstance(x, Tensor) and forward_ad._current_level >= 0:
            dual = forward_ad.unpack_dual(x)  # type: ignore[no-untyped-call,unused-ignore]
            if dual.tangent is not None:
                raise Error(f"{name} has a tangent, but products have no forward-mode derivatives; use backward()")


def refuse_transforms(what: str) -> None:
    if torch._C._are_functorch_transforms_active():
        raise Error(f"{what} do not work inside of torch.func (grad, vjp, jvp, vmap, ...); use backward() or "
                    "torch.autograd.grad, and rows instead of vmap")


def check_gradient(name: str, x: Any, other: str, right: Any) -> None:
    """Refuses a plain x whose gradient cannot be had. right: what is the right operand of the gradient's product."""
    if isinstance(x, (QTensor, Transposed)) or not isinstance(right, (QTensor, Transposed)) or not wants_gradient(x):
        return
    if isinstance(right, Transposed):
        missing = "rowwise" if right.base.rowwise is None else None
    else:
        per_code = right.format.startswith("fp8") and right.scaling in ("row", "1x128") and right._device[0] == CUDA
        missing = "columnwise" if right.columnwise is None and per_code else None
    if missing is not None:
        raise Error(f"{name} requires a gradient, which needs the {missing} part of {other}; quantize {other} with parts=\"both\", or take "
                    f"{name}.detach()")


def _dtype(dtype: Any, a: Any) -> torch.dtype:
    """The type of the result."""
    if dtype is None:
        first = a[0] if isinstance(a, (list, tuple)) else a
        if isinstance(first, Tensor):
            return first.dtype
        dtype = (first.base if isinstance(first, Transposed) else first).dtype
    found: torch.dtype = dtype if isinstance(dtype, torch.dtype) else getattr(torch, plain_dtype(dtype))
    return found


def _entered(context: Optional[Context], left: Packed) -> Any:
    if context is None:
        return contextlib.nullcontext()
    if torch.compiler.is_compiling():
        raise Error("context is given inside of torch.compile, expected a `with` block around the call of the compiled function")
    return context_for(device_of(left.tensors[0]), context)
