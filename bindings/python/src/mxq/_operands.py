"""Operands as compiled code takes them, operators of torch and handlers of XLA: arrays, and integers that say the rest.

A plain operand is 0. A quantized one is its word, then its sizes; its arrays are, of each part, codes, scales, and what NVFP4 has above
its scales. native/arrays.h reads them.
"""
from typing import Any, List, Optional, Tuple

from . import _raw
from ._descriptors import Spec
from ._names import FORMAT_NAMES, FORMATS, PARTS, SCALINGS

SCOPES = _raw.FAMILIES["mxq_scope"]
ROUNDINGS = _raw.FAMILIES["mxq_scale_rounding"]
ACTIVATIONS = _raw.FAMILIES["mxq_activation"]
GATE_LAYOUTS = _raw.FAMILIES["mxq_gate_layout"]
# Bits of the first integer of a handler, and of the layer of experts: what there is.
HAS_ENDS, COVERS_ROWS, HAS_BIAS, HAS_ROWS, HAS_WEIGHTS, GROUPED, EXACT, INVARIANT, HAS_DOWN_BIAS = [1 << bit for bit in range(9)]
TRANSPOSED_PLAIN = 31  # the integer of a plain operand that is read as its transpose
_SCALING_NAMES = {value: name for name, value in SCALINGS.items()}
_SCOPE_NAMES = {value: name for name, value in SCOPES.items()}
_NUMBER, _PARTS, _DIMS, _GROUPS = 24, 26, 28, 29  # where these fields of a word begin


def spec_word(spec: Spec, parts: int, dims: int = 2, transposed: bool = False, number: int = 0, cover_rows: bool = False,
              alignment: Tuple[int, int] = (1, 0), scale_rounding: int = 0) -> int:
    """parts: their bits. number: what is above scales, 1: an amax, 2: a decode scale. alignment: of groups."""
    return (FORMATS[spec.format] | SCALINGS[spec.scaling] << 5 | SCOPES[spec.scope] << 10 | spec.swizzled << 12 | spec.scale_max << 13
            | transposed << 23 | number << _NUMBER | parts << _PARTS | (dims == 3) << _DIMS | cover_rows << _GROUPS
            | alignment[0] << 30 | alignment[1] << 38 | scale_rounding << 46)


def spec_of(word: int) -> Tuple[Spec, str, Tuple[int, int]]:
    """The spec, the name of the parts and the alignment of groups."""
    spec = Spec(FORMAT_NAMES[word & 31], _SCALING_NAMES[word >> 5 & 31], bool(word >> 12 & 1), _SCOPE_NAMES[word >> 10 & 3],
                word >> 13 & 1023)
    return spec, {1: "rowwise", 2: "columnwise", 3: "both"}[word >> _PARTS & 3], (word >> 30 & 255, word >> 38 & 255)


def head_word(dtype: int, has_ends: bool = False, cover_rows: bool = False, has_bias: bool = False, exact: bool = False,
              row_invariant: bool = False, sm_count: int = 0) -> int:
    """How a result is made. dtype: the number of a plain format."""
    return dtype | has_ends << 2 | cover_rows << 3 | has_bias << 4 | exact << 5 | row_invariant << 6 | sm_count << 7


def quantized_operand(spec: Spec, shape: Any, parts: Any, groups: Any, transposed: bool) -> Optional[Tuple[List[Any], List[int]]]:
    """The arrays and integers of a quantized tensor with these parts; None for what no word tells: a transform, lists of arrays."""
    numbers = {(part.amax is not None) + 2 * (part.decode_scale is not None) for part in parts.values()}
    if len(numbers) != 1 or 3 in numbers or any(part.hadamard is not None or isinstance(part.codes, (list, tuple)) for part in parts.values()):
        return None
    of_groups: Any = () if groups is None else (groups.cover_rows, groups.alignment)
    word = spec_word(spec, sum(PARTS[name] for name in parts), len(shape), transposed, numbers.pop(), *of_groups)
    arrays = [field for name in PARTS if name in parts for field in parts[name][:4] if field is not None]
    return arrays, [word, *shape]


def seen_operand(arrays: Any, words: Any, at: int, array: int) -> Tuple[Tuple[Any, ...], int, int]:
    """The shape of the operand at a place of the integers, as a product sees it, and the places of the next one."""
    word = words[at]
    if word == 0:
        return tuple(arrays[array].shape), at + 1, array + 1
    dims, each = 2 + (word >> _DIMS & 1), 3 if word >> _NUMBER & 3 else 2
    shape = tuple(words[at + 1 : at + 1 + dims])
    if word >> 23 & 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape, at + 1 + dims, array + each * (2 if word >> _PARTS & 3 == 3 else 1)
