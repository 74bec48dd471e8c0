"""mxq-quantize --device cuda: the files of the CPU, byte for byte. Skipped without torch, ml_dtypes or rich, and most without a
GPU; what is done with torch's tensors is run with those of the CPU, too.

    MXQ_LIBRARY=$PWD/build/src/libmxq.so.0 PYTHONPATH=$PWD/bindings/python/src python3 -m pytest -rs bindings/python/tests/test_tools_cuda.py
"""

import time

import mxq
import numpy as np
import pytest

torch = pytest.importorskip("torch")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="the tools need ml_dtypes and rich")
pytest.importorskip("rich", reason="the tools need ml_dtypes and rich")
from mxq.tools import cli, devices, layouts, measure, quantize, reader  # noqa: E402
from test_tools import checkpoint, name_of, save  # noqa: E402, F401


def reason():
    try:
        devices.Device("cuda")
    except mxq.Error as error:
        return str(error)
    return ""


needs_gpu = pytest.mark.skipif(bool(reason()), reason=reason())


def same_files(a, b):
    names = sorted(path.name for path in a.iterdir())
    assert names == sorted(path.name for path in b.iterdir()) and len(names) > 3
    for name in names:
        if not name.startswith("quantization_report"):
            assert (a / name).read_bytes() == (b / name).read_bytes(), name


def same_reports(a, b):
    assert len(a["tensors"]) == len(b["tensors"]) > 0
    for one, other in zip(a["tensors"], b["tensors"]):
        assert {**one, "sqnr_db": 0} == {**other, "sqnr_db": 0}
        assert other.get("sqnr_db") == pytest.approx(one.get("sqnr_db"), abs=2e-3)


@pytest.mark.skipif(not reason(), reason="a GPU is here")
def test_a_device_that_is_not_there_is_refused_before_anything_is_written(checkpoint, tmp_path):  # noqa: F811
    with pytest.raises(mxq.Error, match="--device cuda: expected"):
        quantize.run(checkpoint, tmp_path / "out", quantize.recipe("deepseek", "fp8_e4m3"), device="cuda")
    assert not (tmp_path / "out.partial").exists()


class Torch(devices.Cuda):
    """The code of the device with torch's tensors of the CPU."""

    _device, chunk_bytes = "cpu", 1 << 15

    @staticmethod
    def check():
        """torch is here."""

    def _open(self):
        return mxq.Context("cpu", threads=1)


@pytest.mark.parametrize("row", [row for row in layouts.LAYOUTS if row.rank == 2 and row.layout != "modelopt"], ids=name_of)
def test_tensors_of_torch_give_the_files_of_numpy(checkpoint, tmp_path, monkeypatch, row):  # noqa: F811
    monkeypatch.setitem(devices.KINDS, "torch", Torch)
    chosen = quantize.recipe(row.layout, row.format, row.scaling, measure="all")
    monkeypatch.setattr(measure, "_HALF_STEP", dict.fromkeys(measure._HALF_STEP, 0.99))  # so that there are clipped elements
    reports = [quantize.run(checkpoint, tmp_path / device, chosen, device=device) for device in ("cpu", "torch")]
    same_files(tmp_path / "cpu", tmp_path / "torch")
    same_reports(*reports)
    assert any(one.get("clipped") for one in reports[0]["tensors"])


@needs_gpu
@pytest.mark.parametrize("row", [row for row in layouts.LAYOUTS if row.rank == 2], ids=name_of)
@pytest.mark.parametrize("measure", ["sample", "all", "none"])
def test_cuda_writes_the_files_of_the_cpu(checkpoint, tmp_path, row, measure):  # noqa: F811
    chosen = quantize.recipe(row.layout, row.format, row.scaling, measure=measure)
    reports = [quantize.run(checkpoint, tmp_path / device, chosen, device=device) for device in ("cpu", "cuda")]
    same_files(tmp_path / "cpu", tmp_path / "cuda")
    same_reports(*reports)


@pytest.mark.parametrize("device", ["torch", pytest.param("cuda", marks=needs_gpu)])
def test_experts_of_gpt_oss_and_sources_of_fp8(tmp_path, monkeypatch, device):
    monkeypatch.setitem(devices.KINDS, "torch", Torch)
    rng = np.random.default_rng(1)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    (tmp_path / "experts").mkdir(), (tmp_path / "fp8").mkdir()
    save(tmp_path / "experts/m.safetensors", {name: rng.standard_normal((3, 64, 96), "float32").astype(ml_dtypes.bfloat16)})
    fp8 = mxq.quantize(rng.standard_normal((200, 256), "float32"), "fp8_e4m3", scaling="128x128")
    tensors, types = {}, {}
    for weight in ("a.weight", "lm_head.weight"):
        tensors |= {weight: fp8.rowwise.codes, weight + "_scale_inv": fp8.rowwise.scales}
        types[weight] = "F8_E4M3"
    save(tmp_path / "fp8/m.safetensors", tensors, types)
    for folder, chosen in (("experts", quantize.recipe("gpt-oss", "mxfp4")), ("fp8", quantize.recipe("modelopt", "nvfp4"))):
        outs = [tmp_path / f"{folder}-{device}" for device in ("cpu", device)]
        reports = [quantize.run(tmp_path / folder, out, chosen, device=out.name.split("-")[1]) for out in outs]
        same_files(*outs)
        same_reports(*reports)


@needs_gpu
def test_chunks_of_a_large_tensor_and_the_rate(tmp_path, capsys):
    """A tensor of several chunks for each thread; prints the rate of both devices."""
    x = np.random.default_rng(2).standard_normal((8192, 1024), "float32").astype(ml_dtypes.bfloat16)
    big = np.concatenate([x] * 4, axis=1)
    (tmp_path / "in").mkdir()
    save(tmp_path / "in/m.safetensors", {f"{i}.weight": big for i in range(8)})
    said = []
    for device in ("cpu", "cuda", "cuda"):
        out, begin = tmp_path / f"{device}-{len(said)}", time.perf_counter()
        quantize.run(tmp_path / "in", out, quantize.recipe("compressed-tensors", "nvfp4"), device=device)
        said.append(f"{device}: {8 * big.nbytes / 1e9 / (time.perf_counter() - begin):.2f} GB/s")
    same_files(tmp_path / "cpu-0", tmp_path / "cuda-1")
    same_files(tmp_path / "cpu-0", tmp_path / "cuda-2")
    assert len(reader.open_checkpoint(tmp_path / "cuda-1").entries) == 24
    with capsys.disabled():
        print("\n" + ", ".join(said), f"of {8 * big.nbytes / 1e6:.0f} MB of BF16 with files")


@needs_gpu
def test_the_command_line_takes_the_device(checkpoint, tmp_path, capsys):  # noqa: F811
    assert cli.main([str(checkpoint), str(tmp_path / "out"), "--format", "nvfp4", "--device", "cuda", "--threads", "2"]) == 0
    assert "3 tensors quantized" in capsys.readouterr().out
