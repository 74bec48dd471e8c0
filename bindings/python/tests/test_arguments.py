"""Arguments other than x: numbers of any library are numbers, and arrays have one dtype, shape and device, or are refused by name."""
import numpy as np
import pytest
from test_arrays import numbers

import mxq

X = numbers(64, 96)


def quantize(**options):
    return mxq.quantize(options.pop("x", X), options.pop("format", "nvfp4"), **options)


REFUSED = [
    (dict(stochastic=np.zeros(2, "u4")), "stochastic has dtype uint32, expected uint64 or int64"),
    (dict(stochastic=np.array([1.0, 2.0])), "stochastic has dtype float64"),
    (dict(stochastic=np.zeros(2, "f4")), "stochastic has dtype float32"),
    (dict(stochastic=np.array(1, "u8")), r"stochastic has shape \(\), expected \(2,\)"),
    (dict(stochastic=np.zeros(3, "u8")), r"stochastic has shape \(3,\), expected \(2,\)"),
    (dict(stochastic=np.zeros((1, 2), "u8")), r"stochastic has shape \(1, 2\)"),
    (dict(stochastic=np.zeros(4, "u8")[::2]), "stochastic has strides"),
    (dict(stochastic=(-1, 0)), "the seed of stochastic is -1, expected an integer from 0 to 18446744073709551615"),
    (dict(stochastic=(2**64, 0)), "the seed of stochastic is 18446744073709551616"),
    (dict(stochastic=(0, -5)), "the offset of stochastic is -5"),
    (dict(stochastic=(True, 0)), "the seed of stochastic is True"),
    (dict(stochastic=(np.float32(1), 0)), "the seed of stochastic is"),
    (dict(amax=np.zeros(2, "f4")), r"^amax has shape \(2,\), expected \(1,\)"),
    (dict(amax=np.zeros(1)), "^amax has dtype float64, expected float32"),
    (dict(amax=np.zeros(0, "f4")), r"^amax has shape \(0,\), expected \(1,\)"),
    (dict(amax=True), "^amax is a bool"),
    (dict(x=numbers(3, 16, 64), scope="expert", amax=np.ones(2, "f4")), r"^amax has shape \(2,\), expected \(3,\)"),
    (dict(x=numbers(3, 16, 64), scope="expert", amax=3.0), r"^amax has shape \(1,\), expected \(3,\)"),
    (dict(groups=[3, 3, 64], scope="expert", amax=np.ones((3, 1), "f4")), r"^amax has shape \(3, 1\), expected \(3,\)"),
    (dict(format="fp8_e4m3", quantization_scale=np.ones(2, "f4")), r"quantization_scale has shape \(2,\), expected \(1,\)"),
    (dict(format="fp8_e4m3", quantization_scale=np.ones(1, "f2")), "quantization_scale has dtype float16, expected float32"),
    (dict(format="fp8_e4m3", quantization_scale="1"), "quantization_scale is a str"),
    (dict(format="fp8_e4m3", amax_epsilon=np.array([1e-3])), "amax_epsilon is .*, expected a number"),
    (dict(hadamard=0x10000), "hadamard is 65536, expected an integer from 0 to 65535"),
    (dict(hadamard=-1), "hadamard is -1"),
    (dict(hadamard={"row": 1}), "hadamard is {'row': 1}, expected"),
    (dict(hadamard={"rowwise": 1.5}), r"hadamard\['rowwise'\] is 1.5"),
    (dict(groups=[3, 2**31]), r"groups.ends\[1\] is 2147483648, .* int64"),
    (dict(groups=[-1, 64]), r"groups.ends\[0\] is -1"),
    (dict(groups=mxq.Groups([3, 64], alignment=0)), "groups.alignment is 0, expected an integer from 1 to 128"),
    (dict(groups=mxq.Groups([3, 64], alignment=(1, 2, 3))), r"groups.alignment is \(1, 2, 3\)"),
    (dict(groups=mxq.Groups([3, 64], host_ends=[1.5])), r"groups.host_ends\[0\] is 1.5"),
]


@pytest.mark.parametrize("options, says", REFUSED)
def test_refused_by_name(options, says):
    with pytest.raises(mxq.Error, match=says):
        quantize(**options)


def test_numbers_of_numpy_are_numbers():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    amax = np.abs(X).max()
    expected = quantize(amax=np.array([amax])).rowwise
    for number in (amax, float(amax), np.float64(amax), np.array(amax), np.array([[amax]])):
        assert np.array_equal(quantize(amax=number).rowwise.codes, expected.codes)
    for number in (16, np.int64(16), np.float16(16), ml_dtypes.bfloat16(16)):
        assert quantize(format="fp8_e4m3", quantization_scale=number).rowwise.scales[0] == 1 / 16
    assert quantize(format="fp8_e4m3", amax_epsilon=np.float32(448)).rowwise.scales[0] == 1
    assert quantize(hadamard=np.int64(0xD7E8)).rowwise.hadamard == 0xD7E8
    seeded = quantize(stochastic=(1, 2)).rowwise.codes
    for pair in ((np.uint64(1), np.int8(2)), np.array([1, 2], "u8"), np.array([1, 2], "i8")):
        assert np.array_equal(quantize(stochastic=pair).rowwise.codes, seeded)
    assert quantize(stochastic=(2**64 - 1, 2**63)).rowwise.codes.any()
    padded = mxq.pad_groups(X, [3, 64], alignment=np.int64(32))
    assert padded.values.shape == (96, 96) and mxq.unpad_groups(padded).shape == (64, 96)
    assert quantize(groups=[np.int64(3), np.uint8(64)]).groups.ends.dtype == np.int32


def test_numbers_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X)
    expected = quantize(amax=float(x.abs().max())).rowwise.codes
    assert np.array_equal(quantize(x=x, amax=x.abs().max()).rowwise.codes, expected)  # 0 dimensions
    seeded = quantize(stochastic=(1, 2)).rowwise.codes
    for pair in ((1, 2), torch.tensor([1, 2]), torch.tensor([1, 2], dtype=torch.uint64)):
        assert np.array_equal(quantize(x=x, stochastic=pair).rowwise.codes, seeded)
    for wrong in (torch.tensor([1, 2, 3, 4], dtype=torch.int32)[:2], torch.tensor([1.0, 2.0])):
        with pytest.raises(mxq.Error, match="stochastic has dtype"):
            quantize(x=x, stochastic=wrong)
    assert quantize(x=x, stochastic=(2**64 - 1, 2**63)).rowwise.codes.any()


def test_a_number_above_the_scales_of_a_part():
    q = quantize()
    decode = float(q.rowwise.amax[0] / np.float32(6 * 448))
    for number in (decode, np.float32(decode), np.array(decode, "f4")):
        part = q.rowwise._replace(amax=None, decode_scale=number)
        assert np.array_equal(mxq.QTensor.from_parts("nvfp4", X.shape, rowwise=part).dequantize(), q.dequantize())
    for wrong, says in ((np.ones(3, "f4"), r"rowwise.decode_scale has shape \(3,\), expected \(1,\)"),
                        (np.ones(1), "decode_scale has dtype float64")):
        with pytest.raises(mxq.Error, match=says):
            mxq.QTensor.from_parts("nvfp4", X.shape, rowwise=q.rowwise._replace(amax=None, decode_scale=wrong))


def test_flat_codes_and_scales_have_the_number_that_the_shape_needs():
    q = quantize(format="mxfp4")
    codes, scales = q.rowwise[:2]
    taken = mxq.QTensor.from_parts("mxfp4", X.shape, rowwise=(codes.ravel(), scales.ravel()))
    assert np.array_equal(taken.dequantize(), q.dequantize())
    swizzled = mxq.swizzle(q).rowwise.scales
    again = mxq.QTensor.from_parts("mxfp4", X.shape, rowwise=(codes, swizzled.reshape(-1, 16)), swizzled=True)
    assert np.array_equal(again.dequantize(), q.dequantize())
    for part, options, says in (
            ((codes, swizzled), {}, r"scales has shape \(512,\), expected \(64, 3\) or 192 elements .* swizzled=True"),
            ((codes, scales.ravel()), dict(swizzled=True), r"scales has shape \(192,\), expected \(512,\)"),
            ((codes, scales), dict(swizzled=True), r"scales has shape \(64, 3\), expected \(512,\)"),
            ((codes.ravel()[:-1], scales), {}, "codes has shape"),
            ((np.append(codes.ravel(), 0).astype("u1"), scales), {}, "codes has shape"),
            ((codes, np.zeros(0, "u1")), {}, r"scales has shape \(0,\)"), ((codes, scales[:63]), {}, r"scales has shape \(63, 3\)")):
        with pytest.raises(mxq.Error, match=says):
            mxq.QTensor.from_parts("mxfp4", X.shape, rowwise=part, **options)


@pytest.mark.parametrize("format", ["mxfp8_e4m3", "nvfp4", "fp8_e4m3"])
def test_parts_with_groups_are_compared_too(format):
    scaling, ends = "1x128" if format == "fp8_e4m3" else None, [30, 30, 64]
    q = quantize(format=format, scaling=scaling, groups=ends, parts="both")
    again = mxq.QTensor.from_parts(format, X.shape, rowwise=q.rowwise, columnwise=q.columnwise, scaling=scaling, groups=ends)
    assert np.array_equal(again.dequantize(part="columnwise"), q.dequantize(part="columnwise"))
    for name, part in q.parts.items():
        wide = np.zeros((part.codes.shape[0], part.codes.shape[1] + 8), "u1")
        for wrong in (part._replace(codes=wide), part._replace(scales=part.scales[:, :-1].copy()),
                      part._replace(scales=part.scales.ravel()[1:])):
            with pytest.raises(mxq.Error, match=f"{name}.(codes|scales) has shape"):
                mxq.QTensor.from_parts(format, X.shape, scaling=scaling, groups=ends, **{name: wrong})


def test_out_has_the_dtype_that_was_asked_for():
    q = quantize()
    out = np.zeros(X.shape, "f4")
    assert mxq.dequantize(q, "float32", out=out) is out and mxq.dequantize(q, out=np.zeros(X.shape, "f2")).any()
    for call in (lambda: mxq.dequantize(q, "float16", out=out), lambda: mxq.convert(X, "float16", out=out),
                 lambda: mxq.matmul(q, q.T, dtype="float16", out=np.zeros((64, 64), "f4"))):
        with pytest.raises(mxq.Error, match="out has dtype float32, expected float16, as dtype says"):
            call()
    for wrong, says in ((np.zeros((96, 64), "f4"), "shape"), (np.zeros((1, 64, 96), "f4"), "shape"), (np.zeros(64 * 96, "f4"), "shape"),
                        (np.zeros(X.shape), "float64")):
        with pytest.raises(mxq.Error, match=f"out has {says}|out has dtype {says}"):
            mxq.dequantize(q, out=wrong)


def test_a_bias_is_one_number_for_each_column():
    q, w = quantize(), quantize(x=numbers(32, 96))
    experts = quantize(x=numbers(2, 32, 96))
    tokens = quantize(groups=[30, 64])
    bias = numbers(32)
    assert np.allclose(mxq.matmul(q, w.T, bias=bias) - mxq.matmul(q, w.T), bias, atol=1e-5)
    for wrong in (numbers(10, 32), numbers(64), numbers(32, 1), numbers(1, 32), numbers(31), numbers(33), np.float32(1)):
        with pytest.raises(mxq.Error, match=r"bias (has shape .*, expected \(32,\)|is a float32)"):
            mxq.matmul(q, w.T, bias=wrong)
    assert mxq.grouped_matmul(tokens, experts.mT, bias=numbers(2, 32)).any()
    for wrong in (numbers(32), numbers(32, 2), numbers(2, 33), numbers(64), numbers(2, 1, 32)):
        with pytest.raises(mxq.Error, match=r"bias has shape .*, expected \(2, 32\)"):
            mxq.grouped_matmul(tokens, experts.mT, bias=wrong)
    with pytest.raises(mxq.Error, match="bias has dtype float64, expected float32 or float16 or bfloat16"):
        mxq.matmul(q, w.T, bias=np.zeros(32))
