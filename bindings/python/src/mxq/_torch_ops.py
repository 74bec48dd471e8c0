"""The verbs as custom operators of torch, whose fake kernels tell torch.compile the shapes of the results.

An operator takes tensors, numbers and text alone: _torch_pack.py says how it gets a quantized tensor.
"""
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, library

from . import _raw
from ._groups import Groups
from ._library import Error, check, lib
from ._memory import CPU
from ._descriptors import Spec, describe, part_sizes
from ._shapes import line_bytes
from ._torch_pack import unpack
from ._qtensor import QTensor
from ._verbs import dequantize, parts_of, quantize, requantize

_ROW_BLOCKS = {"1x32": 32, "1x16": 16, "1x128": 128, "16x16": 16}


# ---- Quantize ----------------------------------------------------------------------------------------------------------


@library.custom_op("mxq::quantize", mutates_args=())
def quantize_op(x: Tensor, format: str, parts: str, scaling: str, swizzled: bool, scope: str, scale_rounding: Optional[str],
                ends: Optional[Tensor], cover_rows: bool = False, row_alignment: int = 1, column_alignment: int = 0) -> List[Tensor]:
    groups = None if ends is None else Groups(ends, (row_alignment, column_alignment), cover_rows)
    q = quantize(x, format, parts=parts, scaling=scaling, swizzled=swizzled, scope=scope, scale_rounding=scale_rounding, groups=groups)
    return tensors_of(q, parts)


def tensors_of(q: QTensor, parts: str) -> List[Tensor]:
    """The tensors of these parts: of each codes, scales and, of NVFP4, amaxes."""
    return [tensor for part in parts_of(parts) for tensor in q.part(part)[:3] if tensor is not None]


def _stored(rows: int, groups: Optional[int], alignment: int) -> Any:
    """Rows, or columns of columnwise codes, that padded groups fill at most."""
    if groups is None or alignment == 1:
        return rows
    fewer = torch.sym_min(groups, rows)  # type: ignore[no-untyped-call,unused-ignore]
    return (rows + (alignment - 1) * fewer) // alignment * alignment


def _fake_part(x: Tensor, spec: Spec, part: str, groups: Optional[int], alignment: Tuple[int, int]) -> Tuple[Tuple[int, ...], Tuple[int, ...], int]:
    """Shapes of codes and scales and the number of amaxes. Compact scales of one-dimensional blocks have formulas, so that sizes may
    be symbols; the library tells all others, for which the sizes must be numbers."""
    rows, cols, experts = x.shape[-2], x.shape[-1], tuple(x.shape[:-2])
    amaxes = (1 if spec.scope == "tensor" else experts[0] if experts else groups or 1) if spec.format == "nvfp4" else 0
    block = _ROW_BLOCKS.get(spec.scaling)
    if block is not None and not spec.swizzled and not (spec.format.startswith("fp8") and groups is not None):
        columns = alignment[1] or (16 if spec.format == "nvfp4" else max(block, 32))
        lines, codes = (_stored(rows, groups, alignment[0]), cols) if part == "rowwise" else (cols, _stored(rows, groups, columns))
        return (*experts, lines, line_bytes(spec.format, codes)), (*experts, lines, (codes + block - 1) // block), amaxes
    shape = tuple(int(size) for size in x.shape)
    described = describe(spec, shape, None, (CPU, 0))
    if groups is not None:  # their number is enough for sizes
        check(lib.mxq_tensor_set_groups(described.value, None, 0, _raw.MXQ_TYPE_INT32, int(groups)))
        if alignment != (1, 0):
            check(lib.mxq_tensor_set_group_alignment(described.value, *alignment))
    sizes = part_sizes(described.value, spec, shape, part, groups is not None)
    return sizes.codes, sizes.scales, amaxes


def fake_parts(x: Tensor, spec: Spec, parts: str, groups: Optional[int], alignment: Tuple[int, int] = (1, 0)) -> List[Tensor]:
    """The tensors of the parts of x once it is quantized: codes, scales and, of NVFP4, amaxes."""
    out = []
    for part in parts_of(parts):
        codes, scales, amaxes = _fake_part(x, spec, part, groups, alignment)
        out += [x.new_empty(codes, dtype=torch.uint8),
                x.new_empty(scales, dtype=torch.float32 if spec.format.startswith("fp8") else torch.uint8)]
        out += [x.new_empty((amaxes,), dtype=torch.float32)] if amaxes else []
    return out


@quantize_op.register_fake
def _(x: Tensor, format: str, parts: str, scaling: str, swizzled: bool, scope: str, scale_rounding: Optional[str],
      ends: Optional[Tensor], cover_rows: bool = False, row_alignment: int = 1, column_alignment: int = 0) -> List[Tensor]:
    groups = None if ends is None else ends.shape[0]
    return fake_parts(x, Spec(format, scaling, swizzled, scope), parts, groups, (row_alignment, column_alignment))


# ---- Dequantize --------------------------------------------------------------------------------------------------------


@library.custom_op("mxq::dequantize", mutates_args=())
def dequantize_op(q: List[Tensor], text: str, shape: List[int], ends: Optional[Tensor], cover_rows: bool,
                  dtype: torch.dtype) -> Tensor:
    out: Tensor = dequantize(unpack(q, text, shape, ends, cover_rows), dtype)
    return out


@dequantize_op.register_fake
def _(q: List[Tensor], text: str, shape: List[int], ends: Optional[Tensor], cover_rows: bool, dtype: torch.dtype) -> Tensor:
    return q[0].new_empty(shape, dtype=dtype)


# ---- A columnwise part of a rowwise one ---------------------------------------------------------------------------------


@library.custom_op("mxq::columnwise", mutates_args=())
def columnwise_op(q: List[Tensor], text: str, shape: List[int], ends: Optional[Tensor], cover_rows: bool) -> List[Tensor]:
    """The columnwise part that requantize makes of the rowwise one, of the same format and scaling."""
    given = unpack(q, text, shape, ends, cover_rows)
    return tensors_of(requantize(given, given.format, parts="columnwise", part="rowwise", scaling=given.scaling, groups=given.groups),
                      "columnwise")


@columnwise_op.register_fake
def _(q: List[Tensor], text: str, shape: List[int], ends: Optional[Tensor], cover_rows: bool) -> List[Tensor]:
    given = unpack(q, text, shape, ends, cover_rows)
    spec, alignment = given.spec._replace(swizzled=False), (1, 0) if given.groups is None else given.groups.alignment
    return fake_parts(q[0].new_empty(shape), spec, "columnwise", None if ends is None else ends.shape[0], alignment)


# ---- Ends of groups ----------------------------------------------------------------------------------------------------


@library.custom_op("mxq::checked_ends", mutates_args=())
def checked_ends_op(ends: Tensor, rows: int) -> Tensor:
    """The ends, once they were read on the host, which waits for the device: they ascend, and cover all rows."""
    found = ends.tolist()
    if any(last < first for first, last in zip([0, *found], found)) or (found or [0])[-1] != rows:
        raise Error(f"ends are {found} for {rows} rows, expected one past the last row of each group: the running sums of the groups' "
                    "sizes, as torch.cumsum(sizes, 0) gives, and no starts or sizes")
    return ends.clone()


@checked_ends_op.register_fake
def _(ends: Tensor, rows: int) -> Tensor:
    return torch.empty_like(ends)
