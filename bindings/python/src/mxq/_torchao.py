"""The bridge to torchao: its MXTensor around the memory of a QTensor, and back. Nothing is copied."""
from typing import Any

import torch

from ._library import Error
from ._names import CODE_DTYPES
from ._parts import is_list
from ._qtensor import QTensor

_FORMATS = {torch.float8_e4m3fn: "mxfp8_e4m3", torch.float8_e5m2: "mxfp8_e5m2"}
if hasattr(torch, "float4_e2m1fn_x2"):
    _FORMATS[torch.float4_e2m1fn_x2] = "mxfp4"


def _class() -> Any:
    try:
        from torchao.prototype.mx_formats.mx_tensor import MXTensor  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise Error("torchao is not here; pip install torchao") from None
    return MXTensor


def to_mxtensor(q: QTensor, part: str = "rowwise") -> Any:
    """A torchao MXTensor with the codes and scales of a part: MXFP8, or MXFP4, in blocks of 32. The columnwise part gives the
    transposed matrix, which is how torchao has blocks of another dimension."""
    if q.format not in _FORMATS.values() or q.scaling != "1x32" or q.groups is not None:
        raise Error(f"q is {q!r}, expected mxfp8_e4m3, mxfp8_e5m2 or mxfp4 in blocks of 1x32 without groups")
    from torchao.quantization.quantize_.common import KernelPreference  # type: ignore[import-untyped,unused-ignore]

    chosen = q.part(part)
    if is_list(chosen.codes):
        raise Error("q has a list of experts, expected codes in one array")
    element = next(dtype for dtype, format in _FORMATS.items() if format == q.format)
    codes = chosen.codes if q.format == "mxfp4" else chosen.codes.view(getattr(torch, CODE_DTYPES[q.format]))
    scales = chosen.scales.view(torch.float8_e8m0fnu)
    return _class()(codes, scales, element, 32, getattr(torch, q.dtype), KernelPreference.EMULATED, None, q.swizzled)


def from_mxtensor(tensor: Any, groups: Any = None) -> QTensor:
    """A QTensor around a torchao MXTensor, with the part that it has: rowwise, or columnwise of the transposed view of one. groups:
    Groups of its rows, or their ends; columnwise blocks then begin with each group."""
    if not isinstance(tensor, _class()):
        raise Error(f"tensor is a {type(tensor).__name__}, expected a torchao MXTensor")
    if tensor.elem_dtype not in _FORMATS or tensor.block_size != 32:
        raise Error(f"the MXTensor has {tensor.elem_dtype} in blocks of {tensor.block_size}, expected MXFP8 or MXFP4 in blocks of 32")
    codes, scales, shape = tensor.qdata, tensor.scale, tuple(tensor.shape)
    rowwise: Any = (codes, scales)
    columnwise: Any = None
    if not codes.is_contiguous():
        rowwise, columnwise = None, (codes.transpose(-2, -1), scales.transpose(-2, -1))
    return QTensor.from_parts(_FORMATS[tensor.elem_dtype], shape, rowwise=rowwise, columnwise=columnwise,
                              swizzled=tensor.is_swizzled_scales, groups=groups, dtype=tensor.orig_dtype)
