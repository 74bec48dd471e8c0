"""Codes and scales that are slices of larger arrays, and experts that are arrays of their own."""

import gc
import pickle

import numpy as np
import pytest
from test_arrays import FORMATS, Exported, numbers

import mxq


def whole(format, experts=3, rows=32, cols=128, **options):
    return mxq.quantize(
        numbers(experts, rows, cols),
        format,
        scope="expert" if format in ("nvfp4", "fp8_e4m3", "fp8_e5m2") else "tensor",
        **options
    )


def same(q, expected):
    return np.array_equal(q.dequantize(), expected.dequantize()) and expected.dequantize().any()


@pytest.mark.parametrize("format, block", [("mxfp8_e4m3", 32), ("mxfp6_e2m3", 32), ("mxfp4", 32), ("nvfp4", 16)])
def test_columns_of_a_larger_matrix(format, block):
    q = mxq.quantize(numbers(40, 256), format)
    codes, scales = q.rowwise.codes, q.rowwise.scales
    bits = 8 * codes.shape[1] // 256
    part = q.rowwise._replace(codes=codes[:, 64 * bits // 8 : 192 * bits // 8], scales=scales[:, 64 // block : 192 // block])
    view = mxq.QTensor.from_parts(format, (40, 128), rowwise=part)
    assert np.array_equal(view.dequantize(), q.dequantize()[:, 64:192])
    copied = mxq.QTensor.from_parts(
        format, (40, 128), rowwise=part._replace(codes=part.codes.copy(), scales=part.scales.copy())
    )
    assert (
        np.array_equal(mxq.matmul(numbers(4, 128), view.T), mxq.matmul(numbers(4, 128), copied.T))
        and view.nbytes == copied.nbytes
    )
    every_other = mxq.QTensor.from_parts(format, (20, 256), rowwise=q.rowwise._replace(codes=codes[::2], scales=scales[::2]))
    assert np.array_equal(every_other.dequantize(), q.dequantize()[::2])
    assert np.array_equal(pickle.loads(pickle.dumps(view)).dequantize(), view.dequantize())


def test_gate_and_up_in_one_array():
    q = mxq.quantize(numbers(3, 64, 96), "mxfp4")
    for rows in (slice(0, 32), slice(32, 64)):
        half = mxq.QTensor.from_parts("mxfp4", (3, 32, 96), rowwise=(q.rowwise.codes[:, rows], q.rowwise.scales[:, rows]))
        assert np.array_equal(half.dequantize(), q.dequantize()[:, rows]) and half.nbytes == q.nbytes // 2
        assert np.array_equal(mxq.unswizzle(mxq.swizzle(half)).dequantize(), half.dequantize())
    with pytest.raises(mxq.Error, match="expected a QTensor"):
        mxq.swizzle([half])


@pytest.mark.parametrize("format", FORMATS)
def test_experts_as_lists(format):
    q = whole(format)
    rowwise = q.rowwise._replace(
        codes=[codes.copy() for codes in q.rowwise.codes], scales=[scales.copy() for scales in np.split(q.rowwise.scales, 3)]
    )
    listed = mxq.QTensor.from_parts(format, q.shape, rowwise=rowwise, scope=q.spec.scope)
    del rowwise
    gc.collect()
    assert same(listed, q) and listed.nbytes == q.nbytes and "listed" in repr(listed)
    x, ends = numbers(70, 128), [30, 30, 70]
    assert np.array_equal(mxq.grouped_matmul(x, listed.mT, groups=ends), mxq.grouped_matmul(x, q.mT, groups=ends))
    assert np.array_equal(mxq.requantize(listed, "mxfp8_e4m3").rowwise.codes, mxq.requantize(q, "mxfp8_e4m3").rowwise.codes)
    assert same(pickle.loads(pickle.dumps(listed)), q)


@pytest.mark.parametrize("format", FORMATS)
def test_arrays_of_experts(format):
    x = numbers(3, 16, 160)
    apart = [expert[:, 32:96] for expert in (x[2].copy(), x[0].copy(), x[1].copy())]
    expected = mxq.quantize(np.stack(apart), format, parts="both")
    q = mxq.quantize(apart, format, parts="both")
    for part in ("rowwise", "columnwise"):
        assert np.array_equal(getattr(q, part).codes, getattr(expected, part).codes)
        assert np.array_equal(getattr(q, part).scales, getattr(expected, part).scales)
    assert np.array_equal(mxq.convert(apart, "float16"), np.stack(apart).astype("f2"))
    assert np.array_equal(mxq.amax(apart), [np.abs(np.stack(apart)).max()])
    tokens, ends = numbers(70, 64), [30, 30, 70]
    y = mxq.grouped_matmul(tokens, [expert.T for expert in apart], groups=ends)
    assert np.array_equal(y, mxq.grouped_matmul(tokens, np.stack(apart).transpose(0, 2, 1), groups=ends)) and y.any()
    assert np.array_equal(mxq.quantize([Exported(expert) for expert in apart], format).rowwise.codes, expected.rowwise.codes)
    assert mxq.quantize([np.zeros((0, 64), "f4")] * 2, format).shape == (2, 0, 64)


def test_types_of_lists():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q = whole("mxfp8_e4m3")
    codes, scales = mxq.QTensor.from_parts(
        "mxfp8_e4m3", q.shape, rowwise=(list(q.rowwise.codes), list(q.rowwise.scales))
    ).typed()
    assert [array.dtype for array in codes + scales] == [ml_dtypes.float8_e4m3fn] * 3 + [ml_dtypes.float8_e8m0fnu] * 3


def test_lists_that_do_not_fit_are_refused():
    a = numbers(16, 64)
    for wrong, says in (
        ([], "empty"),
        ([a, a[:8]], r"x\[1\] has shape"),
        ([a, a.astype("f2")], r"x\[1\] has dtype"),
        ([a, None], "NoneType"),
        ([a, numbers(16, 96)[:, :64]], r"x\[1\] has strides"),
        ([a[None]], "one expert of a list"),
        ([a, np.asfortranarray(a)], r"x\[1\] has shape .* contiguous copy"),
    ):
        with pytest.raises(mxq.Error, match=says):
            mxq.quantize(wrong)
    q = whole("mxfp8_e4m3")
    codes, scales = list(q.rowwise.codes), list(q.rowwise.scales)
    for part, says in (
        ((codes, q.rowwise.scales), "two lists"),
        ((codes[:2], scales[:2]), "one for each expert"),
        (([], []), "an array for each"),
        ((codes[:2] + [codes[0][:8]], scales), r"codes\[2\] has shape"),
        ((codes, scales[:2]), "two lists"),
    ):
        with pytest.raises(mxq.Error, match=says):
            mxq.QTensor.from_parts("mxfp8_e4m3", q.shape, rowwise=part)
    with pytest.raises(mxq.Error, match="scope|SCOPE"):
        mxq.QTensor.from_parts("fp8_e4m3", q.shape, rowwise=(codes, [np.ones(1, "f4")] * 3))


def test_scales_of_checkpoints():
    """One scale of a tensor as a number without dimensions, and scales of rows as a column."""
    q = mxq.quantize(numbers(32, 64), "fp8_e4m3")
    again = mxq.QTensor.from_parts("fp8_e4m3", q.shape, rowwise=(q.rowwise.codes, q.rowwise.scales.reshape(())))
    assert same(again, q)
    q = mxq.quantize(numbers(32, 64), "fp8_e4m3", scaling="row")
    again = mxq.QTensor.from_parts(
        "fp8_e4m3", q.shape, rowwise=(q.rowwise.codes, q.rowwise.scales.reshape(32, 1)), scaling="row"
    )
    assert same(again, q)
