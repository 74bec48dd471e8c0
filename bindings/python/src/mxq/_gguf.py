"""Tensors of GGUF files, whose blocks hold scales and codes together."""

from typing import Any, NamedTuple, Sequence

from ._arrays import dense, kind_of
from ._library import Error
from ._memory import count
from ._parts import Part
from ._qtensor import QTensor


class _Blocks(NamedTuple):
    """elements: of a block. scales: bytes at its begin, one for `group` elements each; codes follow.

    Byte j of the codes of a group has element j in its low half and element j + group / 2 in the high one.
    """

    elements: int
    scales: int
    group: int

    @property
    def nbytes(self) -> int:
        return self.scales + self.elements // 2


_BLOCKS = {"mxfp4": _Blocks(32, 1, 32), "nvfp4": _Blocks(64, 4, 16)}


def from_gguf(blocks: Any, shape: Sequence[int], format: str = "mxfp4", *, decode_scale: Any = None, dtype: Any = "float32") -> QTensor:
    """A quantized tensor from the blocks of a GGUF tensor of type MXFP4 or NVFP4. Copies: scales are taken out, codes sorted anew.

    blocks: the bytes of the tensor, a numpy array or a torch tensor of uint8 in any shape.
    shape: (rows, cols) or (experts, rows, cols). GGUF names the same sizes in reverse order.
    decode_scale: what multiplies NVFP4's block scales, where a file has such a number; otherwise 1.
    """
    layout, kind = _BLOCKS.get(format), kind_of(blocks, "blocks")
    if layout is None:
        raise Error(f"format is {format!r}, expected {' or '.join(map(repr, _BLOCKS))}, the types of GGUF that libmxq has")
    if kind.name == "dlpack":
        raise Error(f"blocks is a {type(blocks).__name__}, expected a numpy array or a torch tensor")
    memory, (*lead, cols) = dense(blocks, "blocks"), [int(size) for size in shape]
    wanted = count((*lead, cols)) // layout.elements * layout.nbytes
    if len(lead) not in (1, 2) or cols % layout.elements:
        raise Error(f"shape is {tuple(shape)}, expected 2 or 3 sizes, the last a multiple of {layout.elements}: a row has whole blocks")
    if memory.dtype != "uint8" or count(memory.shape) != wanted:
        found = f"{count(memory.shape)} elements of {memory.dtype}"
        raise Error(f"blocks has {found}, expected {wanted} bytes (uint8) for {format} {tuple(shape)}")
    rows = blocks.reshape(*lead, cols // layout.elements, layout.nbytes)
    packed = rows[..., layout.scales :].reshape(*lead, cols // layout.group, layout.group // 2)
    even, odd, half = packed[..., 0::2], packed[..., 1::2], layout.group // 4
    codes = kind.empty(tuple(packed.shape), "uint8", memory.device)
    codes[..., :half] = (even & 15) | ((odd & 15) << 4)
    codes[..., half:] = (even >> 4) | (odd & 240)
    scales = kind.empty((*lead, cols // layout.group), "uint8", memory.device)
    scales.reshape(*lead, cols // layout.elements, layout.scales)[...] = rows[..., : layout.scales]
    above = (1.0 if decode_scale is None else decode_scale) if format == "nvfp4" else None
    part = Part(codes.reshape(*lead, cols // 2), scales, decode_scale=above)
    return QTensor.from_parts(format, (*lead, cols), rowwise=part, dtype=dtype)
