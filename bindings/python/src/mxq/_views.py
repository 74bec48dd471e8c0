"""Parts made of others: those of some of the experts, and those on another device."""
import operator
from typing import Any, Dict, Tuple, Union

from ._arrays import kind_of
from ._descriptors import Sizes, Spec, sizes_without_groups
from ._library import Error
from ._memory import Shape
from ._parts import Part, is_list


def on_device(arrays: Any, device: Any) -> Any:
    """An array, each of a list or of a part, or None, on a device of torch; what is there already stays itself."""
    if isinstance(arrays, Part):
        codes, scales, amax, decode_scale = [on_device(field, device) for field in arrays[:4]]
        return Part(codes, scales, amax, decode_scale, arrays.hadamard)
    if is_list(arrays):
        return [on_device(array, device) for array in arrays]
    return None if arrays is None else kind_of(arrays).to(arrays, device)


def experts(spec: Spec, shape: Shape, parts: Dict[str, Part], index: Any) -> Tuple[Shape, Dict[str, Part]]:
    """Shape and parts of the experts that an integer or a slice names, as views."""
    if len(shape) != 3:
        raise Error(f"q has shape {shape}, expected 3 dimensions: an index picks experts; dequantize it to pick rows or columns")
    chosen = _slice(index, shape[0]) if isinstance(index, slice) else _number(index, shape[0])
    kept = shape[1:] if isinstance(chosen, int) else (chosen.stop - chosen.start, *shape[1:])
    return kept, {name: _expert_part(spec, sizes_without_groups(spec, shape, name), part, chosen) for name, part in parts.items()}


def _slice(index: slice, count: int) -> slice:
    first, last, step = index.indices(count)
    if step != 1:
        raise Error(f"the index has a step of {step}, expected 1: neighbouring experts")
    return slice(first, max(first, last))


def _number(index: Any, count: int) -> int:
    try:
        found = operator.index(index)
    except TypeError:
        raise Error(f"the index is {index!r}, expected the number of an expert, or a slice of experts") from None
    if not -count <= found < count:
        raise IndexError(f"the index is {found}, expected {-count} to {count - 1}: there are {count} experts")
    return found % count


def _expert_part(spec: Spec, sizes: Sizes, part: Part, index: Union[int, slice]) -> Part:
    numbers = slice(index, index + 1) if isinstance(index, int) else index

    def pick(arrays: Any, shape: Shape) -> Any:
        if is_list(arrays):
            return arrays[index]
        whole = kind_of(arrays).memory(arrays, "the part").gapless
        return (arrays.reshape(shape) if whole else arrays)[index]

    def pick_numbers(array: Any) -> Any:
        return array if array is None or spec.scope == "tensor" else array.reshape(-1)[numbers]

    if spec.scaling != "tensor":
        scales = pick(part.scales, sizes.scales)
    elif is_list(part.scales):
        scales = part.scales[index]
    else:
        scales = pick_numbers(part.scales)
    return Part(pick(part.codes, sizes.codes), scales, pick_numbers(part.amax), pick_numbers(part.decode_scale), part.hadamard)
