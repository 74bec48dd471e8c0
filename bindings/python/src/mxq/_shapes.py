"""Shapes of the arrays of a part, in the words of the header: codes (lines, bytes of a line) and scales."""
from typing import Tuple

from ._arrays import count
from ._names import scale_dtype

_TILES = {"32x32": 32, "128x128": 128}
_CODE_BITS = {"mxfp6_e2m3": 6, "mxfp6_e3m2": 6, "mxfp4": 4, "nvfp4": 4}


def line_bytes(format: str, codes: int) -> int:
    return (codes * _CODE_BITS.get(format, 8) + 7) // 8


def code_shape(format: str, shape: Tuple[int, ...], part: str, bytes: int, grouped: bool) -> Tuple[int, ...]:
    """Rowwise (rows, bytes of a row); columnwise (cols, bytes of a column). Groups have the stored rows or columns."""
    lines, codes = (shape[-2], shape[-1]) if part == "rowwise" else (shape[-1], shape[-2])
    line = line_bytes(format, codes)
    if grouped and part == "rowwise":
        lines = bytes // line if line else lines
    elif grouped:
        line = bytes // lines if lines else line
    return (*shape[:-2], lines, line)


def scale_shape(
    format: str, shape: Tuple[int, ...], part: str, scaling: str, flat: bool, bytes: int, codes: Tuple[int, ...]
) -> Tuple[int, ...]:
    """The shape of the scales of a part. flat: one dimension for each matrix, as for swizzled scales and tiles in groups."""
    total = bytes // (4 if scale_dtype(format) == "float32" else 1)
    experts, per_expert = shape[:-2], total // max(count(shape[:-2]), 1)
    if scaling == "tensor":
        return (total,)
    if flat or scaling == "row":
        return (*experts, per_expert)
    if scaling in _TILES:
        cols = shape[-1] if part == "rowwise" else shape[-2]
        across = -(-cols // _TILES[scaling])
        return (*experts, per_expert // across if across else 0, across)
    lines = codes[-2]
    return (*experts, lines, per_expert // lines) if lines else (*experts, 0, 0)
