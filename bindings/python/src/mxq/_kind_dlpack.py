"""Arrays of any library with DLPack, such as jax and CuPy.

numpy makes the results in host memory, torch those on CUDA devices. DLPack hands them over, too, so that streams wait for one
another as it says.
"""
import ctypes
import sys
from typing import Any, Tuple

import numpy

from . import _kind_numpy
from ._library import Error
from ._memory import CUDA, HOST, Device, Memory, compact, is_gapless

name = "dlpack"


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned, which alone can say that memory is read-only."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("dl_tensor", _DLTensor),
    ]


_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
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


def _refused(array: Any, what: str, error: Exception) -> Error:
    name = f"{type(array).__module__.split('.')[0]} {type(array).__name__}"
    return Error(f"{what} is a {name} that gives no memory ({str(error).splitlines()[0] if str(error) else type(error).__name__}); "
                 f"pass an array that has values: under jax.jit, call mxq outside or through jax.pure_callback")


def _device_of(array: Any, what: str) -> Tuple[int, int]:
    try:
        device_type, ordinal = array.__dlpack_device__()
    except Exception as error:  # of any type: a library says so of a tracer, or of memory that is gone
        raise _refused(array, what, error) from None
    return int(device_type), int(ordinal)


def _exported(array: Any, what: str) -> Tuple[Any, _DLTensor, bool]:
    """The capsule of an array, what it says, and whether the memory may only be read."""
    try:
        try:
            capsule = array.__dlpack__(max_version=(1, 0))
        except TypeError:  # the library is older than DLPack 1.0
            capsule = array.__dlpack__()
    except Exception as error:
        raise _refused(array, what, error) from None
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = ctypes.cast(_pointer_of(capsule, b"dltensor_versioned"), ctypes.POINTER(_Versioned)).contents
        return capsule, versioned.dl_tensor, bool(versioned.flags & _READ_ONLY)
    return capsule, ctypes.cast(_pointer_of(capsule, b"dltensor"), ctypes.POINTER(_DLTensor)).contents, False


def memory(array: Any, what: str) -> Memory:
    device_type, ordinal = _device_of(array, what)
    if device_type == CUDA:
        kind = _torch_kind(what)
        # torch asks the other library to make torch's stream wait for what writes the array.
        found: Memory = kind.memory(kind.torch.from_dlpack(array), what)
        return found
    if device_type not in _HOST_TYPES:
        raise Error(f"{what} is a {type(array).__module__.split('.')[0]} array on DLPack device ({device_type}, {ordinal}), "
                    f"expected host or CUDA memory")
    capsule, tensor, read_only = _exported(array, what)
    if tensor.lanes != 1:
        raise Error(f"{what} has vectors of {tensor.lanes} lanes as elements; view them as one more dimension")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else compact(shape)
    text = _NAMES.get((tensor.code, tensor.bits), f"of DLPack code {tensor.code} with {tensor.bits} bits")
    # The capsule calls the producer's deleter when it goes.
    return Memory((array, capsule), (tensor.data or 0) + tensor.byte_offset, shape, strides, text, HOST, read_only,
                  is_gapless(shape, strides))


def key(array: Any) -> Tuple[Any, ...]:
    """What changes when the memory of any array moves. Exports it once more: only that tells whether it still has memory."""
    found = memory(array, "the array")
    return found.address, found.shape, found.strides, found.dtype, found.device


def copy(array: Any) -> Any:
    """A copy, of the same library."""
    if array.__dlpack_device__()[0] == CUDA:
        kind = _torch_kind("the array")
        return give(kind.copy(kind.torch.from_dlpack(array)), array)
    return give(numpy.from_dlpack(array).copy(), array)


def to(array: Any, device: Any) -> Any:
    library = type(array).__module__.split(".")[0]
    raise Error(f"the tensor holds arrays of {library}, which mxq does not move; move them with {library}, then call from_parts")


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


def as_float64(array: Any) -> Any:
    """An array of numpy or torch."""
    if _device_of(array, "the array")[0] == CUDA:
        kind = _torch_kind("the array")
        return kind.as_float64(kind.torch.from_dlpack(array))
    return _kind_numpy.as_float64(numpy.from_dlpack(array))


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
