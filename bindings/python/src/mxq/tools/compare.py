"""mxq-quantize inspect FILE and mxq-quantize compare A B."""

from pathlib import Path
from typing import Any, Dict, Iterator, List

import numpy

from .._library import Error
from .measure import sqnr
from .plan import OTHERS, matrices, name_of_expert
from .reader import BITS, open_checkpoint, read_bytes
from .stored import PLAIN, Stored, find, values

Row = Dict[str, Any]
_SLICE = 1 << 20


def _needs(stored: Stored) -> str:
    """What has to be done with a tensor before libmxq takes it."""
    if stored.scales is not None:
        return stored.convert
    if stored.name.endswith(OTHERS):
        return "integer quantization: not a format of libmxq"
    if BITS[stored.format] > 8 or stored.format == "BOOL":
        return ""
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


def _counts(left: Any, right: Any) -> str:
    """How many elements are not finite, where the two differ in them."""
    kinds = (("NaN", numpy.isnan), ("infinite", numpy.isinf))
    found = [(int(count(left).sum()), int(count(right).sum()), what) for what, count in kinds]
    return ", ".join(f"{a:,} {what} in A and {b:,} in B" for a, b, what in found if a or b)


def _same_bytes(a: Stored, b: Stored) -> bool:
    kinds = ((one.scales, one.format, one.shape) for one in (a, b))
    return next(kinds) == next(kinds) == (None, a.format, a.shape) and numpy.array_equal(read_bytes(a.codes), read_bytes(b.codes))


def _difference(a: Stored, b: Stored) -> Row:
    """SQNR of one tensor: what b lost of a. Equal values and NaN on both sides lose nothing."""
    others = [one.format for one in (a, b) if one.scales is None and one.format not in PLAIN]  # such as positions
    if others:
        return {"note": "same values" if _same_bytes(a, b) else f"{others[0]} with other bytes"}
    left, right = values(a), values(b)
    if left.shape != right.shape:
        return {"note": f"shapes {list(left.shape)} and {list(right.shape)}"}
    left, right = left.reshape(-1), right.reshape(-1)
    signal, noise, same = 0.0, 0.0, True
    with numpy.errstate(all="ignore"):  # infinities and NaN leave no SQNR
        for first in range(0, left.size, _SLICE):
            x, y = (part[first : first + _SLICE].astype(numpy.float64) for part in (left, right))
            equal = (x == y) | (numpy.isnan(x) & numpy.isnan(y))
            same = same and bool(equal.all())
            signal += float(numpy.dot(x, x))
            noise += float(numpy.dot(x - y, x - y))
    zero = "all of A is zero" if not same and signal == 0 else ""
    notes = ["same values" if same else zero, _counts(left, right)]
    return {"sqnr_db": None if same else sqnr(signal, noise), "note": "; ".join(note for note in notes if note)}


def _tensors(path: Path) -> Dict[str, Stored]:
    return {stored.name: stored for stored in find(open_checkpoint(path))}


def _match_stacks(other: Dict[str, Stored], stacked: Dict[str, Stored]) -> None:
    """Names the stacks of one checkpoint as the other does: X and X.weight are one; X.0.weight, ... are cut from it."""
    for name, stack in [(name, one) for name, one in stacked.items() if len(one.shape) == 3 and name not in other]:
        if name.removesuffix(".weight") in other:
            stacked[name.removesuffix(".weight")] = stacked.pop(name)
        elif stack.shape[0] and name_of_expert(name, 0) in other:
            del stacked[name]
            experts = enumerate(matrices(stack._replace(transposed=False)))  # an expert's tensor has outputs as rows
            stacked |= {name_of_expert(name, number): one for number, one in experts}


def compare(a: Path, b: Path) -> Iterator[Row]:
    """Compares the values of two checkpoints tensor by tensor, whatever each stores them as, experts in stacks or not."""
    left, right = _tensors(a), _tensors(b)
    _match_stacks(left, right)
    _match_stacks(right, left)
    for name in [*left, *(name for name in right if name not in left)]:
        row: Row = {
            "name": name,
            "a": _descriptor(left[name]) or left[name].format.lower() if name in left else "",
            "b": _descriptor(right[name]) or right[name].format.lower() if name in right else "",
        }
        if name not in left or name not in right:
            yield {**row, "note": f"in {'A' if name in left else 'B'} alone"}
            continue
        needs = _needs(left[name]) or _needs(right[name])
        if needs and "widened" not in needs:
            yield {**row, "note": "same values" if _same_bytes(left[name], right[name]) else needs}
            continue
        try:
            yield {**row, **_difference(left[name], right[name])}
        except Error as error:  # such as a scale that is no number; the other tensors are compared
            yield {**row, "note": str(error)}
