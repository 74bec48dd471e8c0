"""mxq-quantize on folders: indexes keep their names, and files other than weights are copied, subfolders too."""

import json
import os

import numpy as np
import pytest

pytest.importorskip("ml_dtypes", reason="the tools need ml_dtypes and rich")
pytest.importorskip("rich", reason="the tools need ml_dtypes and rich")
from mxq.tools import cli, quantize, reader  # noqa: E402
from test_tools import save  # noqa: E402

CHOSEN = quantize.recipe("compressed-tensors", "mxfp4")
X = np.ones((64, 64), "float32")


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("prefix", ["model", "diffusion_pytorch_model"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("by", ["folder", "index"])
def test_an_index_is_written_under_the_name_that_it_had(tmp_path, prefix, count, by):
    source, index = tmp_path / "in", f"{prefix}.safetensors.index.json"
    source.mkdir()
    shards = {f"{i}.weight": f"{prefix}-0000{i + 1}-of-0000{count}.safetensors" for i in range(count)}
    for name, file in shards.items():
        save(source / file, {name: X})
    (source / index).write_text(json.dumps({"weight_map": shards}))
    quantize.run(source if by == "folder" else source / index, tmp_path / "out", CHOSEN)
    made = names(tmp_path / "out")
    assert [name for name in made if "safetensors" in name] == sorted([*shards.values(), index])
    assert set(reader.read_json(tmp_path / "out" / index)["weight_map"].values()) == set(shards.values())
    assert len(reader.open_checkpoint(tmp_path / "out").entries) == 2 * count


def filled(folder, files):
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"of {name}")


def test_subfolders_are_copied(tmp_path, capsys):
    source = tmp_path / "in"
    copied = ["1_Pooling/config.json", "2_Dense/pytorch_model.bin", "2_Dense/model.safetensors", "tokenizer.json", "a/b/c.txt"]
    copied += ["text_encoder/model.safetensors.index.json", "hooks.py"]
    left = ["onnx/model.onnx", "original/consolidated.00.pth", "pytorch_model.bin", "old/quantization_report.json", ".git/HEAD"]
    left += ["pytorch_model.bin.index.json", "out.partial/lock", "adapter.safetensors"]
    filled(source, [*copied, *left])
    os.symlink("..", source / "loop")
    save(source / "model.safetensors", {"a.weight": X})
    (source / reader.INDEX_NAME).write_text('{"weight_map": {"a.weight": "model.safetensors"}}')
    out = source / "made"  # inside of what is read
    assert cli.main([str(source), str(out), "--format", "mxfp4"]) == 0
    written = ["config.json", "model.safetensors", reader.INDEX_NAME, quantize.PAGE, quantize.REPORT]
    assert names(out) == sorted([*copied, *written])
    assert all((out / name).read_text() == f"of {name}" for name in copied)
    told = json.loads((out / quantize.REPORT).read_text())["not_copied"]
    whole = {".git/HEAD": ".git/", "old/quantization_report.json": "old/", "out.partial/lock": "out.partial/"}
    assert sorted(told) == sorted([*(whole.get(name, name) for name in left), "loop/"])
    assert "not copied: " in capsys.readouterr().out


def test_a_file_of_a_folder_is_taken_alone(tmp_path):
    filled(tmp_path / "in", ["tokenizer.json", "1_Pooling/config.json"])
    (tmp_path / "in/config.json").write_text('{"model_type": "gpt2"}')
    save(tmp_path / "in/model.safetensors", {"a.weight": X})
    report = quantize.run(tmp_path / "in/model.safetensors", tmp_path / "out", CHOSEN)
    assert names(tmp_path / "out") == sorted(["config.json", "model.safetensors", quantize.PAGE, quantize.REPORT])
    assert list(reader.read_json(tmp_path / "out/config.json")) == ["quantization_config"] and report["not_copied"] == []


def test_old_quantization_is_taken_out_of_every_part_of_the_config(tmp_path):
    save(tmp_path / "model.safetensors", {"a.weight": X})
    old = {"quantization_config": {"quant_method": "fp8"}, "compression_config": {}}
    config = {"model_type": "m", "text_config": {"size": 1, **old, "inner": {**old, "n": [1]}}, **old}
    (tmp_path / "config.json").write_text(json.dumps(config))
    quantize.run(tmp_path, tmp_path / "out", CHOSEN)
    made = reader.read_json(tmp_path / "out/config.json")
    assert made.pop("quantization_config")["quant_method"] == "compressed-tensors"
    assert made == {"model_type": "m", "text_config": {"size": 1, "inner": {"n": [1]}}}


def test_a_config_that_cannot_be_read_is_refused_before_anything_is_written(tmp_path):
    save(tmp_path / "model.safetensors", {"a.weight": X})
    (tmp_path / "config.json").write_text("{]")
    with pytest.raises(reader.CheckpointError, match="config.json: file: expected JSON"):
        quantize.run(tmp_path, tmp_path / "out", CHOSEN)
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("out", [".", "..", "/", "link"])
def test_an_output_that_is_there_is_refused_by_name(tmp_path, monkeypatch, capsys, out):
    monkeypatch.chdir(tmp_path)
    os.symlink("nowhere", "link")
    save(tmp_path / "m.safetensors", {"a.weight": X})
    assert cli.main(["m.safetensors", out, "--format", "mxfp4"]) == 1
    assert capsys.readouterr().err.startswith(f"mxq-quantize: {out}: output: expected a name that is not taken, found a file")
    assert names(tmp_path) == ["m.safetensors"]
