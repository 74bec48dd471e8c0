"""The torch code that libmxq is compared with does the same work: that of mxq_bench --suite origins gives libmxq's bits, the layer of
training_layer.py its gradients."""
import sys
from pathlib import Path

import pytest

import mxq

torch = pytest.importorskip("torch")
sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "tests" / "bench" / folder) for folder in ("", "peers")]
torch_origins = pytest.importorskip("torch_origins")
training_layer = pytest.importorskip("training_layer")


def bytes_of(x):
    return x.contiguous().view(torch.uint8).flatten()


@pytest.mark.parametrize("scaling", ["1x32", "32x32"])
@pytest.mark.parametrize("rounding", ["floor", "rceil"])
def test_quantize_of_experts(scaling, rounding):
    torch.manual_seed(1)
    weights = torch.randn(3, 256, 128, dtype=torch.bfloat16)
    weights[0, :32, :32] = 0
    codes, scales = torch_origins.quantize_columnwise(weights, scaling == "32x32", rounding == "floor")
    part = mxq.quantize(weights, scaling=scaling, parts="columnwise", swizzled=True, scale_rounding=rounding).columnwise
    assert torch.equal(bytes_of(codes), bytes_of(part.codes))
    assert torch.equal(bytes_of(scales), bytes_of(part.scales))


def test_padding_of_groups():
    x, ends = torch.randn(100, 8, dtype=torch.bfloat16), torch.tensor([30, 30, 77, 100], dtype=torch.int32)
    padded, starts, padded_ends = torch_origins.pad_on_device(x, ends)
    ours = mxq.pad_groups(x, ends, alignment=torch_origins.ALIGNMENT)
    rows = int(ours.ends[-1])  # nobody writes those behind
    assert torch.equal(padded[:rows], ours.values[:rows])
    assert starts.tolist() == ours.starts.tolist() and padded_ends.tolist() == ours.ends.tolist()


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this torch has no _grouped_mm")
def test_training_step_of_a_layer():
    torch.manual_seed(1)
    leaves, ids, dy = training_layer.operands(tokens=96, top=2, experts=4, k=128, i=96, device="cpu")
    found, missing = training_layer.layers()
    found[training_layer.TORCH] = training_layer.torch_layer  # not compiled, which takes long
    steps = {name: training_layer.step_of(layer, leaves, ids, dy) for name, layer in found.items()}
    good, quality, failed = training_layer.checked(steps)
    assert not missing and not failed and list(good) == [training_layer.TORCH, *training_layer.LAYERS]
    assert min(min(each) for each in quality.values()) > 22  # a little below what was seen


def test_a_layer_with_other_gradients_is_left_out():
    first = torch.randn(100)
    steps = {training_layer.TORCH: lambda: (first,), "wrong": lambda: (first.flip(0),), "refuses": lambda: 1 / 0}
    good, quality, failed = training_layer.checked(steps)
    assert list(good) == [training_layer.TORCH] and "other results than torch's" in failed["wrong"] and "division" in failed["refuses"]
