"""What the library needs to know of an array, whichever library it is of.

A *kind* is numpy, torch or any library with DLPack. It views arrays as memory, and makes new ones.
"""
import sys
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from ._library import Error
from ._memory import Device, Memory, compact, count, same_device
from ._names import FORMAT_OF_DTYPE, ITEM_BYTES

class Plain(NamedTuple):
    """A plain tensor as the library takes it.

    transposed: the array is the transpose of this tensor.
    experts: the address of each, where they are arrays of their own; `memory` is that of the first.
    """

    memory: Memory
    format: int
    shape: Tuple[int, ...]
    row_stride: int
    bytes: int
    transposed: bool = False
    experts: Optional[Memory] = None

    @property
    def seen(self) -> Tuple[int, ...]:
        """The shape of what was given: (rows, cols), with experts in front."""
        return _swapped(self.shape) if self.transposed else self.shape


_kinds: Dict[type, Any] = {}  # by the type of an array


def kind_of(array: Any, what: str = "the array") -> Any:
    """The kind of an array; refuses what is no array."""
    kind = _kinds.get(type(array))
    if kind is None:
        kind = _kinds[type(array)] = _find_kind(array, what)
    return kind


def _find_kind(array: Any, what: str) -> Any:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(array, torch.Tensor):
        return kind_named("torch")
    if numpy is not None and isinstance(array, numpy.ndarray):
        return kind_named("numpy")
    if hasattr(array, "__dlpack__"):
        return kind_named("dlpack")
    raise Error(f"{what} is a {type(array).__name__}, expected a numpy array, a torch tensor or another object with __dlpack__")


def kind_named(name: str) -> Any:
    """A kind by its name. Each imports a library that need not be installed, so it is imported when it is first needed."""
    if name == "torch":
        from . import _kind_torch

        return _kind_torch
    if name == "numpy":
        from . import _kind_numpy

        return _kind_numpy
    from . import _kind_dlpack

    return _kind_dlpack


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


def plain(array: Any, what: str, operand: str = "") -> Plain:
    """Views an array of numbers as a plain tensor, or says what it has that would be read wrongly.

    operand: "a" or "b" where a transposed view is welcome. Where a matrix can be read either way, it is read as the product can
    take it: A as it is, B as the transpose of a row-major matrix.
    """
    memory = kind_of(array, what).memory(array, what)
    shape, strides = memory.shape, memory.strides
    format = FORMAT_OF_DTYPE.get(memory.dtype)
    if format is None:
        raise Error(f"{what} has dtype {memory.dtype}, expected float32, float16 or bfloat16; convert it to one of them")
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


def plain_list(arrays: Sequence[Any], what: str, operand: str = "") -> Plain:
    """Views a list of matrices, one for each expert, as a plain tensor of 3 dimensions whose experts have addresses of their own."""
    if not arrays:
        raise Error(f"{what} is an empty list, expected an array for each expert")
    views = [plain(array, f"{what}[{i}]", operand) for i, array in enumerate(arrays)]
    first = views[0]
    for i, view in enumerate(views):
        if len(view.shape) != 2:
            raise Error(f"{what}[{i}] has shape {view.shape}, expected 2 dimensions: one expert of a list")
        same_device(view.memory, first.memory.device, f"{what}[{i}]")
        same_steps = (view.row_stride, view.transposed) == (first.row_stride, first.transposed)
        for name, got, want in (("shape", view.seen, first.seen), ("dtype", view.memory.dtype, first.memory.dtype),
                                ("strides", view.memory.strides, first.memory.strides)):
            if got != want and not (name == "strides" and same_steps):
                raise Error(f"{what}[{i}] has {name} {got}, expected {want}, as {what}[0] has; make contiguous copies")
    experts = None
    if first.bytes:
        experts = addresses_on([view.memory.address for view in views], kind_of(arrays[0]), first.memory.device)
    memory = first.memory._replace(owner=[view.memory.owner for view in views])
    return first._replace(memory=memory, shape=(len(views), *first.shape), experts=experts)


def addresses_on(addresses: Sequence[int], kind: Any, device: Device) -> Memory:
    """An array of addresses in memory of the device."""
    made: Memory = kind.memory(kind.make(addresses, "uint64", device), "addresses")
    return made


def dense(array: Any, what: str) -> Memory:
    """Views an array without gaps: codes, scales, ends, an amax."""
    memory: Memory = kind_of(array, what).memory(array, what)
    if not memory.gapless:
        raise Error(f"{what} has strides of {memory.strides} elements, expected {compact(memory.shape)}; make a contiguous copy")
    return memory


def memory_keys(arrays: Iterable[Any]) -> List[Any]:
    """What changes when the memory of an array moves: addresses, shapes and strides, in lists for lists of arrays."""
    return [memory_keys(array) if isinstance(array, (list, tuple)) else kind_of(array).key(array) for array in arrays]
