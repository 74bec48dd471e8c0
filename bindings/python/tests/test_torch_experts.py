"""The expert layer of torch and its gradients, against the same in float64."""
import pytest
from test_arrays import numbers

import mxq

torch = pytest.importorskip("torch")
from torch import library  # noqa: E402
mt = pytest.importorskip("mxq.torch")

TOKENS, CHOICES, EXPERTS, WIDTH, INNER = 24, 2, 4, 64, 96
NAMES = ("x", "weights", "gate_up", "down", "gate_up_bias", "down_bias")
WEIGHT_GRADIENTS = ("quantized", "dequantized", "high_precision")
# Least decibels of results and gradients, a little below what was seen.
FORMATS = {("mxfp8_e4m3", None): 23, ("mxfp8_e4m3", "32x32"): 23, ("mxfp8_e4m3", "128x128"): 23, ("mxfp8_e5m2", None): 17,
           ("mxfp4", None): 9, ("nvfp4", None): 12, ("nvfp4", "16x16"): 11, ("fp8_e4m3", None): 23, ("fp8_e4m3", "row"): 23,
           ("fp8_e4m3", "1x128"): 23, ("fp8_e4m3", "128x128"): 23}


def choose(tokens=TOKENS):
    """Experts of each token: one choice is dropped, and the last expert gets no token."""
    ids = torch.from_numpy(abs(numbers(tokens, CHOICES, seed=9)) * 1000).long() % (EXPERTS - 1)
    ids[3, 1] = -1
    return ids


IDS = choose()


def leaves(dtype=torch.bfloat16, tokens=TOKENS, inner=2 * INNER):
    def leaf(seed, *shape):
        flat = numbers(shape[0] * shape[1], shape[2], seed=seed) if len(shape) == 3 else numbers(*shape, seed=seed)
        return torch.from_numpy(flat.reshape(shape)).div(8 if len(shape) == 3 else 1).to(dtype).requires_grad_()

    weights = torch.from_numpy(abs(numbers(tokens, CHOICES, seed=2))).requires_grad_()
    return [leaf(1, tokens, WIDTH), weights, leaf(3, EXPERTS, inner, WIDTH), leaf(4, EXPERTS, WIDTH, INNER), leaf(5, EXPERTS, inner),
            leaf(6, EXPERTS, WIDTH)]


def in_double(given):
    return [leaf.detach().double().requires_grad_() for leaf in given]


def swiglu(halves):
    gate, up = halves.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def clamped(halves):
    gate, up = halves[:, 0::2].clamp(max=7), halves[:, 1::2].clamp(-7, 7)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


def exact(x, weights, gate_up, down, gate_up_bias, down_bias, ids=IDS, activation=swiglu):
    out = torch.zeros_like(x)
    for j in range(CHOICES):
        here = ids[:, j] >= 0
        e = ids[here, j]
        halves = torch.einsum("tk,tnk->tn", x[here], gate_up[e]) + gate_up_bias[e]
        rows = torch.einsum("ti,tki->tk", activation(halves), down[e]) + down_bias[e]
        out = out.index_add(0, here.nonzero()[:, 0], rows * (1 if weights is None else weights[here, j : j + 1]))
    return out


def decibels(got, expected):
    return -10 * torch.log10((got.double() - expected).square().sum() / expected.square().sum())


def compare(given, expected, y, z, least):
    assert decibels(y.detach(), z.detach()) > least
    for name, mine, right in zip(NAMES, given, expected):
        assert mine.grad.dtype == mine.dtype and mine.grad.shape == mine.shape
        assert decibels(mine.grad, right.grad) > least, (name, decibels(mine.grad, right.grad))


DY = torch.from_numpy(numbers(TOKENS, WIDTH, seed=7))


@pytest.mark.parametrize("weight_gradient", WEIGHT_GRADIENTS)
@pytest.mark.parametrize("format, scaling", FORMATS)
def test_gradients(format, scaling, weight_gradient):
    given = leaves()
    expected = in_double(given)
    y = mt.expert_layer(given[0], IDS, *given[1:], format=format, scaling=scaling, weight_gradient=weight_gradient)
    z = exact(*expected)
    y.backward(DY.to(y.dtype))
    z.backward(DY.to(torch.bfloat16).double())
    compare(given, expected, y, z, FORMATS[format, scaling])
    assert not given[2].grad[EXPERTS - 1].any() and not given[3].grad[EXPERTS - 1].any() and given[1].grad[3, 1] == 0


@pytest.mark.parametrize("parts", ["rowwise", "both"])
@pytest.mark.parametrize("format", ["mxfp8_e4m3", "mxfp4", "nvfp4"])
def test_frozen_weights_leave_float32_s_own_errors(format, parts):
    given = leaves(torch.float32)
    frozen = [mxq.quantize(weight.detach(), format, parts=parts) for weight in given[2:4]]
    expected = in_double(given)
    z = exact(*expected[:2], *(q.dequantize("float32").double() for q in frozen), *expected[4:])
    y = mt.expert_layer(given[0], IDS, given[1], *frozen, *given[4:])
    y.backward(DY)
    z.backward(DY.double())
    if parts == "both" and format != "mxfp8_e4m3":
        return  # columnwise parts have other values, and so have the gradients
    for index in (0, 1, 4, 5):
        assert decibels(given[index].grad, expected[index].grad) > (20 if parts == "both" else 110), NAMES[index]
    assert decibels(y.detach(), z.detach()) > 110 and given[2].grad is None


def test_gradients_are_slopes():
    """A step of each leaf of a layer of float32 with frozen weights changes the loss as its gradient says."""
    given = leaves(torch.float32)
    frozen = [mxq.quantize(weight.detach(), "mxfp8_e4m3") for weight in given[2:4]]

    def loss(x, weights, gate_up_bias, down_bias):
        return (mt.expert_layer(x, IDS, weights, *frozen, gate_up_bias, down_bias) * DY).double().sum()

    parts = [given[0], given[1], given[4], given[5]]
    gradients = torch.autograd.grad(loss(*parts), parts)
    for i, (leaf, gradient) in enumerate(zip(parts, gradients)):
        step = torch.from_numpy(numbers(leaf.numel(), 1, seed=20 + i)).reshape(leaf.shape)
        ends = []
        for sign in (1, -1):
            moved = [each.detach() for each in parts]
            moved[i] = moved[i] + sign * 2.0**-9 * step
            ends.append(loss(*moved))
        slope, expected = (ends[0] - ends[1]) / 2.0**-8, (gradient * step).double().sum()
        assert abs(slope - expected) < 0.01 * abs(expected) + 0.01, (i, slope, expected)


@pytest.mark.parametrize("format", ["mxfp8_e4m3", "nvfp4"])
def test_the_bits_are_those_of_the_layer_in_one_call(format):
    x, weights, gate_up, down, *biases = [leaf.detach() for leaf in leaves()]
    y = mt.expert_layer(x, IDS, weights, gate_up, down, *biases, format=format)
    q, both = [mxq.quantize(weight, format) for weight in (gate_up, down)], dict(gate_up_bias=biases[0], down_bias=biases[1])
    assert torch.equal(y, mxq.expert_layer(x, IDS, weights, *q, format=format, **both))
    assert torch.equal(mt.expert_layer(x, IDS, weights, *q, *biases), mxq.expert_layer(x, IDS, weights, *q, **both))
    trained = mt.expert_layer(x.clone().requires_grad_(), IDS, weights, gate_up, down, *biases, format=format)
    assert torch.equal(trained.detach(), y)


@pytest.mark.parametrize("weight_gradient", WEIGHT_GRADIENTS)
def test_gradients_are_products_of_what_weight_gradient_says(weight_gradient):
    given = leaves()
    mt.expert_layer(given[0], IDS, *given[1:], format="mxfp4", scaling="32x32", weight_gradient=weight_gradient).backward(DY.bfloat16())
    x, weights, gate_up, down, *biases = [leaf.detach() for leaf in given]
    routing = mxq.route(IDS, EXPERTS, weights)
    rows = dict(format="mxfp4", parts="both", groups=routing.groups)
    w = [mxq.quantize(weight, "mxfp4", scaling="32x32", parts="both") for weight in (gate_up, down)]
    tokens = x[routing.row_tokens.clamp(min=0)]
    qx = mxq.quantize(tokens, **rows)
    halves = mxq.grouped_matmul(qx, w[0].mT, bias=biases[0])
    inner, qi = mxq.activate(halves, groups=routing.groups), mxq.activate(halves, **rows)
    d_rows = mxq.combine_backward(routing, DY.bfloat16()).rows
    qd = mxq.quantize(d_rows, **rows)
    d_inner = mxq.grouped_matmul(qd, w[1])
    d_halves = mxq.activate_backward(d_inner, halves, groups=routing.groups).x
    qh = (mxq.activate_backward(d_inner, halves, **rows).x if weight_gradient == "quantized" else mxq.quantize(d_halves, **rows))
    choices = mxq.route(IDS, EXPERTS)
    assert torch.equal(given[0].grad, mxq.combine(choices, mxq.grouped_matmul(qh, w[0])))

    def outer(gradient, quantized, input, quantized_input):
        if weight_gradient == "quantized":
            return mxq.grouped_matmul(quantized.T, quantized_input)
        if weight_gradient == "dequantized":
            gradient, input = quantized.dequantize(), quantized_input.dequantize()
        ends = [0, *routing.ends.tolist()]
        return torch.stack([gradient[first:last].double().T @ input[first:last].double() for first, last in zip(ends, ends[1:])])

    assert decibels(given[2].grad, outer(d_halves, qh, tokens, qx).double()) > 45
    assert decibels(given[3].grad, outer(d_rows, qd, inner, qi).double()) > 45


def test_activations_and_their_options():
    given = leaves()
    expected = in_double(given)
    y = mt.expert_layer(given[0], IDS, *given[1:], activation="swiglu_clamped", gate_layout="interleaved_gate_up", clamp=(1.702, 7, 1))
    z = exact(*expected, activation=clamped)
    y.backward(DY.to(y.dtype))
    z.backward(DY.double())
    compare(given, expected, y, z, 22)
    without = leaves(inner=INNER)
    y = mt.expert_layer(without[0], IDS, *without[1:], activation="squared_relu")
    z = exact(*in_double(without), activation=lambda halves: halves.relu().square())
    assert decibels(y.detach(), z.detach()) > 20
    with pytest.raises(mxq.Error, match="expected one with a gate"):
        y.sum().backward()


def test_a_layer_without_router_s_weights_and_biases():
    x, _, gate_up, down, *_ = leaves()
    y = mt.expert_layer(x, IDS.int(), None, gate_up, down)
    y.backward(DY.to(y.dtype))
    expected = in_double((x, gate_up, down))
    z = exact(expected[0], None, *expected[1:], torch.zeros(EXPERTS, 2 * INNER), torch.zeros(EXPERTS, WIDTH))
    z.backward(DY.double())
    for mine, right in zip((x, gate_up, down), expected):
        assert decibels(mine.grad, right.grad) > 23


@pytest.mark.parametrize("weight_gradient", WEIGHT_GRADIENTS)
def test_each_gradient_alone_is_what_it_is_with_all(weight_gradient):
    given = leaves()

    def gradients(which):
        fresh = [leaf.detach().requires_grad_(i in which) for i, leaf in enumerate(given)]
        mt.expert_layer(fresh[0], IDS, *fresh[1:], weight_gradient=weight_gradient).backward(DY.bfloat16())
        return [leaf.grad for leaf in fresh]

    all_of_them = gradients(range(6))
    for i in range(6):
        found = gradients([i])
        assert torch.equal(found[i], all_of_them[i]) and sum(each is not None for each in found) == 1, NAMES[i]


@pytest.mark.parametrize("weight_gradient", WEIGHT_GRADIENTS)
def test_gradients_of_weights_are_added_to_main_grad(weight_gradient):
    given, same = leaves(), leaves()
    for weight in given[2:4]:
        weight.main_grad = torch.ones(weight.shape)
    for one in (given, same):
        mt.expert_layer(one[0], IDS, *one[1:], weight_gradient=weight_gradient).backward(DY.bfloat16())
    for mine, right in zip(given[2:4], same[2:4]):
        assert mine.grad is None and torch.allclose(mine.main_grad - 1, right.grad.float(), rtol=2.0**-8, atol=1e-5)
        assert (mine.main_grad[EXPERTS - 1] == 1).all()
    assert torch.equal(given[0].grad, same[0].grad)
    given[3].main_grad = torch.ones(given[3].shape, dtype=torch.bfloat16)
    with pytest.raises(mxq.Error, match="down.main_grad has dtype bfloat16 and shape .*, expected contiguous float32"):
        mt.expert_layer(given[0], IDS, *given[1:])


def test_layers_without_tokens_and_with_one():
    for tokens in (0, 1):
        given = leaves(tokens=tokens)
        ids = torch.zeros(tokens, CHOICES, dtype=torch.int64)
        y = mt.expert_layer(given[0], ids, *given[1:])
        y.sum().backward()
        assert y.shape == (tokens, WIDTH) and given[2].grad[0].any() == bool(tokens) and given[0].grad.shape == y.shape


# ---- torch.compile -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight_gradient", [*WEIGHT_GRADIENTS, None])
def test_the_layer_inside_of_torch_compile(weight_gradient):
    torch._dynamo.reset()
    frozen = weight_gradient is None
    q = [mxq.quantize(weight.detach(), "mxfp4") for weight in leaves()[2:4]]

    def forward(x, ids, weights, gate_up, down, gate_up_bias, down_bias):
        pair = q if frozen else (gate_up, down)
        options = {} if frozen else {"format": "nvfp4", "weight_gradient": weight_gradient}
        return mt.expert_layer(x, ids, weights, *pair, gate_up_bias, down_bias, **options)

    results = []
    for function in (forward, torch.compile(forward, fullgraph=True)):
        given = leaves()
        y = function(given[0], IDS, *given[1:])
        y.backward(DY.bfloat16())
        results.append([y.detach(), *(leaf.grad for leaf in given if leaf.grad is not None)])
    assert len(results[0]) == (5 if frozen else 7) and all(torch.equal(*pair) for pair in zip(*results))


def test_numbers_of_tokens_that_are_symbols():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(lambda x, ids, *rest: mt.expert_layer(x, ids, *rest), fullgraph=True, dynamic=True)
    for tokens in (22, 26, 40):
        given, same, ids = leaves(tokens=tokens), leaves(tokens=tokens), choose(tokens)
        for function, one in ((compiled, given), (mt.expert_layer, same)):
            function(one[0], ids, *one[1:]).square().sum().backward()
        assert all(torch.equal(mine.grad, right.grad) for mine, right in zip(given, same))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_main_grad_inside_of_torch_compile():
    torch._dynamo.reset()
    given, same = leaves(), leaves()
    given, same = ([torch.nn.Parameter(leaf.detach()) for leaf in each] for each in (given, same))
    for weight in (*given[2:4], *same[2:4]):
        weight.main_grad = torch.ones(weight.shape)
    torch.compile(mt.expert_layer, fullgraph=True)(given[0], IDS, *given[1:]).sum().backward()
    mt.expert_layer(same[0], IDS, *same[1:]).sum().backward()
    for mine, right in zip(given[2:4], same[2:4]):
        assert mine.grad is None and torch.equal(mine.main_grad, right.main_grad)


def test_operators_pass_torch_s_own_checks():
    from mxq._torch_layer import Settings, expert_layer_backward_op, expert_layer_op
    from mxq._torch_pack import pack

    x, weights, gate_up, down, *biases = [leaf.detach() for leaf in leaves()]
    q = [mxq.quantize(weight, "mxfp4") for weight in (gate_up, down)]
    for pair, format in (((gate_up, down), "nvfp4"), ((gate_up, down), "mxfp8_e4m3"), (q, None)):
        packed = [field for operand in pair for field in pack(operand, "w")[:3]]
        for weight_gradient in WEIGHT_GRADIENTS:
            settings = Settings("swiglu", None, None, format, None, None, weight_gradient).text
            arguments = (x, IDS, weights, *packed, *biases, settings, True, True, format is not None)
            library.opcheck(expert_layer_op, arguments, test_utils=("test_schema", "test_faketensor"))
            y, *kept = expert_layer_op(*arguments)
            places = [x, weights, gate_up, down, *biases] if format else [x, weights, *biases]
            names = NAMES if format else NAMES[:2] + NAMES[4:]
            backward = (y, x, weights, *packed, kept, CHOICES, settings, [torch.empty_like(place) for place in places], " ".join(names),
                        [False] * len(names))
            library.opcheck(expert_layer_backward_op, backward, test_utils=("test_schema", "test_faketensor"))


# ---- What is refused ---------------------------------------------------------------------------------------------------


def test_refusals():
    x, weights, gate_up, down, *biases = leaves()
    q = [mxq.quantize(weight.detach(), "mxfp8_e4m3") for weight in (gate_up, down)]
    wrong = IDS.clone()
    wrong[0, 0] = EXPERTS

    def call(*given, ids=IDS, **options):
        return lambda: mt.expert_layer(given[0], ids, *given[1:], **options)

    for refused, says in (
        (call(x, weights, gate_up, down, weight_gradient="exact"), 'weight_gradient is \'exact\', expected "quantized", "dequantized"'),
        (call(x, weights, *q, format="mxfp8_e4m3"), "format is 'mxfp8_e4m3', expected None with quantized weights"),
        (call(x, weights, *q, scaling="1x32"), "scaling is '1x32', expected None with quantized weights"),
        (call(x, weights, q[0], down), "down is a Tensor, expected a QTensor, as gate_up is"),
        (call(x, weights, None, down), "gate_up is a NoneType, expected a torch tensor"),
        (call(x, weights, gate_up[0], down), r"gate_up has shape \(192, 64\), expected \(experts, 2 I, K\)"),
        (call(x[None], weights, gate_up, down), r"x has shape \(1, 24, 64\), expected \(tokens, K\)"),
        (call(x, weights, gate_up, down, ids=IDS[:5]), r"ids has shape \(5, 2\), expected \(tokens, choices\) with 24 tokens"),
        (call(x, weights, gate_up, down, ids=weights), "expected \\(tokens, choices\\) of int32 or int64"),
        (call(x, weights, gate_up, down, ids=wrong), "ids\\[0\\] is 4"),
        (call(x, weights.double(), gate_up, down), "weights has dtype float64"),
        (call(x, weights, gate_up, down, format="fp16"), "format"),
        (call(x, weights, gate_up, down, format="fp8_e4m3", scale_rounding="floor"), "a scale rounding, which only an MX format has"),
        (call(x, weights, gate_up, down, activation="relu"), "activation is 'relu'"),
        (call(x, weights, gate_up, down, clamp=(1.0, 2.0, 3.0)), "clamp"),
        (call(x, weights, gate_up, down, clamp=(1.0,)), r"expected \(alpha, limit, addend\)"),
        (call(x, weights, gate_up, down, biases[1]), "bias has shape"),
        (call(x, weights, gate_up[:3], down), "a matrix for each"),
        (call(x, weights, q[0], mxq.quantize(down.detach(), parts="columnwise")), "rowwise"),
    ):
        with pytest.raises(mxq.Error, match=says):
            refused()
    with pytest.raises(mxq.Error, match="torch.func"):
        torch.func.grad(lambda x: mt.expert_layer(x, IDS, weights.detach(), *q).sum())(x.detach())
    with pytest.raises(mxq.Error, match="first derivatives only, found create_graph=True"):
        torch.autograd.grad(mt.expert_layer(x, IDS, weights, *q).square().sum(), x, create_graph=True)
