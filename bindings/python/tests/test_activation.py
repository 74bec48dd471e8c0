"""Activations and their gradients, against the same in numpy."""
import numpy as np
import pytest

import mxq

ROWS, WIDTH = 40, 64


def numbers(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("layout", ["gate_up", "up_gate", "interleaved_gate_up", "interleaved_up_gate"])
def test_layouts_of_swiglu(layout):
    x = numbers((ROWS, 2 * WIDTH), 1)
    first, second = (x[:, 0::2], x[:, 1::2]) if layout.startswith("interleaved") else (x[:, :WIDTH], x[:, WIDTH:])
    gate, up = (second, first) if layout.endswith("up_gate") else (first, second)
    np.testing.assert_allclose(mxq.activate(x, gate_layout=layout), gate * sigmoid(gate) * up, rtol=1e-6, atol=1e-7)


def test_the_clamped_form_with_bias_and_weights_of_rows():
    x, bias = 8 * numbers((ROWS, 2 * WIDTH), 2), numbers((2 * WIDTH,), 3)
    weights = numbers((ROWS,), 4)
    gate, up = np.minimum((x + bias)[:, 0::2], 7), np.clip((x + bias)[:, 1::2], -7, 7)
    right = gate * sigmoid(1.702 * gate) * (up + 1) * weights[:, None]
    got = mxq.activate(x, "swiglu_clamped", gate_layout="interleaved_gate_up", bias=bias, row_weights=weights)
    np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("parts", ["rowwise", "columnwise", "both"])
def test_a_quantized_result_has_the_bytes_of_quantize(parts):
    x = numbers((ROWS, 2 * WIDTH), 5)
    q = mxq.activate(x, "geglu_tanh", format="mxfp8_e4m3", parts=parts, groups=[10, 10, ROWS], scale_rounding="floor")
    same = mxq.quantize(mxq.activate(x, "geglu_tanh"), "mxfp8_e4m3", parts=parts, groups=[10, 10, ROWS], scale_rounding="floor")
    for name in ("rowwise", "columnwise") if parts == "both" else (parts,):
        used = q.dequantize("float32", part=name)
        assert np.array_equal(used, same.dequantize("float32", part=name))
        assert np.abs(used).max() > 0.5


def test_groups_have_biases_and_rows_in_none_are_zero():
    x, bias = numbers((ROWS, WIDTH), 6), numbers((2, WIDTH), 7)
    got = mxq.activate(x, "squared_relu", bias=bias, groups=[10, 30])
    right = np.zeros_like(x)
    right[:10], right[10:30] = np.maximum(x[:10] + bias[0], 0) ** 2, np.maximum(x[10:30] + bias[1], 0) ** 2
    assert np.array_equal(got, right)


def test_gradients():
    x, gradient = numbers((ROWS, 2 * WIDTH), 8), numbers((ROWS, WIDTH), 9)
    weights = numbers((ROWS,), 10)
    gate, up = x[:, :WIDTH], x[:, WIDTH:]
    s, d = sigmoid(gate), gradient * weights[:, None]
    right = np.concatenate([d * up * s * (1 + gate * (1 - s)), d * gate * s], axis=1)
    got = mxq.activate_backward(gradient, x, row_weights=weights, bias_gradient=True, row_weight_gradient=True)
    np.testing.assert_allclose(got.x, right, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got.bias, right.sum(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got.row_weights, (gradient * gate * s * up).sum(1), rtol=1e-4, atol=1e-5)
    assert mxq.activate_backward(gradient, x).bias is None
    q = mxq.activate_backward(gradient, x, row_weights=weights, format="mxfp8_e4m3", parts="both").x
    assert q.sqnr(got.x) > 25 and q.sqnr(got.x, part="columnwise") > 25


def test_what_is_refused():
    x = numbers((ROWS, 2 * WIDTH), 11)
    with pytest.raises(mxq.Error, match="even number"):
        mxq.activate(x[:, 1:])
    with pytest.raises(mxq.Error, match="need a format"):
        mxq.activate(x, scaling="1x32")
    with pytest.raises(mxq.Error, match="alpha, limit, addend"):
        mxq.activate(x, "swiglu_clamped", clamp=7)
    with pytest.raises(mxq.Error, match="expected one with a gate"):
        mxq.activate_backward(x, x, "silu")
    assert mxq.plan(mxq.activate, x).implementation == "cpu"
