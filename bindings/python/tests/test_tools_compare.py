"""mxq-quantize compare: the same values alone are told to be the same, whatever their size, and stacks of experts are matched."""

import mxq
import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes", reason="the tools need ml_dtypes and rich")
pytest.importorskip("rich", reason="the tools need ml_dtypes and rich")
from mxq.tools import cli, compare, quantize  # noqa: E402
from test_tools import save  # noqa: E402


def full(value):
    return np.full((32, 64), value, "float32")


@pytest.mark.parametrize(
    "a, b, decibels, note",
    [
        (1e-23, 0.0, 0.0, ""),  # squares that are 0 in float32
        (1e-30, -1e-30, -6.021, ""),
        (2e19, 1e19, 6.021, ""),  # and infinite
        (1e-45, 1e-45, None, "same values"),
        (0.0, -0.0, None, "same values"),
        (0.0, 1e-45, None, "all of A is zero"),
        (np.nan, 1.0, None, "2,048 NaN in A and 0 in B"),
        (1.0, np.nan, None, "0 NaN in A and 2,048 in B"),
        (np.nan, np.nan, None, "same values; 2,048 NaN in A and 2,048 in B"),
        (np.inf, np.inf, None, "same values; 2,048 infinite in A and 2,048 in B"),
        (np.inf, -np.inf, None, "2,048 infinite in A and 2,048 in B"),
        (np.nan, np.inf, None, "2,048 NaN in A and 0 in B, 0 infinite in A and 2,048 in B"),
    ],
)
def test_values_are_the_same_or_their_difference_is_told(tmp_path, a, b, decibels, note):
    save(tmp_path / "a.safetensors", {"x.weight": full(a)})
    save(tmp_path / "b.safetensors", {"x.weight": full(b)})
    row = next(compare.compare(tmp_path / "a.safetensors", tmp_path / "b.safetensors"))
    assert (row["sqnr_db"], row["note"]) == (decibels, note)


def test_the_report_measures_tiny_weights():
    from mxq.tools.measure import measure

    x = np.random.default_rng(0).standard_normal((64, 128), "float32")
    tiny = x * np.float32(2.0**-90)
    want = measure(x, mxq.quantize(x, "mxfp8_e4m3"))["sqnr_db"]
    assert measure(tiny, mxq.quantize(tiny, "mxfp8_e4m3"))["sqnr_db"] == want > 25


@pytest.mark.parametrize("scale", [0.0, np.nan, np.inf, 1e-45, -1.0])
def test_a_global_scale_that_is_no_number_is_named_and_the_rest_is_compared(tmp_path, scale, recwarn):
    x = {"b.weight": full(2)}
    codes = {"a.weight_packed": np.zeros((32, 32), "uint8"), "a.weight_scale": np.full((32, 4), 0x38, "uint8")}
    save(tmp_path / "a.safetensors", {"a.weight": full(1), **x})
    save(
        tmp_path / "b.safetensors",
        {**codes, "a.weight_global_scale": np.array([scale], "float32"), **x},
        {"a.weight_scale": "F8_E4M3"},
    )
    rows = {row["name"]: row["note"] for row in compare.compare(tmp_path / "a.safetensors", tmp_path / "b.safetensors")}
    assert "tensor 'a.weight_global_scale': expected a finite global scale above 0, found" in rows["a.weight"]
    assert rows["b.weight"] == "same values" and not recwarn.list


def experts(count=12):
    make = lambda seed: np.random.default_rng(seed).standard_normal((64, 96), "float32").astype(ml_dtypes.bfloat16)  # noqa: E731
    return [make(seed) for seed in range(count)]


@pytest.mark.parametrize("layout, format", [("compressed-tensors", "nvfp4"), ("modelopt", "mxfp8_e4m3"), ("gpt-oss", "mxfp4")])
def test_a_stack_is_compared_with_the_tensors_of_its_experts(tmp_path, layout, format):
    tensors = {f"l.experts.{i}.up.weight": x for i, x in enumerate(experts())}
    save(tmp_path / "m.safetensors", {**tensors, "l.o.bias": np.ones(4, "float32")})
    quantize.run(tmp_path / "m.safetensors", tmp_path / "out", quantize.recipe(layout, format, experts="stack"))
    for a, b in (("m.safetensors", "out"), ("out", "m.safetensors")):
        rows = {row["name"]: row for row in compare.compare(tmp_path / a, tmp_path / b)}
        assert set(rows) == {*tensors, "l.o.bias"} and rows["l.o.bias"]["note"] == "same values"
        least = 25 if format == "mxfp8_e4m3" else 15
        assert all(least < rows[name]["sqnr_db"] < 40 and rows[name]["note"] == "" for name in tensors)


@pytest.mark.parametrize("name", ["l.experts.up", "l.moe.input_linear.weight"])
@pytest.mark.parametrize("how", ["keep", "split"])
def test_a_stack_is_compared_with_what_it_became(tmp_path, name, how):
    x = np.stack(experts(3))
    save(tmp_path / "m.safetensors", {name: x})
    chosen = quantize.recipe("compressed-tensors", "mxfp8_e4m3", include=[name], experts=how)
    quantize.run(tmp_path / "m.safetensors", tmp_path / "out", chosen)
    rows = {row["name"]: row for row in compare.compare(tmp_path / "m.safetensors", tmp_path / "out")}
    split = {"l.experts.up": "l.experts.{}.up.weight", "l.moe.input_linear.weight": "l.moe.input_linear.{}.weight"}[name]
    assert list(rows) == ([name] if how == "keep" else [split.format(i) for i in range(3)])
    for i, row in enumerate(rows.values()):
        one = x if how == "keep" else x[i]
        assert row["sqnr_db"] == pytest.approx(mxq.quantize(one, "mxfp8_e4m3").sqnr(one), abs=2e-3)


def test_tensors_of_integers_are_compared_by_their_bytes(tmp_path):
    x = np.arange(64, dtype="uint8").reshape(8, 8)
    tensors = {"ids": x, "mask": x, "codes": x, "shape": x}
    types = {"ids": "I8", "mask": "BOOL", "codes": "F8_E4M3"}
    save(tmp_path / "a.safetensors", tensors, types)
    save(tmp_path / "b.safetensors", {**tensors, "mask": x[::-1].copy(), "shape": x[:4]}, types)
    rows = {row["name"]: row["note"] for row in compare.compare(tmp_path / "a.safetensors", tmp_path / "b.safetensors")}
    assert rows.pop("mask") == "BOOL with other bytes" and rows.pop("shape") == "U8 without scales that belong to it"
    assert rows == {"ids": "same values", "codes": "same values"}
    needs = {row["name"]: row["needs"] for row in compare.inspect(tmp_path / "a.safetensors")}
    assert needs["mask"] == "" and needs["codes"] == "F8_E4M3 without scales that belong to it"


def test_the_terminal_shows_notes(tmp_path, capsys):
    save(tmp_path / "a.safetensors", {"x.weight": full(np.nan)})
    save(tmp_path / "b.safetensors", {"x.weight": full(1)})
    assert cli.main(["compare", str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors")]) == 0
    assert "2,048 NaN in A and 0 in B" in capsys.readouterr().out
