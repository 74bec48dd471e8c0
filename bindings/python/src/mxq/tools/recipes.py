"""mxq-quantize recipes FILE: what formats and scalings cost on the weights of a checkpoint, in bytes and in decibels.

A file that has a layer of experts with activations, as tests/data/moe.safetensors does, also gets the decibels of the layer's
output: tokens, group_ends (the rows up to which each expert's tokens go), and for up and down weight (E, R, C) and bias (E, R).
Its activations are BF16, GELU is between up and down, and products are of double precision.
"""

import math
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy

from .. import amax, convert, quantize
from .families import MATRICES, STACKS, included, kept
from .layouts import power_of_two_amax
from .measure import sqnr
from .reader import Checkpoint, open_checkpoint, read_config, refuse
from .stored import PLAIN, Stored, array, find

Row = Dict[str, Any]
_SLICE = 1 << 20


class Way(NamedTuple):
    """A format with its scaling and options of quantize()."""

    format: str
    scaling: str
    note: str = ""
    options: Dict[str, Any] = {}


_EACH = {"scope": "expert"}
WAYS = [
    Way("mxfp8_e4m3", "1x32"),
    Way("mxfp8_e4m3", "1x32", "scales rounded down", {"scale_rounding": "floor"}),
    Way("mxfp8_e4m3", "32x32"),
    Way("mxfp8_e5m2", "1x32"),
    Way("mxfp6_e2m3", "1x32"),
    Way("mxfp6_e3m2", "1x32"),
    Way("fp8_e4m3", "tensor", "a scale for each expert", _EACH),
    Way("fp8_e4m3", "row"),
    Way("fp8_e4m3", "1x128"),
    Way("fp8_e4m3", "128x128"),
    Way("nvfp4", "1x16", "", _EACH),
    Way("nvfp4", "1x16", "one global scale for all experts"),
    Way("nvfp4", "1x16", "the same, a power of two, as mxq-quantize writes", {"power_of_two": True}),
    Way("nvfp4", "1x16", "four over six, MAE", {"four_over_six": "mae", "scale_max": 256, **_EACH}),
    Way("nvfp4", "1x16", "four over six, MSE", {"four_over_six": "mse", "scale_max": 256, **_EACH}),
    Way("nvfp4", "16x16", "", _EACH),
    Way("nvfp4", "16x16", "four over six, MSE", {"four_over_six": "mse", "scale_max": 256, **_EACH}),
    Way("mxfp4", "1x32"),
    Way("mxfp4", "1x32", "scales rounded down", {"scale_rounding": "floor"}),
    Way("mxfp4", "1x32", "scales rounded to even", {"scale_rounding": "even"}),
]


def _quantized(x: Any, way: Way) -> Tuple[Any, int]:
    """The values as float32 and the bytes of codes and scales."""
    options = dict(way.options)
    if x.ndim == 2:
        options.pop("scope", None)
    if options.pop("power_of_two", False):
        options["amax"] = power_of_two_amax(float(amax(x)[0]))
    q = quantize(x, way.format, scaling=way.scaling, **options)
    part = q.part("rowwise")
    return q.dequantize("float32"), q.nbytes + (part.amax.nbytes if part.amax is not None else 0)


def _sums(x: Any, back: Any) -> Tuple[float, float]:
    """The squares of x and of what was lost of it."""
    x, back = convert(x.reshape(-1, x.shape[-1]), "float32").reshape(-1), back.reshape(-1)
    signal = noise = 0.0
    for first in range(0, x.size, _SLICE):
        one, other = (values[first : first + _SLICE].astype(numpy.float64) for values in (x, back))
        signal, noise = signal + float(one @ one), noise + float((one - other) @ (one - other))
    return signal, noise


# ---- The layer -------------------------------------------------------------------------------------------------------


class _Layer:
    """A layer of experts with the activations that reach it."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._arrays = {name: array(checkpoint.entries[name]) for name in self.names() if name != "group_ends"}
        entry = checkpoint.entries["group_ends"]
        with open(entry.path, "rb") as file:
            file.seek(entry.start)
            ends = numpy.frombuffer(file.read(entry.nbytes), numpy.int32)
        self._rows = [slice(int(first), int(last)) for first, last in zip([0, *ends[:-1]], ends)]
        self.wanted = self.output({name: self._arrays[f"{name}.weight"] for name in ("up", "down")}, rounded=False)

    @staticmethod
    def names() -> List[str]:
        return ["tokens", "group_ends", *(f"{name}.{part}" for name in ("up", "down") for part in ("weight", "bias"))]

    def _product(self, x: Any, weight: Any, name: str) -> Any:
        bias = self._arrays[f"{name}.bias"].astype(numpy.float64)
        out = numpy.empty((len(x), weight.shape[1]))
        for expert, rows in enumerate(self._rows):
            out[rows] = x[rows].astype(numpy.float64) @ weight[expert].astype(numpy.float64).T + bias[expert]
        return out

    def output(self, weights: Dict[str, Any], rounded: bool = True) -> Any:
        """What the layer gives with these weights. rounded: the activation in its middle becomes BF16."""
        hidden = self._product(self._arrays["tokens"], weights["up"], "up")
        hidden = hidden * 0.5 * (1 + numpy.frompyfunc(math.erf, 1, 1)(hidden / math.sqrt(2)).astype(numpy.float64))
        if rounded:
            hidden = convert(hidden.astype(numpy.float32), "bfloat16")
        return self._product(hidden, weights["down"], "down")


def _layer(checkpoint: Checkpoint) -> Optional[_Layer]:
    return _Layer(checkpoint) if all(name in checkpoint.entries for name in _Layer.names()) else None


# ---- The table -------------------------------------------------------------------------------------------------------


def _weights(checkpoint: Checkpoint, layer: Sequence[str]) -> List[Stored]:
    """The weights of a checkpoint. layer: the names of those that its layer has."""
    patterns, config = (*MATRICES, *STACKS, *layer), read_config(checkpoint)
    out = [
        one
        for one in find(checkpoint)
        if one.scales is None
        and one.format in PLAIN
        and len(one.shape) in (2, 3)
        and 0 not in one.shape
        and included(patterns, one.name, len(one.shape))
        and not kept(one.name, config)
    ]
    if not out:
        refuse(checkpoint.folder, "tensors", f"a weight of F32, F16 or BF16 named {' or '.join(patterns)}", "none")
    return out


def recipes(path: Path) -> Iterator[Row]:
    """A row for each way: bytes and bits of all weights, their SQNR, and that of the layer's output if the file has a layer."""
    checkpoint = open_checkpoint(path)
    layer = _layer(checkpoint)
    found = _weights(checkpoint, ("up.weight", "down.weight") if layer else ())
    for way in WAYS:
        signal = noise = 0.0
        nbytes = elements = 0
        kept: Dict[str, Any] = {}
        for one in found:
            x = array(one.codes)
            back, size = _quantized(x, way)
            sums = _sums(x, back)
            signal, noise, nbytes, elements = signal + sums[0], noise + sums[1], nbytes + size, elements + x.size
            if layer is not None and one.name in ("up.weight", "down.weight"):
                kept[one.name.split(".")[0]] = back
        row: Row = {"format": way.format, "scaling": way.scaling, "option": way.note, "bytes": nbytes}
        row |= {"bits": round(8 * nbytes / elements, 3), "weights_db": sqnr(signal, noise)}
        if layer is not None:
            lost = layer.wanted - layer.output(kept)
            row["layer_db"] = sqnr(float((layer.wanted**2).sum()), float((lost**2).sum()))
        yield row
