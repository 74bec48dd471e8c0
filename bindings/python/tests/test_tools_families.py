"""Files shaped like those of gpt-oss and ModelOpt, packed and read by code of these projects' packages, load bit for bit.

pip install nvidia-modelopt transformers; pip install --no-deps gpt-oss    (its reader needs torch and safetensors alone)
"""

import mxq
import numpy as np
import pytest

torch = pytest.importorskip("torch")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="the tools need ml_dtypes and rich")
pytest.importorskip("rich", reason="the tools need ml_dtypes and rich")
files = pytest.importorskip("safetensors.torch")
from mxq.tools import compare, quantize, reader, stored  # noqa: E402
from test_tools import save  # noqa: E402


def module(name):
    """A module of a package that may not be here, or that lacks one of its own."""
    return pytest.importorskip(name, exc_type=ImportError)


def found(path):
    return {one.name: one for one in stored.find(reader.open_checkpoint(path))}


def weight(*shape, seed=0):
    """BF16 values over several binades, with a block of zeros."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape, "float32") * 2.0 ** rng.integers(-8, 4, (*shape[:-1], 1))
    x[..., 0, :32] = 0
    return torch.from_numpy(x).to(torch.bfloat16)


def bits(tensor):
    return tensor.contiguous().view(torch.int16 if tensor.element_size() == 2 else torch.int32).numpy()


def same_values(path, name, wanted, negative_zeros=True):
    """The values of a tensor of a file are those of a package, bit for bit. negative_zeros: False where the package has none."""
    values = torch.from_numpy(np.ascontiguousarray(stored.values(found(path)[name]))).to(wanted.dtype)
    values = values if negative_zeros else values + 0.0
    assert tuple(values.shape) == tuple(wanted.shape) and np.array_equal(bits(values), bits(wanted))
    assert torch.count_nonzero(wanted) > wanted.numel() / 5


# ---- ModelOpt --------------------------------------------------------------------------------------------------------


def test_modelopt_nvfp4_loads_with_the_bits_that_modelopt_gives(tmp_path):
    qtensor = module("modelopt.torch.quantization.qtensor.nvfp4_tensor").NVFP4QTensor
    w = weight(256, 512)
    packed, scales, above = qtensor.quantize(w.clone(), 16)
    tensors = {"m.weight": packed._quantized_data, "m.weight_scale": scales, "m.weight_scale_2": above}
    files.save_file(tensors, tmp_path / "m.safetensors")
    one = found(tmp_path / "m.safetensors")["m.weight"]
    assert (one.family, one.format, one.scaling, one.convert) == ("ModelOpt", "nvfp4", "1x16", "")
    # In double precision, which ModelOpt rounds once; in float32 it rounds the product of the scales, too.
    values = packed.dequantize(torch.float32, scale=scales.double(), double_scale=above.double(), block_sizes={-1: 16})
    same_values(tmp_path / "m.safetensors", "m.weight", values, negative_zeros=False)  # its table has 0 for the code of -0


def test_modelopt_reads_what_is_written_in_its_layout(tmp_path):
    qtensor = module("modelopt.torch.quantization.qtensor.nvfp4_tensor").NVFP4QTensor
    w = weight(256, 512, seed=1)
    files.save_file({"m.weight": w}, tmp_path / "m.safetensors")
    quantize.run(tmp_path / "m.safetensors", tmp_path / "out", quantize.recipe("modelopt", "nvfp4"))
    made = files.load_file(tmp_path / "out/m.safetensors")
    packed = qtensor(w.shape, w.dtype, made["m.weight"])
    scale, above = made["m.weight_scale"], made["m.weight_scale_2"]
    values = packed.dequantize(torch.float32, scale=scale, double_scale=above, block_sizes={-1: 16})
    same_values(tmp_path / "out", "m.weight", values, negative_zeros=False)


def test_modelopt_mx_formats_load_with_the_bits_that_modelopt_gives(tmp_path):
    mxfp8 = module("modelopt.torch.quantization.qtensor.mxfp8_tensor").MXFP8QTensor
    mxfp4 = module("modelopt.torch.quantization.qtensor.mxfp4_tensor").MXFP4QTensor
    w = weight(128, 256, seed=2)
    eight, scale = mxfp8.quantize(w.clone())
    values = {"e.weight": eight.dequantize(torch.float32, scale=scale)}
    tensors = {"e.weight": eight._quantized_data, "e.weight_scale": scale}
    w[0, :32] = 1  # of a block of zeros its MXFP4 makes a scale that is not a number
    four, scale4 = mxfp4.quantize(w.clone(), 32)
    values["f.weight"] = four.dequantize(torch.float32, scale=scale4, block_sizes={-1: 32})
    tensors |= {"f.weight": four._quantized_data, "f.weight_scale": scale4.reshape(128, 8)}
    files.save_file(tensors, tmp_path / "m.safetensors")
    for name, wanted in values.items():
        same_values(tmp_path / "m.safetensors", name, wanted)
    kinds = {name: (one.format, one.scaling) for name, one in found(tmp_path / "m.safetensors").items()}
    assert kinds == {"e.weight": ("mxfp8_e4m3", "1x32"), "f.weight": ("mxfp4", "1x32")}


# ---- gpt-oss ---------------------------------------------------------------------------------------------------------


def experts(tmp_path, names, count=3, rows=96, cols=128):
    """Codes and scales of every value, as a file of gpt-oss has them, with scales that BF16 can hold."""
    rng = np.random.default_rng(3)
    blocks = torch.from_numpy(rng.integers(0, 256, (count, rows, cols // 32, 16), np.uint8))
    scales = torch.from_numpy(rng.integers(90, 160, (count, rows, cols // 32), np.uint8))
    files.save_file({names[0]: blocks, names[1]: scales}, tmp_path / "m.safetensors")
    return blocks, scales


def test_gpt_oss_loads_with_the_bits_of_its_own_reader(tmp_path):
    weights = module("gpt_oss.torch.weights")
    name = "block.5.mlp.mlp1_weight"
    experts(tmp_path, (name + ".blocks", name + ".scales"))
    values = weights.Checkpoint(str(tmp_path), torch.device("cpu")).get(name)
    assert (found(tmp_path)[name].format, found(tmp_path)[name].shape) == ("mxfp4", (3, 96, 128))
    same_values(tmp_path, name, values)


def test_gpt_oss_loads_with_the_bits_of_transformers(tmp_path):
    mxfp4 = module("transformers.integrations.mxfp4")
    name = "model.layers.0.mlp.experts.gate_up_proj"
    blocks, scales = experts(tmp_path, (name + "_blocks", name + "_scales"))
    values = mxfp4.convert_moe_packed_tensors(blocks, scales)
    assert values.shape == (3, 128, 96)  # experts, inputs, outputs
    same_values(tmp_path, name, values)


def test_transformers_reads_what_is_written_in_the_layout_of_gpt_oss(tmp_path):
    mxfp4 = module("transformers.integrations.mxfp4")
    name = "model.layers.0.mlp.experts.down_proj"
    x = weight(3, 128, 96, seed=4)
    files.save_file({name: x}, tmp_path / "m.safetensors")
    quantize.run(tmp_path / "m.safetensors", tmp_path / "out", quantize.recipe("gpt-oss", "mxfp4"))
    made = files.load_file(tmp_path / "out/m.safetensors")
    values = mxfp4.convert_moe_packed_tensors(made[name + "_blocks"], made[name + "_scales"])
    same_values(tmp_path / "out", name, values)
    row = next(iter(compare.compare(tmp_path / "m.safetensors", tmp_path / "out")))
    assert 15 < row["sqnr_db"] < 25
    assert row["sqnr_db"] == pytest.approx(mxq.quantize(x.mT.contiguous(), "mxfp4").sqnr(x.mT.contiguous()), abs=1e-2)


def test_names_of_gpt_oss_need_no_package(tmp_path):
    q = mxq.quantize(np.random.default_rng(5).standard_normal((2, 32, 64), "float32"), "mxfp4")
    for name, codes, scales in (("b.0.mlp1_weight", ".blocks", ".scales"), ("m.experts.up", "_blocks", "_scales")):
        save(tmp_path / "m.safetensors", {name + codes: q.rowwise.codes.reshape(2, 32, 2, 16), name + scales: q.rowwise.scales})
        one = found(tmp_path / "m.safetensors")[name]
        assert one.family == "gpt-oss" and stored.load(one).dequantize().tobytes() == q.dequantize().tobytes()
        values = stored.values(one)
        assert values.shape == ((2, 32, 64) if codes == ".blocks" else (2, 64, 32))
