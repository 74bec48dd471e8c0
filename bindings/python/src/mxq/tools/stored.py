"""Finds quantized tensors in checkpoints by the names and types that layouts give them, and loads them as they are."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy

from .._parts import Part
from .._qtensor import QTensor
from .._verbs import convert
from .reader import Checkpoint, Entry, read_bytes, refuse

Shape = Tuple[int, ...]
PLAIN = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_WIDTHS = {"U8": "uint8", "F8_E4M3": "uint8", "F8_E8M0": "uint8", "I8": "uint8", "F4": "uint8"}


class Stored(NamedTuple):
    """A tensor of values: plain if it has no scales.

    name: without what layouts append to it. family: whose names these are.
    format, scaling, shape: the descriptor of libmxq that takes the bytes; of a plain tensor its type and shape.
    global_scale: what multiplies NVFP4's block scales, or divides them if `divides`.
    convert: what has to be done before libmxq takes it, or nothing.
    transposed: the plain tensor of this name has rows and columns swapped.
    """

    name: str
    family: str
    format: str
    shape: Shape
    codes: Entry
    scaling: str = ""
    scales: Optional[Entry] = None
    global_scale: Optional[Entry] = None
    divides: bool = False
    convert: str = ""
    transposed: bool = False


class _Pattern(NamedTuple):
    """The names of one layout: stem + codes, stem + scales, stem + global_scale, with the types that they may have."""

    family: str
    codes: str
    code_types: Tuple[str, ...]
    scales: str
    scale_types: Tuple[str, ...]
    format: str
    global_scale: str = ""
    divides: bool = False


_CODES8, _CODES4, _FLOATS = ("F8_E4M3",), ("U8", "I8", "F4"), ("F32", "BF16", "F16")
_PATTERNS = [
    _Pattern(
        "compressed-tensors", ".weight_packed", _CODES4, ".weight_scale", ("F8_E4M3",), "nvfp4", ".weight_global_scale", True
    ),
    _Pattern("compressed-tensors", ".weight_packed", _CODES4, ".weight_scale", ("U8", "F8_E8M0"), "mxfp4"),
    _Pattern("ModelOpt", ".weight", _CODES4, ".weight_scale", ("F8_E4M3",), "nvfp4", ".weight_scale_2"),
    _Pattern("compressed-tensors, ModelOpt", ".weight", _CODES8, ".weight_scale", ("U8", "F8_E8M0"), "mxfp8_e4m3"),
    _Pattern("compressed-tensors, ModelOpt", ".weight", _CODES8, ".weight_scale", _FLOATS, "fp8_e4m3"),
    _Pattern("MX in U8", ".weight", _CODES4, ".weight_scale", ("U8", "F8_E8M0"), "mxfp4"),
    _Pattern("DeepSeek", ".weight", _CODES8, ".weight_scale_inv", _FLOATS, "fp8_e4m3"),
    _Pattern("MX in FP8 names", ".weight", _CODES8, ".weight_scale_inv", ("U8", "F8_E8M0"), "mxfp8_e4m3"),
    _Pattern("DeepSeek V4", ".weight", ("I8",), ".scale", ("F8_E8M0",), "mxfp4"),
    _Pattern("DeepSeek V4", ".weight", _CODES8, ".scale", ("F8_E8M0",), "mxfp8_e4m3"),
    *(
        _Pattern("stack of experts", "", _CODES8, scales, types, format)  # X is the name of the codes
        for scales in ("_scale_inv", "_scale")
        for types, format in ((_FLOATS, "fp8_e4m3"), (("U8", "F8_E8M0"), "mxfp8_e4m3"))
    ),
    _Pattern("gpt-oss", "_blocks", ("U8",), "_scales", ("U8",), "mxfp4"),  # the names of transformers
    _Pattern("gpt-oss", ".blocks", ("U8",), ".scales", ("U8",), "mxfp4"),  # those of gpt-oss itself
]


def _up(size: int, tile: int) -> int:
    return -(-size // tile)


def _fp8_scaling(shape: Shape, scales: Shape) -> str:
    """Which elements share a scale of FP8, from the shape of the scales; nothing if libmxq has no such scaling."""
    experts, rows, cols = shape[:-2], shape[-2], shape[-1]
    tiles = _up(rows, 128), _up(cols, 128)
    if scales in ((*experts, *tiles), (*experts, tiles[0], 1, tiles[1], 1)):
        return "128x128"
    if scales in ((*experts, rows), (*experts, rows, 1)):
        return "row"
    if scales in ((), (1,), (1, 1)):
        return "tensor"
    return "1x128" if scales == (*experts, rows, tiles[1]) else ""


def _scaling(format: str, shape: Shape, scales: Entry) -> Tuple[str, str]:
    """The scaling that the shape of the scales says, and what must be done with them first."""
    if format == "fp8_e4m3":
        scaling = _fp8_scaling(shape, scales.shape)
        widened = "" if scales.dtype == "F32" else f"{scales.dtype} scales are widened to F32"
        return scaling, widened if scaling else f"scales have shape {list(scales.shape)}, which is no scaling of libmxq"
    lines, width = ("1x16", 16) if format == "nvfp4" else ("1x32", 32)
    wanted = (*shape[:-1], _up(shape[-1], width))
    if scales.shape == wanted:
        return lines, ""
    for tile in (128, 32) if format == "mxfp8_e4m3" else ():
        if scales.shape == (*shape[:-2], _up(shape[-2], tile), _up(shape[-1], tile)):
            return f"{tile}x{tile}", ""
    return lines, f"scales have shape {list(scales.shape)}, not {list(wanted)}: padded or swizzled"


def _shape(pattern: _Pattern, codes: Entry) -> Optional[Shape]:
    """Experts, rows and columns of the values whose codes these are."""
    if pattern.family == "gpt-oss":
        return (*codes.shape[:2], 32 * codes.shape[2]) if len(codes.shape) == 4 and codes.shape[3] == 16 else None
    packed = pattern.format in ("mxfp4", "nvfp4") and codes.dtype != "F4"
    return (*codes.shape[:-1], codes.shape[-1] * (2 if packed else 1)) if len(codes.shape) in (2, 3) else None


def _match(pattern: _Pattern, stem: str, entries: Dict[str, Entry]) -> Optional[Stored]:
    """The tensor whose codes and scales have these names and types, or None."""
    codes, scales, above = (
        entries[stem + pattern.codes],
        entries.get(stem + pattern.scales),
        entries.get(stem + pattern.global_scale),
    )
    if scales is None or codes.dtype not in pattern.code_types or scales.dtype not in pattern.scale_types:
        return None
    shape = _shape(pattern, codes)
    if shape is None or (pattern.global_scale and above is None):
        return None
    above = above if pattern.global_scale else None
    scaling, convert = _scaling(pattern.format, shape, scales)
    if above is not None and numpy.prod(above.shape, dtype=object) != 1:
        convert = f"{list(above.shape)} global scales: one operand for each"
    of_module = pattern.codes.startswith(".weight")
    return Stored(
        stem + ".weight" if of_module else stem,
        pattern.family,
        pattern.format,
        shape,
        codes,
        scaling,
        scales,
        above,
        pattern.divides,
        convert,
        pattern.codes == "_blocks",
    )


def find(checkpoint: Checkpoint) -> List[Stored]:
    """All tensors of values of a checkpoint, in the order of its files."""
    entries, out, taken = checkpoint.entries, [], set()
    for name in entries:
        for pattern in _PATTERNS:
            if name.endswith(pattern.codes) and (found := _match(pattern, name.removesuffix(pattern.codes), entries)):
                out.append(found)
                taken |= {entry.name for entry in (found.codes, found.scales, found.global_scale) if entry}
                break
    plain = [Stored(name, "plain", entry.dtype, entry.shape, entry) for name, entry in entries.items() if name not in taken]
    order = {name: i for i, name in enumerate(entries)}
    return sorted(out + plain, key=lambda stored: order[stored.codes.name])


def typed(entry: Entry, data: Any) -> Any:
    """Bytes of a tensor as numpy has its type: codes and scales of 8 bits as bytes."""
    if entry.dtype == "BF16":
        import ml_dtypes

        return data.view(ml_dtypes.bfloat16)
    dtype = PLAIN.get(entry.dtype) or _WIDTHS.get(entry.dtype)
    if dtype is None:
        refuse(entry.path, f"tensor {entry.name!r}", f"a type of {', '.join([*PLAIN, *_WIDTHS])}", entry.dtype)
    return data.view(dtype)


def array(entry: Entry) -> Any:
    """A tensor as numpy has it."""
    return typed(entry, read_bytes(entry)).reshape(entry.shape)


def _elements(entry: Entry) -> Any:
    """The elements of a tensor of a file, in one dimension."""
    return typed(entry, read_bytes(entry))


def floats(entry: Entry, elements: Any) -> Any:
    """Elements of F32, BF16 or F16 as F32, in one dimension."""
    flat = elements.reshape(-1)
    return flat if entry.dtype == "F32" else convert(flat.reshape(1, -1), "float32").reshape(-1)


def _decode_scale(entry: Entry, elements: Any, divides: bool) -> float:
    """What multiplies the block scales of NVFP4."""
    scale = numpy.float32(float(elements[0]))
    with numpy.errstate(all="ignore"):
        decode = numpy.float32(1) / scale if divides else scale
    if not (numpy.isfinite(scale) and 0 <= decode < numpy.inf):
        refuse(entry.path, f"tensor {entry.name!r}", "a finite global scale above 0", scale)
    return float(decode)


def load(stored: Stored, read: Callable[[Entry], Any] = _elements) -> QTensor:
    """A quantized tensor around the bytes of the file. FP8 scales in BF16 or F16 are widened, which is exact.

    read: gives the elements of a tensor in one dimension, those of 8 bits and less as bytes.
    """
    if stored.scales is None or (stored.convert and "widened" not in stored.convert):
        refuse(
            stored.codes.path,
            f"tensor {stored.name!r}",
            "a quantized tensor that libmxq takes",
            stored.convert or stored.format,
        )
    shape, fp8 = stored.shape, stored.format == "fp8_e4m3"
    width = shape[-1] // 2 if stored.format in ("mxfp4", "nvfp4") else shape[-1]
    codes, scales = read(stored.codes).reshape(*shape[:-1], width), read(stored.scales)
    scales = floats(stored.scales, scales) if fp8 else scales.reshape(stored.scales.shape)
    if stored.scaling in ("128x128", "1x128"):
        scales = scales.reshape(*shape[:-2], _up(shape[-2], 128) if stored.scaling == "128x128" else shape[-2], -1)
    above = stored.global_scale
    decode = None if above is None else _decode_scale(above, read(above), stored.divides)
    return QTensor.from_parts(stored.format, shape, rowwise=Part(codes, scales, decode_scale=decode), scaling=stored.scaling)


def as_named(stored: Stored, q: QTensor) -> QTensor:
    """The tensor with rows and columns as the plain tensor of this name has them."""
    if not stored.transposed:
        return q
    part, (*experts, rows, cols) = q.part("rowwise"), q.shape
    return QTensor.from_parts(q.format, (*experts, cols, rows), columnwise=(part.codes, part.scales), scaling=q.scaling)


def values(stored: Stored) -> Any:
    """The values as float32, rows and columns as the plain tensor of this name has them."""
    if stored.scales is None:
        plain = array(stored.codes)
        if plain.dtype == numpy.float32:
            return plain
        return convert(plain.reshape(1, -1), "float32").reshape(plain.shape)
    return as_named(stored, load(stored)).dequantize("float32")
