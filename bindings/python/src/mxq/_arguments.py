"""Checks of arguments, one for each kind: integers, numbers, and arrays whose dtype, shape and device are known."""
import numbers
import operator
import sys
from typing import Any, Sequence, Tuple

from ._arrays import dense
from ._library import Error
from ._memory import Device, Memory, count, same_device


def integer(value: Any, what: str, first: int, last: int, remedy: str = "") -> int:
    """An integer of Python or numpy from first to last."""
    try:
        found = operator.index(value)
    except TypeError:
        found = first - 1
    if isinstance(value, bool) or not first <= found <= last:
        raise Error(f"{what} is {value!r}, expected an integer from {first} to {last}{remedy}")
    return found


def is_number(value: Any) -> bool:
    """Whether a value is a real number of Python, numpy or ml_dtypes, and no array."""
    if type(value) in (float, int):
        return True
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return bool(value.dtype.kind in "iufV")  # V: the types of ml_dtypes
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def number(value: Any, what: str) -> float:
    if not is_number(value):
        raise Error(f"{what} is {value!r}, expected a number")
    return float(value)


def array_argument(array: Any, what: str, dtypes: Sequence[str], shape: Tuple[int, ...], device: Device) -> Memory:
    """Views an array argument, or says by name which dtype, shape or device it has instead. One number has any shape."""
    memory = dense(array, what)
    if memory.dtype not in dtypes:
        raise Error(f"{what} has dtype {memory.dtype}, expected {' or '.join(dtypes)}; convert it")
    if memory.shape != shape and not count(memory.shape) == count(shape) == 1:
        raise Error(f"{what} has shape {memory.shape}, expected {shape}")
    same_device(memory, device, what)
    return memory
