"""A tensor reads its arrays where they are at each call, keeps what it needs alive, and cannot be given other parts."""
import gc
import io
import pickle
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
from test_arrays import Exported, numbers

import mxq
from mxq._library import lib


def ones(value, shape=(64, 64)):
    """E4M3 codes of 1.0 (0x38), 2.0 (0x40) or 4.0 (0x48), with scales of 1."""
    return np.full(shape, {1: 0x38, 2: 0x40, 4: 0x48}[value], "u1"), np.full((*shape[:-1], shape[-1] // 32), 127, "u1")


@pytest.mark.parametrize("name", ["spec", "shape", "groups", "rowwise", "columnwise", "parts", "format", "scaling"])
def test_what_a_descriptor_tells_cannot_be_assigned(name):
    q = mxq.quantize(numbers(64, 64), parts="both")
    with pytest.raises(AttributeError):
        setattr(q, name, getattr(q, name))
    q.parts["rowwise"] = None  # a copy
    assert q.rowwise is not None and q.dequantize().any()


def test_an_array_that_moves_in_place():
    codes, scales = ones(1)
    q = mxq.QTensor.from_parts("mxfp8_e4m3", (64, 64), rowwise=(codes, scales))
    assert q.dequantize()[0, 0] == 1
    codes.resize((64, 96), refcheck=False)
    with pytest.raises(mxq.Error, match=r"rowwise.codes has shape \(64, 96\), expected \(64, 64\)"):
        q.dequantize()
    codes.resize((32, 64), refcheck=False)
    with pytest.raises(mxq.Error, match=r"rowwise.codes has shape \(32, 64\), expected \(64, 64\)"):
        q.dequantize()
    codes.resize((64, 64), refcheck=False)
    codes[:] = 0x40
    assert q.dequantize()[0, 0] == 2


def test_an_expert_of_a_list_that_is_replaced():
    codes, scales = [ones(1)[0], ones(1)[0]], [ones(1)[1], ones(1)[1]]
    q = mxq.QTensor.from_parts("mxfp8_e4m3", (2, 64, 64), rowwise=(codes, scales))
    assert (q.dequantize() == 1).all()
    codes[1] = ones(4)[0]
    gc.collect()
    assert (q.dequantize()[0] == 1).all() and (q.dequantize()[1] == 4).all()
    codes.pop()
    with pytest.raises(mxq.Error, match="lists of 1 arrays"):
        q.dequantize()


@pytest.mark.parametrize("give", [lambda ends: ends, Exported, mxq.Groups])
@pytest.mark.parametrize("make", ["quantize", "requantize", "pad_groups", "from_parts"])
def test_ends_that_change_afterwards_change_nothing(make, give):
    x, ends = numbers(70, 64), np.array([30, 70], "i4")
    q = mxq.quantize(x, groups=[30, 70])
    q = {"quantize": lambda: mxq.quantize(x, groups=give(ends)), "pad_groups": lambda: mxq.pad_groups(x, give(ends), alignment=16),
         "requantize": lambda: mxq.requantize(q, "mxfp8_e4m3", groups=give(ends)),
         "from_parts": lambda: mxq.QTensor.from_parts("mxfp8_e4m3", (70, 64), rowwise=q.rowwise, groups=give(ends))}[make]()
    before = mxq.quantize(q).dequantize() if make == "pad_groups" else q.dequantize()
    ends[:] = 1, 2
    after = mxq.quantize(q).dequantize() if make == "pad_groups" else q.dequantize()
    assert np.array_equal(after, before) and before[69].any()


def test_ends_on_the_host_are_copied_too():
    ends = np.array([30, 70], "i4")
    q = mxq.quantize(numbers(70, 64), groups=mxq.Groups(ends, host_ends=ends))
    ends[:] = 1, 2
    assert list(q.groups.host_ends) == list(q.groups.ends) == [30, 70]
    listed = mxq.quantize(numbers(70, 64), groups=mxq.Groups(ends.astype("i8"), host_ends=[30, 70]))
    assert listed.groups.host_ends.dtype == np.int64


def test_a_quantization_scale_is_not_remembered():
    import ctypes

    q = mxq.quantize(numbers(32, 64), "fp8_e4m3", quantization_scale=np.array([16], "f4"))
    scale, size = ctypes.c_void_p(1), ctypes.c_uint64(1)
    assert lib.mxq_tensor_get_quantization_scale(q._descriptor().value, ctypes.byref(scale), ctypes.byref(size)) == 0
    assert not scale.value and not size.value and q.dequantize().any()


def test_a_given_amax_that_moves():
    amax = np.array([8], "f4")
    q = mxq.quantize(numbers(32, 64), "nvfp4", amax=amax)
    expected = q.dequantize()
    amax.resize(100000, refcheck=False)
    with pytest.raises(mxq.Error, match=r"rowwise.amax has shape \(100000,\), expected \(1,\)"):
        q.dequantize()
    amax.resize(1, refcheck=False)
    assert np.array_equal(q.dequantize(), expected)


# ---- torch -------------------------------------------------------------------------------------------------------------


def test_a_tensor_that_was_sent_to_another_process():
    torch = pytest.importorskip("torch")
    import torch.multiprocessing  # registers how tensors are sent

    q = mxq.quantize(torch.ones(256, 256), "nvfp4", parts="both", groups=torch.tensor([100, 256]))
    before, address = q.dequantize(), q.rowwise.codes.data_ptr()
    ForkingPickler.dumps(q)
    assert q.rowwise.codes.data_ptr() != address and q.rowwise.codes.is_shared()
    assert torch.equal(q.dequantize(), before) and torch.equal(q.dequantize(part="columnwise"), before)


FIELDS = ["codes", "scales", "amax", "ends"]


@pytest.mark.parametrize("field", FIELDS)
def test_a_tensor_whose_data_is_assigned(field):
    torch = pytest.importorskip("torch")
    q = mxq.quantize(torch.from_numpy(numbers(64, 64)), "nvfp4", groups=torch.tensor([30, 64]))
    array = q.groups.ends if field == "ends" else getattr(q.rowwise, field)
    array.data, kept = array.data.clone(), array.data
    kept.zero_()  # what a stale address would read
    expected = q.dequantize()
    fresh = mxq.QTensor.from_parts("nvfp4", (64, 64), rowwise=q.rowwise, groups=q.groups)
    assert torch.equal(expected, fresh.dequantize()) and expected[63].any()
    w = torch.ones(2, 8, 64)
    assert torch.equal(mxq.grouped_matmul(q, w.mT, dtype="float32"), mxq.grouped_matmul(fresh, w.mT, dtype="float32"))
    array.data = array.data.double()
    with pytest.raises(mxq.Error, match=f"{field} has .*float64"):
        q.dequantize()


def test_a_parameter_whose_data_has_another_shape_is_refused():
    torch = pytest.importorskip("torch")
    codes, scales = (torch.from_numpy(array) for array in ones(1))
    codes = torch.nn.Parameter(codes, requires_grad=False)
    q = mxq.QTensor.from_parts("mxfp8_e4m3", (64, 64), rowwise=(codes, scales))
    codes.data = torch.full((64, 64), 0x40, dtype=torch.uint8)
    assert (q.dequantize() == 2).all() and mxq.matmul(torch.ones(1, 64), q.T)[0, 0] == 128
    codes.data = torch.full((32, 64), 0x40, dtype=torch.uint8)
    with pytest.raises(mxq.Error, match=r"codes has shape \(32, 64\), expected \(64, 64\)"):
        q.dequantize()


def test_a_tensor_of_another_type_at_the_same_address_is_refused():
    torch = pytest.importorskip("torch")
    q = mxq.quantize(torch.from_numpy(numbers(64, 64)), "fp8_e4m3")
    scales = q.rowwise.scales
    scales.data = scales.data.view(torch.int32)
    with pytest.raises(mxq.Error, match="rowwise.scales has dtype int32, expected float32"):
        q.dequantize()


def test_the_device_is_that_of_the_arrays_now():
    torch = pytest.importorskip("torch")
    q = mxq.quantize(torch.from_numpy(numbers(64, 64)))
    expected = q.dequantize()
    q._device = (2, 0)  # as of a module that was on a GPU
    q.rowwise.codes.data = q.rowwise.codes.data.clone()
    assert q.device == "cpu" and torch.equal(q.dequantize(), expected)
    if torch.cuda.is_available() and "without CUDA" not in mxq.build():
        for array in q.rowwise[:2]:
            array.data = array.data.cuda()
        assert q.device == "cuda:0" and torch.equal(q.dequantize().cpu(), expected)


def test_pickles_of_tensors_with_other_arrays_follow_them():
    torch = pytest.importorskip("torch")
    q = mxq.quantize(torch.from_numpy(numbers(64, 64)), groups=[30, 64])
    buffer = io.BytesIO()
    torch.save(q, buffer)
    buffer.seek(0)
    for again in (torch.load(buffer, weights_only=False), pickle.loads(pickle.dumps(q))):
        assert torch.equal(again.dequantize(), q.dequantize()) and again.device == "cpu"


def test_an_array_of_jax_that_was_given_away():
    jax = pytest.importorskip("jax")
    q = mxq.quantize(jax.numpy.asarray(numbers(64, 64)))
    assert q.dequantize().any()
    q.rowwise.codes.delete()
    with pytest.raises(mxq.Error, match="gives no memory"):
        q.dequantize()
