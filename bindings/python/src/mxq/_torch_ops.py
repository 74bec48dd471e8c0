"""The verbs as custom operators of torch, whose fake kernels tell torch.compile the shapes of the results.

An operator takes tensors, numbers and text alone: a quantized tensor is a list of tensors (codes, scales and, for NVFP4, the
amax), the shape of the matrix, and a line of text that has everything else.
"""
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, library

from . import _kind_torch as kind
from . import _raw
from ._arrays import CPU, CUDA, Device
from ._groups import Groups
from ._library import Error, check, lib
from ._products import grouped_matmul, matmul
from ._parts import Part, is_list
from ._qtensor import QTensor, Spec, _sizes, describe
from ._shapes import line_bytes
from ._verbs import dequantize, parts_of, quantize

_ROW_BLOCKS = {"1x32": 32, "1x16": 16, "1x128": 128, "16x16": 16}


def device_of(x: Tensor) -> Device:
    return (CPU, 0) if x.device.type == "cpu" else (CUDA, x.device.index)


class Packed(NamedTuple):
    """An operand as an operator takes it. A plain tensor has the line ""; `ends` are those of its groups."""

    tensors: List[Tensor]
    line: str
    shape: List[int]
    ends: Optional[Tensor]


def pack(x: Any, part: str, transposed: bool) -> Packed:
    """One part of a quantized tensor, or a plain tensor, as operators take it."""
    if isinstance(x, Tensor):
        return Packed([x], "", list(x.shape), None)
    chosen, spec = x.part(part), x.spec
    if is_list(chosen.codes):
        raise Error("the tensor has a list of experts, which operators do not take; mxq.matmul and mxq.grouped_matmul do")
    tensors = [chosen.codes, chosen.scales] + ([chosen.amax] if chosen.amax is not None else [])
    mask = -1 if chosen.hadamard is None else chosen.hadamard
    words = (spec.format, spec.scaling, spec.scope, spec.scale_max, int(spec.swizzled), part, int(transposed), mask, x.dtype)
    ends = None if x.groups is None else x.groups.ends
    return Packed(tensors, " ".join(str(word) for word in words), list(x.shape), ends)


def _unpack(tensors: Sequence[Tensor], line: str, shape: Sequence[int], ends: Optional[Tensor]) -> Any:
    if not line:
        return tensors[0]
    format, scaling, scope, scale_max, swizzled, part, transposed, mask, dtype = line.split()
    made = Part(tensors[0], tensors[1], tensors[2] if len(tensors) > 2 else None, None, None if mask == "-1" else int(mask))
    spec = Spec(format, scaling, swizzled == "1", scope, int(scale_max))
    groups = None if ends is None else Groups(ends)
    q = QTensor(spec, tuple(shape), groups, {part: made}, dtype, device_of(tensors[0]), kind)
    return q.mT if transposed == "1" else q


def is_transposed(line: str) -> bool:
    return bool(line) and line.split()[6] == "1"


# ---- Quantize ----------------------------------------------------------------------------------------------------------


@library.custom_op("mxq::quantize", mutates_args=())
def quantize_op(x: Tensor, format: str, parts: str, scaling: str, swizzled: bool, scope: str, scale_rounding: Optional[str],
                ends: Optional[Tensor]) -> List[Tensor]:
    q = quantize(x, format, parts=parts, scaling=scaling, swizzled=swizzled, scope=scope, scale_rounding=scale_rounding, groups=ends)
    return [tensor for part in parts_of(parts) for tensor in q.part(part)[:3] if tensor is not None]


def _stored(rows: int, groups: Optional[int], alignment: int) -> Any:
    """Rows, or columns of columnwise codes, that padded groups fill at most."""
    if groups is None or alignment == 1:
        return rows
    return (rows + (alignment - 1) * torch.sym_min(groups, rows)) // alignment * alignment


def _fake_part(x: Tensor, spec: Spec, part: str, groups: Optional[int]) -> Tuple[Tuple[int, ...], Tuple[int, ...], int]:
    """Shapes of codes and scales and the number of amaxes. Compact scales of blocks along a line have formulas, so that sizes may
    be symbols; the library tells all others, for which the sizes must be numbers."""
    rows, cols, experts = x.shape[-2], x.shape[-1], tuple(x.shape[:-2])
    amaxes = (1 if spec.scope == "tensor" else experts[0] if experts else groups or 1) if spec.format == "nvfp4" else 0
    block = _ROW_BLOCKS.get(spec.scaling)
    if block is not None and not spec.swizzled and not (spec.format.startswith("fp8") and groups is not None):
        alignment = 16 if spec.format == "nvfp4" else max(block, 32)
        lines, codes = (rows, cols) if part == "rowwise" else (cols, _stored(rows, groups, alignment))
        return (*experts, lines, line_bytes(spec.format, codes)), (*experts, lines, (codes + block - 1) // block), amaxes
    shape = tuple(int(size) for size in x.shape)
    described = describe(spec, shape, None, (CPU, 0))
    if groups is not None:  # their number is enough for sizes
        check(lib.mxq_tensor_set_groups(described.value, None, 0, _raw.MXQ_TYPE_INT32, int(groups)))
    sizes = _sizes(described.value, spec, shape, part, groups is not None)
    return sizes.codes, sizes.scales, amaxes


@quantize_op.register_fake
def _(x: Tensor, format: str, parts: str, scaling: str, swizzled: bool, scope: str, scale_rounding: Optional[str],
      ends: Optional[Tensor]) -> List[Tensor]:
    out = []
    for part in parts_of(parts):
        codes, scales, amaxes = _fake_part(x, Spec(format, scaling, swizzled, scope), part, None if ends is None else ends.shape[0])
        out += [x.new_empty(codes, dtype=torch.uint8),
                x.new_empty(scales, dtype=torch.float32 if format.startswith("fp8") else torch.uint8)]
        out += [x.new_empty((amaxes,), dtype=torch.float32)] if amaxes else []
    return out


# ---- Dequantize --------------------------------------------------------------------------------------------------------


@library.custom_op("mxq::dequantize", mutates_args=())
def dequantize_op(q: List[Tensor], line: str, shape: List[int], ends: Optional[Tensor], dtype: torch.dtype) -> Tensor:
    out: Tensor = dequantize(_unpack(q, line, shape, ends), dtype)
    return out


@dequantize_op.register_fake
def _(q: List[Tensor], line: str, shape: List[int], ends: Optional[Tensor], dtype: torch.dtype) -> Tensor:
    return q[0].new_empty(shape, dtype=dtype)


# ---- Products ----------------------------------------------------------------------------------------------------------


@library.custom_op("mxq::matmul", mutates_args=())
def matmul_op(a: List[Tensor], a_line: str, a_shape: List[int], b: List[Tensor], b_line: str, b_shape: List[int],
              bias: Optional[Tensor], dtype: torch.dtype, exact_products: bool) -> Tensor:
    out: Tensor = matmul(_unpack(a, a_line, a_shape, None), _unpack(b, b_line, b_shape, None), bias=bias, dtype=dtype,
                         exact_products=exact_products)
    return out


@matmul_op.register_fake
def _(a: List[Tensor], a_line: str, a_shape: List[int], b: List[Tensor], b_line: str, b_shape: List[int],
      bias: Optional[Tensor], dtype: torch.dtype, exact_products: bool) -> Tensor:
    rows = a_shape[-1] if is_transposed(a_line) else a_shape[-2]
    cols = b_shape[-2] if is_transposed(b_line) else b_shape[-1]
    return a[0].new_empty((rows, cols), dtype=dtype)


@library.custom_op("mxq::grouped_matmul", mutates_args=())
def grouped_matmul_op(a: List[Tensor], a_line: str, a_shape: List[int], b: List[Tensor], b_line: str, b_shape: List[int],
                      ends: Tensor, bias: Optional[Tensor], dtype: torch.dtype, exact_products: bool) -> Tensor:
    along_contraction = is_transposed(a_line)
    left, right = _unpack(a, a_line, a_shape, ends), _unpack(b, b_line, b_shape, ends if along_contraction else None)
    out: Tensor = grouped_matmul(left, right, groups=ends if isinstance(left, Tensor) else None, bias=bias, dtype=dtype,
                                 exact_products=exact_products)
    return out


@grouped_matmul_op.register_fake
def _(a: List[Tensor], a_line: str, a_shape: List[int], b: List[Tensor], b_line: str, b_shape: List[int],
      ends: Tensor, bias: Optional[Tensor], dtype: torch.dtype, exact_products: bool) -> Tensor:
    if is_transposed(a_line):
        return a[0].new_empty((ends.shape[0], a_shape[-1], b_shape[-1]), dtype=dtype)
    cols = b_shape[-2] if is_transposed(b_line) else b_shape[-1]
    return a[0].new_empty((a_shape[-2], cols), dtype=dtype)


@library.custom_op("mxq::grouped_outer", mutates_args=())
def grouped_outer_op(dy: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    """dy^T x for each group of rows, of plain tensors: the gradient of weights in high precision."""
    if dy.is_cuda and dy.dtype is torch.bfloat16 and hasattr(torch, "_grouped_mm"):
        return torch._grouped_mm(dy.t(), x, offs=ends.int())
    out = dy.new_zeros((ends.shape[0], dy.shape[1], x.shape[1]))
    first = 0
    for group, last in enumerate(ends.tolist()):
        out[group] = dy[first:last].t() @ x[first:last]
        first = last
    return out


@grouped_outer_op.register_fake
def _(dy: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    return dy.new_empty((ends.shape[0], dy.shape[1], x.shape[1]))
