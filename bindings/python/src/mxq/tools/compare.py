"""mxq-quantize inspect FILE and mxq-quantize compare A B."""

from pathlib import Path
from typing import Any, Dict, Iterator, List

import numpy

from .measure import sqnr
from .reader import open_checkpoint
from .stored import PLAIN, Stored, find, values

Row = Dict[str, Any]
_SLICE = 1 << 20
_OTHER_QUANTIZED = ("qweight", "qzeros", "absmax", "quant_state", "weight_shape", "weight_zero_point")


def _needs(stored: Stored) -> str:
    """What has to be done with a tensor before libmxq takes it."""
    if stored.scales is not None:
        return stored.convert
    if stored.format in PLAIN:
        return ""
    if stored.name.endswith(_OTHER_QUANTIZED):
        return "integer quantization: not a format of libmxq"
    return f"{stored.format} without scales that belong to it"


def _descriptor(stored: Stored) -> str:
    """The descriptor that takes the bytes, in the words of quantize()."""
    if stored.scales is None:
        return {"F32": "f32", "F16": "f16", "BF16": "bf16"}.get(stored.format, "")
    above = {True: ", decode scale 1 / global", False: ", decode scale"}[stored.divides] if stored.global_scale else ""
    return f"{stored.format} {stored.scaling}{above}"


def inspect(path: Path) -> List[Row]:
    """Which tensors of a checkpoint libmxq takes as they are, by which descriptor, and what the others need."""
    return [
        {
            "name": stored.name,
            "family": stored.family,
            "dtype": stored.codes.dtype,
            "shape": list(stored.shape),
            "descriptor": _descriptor(stored),
            "needs": _needs(stored),
            "bytes": sum(entry.nbytes for entry in (stored.codes, stored.scales, stored.global_scale) if entry),
        }
        for stored in find(open_checkpoint(path))
    ]


def _difference(a: Stored, b: Stored) -> Row:
    """SQNR of one tensor: what b lost of a."""
    left, right = values(a), values(b)
    if left.shape != right.shape:
        return {"note": f"shapes {list(left.shape)} and {list(right.shape)}"}
    left, right = left.reshape(-1), right.reshape(-1)
    signal = noise = 0.0
    with numpy.errstate(all="ignore"):  # infinities and NaN leave no SQNR
        for first in range(0, left.size, _SLICE):
            x, y = left[first : first + _SLICE], right[first : first + _SLICE]
            signal += float(numpy.dot(x, x))
            y = x - y
            noise += float(numpy.dot(y, y))
    return {"sqnr_db": sqnr(signal, noise), "note": "same values" if noise == 0 else ""}


def compare(a: Path, b: Path) -> Iterator[Row]:
    """Compares the values of two checkpoints tensor by tensor, whatever each stores them as."""
    left, right = ({stored.name: stored for stored in find(open_checkpoint(path))} for path in (a, b))
    for name in [*left, *(name for name in right if name not in left)]:
        row: Row = {
            "name": name,
            "a": _descriptor(left[name]) if name in left else "",
            "b": _descriptor(right[name]) if name in right else "",
        }
        if name not in left or name not in right:
            yield {**row, "note": f"in {'A' if name in left else 'B'} alone"}
            continue
        needs = _needs(left[name]) or _needs(right[name])
        yield {**row, **({"note": needs} if needs and "widened" not in needs else _difference(left[name], right[name]))}
