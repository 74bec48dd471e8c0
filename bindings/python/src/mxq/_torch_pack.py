"""Operands as operators of torch take them: a list of tensors, a text that has everything else, and a shape."""
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _kind_torch as kind
from ._descriptors import Spec
from ._groups import Groups, Padded
from ._library import Error
from ._memory import CPU, CUDA, Device
from ._parts import Part, is_list
from ._qtensor import QTensor, Transposed


def device_of(x: Tensor) -> Device:
    return (CPU, 0) if x.device.type == "cpu" else (CUDA, x.device.index)


class Packed(NamedTuple):
    """An operand as an operator takes it. A plain tensor has the text "". `ends` are those of a quantized tensor's groups."""

    tensors: List[Tensor]
    text: str
    shape: List[int]
    ends: Optional[Tensor] = None
    cover_rows: bool = False

    @property
    def mT(self) -> "Packed":
        """The transpose. The shape of a quantized tensor stays that of the tensor beneath."""
        if not self.text:
            return plain_operand(self.tensors[0].mT)
        return self._replace(text=("N" if self.text[0] == "T" else "T") + self.text[1:])


def plain_operand(x: Tensor) -> Packed:
    return Packed([x], "", list(x.shape))


def pack(x: Any, what: str, part: Optional[str] = None) -> Packed:
    """A plain tensor, or a quantized one or its transpose. part: the only one that is taken."""
    if isinstance(x, Padded):
        raise Error(f"{what} is Padded, expected rows without padding where a gradient or torch.compile wants the product")
    if isinstance(x, (list, tuple)) and all(isinstance(expert, Tensor) for expert in x):
        x = torch.stack(tuple(x))
    if isinstance(x, Tensor):
        return plain_operand(x)
    q = x.base if isinstance(x, Transposed) else x
    if not isinstance(q, QTensor):
        raise Error(f"{what} is a {type(x).__name__}, expected a torch tensor or a quantized one")
    spec, groups = q.spec, q.groups
    alignment = (1, 0) if groups is None else groups.alignment
    words = ["T" if isinstance(x, Transposed) else "N", spec.format, spec.scaling, spec.scope, str(spec.scale_max), str(int(spec.swizzled)),
             q.dtype, str(alignment[0]), str(alignment[1])]
    tensors: List[Tensor] = []
    for name in (("rowwise", "columnwise") if part is None else (part,)):
        chosen = getattr(q, name) if part is None else q.part(name)
        if chosen is not None:
            fields, word = _fields(chosen, what)
            tensors += fields
            words.append(f"{name}:{word}")
    if groups is None:
        return Packed(tensors, " ".join(words), list(q.shape))
    return Packed(tensors, " ".join(words), list(q.shape), groups.ends, groups.cover_rows)


def _fields(part: Part, what: str) -> Tuple[List[Tensor], str]:
    """The tensors of a part, and a word that tells them apart: experts of a list, if there are amax and decode scale, the mask."""
    experts = len(part.codes) if is_list(part.codes) else 0
    tensors = [*part.codes, *part.scales] if experts else [part.codes, part.scales]
    tensors += [field for field in (part.amax, part.decode_scale) if field is not None]
    for field in tensors:
        if not isinstance(field, Tensor):
            raise Error(f"{what} holds arrays of {type(field).__module__}, expected torch tensors where a gradient or torch.compile "
                        "wants the product; quantize it from a torch tensor")
    mask = -1 if part.hadamard is None else part.hadamard
    return tensors, f"{experts}:{int(part.amax is not None)}:{int(part.decode_scale is not None)}:{mask}"


def unpack(tensors: Sequence[Tensor], text: str, shape: Sequence[int], ends: Optional[Tensor], cover_rows: bool) -> Any:
    """The plain tensor, quantized tensor or transpose that was packed."""
    if not text:
        return tensors[0]
    transposed, format, scaling, scope, scale_max, swizzled, dtype, rows, cols, *words = text.split()
    left, parts = list(tensors), {}
    for word in words:
        name, experts, amax, decode_scale, mask = word.split(":")
        codes, scales = _taken(left, int(experts)), _taken(left, int(experts))
        parts[name] = Part(codes, scales, left.pop(0) if amax == "1" else None, left.pop(0) if decode_scale == "1" else None,
                           None if mask == "-1" else int(mask))
    groups = None if ends is None else Groups(ends, (int(rows), int(cols)), cover_rows)
    spec = Spec(format, scaling, swizzled == "1", scope, int(scale_max))
    q = QTensor(spec, tuple(shape), groups, parts, dtype, device_of(tensors[0]), kind)
    return q.mT if transposed == "T" else q


def _taken(tensors: List[Tensor], experts: int) -> Any:
    """The next tensor, taken off the list, or a list of one for each expert."""
    return [tensors.pop(0) for _ in range(experts)] if experts else tensors.pop(0)


def is_transposed(text: str) -> bool:
    return text[:1] == "T"
