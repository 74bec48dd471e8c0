"""Gradients of products of torch tensors with frozen quantized ones, and products inside of torch.compile.

A gradient is a product, so it keeps the bound of products around the gradient of the values that are read.
"""
import numpy as np
import pytest
from test_arrays import FORMATS, numbers
from test_products import check

import mxq

torch = pytest.importorskip("torch")
from torch import library  # noqa: E402
mt = pytest.importorskip("mxq.torch")


def leaf(*shape, seed=0, dtype=torch.float32):
    return torch.from_numpy(numbers(*shape, seed=seed)).to(dtype).requires_grad_()


def given(*shape, seed=0, dtype=torch.float32):
    return leaf(*shape, seed=seed, dtype=dtype).detach()


def close(got, a, b):
    check(got.numpy(), a.detach().numpy(), b.detach().numpy())


WAYS = {
    "@": lambda x, q: x @ q.T,
    "mxq.matmul": lambda x, q: mxq.matmul(x, q.T),
    "mt.matmul": lambda x, q: mt.matmul(x, q.T),
    "mt.linear": lambda x, q: mt.linear(x, q),
    "torch.matmul": lambda x, q: torch.matmul(x, q.T),
    "torch.nn.functional.linear": lambda x, q: torch.nn.functional.linear(x, q),
}


@pytest.mark.parametrize("parts", ["rowwise", "both"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("way", WAYS)
def test_the_input_has_its_gradient_through_frozen_weights(way, format, parts):
    x, q, dy = leaf(40, 96), mxq.quantize(given(56, 96, seed=1), format, parts=parts), given(40, 56, seed=2)
    y = WAYS[way](x, q)
    y.backward(dy)
    close(y.detach(), x, q.dequantize().T)
    close(x.grad, dy, q.dequantize(part="columnwise" if parts == "both" else "rowwise"))


def test_gradients_in_sixteen_bits():
    for dtype in (torch.bfloat16, torch.float16):
        x, q, dy = leaf(40, 96, dtype=dtype), mxq.quantize(given(56, 96, seed=1), "mxfp4"), given(40, 56, seed=2, dtype=dtype)
        (x @ q.T).backward(dy)
        expected = dy.double() @ q.dequantize().double()
        assert x.grad.dtype == dtype and (x.grad.double() - expected).norm() < 2.0**-8 * expected.norm()


def test_a_layer_below_frozen_weights_learns_as_with_their_values():
    below, q, tokens = leaf(32, 16), mxq.quantize(given(24, 32, seed=1), "mxfp4"), given(64, 16, seed=2)
    (torch.relu(tokens @ below.T) @ q.T).square().sum().backward()
    exact = below.detach().double().requires_grad_()
    (torch.relu(tokens.double() @ exact.T) @ q.dequantize().double().T).square().sum().backward()
    assert torch.nn.functional.cosine_similarity(below.grad.double().flatten(), exact.grad.flatten(), dim=0) > 1 - 1e-10


def test_gradients_of_both_operands_the_bias_and_alpha():
    a, b, bias, dy = leaf(40, 96), leaf(56, 96, seed=1), leaf(1, 56, seed=3), given(40, 56, seed=2)
    row = bias[0]
    mxq.matmul(a, b.T, bias=row, alpha=2.0).backward(dy)
    close(a.grad, 2 * dy, b)
    close(b.grad, 2 * dy.T, a)
    assert torch.allclose(bias.grad[0], dy.sum(0), rtol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
def test_the_right_operand_has_its_gradient_with_quantized_ones(transposed):
    q, x, dy = mxq.quantize(given(56, 96), parts="both"), leaf(56 if transposed else 96, 40, seed=1), given(96 if transposed else 56, 40, seed=2)
    a = q.T if transposed else q
    (a @ x).backward(dy)
    close(x.grad.T, dy.T, q.dequantize().T if transposed else q.dequantize(part="columnwise"))


def test_gradients_of_gradients():
    x, q = leaf(8, 64), mxq.quantize(given(16, 64, seed=1))
    first, = torch.autograd.grad((x @ q.T).pow(3).sum(), x, create_graph=True)
    second, = torch.autograd.grad(first.square().sum(), x)
    exact, w = x.detach().double().requires_grad_(), q.dequantize().double()
    of_exact, = torch.autograd.grad((exact @ w.T).pow(3).sum(), exact, create_graph=True)
    expected, = torch.autograd.grad(of_exact.square().sum(), exact)
    assert (second - expected).norm() < 1e-6 * expected.norm()
    y = mt.linear(x, leaf(16, 64, seed=1))
    with pytest.raises(mxq.Error, match="first derivatives only, found create_graph=True"):
        torch.autograd.grad(y.square().sum(), x, create_graph=True)


# ---- Groups ------------------------------------------------------------------------------------------------------------

ENDS = [20, 20, 70]


FULL = [(slice(0, 20), 0), (slice(20, 70), 2)]  # the rows of the groups that have some


GROUPED = {
    "mxq.grouped_matmul": lambda x, w, bias: mxq.grouped_matmul(x, w.mT, groups=torch.tensor(ENDS), bias=bias),
    "mt.grouped_matmul": lambda x, w, bias: mt.grouped_matmul(x, w.mT, ends=ENDS, bias=bias),
    "mt.grouped_linear": lambda x, w, bias: mt.grouped_linear(x, w, torch.tensor(ENDS), bias=bias),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("way", GROUPED)
def test_groups_have_gradients_through_frozen_weights(way, format):
    x, bias, dy = leaf(70, 96), leaf(3, 56, seed=3), given(70, 56, seed=2)
    q = mxq.quantize(given(3, 56, 96, seed=1), format)
    GROUPED[way](x, q, bias).backward(dy)
    for rows, g in FULL:
        close(x.grad[rows], dy[rows], q.dequantize()[g])
        assert torch.allclose(bias.grad[g], dy[rows].sum(0), rtol=1e-5, atol=1e-5)
    assert not bias.grad[1].any()


def test_groups_of_plain_tensors_have_both_gradients_and_theirs():
    x, w, dy = leaf(70, 32), leaf(3, 24, 32, seed=1), given(70, 24, seed=2)
    mxq.grouped_matmul(x, w.mT, groups=ENDS, alpha=2.0).backward(dy)
    for rows, g in FULL:
        close(x.grad[rows], 2 * dy[rows], w[g])
        close(w.grad[g], 2 * dy[rows].T, x[rows])
    assert not w.grad[1].any()
    x, w = leaf(70, 32), leaf(3, 24, 32, seed=1)
    exact = [t.detach().double().requires_grad_() for t in (x, w)]

    def penalty(y, leaves):
        return sum(g.square().sum() for g in torch.autograd.grad(y.pow(3).sum(), leaves, create_graph=True))

    penalty(mxq.grouped_matmul(x, w.mT, groups=ENDS), (x, w)).backward()
    penalty(torch.cat([exact[0][:20] @ exact[1][0].T, exact[0][20:] @ exact[1][2].T]), exact).backward()
    for got, expected in zip((x, w), exact):
        assert (got.grad - expected.grad).norm() < 1e-6 * expected.grad.norm()


def test_rows_in_no_group_have_no_gradient():
    x, q = leaf(70, 32), mxq.quantize(given(2, 24, 32, seed=1))
    mxq.grouped_matmul(x, q.mT, groups=[20, 50]).sum().backward()
    assert x.grad[:50].any() and not x.grad[50:].any()


def test_experts_of_a_list_have_gradients():
    x, experts = leaf(8, 64), [leaf(24, 64, seed=1), leaf(24, 64, seed=2)]
    mxq.grouped_matmul(x, [expert.T for expert in experts], groups=[3, 8]).sum().backward()
    assert torch.allclose(experts[1].grad, x.detach()[3:].sum(0).expand(24, 64), rtol=1e-4, atol=1e-5) and experts[0].grad.any()
    q = mxq.quantize(given(2, 24, 64, seed=1))
    listed = mxq.QTensor.from_parts("mxfp8_e4m3", (2, 24, 64), rowwise=(list(q.rowwise.codes), list(q.rowwise.scales)))
    grads = []
    for weights in (q, listed):
        x = leaf(8, 64)
        mxq.grouped_matmul(x, weights.mT, groups=[3, 8]).square().sum().backward()
        grads.append(x.grad)
    assert torch.equal(*grads)


# ---- What operators are told -------------------------------------------------------------------------------------------


def test_operators_read_what_a_tensor_has():
    x = given(40, 64)
    nv, like = mxq.quantize(x, "nvfp4"), mxq.quantize(x)
    scaled = mxq.QTensor.from_parts("nvfp4", (40, 64), rowwise=mxq.Part(nv.rowwise.codes, nv.rowwise.scales, None, torch.tensor([0.5])))
    turned = mxq.quantize(x, "mxfp4", hadamard=0xD7E8)
    padded = mxq.quantize(x, groups=mxq.Groups([10, 40], alignment=(16, 0)), parts="both")
    for a, b in ((scaled, nv), (turned, turned), (like, like), (nv, nv)):
        assert torch.equal(mt.matmul(a, b.T), mxq.matmul(a, b.T))
    w = mxq.quantize(given(2, 24, 64, seed=1))
    assert torch.equal(mt.grouped_matmul(padded, w.mT), mxq.grouped_matmul(padded, w.mT))
    assert torch.equal(mt.dequantize(padded, part="columnwise"), padded.dequantize(part="columnwise"))
    assert torch.equal(mt.dequantize(scaled), scaled.dequantize())


def test_operators_pass_torch_s_own_checks():
    x, q, w = leaf(8, 32), mxq.quantize(given(24, 32)), mxq.quantize(given(2, 24, 32))
    calls = []
    real = torch.ops.mxq.matmul.default, torch.ops.mxq.grouped_matmul.default, torch.ops.mxq.grouped_outer.default
    from mxq._torch_pack import pack

    a, b, each = pack(x, "a"), pack(q.T, "b"), pack(w.mT, "b")
    ends, bias = torch.tensor([3, 8]), leaf(1, 24)[0].detach().requires_grad_()
    rest = (torch.float32, False, False, 1.0, 0, None)
    calls.append((real[0], (*a[:3], *b[:3], bias, *rest)))
    calls.append((real[1], (*a[:3], *each[:3], ends, True, None, *rest)))
    calls.append((real[2], (leaf(8, 24, seed=1), x, ends, True)))
    for operator, arguments in calls:
        library.opcheck(operator, arguments, test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))


def test_calls_are_operators_where_torch_looks_and_give_the_same():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Look(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x, w, each, ids = given(8, 32), given(24, 32, seed=1), given(2, 64, 32, seed=2), torch.zeros(8, 1, dtype=torch.int64)
    q, experts, groups = mxq.quantize(w), mxq.quantize(each), torch.tensor([3, 8])
    down = given(2, 32, 32, seed=3)
    calls = {"quantize": lambda: mt.quantize(x, "nvfp4").rowwise.codes, "dequantize": lambda: mt.dequantize(q),
             "matmul": lambda: mt.matmul(x, q.T), "grouped_matmul": lambda: mt.grouped_matmul(x, experts.mT, ends=groups),
             "expert_layer": lambda: mt.expert_layer(x, ids, None, each, down)}
    for name, call in calls.items():
        seen.clear()
        with Look():
            looked = call()
        assert f"mxq.{name}.default" in seen and torch.equal(looked, call())
        with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
            assert call().shape == looked.shape


# ---- What is refused ---------------------------------------------------------------------------------------------------


def test_an_out_is_refused_where_a_gradient_is_wanted():
    x, q, out = leaf(8, 64), mxq.quantize(given(16, 64)), torch.zeros(8, 16)
    for call in (lambda: mxq.matmul(x, q.T, out=out), lambda: mxq.matmul(x.detach(), q.T, out=out.clone().requires_grad_()),
                 lambda: mxq.matmul(x, q.T, out=out, accumulate=True), lambda: mxq.matmul(x.detach(), q.T, out=out, bias=leaf(1, 16)[0])):
        with pytest.raises(mxq.Error, match="out is given, expected None where a gradient is wanted"):
            call()
    assert not out.any()
    with torch.no_grad():
        assert mxq.matmul(x, q.T, out=out) is out and torch.equal(out, x @ q.T) and not (x @ q.T).requires_grad


def test_gradients_that_cannot_be_had_are_refused():
    x, w = leaf(8, 32), given(24, 32)
    columns = mxq.quantize(w.T.contiguous(), parts="columnwise")
    groups, experts = torch.tensor([3, 8]), leaf(2, 24, 32)
    host = mxq.quantize(w.numpy())
    padded = mxq.pad_groups(x.detach(), groups, alignment=16)
    padded = padded._replace(values=padded.values.requires_grad_())
    for call, says in (
        (lambda: x @ columns, "needs the rowwise part of b"),
        (lambda: mt.matmul(x, columns), "needs the rowwise part of b"),
        (lambda: columns.T @ leaf(32, 8), "needs the rowwise part of a"),
        (lambda: mxq.grouped_matmul(mxq.quantize(x.detach(), groups=groups), experts.mT), "b requires a gradient"),
        (lambda: mxq.grouped_matmul(leaf(8, 24).T, x, groups=groups), "grouped_matmul"),
        (lambda: mxq.grouped_matmul(padded, experts.mT), "a is Padded"),
        (lambda: x @ host.T, "b holds arrays of numpy"),
        (lambda: mxq.matmul(x, host.T, bias=np.zeros(24, "f4")), "bias is a ndarray"),
        (lambda: mt.matmul(np.zeros((8, 32), "f4"), mxq.quantize(w).T), "a is a ndarray"),
        (lambda: mt.linear(x, mxq.quantize(w), "mxfp8_e4m3"), "format is 'mxfp8_e4m3', expected None"),
        (lambda: mt.linear(x, mxq.quantize(w).T), "weight is a Transposed"),
    ):
        with pytest.raises(mxq.Error, match=says):
            call()
    assert x.grad is None


@pytest.mark.parametrize("transform", ["grad", "vjp", "jvp", "vmap", "jacrev", "jacfwd", "hessian"])
def test_torch_func_is_refused(transform):
    x, w, func = given(8, 64), given(16, 64), torch.func
    q = mxq.quantize(w)
    calls = {"vjp": lambda f: func.vjp(f, x), "jvp": lambda f: func.jvp(f, (x,), (x,)), "vmap": lambda f: func.vmap(f)(x[:, None])}
    for product in (lambda x: (x @ q.T).sum(), lambda x: mt.matmul(x, q.T).sum(), lambda x: mt.linear(x, q).sum(),
                    lambda x: mt.linear(x, w).sum()):
        with pytest.raises(mxq.Error, match="torch.func"):
            calls.get(transform, lambda f: getattr(func, transform)(f)(x))(product)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(mxq.Error, match="a has a tangent"):
        torch.autograd.forward_ad.make_dual(x, x) @ q.T


def test_what_is_quantized_is_a_constant():
    x, w = leaf(8, 64), leaf(16, 64)
    for q in (mxq.quantize(x, "nvfp4"), mt.quantize(x, "nvfp4"), mt.quantize(x, "fp8_e4m3")):
        assert not any(field.requires_grad for field in q.rowwise if isinstance(field, torch.Tensor))
        assert not mt.dequantize(q).requires_grad and not q.dequantize().requires_grad
        assert not mt.matmul(q, mxq.quantize(w, q.format).T).requires_grad


# ---- torch.compile -----------------------------------------------------------------------------------------------------


def test_products_inside_of_torch_compile():
    x, bias = leaf(2, 8, 64), leaf(1, 16)
    q, experts, ends = mxq.quantize(given(16, 64)), mxq.quantize(given(2, 16, 64)), torch.tensor([3, 8])

    def forward(x, bias, ends):
        row = bias[0]
        quantized = mxq.matmul(mt.quantize(x[0]), q.T)
        return (x @ q.T, torch.nn.functional.linear(x, q, row), torch.matmul(mt.quantize(x[0]), q.T), quantized,
                mt.linear(x, q, bias=row), mxq.grouped_matmul(x[0], experts.mT, groups=ends), mt.grouped_linear(x[0], experts, ends))

    torch._dynamo.reset()
    results = []
    for function in (forward, torch.compile(forward, fullgraph=True)):
        y = function(x, bias, ends)
        results.append((*y, *torch.autograd.grad(sum(each.square().sum() for each in y), (x, bias))))
    assert len(results[0]) == 9 and all(torch.allclose(*pair, rtol=1e-5, atol=1e-4) for pair in zip(*results))
    assert results[1][0].shape == (2, 8, 16)


def test_operands_that_are_quantized_both_break_a_graph_and_no_more():
    x, q = given(8, 64), mxq.quantize(given(16, 64))
    torch._dynamo.reset()
    assert torch.equal(torch.compile(lambda x: mt.quantize(x) @ q.T)(x), mt.quantize(x) @ q.T)


def test_the_other_functions_name_the_operators_inside_of_torch_compile():
    x = given(8, 64)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="operators of mxq.torch: quantize"):
        torch.compile(lambda x: mxq.quantize(x).rowwise.codes, fullgraph=True)(x)
    assert torch.equal(torch.compile(lambda x: mxq.quantize(x).rowwise.codes)(x), mxq.quantize(x).rowwise.codes)
