"""mxq.jax under jit and grad, bit for bit against the same calls of numpy and, for gradients of the expert layer, of torch.

Products of a GPU have other sums than those of the CPU; they are compared with torch's there, or within a bound.
"""
import os

import numpy as np
import pytest
from test_arrays import numbers

import mxq

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # jax would take most of a GPU's memory
jax = pytest.importorskip("jax")
try:
    import mxq.jax as mj
except ImportError as error:
    pytest.skip(str(error), allow_module_level=True)
jnp = jax.numpy

ON_CPU = jax.default_backend() == "cpu"
ENDS = np.array([5, 12, 32], "int32")
FORMATS = [("mxfp8_e4m3", None), ("mxfp8_e4m3", "32x32"), ("mxfp8_e5m2", None), ("mxfp6_e2m3", None), ("mxfp6_e3m2", None), ("mxfp4", None),
           ("nvfp4", None), ("nvfp4", "16x16"), ("fp8_e4m3", None), ("fp8_e4m3", "row"), ("fp8_e5m2", "1x128"), ("fp8_e4m3", "128x128")]


DTYPE = "float32" if ON_CPU else "bfloat16"  # of plain operands: a GPU takes none of float32


def plain(*shape, seed=0):
    """An array of numpy that a product takes as it is."""
    return np.asarray(jnp.asarray(numbers(*shape, seed=seed)).astype(DTYPE))


def same(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    return found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()


def near(found, expected):
    """The same bits on the CPU; elsewhere the same within what sums of a product may differ in."""
    if ON_CPU:
        return same(found, expected)
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    found, expected = np.asarray(found, "float32"), np.asarray(expected, "float32")
    return np.abs(found - expected).max() <= 2.0**-6 * max(np.abs(expected).max(), 1e-30)


def close(found, expected):
    """Sums in another order, rounded to the type of the result."""
    expected = np.asarray(expected, "float32")
    return np.abs(np.asarray(found, "float32") - expected).max() <= (2.0**-16 if ON_CPU else 2.0**-7) * np.abs(expected).max()


def same_parts(found, expected):
    return list(found.parts) == list(expected.parts) and all(
        same(getattr(found.parts[name], field), getattr(part, field))
        for name, part in expected.parts.items() for field in ("codes", "scales", "amax") if getattr(part, field) is not None)


@pytest.mark.parametrize("format, scaling", FORMATS)
@pytest.mark.parametrize("parts", ["rowwise", "columnwise", "both"])
def test_quantize_and_dequantize(format, scaling, parts):
    for x in (numbers(64, 128), numbers(96, 160, seed=2).reshape(3, 32, 160)):
        expected = mxq.quantize(x, format, scaling=scaling, parts=parts)
        q = jax.jit(lambda x: mj.quantize(x, format, scaling=scaling, parts=parts))(x)
        assert q.shape == x.shape and same_parts(q, expected) and same(jax.jit(mj.dequantize)(q), expected.dequantize())
        assert same(mj.quantize(x, format, scaling=scaling, parts=parts).dequantize("bfloat16").astype("float32"),
                    expected.dequantize().astype(jnp.bfloat16).astype("float32"))


def test_options_of_quantize():
    x = jnp.asarray(numbers(128, 256)).astype(jnp.bfloat16)
    for options in ({"swizzled": True}, {"scale_rounding": "floor"}, {"scale_rounding": "even"}):
        assert same_parts(jax.jit(lambda x: mj.quantize(x, **options))(x), mxq.quantize(np.asarray(x), **options))
    experts = numbers(96, 64).reshape(3, 32, 64)
    assert same_parts(mj.quantize(experts, "nvfp4", scope="expert"), mxq.quantize(experts, "nvfp4", scope="expert"))


@pytest.mark.parametrize("format", ["mxfp8_e4m3", "nvfp4", "fp8_e4m3"])
def test_groups(format):
    x = numbers(40, 64)
    expected = mxq.quantize(x[:32], format, groups=ENDS, parts="both")
    q = jax.jit(lambda x, ends: mj.quantize(x, format, ends=ends, parts="both"))(x[:32], ENDS)
    assert same_parts(q, expected)
    values = jax.jit(lambda x, ends: mj.quantize(x, format, ends=ends).dequantize())(x, ENDS)
    assert same(values, mxq.quantize(x, format, groups=ENDS).dequantize()) and not values[32:].any() and values[:32].any()


@pytest.mark.parametrize("format", ["mxfp8_e4m3", "mxfp4", "nvfp4", "fp8_e4m3"])
def test_products(format):
    x, w = plain(48, 64), plain(32, 64, seed=3)
    bias = plain(1, 32, seed=4)[0]
    q, eq = mj.quantize(x, format), mxq.quantize(x, format)
    weight, expected = mj.quantize(w, format), mxq.quantize(w, format)
    product = jax.jit(mj.matmul)
    assert near(product(q, weight.mT), eq @ expected.T) and near(product(x, weight.mT), x @ expected.T)
    assert near(jax.jit(lambda x: mj.matmul(x, weight.mT, bias=bias))(x), mxq.matmul(x, expected.T, bias=bias))
    half = jax.jit(lambda q: mj.matmul(q, weight.mT, dtype="bfloat16", exact_products=True))(q)
    assert half.dtype == jnp.bfloat16 and near(half, np.asarray(mxq.matmul(eq, expected.T, dtype="float32", exact_products=True)).astype(jnp.bfloat16))


def test_grouped_products():
    x, w = plain(40, 64), plain(72, 64, seed=3).reshape(3, 24, 64)
    bias = plain(3, 24, seed=5)
    weight, expected = mj.quantize(w), mxq.quantize(w)
    y = jax.jit(mj.grouped_matmul)(x, weight.mT, ENDS)
    assert near(y, mxq.grouped_matmul(x, expected.mT, groups=ENDS)) and not y[32:].any()
    q, eq = mj.quantize(x, ends=ENDS), mxq.quantize(x, groups=ENDS)
    assert near(jax.jit(lambda q: mj.grouped_matmul(q, weight.mT, bias=bias))(q), mxq.grouped_matmul(eq, expected.mT, bias=bias))
    if ON_CPU:  # which knows the ends
        with pytest.raises(Exception, match="ends says 32 for the end of the last group, expected 40"):
            mj.grouped_matmul(x, weight.mT, ENDS, cover_rows=True).block_until_ready()
    assert near(mj.grouped_matmul(x[:32], weight.mT, ENDS, cover_rows=True), mxq.grouped_matmul(x[:32], expected.mT, groups=ENDS))
    b = np.ascontiguousarray(w.swapaxes(1, 2))
    assert near(jax.jit(mj.grouped_matmul)(x, b, ENDS), mxq.grouped_matmul(x, b, groups=ENDS))


def test_gradients_of_products():
    x, w, dy = plain(32, 64), plain(24, 64, seed=3), plain(32, 24, seed=4)
    bias = plain(1, 24, seed=5)[0]
    weight, expected = mj.quantize(w, parts="both"), mxq.quantize(w, parts="both")
    _, back = jax.vjp(lambda x, bias: mj.matmul(x, weight.mT, bias=bias), x, bias)
    dx, dbias = jax.jit(back)(dy)
    assert near(dx, mxq.matmul(dy, expected)) and close(dbias, dy.astype('f4').sum(0))
    b = np.ascontiguousarray(w.T)
    _, back = jax.vjp(mj.matmul, x, b)
    dx, db = back(dy)
    assert near(dx, mxq.matmul(dy, b.T)) and near(db, mxq.matmul(x.T, dy))
    q = mj.quantize(x, parts="both")
    (db,) = jax.vjp(lambda b: mj.matmul(q, b), b)[1](dy)
    assert near(db, mxq.matmul(mxq.quantize(x, parts="both").T, dy))


def test_gradients_of_grouped_products():
    x, w, dy = plain(32, 64), plain(72, 64, seed=3).reshape(3, 24, 64), plain(32, 24, seed=4)
    bias = plain(3, 24, seed=5)
    weight, expected = mj.quantize(w, parts="both"), mxq.quantize(w, parts="both")
    dx, dbias = jax.jit(jax.vjp(lambda x, bias: mj.grouped_matmul(x, weight.mT, ENDS, bias=bias), x, bias)[1])(dy)
    assert near(dx, mxq.grouped_matmul(dy, expected, groups=ENDS))
    assert close(dbias, [dy[:5].astype('f4').sum(0), dy[5:12].astype('f4').sum(0), dy[12:].astype('f4').sum(0)])
    b = np.ascontiguousarray(w.swapaxes(1, 2))
    dx, db = jax.vjp(lambda x, b: mj.grouped_matmul(x, b, ENDS), x, b)[1](dy)
    assert near(dx, mxq.grouped_matmul(dy, w, groups=ENDS))
    rows = np.split(np.arange(32), ENDS[:-1])
    assert close(db, [x[each].T.astype('f4') @ dy[each].astype('f4') for each in rows])
    with pytest.raises(mxq.Error, match="quantized a does not give"):
        jax.grad(lambda b: mj.grouped_matmul(mj.quantize(x, ends=ENDS), b).sum())(b)


def test_what_quantize_gives_is_a_constant():
    x = numbers(32, 64)
    assert not jax.grad(lambda x: mj.quantize(x).dequantize().sum())(x).any()
    assert jax.grad(lambda x: (x * mj.quantize(x).dequantize()).sum())(x).any()


def test_a_tensor_goes_through_transformations():
    q = mj.quantize(numbers(32, 64), "nvfp4", parts="both")
    assert same_parts(jax.tree_util.tree_map(lambda leaf: leaf, q), q) and q.mT.shape == (64, 32) and "nvfp4 64 x 32" in repr(q.mT)
    layers = jax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *[mj.quantize(numbers(64, 64, seed=i)) for i in range(3)])
    y, _ = jax.lax.scan(lambda x, w: (mj.matmul(x, w.mT), None), plain(8, 64), layers)
    expected = plain(8, 64)
    for i in range(3):
        expected = mxq.matmul(expected, mxq.quantize(numbers(64, 64, seed=i)).T)
    assert near(y, expected)


def test_refusals():
    with pytest.raises(mxq.Error, match="x has dtype int32, expected float32, float16 or bfloat16"):
        mj.quantize(jnp.zeros((4, 32), "int32"))
    with pytest.raises(mxq.Error, match="format is 'fp3'"):
        mj.quantize(numbers(4, 32), "fp3")
    with pytest.raises(mxq.Error, match="a has no groups"):
        mj.grouped_matmul(numbers(4, 32), numbers(32, 32).reshape(1, 32, 32))
    w = mj.quantize(numbers(16, 32))
    with pytest.raises(Exception, match=r"(?s)mxq_gemm(_query)?: .*columnwise"):
        jax.jit(lambda q: mj.matmul(q.mT, w))(mj.quantize(numbers(16, 8))).block_until_ready()
    with pytest.raises(NotImplementedError):
        jax.vmap(lambda x: mj.quantize(x).rowwise.codes)(jnp.zeros((3, 4, 32)))


# ---- Experts -----------------------------------------------------------------------------------------------------------

TOKENS, CHOICES, EXPERTS, WIDTH, INNER = 24, 2, 4, 64, 96
LAYERS = [("mxfp8_e4m3", None), ("mxfp8_e4m3", "32x32"), ("mxfp4", None), ("nvfp4", None), ("fp8_e4m3", "1x128"), ("fp8_e4m3", "128x128")]


def ids():
    chosen = (abs(numbers(TOKENS, CHOICES, seed=9)) * 1000).astype("int32") % (EXPERTS - 1)
    chosen[3, 1] = -1
    return chosen


def leaves(dtype=jnp.bfloat16):
    def leaf(seed, *shape):
        return jnp.asarray(numbers(int(np.prod(shape[:-1])), shape[-1], seed=seed).reshape(shape) / (8 if len(shape) == 3 else 1)).astype(dtype)

    return [leaf(1, TOKENS, WIDTH), jnp.asarray(abs(numbers(TOKENS, CHOICES, seed=2))), leaf(3, EXPERTS, 2 * INNER, WIDTH),
            leaf(4, EXPERTS, WIDTH, INNER), leaf(5, EXPERTS, 2 * INNER), leaf(6, EXPERTS, WIDTH)]


def layer(x, weights, gate_up, down, gate_up_bias, down_bias, **options):
    return mj.expert_layer(x, ids(), weights, gate_up, down, gate_up_bias, down_bias, **options)


def exact(x, weights, gate_up, down, gate_up_bias, down_bias):
    """The layer in float32, for jax to differentiate."""
    out, chosen = jnp.zeros_like(x), ids()
    for j in range(CHOICES):
        e = np.maximum(chosen[:, j], 0)
        halves = jnp.einsum("tk,tnk->tn", x, gate_up[e]) + gate_up_bias[e]
        gate, up = jnp.split(halves, 2, -1)
        rows = jnp.einsum("ti,tki->tk", jax.nn.silu(gate) * up, down[e]) + down_bias[e]
        out = out + jnp.where(chosen[:, j, None] >= 0, weights[:, j, None] * rows, 0)
    return out


@pytest.mark.parametrize("format, scaling", LAYERS)
def test_the_layer_is_that_of_numpy(format, scaling):
    given = leaves(DTYPE)
    x, weights, gate_up, down, gate_up_bias, down_bias = map(np.asarray, given)
    q = [mxq.quantize(each, format, scaling=scaling) for each in (gate_up, down)]
    rows = {"32x32": "1x32", "128x128": "1x128"}.get(scaling, scaling)
    expected = mxq.expert_layer(x, ids(), weights, *q, gate_up_bias=gate_up_bias, down_bias=down_bias, format=format, scaling=rows,
                                inner_dtype=DTYPE)
    y = jax.jit(lambda *given: layer(*given, format=format, scaling=scaling))(*given)
    assert near(y, expected)
    assert near(jax.vjp(lambda x: layer(x, *given[1:], format=format, scaling=scaling), given[0])[0], expected)
    frozen = [mj.quantize(each, format, scaling=scaling) for each in (gate_up, down)]
    expected = mxq.expert_layer(x, ids(), None, *q, inner_dtype=DTYPE)
    assert near(jax.jit(lambda x: mj.expert_layer(x, ids(), None, *frozen))(x), expected)
    assert near(jax.vjp(lambda x: mj.expert_layer(x, ids(), None, *frozen), x)[0], expected)


@pytest.mark.skipif(not ON_CPU, reason="a GPU takes no plain operands of float32")
@pytest.mark.parametrize("weight_gradient", ["quantized", "dequantized", "high_precision"])
def test_gradients_are_near_those_of_float32(weight_gradient):
    given, dy = leaves(jnp.float32), numbers(TOKENS, WIDTH, seed=7)
    _, back = jax.vjp(lambda *given: layer(*given, weight_gradient=weight_gradient), *given)
    expected = jax.vjp(exact, *given)[1](dy)
    for name, found, wanted in zip(("x", "weights", "gate_up", "down", "gate_up_bias", "down_bias"), jax.jit(back)(dy), expected):
        lost = float(jnp.square(found - wanted).sum() / jnp.square(wanted).sum())
        assert found.dtype == wanted.dtype and lost < 10**-2.3, name


@pytest.mark.parametrize("weight_gradient", ["quantized", "dequantized", "high_precision"])
@pytest.mark.parametrize("format, scaling", LAYERS)
def test_gradients_are_those_of_torch(format, scaling, weight_gradient):
    torch = pytest.importorskip("torch")
    mt = pytest.importorskip("mxq.torch")
    device = "cpu" if ON_CPU else "cuda"
    given = leaves()
    theirs = [torch.from_numpy(np.array(each, "float32")).to(torch.float32 if i == 1 else torch.bfloat16).to(device).requires_grad_()
              for i, each in enumerate(given)]
    options = {"format": format, "scaling": scaling, "weight_gradient": weight_gradient}
    y, back = jax.vjp(lambda *given: layer(*given, **options), *given)
    expected = mt.expert_layer(theirs[0], torch.from_numpy(ids()).to(device), *theirs[1:], **options)
    assert same(y.astype("float32"), expected.detach().float().cpu().numpy())
    dy = jnp.asarray(numbers(TOKENS, WIDTH, seed=7)).astype(jnp.bfloat16)
    expected.backward(torch.from_numpy(np.array(dy, "float32")).to(torch.bfloat16).to(device))
    for i, (found, leaf) in enumerate(zip(back(dy), theirs)):
        found, wanted = np.asarray(found, "float32"), leaf.grad.float().cpu().numpy()
        assert np.allclose(found, wanted, rtol=2.0**-7, atol=1e-4) if i == 5 else same(found, wanted), i  # jax sums a bias in its order


@pytest.mark.skipif(not ON_CPU, reason="a GPU takes no plain operands of float32")
def test_gradients_of_frozen_weights_and_other_activations():
    x, weights, gate_up, down, gate_up_bias, down_bias = leaves(jnp.float32)
    frozen = [mj.quantize(each, parts="both") for each in (gate_up, down)]
    dx = jax.jit(jax.grad(lambda x: layer(x, weights, *frozen, gate_up_bias, down_bias).sum()))(x)
    values = [q.dequantize() for q in frozen]
    wanted = jax.grad(lambda x: exact(x, weights, *values, gate_up_bias, down_bias).sum())(x)
    assert np.allclose(dx, wanted, atol=2.0**-6 * float(abs(wanted).max()))
    options = {"activation": "swiglu_clamped", "gate_layout": "interleaved_gate_up", "clamp": (1.702, 7.0, 1.0)}
    y = jax.jit(lambda x: layer(x, weights, gate_up, down, gate_up_bias, down_bias, **options))(x)
    assert near(jax.vjp(lambda x: layer(x, weights, gate_up, down, gate_up_bias, down_bias, **options), x)[0], y)


def test_the_layer_refuses():
    x, weights, gate_up, down, _, _ = leaves()
    with pytest.raises(mxq.Error, match="activation is 'relu'"):
        mj.expert_layer(x, ids(), weights, gate_up, down, activation="relu")
    with pytest.raises(mxq.Error, match="both or none"):
        mj.expert_layer(x, ids(), weights, mj.quantize(gate_up), down)
    with pytest.raises(mxq.Error, match="format is 'mxfp4', expected None with quantized weights"):
        mj.expert_layer(x, ids(), weights, mj.quantize(gate_up), mj.quantize(down), format="mxfp4")
    with pytest.raises(Exception, match="mxq_expert_layer"):
        mj.expert_layer(x, ids(), weights, gate_up, down[:, :, :32]).block_until_ready()
