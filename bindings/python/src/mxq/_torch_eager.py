"""Calls of the operators in C++ where torch neither traces nor looks, in the least time: arguments that are no lists.

An operand is one part of a quantized tensor without gaps, or a plain tensor. Each call gives None for all others, and for what the
operator refuses, which wrote nothing: _torch_native.py and the operators in Python then make the call, and say why.
"""
import functools
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, library
from torch.autograd import forward_ad

from . import _kind_torch, _torch_native
from ._groups import Groups
from ._memory import CUDA, HOST
from ._names import FORMAT_OF_DTYPE, PARTS, value_of
from ._descriptors import Spec, checked_spec
from ._operands import head_word, seen_operand, spec_of, spec_word
from ._parts import Part
from ._qtensor import QTensor, Transposed
from ._torch_native import DTYPE_OF, DTYPES, PLAIN
from ._torch_ops import fake_parts
from ._verbs import parts_of

if _torch_native.ops is not None:
    # The calls themselves, without what torch.ops puts around them.
    _quantize_part = _torch_native.ops.quantize_part.default._op
    _quantize_part_with_amaxes = _torch_native.ops.quantize_part_with_amaxes.default._op
    _dequantize_part = _torch_native.ops.dequantize_part.default._op
    _product = _torch_native.ops.product.default._op
    _product_with = _torch_native.ops.product_with.default._op

_REFUSED = (RuntimeError, TypeError, ValueError)
_compiling, _modes, _transforms = torch.compiler.is_compiling, _torch_native.modes, torch._C._are_functorch_transforms_active


def quiet() -> bool:
    """Whether torch neither traces nor looks: no graph, mode, transform or forward-mode derivative is about."""
    return not (_compiling() or _modes() or _transforms() or forward_ad._current_level >= 0)


# ---- Operands ----------------------------------------------------------------------------------------------------------

# Codes, scales and the number above them, or None; the integers as text; the number of the type of a product; ends of groups, and
# whether they cover all rows; tensors that may want a gradient.
_Operand = Tuple[Tensor, Optional[Tensor], Optional[Tensor], str, Optional[int], Optional[Tensor], bool, Tuple[Tensor, ...]]


@functools.lru_cache(maxsize=256)
def _word(spec: Spec, part: str, dims: int, transposed: bool, number: int, cover_rows: bool, alignment: Tuple[int, int]) -> str:
    return f" {spec_word(spec, PARTS[part], dims, transposed, number, cover_rows, alignment)} "


def _described(q: QTensor, transposed: bool) -> Any:
    """The operand of a quantized tensor; False for one with two parts, lists, a transform or ends on the host."""
    if len(q._parts) != 1:
        return False
    ((name, part),) = q._parts.items()
    codes, scales, amax, decode_scale, hadamard = part
    number, groups, shape = decode_scale if amax is None else amax, q._groups, q._shape
    arrays = (codes, scales) if number is None else (codes, scales, number)
    if hadamard is not None or (amax is not None and decode_scale is not None) or any(type(array) not in PLAIN for array in arrays):
        return False
    if groups is None:
        ends, cover_rows, alignment = None, False, (1, 0)
    elif groups.host_ends is None and type(groups.ends) in PLAIN:
        ends, cover_rows, alignment = groups.ends, groups.cover_rows, groups.alignment
    else:
        return False
    kind = 0 if number is None else 1 if amax is not None else 2
    text = _word(q._spec, name, len(shape), transposed, kind, cover_rows, alignment) + " ".join(map(str, shape))
    watched = arrays[1:] if scales.dtype is torch.float32 or number is not None else ()
    return codes, scales, number, text, FORMAT_OF_DTYPE[q.dtype], ends, cover_rows, watched


def _operand(x: Any, graded: bool) -> Optional[_Operand]:
    """graded: whether a gradient may be wanted, for which there are other ways."""
    kind = type(x)
    if kind is QTensor or kind is Transposed:
        transposed = kind is Transposed
        q = x.base if transposed else x
        known = q._eager
        if known is None:
            known = q._eager = [None, None]
        found = known[transposed]
        if found is None:
            found = known[transposed] = _described(q, transposed)
        if found is False or (graded and found[7] and any(tensor.requires_grad for tensor in found[7])):
            return None
        return found  # type: ignore[no-any-return]
    if kind not in PLAIN or (graded and x.requires_grad):
        return None
    return x, None, None, " 0", None, None, False, ()


@functools.lru_cache(maxsize=256)
def _head(dtype: int, has_ends: bool, cover_rows: bool, has_bias: bool, exact: bool, invariant: bool, sm_count: int, alpha: float) -> str:
    return f"{head_word(dtype, has_ends, cover_rows, has_bias, exact, invariant, sm_count)} {alpha!r}"


# ---- Calls -------------------------------------------------------------------------------------------------------------


class _Recipe:
    """What calls of quantize with the same options have in common."""

    __slots__ = ("spec", "names", "word", "amaxes")

    def __init__(self, format: str, parts: Any, scaling: Optional[str], swizzled: bool, scope: str, scale_rounding: Optional[str], dims: int):
        self.spec, self.names = checked_spec(format, scaling, swizzled, scope, 448), parts_of(parts)
        rounding = 0 if scale_rounding is None else value_of("mxq_scale_rounding", scale_rounding, "scale_rounding")
        self.word = spec_word(self.spec, sum(PARTS[name] for name in self.names), dims, scale_rounding=rounding)
        self.amaxes = self.spec.format == "nvfp4"


_recipe = functools.lru_cache(maxsize=256)(_Recipe)
_new_tuple: Any = tuple.__new__  # makes a Part of five fields in less time than its own constructor


def quantize(x: Tensor, *options: Any) -> Optional[QTensor]:
    """The tensor x quantized, which has no groups and wants no gradient. options: those of a recipe but for the last."""
    if _torch_native.ops is None or type(x) not in PLAIN:
        return None
    device = (CUDA, x.get_device()) if x.is_cuda else HOST if x.is_cpu else None
    if device is None:
        return None
    shape = tuple(x.shape)
    try:
        recipe = _recipe(*options, len(shape))
        names = recipe.names
        if len(names) > 1:
            made = _torch_native.quantize_all(x, recipe.word, None)
            each = len(made) // len(names)
            parts = {name: _new_tuple(Part, (*made[each * i : each * (i + 1)], *[None] * (5 - each))) for i, name in enumerate(names)}
        elif recipe.amaxes:
            made = _quantize_part_with_amaxes(x, recipe.word)
            parts = {names[0]: _new_tuple(Part, made + (None, None))}
        else:
            made = _quantize_part(x, recipe.word)
            parts = {names[0]: _new_tuple(Part, made + (None, None, None))}
    except _REFUSED:
        return None
    return QTensor(recipe.spec, shape, None, parts, _kind_torch._NAMES[x.dtype], device, _kind_torch, None, made)


def dequantize(q: Any, dtype: Any, part: Optional[str]) -> Optional[Tensor]:
    if _torch_native.ops is None or type(q) is not QTensor or not quiet():
        return None
    found = _operand(q, torch.is_grad_enabled())
    if found is None or (part is not None and part not in q._parts):
        return None
    codes, scales, number, text, own, ends, cover_rows, _ = found
    format = own if dtype is None else DTYPES.get(dtype)
    if format is None:
        return None
    call = str(head_word(format, ends is not None, cover_rows)) + text if ends is not None else str(format) + text
    try:
        return _dequantize_part(codes, scales, call, number, ends)  # type: ignore[no-any-return]
    except _REFUSED:
        return None


def product(a: Any, b: Any, groups: Any, grouped: bool, dtype: Any, bias: Optional[Tensor], exact: bool, invariant: bool, sm_count: int,
            alpha: float) -> Optional[Tensor]:
    """groups: of the rows of a plain a, as Groups or as ends that need not cover all rows."""
    if _torch_native.ops is None or not quiet():
        return None
    graded = torch.is_grad_enabled()
    left = _operand(a, graded)
    right = None if left is None else _operand(b, graded)
    if left is None or right is None:
        return None
    ends, cover_rows, format = left[5], left[6], left[4]
    if format is None:  # a is plain
        format = DTYPES.get(a.dtype)
        if a.dim() != 2 or (grouped and not a.is_contiguous()):
            return None
    elif len(a.shape) != 2 or (grouped and type(a) is Transposed):
        return None
    if groups is not None:
        groups = groups if isinstance(groups, Groups) else Groups(groups)
        if left[1] is not None or type(groups.ends) not in PLAIN or groups.host_ends is not None or groups.alignment != (1, 0):
            return None
        ends, cover_rows = groups.ends, groups.cover_rows
    if dtype is not None:
        format = DTYPES.get(dtype)
    if format is None or grouped is (ends is None) or not 0 <= sm_count < 1 << 16:
        return None
    if bias is not None and (type(bias) not in PLAIN or (graded and bias.requires_grad)):
        return None
    try:
        call = _head(format, grouped, cover_rows, bias is not None, exact, invariant, sm_count, alpha) + left[3] + right[3]
        if bias is None and not grouped and left[2] is None and right[2] is None:
            return _product(left[0], left[1], right[0], right[1], call)  # type: ignore[no-any-return]
        return _product_with(left[0], left[1], right[0], right[1], call, bias, ends, left[2], right[2])  # type: ignore[no-any-return]
    except _REFUSED:
        return None


# ---- Shapes of the results, where torch looks at one of these operators by itself ----------------------------------------


def _fake_quantize(x: Tensor, word: int) -> Tuple[Tensor, ...]:
    spec, parts, _ = spec_of(word)
    return tuple(fake_parts(x, spec, parts, None))


def _fake_dequantize(codes: Tensor, scales: Tensor, call: str, number: Optional[Tensor] = None, ends: Optional[Tensor] = None) -> Tensor:
    words = [int(text) for text in call.split()]
    return codes.new_empty(seen_operand([codes], words, 1, 0)[0], dtype=DTYPE_OF[words[0] & 3])


def _fake_product(a: Tensor, a_scales: Optional[Tensor], b: Tensor, b_scales: Optional[Tensor], call: str, bias: Optional[Tensor] = None,
                  ends: Optional[Tensor] = None, a_number: Optional[Tensor] = None, b_number: Optional[Tensor] = None) -> Tensor:
    head, _, *texts = call.split()
    words: List[int] = [int(text) for text in texts]
    left, at, _ = seen_operand([a], words, 0, 0)
    right, _, _ = seen_operand([b], words, at, 0)
    return a.new_empty((left[-2], right[-1]), dtype=DTYPE_OF[int(head) & 3])


if _torch_native.ops is not None:
    library.register_fake("mxq_native::quantize_part", _fake_quantize)
    library.register_fake("mxq_native::quantize_part_with_amaxes", _fake_quantize)
    library.register_fake("mxq_native::dequantize_part", _fake_dequantize)
    library.register_fake("mxq_native::product", _fake_product)
    library.register_fake("mxq_native::product_with", _fake_product)
