"""Shapes of the arrays of a part, in the words of the header: codes (lines, line bytes) and scales."""
from typing import Optional, Tuple

from ._memory import count
from ._names import scale_dtype

_TILES = {"32x32": 32, "128x128": 128}
_CODE_BITS = {"mxfp6_e2m3": 6, "mxfp6_e3m2": 6, "mxfp4": 4, "nvfp4": 4}


def line_bytes(format: str, codes: int) -> int:
    return (codes * _CODE_BITS.get(format, 8) + 7) // 8


def stored_rows(rows: int, count: int, alignment: int) -> int:
    """The rows that padded groups fill at most, whatever their sizes."""
    return (rows + (alignment - 1) * min(count, rows)) // alignment * alignment


def code_shape(format: str, shape: Tuple[int, ...], part: str, stored: Optional[int] = None) -> Tuple[int, ...]:
    """Rowwise (rows, bytes of a row); columnwise (cols, bytes of a column). stored: the rows with the padding of groups."""
    rows, cols = shape[-2] if stored is None else stored, shape[-1]
    lines, codes = (rows, cols) if part == "rowwise" else (cols, rows)
    return (*shape[:-2], lines, line_bytes(format, codes))


def scale_shape(
    format: str, shape: Tuple[int, ...], part: str, scaling: str, flat: bool, bytes: int, codes: Tuple[int, ...]
) -> Tuple[int, ...]:
    """The shape of the scales of a part, whose codes have the shape `codes`. flat: one dimension for each matrix, as for swizzled
    scales and tiles in groups. Only these take their size from the bytes, so that sizes of 0 have the shapes of all others."""
    total = bytes // (4 if scale_dtype(format) == "float32" else 1)
    experts, lines = shape[:-2], codes[-2]
    if scaling == "tensor":
        return (total,)
    if flat or scaling == "row":
        return (*experts, total // count(experts) if count(experts) else 0 if flat else lines)
    width = codes[-1] * 8 // _CODE_BITS.get(format, 8)  # with the padding of groups
    tile = _TILES.get(scaling)
    if tile is not None:
        return (*experts, -(-lines // tile), -(-width // tile))
    return (*experts, lines, -(-width // int(scaling.split("x")[1])))
