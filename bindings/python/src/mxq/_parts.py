"""Parts of quantized tensors: codes and scales as whole arrays, as slices of larger arrays, or as lists with one for each expert."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ._arguments import array_argument, integer, is_number
from ._arrays import addresses_on, kind_of
from ._library import Error, check, lib
from ._memory import Device, Memory, Shape, count, same_device
from ._names import CODE_DTYPES, PARTS, scale_dtype

class Part(NamedTuple):
    """Codes and scales of one part as bytes (scales of FP8 formats: float32).

    codes: rowwise (rows, bytes of a row), columnwise (cols, bytes of a column), with experts in front.
    amax, decode_scale: what NVFP4 has above its scales, one of the two.
    hadamard: the mask of signs of a random Hadamard transform that the values went through; None: no transform.

    Codes and scales may be two lists, with an array for each expert.
    """

    codes: Any
    scales: Any
    amax: Any = None
    decode_scale: Any = None
    hadamard: Optional[int] = None


def is_list(arrays: Any) -> bool:
    return isinstance(arrays, (list, tuple))


def first_of(arrays: Any) -> Any:
    """The array itself, or the first one of a list."""
    return arrays[0] if is_list(arrays) else arrays


def array_bytes(arrays: Any, what: str) -> int:
    """Bytes of the elements of an array, or of a list of arrays."""
    if is_list(arrays):
        return sum(array_bytes(array, what) for array in arrays)
    memory = kind_of(arrays, what).memory(arrays, what)
    return count(memory.shape) * (4 if memory.dtype == "float32" else 1)


class _Layout(NamedTuple):
    """The memory of the codes or the scales of a part: each array, the bytes of each, and strides in bytes.

    line_stride, expert_stride: from one row of codes or scales to the next, and from one expert to the next; 0: no gaps.
    """

    memories: List[Memory]
    bytes: int
    line_stride: int
    expert_stride: int


def _strided(memory: Memory, experts: bool, item: int, what: str) -> Tuple[int, int, int]:
    """Bytes, line stride and expert stride of an array with gaps between rows or experts, and none inside of a row."""
    shape, strides = memory.shape, memory.strides
    wanted = 3 if experts else 2
    forward = all(stride > 0 or size == 1 for size, stride in zip(shape, strides))
    if len(shape) != wanted or not (strides[-1] == 1 or shape[-1] == 1) or not forward:
        raise Error(
            f"{what} has shape {shape} and strides of {strides} elements, expected {wanted} dimensions whose last has no gaps; "
            f"make a contiguous copy"
        )
    width, lines = shape[-1], shape[-2]
    line = strides[-2] if lines > 1 else width
    elements = (lines - 1) * line + width
    if not experts or shape[0] == 1:
        return elements * item, line * item, 0
    return (elements + (shape[0] - 1) * strides[0]) * item, line * item, strides[0] * item


def _layout(arrays: Any, experts: bool, device: Device, what: str) -> _Layout:
    names = [f"{what}[{i}]" for i in range(len(arrays))] if is_list(arrays) else [what]
    each = list(arrays) if is_list(arrays) else [arrays]
    memories = [kind_of(array, name).memory(array, name) for array, name in zip(each, names)]
    first = memories[0]
    for memory, name in zip(memories, names):
        same_device(memory, device, name)
        if (memory.shape, memory.dtype) != (first.shape, first.dtype) or (
            memory.strides != first.strides and not (memory.gapless and first.gapless)
        ):
            raise Error(
                f"{name} has shape {memory.shape}, strides {memory.strides} and dtype {memory.dtype}, expected "
                f"{first.shape}, {first.strides} and {first.dtype}, as {names[0]} has"
            )
    item = 4 if first.dtype == "float32" else 1
    if first.gapless:
        return _Layout(memories, count(first.shape) * item, 0, 0)
    return _Layout(memories, *_strided(first, experts and not is_list(arrays), item, what))


def set_part(tensor: int, name: str, part: Part, shape: Shape, numbers: Shape, device: Device) -> Any:
    """Gives a descriptor the memory of a part, to read. Returns what must live as long as the descriptor. numbers: as in
    set_numbers."""
    experts = len(shape) == 3
    codes = _layout(part.codes, experts, device, f"{name}.codes")
    scales = _layout(part.scales, experts, device, f"{name}.scales")
    number, keep = PARTS[name], None
    if is_list(part.codes) and codes.bytes:
        kind = kind_of(first_of(part.codes))
        keep = [addresses_on([memory.address for memory in layout.memories], kind, device) for layout in (codes, scales)]
        check(
            lib.mxq_tensor_set_part_list(
                tensor, number, len(codes.memories), keep[0].address, codes.bytes, keep[1].address, scales.bytes
            )
        )
    else:
        check(
            lib.mxq_tensor_set_const_part(
                tensor,
                number,
                codes.memories[0].address if codes.bytes else None,
                codes.bytes,
                scales.memories[0].address if scales.bytes else None,
                scales.bytes,
            )
        )
    if codes.line_stride or codes.expert_stride or scales.line_stride or scales.expert_stride:
        check(lib.mxq_tensor_set_strides(tensor, number, codes.line_stride, codes.expert_stride, scales.line_stride, scales.expert_stride))
    set_numbers(tensor, name, part, numbers, device)
    return keep


def set_numbers(tensor: int, name: str, part: Part, numbers: Shape, device: Device) -> None:
    """Gives a descriptor what a part has in addition to codes and scales. numbers: the shape of an amax or a decode scale."""
    if part.amax is not None:
        memory = float_memory(part.amax, f"{name}.amax", numbers, device)
        check(lib.mxq_tensor_set_amax(tensor, PARTS[name], memory.address or None, 4 * count(memory.shape)))
    if part.decode_scale is not None:
        memory = float_memory(part.decode_scale, f"{name}.decode_scale", numbers, device)
        check(lib.mxq_tensor_set_decode_scale(tensor, PARTS[name], memory.address or None, 4 * count(memory.shape)))
    if part.hadamard is not None:
        check(lib.mxq_tensor_set_hadamard(tensor, PARTS[name], 1, hadamard_mask(part.hadamard, f"{name}.hadamard")))


def hadamard_mask(mask: Any, what: str) -> int:
    return integer(mask, what, 0, 0xFFFF, ": a mask of 16 signs such as 0xD7E8")


def float_array(numbers: Any, kind: Any, device: Device) -> Any:
    """An array as it is; of a number an array on the device."""
    return kind.make([float(numbers)], "float32", device) if is_number(numbers) else numbers


def float_memory(array: Any, what: str, shape: Shape, device: Device) -> Memory:
    return array_argument(array, what, ("float32",), shape, device)


# ---- Parts that are given ----------------------------------------------------------------------------------------------


def as_part(given: Any, name: str) -> Part:
    """A Part, from one or from (codes, scales)."""
    if not is_list(given) or not 2 <= len(given) <= 5:
        raise Error(f"{name} is a {type(given).__name__}, expected a Part or (codes, scales)")
    part = Part(*given)
    lists = [field for field in (part.codes, part.scales) if is_list(field)]
    if lists and (len(lists) == 1 or len(part.codes) != len(part.scales) or not part.codes):
        raise Error(f"{name} has a list of codes or of scales, expected two lists with an array for each expert")
    return part


def check_part(format: str, shape: Shape, name: str, part: Part, expected: Dict[str, Shape], swizzled: bool) -> None:
    """Refuses codes and scales that would be read wrongly. expected: their shapes. An array of one dimension with as many elements
    in their order is welcome, too, and so are dimensions of 1. swizzled: scales of any shape with as many elements are."""
    if is_list(part.codes) and (len(shape) != 3 or len(part.codes) != shape[0]):
        raise Error(f"{name} has lists of {len(part.codes)} arrays, expected one for each expert of shape {shape}")
    wanted = scale_dtype(format)
    dtypes = {
        "codes": {"uint8", "int8", CODE_DTYPES.get(format, "uint8")},
        "scales": {wanted} if wanted == "float32" else {wanted, "uint8", "int8"},
    }
    for field, fits in dtypes.items():
        arrays = getattr(part, field)
        what, first = f"{name}.{field}", first_of(arrays)
        memory = kind_of(first, what).memory(first, what)
        if memory.dtype not in fits:
            raise Error(f"{what} has dtype {memory.dtype}, expected {' or '.join(sorted(fits))} for {format}")
        one = expected[field][1:] if is_list(arrays) else expected[field]
        compact = field == "codes" or not swizzled
        flat = not compact or (memory.gapless and len(memory.shape) <= 1)
        if _without_ones(memory.shape) == _without_ones(one) or (flat and count(memory.shape) == count(one)):
            continue
        remedy = "; for swizzled ones give swizzled=True" if field == "scales" and not swizzled else ""
        raise Error(f"{what} has shape {memory.shape}, expected {one} or {count(one)} elements for shape {shape}{remedy}")


def _without_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)
