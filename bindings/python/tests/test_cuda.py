"""torch tensors on a GPU: the bytes of the CPU, streams, DLPack, torch.compile, CUDA graphs, gradients and bridges.

Skipped without a GPU. From a source tree, with the library of a build and without a network:

    MXQ_LIBRARY=$PWD/build/src/libmxq.so.0 PYTHONPATH=$PWD/bindings/python/src python3 -m pytest bindings/python/tests
"""

import copy
import gc
import os
import threading

import numpy as np
import pytest
from test_arrays import FORMATS, Exported, numbers

import mxq

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # jax would take most of the GPU's memory
torch = pytest.importorskip("torch")
from torch import library  # noqa: E402

mt = pytest.importorskip("mxq.torch")
DEVICE = "cuda"


def reason():
    if not torch.cuda.is_available():
        return "no CUDA device"
    try:
        mxq.Context("cuda")
    except mxq.Error as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(reason()), reason=reason())


def tensor(*shape, seed=0, dtype=torch.bfloat16, device=DEVICE):
    return torch.from_numpy(numbers(*shape, seed=seed)).to(dtype).to(device)


def same_parts(got, expected):
    """The bytes of a tensor on the GPU are those of one on the CPU."""
    assert list(got.parts) == list(expected.parts)
    for name, part in got.parts.items():
        for field, want in zip(part[:3], expected.parts[name][:3]):
            assert (field is None) == (want is None)
            assert field is None or (field.device.type == DEVICE and torch.equal(field.cpu(), want))


def decibels(got, expected):
    got, expected = got.double().cpu(), expected.double().cpu()
    return -10 * torch.log10((got - expected).square().sum() / expected.square().sum())


def check_product(a, b, left, right):
    """|error| <= c 2^-24 P + 2^-24 |D|, which the class of bound promises in float32, c being 13 L / 10 + 40 for exact products."""
    c = {"exact_products": 40, "fp8_tensor_cores": 270376}[
        mxq.plan(mxq.matmul, a, b, dtype="float32", exact_products=True).bound
    ]
    left, right, d = left.double(), right.double(), mxq.matmul(a, b, dtype="float32", exact_products=True).double()
    exact, sums = left @ right, left.abs() @ right.abs()
    bound = (1.3 * left.shape[-1] + c) * 2.0**-24 * sums + 2.0**-24 * exact.abs() + 1e-30
    assert d.shape == exact.shape and bool(((d - exact).abs() <= bound).all()) and bool(exact.any())


# ---- Bytes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_bytes_of_the_cpu(format, dtype):
    for shape in ((96, 160), (5, 33), (2, 64, 96)):
        x = tensor(*shape, dtype=dtype)
        q, expected = mxq.quantize(x, format, parts="both"), mxq.quantize(x.cpu(), format, parts="both")
        same_parts(q, expected)
        for part in ("rowwise", "columnwise"):
            back = q.dequantize(part=part)
            assert back.device == x.device and back.dtype == dtype and torch.equal(back.cpu(), expected.dequantize(part=part))
        same_parts(mxq.requantize(q, "mxfp8_e5m2", parts="both"), mxq.requantize(expected, "mxfp8_e5m2", parts="both"))
        assert "torch on cuda:0" in repr(q) and q.device == "cuda:0" and q.sqnr(x) == pytest.approx(expected.sqnr(x.cpu()))
    assert mxq.plan(mxq.quantize, x, format).implementation != "cpu"


@pytest.mark.parametrize("format", ["mxfp8_e4m3", "mxfp4", "nvfp4"])
def test_other_functions(format):
    x = tensor(100, 192)
    q, expected = mxq.quantize(x, format), mxq.quantize(x.cpu(), format)
    same_parts(mxq.swizzle(q), mxq.swizzle(expected))
    same_parts(mxq.unswizzle(mxq.swizzle(q)), expected)
    assert torch.equal(mxq.convert(x, "float16").cpu(), mxq.convert(x.cpu(), "float16"))
    assert torch.equal(mxq.amax(x).cpu(), mxq.amax(x.cpu()))
    ends = torch.tensor([30, 30, 100], dtype=torch.int64)
    padded, wanted = mxq.pad_groups(x, ends.to(DEVICE), alignment=32), mxq.pad_groups(x.cpu(), ends, alignment=32)
    stored = int(wanted.ends[-1])
    assert torch.equal(padded.ends.cpu(), wanted.ends) and torch.equal(padded.values[:stored].cpu(), wanted.values[:stored])
    assert torch.equal(mxq.unpad_groups(padded), x)
    if format != "mxfp8_e4m3":
        same_parts(mxq.quantize(x, format, stochastic=(7, 1)), mxq.quantize(x.cpu(), format, stochastic=(7, 1)))
    same_parts(mxq.quantize(x, format, groups=[30, 30, 100]), mxq.quantize(x.cpu(), format, groups=[30, 30, 100]))


def test_row_strides_and_outputs():
    wide = tensor(48, 160)
    view = wide[:, 32:96]
    same_parts(mxq.quantize(view), mxq.quantize(view.cpu().contiguous()))
    q, out = mxq.quantize(view), torch.zeros(48, 160, dtype=torch.float32, device=DEVICE)
    assert mxq.dequantize(q, out=out[:, 64:128]).data_ptr() == out[:, 64:128].data_ptr()
    assert torch.equal(out[:, 64:128], q.dequantize("float32")) and not out[:, :64].any() and not out[:, 128:].any()
    sums = torch.ones(48, 48, device=DEVICE)
    assert mxq.matmul(q, q.T, out=sums, accumulate=True) is sums
    assert torch.allclose(sums, mxq.matmul(q, q.T, dtype="float32") + 1, atol=1e-4)


def test_slices_and_lists_are_read_or_refused_by_name():
    """No implementation of CUDA reads them yet: a call then says so, and never reads wrongly."""
    x = tensor(2, 32, 64)
    q = mxq.quantize(x)
    halves = mxq.QTensor.from_parts("mxfp8_e4m3", (2, 16, 64), rowwise=(q.rowwise.codes[:, :16], q.rowwise.scales[:, :16]))
    listed = mxq.QTensor.from_parts("mxfp8_e4m3", (2, 32, 64), rowwise=(list(q.rowwise.codes), list(q.rowwise.scales)))
    for call, expected in (
        (lambda: halves.dequantize("float32"), q.dequantize("float32")[:, :16]),
        (lambda: listed.dequantize("float32"), q.dequantize("float32")),
        (lambda: mxq.quantize(list(x)).dequantize("float32"), q.dequantize("float32")),
    ):
        try:
            assert torch.equal(call(), expected)
        except mxq.Error as error:
            assert error.code == "UNSUPPORTED"


def test_what_is_refused():
    x = tensor(16, 64)
    q = mxq.quantize(x)
    for wrong, says in (
        (x.double(), "float64"),
        (x.T, "contiguous copy"),
        (x[:, ::2], "contiguous copy"),
        (x.to(torch.int32), "int32"),
    ):
        with pytest.raises(mxq.Error, match=says):
            mxq.quantize(wrong)
    for call in (
        lambda: q @ mxq.quantize(x.cpu()).T,
        lambda: mxq.matmul(q, q.T, bias=torch.zeros(16)),
        lambda: mxq.dequantize(q, out=torch.zeros(16, 64)),
        lambda: mxq.quantize(x, groups=torch.tensor([16])),
        lambda: np.asarray(q),
        lambda: mxq.quantize(x, context=mxq.Context("cpu")),
        lambda: mxq.quantize([x, x.cpu()]),
        lambda: mxq.QTensor.from_parts("mxfp8_e4m3", (16, 64), rowwise=(q.rowwise.codes, q.rowwise.scales.cpu())),
    ):
        with pytest.raises(mxq.Error, match="on c"):
            call()


def test_copies_stand_alone():
    q = mxq.quantize(tensor(64, 64), "nvfp4", parts="both")
    expected, copied = q.dequantize(), copy.deepcopy(q)
    del q
    gc.collect()
    waste = [torch.full((64, 64), 255, dtype=torch.uint8, device=DEVICE) for _ in range(50)]
    assert torch.equal(copied.dequantize(), expected) and waste


# ---- Products ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_products(format):
    x, w, dy = tensor(96, 256, seed=1), tensor(128, 256, seed=2), tensor(96, 128, seed=3)
    qx, qw, qdy = (mxq.quantize(array, format, parts="both") for array in (x, w, dy))

    def value(q, part):
        return q.dequantize("float32", part=part)

    for a, b, left, right in (
        (qx, qw.T, value(qx, "rowwise"), value(qw, "rowwise").T),
        (qdy, qw, value(qdy, "rowwise"), value(qw, "columnwise")),
        (qdy.T, qx, value(qdy, "columnwise").T, value(qx, "columnwise")),
    ):
        check_product(a, b, left, right)
        d = mxq.matmul(a, b)
        assert d.dtype == torch.bfloat16 and decibels(d, left.double() @ right.double()) > 30
    assert decibels(x @ qw.T, x.double() @ value(qw, "rowwise").double().T) > 40  # a plain operand


@pytest.mark.parametrize("format", ["mxfp8_e4m3", "mxfp4", "nvfp4"])
def test_grouped_products(format):
    ends, rows = torch.tensor([30, 30, 96], dtype=torch.int32, device=DEVICE), ((0, 30), (30, 30), (30, 96))
    x, w, dy = tensor(96, 256, seed=1), tensor(3, 128, 256, seed=2), tensor(96, 128, seed=3)
    for groups in (ends, mxq.Groups(ends, host_ends=ends.cpu())):
        qx, qdy = (mxq.quantize(array, format, parts="both", groups=groups) for array in (x, dy))
        qw = mxq.quantize(w, format, parts="both")
        y, dx, dw = mxq.grouped_matmul(qx, qw.mT), mxq.grouped_matmul(qdy, qw), mxq.grouped_matmul(qdy.T, qx)
        assert dw.shape == (3, 128, 256) and not dw[1].any()
        for g, (first, last) in enumerate(rows):
            if first < last:
                part = slice(first, last)
                assert decibels(y[part], qx.dequantize("float32")[part].double() @ qw.dequantize("float32")[g].double().T) > 30
                assert (
                    decibels(
                        dx[part],
                        qdy.dequantize("float32")[part].double() @ qw.dequantize("float32", part="columnwise")[g].double(),
                    )
                    > 30
                )
                columns = [q.dequantize("float32", part="columnwise")[part].double() for q in (qdy, qx)]
                assert decibels(dw[g], columns[0].T @ columns[1]) > 30


# ---- Streams, threads, devices -----------------------------------------------------------------------------------------


def test_work_goes_to_the_current_stream():
    x, stream = tensor(256, 256), torch.cuda.Stream()
    expected, product = mxq.quantize(x), mxq.quantize(x) @ mxq.quantize(x).T
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        late = torch.zeros_like(x)
        mxq.quantize(late) @ mxq.quantize(late).T  # torch then has memory for the results below
        stream.synchronize()
        torch.cuda._sleep(200_000_000)  # about a tenth of a second
        late.copy_(x)
        q = mxq.quantize(late)
        y = q @ q.T
        assert not stream.query(), "the calls waited for the stream"
    stream.synchronize()
    assert torch.equal(q.rowwise.codes, expected.rowwise.codes) and torch.equal(y, product)


def test_many_threads_with_streams():
    x, wrong = tensor(128, 256), []
    expected = mxq.quantize(x, "nvfp4").rowwise.codes
    torch.cuda.synchronize()

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(30):
                if not torch.equal(mxq.quantize(x, "nvfp4").rowwise.codes, expected):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


@pytest.mark.skipif(not torch.cuda.is_available() or torch.cuda.device_count() < 2, reason="one GPU")
def test_another_device_than_the_current_one():
    x = tensor(64, 128, device="cuda:1")
    q = mxq.quantize(x)
    assert (
        q.device == "cuda:1"
        and torch.cuda.current_device() == 0
        and torch.equal(q.rowwise.codes.cpu(), mxq.quantize(x.cpu()).rowwise.codes)
    )
    assert (q @ q.T).device == x.device
    with pytest.raises(mxq.Error, match="a is on cuda:1, but b on cuda:0"):
        q @ mxq.quantize(x.to("cuda:0")).T


# ---- DLPack ------------------------------------------------------------------------------------------------------------


def test_dlpack_of_an_unknown_library():
    x = tensor(48, 96)
    q, expected = mxq.quantize(Exported(x), parts="both"), mxq.quantize(x, parts="both")
    for part in ("rowwise", "columnwise"):
        assert torch.equal(getattr(q, part).codes, getattr(expected, part).codes)
    assert torch.equal(mxq.matmul(q, q.T), expected @ expected.T) and q.sqnr(Exported(x)) == pytest.approx(expected.sqnr(x))
    assert "dlpack on cuda:0" in repr(q)


def test_cupy():
    cupy = pytest.importorskip("cupy")
    x = cupy.asarray(numbers(64, 128))
    expected = mxq.quantize(numbers(64, 128), parts="both")
    with cupy.cuda.Stream(non_blocking=True):
        twice = x * 2
        q = mxq.quantize(twice / 2, parts="both")
        y = q @ q.T
        assert isinstance(q.rowwise.codes, cupy.ndarray) and isinstance(y, cupy.ndarray)
        assert np.array_equal(cupy.asnumpy(q.columnwise.codes), expected.columnwise.codes)
        assert np.array_equal(cupy.asnumpy(q.dequantize()), expected.dequantize()) and q.sqnr(x) == pytest.approx(
            expected.sqnr(numbers(64, 128))
        )


@pytest.mark.parametrize("format", FORMATS)
def test_operators_in_cpp_are_those_in_python(format):
    from mxq import _torch_eager as eager
    from mxq import _torch_native as native
    from mxq import _verbs
    from mxq._products import prepare_grouped_matmul, prepare_matmul

    if native.ops is None:
        pytest.skip(f"no operators in C++: {native.missing}")
    x, w, ends = tensor(96, 256), tensor(64, 256, seed=2), torch.tensor([5, 40, 96], dtype=torch.int32, device=DEVICE)
    bias = tensor(1, 64, seed=4)[0]

    def quantized(x, **options):
        return _verbs._quantize(x, format, **options).run()

    experts = quantized(tensor(192, 256, seed=3).reshape(3, 64, 256))
    weight, q, one = quantized(w), mt.quantize(x, format, parts="both"), eager.quantize(x, format, "rowwise", None, False, "tensor", None)
    expected, rows = quantized(x, parts="both"), mt.quantize(x, format, ends=ends)
    for name, part in expected.parts.items():
        assert all(torch.equal(a, b) for a, b in zip(q.part(name)[:3], part[:3]) if b is not None)
    assert all(torch.equal(a, b) for a, b in zip(one.rowwise[:3], quantized(x).rowwise[:3]) if b is not None)
    values = _verbs._dequantize(expected).run()
    assert torch.equal(native.dequantize(q, None, None), values) and torch.equal(eager.dequantize(one, None, None), values)
    assert torch.equal(eager.dequantize(rows, None, None), _verbs._dequantize(rows).run())
    for a, take in ((x, native), (q, native), (x, eager), (one, eager), (x, eager), (eager_rows(x, format), eager)):
        for b in (None, bias):
            found = take.product(a, weight.T, None, False, torch.float32, b, False, False, 0, 1.0)
            assert found is not None and torch.equal(found, prepare_matmul(a, weight.T, bias=b, dtype=torch.float32).run())
    for a, groups in ((rows, None), (x, mxq.Groups(ends)), (x.clone(), mxq.Groups(ends.clone()))):
        wanted = prepare_grouped_matmul(a, experts.mT, groups=groups).run()
        for found in (native.grouped_product(a, experts.mT, groups, None, None, False, False, 0, 1.0),
                      eager.product(a, experts.mT, groups, True, None, None, False, False, 0, 1.0)):
            assert found is not None and torch.equal(found, wanted)


def eager_rows(x, format):
    """Other numbers of the same shape, so that a call finds what an earlier one kept."""
    from mxq import _torch_eager as eager

    return eager.quantize(x.flip(0).contiguous(), format, "rowwise", None, False, "tensor", None)


def test_kept_calls_of_many_threads_with_streams():
    x, weight, wrong = tensor(128, 256), mxq.quantize(tensor(64, 256, seed=2), "nvfp4"), []
    expected = {rows: mt.matmul(mt.quantize(x[:rows], "nvfp4"), weight.T) for rows in (16, 32, 128)}
    torch.cuda.synchronize()

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            for rows in (16, 128, 32, 128) * 15:
                if not torch.equal(mt.matmul(mt.quantize(x[:rows], "nvfp4"), weight.T), expected[rows]):
                    wrong.append(rows)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


@pytest.mark.parametrize("format", FORMATS)
def test_the_layer_of_experts_in_cpp_is_that_in_python(format, monkeypatch):
    from mxq import _torch_native as native

    if native.ops is None:
        pytest.skip(f"no operators in C++: {native.missing}")
    x, ids = tensor(48, 256), torch.from_numpy(abs(numbers(48, 2, seed=9)) * 1000).long().to(DEVICE) % 3
    shares = abs(tensor(48, 2, seed=2, dtype=torch.float32))
    weights = [tensor(4 * 256, 256, seed=3).reshape(4, 256, 256), tensor(4 * 256, 128, seed=4).reshape(4, 256, 128)]
    frozen = [mxq.quantize(weight, format) for weight in weights]
    for call in (lambda: mt.expert_layer(x, ids, shares, *frozen), lambda: mt.expert_layer(x, ids, shares, *weights, format=format)):
        found = call()
        with monkeypatch.context() as patch:
            patch.setattr(native, "ops", None)
            expected = call()
        assert torch.equal(found, expected), decibels(found, expected)


def test_operators_in_cpp_in_a_graph_on_another_stream():
    x, weight = tensor(64, 256), mxq.quantize(tensor(128, 256, seed=2), "mxfp4")

    def layer():
        return mt.matmul(mt.quantize(x), weight.T)

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        layer()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            y = layer()
    for seed in (5, 6):
        x.copy_(tensor(64, 256, seed=seed))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, layer())


def test_jax():
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("jax has no GPU here")
    x = jax.numpy.asarray(numbers(64, 128))
    expected = mxq.quantize(numbers(64, 128), parts="both")
    q = mxq.quantize(x * 1, parts="both")
    assert isinstance(q.rowwise.codes, jax.Array) and np.array_equal(np.asarray(q.columnwise.codes), expected.columnwise.codes)
    assert np.array_equal(np.asarray(q.dequantize()), expected.dequantize())
    half = mxq.quantize(x.astype(jax.numpy.bfloat16))
    assert half.dequantize().dtype == jax.numpy.bfloat16


# ---- Graphs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["mxfp8_e4m3", "mxfp4", "nvfp4", "fp8_e4m3"])
def test_cuda_graph(format):
    x, w = tensor(64, 256, seed=1), mxq.quantize(tensor(128, 256, seed=2), format)
    ends = torch.tensor([20, 20, 64], dtype=torch.int32, device=DEVICE)
    experts = mxq.quantize(tensor(3, 128, 256, seed=3), format)

    def step():
        q = mxq.quantize(x, format)
        return q.rowwise.codes, q @ w.T, q.dequantize(), mxq.grouped_matmul(mxq.quantize(x, format, groups=ends), experts.mT)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for seed, last in ((4, [20, 20, 64]), (5, [0, 50, 60])):
        x.copy_(tensor(64, 256, seed=seed))
        ends.copy_(torch.tensor(last, dtype=torch.int32))
        graph.replay()
        torch.cuda.synchronize()
        rows = last[-1]
        for got, expected in zip(captured, step()):
            assert torch.equal(got[:rows], expected[:rows]) and got.any()


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("format", ["mxfp8_e4m3", "nvfp4"])
def test_compiled(format, mode):
    def forward(x, w):
        return mt.matmul(mt.quantize(x, format), mt.quantize(w, format).T) + 1

    compiled = torch.compile(forward, fullgraph=True, mode=mode)
    for rows in (32, 64, 64):
        x, w = tensor(rows, 128, seed=rows), tensor(48, 128, seed=2)
        assert torch.equal(compiled(x, w).clone(), forward(x, w))


@pytest.mark.parametrize("parts", ["rowwise", "both"])
@pytest.mark.parametrize("groups", [None, 3])
@pytest.mark.parametrize("format", FORMATS)
def test_operators_pass_torch_s_own_checks(format, groups, parts):
    ends = None if groups is None else torch.tensor([0, 35, 70], dtype=torch.int32, device=DEVICE)
    scaling = "tensor" if format.startswith("fp8") else "1x16" if format == "nvfp4" else "1x32"
    arguments = (tensor(70, 96), format, parts, scaling, False, "tensor", None, ends)
    library.opcheck(torch.ops.mxq.quantize.default, arguments, test_utils="test_faketensor")


# ---- Gradients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("weight_gradient", ["quantized", "high_precision"])
@pytest.mark.parametrize("format, least", [("mxfp8_e4m3", 25), ("nvfp4", 12)])
@pytest.mark.parametrize("grouped", [False, True])
def test_gradients(grouped, format, least, weight_gradient, compiled):
    x, w, dy = tensor(96, 128, seed=1), tensor(3, 64, 128, seed=2), tensor(96, 64, seed=3)
    ends = torch.tensor([32, 32, 96], dtype=torch.int32, device=DEVICE)
    w = w if grouped else w[0].clone()

    def mine(x, w):
        if grouped:
            return mt.grouped_linear(x, w, ends, format, weight_gradient=weight_gradient)
        return mt.linear(x, w, format, weight_gradient=weight_gradient)

    def exact(x, w):
        return torch.cat([x[:32] @ w[0].T, x[32:] @ w[2].T]) if grouped else x @ w.T

    results = []
    for make, dtype in ((torch.compile(mine, fullgraph=True) if compiled else mine, torch.bfloat16), (exact, torch.float64)):
        leaves = [value.to(dtype).detach().requires_grad_() for value in (x, w)]
        y = make(*leaves)
        y.backward(dy.to(dtype))
        results.append((y.detach(), *(leaf.grad for leaf in leaves)))
    for got, expected, name in zip(*results, ("y", "dx", "dw")):
        enough = 40 if name == "dw" and weight_gradient == "high_precision" else least
        assert decibels(got, expected) > enough, (name, decibels(got, expected))
        assert got.dtype == torch.bfloat16 and got.device.type == DEVICE


# ---- Bridges -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize(
    "format, scaling", [("mxfp8_e4m3", "1x32"), ("nvfp4", "1x16"), ("fp8_e4m3", "1x128"), ("fp8_e4m3", "128x128")]
)
def test_transformer_engine_s_layouts(format, scaling, swizzled):
    x = tensor(160, 416)
    q = mxq.quantize(x, format, scaling=scaling, parts="both", swizzled=swizzled)
    stored = mxq.to_transformer_engine(q)
    expected = mxq.to_transformer_engine(mxq.quantize(x.cpu(), format, scaling=scaling, parts="both", swizzled=swizzled))
    assert stored.keys() == expected.keys()
    for name, value in stored.items():
        assert (
            torch.equal(value.cpu(), expected[name]) and value.device.type == DEVICE
            if isinstance(value, torch.Tensor)
            else value == expected[name]
        )
    back = mxq.from_transformer_engine(format, stored, dtype=torch.bfloat16)
    for part in ("rowwise", "columnwise"):
        assert torch.equal(back.dequantize(part=part), q.dequantize(part=part))


@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("format, element", [("mxfp8_e4m3", "float8_e4m3fn"), ("mxfp4", "float4_e2m1fn_x2")])
def test_torchao_both_ways(format, element, swizzled):
    mx_tensor = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
    x = tensor(128, 256)
    theirs = mx_tensor.MXTensor.to_mx(
        x, getattr(torch, element), 32, mx_tensor.ScaleCalculationMode.FLOOR, is_swizzled_scales=swizzled
    )
    ours = mxq.quantize(x, format, scale_rounding="floor", swizzled=swizzled)
    bridged = mt.to_mxtensor(ours)
    assert torch.equal(bridged.qdata.view(torch.uint8), theirs.qdata.view(torch.uint8)) and torch.equal(
        bridged.dequantize(), theirs.dequantize()
    )
    back = mt.from_mxtensor(theirs)
    assert back.rowwise.codes.data_ptr() == theirs.qdata.data_ptr() and torch.equal(back.dequantize(), theirs.dequantize())


# ---- The expert layer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format, scaling", [("mxfp8_e4m3", None), ("mxfp8_e4m3", "32x32"), ("fp8_e4m3", "1x128"), ("mxfp4", None),
                                             ("nvfp4", None)])
def test_expert_layer_and_its_gradients(format, scaling):
    import test_torch_experts as experts

    given = experts.leaves()
    expected = experts.in_double(given)
    mine = [leaf.detach().to(DEVICE).requires_grad_() for leaf in given]
    y = mt.expert_layer(mine[0], experts.IDS.to(DEVICE), *mine[1:], format=format, scaling=scaling)
    z = experts.exact(*expected)
    y.backward(experts.DY.to(y.dtype).to(DEVICE))
    z.backward(experts.DY.to(torch.bfloat16).double())
    least = experts.FORMATS[format, scaling]
    assert decibels(y.detach(), z.detach()) > least
    for name, leaf, right in zip(experts.NAMES, mine, expected):
        assert decibels(leaf.grad, right.grad) > least, name


def test_expert_layer_in_a_graph_with_other_routings():
    import test_torch_experts as experts

    x, weights, gate_up, down, *biases = (leaf.detach().to(DEVICE) for leaf in experts.leaves())
    gate_up, down, ids = mxq.quantize(gate_up, "mxfp4"), mxq.quantize(down, "mxfp4"), experts.IDS.to(DEVICE)

    def step():
        with torch.no_grad():
            return mt.expert_layer(x, ids, weights, gate_up, down, *biases)

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for seed in (1, 2, 3):
        x.copy_(tensor(*x.shape, seed=seed))
        ids.copy_(torch.randint(-1, experts.EXPERTS, ids.shape, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(captured, step()) and captured.any()
