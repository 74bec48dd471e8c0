"""Arrays in host memory of any library with DLPack, such as jax. What the library writes is made by numpy and handed over
through DLPack as well."""
import ctypes
import sys
from typing import Any, Tuple

import numpy

from . import _kind_numpy
from ._arrays import HOST, Device, Memory, compact, is_gapless
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
    (14, 8): "float8_e8m0fnu",
}
_HOST_TYPES = (1, 3)  # kDLCPU, kDLCUDAHost


def memory(array: Any, what: str) -> Memory:
    device_type, ordinal = (int(number) for number in array.__dlpack_device__())
    if device_type not in _HOST_TYPES:
        raise Error(
            f"{what} is a {type(array).__module__.split('.')[0]} array on DLPack device ({device_type}, {ordinal}), expected host "
            f"memory; CUDA memory is taken as a torch tensor: torch.from_dlpack(array), which copies nothing"
        )
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


empty, zeros, make, address = _kind_numpy.empty, _kind_numpy.zeros, _kind_numpy.make, _kind_numpy.address
stream = _kind_numpy.stream


def sqnr(signal: Any, noisy: Any) -> float:
    return _kind_numpy.sqnr(numpy.from_dlpack(signal), numpy.from_dlpack(noisy))


def give(array: Any, like: Any) -> Any:
    """Hands an array of numpy to the caller, through the from_dlpack of the library that `like` is of."""
    namespace = like.__array_namespace__() if hasattr(like, "__array_namespace__") else None
    if namespace is None:
        namespace = sys.modules.get(type(like).__module__.split(".")[0])
    convert = getattr(namespace, "from_dlpack", None)
    return convert(array) if convert else array


def view(array: Any, text: str) -> Any:
    return array
