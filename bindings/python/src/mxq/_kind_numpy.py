"""numpy arrays, with the dtypes of ml_dtypes where it is installed."""
import ctypes
from typing import Any, Tuple

import numpy

from ._library import Error
from ._memory import HOST, Device, Memory, compact

name = "numpy"
_DTYPES = {text: numpy.dtype(text) for text in ("float32", "float16", "uint8", "int32", "int64", "uint64")}
_NAMES = {dtype: text for text, dtype in _DTYPES.items()}
_address_of, _from_buffer = ctypes.addressof, ctypes.c_char.from_buffer


def memory(array: Any, what: str) -> Memory:
    dtype = array.dtype
    text = _NAMES.get(dtype)
    if text is None:
        if not dtype.isnative:
            raise Error(f"{what} has dtype {dtype.str}, bytes in foreign order; convert it with astype({dtype.name!r})")
        if dtype.hasobject or dtype.fields or dtype.subdtype:
            raise Error(f"{what} has dtype {dtype}, expected numbers")
        text = dtype.name
    if isinstance(array, numpy.ma.MaskedArray):
        raise Error(f"{what} is a masked array, whose mask would be lost; fill it first")
    shape = array.shape
    try:
        return Memory(array, _address_of(_from_buffer(array)), shape, compact(shape), text, HOST, False, True)
    except (BufferError, TypeError, ValueError):  # not contiguous, read-only, or empty
        address, read_only = array.__array_interface__["data"]
    if array.flags.c_contiguous:
        return Memory(array, address, shape, compact(shape), text, HOST, read_only, True)
    item = dtype.itemsize
    if any(stride % item for stride in array.strides):
        raise Error(f"{what} has strides of {array.strides} bytes, no multiples of its elements; make a contiguous copy")
    return Memory(array, address, shape, tuple([stride // item for stride in array.strides]), text, HOST, read_only, False)


def address(array: Any) -> int:
    """The address of an array that this kind made, which is not empty: faster than what memory does for any array."""
    return _address_of(_from_buffer(array))


def dtype(text: str) -> Any:
    """The numpy dtype of a name; those that numpy lacks are ml_dtypes'."""
    known = _DTYPES.get(text)
    if known is not None:
        return known
    try:
        import ml_dtypes
    except ImportError:
        raise Error(f"numpy has no {text}; install ml_dtypes, or ask for float32") from None
    return numpy.dtype(getattr(ml_dtypes, text))


def key(array: Any) -> Tuple[Any, ...]:
    """What changes when the memory of any array moves: its address, shape and strides."""
    try:
        return _address_of(_from_buffer(array)), array.shape, array.strides
    except (BufferError, TypeError, ValueError):  # as in memory
        return array.__array_interface__["data"][0], array.shape, array.strides


def copy(array: Any) -> Any:
    return array.copy()


def to(array: Any, device: Any) -> Any:
    if str(device) != "cpu":
        raise Error(f"device is {device!r}, expected 'cpu' for numpy arrays; make a tensor of torch tensors to move it to a GPU")
    return array


def empty(shape: Tuple[int, ...], text: str, device: Device) -> Any:
    return numpy.empty(shape, dtype(text))


def zeros(shape: Tuple[int, ...], text: str, device: Device) -> Any:
    return numpy.zeros(shape, dtype(text))


def make(values: Any, text: str, device: Device) -> Any:
    return numpy.array(values, dtype(text))


def give(array: Any, like: Any) -> Any:
    """Hands an array that this kind made to the caller."""
    return array


def view(array: Any, text: str) -> Any:
    """The same bytes as another dtype of one byte; as they are where numpy has none."""
    if text == "float4_e2m1fn_x2":  # ml_dtypes has one code a byte
        return array
    return array.view(dtype(text))


def stream(device: Device) -> None:
    return None


def as_float64(array: Any) -> Any:
    return array.astype(numpy.float64)
