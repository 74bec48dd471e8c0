"""The package compressed-tensors decompresses what mxq-quantize writes, to the bits that mxq.dequantize gives."""

import json

import mxq
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("compressed_tensors")
pytest.importorskip("rich", reason="the tools need ml_dtypes and rich")
ml_dtypes = pytest.importorskip("ml_dtypes")
from compressed_tensors.compressors.base import BaseCompressor  # noqa: E402
from compressed_tensors.quantization import QuantizationConfig  # noqa: E402
from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES  # noqa: E402
from mxq.tools import layouts, quantize, reader  # noqa: E402
from mxq.tools.writer import FileWriter, Output  # noqa: E402

ROWS = [row for row in layouts.LAYOUTS if row.layout == "compressed-tensors"]
PRESETS = {
    ("mxfp8_e4m3", "1x32"): "MXFP8A16",
    ("mxfp4", "1x32"): "MXFP4A16",
    ("nvfp4", "1x16"): "NVFP4A16",
    ("nvfp4", "16x16"): "NVFP4A16",
    ("fp8_e4m3", "row"): "FP8_DYNAMIC",
    ("fp8_e4m3", "128x128"): "FP8_BLOCK",
}
TORCH = {"U8": torch.uint8, "F8_E4M3": torch.float8_e4m3fn, "F32": torch.float32}


def tensor(entry):
    return torch.from_numpy(reader.read_bytes(entry)).view(TORCH[entry.dtype]).reshape(entry.shape)


def quantized(folder, row, x):
    """The entries of a quantized weight and the config block."""
    file = FileWriter(folder / "m.safetensors", [Output("m.weight", "BF16", x.shape)], {})
    file.add("m.weight", x)
    file.finish()
    quantize.run(folder / "m.safetensors", folder / "out", quantize.recipe(row.layout, row.format, row.scaling))
    made = reader.open_checkpoint(folder / "out")
    block = json.loads((folder / "out/config.json").read_text())["quantization_config"]
    return {name[2:]: entry for name, entry in made.entries.items()}, block


def weight(rows, cols):
    """Values over many binades: blocks of large and of tiny values, and one of zeros."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, cols), "float32") * 2.0 ** rng.integers(-12, 6, (rows // 16, 1)).repeat(16, 0)
    x[0, :32] = 0
    return x.astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.format}-{row.scaling}")
def test_decompressed_bits_are_those_of_dequantize(tmp_path, row):
    x = weight(256, 384)
    entries, block = quantized(tmp_path, row, x)
    amax = layouts.power_of_two_amax(float(np.abs(x.astype("float32")).max())) if row.format == "nvfp4" else None
    values = mxq.quantize(x, row.format, scaling=row.scaling, amax=amax).dequantize("float32")
    scheme = QuantizationConfig.model_validate(block).config_groups["group_0"]
    compressor = BaseCompressor.get_value_from_registry(block["format"])
    found = compressor.decompress({name: tensor(entry) for name, entry in entries.items()}, scheme)["weight"]
    want = torch.from_numpy(values).to(found.dtype)
    assert found.shape == (256, 384) and found.dtype in (torch.bfloat16, torch.float32)
    assert np.count_nonzero(values) > 80_000
    bits = torch.int16 if found.dtype == torch.bfloat16 else torch.int32
    assert torch.equal(found.contiguous().view(bits), want.view(bits))


@pytest.mark.parametrize("key", PRESETS, ids=lambda key: "-".join(key))
def test_the_config_block_is_the_preset_of_the_package(key):
    row = layouts.choose("compressed-tensors", *key)
    scheme = QuantizationConfig.model_validate(layouts.config_block(row, ["lm_head"])).config_groups["group_0"]
    preset = PRESET_SCHEMES[PRESETS[key]]
    for name in ("weights", "input_activations"):
        wanted, got = preset.get(name), getattr(scheme, name)
        assert (wanted is None) == (got is None)
        fields = ("num_bits", "type", "symmetric", "strategy", "group_size", "block_structure", "dynamic", "scale_dtype")
        assert wanted is None or [getattr(got, field) for field in fields] == [getattr(wanted, field) for field in fields]
