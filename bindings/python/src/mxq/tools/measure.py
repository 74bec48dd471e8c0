"""What quantizing a tensor cost, in slices of rows, so that memory stays small.

SQNR: decibels between the values and what was lost of them.
Clipped: elements so far beyond the largest value of their block that they lose more than by rounding.
Zero blocks: blocks whose codes are all zero, whether their values were or not.
"""

import math
from typing import Any, Dict, Optional, Tuple

import numpy

from .. import convert
from .._parts import Part
from .._qtensor import QTensor

_SLICE = 1 << 19  # elements
_LARGEST = {"mxfp8_e4m3": 0x7E, "fp8_e4m3": 0x7E, "mxfp4": 0x77, "nvfp4": 0x77}  # the byte of codes of the largest value
_MAGNITUDES = {"mxfp8_e4m3": 0x7F, "fp8_e4m3": 0x7F, "mxfp4": 0x77, "nvfp4": 0x77}
_HALF_STEP = {"mxfp8_e4m3": 464 / 448, "fp8_e4m3": 464 / 448, "mxfp4": 7 / 6, "nvfp4": 7 / 6}  # half of the step behind it
_BLOCKS = {"1x32": 32, "1x16": 16, "16x16": 16, "1x128": 128, "128x128": 128}


def rows_of(q: QTensor, first: int, last: int, codes: Optional[Any] = None) -> QTensor:
    """Some rows of a 2-D tensor, without a copy. first: a multiple of 128. codes: others, in place of its own."""
    part = q.part("rowwise")
    scales = part.scales
    if q.scaling == "128x128":
        scales = scales[first // 128 : -(-last // 128)]
    elif q.scaling != "tensor":
        scales = scales[first:last]
    part = Part(part.codes[first:last] if codes is None else codes, scales, part.amax, part.decode_scale)
    return QTensor.from_parts(q.format, (last - first, q.shape[1]), rowwise=part, scaling=q.scaling, scale_max=q.scale_max)


def zero_blocks(q: QTensor) -> Tuple[int, int]:
    """How many blocks of a slice have codes of zero alone, and how many blocks there are."""
    codes = q.part("rowwise").codes
    rows, width = codes.shape
    block = _BLOCKS.get(q.scaling, q.shape[1]) * width // q.shape[1]
    padded = numpy.zeros((rows, -(-width // block) * block), numpy.uint8) if width % block else codes
    if width % block:
        padded[:, :width] = codes
    words = padded.reshape(rows, -1, block)
    if block % 8 == 0 and padded.flags.c_contiguous:
        words = words.view(numpy.uint64)
    mask = words.dtype.type(int.from_bytes(bytes([_MAGNITUDES[q.format]]) * words.itemsize, "little"))
    zeros = ~(numpy.bitwise_or.reduce(words, axis=2) & mask).astype(bool)
    if q.scaling == "tensor":
        zeros = zeros.all(keepdims=True)
    elif q.scaling == "128x128":
        zeros = numpy.logical_and.reduceat(zeros, numpy.arange(0, rows, 128), axis=0)
    return int(zeros.sum()), zeros.size


class Measure:
    """Sums over the slices of a tensor."""

    def __init__(self, elements: int) -> None:
        """elements: of the largest slice. The memory for slices is taken once."""
        self.signal = self.noise = 0.0
        self.clipped = self.zeros = self.blocks = 0
        self._buffers = numpy.empty((3, elements), numpy.float32)

    def add(self, x: Any, q: QTensor, top: QTensor) -> None:
        """A slice: its values, what they became, and the largest values that its blocks can have."""
        given, back, limit = self._buffers[:, : x.size]
        convert(x, "float32", out=given.reshape(x.shape))
        q.dequantize("float32", out=back.reshape(x.shape))
        top.dequantize("float32", out=limit.reshape(x.shape))
        self.signal += float(numpy.dot(given, given))
        numpy.subtract(given, back, out=back)
        self.noise += float(numpy.dot(back, back))
        limit *= _HALF_STEP[q.format]
        self.clipped += int(numpy.count_nonzero(numpy.abs(given, out=given) > limit))
        zeros, blocks = zero_blocks(q)
        self.zeros, self.blocks = self.zeros + zeros, self.blocks + blocks

    def row(self) -> Dict[str, Any]:
        return {
            "sqnr_db": sqnr(self.signal, self.noise),
            "clipped": self.clipped,
            "zero_blocks": self.zeros,
            "blocks": self.blocks,
        }


def sqnr(signal: float, noise: float) -> Optional[float]:
    """Decibels; None where nothing is lost or where a NaN or an infinity leaves no number."""
    if not (0 < noise < math.inf and signal < math.inf):
        return None
    return round(10 * math.log10(signal / noise), 3) if signal else None


def measure(x: Any, q: QTensor) -> Dict[str, Any]:
    """Compares a matrix with what it became."""
    rows, cols = q.shape
    step = max(_SLICE // cols // 128, 1) * 128
    out, codes = Measure(min(step, rows) * cols), q.part("rowwise").codes
    largest = numpy.full((min(step, rows), codes.shape[1]), _LARGEST[q.format], numpy.uint8)
    for first in range(0, rows, step):
        last = min(first + step, rows)
        out.add(x[first:last], rows_of(q, first, last), rows_of(q, first, last, largest[: last - first]))
    if q.scaling == "tensor":
        out.zeros, out.blocks = int(out.zeros == out.blocks), 1
    return out.row()
