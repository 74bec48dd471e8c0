"""mxq-quantize: what it writes in every layout, its report, inspect and compare."""

import json
import os
import pty
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import mxq
import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes", reason="the tools need ml_dtypes and rich")
pytest.importorskip("rich", reason="the tools need ml_dtypes and rich")
from mxq.tools import cli, compare, layouts, quantize, reader, stored  # noqa: E402
from mxq.tools.writer import FileWriter, Output  # noqa: E402

TYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "uint8": "U8"}
TWO_D = [row for row in layouts.LAYOUTS if row.rank == 2]


def name_of(row):
    return f"{row.layout}-{row.format}-{row.scaling}"


def save(path, tensors, types={}):
    outputs = [Output(name, types.get(name, TYPES[array.dtype.name]), array.shape) for name, array in tensors.items()]
    file = FileWriter(path, outputs, {"format": "pt"})
    for name, array in tensors.items():
        file.add(name, array)
    file.finish()


def weights():
    rng = np.random.default_rng(0)
    return {
        "model.layers.0.mlp.up.weight": rng.standard_normal((256, 512), "float32").astype(ml_dtypes.bfloat16),
        "model.layers.0.mlp.odd.weight": rng.standard_normal((130, 160), "float32") * 1e-3,
        "model.layers.1.mlp.half.weight": rng.standard_normal((128, 128), "float32").astype("float16"),
        "model.layers.1.mlp.narrow.weight": rng.standard_normal((4, 24), "float32"),
        "model.layers.1.mlp.up.bias": np.ones(256, "float32"),
        "model.norm.weight": np.ones(512, "float32"),
        "lm_head.weight": rng.standard_normal((64, 64), "float32"),
    }


@pytest.fixture
def checkpoint(tmp_path):
    """Two shards with an index, a config and a tokenizer."""
    folder, tensors = tmp_path / "in", weights()
    folder.mkdir()
    shards = {
        f"model-0000{i + 1}-of-00002.safetensors": {
            n: a for n, a in tensors.items() if (f"layers.{i}" in n) or (i and "layers" not in n)
        }
        for i in range(2)
    }
    for file, part in shards.items():
        save(folder / file, part)
    (folder / reader.INDEX_NAME).write_text(
        json.dumps({"weight_map": {n: file for file, part in shards.items() for n in part}})
    )
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    return folder


def expected(row, x):
    """What the library gives for a weight, with the amax of the tools."""
    amax = layouts.power_of_two_amax(float(np.abs(x.astype("float32")).max())) if row.format == "nvfp4" else None
    return mxq.quantize(x, row.format, scaling=row.scaling, amax=amax)


@pytest.mark.parametrize("row", TWO_D, ids=name_of)
def test_a_layout_has_the_bytes_of_the_library_and_loads_back(checkpoint, tmp_path, row):
    out, tensors = tmp_path / "out", weights()
    report = quantize.run(checkpoint, out, quantize.recipe(row.layout, row.format, row.scaling, measure="all"))
    made = reader.open_checkpoint(out)
    assert [file.path.name for file in made.files] == [file.path.name for file in reader.open_checkpoint(checkpoint).files]
    found = {one.name: one for one in stored.find(made)}
    assert set(found) == set(tensors)
    quantized = {one["name"]: one for one in report["tensors"] if "scaling" in one}
    for name, x in tensors.items():
        if name not in quantized:
            assert reader.read_bytes(found[name].codes).tobytes() == x.tobytes() and found[name].scales is None
            continue
        q, loaded = expected(row, x), stored.load(found[name])
        assert loaded.rowwise.codes.tobytes() == q.rowwise.codes.tobytes()
        assert loaded.rowwise.scales.tobytes() == q.rowwise.scales.tobytes()
        assert stored.values(found[name]).tobytes() == q.dequantize("float32").tobytes()
        assert found[name].scaling == ("1x16" if row.scaling == "16x16" else row.scaling) and not found[name].convert
        assert quantized[name]["sqnr_db"] == pytest.approx(q.sqnr(x), abs=2e-3)
    narrow = {"fp8_e4m3"} if (row.layout, row.scaling) != ("modelopt", "128x128") else set()
    odd = 0 if (row.layout, row.scaling) == ("modelopt", "128x128") else 1
    assert len(quantized) == 2 + odd + (row.format in narrow)


SHAPES = {  # of a weight (256, 512): codes, scales, global scale
    "compressed-tensors-mxfp8_e4m3-1x32": {"weight": ("F8_E4M3", (256, 512)), "weight_scale": ("U8", (256, 16))},
    "compressed-tensors-mxfp4-1x32": {"weight_packed": ("U8", (256, 256)), "weight_scale": ("U8", (256, 16))},
    "compressed-tensors-nvfp4-1x16": {
        "weight_packed": ("U8", (256, 256)),
        "weight_scale": ("F8_E4M3", (256, 32)),
        "weight_global_scale": ("F32", (1,)),
    },
    "compressed-tensors-fp8_e4m3-row": {"weight": ("F8_E4M3", (256, 512)), "weight_scale": ("F32", (256, 1))},
    "compressed-tensors-fp8_e4m3-tensor": {"weight": ("F8_E4M3", (256, 512)), "weight_scale": ("F32", (1,))},
    "compressed-tensors-fp8_e4m3-128x128": {"weight": ("F8_E4M3", (256, 512)), "weight_scale": ("F32", (2, 4))},
    "modelopt-nvfp4-1x16": {
        "weight": ("U8", (256, 256)),
        "weight_scale": ("F8_E4M3", (256, 32)),
        "weight_scale_2": ("F32", ()),
    },
    "modelopt-mxfp8_e4m3-1x32": {"weight": ("F8_E4M3", (256, 512)), "weight_scale": ("U8", (256, 16))},
    "modelopt-fp8_e4m3-row": {"weight": ("F8_E4M3", (256, 512)), "weight_scale": ("F32", (256,))},
    "modelopt-fp8_e4m3-128x128": {"weight": ("F8_E4M3", (256, 512)), "weight_scale": ("F32", (2, 1, 4, 1))},
    "deepseek-fp8_e4m3-128x128": {"weight": ("F8_E4M3", (256, 512)), "weight_scale_inv": ("F32", (2, 4))},
}


@pytest.mark.parametrize("row", [row for row in TWO_D if row.scaling != "16x16"], ids=name_of)
def test_names_types_and_shapes_of_a_layout(row):
    found = layouts.outputs(row, "m.weight", (), 256, 512)
    assert {out.name: (out.dtype, out.shape) for out in found} == {
        f"m.{name}": value for name, value in SHAPES[name_of(row)].items()
    }


def test_tensors_that_do_not_fit_a_layout_are_told_why():
    row = layouts.choose("compressed-tensors", "mxfp4", None)
    for dtype, shape, says in (
        ("U8", (32, 32), "U8 is not one of"),
        ("F32", (0, 32), "no elements"),
        ("F32", (32, 0), "no elements"),
        ("F32", (32,), "1 dimensions, not 2"),
        ("F32", (32, 33), "33 columns"),
        ("BF16", (1, 32), ""),
    ):
        assert layouts.unfit(row, dtype, shape).startswith(says) and (says or not layouts.unfit(row, dtype, shape))


def test_experts_of_gpt_oss_are_quantized_along_their_inputs(tmp_path, capsys):
    rng = np.random.default_rng(1)
    experts = rng.standard_normal((3, 64, 96), "float32").astype(ml_dtypes.bfloat16)  # (experts, inputs, outputs)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    save(tmp_path / "m.safetensors", {name: experts, name + "_bias": np.ones((3, 96), "float32")})
    arguments = [str(tmp_path / "m.safetensors"), str(tmp_path / "out"), "--layout", "gpt-oss", "--format", "mxfp4"]
    assert cli.main(arguments) == 0 and "read as (experts, inputs, outputs): " in capsys.readouterr().out
    made = reader.open_checkpoint(tmp_path / "out").entries
    assert made[name + "_blocks"].shape == (3, 96, 2, 16) and made[name + "_scales"].shape == (3, 96, 2) and len(made) == 3
    q = mxq.quantize(np.ascontiguousarray(experts.swapaxes(1, 2)), "mxfp4")
    assert reader.read_bytes(made[name + "_blocks"]).tobytes() == q.rowwise.codes.tobytes()
    assert reader.read_bytes(made[name + "_scales"]).tobytes() == q.rowwise.scales.tobytes()
    rows = {row["name"]: row for row in compare.compare(tmp_path / "m.safetensors", tmp_path / "out")}
    assert rows[name]["sqnr_db"] == pytest.approx(q.sqnr(experts.swapaxes(1, 2).copy()), abs=2e-3)
    assert json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]["quant_method"] == "mxfp4"


def test_a_checkpoint_of_fp8_tiles_is_quantized_from_its_values(tmp_path):
    x = np.random.default_rng(2).standard_normal((200, 256), "float32")
    fp8 = mxq.quantize(x, "fp8_e4m3", scaling="128x128")
    for folder, scales, dtype in (
        ("f32", fp8.rowwise.scales, "F32"),
        ("bf16", fp8.rowwise.scales.astype(ml_dtypes.bfloat16), "BF16"),
    ):
        (tmp_path / folder).mkdir()
        tensors = {}
        for name in ("a.weight", "lm_head.weight"):
            tensors |= {name: fp8.rowwise.codes, name + "_scale_inv": scales}
        types = {"a.weight": "F8_E4M3", "lm_head.weight": "F8_E4M3"}
        save(tmp_path / folder / "m.safetensors", tensors, types)
        quantize.run(tmp_path / folder, tmp_path / f"{folder}-out", quantize.recipe("compressed-tensors", "nvfp4"))
        found = {one.name: one for one in stored.find(reader.open_checkpoint(tmp_path / f"{folder}-out"))}
        values = mxq.QTensor.from_parts(
            "fp8_e4m3", x.shape, rowwise=(fp8.rowwise.codes, scales.astype("float32")), scaling="128x128"
        ).dequantize()
        assert set(found) == {"a.weight", "lm_head.weight"} and found["lm_head.weight"].codes.dtype == "BF16"
        assert (
            stored.values(found["a.weight"]).tobytes()
            == expected(layouts.choose("compressed-tensors", "nvfp4", None), values).dequantize().tobytes()
        )
        assert np.array_equal(stored.values(found["lm_head.weight"]), values.astype(ml_dtypes.bfloat16).astype("float32"))


@pytest.mark.parametrize(
    "amax, least",
    [(0.0, 2688), (1e-30, 1e-30), (0.75, 0.75), (2688.0, 2688), (2689.0, 2689), (3e38, 2.2e38), (float("inf"), 2688)],
)
def test_global_scales_of_nvfp4_are_powers_of_two(amax, least):
    made = layouts.power_of_two_amax(amax)
    assert least <= made <= 2 * least or (amax == 1e-30 and made == 2688 * 2.0**-126)
    decode = np.float32(made) / np.float32(2688)
    scales, codes = np.arange(127, dtype="uint8").view(ml_dtypes.float8_e4m3fn).astype("float32")[:, None], np.float32(
        [0.5, 1, 1.5, 2, 3, 4, 6]
    )
    ours = codes * scales * decode
    assert ours.tobytes() == (codes * (scales / (1 / decode))).tobytes() == (codes * (scales * decode)).tobytes()
    assert np.frexp(decode)[0] == 0.5 and np.frexp(1 / decode)[0] == 0.5


def test_the_config_tells_of_the_layout_and_of_what_stayed_plain(checkpoint, tmp_path):
    plain = ["lm_head", "model.layers.1.mlp.narrow"]
    blocks = {}
    for layout, format in (("compressed-tensors", "nvfp4"), ("modelopt", "nvfp4"), ("deepseek", "fp8_e4m3")):
        quantize.run(checkpoint, tmp_path / layout, quantize.recipe(layout, format))
        config = json.loads((tmp_path / layout / "config.json").read_text())
        assert config["model_type"] == "llama" and (tmp_path / layout / "tokenizer.json").exists()
        blocks[layout] = config["quantization_config"]
    assert blocks["compressed-tensors"]["ignore"] == plain and blocks["modelopt"]["ignore"] == plain
    assert blocks["modelopt"]["quant_algo"] == "W4A16_NVFP4"
    other = json.loads((tmp_path / "modelopt/hf_quant_config.json").read_text())["quantization"]
    assert other["exclude_modules"] == plain and other["group_size"] == 16
    assert blocks["deepseek"]["weight_block_size"] == [128, 128] and blocks["deepseek"]["modules_to_not_convert"] == ["lm_head"]


def test_patterns_choose_tensors(checkpoint, tmp_path):
    chosen = quantize.recipe("deepseek", "fp8_e4m3", include=["*.up.*", "lm_head.*"], exclude=["*.bias"])
    report = quantize.run(checkpoint, tmp_path / "out", chosen)
    assert sorted(row["name"] for row in report["tensors"] if "scaling" in row) == [
        "lm_head.weight",
        "model.layers.0.mlp.up.weight",
    ]
    notes = {row["name"]: row.get("note") for row in report["tensors"]}
    assert notes["model.norm.weight"] == "not included" and notes["model.layers.1.mlp.up.bias"] == "excluded by *.bias"


def test_what_cannot_be_is_refused_before_anything_is_written(checkpoint, tmp_path):
    for layout, format, scaling in (("gpt-oss", "nvfp4", None), ("deepseek", "fp8_e4m3", "row"), ("other", "mxfp4", None)):
        with pytest.raises(mxq.Error, match="expected"):
            quantize.recipe(layout, format, scaling)
    chosen = quantize.recipe("compressed-tensors", "mxfp4")
    with pytest.raises(mxq.Error, match="expected a weight named none .* found no such name among 7"):
        quantize.run(checkpoint, tmp_path / "out", quantize.recipe("compressed-tensors", "mxfp4", include=["none"]))
    quantize.run(checkpoint, tmp_path / "done", chosen)
    with pytest.raises(mxq.Error, match="'model.layers.0.mlp.odd.weight': expected F32, F16, BF16, or FP8"):
        quantize.run(tmp_path / "done", tmp_path / "out", chosen)
    save(tmp_path / "twice.safetensors", {"a.weight": np.ones((32, 32), "float32"), "a.weight_scale": np.ones(1, "float32")})
    with pytest.raises(mxq.Error, match="'a.weight_scale' once in the output"):
        quantize.run(tmp_path / "twice.safetensors", tmp_path / "out", chosen)
    (checkpoint / "model-00001-of-00002.safetensors").write_bytes(b"")
    with pytest.raises(reader.CheckpointError):
        quantize.run(checkpoint, tmp_path / "out", chosen)
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.partial").exists()


def test_an_interrupted_run_goes_on_to_the_same_bytes(checkpoint, tmp_path):
    chosen, done = quantize.recipe("compressed-tensors", "mxfp4"), []

    def stop(count, name):
        done.append(name)
        if len(done) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize.run(checkpoint, tmp_path / "out", chosen, stop)
    first = tmp_path / "out.partial/model-00001-of-00002.safetensors"
    assert not (tmp_path / "out").exists() and first.exists()
    inode = first.stat().st_ino
    report = quantize.run(checkpoint, tmp_path / "out", chosen)
    assert (tmp_path / "out" / first.name).stat().st_ino == inode
    assert quantize.run(checkpoint, tmp_path / "again", chosen) == report
    for path in (tmp_path / "again").iterdir():
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()


def test_memory_holds_one_tensor_and_what_it_becomes(tmp_path):
    x = np.random.default_rng(8).standard_normal((2048, 2048), "float32").astype(ml_dtypes.bfloat16)
    save(tmp_path / "m.safetensors", {f"{i}.weight": x for i in range(8)})  # 67 MB
    for format in ("mxfp8_e4m3", "nvfp4"):
        tracemalloc.start()
        quantize.run(tmp_path / "m.safetensors", tmp_path / format, quantize.recipe("compressed-tensors", format))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert x.nbytes < peak < 2 * x.nbytes + 12e6


def test_the_report_counts_clipped_elements_and_zero_blocks():
    from mxq.tools.measure import measure

    x = np.random.default_rng(3).standard_normal((300, 256), "float32")
    x[5, 32:96], x[7, :16] = 0, 0
    for format, scaling, zeros, blocks in (
        ("mxfp8_e4m3", "1x32", 2, 2400),
        ("mxfp4", "1x32", 2, 2400),
        ("nvfp4", "1x16", 5, 4800),
        ("fp8_e4m3", "row", 0, 300),
        ("fp8_e4m3", "tensor", 0, 1),
        ("fp8_e4m3", "128x128", 0, 6),
    ):
        row = measure(x, mxq.quantize(x, format, scaling=scaling))
        assert (row["zero_blocks"], row["blocks"], row["clipped"]) == (zeros, blocks, 0), format
        all_zero = measure(0 * x, mxq.quantize(0 * x, format, scaling=scaling))
        assert all_zero["zero_blocks"] == blocks and all_zero["sqnr_db"] is None
    clipped = x.copy()
    clipped[::2, 3] = 1000.0
    q = mxq.quantize(x, "mxfp4")
    assert measure(clipped, q)["clipped"] == 150
    floor = measure(x, mxq.quantize(x, "mxfp4", scale_rounding="floor"))["clipped"]
    assert floor == np.count_nonzero(np.abs(x) > top(x) * 7 / 6) > 100


def test_the_report_does_not_depend_on_its_slices(monkeypatch):
    from mxq.tools import measure

    x = np.random.default_rng(7).standard_normal((300, 256), "float32") * np.linspace(1, 100, 300, dtype="float32")[:, None]
    x[20:30], x[200:210] = 0, 0
    for format, scaling in (
        ("mxfp4", "1x32"),
        ("nvfp4", "1x16"),
        ("fp8_e4m3", "row"),
        ("fp8_e4m3", "tensor"),
        ("fp8_e4m3", "128x128"),
    ):
        q = mxq.quantize(x, format, scaling=scaling)
        monkeypatch.setattr(measure, "_SLICE", 1 << 30)
        one = measure.measure(x, q)
        monkeypatch.setattr(measure, "_SLICE", 1)
        assert {**measure.measure(x, q), "sqnr_db": 0} == {**one, "sqnr_db": 0}
        assert measure.measure(x, q)["sqnr_db"] == pytest.approx(one["sqnr_db"], abs=2e-3) == pytest.approx(q.sqnr(x), abs=2e-3)
        assert one["zero_blocks"] == {"1x32": 160, "1x16": 320, "row": 20}.get(scaling, 0)


def top(x):
    """The largest value of each block of MXFP4 with scales rounded down, at each of its elements."""
    scales = mxq.quantize(x, "mxfp4", scale_rounding="floor").rowwise.scales
    return np.repeat(6 * 2.0 ** (scales.astype(int) - 127), 32, axis=1)


def test_zero_blocks_of_lines_that_are_no_multiple_of_a_block():
    from mxq.tools.measure import measure

    x = np.random.default_rng(4).standard_normal((5, 40), "float32")
    x[2, 32:], x[3, :32] = 0, 0
    for format in ("mxfp8_e4m3", "mxfp4"):
        row = measure(x, mxq.quantize(x, format))
        assert (row["zero_blocks"], row["blocks"]) == (2, 10)


def test_inspect_names_descriptors_and_what_must_be_converted(checkpoint, tmp_path):
    quantize.run(checkpoint, tmp_path / "out", quantize.recipe("modelopt", "nvfp4"))
    rows = {row["name"]: row for row in compare.inspect(tmp_path / "out")}
    assert len(rows) == len(weights())
    up = rows["model.layers.0.mlp.up.weight"]
    assert up == {
        "name": up["name"],
        "family": "ModelOpt",
        "dtype": "U8",
        "shape": [256, 512],
        "descriptor": "nvfp4 1x16, decode scale",
        "needs": "",
        "bytes": 256 * 256 + 256 * 32 + 4,
    }
    assert rows["model.norm.weight"]["descriptor"] == "f32"
    codes, scales = np.zeros((64, 64), "uint8"), np.zeros((64, 2), "uint8")
    save(
        tmp_path / "odd.safetensors",
        {
            "a.weight": codes,
            "a.weight_scale": scales,
            "b.weight": codes,
            "b.weight_scale": np.zeros((128, 4), "uint8"),
            "c.weight": codes,
            "c.weight_scale_inv": np.ones((3, 5), "float32"),
            "d.qweight": codes,
            "e": codes,
        },
        {"a.weight": "F8_E4M3", "b.weight": "F8_E4M3", "c.weight": "F8_E4M3"},
    )
    needs = {
        row["name"]: (row["descriptor"].split(",")[0], row["needs"]) for row in compare.inspect(tmp_path / "odd.safetensors")
    }
    assert needs["a.weight"] == ("mxfp8_e4m3 1x32", "") and needs["d.qweight"][1].startswith("integer quantization")
    assert "padded or swizzled" in needs["b.weight"][1] and "no scaling of libmxq" in needs["c.weight"][1]
    assert needs["e"] == ("", "U8 without scales that belong to it") and len(needs) == 5


def test_deepseek_v4_has_mx_scales_of_blocks_and_of_tiles(tmp_path):
    x = np.random.default_rng(6).standard_normal((200, 256), "float32")
    four, eight = mxq.quantize(x, "mxfp4"), mxq.quantize(x, "mxfp8_e4m3", scaling="128x128")
    save(
        tmp_path / "m.safetensors",
        {
            "a.weight": four.rowwise.codes,
            "a.scale": four.rowwise.scales,
            "b.weight": eight.rowwise.codes,
            "b.scale": eight.rowwise.scales,
        },
        {"a.weight": "I8", "a.scale": "F8_E8M0", "b.weight": "F8_E4M3", "b.scale": "F8_E8M0"},
    )
    a, b = stored.find(reader.open_checkpoint(tmp_path / "m.safetensors"))
    assert (a.format, a.scaling, b.format, b.scaling) == ("mxfp4", "1x32", "mxfp8_e4m3", "128x128")
    assert np.array_equal(stored.values(a), four.dequantize()) and np.array_equal(stored.values(b), eight.dequantize())


def test_compare_tells_of_values_shapes_and_missing_tensors(tmp_path):
    x = np.random.default_rng(5).standard_normal((64, 64), "float32")
    save(tmp_path / "a.safetensors", {"same": x, "half": x, "shape": x, "a": x})
    save(tmp_path / "b.safetensors", {"same": x, "half": x.astype(ml_dtypes.bfloat16), "shape": x[:32], "b": x})
    rows = {row["name"]: row for row in compare.compare(tmp_path / "a.safetensors", tmp_path / "b.safetensors")}
    noise = ((x - x.astype(ml_dtypes.bfloat16).astype("float32")) ** 2).sum()
    assert rows["half"]["sqnr_db"] == pytest.approx(10 * np.log10((x**2).sum() / noise), abs=1e-2)
    assert [rows[name].get("note") for name in ("same", "shape", "a", "b")] == [
        "same values",
        "shapes [64, 64] and [32, 64]",
        "in A alone",
        "in B alone",
    ]


def test_the_command_line_is_a_module():
    said = subprocess.run([sys.executable, "-m", "mxq.tools", "--help"], capture_output=True, text=True)
    assert said.returncode == 0 and said.stdout.startswith("usage: mxq-quantize")


def test_the_command_line(checkpoint, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert cli.main([str(checkpoint), out, "--format", "mxfp4"]) == 0
    said = capsys.readouterr().out
    assert (
        "3 tensors quantized" in said and "model.layers.0.mlp.up.weight" in said and "4 tensors kept" in said and "18.8" in said
    )
    assert "\nkept: lm_head.weight: excluded by *lm_head*: head\n" in said
    assert json.loads((tmp_path / "out" / quantize.REPORT).read_text())["format"] == "mxfp4"
    assert cli.main(["inspect", out]) == 0 and "mxfp4 1x32" in capsys.readouterr().out
    assert cli.main(["compare", str(checkpoint), out, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 7
    assert cli.main([str(checkpoint), out, "--format", "mxfp4"]) == 1
    assert capsys.readouterr().err.startswith(f"mxq-quantize: {out}: output: expected a name that is not taken")
    assert cli.main(["inspect", str(tmp_path / "none.safetensors")]) == 1 and "found nothing of this name" in capsys.readouterr().err


def test_a_terminal_is_told_the_rate_and_the_time_left(tmp_path):
    """On a pseudo terminal, where the bar is drawn."""
    x = np.random.default_rng(0).standard_normal((2048, 1024), "float32")
    save(tmp_path / "m.safetensors", {f"{i}.weight": x for i in range(12)})
    master, end = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "mxq.tools.cli",
        str(tmp_path / "m.safetensors"),
        str(tmp_path / "out"),
        "--format",
        "mxfp4",
    ]
    environment = {**os.environ, "COLUMNS": "120", "TERM": "xterm"}
    with open(master, "rb", buffering=0) as screen:
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=end, env=environment)
        os.close(end)
        drawn = b""
        while True:
            try:
                drawn += screen.read(4096)
            except OSError:  # the end of a pseudo terminal
                break
    assert running.wait() == 0
    text = drawn.decode()
    assert (
        re.search(r"[\d.]+ [kMG]B/s", text) and re.search(r"\d:\d\d:\d\d", text) and "100.7 MB" in text and ".weight" in text
    ), text


def test_the_commands_of_the_page_run(checkpoint, tmp_path, capsys):
    page = Path(__file__).resolve().parents[3] / "docs/checkpoints.md"
    data = Path(os.environ.get("MXQ_TEST_DATA_DIR", page.parents[1] / "tests/data"))
    if not page.exists():
        pytest.skip("the page is not here")
    lines = re.findall(r"^    mxq-quantize (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == 4
    paths = {"IN": checkpoint, "OUT": tmp_path / "out", "tests/data/moe.safetensors": data / "moe.safetensors"}
    for line in lines:
        assert cli.main([str(paths.get(word, word)) for word in line.split()]) == 0, line
        assert capsys.readouterr().out
