"""What quantizing a tensor cost, in slices of rows, so that memory stays small.

SQNR: decibels between the values and what was lost of them.
Clipped: elements so far beyond the largest value of their block that they lose more than by rounding.
Scales: how many block scales have which exponent of two.
Zero blocks: blocks whose codes are all zero, whether their values were or not.

Not finite: elements that are NaN or infinite.

Zero blocks and elements that are not finite are counted in all rows. The others are counted in the rows that are measured: all of
them, or a sample, the first 128 of each 2048.
"""

import math
from typing import Any, Dict, Iterator, Optional, Tuple

import numpy

from .. import convert, dequantize
from .._parts import Part
from .._qtensor import QTensor
from .devices import Cpu

_SLICE = 1 << 19  # elements
_SAMPLE, _PERIOD = 128, 2048  # rows
_LARGEST = {"mxfp8_e4m3": 0x7E, "fp8_e4m3": 0x7E, "mxfp4": 0x77, "nvfp4": 0x77}  # the byte of codes of the largest value
_MAGNITUDES = {"mxfp8_e4m3": 0x7F, "fp8_e4m3": 0x7F, "mxfp4": 0x77, "nvfp4": 0x77}
_HALF_STEP = {"mxfp8_e4m3": 464 / 448, "fp8_e4m3": 464 / 448, "mxfp4": 7 / 6, "nvfp4": 7 / 6}  # half of the step behind it
_BLOCKS = {"1x32": 32, "1x16": 16, "16x16": 16, "1x128": 128, "128x128": 128}


def rows_of(q: QTensor, first: int, last: int, codes: Optional[Any] = None) -> QTensor:
    """Some rows of a 2-D tensor, without a copy. first: a multiple of 128 for scales of 128x128. codes: others than its own."""
    part = q.part("rowwise")
    scales = part.scales
    if q.scaling == "128x128":
        scales = scales[first // 128 : -(-last // 128)]
    elif q.scaling != "tensor":
        scales = scales[first:last]
    part = Part(part.codes[first:last] if codes is None else codes, scales, part.amax, part.decode_scale)
    return QTensor.from_parts(q.format, (last - first, q.shape[1]), rowwise=part, scaling=q.scaling, scale_max=q.scale_max)


def _zeros(codes: Any, format: str, scaling: str, cols: int) -> Any:
    """Which blocks of each row have codes of zero alone."""
    rows, width = codes.shape
    block = _BLOCKS.get(scaling, cols) * width // cols
    padded = numpy.zeros((rows, -(-width // block) * block), numpy.uint8) if width % block else codes
    if width % block:
        padded[:, :width] = codes
    words = padded.reshape(rows, -1, block)
    if block % 8 == 0 and padded.flags.c_contiguous:
        words = words.view(numpy.uint64)
    mask = words.dtype.type(int.from_bytes(bytes([_MAGNITUDES[format]]) * words.itemsize, "little"))
    return ~(numpy.bitwise_or.reduce(words, axis=2) & mask).astype(bool)


def zero_blocks(codes: Any, scales: Any, format: str, scaling: str, cols: int) -> Tuple[int, int]:
    """How many blocks of rows have codes of zero alone, and how many blocks there are. For a scale of the tensor, 1 block.

    Reads codes only where a scale allows zeros: a byte of 0, and for FP8 the scale 1 or, where values are tiny, the least. A tile of NVFP4 may have rows of zeros under any scale.
    """
    candidates = (scales == 1) | (scales < 1e-36) if scales.dtype == numpy.float32 else scales == 0
    if scaling != "16x16" and not candidates.any():
        return 0, scales.size
    zeros = _zeros(codes, format, scaling, cols)
    if scaling == "tensor":
        zeros = zeros.all(keepdims=True)
    elif scaling == "128x128":
        zeros = numpy.logical_and.reduceat(zeros, numpy.arange(0, len(zeros), 128), axis=0)
    return int(zeros.sum()), zeros.size


_EXPONENT = {"bfloat16": 0x7F80, "float16": 0x7C00, "float32": 0x7F800000, "uint8": 0x7F}  # bytes are codes of E4M3


def not_finite(array: Any) -> int:
    """How many elements are NaN or infinite. Two maxima of integers say that there are none, which is fast."""
    exponent = _EXPONENT[array.dtype.name]
    signed, bits = (array.view(f"{kind}{array.dtype.itemsize}") for kind in "iu")
    sign = 1 << 8 * bits.itemsize - 1
    if not array.size or (int(signed.max()) < exponent and int(bits.max()) < sign + exponent):
        return 0
    return int(numpy.count_nonzero((bits & exponent) == exponent))


def counts_of(scales: Any) -> Dict[int, int]:
    """How many scales have which byte, or in float32 which exponent of two."""
    if scales.dtype == numpy.uint8:
        counts = numpy.bincount(scales.reshape(-1), minlength=256)
        return {int(code): int(counts[code]) for code in numpy.flatnonzero(counts)}
    found, counts = numpy.unique(numpy.frexp(scales)[1] - 1, return_counts=True)
    return {int(exponent): int(count) for exponent, count in zip(found, counts)}


def log2_of(format: str, counts: Dict[int, int]) -> Dict[str, int]:
    """Counts of counts_of() by the exponent of two, as text; "zero" for the byte 0, a scale of zero or the least of E8M0."""
    out: Dict[str, int] = {}
    for key, count in sorted(counts.items()):
        exponent = key if format.startswith("fp8") else key - 127
        if format == "nvfp4":  # E4M3
            exponent = key // 8 - 7 if key >= 8 else key.bit_length() - 10
        name = "zero" if key == 0 and not format.startswith("fp8") else str(exponent)
        out[name] = out.get(name, 0) + count
    return out


def measured_rows(first: int, last: int, mode: str) -> Iterator[Tuple[int, int]]:
    """The ranges of measured rows among rows from first to last of a matrix."""
    if mode == "all":
        yield first, last
    elif mode == "sample":
        for begin in range(first // _PERIOD * _PERIOD, last, _PERIOD):
            if begin + _SAMPLE > first:
                yield max(begin, first), min(begin + _SAMPLE, last)


class Measure:
    """Sums over rows of a tensor."""

    def __init__(self, format: str, scaling: str) -> None:
        self.format, self.scaling = format, scaling
        self.signal = self.noise = 0.0
        self.clipped = self.zeros = self.blocks = self.rows = self.measured = self.not_finite = 0
        self.scales: Dict[int, int] = {}

    def add(self, here: Cpu, x: Any, q: QTensor, mode: str, first: int = 0) -> None:
        """Rows of a matrix from the row `first` on, and what they became. first: a multiple of 128 for scales of 128x128."""
        part, (rows, cols) = q.part("rowwise"), q.shape
        codes, scales = here.host(part.codes), here.host(part.scales)
        zeros, blocks = zero_blocks(codes, scales, self.format, self.scaling, cols)
        self.zeros, self.blocks, self.rows = self.zeros + zeros, self.blocks + blocks, self.rows + rows
        tile = 128 if self.scaling == "128x128" else 1
        step = max(_SLICE // cols // tile, 1) * tile
        for begin, end in measured_rows(first, first + rows, mode):
            for row in range(begin - first, end - first, step):
                self._slice(here, x, q, row, min(row + step, end - first))

    def _slice(self, here: Cpu, x: Any, q: QTensor, first: int, last: int) -> None:
        rows, shape = rows_of(q, first, last), (last - first, q.shape[1])
        given, back, limit = (here.floats(name, shape) for name in ("given", "back", "limit"))
        convert(here.rows(x[first:last]), "float32", out=given, context=here.context)
        dequantize(rows, "float32", out=back, context=here.context)
        top = here.filled(tuple(rows.part("rowwise").codes.shape), _LARGEST[self.format])
        dequantize(rows_of(rows, 0, last - first, top), "float32", out=limit, context=here.context)
        with numpy.errstate(all="ignore"):  # infinities and NaN leave no SQNR
            limit *= _HALF_STEP[self.format]
            signal, noise, clipped = here.sums(given, back, limit)
        self.signal, self.noise, self.clipped = self.signal + signal, self.noise + noise, self.clipped + clipped
        self.measured += last - first
        self._count(counts_of(here.host(rows.part("rowwise").scales)))

    def _count(self, scales: Dict[int, int]) -> None:
        for key, count in scales.items():
            self.scales[key] = self.scales.get(key, 0) + count

    def merge(self, other: "Measure") -> None:
        for name in ("signal", "noise", "clipped", "zeros", "blocks", "rows", "measured", "not_finite"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self._count(other.scales)

    def row(self) -> Dict[str, Any]:
        tensor = self.scaling == "tensor"
        zeros = {
            "zero_blocks": int(self.zeros == self.blocks) if tensor else self.zeros,
            "blocks": 1 if tensor else self.blocks,
            **({"not_finite": self.not_finite} if self.not_finite else {}),
        }
        if not self.measured:
            return zeros
        return {
            "sqnr_db": sqnr(self.signal, self.noise),
            "clipped": self.clipped,
            **zeros,
            "rows": self.rows,
            "measured_rows": self.measured,
            "scale_log2": log2_of(self.format, dict.fromkeys(self.scales, 1) if tensor else self.scales),
        }


def sqnr(signal: float, noise: float) -> Optional[float]:
    """Decibels; None where nothing is lost or where a NaN or an infinity leaves no number."""
    if not (0 < noise < math.inf and signal < math.inf):
        return None
    return round(10 * math.log10(signal / noise), 3) if signal else None


def measure(x: Any, q: QTensor) -> Dict[str, Any]:
    """Compares all rows of a matrix of host memory with what it became."""
    out = Measure(q.format, q.scaling)
    out.add(Cpu(), x, q, "all")
    return out.row()
