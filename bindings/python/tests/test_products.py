"""Products, against sums in double precision and the bound of exact products that the header states."""
import numpy as np
import pytest
from test_arrays import FORMATS, numbers

import mxq


def check(d, a, b, bias=0.0):
    """|error| <= (13 L / 10 + 40) 2^-24 P + 2^-24 max(|D|, tiny), which is what EXACT_PRODUCTS promises in float32."""
    a, b = a.astype("f8"), b.astype("f8")
    exact, sums = a @ b + bias, np.abs(a) @ np.abs(b) + np.abs(bias)
    bound = (1.3 * a.shape[-1] + 40) * 2.0**-24 * sums + 2.0**-24 * np.abs(exact) + 1e-30
    assert d.shape == exact.shape and (np.abs(d - exact) <= bound).all()
    assert np.abs(exact).max() > 0


@pytest.mark.parametrize("format", FORMATS)
def test_the_three_products_of_a_layer(format):
    x, w, dy = numbers(40, 96, seed=1), numbers(56, 96, seed=2), numbers(40, 56, seed=3)
    qx, qw, qdy = (mxq.quantize(array, format, parts="both") for array in (x, w, dy))

    def value(q, part):
        return q.dequantize("float32", part=part)

    check(mxq.matmul(qx, qw.T), value(qx, "rowwise"), value(qw, "rowwise").T)
    check(qdy @ qw, value(qdy, "rowwise"), value(qw, "columnwise"))
    check(qdy.T @ qx, value(qdy, "columnwise").T, value(qx, "columnwise"))


def test_plain_operands():
    x, w = numbers(40, 96, seed=1), numbers(56, 96, seed=2)
    qw = mxq.quantize(w, "mxfp4")
    check(mxq.matmul(x, w.T), x, w.T)
    check(x @ qw.T, x, qw.dequantize().T)
    check(mxq.matmul(x[:, :64], np.ascontiguousarray(w[:, :64]).T), x[:, :64], w[:, :64].T)
    check(mxq.matmul(x, np.ascontiguousarray(w.T)), x, w.T)


def test_a_square_product_is_not_silently_the_transposed_one():
    a, b = mxq.quantize(numbers(64, 64, seed=1)), mxq.quantize(numbers(64, 64, seed=2))
    with pytest.raises(mxq.Error, match="columnwise"):
        mxq.matmul(a.T, b)
    check(a @ b, a.dequantize(), b.dequantize())
    check(a @ b.T, a.dequantize(), b.dequantize().T)


def test_single_rows_and_columns():
    for m, n, k in ((1, 1, 64), (1, 5, 64), (5, 1, 64), (4, 4, 1)):
        a, b = numbers(m, k, seed=1), numbers(n, k, seed=2)
        check(mxq.matmul(a, b.T), a, b.T)


def test_options():
    x, w = numbers(16, 64, seed=1), numbers(24, 64, seed=2)
    qx, qw = mxq.quantize(x), mxq.quantize(w)
    plain = mxq.matmul(qx, qw.T)
    bias = numbers(1, 24)[0]
    check(mxq.matmul(qx, qw.T, bias=bias), qx.dequantize(), qw.dequantize().T, bias)
    assert np.array_equal(mxq.matmul(qx, qw.T, alpha=2.0), 2 * plain)
    out = np.ones((16, 24), "f4")
    assert mxq.matmul(qx, qw.T, out=out, accumulate=True) is out
    assert np.allclose(out, plain + 1, atol=1e-5)
    wide = np.zeros((16, 40), "f4")
    mxq.matmul(qx, qw.T, out=wide[:, :24])
    assert np.array_equal(wide[:, :24], plain) and not wide[:, 24:].any()
    assert mxq.matmul(qx, qw.T, dtype="float16").dtype == np.float16
    assert np.array_equal(mxq.matmul(qx, qw.T, exact_products=True), plain)
    for wrong in (dict(accumulate=True), dict(beta=1.0), dict(out=np.zeros((24, 16), "f4")), dict(implementation="none"), dict(bias=bias[:3])):
        with pytest.raises(mxq.Error):
            mxq.matmul(qx, qw.T, **wrong)


def test_plan():
    qx, qw = mxq.quantize(numbers(16, 64)), mxq.quantize(numbers(24, 64))
    assert mxq.plan(mxq.matmul, qx, qw.T) == mxq.Plan("cpu", "", 0, "exact_products")
    assert mxq.plan(mxq.quantize, numbers(16, 64), "nvfp4").bound == "none"
    with pytest.raises(mxq.Error, match="expected one of"):
        mxq.plan(print)
    with pytest.raises(mxq.Error) as error:
        mxq.plan(mxq.matmul, qx, mxq.quantize(numbers(24, 96)).T)
    assert error.value.code == "SHAPE_MISMATCH"


@pytest.mark.parametrize("format", ["mxfp8_e4m3", "mxfp4", "nvfp4", "fp8_e4m3"])
def test_grouped(format):
    ends = [30, 30, 70]
    x, w, dy = numbers(70, 96, seed=1), numbers(3, 56, 96, seed=2), numbers(70, 56, seed=3)
    qx, qdy = (mxq.quantize(array, format, parts="both", groups=ends) for array in (x, dy))
    qw = mxq.quantize(w, format, parts="both")
    y, dx, dw = mxq.grouped_matmul(qx, qw.mT), mxq.grouped_matmul(qdy, qw), mxq.grouped_matmul(qdy.T, qx)
    assert dw.shape == (3, 56, 96) and not dw[1].any()
    for g, (first, last) in enumerate(zip([0, *ends], ends)):
        if first == last:
            continue
        rows = slice(first, last)
        check(y[rows], qx.dequantize()[rows], qw.dequantize()[g].T)
        check(dx[rows], qdy.dequantize()[rows], qw.dequantize(part="columnwise")[g])
        check(dw[g], qdy.dequantize(part="columnwise")[rows].T, qx.dequantize(part="columnwise")[rows])


def test_grouped_plain_rows_and_bias():
    ends, x, w = np.array([20, 50], "i8"), numbers(60, 64, seed=1), numbers(2, 40, 64, seed=2)
    qw, bias = mxq.quantize(w, "mxfp4"), numbers(2, 40, seed=3)
    y = mxq.grouped_matmul(x, qw.mT, groups=ends, bias=bias)
    check(y[:20], x[:20], qw.dequantize()[0].T, bias[0])
    check(y[20:50], x[20:50], qw.dequantize()[1].T, bias[1])
    assert not y[50:].any()
    padded = mxq.pad_groups(x, ends, alignment=16)
    assert np.array_equal(mxq.grouped_matmul(padded, qw.mT, bias=bias), y)
    for wrong in (lambda: mxq.grouped_matmul(x, qw.mT), lambda: mxq.grouped_matmul(x, mxq.quantize(w[0]).T, groups=ends),
                  lambda: mxq.grouped_matmul(mxq.quantize(x, groups=ends), qw.mT, groups=ends)):
        with pytest.raises(mxq.Error):
            wrong()


def test_leading_dimensions_of_a_are_rows():
    x, w = numbers(2, 3, 4, 64), numbers(24, 64, seed=2)
    qw, rows = mxq.quantize(w), x.reshape(24, 64)
    expected = rows @ qw.T
    for a in (x, x[0], x[0, 0], x[0, 0, 0], x[:0], np.broadcast_to(x[0, 0], (5, 4, 64))):
        y = a @ qw.T
        assert y.shape == (*a.shape[:-1], 24) and np.array_equal(y.reshape(-1, 24), a.reshape(-1, 64) @ qw.T)
    assert np.array_equal((x @ qw.T).reshape(24, 24), expected)
    assert mxq.plan(mxq.matmul, x, qw.T) == mxq.plan(mxq.matmul, rows, qw.T)
    out = np.zeros((2, 3, 4, 24), "f4")
    assert mxq.matmul(x, qw.T, out=out) is out and np.array_equal(out.reshape(24, 24), expected)
    for wrong in (np.zeros((24, 24), "f4"), np.zeros((2, 3, 4, 30), "f4")[..., :24].transpose(1, 0, 2, 3), np.zeros((2, 3, 4, 48), "f4")[..., ::2]):
        with pytest.raises(mxq.Error, match="out has shape"):
            mxq.matmul(x, qw.T, out=wrong)
    spaced = np.zeros((2, 3, 4, 30), "f4")[..., :24]
    assert np.array_equal(mxq.matmul(x, qw.T, out=spaced), out)
    with pytest.raises(mxq.Error, match="mxq_grouped_gemm"):
        mxq.matmul(x[0], mxq.quantize(numbers(3, 24, 64)).mT)


@pytest.mark.parametrize("format, scaling", [(format, None) for format in FORMATS[:6]] + [("fp8_e4m3", "row"), ("fp8_e4m3", "1x128")])
def test_rows_of_a_quantized_stack(format, scaling):
    x, w = numbers(3, 8, 256), numbers(24, 256, seed=2)
    stack, qw = mxq.quantize(x, format, scaling=scaling), mxq.quantize(w, format, scaling=scaling)
    y = stack @ qw.T
    assert y.shape == (3, 8, 24) and np.array_equal(y.reshape(24, 24), mxq.quantize(x.reshape(24, 256), format, scaling=scaling) @ qw.T)


def test_stacks_that_are_no_rows_are_refused():
    x, w = numbers(3, 8, 64), numbers(24, 64, seed=2)
    for options in (dict(parts="columnwise"), dict(swizzled=True), dict(scaling="32x32"), dict(format="nvfp4", scope="expert"), dict(format="fp8_e4m3")):
        with pytest.raises(mxq.Error, match=r"quantize x.reshape\(-1, 64\)"):
            mxq.quantize(x, **options) @ mxq.quantize(w, options.get("format", "mxfp8_e4m3")).T
