"""torch tensors, the custom operators under torch.compile, gradients, and the bridge to torchao."""
import numpy as np
import pytest
from test_arrays import FORMATS, numbers

import mxq

torch = pytest.importorskip("torch")
from torch import library  # noqa: E402
mt = pytest.importorskip("mxq.torch")


def tensor(*shape, seed=0, dtype=torch.bfloat16):
    return torch.from_numpy(numbers(*shape, seed=seed)).to(dtype)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_torch_gives_the_bytes_of_numpy(format, dtype):
    x = tensor(48, 96, dtype=dtype)
    q, expected = mxq.quantize(x, format, parts="both"), mxq.quantize(x.float().numpy(), format, parts="both")
    for part in ("rowwise", "columnwise"):
        for got, want in zip(getattr(q, part)[:3], getattr(expected, part)[:3]):
            assert (got is None) == (want is None) and (got is None or np.array_equal(got.numpy(), want))
    back = q.dequantize()
    assert back.dtype == dtype and (q @ q.T).dtype == dtype
    assert torch.equal(q.dequantize(torch.float32), torch.from_numpy(expected.dequantize()))


def test_nothing_is_copied():
    x = tensor(48, 160)[:, 32:96]
    q = mxq.quantize(x)
    out = torch.empty_like(x)
    assert mxq.dequantize(q, out=out) is out and torch.equal(out, q.dequantize())
    assert torch.equal(q.rowwise.codes, mxq.quantize(x.contiguous()).rowwise.codes)
    parameter = torch.nn.Parameter(tensor(16, 64))
    assert torch.equal(mxq.quantize(parameter).rowwise.codes, mxq.quantize(parameter.data).rowwise.codes)


def test_refused_tensors():
    for wrong, says in ((tensor(4, 64).double(), "float64"), (tensor(64, 4).T, "contiguous copy"), (tensor(4, 64).to("meta"), "meta"),
                        (tensor(4, 64).float().to_sparse(), "layout|device"), (torch.zeros(4, 64, dtype=torch.int32), "int32")):
        with pytest.raises(mxq.Error, match=says):
            mxq.quantize(wrong)
    negated = torch.zeros(4, 64, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    with pytest.raises(mxq.Error, match="resolve_neg"):
        mxq.quantize(negated)


def test_types_of_torch():
    x = tensor(16, 64)
    codes, scales = mxq.quantize(x).typed()
    assert codes.dtype == torch.float8_e4m3fn and scales.dtype == torch.float8_e8m0fnu
    values = codes.float() * scales.float().repeat_interleave(32, 1)
    again = mxq.QTensor.from_parts("mxfp8_e4m3", x.shape, rowwise=(codes, scales), dtype=x.dtype)
    assert torch.equal(again.dequantize(torch.float32), values) and again.dequantize().dtype == torch.bfloat16
    assert mxq.quantize(x, "nvfp4").typed()[0].dtype == torch.float4_e2m1fn_x2


@pytest.mark.parametrize("parts", ["rowwise", "columnwise", "both"])
@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("groups", [None, 3])
@pytest.mark.parametrize("format", FORMATS)
def test_operators_pass_torch_s_own_checks(format, groups, swizzled, parts):
    if swizzled and format.startswith("fp8"):
        pytest.skip("TENSOR scales have no swizzled layout")
    scaling = mxq.quantize(tensor(1, 1), format).scaling
    for rows, cols in ((70, 96), (5, 33), (2, 200)):
        ends = None if groups is None else torch.tensor([0, rows // 2, rows], dtype=torch.int32)
        arguments = (tensor(rows, cols), format, parts, scaling, swizzled, "tensor", None, ends)
        library.opcheck(torch.ops.mxq.quantize.default, arguments, test_utils="test_faketensor")
    experts = (tensor(2, 5, 33), format, parts, scaling, swizzled, "expert" if format == "nvfp4" else "tensor", None, None)
    library.opcheck(torch.ops.mxq.quantize.default, experts, test_utils="test_faketensor")


@pytest.mark.parametrize("format", ["mxfp8_e4m3", "mxfp4", "nvfp4"])
def test_compiled_products(format):
    def forward(x, w):
        return mt.matmul(mt.quantize(x, format), mt.quantize(w, format).T)

    compiled = torch.compile(forward, fullgraph=True)
    for rows in (32, 48):
        x, w = tensor(rows, 64, seed=1), tensor(24, 64, seed=2)
        expected = mxq.quantize(x, format) @ mxq.quantize(w, format).T
        assert torch.equal(forward(x, w), expected) and torch.equal(compiled(x, w), expected)


def test_compiled_with_sizes_that_are_symbols():
    def forward(x, w, ends):
        q = mt.quantize(x, "mxfp8_e4m3", parts="both", ends=ends)
        return mt.grouped_matmul(q, mt.quantize(w).mT), mt.dequantize(q, torch.float32), mt.grouped_matmul(q.T, q)

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(forward, fullgraph=True, dynamic=True)
    for rows in (66, 70, 100):  # none of them another size of these tensors
        x, w, ends = tensor(rows, 64, seed=1), tensor(3, 24, 64, seed=2), torch.tensor([20, 20, rows], dtype=torch.int32)
        for got, expected in zip(compiled(x, w, ends), forward(x, w, ends)):
            assert torch.equal(got, expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("weight_gradient", ["quantized", "high_precision"])
@pytest.mark.parametrize("format, least", [("mxfp8_e4m3", 25), ("nvfp4", 12)])
@pytest.mark.parametrize("grouped", [False, True])
def test_gradients(grouped, format, least, weight_gradient, compiled):
    x, w, dy = tensor(70, 64, seed=1), tensor(3, 48, 64, seed=2), tensor(70, 48, seed=3)
    ends = torch.tensor([20, 20, 70], dtype=torch.int32)
    if not grouped:
        w = w[0].clone()

    def mine(x, w):
        if grouped:
            return mt.grouped_linear(x, w, ends, format, weight_gradient=weight_gradient)
        return mt.linear(x, w, format, weight_gradient=weight_gradient)

    def exact(x, w):
        return torch.cat([x[:20] @ w[0].T, x[20:] @ w[2].T]) if grouped else x @ w.T

    function = torch.compile(mine, fullgraph=True) if compiled else mine
    results = []
    for make, dtype in ((function, torch.bfloat16), (exact, torch.float64)):
        leaves = [value.to(dtype).detach().requires_grad_() for value in (x, w)]
        y = make(*leaves)
        y.backward(dy.to(dtype))
        results.append((y.detach(), *(leaf.grad for leaf in leaves)))
    for (got, expected), name in zip(zip(*results), ("y", "dx", "dw")):
        noise = (got.double() - expected).square().sum() / expected.square().sum()
        enough = 40 if name == "dw" and weight_gradient == "high_precision" else least
        assert -10 * torch.log10(noise) > enough, (name, -10 * torch.log10(noise))
        assert got.dtype == torch.bfloat16
    if grouped:
        assert not results[0][2][1].any()


def test_tokens_of_more_dimensions():
    x, w = tensor(2, 16, 64).requires_grad_(), tensor(24, 64, seed=2).requires_grad_()
    y = mt.linear(x, w)
    assert y.shape == (2, 16, 24) and torch.equal(y.reshape(32, 24), mt.linear(x.reshape(32, 64), w))
    y.square().sum().backward()
    assert x.grad.shape == x.shape and x.grad.any() and mt.linear(x[0, 0], w).shape == (24,)


def test_gradient_that_is_one_number_everywhere():
    x, w = tensor(32, 64).requires_grad_(), tensor(16, 64).requires_grad_()
    mt.linear(x, w).sum().backward()
    assert x.grad.any() and w.grad.any()
    with pytest.raises(mxq.Error, match="high_precision"):
        mt.linear(x, w, weight_gradient="exact")


@pytest.mark.parametrize("format, scaling", [("mxfp8_e4m3", "1x32"), ("nvfp4", "1x16"), ("fp8_e4m3", "1x128"), ("fp8_e4m3", "128x128")])
def test_transformer_engine_s_layouts(format, scaling):
    x = tensor(160, 416)
    q = mxq.quantize(x, format, scaling=scaling, parts="both")
    of_numpy = mxq.quantize(x.float().numpy(), format, scaling=scaling, parts="both")
    stored, expected = mt.to_transformer_engine(q), mxq.to_transformer_engine(of_numpy)
    assert stored.keys() == expected.keys()
    for name, value in stored.items():
        if isinstance(value, torch.Tensor):
            assert np.array_equal(value.numpy(), expected[name]) and value.is_contiguous()
        else:
            assert value == expected[name]
    if format != "nvfp4":
        stored["rowwise_data"] = stored["rowwise_data"].view(torch.float8_e4m3fn)
        stored["columnwise_data"] = stored["columnwise_data"].view(torch.float8_e4m3fn)
    back = mt.from_transformer_engine(format, stored, dtype=x.dtype)
    for part in ("rowwise", "columnwise"):
        assert torch.equal(back.dequantize(part=part), q.dequantize(part=part)) and back.dequantize().dtype == x.dtype


def test_slices_and_lists():
    x = tensor(3, 32, 64)
    q = mxq.quantize(x)
    half = mxq.QTensor.from_parts("mxfp8_e4m3", (3, 16, 64), rowwise=(q.rowwise.codes[:, 16:], q.rowwise.scales[:, 16:]))
    assert torch.equal(half.dequantize("float32"), q.dequantize("float32")[:, 16:])
    listed = mxq.QTensor.from_parts("mxfp8_e4m3", x.shape, rowwise=(list(q.rowwise.codes), list(q.rowwise.scales)), dtype=x.dtype)
    assert torch.equal(listed.dequantize(), q.dequantize()) and listed.typed()[0][2].dtype == torch.float8_e4m3fn
    assert torch.equal(mxq.quantize(list(x)).rowwise.codes, q.rowwise.codes)
    assert np.array_equal(np.asarray(q), q.dequantize("float32").numpy())
    tokens, ends = tensor(8, 64), torch.tensor([2, 4, 8])
    assert torch.equal(mxq.grouped_matmul(tokens, listed.mT, groups=ends), mxq.grouped_matmul(tokens, q.mT, groups=ends))
    assert torch.equal(mt.dequantize(listed), q.dequantize())


try:
    from torchao.prototype.mx_formats.mx_tensor import MXTensor, ScaleCalculationMode
except ImportError:
    MXTensor = None


@pytest.mark.skipif(MXTensor is None, reason="torchao is not here")
@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("format, element", [("mxfp8_e4m3", "float8_e4m3fn"), ("mxfp8_e5m2", "float8_e5m2"), ("mxfp4", "float4_e2m1fn_x2")])
def test_torchao_both_ways(format, element, swizzled):
    x = tensor(128, 256)
    theirs = MXTensor.to_mx(x, getattr(torch, element), 32, ScaleCalculationMode.FLOOR, is_swizzled_scales=swizzled)
    ours = mxq.quantize(x, format, scale_rounding="floor", swizzled=swizzled)
    bridged = mt.to_mxtensor(ours)
    assert bridged.shape == theirs.shape and bridged.dtype == theirs.dtype and bridged.is_swizzled_scales == theirs.is_swizzled_scales
    assert torch.equal(bridged.qdata.view(torch.uint8), theirs.qdata.view(torch.uint8))
    assert torch.equal(bridged.scale.view(torch.uint8).flatten(), theirs.scale.view(torch.uint8).flatten())
    assert torch.equal(bridged.dequantize(), theirs.dequantize()) and torch.equal(bridged.dequantize(), ours.dequantize())
    back = mt.from_mxtensor(theirs)
    assert back.rowwise.codes.data_ptr() == theirs.qdata.data_ptr() and torch.equal(back.dequantize(), theirs.dequantize())
    if not swizzled:
        experts, ends = mxq.quantize(tensor(2, 32, 256), format), torch.tensor([96, 128])
        rows = mt.from_mxtensor(theirs, groups=ends)
        assert torch.equal(mt.grouped_matmul(rows, experts.mT), mt.grouped_matmul(back, experts.mT, ends=ends))
    transposed = mt.from_mxtensor(theirs.t())
    assert transposed.shape == (256, 128) and torch.equal(transposed.dequantize(), theirs.dequantize().T)
    assert torch.equal(mt.to_mxtensor(transposed, "columnwise").dequantize(), theirs.dequantize())
    with pytest.raises(mxq.Error, match="MXTensor"):
        mxq.quantize(theirs)


@pytest.mark.skipif(MXTensor is None, reason="torchao is not here")
def test_what_torchao_has_no_class_for_is_refused():
    for q in (mxq.quantize(tensor(32, 64), "nvfp4"), mxq.quantize(tensor(32, 64), scaling="32x32"), mxq.quantize(tensor(32, 64), groups=[32])):
        with pytest.raises(mxq.Error, match="expected mxfp8_e4m3"):
            mt.to_mxtensor(q)
    with pytest.raises(mxq.Error, match="torchao MXTensor"):
        mt.from_mxtensor(tensor(4, 32))
