"""The operators of torch in C++, torch.ops.mxq_native, where the library that has them can be loaded.

They take the common calls in less time: operands of plain memory without gradients. All others are calls of the operators in Python,
which also repeat what these refuse, so that an error is the same. MXQ_TORCH_OPERATORS=python leaves these out.

_operands.py says how an operand is written.
"""
import ctypes
import functools
import os
from pathlib import Path
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, library

from . import _context
from ._descriptors import Spec
from ._groups import Groups
from ._library import Error
from ._names import FORMAT_OF_DTYPE
from ._operands import ROUNDINGS, head_word, quantized_operand, seen_operand, spec_of, spec_word
from ._qtensor import QTensor, Transposed

_OLDEST = (2, 10)  # the first whose stable interface has lists and texts
_DTYPES = {getattr(torch, name): format for name, format in FORMAT_OF_DTYPE.items()}
_DTYPE_OF = {format: dtype for dtype, format in _DTYPES.items()}

Operand = Tuple[List[Tensor], List[int]]


def _load() -> Tuple[Any, str]:
    """The operators, or None and why."""
    if os.environ.get("MXQ_TORCH_OPERATORS") == "python":
        return None, "MXQ_TORCH_OPERATORS is python"
    path = os.environ.get("MXQ_TORCH_LIBRARY") or str(Path(__file__).with_name("libmxq_torch.so"))
    if not os.path.exists(path):
        return None, f"{path} is not there"
    version = torch.__version__
    if tuple(int(number) for number in version.split("+")[0].split(".")[:2]) < _OLDEST:
        return None, f"torch {version} is older than {'.'.join(map(str, _OLDEST))}"
    try:
        torch.ops.load_library(path)
    except OSError as error:
        return None, str(error)
    _follow_contexts(ctypes.CDLL(path))
    return torch.ops.mxq_native, ""


def _follow_contexts(opened: Any) -> None:
    """Tells the operators of the contexts of `with` blocks, also of those around the import."""
    opened.mxq_torch_enter.argtypes, opened.mxq_torch_exit.argtypes = [ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p], [ctypes.c_void_p]
    opened.mxq_torch_enter.restype = opened.mxq_torch_exit.restype = None
    _context.followers.append((opened.mxq_torch_enter, opened.mxq_torch_exit))
    around = _context.entered_contexts()
    for context in around:
        opened.mxq_torch_enter(*context._device, context.address)


class _Raises:
    """A call of an operator that turns its refusals into mxq.Error, as those of the operators in Python are."""

    def __init__(self, call: Any):
        self._call = call

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        try:
            return self._call(*arguments, **named)
        except RuntimeError as error:
            code, _, message = str(error).partition(": ")
            if type(error) is not RuntimeError or not code.startswith("MXQ_STATUS_"):
                raise
        raise Error(message, code[len("MXQ_STATUS_"):])


ops, missing = _load()
if ops is not None:
    for name in ("quantize", "dequantize", "matmul", "grouped_matmul"):
        overload = getattr(ops, name).default
        overload._op = _Raises(overload._op)
    _quantize, _dequantize = ops.quantize.default, ops.dequantize.default
    _matmul, _grouped_matmul = ops.matmul.default, ops.grouped_matmul.default


# ---- Operands ----------------------------------------------------------------------------------------------------------


def _quantized(q: QTensor, transposed: bool, part: Optional[str] = None) -> Optional[Operand]:
    """A quantized tensor. part: the only one that is read."""
    parts, groups = q._parts if part is None else {name: each for name, each in q._parts.items() if name == part}, q._groups
    if groups is not None and (groups.host_ends is not None or not isinstance(groups.ends, Tensor)):
        return None
    found = quantized_operand(q._spec, q._shape, parts, groups, transposed)
    return found if found is not None and all(isinstance(tensor, Tensor) for tensor in found[0]) else None


def operand(x: Any) -> Optional[Operand]:
    """The tensors and the words of an operand; None for one that only the operators in Python take."""
    if isinstance(x, Tensor):
        return [x], [0]
    if isinstance(x, Transposed):
        return _remembered(x.base, True)
    return _remembered(x, False) if isinstance(x, QTensor) else None


def _remembered(q: QTensor, transposed: bool) -> Optional[Operand]:
    """As _quantized, which is asked once for each tensor: what a tensor is does not change, and its arrays stay the same objects."""
    if torch.compiler.is_compiling():
        return _quantized(q, transposed)
    known = q._native
    if known is None:
        q._native = known = (_quantized(q, False), _quantized(q, True))
    return known[transposed]  # type: ignore[no-any-return]


# ---- Calls -------------------------------------------------------------------------------------------------------------
#
# Each gives None where the operators in Python have to make the call.


@functools.lru_cache(maxsize=256)
def _remembered_word(spec: Spec, parts: int, dims: int, scale_rounding: int) -> int:
    return spec_word(spec, parts, dims, scale_rounding=scale_rounding)


def quantize(x: Tensor, spec: Spec, parts: int, scale_rounding: Optional[str], groups: Optional[Groups]) -> Optional[List[Tensor]]:
    """parts: their bits. groups: with ends that are a tensor."""
    rounding = 0 if scale_rounding is None else ROUNDINGS.get(scale_rounding)
    if ops is None or rounding is None or (groups is not None and groups.host_ends is not None):
        return None
    if groups is not None:
        word = spec_word(spec, parts, 2, cover_rows=groups.cover_rows, alignment=groups.alignment, scale_rounding=rounding)
        return _tried(_quantize, x, word, groups.ends)  # type: ignore[no-any-return]
    make = spec_word if torch.compiler.is_compiling() else _remembered_word
    return _tried(_quantize, x, make(spec, parts, x.dim(), scale_rounding=rounding), None)  # type: ignore[no-any-return]


def dequantize(q: QTensor, dtype: torch.dtype, part: str) -> Optional[Tensor]:
    given = None if ops is None or dtype not in _DTYPES or part not in q._parts else _quantized(q, False, part)
    if given is None:
        return None
    tensors, groups = given[0], q._groups
    head = head_word(_DTYPES[dtype], groups is not None, groups is not None and groups.cover_rows)
    return _tried(_dequantize, tensors if groups is None else [*tensors, groups.ends], [head, *given[1]])  # type: ignore[no-any-return]


def product(a: Any, b: Any, groups: Optional[Groups], grouped: bool, dtype: Any, bias: Optional[Tensor], exact: bool, invariant: bool,
            sm_count: int, alpha: float) -> Optional[Tensor]:
    """groups: of the rows of a plain a."""
    left = None if ops is None or dtype not in _DTYPES or not 0 <= sm_count < 1 << 16 else operand(a)
    right = None if left is None else operand(b)
    if left is None or right is None or (grouped and (isinstance(a, Transposed) or (isinstance(a, Tensor) and not a.is_contiguous()))):
        return None
    own = groups if isinstance(a, Tensor) else (a.base if isinstance(a, Transposed) else a)._groups
    if (own is None) == grouped or (own is not None and own.host_ends is not None):
        return None
    head = head_word(_DTYPES[dtype], own is not None, own is not None and own.cover_rows, bias is not None, exact, invariant, sm_count)
    tensors = left[0] + right[0]
    if bias is not None:
        tensors.append(bias)
    if own is not None:
        tensors.append(own.ends)
    made: Optional[Tensor] = _tried(_grouped_matmul if grouped else _matmul, tensors, [head, *left[1], *right[1]], alpha)
    return made


def _tried(operator: Any, *arguments: Any) -> Any:
    """What the operator gives; None for what it refuses, outside of graphs. A call that is refused wrote nothing."""
    if torch.compiler.is_compiling():
        return operator(*arguments)
    try:
        return operator(*arguments)
    except (RuntimeError, TypeError, ValueError):
        return None


# ---- Shapes of the results, for graphs ---------------------------------------------------------------------------------


def _fake_product(tensors: List[Tensor], words: List[Any], alpha: float) -> Tensor:
    left, at, tensor = seen_operand(tensors, words, 1, 0)
    right, _, _ = seen_operand(tensors, words, at, tensor)
    return tensors[0].new_empty((left[-2], right[-1]), dtype=_DTYPE_OF[words[0] & 3])


def _fake_dequantize(tensors: List[Tensor], words: List[Any]) -> Tensor:
    return tensors[0].new_empty(seen_operand(tensors, words, 1, 0)[0], dtype=_DTYPE_OF[words[0] & 3])


def _fake_quantize(x: Tensor, word: int, ends: Optional[Tensor]) -> List[Tensor]:
    from ._torch_ops import fake_parts  # which imports this module

    spec, parts, alignment = spec_of(word)
    return fake_parts(x, spec, parts, None if ends is None else ends.shape[0], alignment)


if ops is not None:
    library.register_fake("mxq_native::quantize", _fake_quantize)
    library.register_fake("mxq_native::dequantize", _fake_dequantize)
    library.register_fake("mxq_native::matmul", _fake_product)
    library.register_fake("mxq_native::grouped_matmul", _fake_product)
