"""Quantized tensors from others: some of the experts, or all arrays on another device."""
import operator
from typing import Any, List

from ._arrays import kind_of
from ._library import Error
from ._parts import Part, Shape, is_list
from ._qtensor import QTensor, _sizes_without_groups


def to_device(q: QTensor, device: Any) -> QTensor:
    def moved(arrays: Any) -> Any:
        if is_list(arrays):
            return [moved(array) for array in arrays]
        return None if arrays is None else kind_of(arrays).to(arrays, device)

    parts = {name: Part(moved(part.codes), moved(part.scales), moved(part.amax), moved(part.decode_scale), part.hadamard)
             for name, part in q.parts.items()}
    groups = q.groups and q.groups._replace(ends=moved(q.groups.ends))
    out = QTensor(q.spec, q.shape, groups, parts, q.dtype, q._device, q._kind)
    if all(new is old for new, old in zip(_each(out), _each(q))):
        return q
    out._descriptor()
    return out


def _each(q: QTensor) -> List[Any]:
    return [array for arrays in q._arrays for array in (arrays if is_list(arrays) else [arrays])]


def experts(q: QTensor, index: Any) -> QTensor:
    """A view of the experts that an integer or a slice names."""
    if len(q.shape) != 3:
        raise Error(f"q has shape {q.shape}, expected 3 dimensions: an index picks experts; dequantize it to pick rows or columns")
    count = q.shape[0]
    if isinstance(index, slice):
        first, last, step = index.indices(count)
        if step != 1:
            raise Error(f"the index has a step of {step}, expected 1: neighbouring experts")
        shape: Shape = (max(last - first, 0), *q.shape[1:])
        index, one = slice(first, max(first, last)), False
    else:
        try:
            index, one = operator.index(index), True
        except TypeError:
            raise Error(f"the index is {index!r}, expected the number of an expert, or a slice of experts") from None
        if not -count <= index < count:
            raise IndexError(f"the index is {index}, expected {-count} to {count - 1}: there are {count} experts")
        shape, index = q.shape[1:], index % count
    parts = {name: _expert_part(q, name, part, index, one) for name, part in q.parts.items()}
    out = QTensor(q.spec, shape, None, parts, q.dtype, q._device, q._kind)
    out._descriptor()
    return out


def _expert_part(q: QTensor, name: str, part: Part, index: Any, one: bool) -> Part:
    sizes = _sizes_without_groups(q.spec, q.shape, name)
    numbers = slice(index, index + 1) if one else index

    def pick(arrays: Any, shape: Shape) -> Any:
        if is_list(arrays):
            return arrays[index]
        whole = kind_of(arrays).memory(arrays, name).gapless
        return (arrays.reshape(shape) if whole else arrays)[index]

    def pick_numbers(array: Any) -> Any:
        return array if array is None or q.scope == "tensor" else array.reshape(-1)[numbers]

    if q.scaling != "tensor":
        scales = pick(part.scales, sizes.scales)
    elif is_list(part.scales):
        scales = part.scales[index]
    else:
        scales = pick_numbers(part.scales)
    return Part(pick(part.codes, sizes.codes), scales, pick_numbers(part.amax), pick_numbers(part.decode_scale), part.hadamard)
