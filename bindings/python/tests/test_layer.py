"""The expert layer, against the same in numpy."""
import numpy as np
import pytest
from test_arrays import numbers

import mxq

TOKENS, CHOICES, EXPERTS, WIDTH, INNER = 9, 2, 4, 32, 64


def drawn(dtype="int32"):
    random = np.random.default_rng(3)
    ids = random.integers(0, EXPERTS, (TOKENS, CHOICES)).astype(dtype)
    ids[2, 1] = -1
    return ids, random.random((TOKENS, CHOICES), dtype="float32")


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_rows_are_sorted_by_expert(dtype):
    ids, weights = drawn(dtype)
    routing = mxq.route(ids, EXPERTS, weights)
    flat = ids.reshape(-1)
    order = [i for e in range(EXPERTS) for i in range(flat.size) if flat[i] == e]
    assert routing.ends.tolist() == [int((np.sort(flat[flat >= 0]) <= e).sum()) for e in range(EXPERTS)]
    assert routing.row_tokens.tolist() == [i // CHOICES for i in order] + [-1]
    assert np.array_equal(routing.row_weights, np.append(weights.reshape(-1)[order], np.float32(0)))
    rows = routing.choice_rows.reshape(-1)
    assert rows[2 * CHOICES + 1] == -1 and [rows[i] for i in order] == list(range(len(order)))
    assert mxq.plan(mxq.route, ids, EXPERTS).implementation == "cpu"


def test_experts_of_another_rank_are_dropped():
    ids, weights = drawn()
    routing = mxq.route(ids, EXPERTS, weights, local_experts=(1, 2))
    here = (ids == 1) | (ids == 2)
    assert routing.ends.tolist() == [(ids == 1).sum(), here.sum()]
    assert ((routing.choice_rows >= 0) == here).all()


def test_sums_of_rows():
    ids, weights = drawn()
    routing = mxq.route(ids, EXPERTS, weights)
    rows, residual = numbers(TOKENS * CHOICES, WIDTH, seed=1), numbers(TOKENS, WIDTH, seed=2)
    expected = residual.copy()
    for token in range(TOKENS):
        for j in range(CHOICES):
            if ids[token, j] >= 0:
                expected[token] += weights[token, j] * rows[routing.choice_rows[token, j]]
    assert np.array_equal(mxq.combine(routing, rows, residual=residual), expected)
    assert mxq.combine(routing, rows, dtype="float16").dtype == np.float16


def test_gradients_of_sums():
    ids, weights = drawn()
    routing, rows = mxq.route(ids, EXPERTS, weights), numbers(TOKENS * CHOICES, WIDTH, seed=1)
    gradient = numbers(TOKENS, WIDTH, seed=2)
    made = mxq.combine_backward(routing, gradient, rows, weight_gradient=True)
    of_rows, of_weights = np.zeros_like(rows), np.zeros_like(weights)
    for token in range(TOKENS):
        for j in range(CHOICES):
            row = routing.choice_rows[token, j]
            if row >= 0:
                of_rows[row] = weights[token, j] * gradient[token]
                of_weights[token, j] = gradient[token] @ rows[row]
    assert np.array_equal(made.rows, of_rows) and not of_rows[-1].any()
    np.testing.assert_allclose(made.weights, of_weights, rtol=1e-5, atol=1e-5)
    out = np.ones_like(rows)
    alone = mxq.combine_backward(routing, gradient, out=out)
    assert alone.rows is out and alone.weights is None and np.array_equal(out[:-1], of_rows[:-1]) and (out[-1] == 1).all()
    assert mxq.combine_backward(routing, gradient, rows, row_gradient=False, weight_gradient=True).rows is None
    assert mxq.combine_backward(routing, gradient, dtype="float16").rows.dtype == np.float16


def layer(x, ids, weights, gate_up, down):
    out = np.zeros((TOKENS, WIDTH))
    for token in range(TOKENS):
        for j in range(CHOICES):
            expert = ids[token, j]
            if expert >= 0:
                gate, up = np.split(gate_up[expert].astype("f8") @ x[token], 2)
                out[token] += weights[token, j] * (down[expert].astype("f8") @ (gate / (1 + np.exp(-gate)) * up))
    return out


@pytest.mark.parametrize("weights_first", [False, True])
def test_the_layer(weights_first):
    ids, weights = drawn()
    x = numbers(TOKENS, WIDTH, seed=1)
    gate_up = numbers(EXPERTS * 2 * INNER, WIDTH, seed=2).reshape(EXPERTS, 2 * INNER, WIDTH)
    down = numbers(EXPERTS * WIDTH, INNER, seed=3).reshape(EXPERTS, WIDTH, INNER)
    y = mxq.expert_layer(x, ids, weights, gate_up, down, inner_dtype="float32", weights_first=weights_first)
    exact = layer(x, ids, weights, gate_up, down)
    assert np.abs(y - exact).max() < 1e-5 * np.abs(exact).max()
    q = mxq.expert_layer(x, ids, weights, mxq.quantize(gate_up, "mxfp8_e4m3"), mxq.quantize(down, "mxfp8_e4m3"), format="mxfp8_e4m3")
    assert np.abs(q - exact).max() < 0.2 * np.abs(exact).max()
    plan = mxq.plan(mxq.expert_layer, x, ids, weights, gate_up, down, inner_dtype="float32")
    assert plan.implementation == ", ".join(["cpu"] * 5)


def test_refusals():
    ids, weights = drawn()
    with pytest.raises(mxq.Error, match="expected \\(tokens, choices\\) of int32 or int64"):
        mxq.route(weights, EXPERTS)
    routing, gradient = mxq.route(ids, EXPERTS, weights), numbers(TOKENS, WIDTH, seed=2)
    for options, says in (({"weight_gradient": True}, "rows is None"), ({"row_gradient": False, "dtype": "float16"}, "neither dtype nor out"),
                          ({"rows": gradient, "weight_gradient": True}, "in is 9 x 32, expected a matrix of 18 rows")):
        with pytest.raises(mxq.Error, match=says):
            mxq.combine_backward(routing, gradient, **options)
    ids[0, 0] = EXPERTS
    with pytest.raises(mxq.Error, match="routing.ids\\[0\\] is 4"):
        mxq.route(ids, EXPERTS)
