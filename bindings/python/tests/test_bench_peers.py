"""The torch code that mxq_bench --suite origins is compared with does the same work: it gives libmxq's bits."""
import sys
from pathlib import Path

import pytest

import mxq

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "bench"))
torch_origins = pytest.importorskip("torch_origins")


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
