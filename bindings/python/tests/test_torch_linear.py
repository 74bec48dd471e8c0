"""Linear layers of torch whose x arrived quantized, whose scaling is another one, and whose groups are padded."""
import pytest
from test_arrays import numbers

import mxq

torch = pytest.importorskip("torch")
from torch import library  # noqa: E402
mt = pytest.importorskip("mxq.torch")

ENDS = torch.tensor([20, 20, 70], dtype=torch.int32)
SCALINGS = {("mxfp8_e4m3", None): 25, ("mxfp8_e4m3", "32x32"): 25, ("nvfp4", "16x16"): 12, ("fp8_e4m3", "128x128"): 25,
            ("fp8_e4m3", "1x128"): 25, ("fp8_e4m3", "row"): 25}
WEIGHT_GRADIENTS = ("quantized", "dequantized")


def tensor(*shape, seed=0, dtype=torch.bfloat16):
    return torch.from_numpy(numbers(*shape, seed=seed)).to(dtype)


X, W, EACH, DY = tensor(70, 64, seed=1), tensor(48, 64, seed=2), tensor(3, 48, 64, seed=3), tensor(70, 48, seed=4)


def decibels(got, expected):
    return -10 * torch.log10((got.double() - expected).square().sum() / expected.square().sum())


def outer(dy, x, grouped):
    dy, x = dy.double(), x.double()
    return torch.stack([dy[:20].T @ x[:20], 0 * dy[:1].T @ x[:1], dy[20:].T @ x[20:]]) if grouped else dy.T @ x


def layer(x, w, grouped, **options):
    return mt.grouped_linear(x, w, None if isinstance(x, mxq.QTensor) and x.groups else ENDS, **options) if grouped else mt.linear(x, w, **options)


@pytest.mark.parametrize("weight_gradient", [*WEIGHT_GRADIENTS, "high_precision"])
@pytest.mark.parametrize("format, scaling", SCALINGS)
@pytest.mark.parametrize("grouped", [False, True])
def test_scalings_of_weights(grouped, format, scaling, weight_gradient):
    x, w = X.clone().requires_grad_(), (EACH if grouped else W).clone().requires_grad_()
    y = layer(x, w, grouped, format=format, scaling=scaling, weight_gradient=weight_gradient)
    y.backward(DY)
    double = w.detach().double()
    rows = [(slice(0, 20), double[0]), (slice(20, 70), double[2])] if grouped else [(slice(0, 70), double)]
    least = SCALINGS[format, scaling]
    assert decibels(y.detach(), torch.cat([X[part].double() @ w.T for part, w in rows])) > least
    assert decibels(x.grad, torch.cat([DY[part].double() @ w for part, w in rows])) > least
    assert decibels(w.grad, outer(DY, X, grouped)) > (40 if weight_gradient == "high_precision" else least)


def test_square_tiles_leave_rows_their_own_blocks():
    qx, qw = mxq.quantize(X, scale_rounding="floor"), mxq.quantize(W, scaling="32x32", scale_rounding="floor")
    assert torch.equal(mt.linear(X, W.clone(), scaling="32x32", scale_rounding="floor"), mxq.matmul(qx, qw.T))


@pytest.mark.parametrize("weight_gradient", WEIGHT_GRADIENTS)
@pytest.mark.parametrize("parts", ["rowwise", "both"])
@pytest.mark.parametrize("format", ["mxfp8_e4m3", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_quantized_x(grouped, format, parts, weight_gradient):
    q = mxq.quantize(X, format, parts=parts, groups=ENDS if grouped else None)
    w = (EACH if grouped else W).clone().requires_grad_()
    bias = tensor(3, 48, seed=5).requires_grad_() if grouped else tensor(1, 48, seed=5)[0].requires_grad_()
    y = layer(q, w, grouped, bias=bias, weight_gradient=weight_gradient)
    y.backward(DY)
    qw = mxq.quantize(w.detach(), format)
    product = mxq.grouped_matmul if grouped else mxq.matmul
    assert torch.equal(y.detach(), product(q, qw.mT, bias=bias.detach()))
    qdy = mxq.quantize(DY, format, parts="both", groups=ENDS if grouped else None)
    if weight_gradient == "dequantized":
        expected = outer(qdy.dequantize(), q.dequantize(), grouped)
    else:
        columns = q if parts == "both" else mxq.requantize(q, format, parts="columnwise")
        expected = product(qdy.T, columns).double()
    assert decibels(w.grad, expected) > 45
    sums = DY.float().sum(0) if not grouped else DY[:20].float().sum(0)
    assert torch.allclose((bias.grad[0] if grouped else bias.grad).float(), sums, rtol=2.0**-7, atol=1e-3)


def test_a_quantized_x_and_frozen_weights():
    q, w = mxq.quantize(X), mxq.quantize(W, "mxfp4")
    bias = tensor(1, 48, seed=5)[0].requires_grad_()
    mt.linear(q, w, bias=bias).sum().backward()
    assert (bias.grad == 70).all() and torch.equal(mt.linear(q, w), q @ w.T)
    grouped, each = mxq.quantize(X, groups=ENDS), mxq.quantize(EACH)
    assert torch.equal(mt.grouped_linear(grouped, each), mxq.grouped_matmul(grouped, each.mT))


@pytest.mark.parametrize("format, scaling", [("mxfp8_e4m3", None), ("nvfp4", None), ("fp8_e4m3", "1x128"), ("fp8_e4m3", "row"), ("fp8_e4m3", "tensor")])
def test_rows_that_were_quantized_without_groups_get_theirs(format, scaling):
    q, w = mxq.quantize(X, format, scaling=scaling), mxq.quantize(EACH, format, scaling=scaling)
    expected = mxq.grouped_matmul(mxq.quantize(X, format, scaling=scaling, groups=ENDS), w.mT)
    assert torch.equal(mxq.grouped_matmul(q, w.mT, groups=ENDS), expected)
    assert torch.equal(mt.grouped_matmul(q, w.mT, ends=ENDS), expected)
    assert torch.equal(mt.grouped_matmul(q, w.mT, ends=ENDS.tolist(), check_ends=True), expected)
    trained = EACH.clone().requires_grad_()
    mt.grouped_linear(q, trained, ENDS).backward(DY)
    assert decibels(trained.grad, outer(DY, X, True)) > 12


@pytest.mark.parametrize("weight_gradient", [*WEIGHT_GRADIENTS, "high_precision"])
@pytest.mark.parametrize("format", ["mxfp8_e4m3", "nvfp4", "fp8_e4m3"])
def test_padded_groups_change_no_number(format, weight_gradient):
    results = []
    for groups in (ENDS, mxq.Groups(ENDS, (16, 64), True), mxq.Groups(ENDS, 128, True)):
        x, w, bias = X.clone().requires_grad_(), EACH.clone().requires_grad_(), tensor(3, 48, seed=5).requires_grad_()
        y = mt.grouped_linear(x, w, groups, format, bias=bias, weight_gradient=weight_gradient)
        y.backward(DY)
        results.append((y.detach(), x.grad, w.grad, bias.grad))
    assert all(torch.equal(*pair) for padded in results[1:] for pair in zip(padded, results[0]))
    padded = mt.quantize(X, format, ends=mxq.Groups(ENDS, (16, 64), True), parts="both")
    expected = mxq.quantize(X, format, groups=mxq.Groups(ENDS, 16))  # rows of 20 and 50 fill 32 and 64
    assert padded.rowwise.codes.shape == (112, padded.rowwise.codes.shape[1])
    assert torch.equal(padded.rowwise.codes[:96], expected.rowwise.codes[:96])
    w = EACH.clone().requires_grad_()
    if weight_gradient != "high_precision":
        mt.grouped_linear(padded, w, weight_gradient=weight_gradient).backward(DY)
        assert torch.equal(w.grad, results[0][2])


@pytest.mark.parametrize("row_alignment, column_alignment", [(1, 0), (16, 0), (32, 64), (128, 128)])
@pytest.mark.parametrize("parts", ["rowwise", "both"])
@pytest.mark.parametrize("format, scaling", [("mxfp8_e4m3", "1x32"), ("mxfp8_e4m3", "32x32"), ("nvfp4", "1x16"), ("fp8_e4m3", "1x128")])
def test_operators_pass_torch_s_own_checks(format, scaling, parts, row_alignment, column_alignment):
    if scaling == "1x128" and column_alignment == 64:
        column_alignment = 128
    arguments = (X, format, parts, scaling, False, "tensor", None, ENDS, True, row_alignment, column_alignment)
    library.opcheck(torch.ops.mxq.quantize.default, arguments, test_utils=("test_schema", "test_faketensor"))
    from mxq._torch_pack import pack

    q = mxq.quantize(X, format, scaling=scaling, groups=mxq.Groups(ENDS, (row_alignment, column_alignment), True))
    library.opcheck(torch.ops.mxq.columnwise.default, pack(q, "q")[:5], test_utils=("test_schema", "test_faketensor"))


def test_layers_of_a_quantized_x_inside_of_torch_compile():
    torch._dynamo.reset()

    def forward(x, w, each, ends):
        q, rows = mt.quantize(x, "mxfp4"), mt.quantize(x, "mxfp8_e4m3", ends=ends, parts="both")
        groups = mxq.Groups(ends, (16, 32))
        return (mt.linear(q, w), mt.grouped_linear(rows, each, weight_gradient="dequantized"), mt.grouped_linear(q, each, ends),
                mt.grouped_linear(x, each, groups, scaling="32x32"), mt.grouped_matmul(q, mt.quantize(each, "mxfp4").mT, ends=ends))

    results = []
    for function in (forward, torch.compile(forward, fullgraph=True)):
        w, each = W.clone().requires_grad_(), EACH.clone().requires_grad_()
        y = function(X, w, each, ENDS)
        results.append((*y, *torch.autograd.grad(y[:4], (w, each), [DY] * 4)))
    assert len(results[0]) == 7 and all(decibels(*pair) > 45 for pair in zip(*results))


def test_numbers_of_tokens_that_are_symbols():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(lambda x, w, ends: mt.grouped_linear(x, w, ends), fullgraph=True, dynamic=True)
    for rows in (66, 70, 100):
        results = []
        for function in (compiled, mt.grouped_linear):
            x, w = tensor(rows, 64).requires_grad_(), tensor(3, 24, 64, seed=2).requires_grad_()
            function(x, w, torch.tensor([20, 20, rows])).square().sum().backward()
            results.append((x.grad, w.grad))
        assert all(torch.equal(*pair) for pair in zip(*results))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_rows_that_are_invariant(frozen, grouped):
    weight = EACH if grouped else W
    weight = mxq.quantize(weight) if frozen else weight.clone()
    whole, few = X.clone().requires_grad_(), X[:20].clone().requires_grad_()
    y = layer(whole, weight, grouped, row_invariant=True)
    y.backward(DY)
    ends = torch.tensor([20, 20, 20], dtype=torch.int32)
    first = mt.grouped_linear(few, weight, ends, row_invariant=True) if grouped else mt.linear(few, weight, row_invariant=True)
    first.backward(DY[:20])
    assert torch.equal(y[:20], first)
    assert torch.equal(whole.grad[:20], few.grad)


def test_refusals():
    w, each, q = W.clone().requires_grad_(), EACH.clone().requires_grad_(), mxq.quantize(X)
    grouped, tiles = mxq.quantize(X, groups=ENDS), mxq.quantize(X, scaling="32x32")
    turned = mxq.quantize(X, "mxfp4", hadamard=0xD7E8)
    for call, says in (
        (lambda: mt.linear(q, w, weight_gradient="high_precision"), "weight_gradient is 'high_precision', but x is quantized"),
        (lambda: mt.linear(turned, w), "x has a Hadamard transform"),
        (lambda: mt.linear(X, mxq.quantize(W), scaling="1x32"), "scaling is '1x32', expected None with quantized weights"),
        (lambda: mt.linear(X, mxq.quantize(W), scale_rounding="floor"), "scale_rounding is 'floor', expected None"),
        (lambda: mt.linear(mxq.quantize(X, parts="columnwise"), w), "rowwise"),
        (lambda: mt.linear(q, w, "fp8_e4m3"), "mxfp8_e4m3"),
        (lambda: mt.grouped_linear(X, each), "x has no groups; give ends"),
        (lambda: mt.grouped_linear(q, each), "x has no groups; give ends"),
        (lambda: mt.grouped_linear(grouped, each, ENDS), "ends were given with a quantized x, which has its own groups"),
        (lambda: mt.grouped_matmul(grouped, mxq.quantize(EACH).mT, ends=ENDS), "which has its own"),
        (lambda: mt.grouped_matmul(tiles, mxq.quantize(EACH).mT, ends=ENDS), "whose rows cannot be read as groups"),
        (lambda: mxq.grouped_matmul(mxq.quantize(X, swizzled=True), mxq.quantize(EACH).mT, groups=ENDS), "whose rows cannot be read"),
        (lambda: mt.grouped_linear(q, each, mxq.Groups(ENDS, 16)), "without padding"),
    ):
        with pytest.raises(mxq.Error, match=says):
            call()
