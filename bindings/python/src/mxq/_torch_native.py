"""The operators of torch in C++, torch.ops.mxq_native, where the library that has them can be loaded.

They take the common calls in less time: operands of plain memory without gradients. All others are calls of the operators in Python,
which also repeat what these refuse, so that an error is the same. MXQ_TORCH_OPERATORS=python leaves these out.

_operands.py says how an operand is written.
"""
import ctypes
import os
from pathlib import Path
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, library
from torch.autograd import forward_ad

from . import _context
from ._descriptors import Spec
from ._groups import Groups
from ._library import Error
from ._names import FORMAT_OF_DTYPE
from ._operands import (ACTIVATIONS, GATE_LAYOUTS, HAS_BIAS, HAS_DOWN_BIAS, HAS_WEIGHTS, ROUNDINGS, head_word, quantized_operand, seen_operand,
                        spec_of, spec_word)
from ._qtensor import QTensor, Transposed
from ._torch_ops import fake_parts

_OLDEST = (2, 10)  # the first whose stable interface has lists and texts
DTYPES = {getattr(torch, name): format for name, format in FORMAT_OF_DTYPE.items()}
DTYPE_OF = {format: dtype for dtype, format in DTYPES.items()}

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
        torch.ops.load_library(path)  # type: ignore[no-untyped-call,unused-ignore]
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
    for name in ("quantize", "dequantize", "matmul", "grouped_matmul", "expert_layer"):
        overload = getattr(ops, name).default
        overload._op = _Raises(overload._op)
    _quantize, _dequantize = ops.quantize.default, ops.dequantize.default
    _matmul, _grouped_matmul, _expert_layer = ops.matmul.default, ops.grouped_matmul.default, ops.expert_layer.default


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


def quantize_all(x: Tensor, word: int, ends: Optional[Tensor]) -> List[Tensor]:
    made: List[Tensor] = _quantize(x, word, ends)
    return made


def quantize_parts(x: Tensor, spec: Spec, parts: int, scale_rounding: Optional[str], groups: Optional[Groups]) -> Optional[List[Tensor]]:
    """The tensors of the parts of x. parts: their bits. groups: with ends that are a tensor."""
    rounding = 0 if scale_rounding is None else ROUNDINGS.get(scale_rounding)
    if ops is None or rounding is None or (groups is not None and groups.host_ends is not None):
        return None
    if groups is None:
        word = spec_word(spec, parts, x.dim(), scale_rounding=rounding)
        return _tried(_quantize, x, word, None)  # type: ignore[no-any-return]
    word = spec_word(spec, parts, 2, cover_rows=groups.cover_rows, alignment=groups.alignment, scale_rounding=rounding)
    return _tried(_quantize, x, word, groups.ends)  # type: ignore[no-any-return]


def _format(dtype: Any, like: Any) -> Optional[int]:
    """The number of the type of a result; None for one that is not plain."""
    if dtype is None:
        return DTYPES.get(like.dtype) if isinstance(like, Tensor) else FORMAT_OF_DTYPE[(like.base if isinstance(like, Transposed) else like).dtype]
    return DTYPES.get(dtype) if isinstance(dtype, torch.dtype) else None


def dequantize(q: Any, dtype: Any, part: Optional[str]) -> Optional[Tensor]:
    if ops is None or not isinstance(q, QTensor):
        return None
    only = part or ("rowwise" if "rowwise" in q._parts else "columnwise")
    given = operand(q) if len(q._parts) == 1 and only in q._parts else _quantized(q, False, only) if only in q._parts else None
    format, groups = _format(dtype, q), q._groups
    if given is None or format is None:
        return None
    tensors = given[0] if groups is None else [*given[0], groups.ends]
    head = head_word(format, groups is not None, groups is not None and groups.cover_rows)
    made: Optional[Tensor] = _called(_dequantize, tensors, [head, *given[1]])
    return made


def product(a: Any, b: Any, groups: Optional[Groups], grouped: bool, dtype: Any, bias: Optional[Tensor], exact: bool, invariant: bool,
            sm_count: int, alpha: float) -> Optional[Tensor]:
    """groups: of the rows of a plain a. Its rows are in two dimensions."""
    fits = ops is not None and 0 <= sm_count < 1 << 16 and (bias is None or isinstance(bias, Tensor))
    left = operand(a) if fits else None
    right, format = (None, None) if left is None else (operand(b), _format(dtype, a))
    if left is None or right is None or format is None:
        return None
    if isinstance(a, Tensor):
        own = groups
        if a.dim() != 2 or (grouped and not a.is_contiguous()):
            return None
    else:
        own = a.base._groups if isinstance(a, Transposed) else a._groups
        if len(a.shape) != 2 or (grouped and isinstance(a, Transposed)):
            return None
    tensors = left[0] + right[0]
    if bias is not None:
        tensors.append(bias)
    if own is None:
        head = head_word(format, False, False, bias is not None, exact, invariant, sm_count)
    else:
        if own.host_ends is not None:
            return None
        head = head_word(format, True, own.cover_rows, bias is not None, exact, invariant, sm_count)
        tensors.append(own.ends)
    if (own is None) == grouped:
        return None
    made: Optional[Tensor] = _called(_grouped_matmul if grouped else _matmul, tensors, [head, *left[1], *right[1]], alpha)
    return made


def grouped_product(a: Any, b: Any, groups: Any, *options: Any) -> Optional[Tensor]:
    """The product of groups of rows: those of a quantized a, or those that are given with a plain one."""
    if isinstance(groups, Tensor):
        groups = Groups(groups)
    if groups is not None and (not isinstance(groups, Groups) or not isinstance(groups.ends, Tensor) or groups.alignment != (1, 0)):
        return None
    return product(a, b, groups, True, *options) if (groups is not None) == isinstance(a, Tensor) else None


def expert_layer(x: Tensor, ids: Tensor, weights: Optional[Tensor], gate_up: Any, down: Any, gate_up_bias: Optional[Tensor],
                 down_bias: Optional[Tensor], rows: Optional[Spec], scale_rounding: Optional[str], activation: str,
                 gate_layout: Optional[str], clamp: Any) -> Optional[Tensor]:
    """rows: how rows are quantized before each product, or None for rows as they are."""
    first, second = (None, None) if ops is None else (operand(gate_up), operand(down))
    if first is None or second is None or activation not in ACTIVATIONS or (gate_layout or "gate_up") not in GATE_LAYOUTS:
        return None
    if scale_rounding is not None and scale_rounding not in ROUNDINGS:
        return None
    rounding = 0 if scale_rounding is None else ROUNDINGS[scale_rounding]
    word = 0 if rows is None else spec_word(rows, 1, 2, scale_rounding=rounding)
    given = ((HAS_WEIGHTS, weights), (HAS_BIAS, gate_up_bias), (HAS_DOWN_BIAS, down_bias))
    words = [sum([flag for flag, tensor in given if tensor is not None]), ACTIVATIONS[activation],
             0 if gate_layout is None else GATE_LAYOUTS[gate_layout], word, gate_up.shape[0], *first[1], *second[1]]
    tensors = [x, ids, *first[0], *second[0], *[tensor for _, tensor in given if tensor is not None]]
    made: Optional[Tensor] = _called(_expert_layer, tensors, words, [] if clamp is None else [float(number) for number in clamp])
    return made


def _called(operator: Any, tensors: List[Tensor], *arguments: Any) -> Any:
    """What the operator gives, in a graph or directly; None where a gradient is wanted, and for what the operator refuses outside of
    graphs. A call that is refused wrote nothing."""
    if torch.compiler.is_compiling():
        wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        return None if wanted else operator(tensors, *arguments)
    return _tried(operator, tensors, *arguments) if direct(*tensors) else None


# ---- Whether a call needs no operator in Python ---------------------------------------------------------------------------

modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)  # of a torch that cannot tell, each call is an operator
PLAIN = (Tensor, torch.nn.Parameter)


def direct(*tensors: Any) -> bool:
    """Whether a call needs no operator: torch neither traces nor looks, all tensors have memory, and no gradient is wanted. The
    verbs themselves then take a tenth of the time."""
    if torch.compiler.is_compiling() or modes() or torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return False
    wanted = torch.is_grad_enabled()
    for x in tensors:
        if x is not None and (type(x) not in PLAIN or (wanted and x.requires_grad)):
            return False
    return True


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
    return tensors[0].new_empty((left[-2], right[-1]), dtype=DTYPE_OF[words[0] & 3])


def _fake_expert_layer(tensors: List[Tensor], words: List[Any], clamp: List[float]) -> Tensor:
    return torch.empty_like(tensors[0], memory_format=torch.contiguous_format)


def _fake_dequantize(tensors: List[Tensor], words: List[Any]) -> Tensor:
    return tensors[0].new_empty(seen_operand(tensors, words, 1, 0)[0], dtype=DTYPE_OF[words[0] & 3])


def _fake_quantize(x: Tensor, word: int, ends: Optional[Tensor]) -> List[Tensor]:
    spec, parts, alignment = spec_of(word)
    return fake_parts(x, spec, parts, None if ends is None else ends.shape[0], alignment)


if ops is not None:
    library.register_fake("mxq_native::quantize", _fake_quantize)
    library.register_fake("mxq_native::dequantize", _fake_dequantize)
    library.register_fake("mxq_native::matmul", _fake_product)
    library.register_fake("mxq_native::grouped_matmul", _fake_product)
    library.register_fake("mxq_native::expert_layer", _fake_expert_layer)
