"""Arrays of any library with DLPack, such as jax and CuPy.

What mxq writes is made by numpy in host memory and by torch on CUDA devices, and handed over through DLPack as well, so that
streams wait for one another as DLPack says.
"""
import ctypes
import sys
from typing import Any, Tuple

import numpy

from . import _kind_numpy
from ._arrays import CUDA, HOST, Device, Memory, compact, is_gapless
from ._library import Error

name = "dlpack"


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

# DLDataTypeCode and bits
_NAMES = {
    (2, 64): "float64", (2, 32): "float32", (2, 16): "float16", (4, 16): "bfloat16", (0, 32): "int32", (0, 64): "int64",
    (1, 64): "uint64", (1, 8): "uint8", (0, 8): "int8", (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2",
    (14, 8): "float8_e8m0fnu", (5, 64): "complex64", (5, 128): "complex128", (6, 8): "bool",
}
_HOST_TYPES = (1, 3)  # kDLCPU, kDLCUDAHost


def _torch_kind(what: str) -> Any:
    try:
        from . import _kind_torch
    except ImportError:
        raise Error(f"{what} is in CUDA memory, where mxq makes its results with torch; pip install torch") from None
    return _kind_torch


def _maker(device: Device) -> Any:
    """The kind that makes arrays on a device."""
    return _torch_kind("the array") if device[0] == CUDA else _kind_numpy


def memory(array: Any, what: str) -> Memory:
    device_type, ordinal = (int(number) for number in array.__dlpack_device__())
    if device_type == CUDA:
        kind = _torch_kind(what)
        # torch asks the other library to make torch's stream wait for what writes the array.
        found: Memory = kind.memory(kind.torch.from_dlpack(array), what)
        return found
    if device_type not in _HOST_TYPES:
        raise Error(f"{what} is a {type(array).__module__.split('.')[0]} array on DLPack device ({device_type}, {ordinal}), "
                    f"expected host or CUDA memory")
    capsule = array.__dlpack__()
    tensor = ctypes.cast(_pointer_of(capsule, b"dltensor"), ctypes.POINTER(_DLTensor)).contents
    if tensor.lanes != 1:
        raise Error(f"{what} has vectors of {tensor.lanes} lanes as elements; view them as one more dimension")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else compact(shape)
    text = _NAMES.get((tensor.code, tensor.bits), f"of DLPack code {tensor.code} with {tensor.bits} bits")
    # The capsule calls the producer's deleter when it goes.
    return Memory((array, capsule), (tensor.data or 0) + tensor.byte_offset, shape, strides, text, HOST, False,
                  is_gapless(shape, strides))


def empty(shape: Tuple[int, ...], text: str, device: Device) -> Any:
    return _maker(device).empty(shape, text, device)


def zeros(shape: Tuple[int, ...], text: str, device: Device) -> Any:
    return _maker(device).zeros(shape, text, device)


def make(values: Any, text: str, device: Device) -> Any:
    return _maker(device).make(values, text, device)


def address(array: Any) -> int:
    found: int = array.data_ptr() if hasattr(array, "data_ptr") else _kind_numpy.address(array)
    return found


def stream(device: Device) -> Any:
    return _maker(device).stream(device)


def sqnr(signal: Any, noisy: Any) -> float:
    from ._verbs import convert

    signal = convert(signal, "float32")  # numpy's from_dlpack takes no bfloat16
    if signal.__dlpack_device__()[0] == CUDA:
        kind = _torch_kind("x")
        return float(kind.sqnr(*(kind.torch.from_dlpack(array) for array in (signal, noisy))))
    return _kind_numpy.sqnr(*(numpy.asarray(numpy.from_dlpack(array)) for array in (signal, noisy)))


def give(array: Any, like: Any) -> Any:
    """Hands an array that this kind made to the caller, through the from_dlpack of the library that `like` is of."""
    namespace = like.__array_namespace__() if hasattr(like, "__array_namespace__") else None
    if namespace is None:
        namespace = sys.modules.get(type(like).__module__.split(".")[0])
    convert = getattr(namespace, "from_dlpack", None)
    if convert is None:
        return array
    if not isinstance(array, numpy.ndarray) or array.dtype.name != "bfloat16":
        return convert(array)
    return convert(array.view("uint16")).view(getattr(namespace, "bfloat16"))  # numpy exports no type of ml_dtypes


def view(array: Any, text: str) -> Any:
    return array
