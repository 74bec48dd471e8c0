"""What becomes of a weight in an array: what mxq-quantize and quantize_state_dict have in common."""

from typing import Any, Optional

import numpy

from .._context import Context
from .._parts import Part
from .._qtensor import QTensor
from .._verbs import dequantize, quantize
from .layouts import Layout, power_of_two_amax


def needs_amax(layout: Layout) -> bool:
    """True if a layout has a number of the whole tensor, which must be known before any of it is quantized."""
    return layout.format == "nvfp4" or layout.scaling == "tensor"


def used_amax(layout: Layout, found: float) -> float:
    """The amax that a tensor is quantized with. found: its own, or that of all tensors with which it shares one."""
    return power_of_two_amax(found) if layout.format == "nvfp4" else found


def quantization_scale(amax: float) -> float:
    """What FP8 with a scale of the tensor multiplies values by before they are rounded."""
    with numpy.errstate(over="ignore"):  # of tiny values
        scale = numpy.float32(448) / numpy.float32(amax) if 0 < amax < float("inf") else numpy.float32(1)
    return float(min(scale, numpy.finfo(numpy.float32).max))


def of_blocks(codes: Any, scales: Any, dtype: str, context: Optional[Context] = None) -> Any:
    """The values of a matrix of FP8 with a float32 scale for each 128x128."""
    q = QTensor.from_parts("fp8_e4m3", tuple(codes.shape), rowwise=(codes, scales), scaling="128x128")
    return dequantize(q, dtype, context=context)


def quantized(x: Any, layout: Layout, amax: float, transposed: bool, context: Optional[Context] = None) -> QTensor:
    """A matrix as a layout stores it. amax: of used_amax(). transposed: the matrix has inputs as rows."""
    options: Any = {"amax": amax} if layout.format == "nvfp4" else {}
    if layout.scaling == "tensor":
        options = {"quantization_scale": quantization_scale(amax)}
    parts = "columnwise" if transposed else "rowwise"
    q = quantize(x, layout.format, scaling=layout.scaling, parts=parts, context=context, **options)
    if not transposed:
        return q
    part, (rows, cols) = q.part("columnwise"), q.shape  # the rowwise part of the transpose
    return QTensor.from_parts(layout.format, (cols, rows), rowwise=Part(part.codes, part.scales), scaling=layout.scaling)
