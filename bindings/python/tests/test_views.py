"""Experts of a tensor as views, and tensors on other devices."""
import numpy as np
import pytest
from test_arrays import FORMATS, numbers

import mxq

SHAPE = (3, 48, 64)


def tensor(format, scope, swizzled, listed):
    q = mxq.quantize(numbers(*SHAPE), format, parts="both", scope=scope, swizzled=swizzled)
    if not listed:
        return q
    parts = {name: part._replace(codes=list(part.codes), scales=[np.atleast_1d(scales) for scales in part.scales])
             for name, part in q.parts.items()}
    return mxq.QTensor.from_parts(format, SHAPE, scope=scope, swizzled=swizzled, **parts)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("scope", ["tensor", "expert"])
@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_experts_are_views(format, swizzled, scope, listed):
    if scope == "expert" and format.startswith("mx"):
        pytest.skip("MX has nothing above its scales")
    if format.startswith("fp8") and (swizzled or listed and scope == "tensor"):
        pytest.skip("TENSOR scales are not swizzled, and lists of experts have one each")
    q = tensor(format, scope, swizzled, listed)
    for part in ("rowwise", "columnwise"):
        values = q.dequantize(part=part)
        for i in (0, 1, 2, -1, np.int64(-3)):
            assert q[i].shape == SHAPE[1:] and np.array_equal(q[i].dequantize(part=part), values[i])
            base = q.part(part).codes[i]
            assert np.shares_memory(q[i].part(part).codes, base)
        for some in (slice(0, 2), slice(1, None), slice(-1, 9), slice(None)):
            assert q[some].scope == scope and np.array_equal(q[some].dequantize(part=part), values[some])
    assert [each.shape for each in q] == [SHAPE[1:]] * 3
    assert np.array_equal(mxq.matmul(numbers(8, 64), q[1].T), mxq.matmul(numbers(8, 64), tensor(format, scope, False, False)[1].T))


def test_no_experts():
    q = mxq.quantize(numbers(3, 48, 64), "nvfp4", scope="expert")[2:1]
    assert q.shape == (0, 48, 64) and q.rowwise.amax.shape == (0,) and q.dequantize().shape == (0, 48, 64)


def test_experts_of_slices_and_of_flat_arrays():
    q = mxq.quantize(numbers(3, 48, 64))
    values = q.dequantize()
    sliced = mxq.QTensor.from_parts("mxfp8_e4m3", (3, 16, 64), rowwise=(q.rowwise.codes[:, 16:32], q.rowwise.scales[:, 16:32]))
    assert np.array_equal(sliced[1].dequantize(), values[1, 16:32]) and np.array_equal(sliced[1:].dequantize(), values[1:, 16:32])
    flat = mxq.QTensor.from_parts("mxfp8_e4m3", (3, 48, 64), rowwise=(q.rowwise.codes.ravel(), q.rowwise.scales.ravel()))
    assert np.array_equal(flat[2].dequantize(), values[2])


@pytest.mark.parametrize("index, says", [
    (slice(None, None, 2), "a step of 2"), (slice(None, None, -1), "a step of -1"), ("x", "the index is 'x'"),
    ((0, 1), r"the index is \(0, 1\)"), (1.0, "the index is 1.0")])
def test_other_indices_are_refused(index, says):
    with pytest.raises(mxq.Error, match=says):
        mxq.quantize(numbers(3, 16, 64))[index]


def test_indices_of_no_expert():
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"the index is {index}, expected -3 to 2"):
            mxq.quantize(numbers(3, 16, 64))[index]
    with pytest.raises(mxq.Error, match="expected 3 dimensions"):
        mxq.quantize(numbers(16, 64))[0]


def test_numpy_stays_on_the_cpu():
    q = mxq.quantize(numbers(16, 64))
    assert q.to("cpu") is q
    with pytest.raises(mxq.Error, match="device is 'cuda', expected 'cpu' for numpy arrays"):
        q.to("cuda")


def test_torch_goes_to_devices():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(numbers(70, 64))
    q = mxq.quantize(x, "nvfp4", parts="both", groups=[30, 70], hadamard={"rowwise": 0xD7E8})
    assert q.to("cpu") is q and q.to(torch.device("cpu")) is q
    with pytest.raises(mxq.Error, match="meta"):  # every array went there: this device is the only other one everywhere
        q.to("meta")
    if torch.cuda.is_available() and "without CUDA" not in mxq.build():
        there = q.to("cuda")
        assert there.device == "cuda:0" and torch.equal(there.dequantize().cpu(), q.dequantize()) and there.to("cuda") is not q
        assert torch.equal(there.to("cpu").dequantize(part="columnwise"), q.dequantize(part="columnwise"))
        listed = mxq.quantize([x, x])
        assert listed.to("cuda:0").device == "cuda:0"
