"""quantize, dequantize and products of mxq.torch: the operators with the types of their results."""
from typing import Any, Optional

import torch
from torch import Tensor

from . import _kind_torch, _torch_calls, _torch_eager, _torch_native, _verbs
from ._descriptors import checked_spec, make_spec
from ._groups import Groups
from ._names import PARTS
from ._parts import Part
from ._qtensor import QTensor
from ._torch_calls import row_groups
from ._torch_eager import quiet
from ._torch_native import direct
from ._torch_ops import checked_ends_op, dequantize_op, quantize_op
from ._torch_pack import device_of, pack
from ._verbs import parts_of


def quantize(x: Tensor, format: str = "mxfp8_e4m3", *, parts: Any = "rowwise", scaling: Optional[str] = None, swizzled: bool = False,
             scope: str = "tensor", scale_rounding: Optional[str] = None, ends: Any = None, check_ends: bool = False) -> QTensor:
    """mxq.quantize as an operator of torch. ends: of groups of rows. The result is a constant: no gradient goes through it."""
    if x.requires_grad:
        x = x.detach()
    if ends is None and quiet():
        quantized = _torch_eager.quantize(x, format, parts, scaling, swizzled, scope, scale_rounding)
        if quantized is not None:
            return quantized
    eager = direct(x)
    groups = groups_of(ends, x, check_ends, True)
    spec, names = (make_spec if eager else checked_spec)(format, scaling, swizzled, scope, 448), parts_of(parts)
    made = None
    if eager or torch.compiler.is_compiling():
        made = _torch_native.quantize_parts(x, spec, sum(PARTS[name] for name in names), scale_rounding, groups)
    if made is None and eager:
        return _verbs.quantize(x, format, parts=parts, scaling=scaling, swizzled=swizzled, scope=scope, scale_rounding=scale_rounding,
                               groups=groups)
    if groups is not None and x.device.type == "cpu":
        groups = groups._replace(ends=groups.ends.clone())  # the result's own, as mxq.quantize has it
    if made is None:
        made = quantize_op(x, format, names[0] if len(names) == 1 else "both", spec.scaling, swizzled, scope, scale_rounding,
                           None if groups is None else groups.ends, groups is not None and groups.cover_rows,
                           *((1, 0) if groups is None else groups.alignment))
    each = len(made) // len(names)
    found = {}
    for i, name in enumerate(names):
        tensors = made[each * i : each * (i + 1)]
        found[name] = Part(tensors[0], tensors[1], tensors[2] if each == 3 else None)
    return QTensor(spec, tuple(x.shape), groups, found, str(x.dtype).rsplit(".", 1)[-1], device_of(x), _kind_torch)


def groups_of(ends: Any, x: Tensor, check_ends: bool, padded: bool = False) -> Optional[Groups]:
    """The groups of the rows of x. Ends, and a list of them, cover all rows; Groups say for themselves. padded: quantized rows may
    have padding."""
    groups = row_groups(ends, x, padded)
    if groups is None or (isinstance(ends, Groups) and not check_ends):
        return groups
    if x.device.type != "cpu":
        if not check_ends and not isinstance(ends, (list, tuple)):
            return groups
        groups = groups._replace(ends=checked_ends_op(groups.ends, x.shape[0]))
    return groups._replace(cover_rows=True)


def rows_of(x: Any) -> Tensor:
    """A tensor on the device of x with as many rows."""
    return x if isinstance(x, Tensor) else pack(x, "x").tensors[0].new_empty((x.shape[0], 0))


def dequantize(q: QTensor, dtype: Optional[torch.dtype] = None, *, part: Optional[str] = None) -> Tensor:
    """mxq.dequantize as an operator of torch."""
    made = _torch_eager.dequantize(q, dtype, part)
    made = _torch_native.dequantize(q, dtype, part) if made is None else made
    if made is not None:
        return made
    if isinstance(q, QTensor) and direct(*q._each_array()):
        return _verbs.dequantize(q, dtype, part=part)  # type: ignore[no-any-return]
    packed = pack(q, "q", part or ("rowwise" if q.rowwise is not None else "columnwise"))
    out: Tensor = dequantize_op(packed.tensors, packed.text, packed.shape, packed.ends, packed.cover_rows,
                                dtype or getattr(torch, q.dtype))
    return out


def matmul(a: Any, b: Any, *, dtype: Optional[torch.dtype] = None, bias: Optional[Tensor] = None, exact_products: bool = False,
           row_invariant: bool = False) -> Tensor:
    """mxq.matmul as an operator of torch."""
    made = _torch_eager.product(a, b, None, False, dtype, bias, exact_products, row_invariant, 0, 1.0)
    if made is not None:
        return made
    return _torch_calls.matmul(a, b, dtype=dtype, bias=bias, exact_products=exact_products, row_invariant=row_invariant)


def grouped_matmul(a: Any, b: Any, *, ends: Any = None, dtype: Optional[torch.dtype] = None, bias: Optional[Tensor] = None,
                   exact_products: bool = False, row_invariant: bool = False, check_ends: bool = False) -> Tensor:
    """mxq.grouped_matmul as an operator of torch. ends: of the groups of a, where it is plain or was quantized without groups."""
    groups = groups_of(ends, rows_of(a), check_ends) if ends is not None and isinstance(a, (Tensor, QTensor)) else ends
    made = _torch_eager.product(a, b, groups, True, dtype, bias, exact_products, row_invariant, 0, 1.0)
    if made is not None:
        return made
    return _torch_calls.grouped_matmul(a, b, groups=groups, dtype=dtype, bias=bias, exact_products=exact_products,
                                       row_invariant=row_invariant)
