"""Public layouts that the reader takes or refuses, as docs/checkpoints.md says."""

import mxq
import numpy as np
import pytest

pytest.importorskip("ml_dtypes", reason="the tools need ml_dtypes and rich")
pytest.importorskip("rich", reason="the tools need ml_dtypes and rich")
from mxq.tools import compare, quantize, reader, stored  # noqa: E402
from test_tools import save  # noqa: E402

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


# ---- DeepSeek-V4.1 ---------------------------------------------------------------------------------------------------

# Names, types and shapes as in the headers of its files, with fewer rows and columns.
V41 = {
    "layers.0.attn.wq_b.weight": ("F8_E4M3", (320, 160)), "layers.0.attn.wq_b.scale": ("F8_E8M0", (10, 5)),
    "layers.0.ffn.experts.0.w1.weight": ("I8", (48, 64)), "layers.0.ffn.experts.0.w1.scale": ("F8_E8M0", (48, 4)),
    "layers.1.engram.embed.weight": ("F8_E4M3", (96, 256)), "layers.1.engram.embed.scale": ("F8_E8M0", (96, 8)),
}


def v41(folder):
    """A file with codes of all finite values, and its arrays by names."""
    rng = np.random.default_rng(0)
    tensors = {}
    for name, (dtype, shape) in V41.items():
        codes = rng.integers(0, 0x7F, shape, np.uint8) | (rng.integers(0, 2, shape, np.uint8) << 7)
        tensors[name] = rng.integers(110, 140, shape, np.uint8) if dtype == "F8_E8M0" else codes
    save(folder / "m.safetensors", tensors, {name: dtype for name, (dtype, _) in V41.items()})
    return tensors


def scaled(name, tensors, tile):
    """The values of an FP8 tensor, each scale repeated over its tile."""
    import ml_dtypes

    codes = tensors[f"{name}.weight"].view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    scales = 2.0 ** (tensors[f"{name}.scale"].astype(np.float64) - 127)
    return codes * scales.repeat(tile[0], 0).repeat(tile[1], 1)


def test_deepseek_v41_is_read_with_scales_of_32x32(tmp_path):
    tensors = v41(tmp_path)
    found = {one.name: one for one in stored.find(reader.open_checkpoint(tmp_path / "m.safetensors"))}
    assert {name: (one.family, one.format, one.scaling, one.convert) for name, one in found.items()} == {
        "layers.0.attn.wq_b.weight": ("DeepSeek V4", "mxfp8_e4m3", "32x32", ""),
        "layers.0.ffn.experts.0.w1.weight": ("DeepSeek V4", "mxfp4", "1x32", ""),
        "layers.1.engram.embed.weight": ("DeepSeek V4", "mxfp8_e4m3", "1x32", "")}
    for name, tile in (("layers.0.attn.wq_b", (32, 32)), ("layers.1.engram.embed", (1, 32))):
        assert np.array_equal(stored.values(found[f"{name}.weight"]), scaled(name, tensors, tile))
    expert = found["layers.0.ffn.experts.0.w1.weight"]
    bytes_, scales = (tensors[f"layers.0.ffn.experts.0.w1.{part}"] for part in ("weight", "scale"))
    values = np.stack((E2M1[bytes_ & 15], E2M1[bytes_ >> 4]), -1).reshape(48, 128)
    assert np.array_equal(stored.values(expert), values * (2.0 ** (scales.astype(np.float64) - 127)).repeat(32, 1))


def test_deepseek_v41_becomes_another_layout_in_memory(tmp_path):
    state = {name: array.view("int8") if V41[name][0] == "I8" else array for name, array in v41(tmp_path).items()}
    import ml_dtypes

    types = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E8M0": ml_dtypes.float8_e8m0fnu}
    state = {name: array.view(types.get(V41[name][0], array.dtype)) for name, array in state.items()}
    made = mxq.quantize_state_dict(mxq.dequantize_state_dict(state), mxq.recipe("compressed-tensors", "mxfp4"))
    assert made["layers.0.ffn.experts.0.w1.weight_packed"].shape == (48, 64)  # codes of MXFP4 are kept as they are
    values = mxq.dequantize_state_dict(made, "float32")["layers.0.ffn.experts.0.w1.weight"]
    assert np.array_equal(values, mxq.dequantize_state_dict(state, "float32")["layers.0.ffn.experts.0.w1.weight"])


# ---- GGUF ------------------------------------------------------------------------------------------------------------


def gguf_values(blocks, shape, group, scales, scale):
    """The rule of GGUF, element by element: byte j of a group has the elements j and j + group / 2."""
    size = scales * (1 + group // 2)
    out = np.empty(int(np.prod(shape)))
    for b, block in enumerate(blocks.reshape(-1, size)):
        for g in range(scales):
            codes = block[scales + g * group // 2 : scales + (g + 1) * group // 2]
            start = (b * scales + g) * group
            for j, byte in enumerate(codes):
                out[start + j] = E2M1[byte & 15] * scale(block[g])
                out[start + j + group // 2] = E2M1[byte >> 4] * scale(block[g])
    return out.reshape(shape)


def gguf_blocks(format, blocks):
    rng = np.random.default_rng(3)
    out = rng.integers(0, 256, (blocks, 17 if format == "mxfp4" else 36), np.uint8)
    scales = 1 if format == "mxfp4" else 4
    out[:, :scales] = rng.integers(100, 150, (blocks, scales)) if format == "mxfp4" else rng.integers(8, 120, (blocks, scales))
    return out.reshape(-1)


def e4m3(code):
    return 2.0 ** (int(code) // 8 - 7) * (1 + int(code) % 8 / 8)


CASES = [("mxfp4", (6, 96), 18, 32, 1, lambda e: 2.0 ** (int(e) - 127)), ("mxfp4", (2, 3, 32), 6, 32, 1, lambda e: 2.0 ** (int(e) - 127)),
         ("nvfp4", (5, 128), 10, 16, 4, e4m3), ("nvfp4", (2, 3, 64), 6, 16, 4, e4m3)]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("format, shape, count, group, scales, scale", CASES)
def test_blocks_of_gguf_are_sorted_anew(format, shape, count, group, scales, scale, kind):
    blocks = gguf_blocks(format, count)
    wanted = gguf_values(blocks, shape, group, scales, scale)
    given = pytest.importorskip("torch").from_numpy(blocks) if kind == "torch" else blocks
    q = mxq.from_gguf(given, shape, format)
    assert q.shape == shape and np.array_equal(np.asarray(q.dequantize("float32")), wanted)
    if format == "nvfp4":
        assert np.array_equal(np.asarray(mxq.from_gguf(given, shape, format, decode_scale=0.5).dequantize("float32")), wanted / 2)


@pytest.mark.parametrize("format, type_name", [("mxfp4", "MXFP4"), ("nvfp4", "NVFP4")])
def test_gguf_has_the_values_that_its_own_package_gives(format, type_name):
    gguf = pytest.importorskip("gguf")
    kind = getattr(gguf.GGMLQuantizationType, type_name, None)
    if kind is None or kind not in gguf.quants._type_traits:
        pytest.skip(f"this gguf has no {type_name}")
    blocks = gguf_blocks(format, 64)
    values = gguf.quants.dequantize(blocks.reshape(16, -1), kind)
    assert np.array_equal(mxq.from_gguf(blocks, values.shape, format).dequantize("float32"), values)


@pytest.mark.parametrize("blocks, shape, format, says", [
    (np.zeros(34, np.uint8), (2, 33), "mxfp4", "the last a multiple of 32"),
    (np.zeros(33, np.uint8), (2, 32), "mxfp4", r"blocks has 33 elements of uint8, expected 34 bytes \(uint8\) for mxfp4 \(2, 32\)"),
    (np.zeros(34, np.int8), (2, 32), "mxfp4", "34 elements of int8"),
    (np.zeros(34, np.uint8), (64,), "mxfp4", "expected 2 or 3 sizes"),
    (np.zeros(34, np.uint8), (2, 32), "mxfp8_e4m3", "format is 'mxfp8_e4m3', expected 'mxfp4' or 'nvfp4'"),
    (np.zeros(68, np.uint8)[::2], (2, 32), "mxfp4", "make a contiguous copy"),
])
def test_other_blocks_are_refused(blocks, shape, format, says):
    with pytest.raises(mxq.Error, match=says):
        mxq.from_gguf(blocks, shape, format)


# ---- What is refused -------------------------------------------------------------------------------------------------

REFUSED = [
    ({"a.qweight": ("I32", (8, 8))}, "integer quantization: not a format of libmxq"),
    ({"a.weight": ("F8_E4M3", (128, 128)), "a.weight_scale_inv": ("F32", (2, 2))}, "scales have shape [2, 2], which is no scaling of libmxq"),
    ({"a.weight": ("F8_E5M2", (32, 32)), "a.weight_scale": ("F32", (1,))}, "F8_E5M2 without scales that belong to it"),
    ({"a.weight": ("U8", (32, 32)), "a.weight_scale": ("U8", (128, 4))}, "scales have shape [128, 4], not [32, 2]: padded or swizzled"),
    ({"a.weight": ("F8_E4M3", (32, 32))}, "F8_E4M3 without scales that belong to it"),
    ({"a.weight": ("U8", (2, 4, 8)), "a.weight_scale": ("F8_E4M3", (2, 4, 1)), "a.weight_scale_2": ("F32", (2,))},
     "[2] global scales: one operand for each"),
]


@pytest.mark.parametrize("tensors, needs", REFUSED)
def test_what_the_reader_refuses_is_told_with_the_reason(tmp_path, tensors, needs):
    types = {"F32": "float32", "I32": "float32"}
    arrays = {name: np.ones(shape, types.get(dtype, "uint8")) for name, (dtype, shape) in tensors.items()}
    save(tmp_path / "m.safetensors", arrays, {name: dtype for name, (dtype, _) in tensors.items()})
    assert needs in [row["needs"] for row in compare.inspect(tmp_path / "m.safetensors")]
    with pytest.raises(mxq.Error):
        quantize.run(tmp_path / "m.safetensors", tmp_path / "out", quantize.recipe("compressed-tensors", "mxfp4"))
