"""transformers loads what mxq-quantize writes, to the bits of mxq.dequantize. Skipped without transformers and its readers.

pip install transformers compressed-tensors accelerate
"""

import mxq
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("ml_dtypes", reason="the tools need ml_dtypes and rich")
pytest.importorskip("rich", reason="the tools need ml_dtypes and rich")
from mxq.tools import layouts, quantize, reader, stored  # noqa: E402
from test_tools import name_of  # noqa: E402

READERS = {  # the package that a layout needs, and the class of its options
    "compressed-tensors": ("compressed_tensors", "CompressedTensorsConfig"),
    "deepseek": ("accelerate", "FineGrainedFP8Config"),
    "gpt-oss": ("transformers", "Mxfp4Config"),
}
SIZES = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 256}
EXPERTS = {"num_key_value_heads": 2, "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Small models with random weights: one of matrices, one of experts in stacks."""
    folder = tmp_path_factory.mktemp("models")
    made = {
        "matrices": transformers.LlamaConfig(intermediate_size=256, **SIZES),
        "stacks": transformers.GptOssConfig(intermediate_size=128, layer_types=["full_attention"], **SIZES, **EXPERTS),
    }
    torch.manual_seed(0)
    for name, config in made.items():
        transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder / name)
    return folder


@pytest.mark.parametrize("row", [row for row in layouts.LAYOUTS if row.layout in READERS], ids=name_of)
def test_a_model_loads_with_the_bits_of_dequantize(models, tmp_path, row):
    package, options = READERS[row.layout]
    pytest.importorskip(package)
    source = models / ("stacks" if row.rank == 3 else "matrices")
    report = quantize.run(source, tmp_path / "out", quantize.recipe(row.layout, row.format, row.scaling))
    plain = getattr(transformers, options)(dequantize=True)
    load = transformers.AutoModelForCausalLM.from_pretrained
    model = load(tmp_path / "out", quantization_config=plain, dtype=torch.bfloat16)
    found, loaded = {one.name: one for one in stored.find(reader.open_checkpoint(tmp_path / "out"))}, model.state_dict()
    names = [one["name"] for one in report["tensors"] if "scaling" in one]
    assert len(names) == (2 if row.rank == 3 else 7)
    for name in found:
        want = mxq.convert(stored.values(found[name]).reshape(1, -1), "bfloat16").view(np.int16).reshape(-1)
        assert np.array_equal(loaded[name].contiguous().view(torch.int16).numpy().reshape(-1), want), name
    assert torch.isfinite(model(torch.arange(16)[None]).logits).all()
