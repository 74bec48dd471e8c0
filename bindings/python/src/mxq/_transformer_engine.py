"""TransformerEngine's layouts, both ways, as tensors by the names that its classes have for them.

Of an (M, K) matrix, "to 4" being padded with zeros to a multiple of 4:

                          rowwise                              columnwise
    MXFP8    data         (M, K)                               (M, K), not transposed
             scale_inv    (M to 128, K/32 to 4)                (M/32 to 4, K to 128)
    NVFP4    data         (M, K/2)                             (K, M/2)
             scale_inv    (M to 128, K/16 to 4)                (K to 128, M/16 to 4)
    FP8      data         (M, K)                               (K, M)
      1x128  scale_inv    (K/128, M to 4)                      (M/128, K to 4)
    128x128  scale_inv    (M/128, K/128 to 4)                  (K/128, M/128 to 4)

Swizzled scales of MXFP8 and NVFP4 are the same bytes as here, in these shapes.
"""

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from ._arrays import kind_of
from ._layouts import unswizzle
from ._library import Error
from ._memory import count
from ._names import quantized_format
from ._parts import Part
from ._qtensor import QTensor
from ._shapes import code_shape


class _Layout(NamedTuple):
    """How a format is stored there.

    block: M and K are multiples of it.
    lines, blocks: multiples that the matrix of scales is padded to.
    transposed: the parts whose matrix of scales is stored transposed.
    """

    scaling: str
    block: int
    lines: int
    blocks: int
    transposed: Tuple[str, ...] = ()


_MXFP8 = _Layout("1x32", 32, 128, 4, ("columnwise",))
_NVFP4 = _Layout("1x16", 16, 128, 4)
_FP8_LINES = _Layout("1x128", 1, 4, 1, ("rowwise", "columnwise"))
_FP8_TILES = _Layout("128x128", 1, 1, 4)


_LAYOUTS = {"mxfp8": (_MXFP8,), "nvfp4": (_NVFP4, _NVFP4._replace(scaling="16x16")), "fp8": (_FP8_LINES, _FP8_TILES)}


def _layout(format: str, scaling: str, what: str) -> _Layout:
    for layout in _LAYOUTS.get(format.split("_")[0], ()):
        if layout.scaling == scaling:
            return layout
    raise Error(
        f"{what} is {format} {scaling}, expected mxfp8 1x32, nvfp4 1x16 or 16x16, or fp8 1x128 or 128x128, which "
        f"TransformerEngine has layouts for"
    )


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _scale_matrix(layout: _Layout, shape: Tuple[int, ...], part: str) -> Tuple[int, int]:
    """Rows of the matrix of scales of a part, and blocks of each, without padding."""
    lines, codes = shape if part == "rowwise" else shape[::-1]
    width = int(layout.scaling.split("x")[1])
    return (-(-lines // 128) if layout is _FP8_TILES else lines), -(-codes // width)


def _stored(layout: _Layout, matrix: Tuple[int, int], part: str) -> Tuple[int, int]:
    lines, blocks = _up(matrix[0], layout.lines), _up(matrix[1], layout.blocks)
    return (blocks, lines) if part in layout.transposed else (lines, blocks)


def _check_multiples(layout: _Layout, shape: Tuple[int, ...], what: str) -> None:
    if len(shape) != 2 or any(size % layout.block for size in shape):
        raise Error(
            f"{what} has shape {shape}, expected a matrix whose sides are multiples of {layout.block}, as TransformerEngine has them"
        )


def to_transformer_engine(q: QTensor) -> Dict[str, Any]:
    """The parts of a quantized matrix as TransformerEngine stores them: rowwise_data, rowwise_scale_inv, columnwise_data,
    columnwise_scale_inv; for NVFP4 also amax_rowwise and amax_columnwise, for FP8 is_2D_scaled, and for the others
    with_gemm_swizzled_scales. They are arguments of its classes:

        MXFP8Tensor(shape=q.shape, dtype=torch.bfloat16, fp8_dtype=tex.DType.kFloat8E4M3, quantizer=None,
                    **to_transformer_engine(q))

    MXFP8, NVFP4, and FP8 in blocks, of numpy and torch. Codes are copied where TransformerEngine does not transpose them, and
    scales where it pads or transposes them.
    """
    if not isinstance(q, QTensor):
        raise Error(f"q is a {type(q).__name__}, expected a QTensor, as quantize makes them")
    layout = _layout(q.format, q.scaling, "q")
    _check_multiples(layout, q.shape, "q")
    if q.groups is not None or q._kind.name == "dlpack":
        raise Error(f"q is {q!r}, expected one without groups, of numpy or torch")
    fp8 = q.format.startswith("fp8")
    if fp8 and q.swizzled:
        q = unswizzle(q)
    out: Dict[str, Any] = {}
    for name in ("rowwise", "columnwise"):
        part = q.parts.get(name)
        out[f"{name}_data"] = None if part is None else _data(q, part, layout, name)
        out[f"{name}_scale_inv"] = None if part is None else _scale_inv(q, part, layout, name)
        if q.format == "nvfp4":
            out[f"amax_{name}"] = None if part is None else part.amax
            if part is not None and part.amax is None:
                raise Error(
                    f"the {name} part of q has a decode scale, expected an amax, which TransformerEngine stores: 2688 times it"
                )
    out.update({"is_2D_scaled": layout is _FP8_TILES} if fp8 else {"with_gemm_swizzled_scales": q.swizzled})
    return out


def _data(q: QTensor, part: Part, layout: _Layout, name: str) -> Any:
    codes = part.codes.reshape(code_shape(q.format, q.shape, name))
    return _whole(codes.T if layout is _MXFP8 and name == "columnwise" else codes)


def _scale_inv(q: QTensor, part: Part, layout: _Layout, name: str) -> Any:
    matrix = _scale_matrix(layout, q.shape, name)
    stored = _stored(layout, matrix, name)
    scales = _whole(part.scales)
    if q.swizzled or (stored == matrix and name not in layout.transposed):
        return scales.reshape(stored)
    out = q._kind.zeros(stored, "float32" if q.format.startswith("fp8") else "uint8", q._device)
    inside = out.T if name in layout.transposed else out
    inside[: matrix[0], : matrix[1]] = scales.reshape(matrix)
    return out


def from_transformer_engine(
    format: str,
    stored: Mapping[str, Any],
    *,
    dtype: Any = "float32",
    scaling: Optional[str] = None,
    hadamard: Optional[Dict[str, int]] = None,
) -> QTensor:
    """A quantized matrix from tensors as TransformerEngine stores them, by the names that to_transformer_engine gives. Of one of
    its own tensors get_metadata() has them:

        from_transformer_engine("mxfp8_e4m3", tensor.get_metadata(), dtype=tensor.dtype)

    stored: other names than those are not looked at.
    dtype: what the result is dequantized to.
    scaling: "16x16" for NVFP4 in square tiles.
    hadamard: the mask of a part whose values were transformed, {"columnwise": 0xD7E8}.
    """
    quantized_format(format)
    fp8 = format.startswith("fp8")
    scaling = scaling or (
        "1x16" if format == "nvfp4" else "1x32" if not fp8 else "128x128" if stored.get("is_2D_scaled") else "1x128"
    )
    layout = _layout(format, scaling, "format")
    swizzled = not fp8 and bool(stored.get("with_gemm_swizzled_scales"))
    shape: Tuple[int, ...] = ()
    parts: Dict[str, Part] = {}
    for name in ("rowwise", "columnwise"):
        data, scale_inv = stored.get(f"{name}_data"), stored.get(f"{name}_scale_inv")
        if data is None:
            continue
        codes, found = _codes(data, layout, name)
        if shape and found != shape:
            raise Error(f"columnwise_data is of a matrix {found}, but rowwise_data of one {shape}")
        shape = found
        _check_multiples(layout, shape, f"the matrix of {name}_data")
        parts[name] = Part(
            codes,
            _scales(scale_inv, layout, shape, name, swizzled),
            stored.get(f"amax_{name}"),
            None,
            (hadamard or {}).get(name),
        )
    return QTensor.from_parts(
        format,
        shape,
        rowwise=parts.get("rowwise"),
        columnwise=parts.get("columnwise"),
        scaling=scaling,
        swizzled=swizzled,
        dtype=dtype,
    )


def _codes(data: Any, layout: _Layout, name: str) -> Tuple[Any, Tuple[int, ...]]:
    """Codes of a part in K-major rows, and the shape of the matrix. Leading dimensions are rows."""
    if kind_of(data).name == "dlpack" or len(data.shape) < 2:
        raise Error(f"{name}_data is a {type(data).__name__} of shape {tuple(data.shape)}, expected a matrix of numpy or torch")
    per_byte = 2 if layout.scaling in ("1x16", "16x16") else 1
    if name == "rowwise" or layout is _MXFP8:
        data = data.reshape(count(tuple(data.shape[:-1])), data.shape[-1])
        rows, cols = data.shape[0], data.shape[1] * per_byte
    else:
        data = data.reshape(data.shape[0], count(tuple(data.shape[1:])))
        rows, cols = data.shape[1] * per_byte, data.shape[0]
    return (_whole(data.T) if layout is _MXFP8 and name == "columnwise" else data), (rows, cols)


def _scales(scale_inv: Any, layout: _Layout, shape: Tuple[int, ...], name: str, swizzled: bool) -> Any:
    matrix = _scale_matrix(layout, shape, name)
    expected = _stored(layout, matrix, name)
    if scale_inv is None or tuple(scale_inv.shape) != expected:
        got = "None" if scale_inv is None else f"of shape {tuple(scale_inv.shape)}"
        raise Error(f"{name}_scale_inv is {got}, expected {expected} for a matrix {shape}")
    if swizzled:
        return scale_inv.reshape(-1)
    if expected == matrix and name not in layout.transposed:
        return scale_inv
    return _whole((scale_inv.T if name in layout.transposed else scale_inv)[: matrix[0], : matrix[1]])


def _whole(array: Any) -> Any:
    """An array of bytes or of float32, copied where it is not row-major without gaps."""
    kind = kind_of(array)
    memory = kind.memory(array, "the array")
    if memory.dtype not in ("float32", "uint8"):
        array = kind.view(array, "uint8")
    if memory.gapless:
        return array
    out = kind.empty(memory.shape, "float32" if memory.dtype == "float32" else "uint8", memory.device)
    out[...] = array
    return out
