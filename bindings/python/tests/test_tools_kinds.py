"""mxq-quantize on a checkpoint that has every kind of tensor: each comes out quantized with its scales, or plain and told of."""

import json
import re
from pathlib import Path

import mxq
import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes", reason="the tools need ml_dtypes and rich")
pytest.importorskip("rich", reason="the tools need ml_dtypes and rich")
from mxq.tools import cli, compare, devices, families, layouts, quantize, reader, stored  # noqa: E402
from test_tools import TWO_D, name_of, save  # noqa: E402

PAGE = Path(__file__).resolve().parents[3] / "docs/checkpoints.md"
L = "model.layers.0."


def bf16(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, "float32").astype(ml_dtypes.bfloat16)


def fp8(*shape):
    """Codes and scales of 128x128, for each expert of a stack."""
    x = np.random.default_rng(1).standard_normal(shape, "float32")
    made = [mxq.quantize(one, "fp8_e4m3", scaling="128x128").rowwise for one in x.reshape(-1, *shape[-2:])]
    codes, scales = (np.stack([np.asarray(getattr(one, part)) for one in made]) for part in ("codes", "scales"))
    return codes.reshape(shape), scales.reshape(*shape[:-2], *scales.shape[-2:])


KEPT = {  # what stays as it is by default
    "model.embed_tokens.weight": bf16(64, 128),
    "transformer.wte.weight": bf16(64, 128),
    "lm_head.weight": bf16(64, 128),
    "output.weight": bf16(64, 128),
    "mtp.head.weight": bf16(64, 128),
    L + "input_layernorm.weight": bf16(128),
    L + "mlp.gate.weight": bf16(4, 128),
    L + "mlp.router.weight": bf16(4, 128),
    L + "mlp.shared_expert_gate.weight": bf16(1, 128),
    L + "linear_attn.conv1d.weight": bf16(128, 1, 4),
    L + "linear_attn.A_log": bf16(128, 16),
    L + "self_attn.o_proj.bias": bf16(128),
    L + "self_attn.sinks": bf16(4),
    L + "self_attn.empty.weight": bf16(0, 128),
    "audio.stem.weight": bf16(2, 128, 128),  # a kernel whose name does not say so
    "visual.patch.proj.weight": bf16(128, 3, 2, 2),
    "visual.class_token": bf16(1, 1, 128),
    "visual.position_ids": np.zeros((1, 64), "uint8"),
}
MATRICES = {
    L + "self_attn.o_proj.weight": bf16(128, 128),
    L + "linear_attn.in_proj.weight": bf16(256, 128).astype("float32"),
    L + "mlp.shared_expert.up_proj.weight": bf16(128, 128).astype("float16"),
    **{L + f"block.experts.{i}.w1.weight": bf16(128, 128, seed=i) for i in range(3)},
}
STACKS = {L + "mlp.experts.gate_up_proj": bf16(2, 256, 128), L + "mlp.experts.down_proj": bf16(2, 128, 128)}
SCALED = {L + "mlp.deep.weight": fp8(256, 128), L + "moe.experts.gate_up_proj": fp8(2, 256, 128)}


@pytest.fixture
def folder(tmp_path):
    tensors, types = {**KEPT, **MATRICES, **STACKS}, {}
    for name, (codes, scales) in SCALED.items():
        tensors |= {name: codes, name + "_scale_inv": scales}
        types[name] = "F8_E4M3"
    (tmp_path / "in").mkdir()
    save(tmp_path / "in/model.safetensors", tensors, types)
    block = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    (tmp_path / "in/config.json").write_text(json.dumps({"text_config": {"hidden_size": 128, **block}, **block}))
    return tmp_path / "in"


def ignored(config):
    block = config["quantization_config"]
    return block.get("ignore", block.get("modules_to_not_convert"))


def covers(entry, name):
    return name == entry or name.startswith(entry + ".")


ROWS = [row for row in TWO_D if row.scaling != "16x16"]
CASES = [(row, True, "keep") for row in ROWS]
CASES += [(row, False, "keep") for row in ROWS if row.format == "nvfp4" or row.layout == "deepseek"]
CASES += [(row, stacks, how) for row in ROWS[:1] + ROWS[-1:] for stacks, how in ((True, "split"), (True, "stack"), (False, "stack"))]


@pytest.mark.parametrize("row, stacks, experts", CASES, ids=lambda one: name_of(one) if isinstance(one, tuple) else str(one))
def test_every_tensor_is_quantized_with_its_scales_or_plain_and_told_of(folder, tmp_path, row, stacks, experts):
    include = ["*.weight", "*.experts.*"] if stacks else []
    out = tmp_path / "out"
    quantize.run(folder, out, quantize.recipe(row.layout, row.format, row.scaling, include, experts=experts, measure="none"))
    entries, found = reader.open_checkpoint(out).entries, stored.find(reader.open_checkpoint(out))
    config = json.loads((out / "config.json").read_text())
    plain = {one.name: one for one in found if one.scales is None}
    quantized = {one.name for one in found if one.scales is not None}
    assert config["text_config"] == {"hidden_size": 128}
    assert not [name for name in plain if "scale" in name] and sum(len(parts(one)) for one in found) == len(entries)
    assert all(one.format == row.format and one.convert == "" for one in found if one.name in quantized)
    for name, one in plain.items():
        assert one.format in ("BF16", "F32", "F16", "U8"), name
        if len(one.shape) > 1 and one.format != "U8":
            assert any(covers(entry, name) for entry in ignored(config)), name
    assert not [(entry, name) for entry in ignored(config) for name in quantized if covers(entry, name)]
    assert set(KEPT) <= set(plain) and len(quantized) >= 4
    assert any("mlp.experts" in name for name in quantized) == stacks
    rows = {one["name"]: one for one in compare.compare(folder, out)}
    assert not [name for name, one in rows.items() if "alone" in one["note"]]
    assert {rows[name]["note"] for name in KEPT} == {"same values"}


def parts(one):
    return [entry for entry in (one.codes, one.scales, one.global_scale) if entry]


def test_a_stack_of_fp8_is_widened_and_quantized_expert_by_expert(folder, tmp_path):
    name = L + "moe.experts.gate_up_proj"
    codes, scales = SCALED[name]
    pairs = zip(codes, scales)
    experts = [mxq.QTensor.from_parts("fp8_e4m3", (256, 128), rowwise=pair, scaling="128x128").dequantize() for pair in pairs]
    assert len(np.unique(scales)) > 2
    for out, include in (("plain", []), ("mxfp8", ["*.experts.*"])):
        quantize.run(folder, tmp_path / out, quantize.recipe("compressed-tensors", "mxfp8_e4m3", include=include))
    plain, made = (stored.find(reader.open_checkpoint(tmp_path / out)) for out in ("plain", "mxfp8"))
    widened = next(one for one in plain if one.name == name)
    assert np.array_equal(stored.values(widened), np.stack(experts).astype(ml_dtypes.bfloat16).astype("float32"))
    made = next(one for one in made if one.name == name + ".weight")
    assert np.array_equal(stored.values(made), mxq.quantize(np.stack(experts), "mxfp8_e4m3").dequantize())


def test_a_stack_of_fp8_becomes_experts_of_gpt_oss(tmp_path):
    codes, scales = SCALED[L + "moe.experts.gate_up_proj"]  # experts, inputs, outputs
    name = L + "mlp.experts.gate_up_proj"
    save(tmp_path / "m.safetensors", {name: codes, name + "_scale_inv": scales}, {name: "F8_E4M3"})
    quantize.run(tmp_path / "m.safetensors", tmp_path / "out", quantize.recipe("gpt-oss", "mxfp4"))
    pairs = zip(codes, scales)
    experts = [mxq.QTensor.from_parts("fp8_e4m3", (256, 128), rowwise=pair, scaling="128x128").dequantize() for pair in pairs]
    want = mxq.quantize(np.ascontiguousarray(np.stack(experts).swapaxes(1, 2)), "mxfp4").dequantize()
    made = stored.find(reader.open_checkpoint(tmp_path / "out"))[0]
    assert made.name == name and np.array_equal(stored.values(made), want.swapaxes(1, 2))


def test_codes_whose_scales_are_not_known_are_refused(tmp_path):
    codes = np.zeros((128, 128), "uint8")
    of = {"a.weight": "F8_E4M3"}
    quantized = {"quantization_config": {"quant_method": "other"}}
    for number, (tensors, types, config, says) in enumerate(
        (
            ({"a.weight": codes, "a.scale_weight": np.ones(1, "float32")}, of, {}, "F8_E4M3 without scales of a known name"),
            ({"a.weight": codes}, of, quantized, "F8_E4M3 without scales of a known name"),
            ({"a.weight": codes}, of, {"text_config": quantized}, "F8_E4M3 without scales of a known name"),
            ({"a.weight": codes, "a.SCB": np.ones(128, "float32")}, {"a.weight": "I8"}, quantized, "I8 without scales"),
            ({"a.qweight": codes}, {}, {}, "integer quantization"),
            ({"a.weight_packed": codes, "a.weight_shape": codes[0]}, {}, quantized, "integer quantization"),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        save(folder / "model.safetensors", {"b.weight": bf16(128, 128), **tensors}, types)
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(reader.CheckpointError, match=f"'a.*': expected F32, F16, BF16, or FP8.*{says}"):
            quantize.run(folder, tmp_path / "out", quantize.recipe("compressed-tensors", "mxfp4"))
    save(tmp_path / "cast.safetensors", {"a.weight": codes, "b.weight": bf16(128, 128)}, of)  # FP8 that has no scales
    quantize.run(tmp_path / "cast.safetensors", tmp_path / "out", quantize.recipe("compressed-tensors", "mxfp4"))
    config = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert config["ignore"] == ["a"] and reader.open_checkpoint(tmp_path / "out").entries["a.weight"].dtype == "F8_E4M3"


def test_gpt_oss_tells_of_stacks_that_do_not_fit(tmp_path):
    save(tmp_path / "m.safetensors", {L + "mlp.experts.gate_up_proj": bf16(2, 64, 64), L + "mlp.experts.down_proj": bf16(2, 40, 64)})
    quantize.run(tmp_path / "m.safetensors", tmp_path / "out", quantize.recipe("gpt-oss", "mxfp4"))
    block = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert block["modules_to_not_convert"] == [*layouts.GPT_OSS_PLAIN, L + "mlp.experts.down_proj"]


# ---- The table of families -------------------------------------------------------------------------------------------

FAMILIES = [  # of config.json; names that stay, names that are quantized
    ("llama", ["model.embed_tokens", "lm_head", "model.norm"], ["model.layers.0.self_attn.q_proj", "model.layers.0.mlp.gate_proj"]),
    ("", ["tok_embeddings", "output", "norm"], ["layers.0.attention.wq", "layers.0.feed_forward.w1"]),
    ("qwen3_moe", ["l.0.mlp.gate", "l.0.mlp.shared_expert_gate"], ["l.0.mlp.experts.0.gate_proj", "l.0.mlp.shared_expert.up_proj"]),
    ("deepseek_v3", ["model.layers.61.eh_proj", "model.layers.61.shared_head.head", "l.0.mlp.gate"], ["l.0.self_attn.kv_b_proj"]),
    ("gpt2", ["wte", "wpe", "h.0.attn.c_attn", "h.0.mlp.c_fc", "h.0.mlp.c_proj"], []),
    ("gpt_bigcode", ["transformer.wte"], ["transformer.h.0.attn.c_attn", "transformer.h.0.mlp.c_fc"]),
    ("bert", ["bert.embeddings.word_embeddings", "cls.predictions.decoder"], ["l.0.attention.output.dense", "l.0.intermediate.dense"]),
    ("t5", ["shared", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"], ["encoder.block.0.layer.0.SelfAttention.q"]),
    ("whisper", ["proj_out", "model.encoder.conv1", "model.encoder.embed_positions"], ["model.encoder.layers.0.fc1"]),
    ("internlm2", ["model.tok_embeddings", "output", "language_model.output"], ["model.layers.0.attention.wqkv"]),
    ("rwkv", ["rwkv.emb", "head"], ["rwkv.blocks.0.attention.key"]),
    ("vit", ["classifier", "vit.embeddings.patch_embeddings.projection"], ["vit.encoder.layer.0.output.dense"]),
    ("chatglm", ["transformer.output_layer"], ["transformer.encoder.layers.0.mlp.dense_h_to_4h"]),
    ("mixtral", ["model.layers.0.block_sparse_moe.gate"], ["model.layers.0.block_sparse_moe.experts.0.w1"]),
]


@pytest.mark.parametrize("model_type, stay, go", FAMILIES, ids=[one[0] or "none" for one in FAMILIES])
def test_modules_of_a_family_that_stay_as_they_are(model_type, stay, go):
    for config in ({"model_type": model_type}, {"model_type": "outer", "text_config": {"model_type": model_type}}):
        assert [name for name in stay if not families.kept(f"{name}.weight", config)] == []
        assert [name for name in go if families.kept(f"{name}.weight", config)] == []


def test_gpt2_is_refused_with_the_reason(tmp_path):
    (tmp_path / "in").mkdir()
    save(tmp_path / "in/model.safetensors", {"h.0.attn.c_attn.weight": bf16(64, 192)})
    (tmp_path / "in/config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(reader.CheckpointError, match="'h.0.attn.c_attn.weight': .* matrix with inputs as rows"):
        quantize.run(tmp_path / "in", tmp_path / "out", quantize.recipe("compressed-tensors", "mxfp4"))


def test_the_page_has_the_table():
    if not PAGE.exists():
        pytest.skip("the page is not here")
    lines = re.findall(r"^\| `([^`]+)` \|([^|]+)\|([^|]*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    rows = [(row.pattern, row.what, ", ".join(row.model_types)) for row in families.KEPT]
    assert [tuple(part.strip() for part in line) for line in lines if "*" in line[0] or line[0].endswith(".weight")] == rows


# ---- What the terminal says ------------------------------------------------------------------------------------------


def test_the_terminal_tells_of_stacks_and_of_what_is_not_finite(folder, tmp_path, capsys):
    x = bf16(128, 128)
    x[3, 5], x[7, 9], x[8, 1] = np.nan, np.inf, -np.inf
    save(tmp_path / "m.safetensors", {"a.weight": x, "b.weight": bf16(64, 64)})
    assert cli.main([str(tmp_path / "m.safetensors"), str(tmp_path / "nan"), "--format", "nvfp4"]) == 0
    said = capsys.readouterr().out
    assert "\na.weight: NaN or infinite elements: 3\n" in said and "b.weight: NaN" not in said
    assert "3 NaN or infinite elements" in (tmp_path / "nan" / quantize.PAGE).read_text()
    assert cli.main([str(folder), str(tmp_path / "out"), "--format", "nvfp4"]) == 0
    said = capsys.readouterr().out
    assert "kept: audio.stem.weight and 3 more: not included: 3 dimensions, and a stack of experts needs an --include" in said


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_elements_that_are_not_finite_are_counted(dtype):
    from mxq.tools.measure import not_finite

    x = np.array([0, -0.0, 1, -1, np.finfo("float16").max, -60000], "float32").astype(np.dtype(dtype))
    assert not_finite(x) == 0 == not_finite(x[:0])
    for value, signed in ((np.inf, 1), (-np.inf, -1), (np.nan, 1), (np.nan, -1)):
        y = np.append(x, np.copysign(np.float32(value), np.float32(signed)).astype(x.dtype))
        assert not_finite(y) == 1
    codes = np.arange(256, dtype="uint8")
    assert not_finite(codes) == 2 and not_finite(codes[:127]) == 0 == not_finite(codes[128:255])


def test_elements_of_every_chunk_are_counted(tmp_path, monkeypatch):
    x = bf16(1024, 64)
    x[0, 0], x[900, 3] = np.nan, np.inf
    save(tmp_path / "m.safetensors", {"a.weight": x})
    monkeypatch.setattr(devices.Cpu, "chunk_bytes", 20_000)
    for mode in ("sample", "none"):
        chosen = quantize.recipe("compressed-tensors", "mxfp4", measure=mode)
        assert quantize.run(tmp_path / "m.safetensors", tmp_path / mode, chosen)["tensors"][0]["not_finite"] == 2


def test_a_scale_of_tiny_weights_is_finite_without_a_warning(tmp_path, recwarn):
    save(tmp_path / "m.safetensors", {"a.weight": np.full((32, 64), 1e-38, "float32")})
    quantize.run(tmp_path / "m.safetensors", tmp_path / "out", quantize.recipe("compressed-tensors", "fp8_e4m3", "tensor"))
    one = stored.find(reader.open_checkpoint(tmp_path / "out"))[0]
    assert np.allclose(stored.values(one), 1e-38, rtol=0.1) and not recwarn.list


def test_nothing_that_fits_is_refused_with_the_reasons(tmp_path):
    x = np.zeros((64, 33), "float32")
    tensors = {"a.weight": x, "b.weight": x[:, :32].astype("uint8"), "lm_head.weight": x, "norm.weight": x[0], "c": x}
    save(tmp_path / "m.safetensors", tensors)
    with pytest.raises(reader.CheckpointError) as refused:
        quantize.run(tmp_path / "m.safetensors", tmp_path / "out", quantize.recipe("compressed-tensors", "mxfp4"))
    said = str(refused.value)
    assert "'a.weight': 33 columns are no multiple of 32" in said and said.endswith("; and 1 more"), said
    save(tmp_path / "e.safetensors", {"l.experts.0.up.weight": bf16(64, 64)})
    chosen = quantize.recipe("gpt-oss", "mxfp4", include=["*.weight"])
    with pytest.raises(reader.CheckpointError, match="2 dimensions, not 3: .*--experts stack makes them"):
        quantize.run(tmp_path / "e.safetensors", tmp_path / "out", chosen)
