"""Names of formats and options, and the element types of numpy, ml_dtypes and torch that stand for them."""
from typing import Any, Dict, Optional

from . import _raw
from ._library import Error

FORMATS: Dict[str, int] = _raw.FAMILIES["mxq_format"]
FORMAT_NAMES = {value: name for name, value in FORMATS.items()}
SCALINGS: Dict[str, int] = _raw.FAMILIES["mxq_scaling"]
PARTS = {"rowwise": _raw.MXQ_PART_ROWWISE, "columnwise": _raw.MXQ_PART_COLUMNWISE}

# The dtype of plain formats in numpy, ml_dtypes and torch, and their size in bytes.
PLAIN = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8, "uint64": 8, "uint8": 1}
FORMAT_OF_DTYPE = {dtype: FORMATS[name] for name, dtype in PLAIN.items()}

# Blocks of rows that go with square tiles of weights.
ROW_SCALINGS = {"32x32": "1x32", "128x128": "1x128", "16x16": "1x16"}

# The dtype of one byte of codes, where there is one: 6 bits have none, and 4 bits have one in torch alone.
CODE_DTYPES = {
    "mxfp8_e4m3": "float8_e4m3fn",
    "mxfp8_e5m2": "float8_e5m2",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "mxfp4": "float4_e2m1fn_x2",
    "nvfp4": "float4_e2m1fn_x2",
}


def scale_dtype(format: str) -> str:
    """The dtype of scales in memory: E8M0 for MX, E4M3 for NVFP4, float32 for FP8."""
    if format.startswith("fp8"):
        return "float32"
    return "float8_e4m3fn" if format == "nvfp4" else "float8_e8m0fnu"


def default_scaling(format: str) -> str:
    if format.startswith("fp8"):
        return "tensor"
    return "1x16" if format == "nvfp4" else "1x32"


def value_of(family: str, name: str, argument: str) -> int:
    """The number of a name, such as "rceil" of mxq_scale_rounding; an unknown name is refused with all known ones."""
    values = _raw.FAMILIES[family]
    if name not in values:
        raise Error(f"{argument} is {name!r}, expected one of {', '.join(values)}")
    return values[name]


def quantized_format(name: str) -> int:
    if name not in FORMATS or name in PLAIN:
        known = ", ".join(format for format in FORMATS if format not in PLAIN)
        raise Error(f"format is {name!r}, expected one of {known}")
    return FORMATS[name]


def dtype_name(dtype: Any) -> Optional[str]:
    """The bare name of a numpy, ml_dtypes or torch dtype, of a scalar type, or of text: "bfloat16"."""
    if isinstance(dtype, str):
        name = dtype
    elif isinstance(dtype, type):
        name = dtype.__name__
    else:
        name = getattr(dtype, "name", None) or str(dtype)
    name = name.rsplit(".", 1)[-1]
    return PLAIN.get(name, name)


def plain_dtype(dtype: Any) -> str:
    """The name of a dtype that a plain tensor can have: float32, float16 or bfloat16."""
    name = dtype_name(dtype)
    if name not in FORMAT_OF_DTYPE:
        raise Error(f"dtype is {dtype!r}, expected float32, float16 or bfloat16")
    return name
