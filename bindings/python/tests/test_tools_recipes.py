"""mxq-quantize recipes: the figures of the layer of experts, which its data's page states, and the table of docs/checkpoints.md."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ml_dtypes", reason="the tools need ml_dtypes and rich")
pytest.importorskip("rich", reason="the tools need ml_dtypes and rich")
from mxq.tools import cli, recipes  # noqa: E402
from test_tools import save  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("MXQ_TEST_DATA_DIR", ROOT / "tests/data")) / "moe.safetensors"


@pytest.fixture(scope="module")
def rows():
    return list(recipes.recipes(DATA))


def test_the_layer_of_experts_has_its_known_decibels(rows):
    found = {(row["format"], row["scaling"], row["option"]): row for row in rows}
    assert len(found) == len(recipes.WAYS) == len(rows)
    for format, scaling, decibels in (
        ("mxfp8_e4m3", "1x32", 36.00),
        ("mxfp8_e4m3", "32x32", 36.00),
        ("mxfp4", "1x32", 17.48),
        ("nvfp4", "1x16", 26.47),
    ):
        assert found[format, scaling, ""]["layer_db"] == pytest.approx(decibels, abs=0.05)
    elements = 2 * 4 * 1536 * 384
    assert (
        found["mxfp4", "1x32", ""]["bytes"] == elements * 17 // 32
        and found["nvfp4", "1x16", ""]["bytes"] == elements * 9 // 16 + 32
    )


def test_the_table_of_the_page_is_what_the_command_gives(rows):
    page = ROOT / "docs/checkpoints.md"
    if not page.exists():
        pytest.skip("the page is not here")
    lines = re.findall(
        r"^\| (\w+) \| (\w+) \| ([^|]*)\| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page.read_text(), re.MULTILINE
    )
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows):
        assert (line[0], line[1], line[2].strip()) == (row["format"], row["scaling"], row["option"])
        assert int(line[3].replace(",", "")) == row["bytes"] and float(line[4]) == pytest.approx(row["bits"], abs=0.006)
        assert float(line[5]) == pytest.approx(row["weights_db"], abs=0.01) and float(line[6]) == pytest.approx(
            row["layer_db"], abs=0.01
        )


def test_a_checkpoint_without_a_layer_gets_weights_alone(tmp_path, capsys):
    x = np.random.default_rng(0).standard_normal((64, 256), "float32")
    save(tmp_path / "m.safetensors", {"a.weight": x, "lm_head.weight": x, "a.bias": x[0], "b.weight": x.reshape(4, 16, 256)})
    assert cli.main(["recipes", str(tmp_path / "m.safetensors")]) == 0
    said = capsys.readouterr().out
    assert "layer db" not in said and "8,704" in said and "four over six" in said  # 64 * 256 * 17 / 32
    save(tmp_path / "n.safetensors", {"a.bias": x})
    assert cli.main(["recipes", str(tmp_path / "n.safetensors")]) == 1 and "expected a weight of" in capsys.readouterr().err
