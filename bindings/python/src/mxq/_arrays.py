"""What the library needs to know of an array, whichever library it is of.

A *kind* is numpy, torch or any library with DLPack. It views arrays as memory, and makes new ones.
"""
import functools
import sys
from typing import Any, Dict, NamedTuple, Optional, Tuple

from ._library import Error
from ._names import FORMAT_OF_DTYPE, ITEM_BYTES

CPU, CUDA = 1, 2  # MXQ_DEVICE_*, which are DLPack's

Device = Tuple[int, int]  # type and ordinal
HOST: Device = (CPU, 0)


class Memory(NamedTuple):
    """Where the elements of an array are. Strides count elements; gapless: they are those of a row-major array without gaps.
    `owner` keeps the memory alive."""

    owner: Any
    address: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    dtype: str
    device: Device
    read_only: bool
    gapless: bool


class Plain(NamedTuple):
    """A plain tensor as the library takes it. Transposed: the array is the transpose of this tensor."""

    memory: Memory
    format: int
    shape: Tuple[int, ...]
    row_stride: int
    bytes: int
    transposed: bool = False


_kinds: Dict[type, Any] = {}  # by the type of an array


def kind_of(array: Any) -> Any:
    """The kind of an array; refuses what is no array."""
    kind = _kinds.get(type(array))
    if kind is None:
        kind = _kinds[type(array)] = _find_kind(array)
    return kind


def _find_kind(array: Any) -> Any:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(array, torch.Tensor):
        from . import _kind_torch

        return _kind_torch
    if numpy is not None and isinstance(array, numpy.ndarray):
        from . import _kind_numpy

        return _kind_numpy
    if hasattr(array, "__dlpack__"):
        from . import _kind_dlpack

        return _kind_dlpack
    raise Error(f"expected a numpy array, a torch tensor or an object with __dlpack__, got {type(array).__name__}")


@functools.lru_cache(maxsize=256)
def compact(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """The strides of a row-major array without gaps."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_gapless(shape: Tuple[int, ...], strides: Tuple[int, ...]) -> bool:
    return 0 in shape or all(size == 1 or got == want for size, got, want in zip(shape, strides, compact(shape)))


def _row_stride(shape: Tuple[int, ...], strides: Tuple[int, ...]) -> Optional[int]:
    """Elements from one row to the next, or None where no row stride describes the strides."""
    rows, cols = shape[-2], shape[-1]
    experts = shape[0] if len(shape) == 3 else 1
    if rows == 0 or cols == 0 or experts == 0:
        return cols
    if cols > 1 and strides[-1] != 1:
        return None
    stride = strides[-2] if rows > 1 else strides[0] if experts > 1 else cols
    if stride < cols or (experts > 1 and strides[0] != rows * stride):
        return None
    return stride


def _swapped(values: Tuple[int, ...]) -> Tuple[int, ...]:
    return values[:-2] + (values[-1], values[-2])


def plain(array: Any, what: str, operand: str = "", stored: Optional[Tuple[int, ...]] = None) -> Plain:
    """Views an array of numbers as a plain tensor, or says what it has that would be read wrongly.

    operand: "a" or "b" where a transposed view is welcome. Where a matrix can be read either way, it is read as the product can
    take it: A as it is, B as the transpose of a row-major matrix.
    """
    memory = kind_of(array).memory(array, what)
    shape, strides = memory.shape, memory.strides
    format = FORMAT_OF_DTYPE.get(memory.dtype)
    if format is None:
        raise Error(f"{what} has dtype {memory.dtype}, expected float32, float16 or bfloat16; convert it first")
    if len(shape) not in (2, 3):
        raise Error(f"{what} has shape {shape}, expected 2 dimensions (rows, cols) or 3 (experts, rows, cols); reshape it")
    if memory.gapless and operand != "b":
        return Plain(memory, format, shape, shape[-1], count(shape) * ITEM_BYTES[memory.dtype])
    orders = {"": (False,), "a": (False, True), "b": (True, False)}[operand]
    for transposed in orders:
        seen, steps = (_swapped(shape), _swapped(strides)) if transposed else (shape, strides)
        stride = _row_stride(seen, steps)
        if stride is not None:
            lines = (seen[0] if len(seen) == 3 else 1) * seen[-2]
            elements = (lines - 1) * stride + seen[-1] if lines and seen[-1] else 0
            return Plain(memory, format, seen, stride, elements * ITEM_BYTES[memory.dtype], transposed)
    raise Error(
        f"{what} has shape {shape} and strides of {strides} elements, expected row-major: neighbours of a row side by side, "
        f"rows one after another{', experts without gaps' if len(shape) == 3 else ''}; make a contiguous copy"
    )


def dense(array: Any, what: str) -> Memory:
    """Views an array without gaps: codes, scales, ends, an amax."""
    memory = kind_of(array).memory(array, what)
    if not memory.gapless:
        raise Error(f"{what} has strides of {memory.strides} elements, expected {compact(memory.shape)}; make a contiguous copy")
    return memory


def same_device(memory: Memory, device: Device, what: str) -> None:
    if memory.device != device:
        raise Error(f"{what} is on device {memory.device}, expected {device}, where the tensor is (type and ordinal of DLPack)")


def count(shape: Tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product
