"""Layouts of quantized checkpoints: names, types and shapes of what a weight becomes, and the config block that tells of it.

Of a weight (R, C) named X.weight, and for gpt-oss experts (E, C, R) named X:

    layout              format             codes                            scales
    compressed-tensors  mxfp8_e4m3         X.weight         (R, C)          X.weight_scale      (R, C/32)  E8M0
                        mxfp4              X.weight_packed  (R, C/2)        X.weight_scale      (R, C/32)  E8M0
                        nvfp4              X.weight_packed  (R, C/2)        X.weight_scale      (R, C/16)  E4M3
                                                                            X.weight_global_scale (1), which divides
                        fp8_e4m3           X.weight         (R, C)          X.weight_scale      (R, 1), (1) or (R/128, C/128)
    modelopt            mxfp8_e4m3, nvfp4, fp8_e4m3, as above with X.weight; nvfp4 has X.weight_scale_2 (), which multiplies;
                        fp8_e4m3 has scales (R) or (R/128, 1, C/128, 1)
    deepseek            fp8_e4m3           X.weight         (R, C)          X.weight_scale_inv  (R/128, C/128)
    gpt-oss             mxfp4              X_blocks (E, R, C/32, 16)        X_scales            (E, R, C/32)  E8M0
"""

from fnmatch import fnmatchcase
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy

from .._library import Error
from .writer import Output

Shape = Tuple[int, ...]
FLOATS = ("F32", "F16", "BF16")
TILE_ROWS = {"16x16": 16, "128x128": 128}  # rows that share a scale; where not listed, one


class Layout(NamedTuple):
    """How weights of one format and scaling are stored.

    codes, scales, global_scale: what follows the stem of a weight's name; see stem().
    scale_shape: the shape of the scales, from words for their sizes; see scale_shape().
    multiples: what rows and columns are multiples of.
    """

    layout: str
    format: str
    scaling: str
    codes: str
    scales: str
    scale_shape: str
    multiples: Tuple[int, int]
    config: Dict[str, Any]
    global_scale: str = ""
    rank: int = 2


def _weights(bits: int, strategy: str, group: Optional[int] = None, **more: Any) -> Dict[str, Any]:
    return {
        "num_bits": bits,
        "type": "float",
        "symmetric": True,
        "dynamic": False,
        "strategy": strategy,
        "group_size": group,
        **more,
    }


def _group(format: str, weights: Dict[str, Any], activations: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    return {"format": format, "weights": weights, "input_activations": activations}


_U8 = {"scale_dtype": "torch.uint8"}
_MXFP8 = _group("mxfp8-quantized", _weights(8, "group", 32, **_U8))
_MXFP4 = _group("mxfp4-pack-quantized", _weights(4, "group", 32, **_U8))
_NVFP4 = _group("nvfp4-pack-quantized", _weights(4, "tensor_group", 16, scale_dtype="torch.float8_e4m3fn"))
_TOKENS = {**_weights(8, "token"), "dynamic": True}
_FP8 = {
    "row": _group("float-quantized", _weights(8, "channel"), _TOKENS),
    "tensor": _group("float-quantized", _weights(8, "tensor"), _TOKENS),
    "128x128": _group(
        "float-quantized", _weights(8, "block", block_structure=[128, 128]), {**_weights(8, "group", 128), "dynamic": True}
    ),
}

_W4A16 = {"quant_algo": "W4A16_NVFP4", "group_size": 16}
_PB_WO = {"quant_algo": "FP8_PB_WO", "group_size": 128}

# The first row of a layout and a format is what is taken where no scaling is asked for.
_CT, _MO = "compressed-tensors", "modelopt"
LAYOUTS: List[Layout] = [
    Layout(_CT, "mxfp8_e4m3", "1x32", "weight", "weight_scale", "matrix", (1, 32), _MXFP8),
    Layout(_CT, "mxfp4", "1x32", "weight_packed", "weight_scale", "matrix", (1, 32), _MXFP4),
    Layout(_CT, "nvfp4", "1x16", "weight_packed", "weight_scale", "matrix", (1, 16), _NVFP4, "weight_global_scale"),
    Layout(_CT, "nvfp4", "16x16", "weight_packed", "weight_scale", "matrix", (1, 16), _NVFP4, "weight_global_scale"),
    Layout(_CT, "fp8_e4m3", "row", "weight", "weight_scale", "column", (1, 1), _FP8["row"]),
    Layout(_CT, "fp8_e4m3", "tensor", "weight", "weight_scale", "matrix", (1, 1), _FP8["tensor"]),
    Layout(_CT, "fp8_e4m3", "128x128", "weight", "weight_scale", "matrix", (1, 1), _FP8["128x128"]),
    Layout(_MO, "nvfp4", "1x16", "weight", "weight_scale", "matrix", (1, 16), _W4A16, "weight_scale_2"),
    Layout(_MO, "nvfp4", "16x16", "weight", "weight_scale", "matrix", (1, 16), _W4A16, "weight_scale_2"),
    Layout(_MO, "mxfp8_e4m3", "1x32", "weight", "weight_scale", "matrix", (1, 32), {"quant_algo": "MXFP8", "group_size": 32}),
    Layout(_MO, "fp8_e4m3", "row", "weight", "weight_scale", "matrix", (1, 1), {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}),
    Layout(_MO, "fp8_e4m3", "128x128", "weight", "weight_scale", "tiles", (128, 128), _PB_WO),
    Layout("deepseek", "fp8_e4m3", "128x128", "weight", "weight_scale_inv", "matrix", (1, 1), {}),
    Layout("gpt-oss", "mxfp4", "1x32", "_blocks", "_scales", "matrix", (1, 32), {}, "", 3),
]


def choose(layout: str, format: str, scaling: Optional[str]) -> Layout:
    """The row of the table; what is not there is refused with what is."""
    rows = [row for row in LAYOUTS if row.layout == layout]
    for row in rows:
        if row.format == format and scaling in (None, row.scaling):
            return row
    known = ", ".join(f"{row.format} {row.scaling}" for row in rows) or "a layout of " + ", ".join(
        sorted({row.layout for row in LAYOUTS})
    )
    raise Error(f"{layout}: expected {known}, found {format} {scaling or ''}".rstrip())


def matrix(layout: Layout, shape: Shape) -> Tuple[Shape, int, int]:
    """Experts, outputs and inputs of a weight: () or (E), R, C. Layouts of rank 3 have experts (E, inputs, outputs)."""
    rows, cols = (shape[-1], shape[-2]) if layout.rank == 3 else (shape[-2], shape[-1])
    return shape[:-2], rows, cols


def unfit(layout: Layout, dtype: str, shape: Shape) -> str:
    """Why a tensor cannot be stored so, or nothing."""
    if dtype not in FLOATS:
        return f"{dtype} is not one of {', '.join(FLOATS)}"
    if len(shape) == 2 < layout.rank:
        return "2 dimensions, not 3: this layout has stacks of experts; --experts stack makes them of X.experts.0.up.weight, ..."
    if len(shape) not in (layout.rank, 3):
        return f"{len(shape)} dimensions, not {layout.rank}"
    experts, rows, cols = matrix(layout, shape)
    if 0 in shape:
        return "no elements"
    tile = TILE_ROWS.get(layout.scaling, 1) if experts else 1
    for size, multiple, what in ((rows, max(layout.multiples[0], tile), "rows"), (cols, layout.multiples[1], "columns")):
        if size % multiple:
            return f"{size} {what} are no multiple of {multiple}"
    return ""


def _up(size: int, tile: int) -> int:
    return -(-size // tile)


def scale_shape(layout: Layout, experts: Shape, rows: int, cols: int) -> Shape:
    """The shape of the scales as they are stored."""
    if layout.scaling == "tensor":
        return (1,)
    if layout.scaling == "row":
        return (*experts, rows, 1) if layout.scale_shape == "column" else (*experts, rows)
    if layout.scaling == "128x128":
        tiles = _up(rows, 128), _up(cols, 128)
        return (*experts, tiles[0], 1, tiles[1], 1) if layout.scale_shape == "tiles" else (*experts, *tiles)
    return (*experts, rows, cols // (16 if layout.format == "nvfp4" else 32))


def stem(layout: Layout, name: str) -> str:
    """What the names of a weight's codes and scales begin with. A weight may be named X.weight or, as experts are, X."""
    base = name[: -len(".weight")] if name.endswith(".weight") else name
    return base if layout.rank == 3 else base + "."


def outputs(layout: Layout, name: str, experts: Shape, rows: int, cols: int) -> List[Output]:
    """The tensors that a weight becomes: codes, scales, and the scale above them if there is one."""
    four_bits = layout.format in ("mxfp4", "nvfp4")
    codes: Shape = (*experts, rows, cols // 32, 16) if layout.rank == 3 else (*experts, rows, cols // 2 if four_bits else cols)
    types, base = {"nvfp4": "F8_E4M3", "fp8_e4m3": "F32"}, stem(layout, name)
    out = [
        Output(base + layout.codes, "U8" if four_bits else "F8_E4M3", codes),
        Output(base + layout.scales, types.get(layout.format, "U8"), scale_shape(layout, experts, rows, cols)),
    ]
    if layout.global_scale:
        out.append(Output(base + layout.global_scale, "F32", (1,) if layout.layout == _CT else ()))
    return out


def power_of_two_amax(amax: float) -> float:
    """The least amax from `amax` on whose NVFP4 global scale is a power of two; 2.2e38 for one beyond.

    Readers multiply by the global scale, divide by its reciprocal, or fold it into block scales, each with roundings of its
    own. With a power of two all of them get the same bits. Block scales are E4M3 numbers, whose precision is the same one
    binade lower.
    """
    scale = 2688 / amax if 0 < amax < float("inf") else 1.0
    _, exponent = numpy.frexp(scale)
    return float(2688 * 2.0 ** -max(min(int(exponent) - 1, 126), -116))


def stored_global_scale(layout: Layout, amax: float) -> Any:
    """The scale above NVFP4's block scales as the layout stores it: what multiplies them, or for compressed-tensors divides."""
    decode = numpy.float32(amax) / numpy.float32(2688)
    return numpy.asarray(numpy.float32(1) / decode if layout.layout == _CT else decode)


GPT_OSS_PLAIN = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]


def config_block(layout: Layout, plain: List[str]) -> Dict[str, Any]:
    """The quantization_config of config.json. plain: modules with weights that were not quantized."""
    if layout.layout == _CT:
        group = {"targets": ["Linear"], "output_activations": None, **layout.config}
        return {
            "quant_method": "compressed-tensors",
            "format": layout.config["format"],
            "quantization_status": "compressed",
            "config_groups": {"group_0": group},
            "ignore": plain,
            "kv_cache_scheme": None,
        }
    if layout.layout == _MO:
        return {
            "quant_method": "modelopt",
            **layout.config,
            "kv_cache_quant_algo": None,
            "ignore": plain,
            "producer": {"name": "mxq-quantize"},
        }
    if layout.layout == "gpt-oss":
        more = [name for name in plain if not any(fnmatchcase(f"{name}.", f"{known}.*") for known in GPT_OSS_PLAIN)]
        return {"quant_method": "mxfp4", "modules_to_not_convert": GPT_OSS_PLAIN + more}
    return {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": plain,
    }


def modelopt_file(block: Dict[str, Any]) -> Dict[str, Any]:
    """The content of hf_quant_config.json, which ModelOpt's readers take with config.json or instead of it."""
    fields = {name: block[name] for name in ("quant_algo", "kv_cache_quant_algo", "group_size") if name in block}
    return {
        "producer": {"name": "modelopt", "version": "mxq-quantize"},
        "quantization": {**fields, "exclude_modules": block["ignore"]},
    }
