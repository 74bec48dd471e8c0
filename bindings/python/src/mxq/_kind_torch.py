"""torch tensors, on the CPU and on CUDA devices, without a copy; work goes to torch's current stream."""
import functools
from typing import Any, Optional, Tuple

import torch

from ._library import Error
from ._memory import CPU, CUDA, HOST, Device, Memory

name = "torch"
_DTYPES = {
    text: getattr(torch, text)
    for text in ("float32", "float16", "bfloat16", "uint8", "int8", "int32", "int64", "uint64", "float8_e4m3fn", "float8_e5m2",
                 "float8_e8m0fnu", "float4_e2m1fn_x2")
    if hasattr(torch, text)
}
_NAMES = {dtype: text for text, dtype in _DTYPES.items()}


# The stream's address as torch's own compiled code asks for it, a tenth of the time of the object around it.
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (lambda ordinal: torch.cuda.current_stream(ordinal).cuda_stream)


def memory(array: Any, what: str) -> Memory:
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break(msg="torch.compile knows the operators of mxq.torch: quantize, dequantize, matmul, grouped_matmul")
    if array.is_cpu:
        device = HOST
    elif array.is_cuda:
        device = (CUDA, array.get_device())
    else:
        raise Error(f"{what} is on device {array.device}, expected cpu or cuda")
    if type(array).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise Error(f"{what} is a {type(array).__name__}, which holds its numbers elsewhere; pass a plain tensor")
    if array.layout is not torch.strided:
        raise Error(f"{what} has layout {array.layout}, expected a strided tensor")
    if array.is_neg():
        raise Error(f"{what} is a negated view, whose memory has other numbers; call resolve_neg()")
    text = _NAMES.get(array.dtype) or str(array.dtype).rsplit(".", 1)[-1]
    return Memory(array, array.data_ptr(), tuple(array.shape), array.stride(), text, device, False, array.is_contiguous())


def address(array: Any) -> int:
    found: int = array.data_ptr()
    return found


def key(array: Any) -> Tuple[Any, ...]:
    """What changes when the memory of any tensor moves: its address, shape, strides, dtype and device."""
    return array.data_ptr(), array.shape, array.stride(), array.dtype, array.device


def copy(array: Any) -> Any:
    return array.detach().clone()


def to(array: Any, device: Any) -> Any:
    return array.to(device=torch.device(device))


@functools.lru_cache(maxsize=64)
def _device(device: Device) -> Any:
    return torch.device("cpu") if device[0] == CPU else torch.device("cuda", device[1])


def empty(shape: Tuple[int, ...], text: str, device: Device) -> Any:
    return torch.empty(*shape, dtype=_DTYPES[text], device=_device(device))


def zeros(shape: Tuple[int, ...], text: str, device: Device) -> Any:
    return torch.zeros(*shape, dtype=_DTYPES[text], device=_device(device))


def make(values: Any, text: str, device: Device) -> Any:
    return torch.tensor(values, dtype=_DTYPES[text], device=_device(device))


def give(array: Any, like: Any) -> Any:
    """Hands an array that this kind made to the caller."""
    return array


def view(array: Any, text: str) -> Any:
    """The same bytes as another dtype of one byte; as they are where this torch has none."""
    return array.view(_DTYPES[text]) if text in _DTYPES else array


def stream(device: Device) -> Optional[int]:
    return _current_stream(device[1]) if device[0] == CUDA else None


def as_float64(array: Any) -> Any:
    return array.detach().double()
