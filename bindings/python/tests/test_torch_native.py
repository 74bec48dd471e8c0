"""The operators of torch in C++ give what those in Python give: bits, errors, graphs. Skipped where they are not installed."""
import itertools
import os
import subprocess
import sys

import pytest
from test_arrays import numbers

import mxq

torch = pytest.importorskip("torch")
from torch import library  # noqa: E402
mt = pytest.importorskip("mxq.torch")
from mxq import _torch_native as native  # noqa: E402
from mxq._products import prepare_grouped_matmul as REFERENCE_GROUPED  # noqa: E402
from mxq._products import prepare_matmul as REFERENCE_MATMUL  # noqa: E402
from mxq import _torch_calls, _torch_eager, _torch_experts, _torch_verbs, _verbs  # noqa: E402

pytestmark = pytest.mark.skipif(native.ops is None, reason=f"no operators in C++: {native.missing}")
FORMATS = [("mxfp8_e4m3", None), ("mxfp8_e4m3", "32x32"), ("mxfp8_e5m2", "128x128"), ("mxfp6_e2m3", None), ("mxfp6_e3m2", "row"),
           ("mxfp4", "1x128"), ("nvfp4", None), ("nvfp4", "16x16"), ("fp8_e4m3", None), ("fp8_e4m3", "row"), ("fp8_e5m2", "1x128"),
           ("fp8_e4m3", "128x128")]
ENDS = torch.tensor([5, 12, 32], dtype=torch.int32)


@pytest.fixture
def calls(monkeypatch):
    """Counts calls of the operators in C++, and refuses those in Python and the verbs that stand in for them."""
    made = []
    for module, names in ((native, ("_quantize", "_dequantize", "_matmul", "_grouped_matmul")),
                          (_torch_eager, ("_quantize_part", "_quantize_part_with_amaxes", "_dequantize_part", "_product", "_product_with"))):
        for name in names:
            monkeypatch.setattr(module, name, lambda *given, name=name, call=getattr(module, name): (made.append(name), call(*given))[1])

    def refuse(*given, **options):
        raise AssertionError("Python was called")

    for module, name in ((_torch_verbs._verbs, "quantize"), (_torch_verbs._verbs, "dequantize"), (_torch_verbs, "quantize_op"),
                         (_torch_verbs, "dequantize_op"), (_torch_calls, "prepare_matmul"), (_torch_calls, "prepare_grouped_matmul"),
                         (_torch_calls, "matmul_op"), (_torch_calls, "grouped_matmul_op")):
        monkeypatch.setattr(module, name, refuse)
    return made


def tensor(*shape, seed=1, dtype=torch.bfloat16):
    flat = numbers(shape[0] * shape[1], shape[2], seed=seed) if len(shape) == 3 else numbers(*shape, seed=seed)
    return torch.from_numpy(flat.reshape(shape)).to(dtype)


def quantized(x, *arguments, **options):
    """mxq.quantize by calls of the C library alone."""
    return _verbs._quantize(x, *arguments, **options).run()


def values(q, dtype=None, **options):
    """q.dequantize by calls of the C library alone."""
    return _verbs._dequantize(q, dtype, **options).run()


def in_python(call):
    """The same call without the operators in C++."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "ops", None)
        return call()


def same_parts(found, expected):
    return found.spec == expected.spec and found.shape == expected.shape and found.dtype == expected.dtype and all(
        torch.equal(a, b) and a.dtype == b.dtype and a.shape == b.shape
        for name in expected.parts for a, b in zip(found.part(name)[:3], expected.part(name)[:3]) if b is not None) and len(found.parts) == len(expected.parts)


@pytest.mark.parametrize("format, scaling", FORMATS)
@pytest.mark.parametrize("parts", ["rowwise", "columnwise", "both"])
def test_quantize_and_dequantize(calls, format, scaling, parts):
    for x in (tensor(64, 128), tensor(3, 32, 160), tensor(64, 256)[:, 128:], tensor(32, 128, dtype=torch.float16)):
        q = mt.quantize(x, format, scaling=scaling, parts=parts)
        expected = quantized(x, format, scaling=scaling, parts=parts)
        assert same_parts(q, expected)
        for dtype in (None, torch.float32, torch.float16):
            made = mt.dequantize(q, dtype)
            one_part = "_dequantize_part" if parts != "both" else "_dequantize"
            assert calls[-1] == one_part and torch.equal(made, values(expected, dtype)) and made.dtype == (dtype or x.dtype)


def test_functions_of_mxq_take_them(calls):
    x = tensor(64, 128)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_quantize", "_dequantize"):
            patch.setattr(_verbs, name, None)  # so that a call of Python fails
        q, both, tracked = mxq.quantize(x), mxq.quantize(x, "nvfp4", parts="both"), mxq.quantize(x.clone().requires_grad_())
        made = q.dequantize()
    assert calls == ["_quantize_part", "_quantize", "_quantize_part", "_dequantize_part"] and not tracked.rowwise.codes.requires_grad
    assert same_parts(q, quantized(x)) and same_parts(both, quantized(x, "nvfp4", parts="both")) and same_parts(tracked, q)
    assert torch.equal(made, values(q))
    for options in ({"amax_epsilon": 1.0}, {"nonfinite": "propagate"}, {"implementation": "cpu"}, {"context": mxq.Context("cpu", threads=1)}):
        del calls[:]
        try:
            mxq.quantize(x, "fp8_e4m3", **options)
        except mxq.Error:
            pass
        assert not calls, options
    with pytest.raises(mxq.Error, match="negated view"):
        mxq.quantize(torch.zeros(4, 32, dtype=torch.complex64).conj().imag)


@pytest.mark.parametrize("format", ["mxfp8_e4m3", "nvfp4", "fp8_e4m3", "mxfp4"])
def test_quantize_of_groups_and_options(calls, format):
    x = tensor(40, 128)
    for groups in (ENDS, mxq.Groups(ENDS, (32, 32)), mxq.Groups(ENDS.long(), cover_rows=False)):
        rows = x[:32] if groups is ENDS else x
        q, expected = mt.quantize(rows, format, ends=groups, parts="both"), quantized(rows, format, groups=groups, parts="both")
        assert all(a.shape == b.shape for a, b in zip(q._arrays, expected._arrays))
        assert torch.equal(mt.dequantize(q), values(expected)) and calls[-1] == "_dequantize"
        one = mt.quantize(rows, format, ends=groups)
        assert torch.equal(mt.dequantize(one), values(expected)) and calls[-1] == "_dequantize_part"
        assert torch.equal(mt.dequantize(q, part="columnwise"), values(expected, part="columnwise"))
    plain = tensor(128, 256)
    for options in ({"swizzled": True}, *({"scope": "expert"},) * (format[0] != "m"), *({"scale_rounding": "floor"},) * (format[0] == "m")):
        if not (format == "fp8_e4m3" and "swizzled" in options):
            assert same_parts(mt.quantize(plain, format, **options), quantized(plain, format, **options))
    one_part = "_quantize_part_with_amaxes" if format == "nvfp4" else "_quantize_part"
    assert set(calls) - {one_part} == {"_quantize", "_dequantize", "_dequantize_part"}


@pytest.mark.parametrize("format, scaling", FORMATS)
def test_products(calls, format, scaling):
    x, w, bias = tensor(48, 64), tensor(32, 64, seed=2), tensor(1, 32, seed=3)[0]
    q, weight = (mxq.quantize(each, format, scaling=scaling, parts="both") for each in (x, w))
    rows, rows_of_weight, columns = (mxq.quantize(each, format, scaling=scaling, parts=part)
                                     for each, part in ((x, "rowwise"), (w, "rowwise"), (x, "columnwise")))
    cases = [(q, weight.T), (x, weight.T), (x, w.T), (x, w.t().contiguous()), (q, weight.dequantize().T), (q.T, x), (x.T, x),
             (rows, rows_of_weight.T), (x, rows_of_weight.T), (rows, w.T), (columns.T, columns)]
    for (a, b), more in itertools.product(cases, ({}, {"dtype": torch.float32}, {"exact_products": True, "row_invariant": True})):
        more = {**more, "bias": bias} if b.shape[-1] == 32 else more
        found = mt.matmul(a, b, **more)
        lists = any(len(each.parts) == 2 for each in (getattr(x, "base", x) for x in (a, b)) if isinstance(each, mxq.QTensor))
        besides = "bias" in more or (format == "nvfp4" and not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)))
        assert calls[-1] == ("_matmul" if lists else "_product_with" if besides else "_product")
        assert torch.equal(found, REFERENCE_MATMUL(a, b, **more).run())


@pytest.mark.parametrize("format", ["mxfp8_e4m3", "mxfp4", "nvfp4", "fp8_e4m3"])
def test_grouped_products(calls, format):
    x, w, bias = tensor(40, 64), tensor(3, 24, 64, seed=2), tensor(3, 24, seed=3)
    weight = quantized(w, format)
    for groups in (mxq.Groups(ENDS), mxq.Groups(ENDS.long())):
        q = mxq.quantize(x, format, groups=groups)
        for a, more in ((q, {}), (x, {"groups": groups}), (x, {"groups": groups, "bias": bias, "dtype": torch.float32, "alpha": 0.5})):
            assert torch.equal(mxq.grouped_matmul(a, weight.mT, **more), REFERENCE_GROUPED(a, weight.mT, **more).run())
    assert set(calls) == {"_product_with"} and len(calls) == 6
    both = quantized(w, format, parts="both")
    assert torch.equal(mxq.grouped_matmul(x, both.mT, groups=ENDS), REFERENCE_GROUPED(x, both.mT, groups=ENDS).run())
    assert calls[-1] == "_grouped_matmul"


LAYERS = [("mxfp8_e4m3", None), ("mxfp8_e4m3", "32x32"), ("mxfp4", None), ("nvfp4", None), ("nvfp4", "16x16"), ("fp8_e4m3", "1x128"),
          ("fp8_e4m3", "128x128")]


@pytest.mark.parametrize("format, scaling", LAYERS)
@pytest.mark.parametrize("with_biases", [False, True])
def test_layer_of_experts(monkeypatch, format, scaling, with_biases):
    tokens, experts, width, inner = 24, 4, 64, 96
    x, ids = tensor(tokens, width), (abs(tensor(tokens, 2, seed=9, dtype=torch.float32)) * 1000).long() % (experts - 1)
    ids[3, 1] = -1
    gate_up, down = tensor(experts, 2 * inner, width, seed=3), tensor(experts, width, inner, seed=4)
    shares = abs(tensor(tokens, 2, seed=2, dtype=torch.float32)) if with_biases else None
    biases = (tensor(experts, 2 * inner, seed=5), tensor(experts, width, seed=6)) if with_biases else (None, None)
    frozen = [mxq.quantize(each, format, scaling=scaling) for each in (gate_up, down)]
    clamped = {"activation": "swiglu_clamped", "gate_layout": "interleaved_gate_up", "clamp": (1.702, 7.0, 1.0)}
    calls = [lambda more=more: mt.expert_layer(x, ids, shares, *frozen, *biases, **more) for more in ({}, clamped)]
    calls += [lambda more=more: mt.expert_layer(x, ids, shares, gate_up, down, *biases, format=format, scaling=scaling, **more)
              for more in ({}, clamped, {"scale_rounding": "floor"} if format[0] == "m" else {})]
    for call in calls:
        expected = in_python(call)
        with monkeypatch.context() as patch:
            patch.setattr(_torch_experts, "run_layer", None)  # so that a call of Python fails
            assert torch.equal(call(), expected) and expected.any()


def test_layer_of_experts_in_a_graph():
    x, ids = tensor(24, 64), torch.arange(48).reshape(24, 2) % 4
    frozen = [mxq.quantize(each) for each in (tensor(4, 192, 64, seed=3), tensor(4, 64, 96, seed=4))]

    def layer(x):
        return mt.expert_layer(x, ids, None, *frozen)

    made, names = graph_of(layer, x)
    assert torch.equal(made, layer(x)) and "mxq_native.expert_layer.default" in names
    with pytest.raises(mxq.Error, match="expected"):
        torch.compile(layer)(tensor(24, 32))


def test_what_only_python_takes_is_the_same():
    w = mxq.quantize(tensor(3, 32, 64, seed=2))
    as_list = mxq.QTensor.from_parts("mxfp8_e4m3", (3, 32, 64), dtype="bfloat16",
                                     rowwise=([w[i].rowwise.codes for i in range(3)], [w[i].rowwise.scales for i in range(3)]))
    x = tensor(32, 64)
    assert native.operand(as_list) is None
    assert torch.equal(mxq.grouped_matmul(x, as_list.mT, groups=ENDS), mxq.grouped_matmul(x, w.mT, groups=ENDS))
    wide = mxq.quantize(tensor(32, 128))
    gaps = mxq.QTensor.from_parts("mxfp8_e4m3", (32, 64), rowwise=(wide.rowwise.codes[:, :64], wide.rowwise.scales[:, :2]), dtype="bfloat16")
    assert torch.equal(mt.dequantize(gaps), wide.dequantize()[:, :64])
    turned = mxq.quantize(x, "nvfp4", hadamard=0xD7E8)
    assert torch.equal(mt.dequantize(turned), turned.dequantize())
    batch = tensor(2, 8, 64)
    assert torch.equal(mt.matmul(batch, w[0].T), mt.matmul(batch.reshape(16, 64), w[0].T).reshape(2, 8, 32))


EXPERTS = [mxq.quantize(each) for each in (torch.ones(2, 64, 32), torch.ones(2, 32, 32))]
REFUSED = {
    "dtype": lambda: mt.quantize(torch.zeros(4, 32, dtype=torch.int32)),
    "format": lambda: mt.quantize(torch.zeros(4, 32), "fp3"),
    "scaling": lambda: mt.quantize(torch.zeros(4, 32), scaling="1x16"),
    "strides": lambda: mt.quantize(torch.zeros(32, 4).T),
    "dimensions": lambda: mt.quantize(torch.zeros(32)),
    "ends": lambda: mt.quantize(torch.zeros(32, 32), ends=torch.tensor([5, 12])),
    "contraction": lambda: mt.matmul(torch.zeros(4, 32), mxq.quantize(torch.zeros(8, 64)).T),
    "part": lambda: mt.matmul(mxq.quantize(torch.zeros(16, 8)).T, mxq.quantize(torch.zeros(16, 32))),
    "bias": lambda: mt.matmul(torch.zeros(4, 32), mxq.quantize(torch.zeros(8, 32)).T, bias=torch.zeros(4)),
    "result": lambda: mt.dequantize(mxq.quantize(torch.zeros(4, 32)), torch.int32),
    "ids": lambda: mt.expert_layer(torch.ones(4, 32), torch.full((4, 2), 9), None, *EXPERTS),
    "weights": lambda: mt.expert_layer(torch.ones(4, 32), torch.zeros(4, 2).int(), torch.ones(4, 3), *EXPERTS),
    "activation": lambda: mt.expert_layer(torch.ones(4, 32), torch.zeros(4, 2).int(), None, *EXPERTS, activation="relu"),
    "missing": lambda: mt.dequantize(mxq.quantize(torch.zeros(4, 32)), part="columnwise"),
}


@pytest.mark.parametrize("call", REFUSED)
def test_errors_are_the_same(call):
    with pytest.raises(mxq.Error) as found:
        REFUSED[call]()
    with pytest.raises(mxq.Error) as expected:
        in_python(REFUSED[call])
    assert str(found.value) == str(expected.value) and found.value.code == expected.value.code


def test_errors_inside_of_graphs():
    compiled = torch.compile(lambda x, ends: mt.quantize(x, ends=mxq.Groups(ends, cover_rows=True)).rowwise.codes, fullgraph=True)
    assert compiled(torch.zeros(32, 32), ENDS).shape == (32, 32)
    with pytest.raises(mxq.Error, match="out.ends says 12 for the end of the last group") as error:
        compiled(torch.zeros(32, 32), torch.tensor([5, 7, 12], dtype=torch.int32))
    assert error.value.code == "INVALID_ARGUMENT"


def graph_of(function, *arguments):
    """What torch.compile makes of a function, and the operators in its graph."""
    found = []

    def backend(module, inputs):
        found.extend(str(node.target) for node in module.graph.nodes if node.op == "call_function")
        return module

    made = torch.compile(function, backend=backend, fullgraph=True)(*arguments)
    torch._dynamo.reset()
    return made, found


def layer(x, w):
    q = mt.quantize(x)
    return mt.matmul(q, mt.quantize(w).T) + mt.dequantize(q)[:, :32]


def test_graphs_have_them_where_no_gradient_is_wanted():
    x, w = tensor(48, 64), tensor(32, 64, seed=2)
    made, names = graph_of(layer, x, w)
    assert torch.equal(made, layer(x, w)) and {"mxq_native.quantize.default", "mxq_native.matmul.default", "mxq_native.dequantize.default"} <= set(names)
    _, names = graph_of(lambda x, w: mt.matmul(x, mt.quantize(w).T), x.requires_grad_(), w)
    assert "mxq.matmul.default" in names and "mxq_native.matmul.default" not in names


def test_compiled_graphs_and_dynamic_shapes():
    w, compiled = mxq.quantize(tensor(3, 24, 64, seed=2)), torch.compile(lambda x, ends: mt.grouped_matmul(mt.quantize(x), w.mT, ends=ends))
    for rows in (32, 40, 72):
        ends, x = torch.tensor([3, 20, rows], dtype=torch.int32), tensor(rows, 64)
        assert torch.equal(compiled(x, ends), mxq.grouped_matmul(mxq.quantize(x), w.mT, groups=ends))
    torch._dynamo.reset()


def test_operators_pass_the_checks_of_torch():
    x, w = tensor(32, 64), mxq.quantize(tensor(24, 64, seed=2), "nvfp4", parts="both")
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    word = _torch_eager._recipe("nvfp4", "both", None, False, "tensor", None, 2).word
    library.opcheck(torch.ops.mxq_native.quantize.default, (x, word, None), test_utils=tests)
    tensors, words = native.operand(w.T)
    library.opcheck(torch.ops.mxq_native.matmul.default, ([x, *tensors], [1, 0, *words], 1.0), test_utils=tests)
    tensors, words = native.operand(w)
    library.opcheck(torch.ops.mxq_native.dequantize.default, (tensors, [1, *words]), test_utils=tests)


def test_operators_without_lists_pass_the_checks_of_torch():
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    x, bias = tensor(32, 64), tensor(3, 24, seed=3)
    for format, with_number in (("mxfp8_e4m3", False), ("nvfp4", True)):
        w, experts = quantized(tensor(24, 64, seed=2), format), quantized(tensor(3, 24, 64, seed=2), format)
        word = _torch_eager._recipe(format, "columnwise", None, False, "tensor", None, 2).word
        quantize = torch.ops.mxq_native.quantize_part_with_amaxes if with_number else torch.ops.mxq_native.quantize_part
        library.opcheck(quantize.default, (x, word), test_utils=tests)
        codes, scales, number, text, *_ = _torch_eager._operand(w, False)
        library.opcheck(torch.ops.mxq_native.dequantize_part.default, (codes, scales, "1" + text, number), test_utils=tests)
        codes, scales, number, text, *_ = _torch_eager._operand(experts.mT, False)
        head = _torch_eager._head(1, True, False, True, False, False, 0, 1.0)
        library.opcheck(torch.ops.mxq_native.product_with.default, (x, None, codes, scales, head + " 0" + text, bias, ENDS, None, number),
                        test_utils=tests)
    codes, scales, _, text, *_ = _torch_eager._operand(mxq.quantize(tensor(24, 64, seed=2)).T, False)
    library.opcheck(torch.ops.mxq_native.product.default, (x, None, codes, scales, "1 1.0 0" + text), test_utils=tests)


def test_contexts_reach_them():
    counts = []
    with_threads = mxq.Context("cpu", threads=2, parallel_for=lambda count, task: (counts.append(count), [task(i) for i in range(count)]))
    x = tensor(1024, 1024)
    expected = quantized(x)
    compiled = torch.compile(lambda x: mt.quantize(x).rowwise.codes, fullgraph=True)
    compiled(x)
    with with_threads:
        assert same_parts(mt.quantize(x), expected) and len(counts) == 1
        with mxq.Context("cpu", threads=1):
            mt.quantize(x)
        assert len(counts) == 1
        assert torch.equal(compiled(x), expected.rowwise.codes) and len(counts) == 2
    mt.quantize(x)
    assert len(counts) == 2


def test_they_can_be_left_out():
    code = "import torch, mxq.torch as mt; from mxq import _torch_native as n; print(n.missing); print(mt.quantize(torch.ones(4, 32)))"
    made = subprocess.run([sys.executable, "-c", code], env={**os.environ, "MXQ_TORCH_OPERATORS": "python"}, capture_output=True, text=True)
    assert made.stdout.startswith("MXQ_TORCH_OPERATORS is python\nQTensor(mxfp8_e4m3 4 x 32"), made.stderr


def test_wrong_words_are_refused():
    x = tensor(4, 32)
    for tensors, words in (([x], []), ([x], [1]), ([x], [1, 0]), ([x, x], [3, 0, 8 | 1 << 28])):
        with pytest.raises(mxq.Error):
            torch.ops.mxq_native.matmul.default(tensors, words, 1.0)
    codes, scales, _, text, *_ = _torch_eager._operand(mxq.quantize(x).T, False)
    given = (x, None, codes, scales)
    assert torch.ops.mxq_native.product.default(*given, "1 1.0 0" + text).shape == (4, 4)
    for wrong in ("", "1", "1 1.0", "1 1.0 0", "1 1.0 0 " + text.split()[0], "1 1.0 31" + text, "1 1.0 0 8", "x"):
        with pytest.raises(RuntimeError, match="MXQ_STATUS_"):
            torch.ops.mxq_native.product.default(*given, wrong)
    with pytest.raises(RuntimeError, match="too few arrays"):
        torch.ops.mxq_native.product.default(x, None, codes, None, "1 1.0 0" + text)
    with pytest.raises(RuntimeError, match="one part of"):
        torch.ops.mxq_native.quantize_part.default(x, _torch_eager._recipe("mxfp8_e4m3", "both", None, False, "tensor", None, 2).word)


def test_kept_calls_have_the_memory_of_each_call(calls):
    """Descriptors that were kept are given other memory, other groups and another bias; a call that failed changes none."""
    weight, experts, alive = quantized(tensor(32, 64, seed=2)), quantized(tensor(3, 24, 64, seed=2)), []
    for x in (tensor(8, 64), tensor(16, 64), tensor(16, 128)[:, :64], tensor(16, 64, dtype=torch.float32)):  # the same weight, other rows
        assert torch.equal(mt.matmul(x, weight.T), REFERENCE_MATMUL(x, weight.T).run())
    for seed in range(3):
        x, bias, ends = tensor(32, 64, seed=seed), tensor(1, 32, seed=seed)[0], torch.tensor([seed, 7 + seed, 32], dtype=torch.int32)
        q = mt.quantize(x)
        alive += [x, bias, ends, q]  # so that the next ones have memory of their own
        assert same_parts(q, quantized(x)) and torch.equal(mt.dequantize(q), values(q))
        assert torch.equal(mt.matmul(q, weight.T), REFERENCE_MATMUL(q, weight.T).run())
        assert torch.equal(mt.matmul(x, weight.T, bias=bias), REFERENCE_MATMUL(x, weight.T, bias=bias).run())
        groups = mxq.Groups(ends, cover_rows=True)
        assert torch.equal(mxq.grouped_matmul(x, experts.mT, groups=groups), REFERENCE_GROUPED(x, experts.mT, groups=groups).run())
        with pytest.raises(mxq.Error), pytest.MonkeyPatch.context() as patch:
            patch.setattr(_torch_calls, "prepare_matmul", REFERENCE_MATMUL)
            mt.matmul(x, weight.T, bias=bias[:4])
        moved = mxq.quantize(tensor(32, 64, seed=5))
        moved.rowwise.codes.data = q.rowwise.codes.clone()
        assert torch.equal(mt.matmul(moved, weight.T), REFERENCE_MATMUL(moved, weight.T).run())
