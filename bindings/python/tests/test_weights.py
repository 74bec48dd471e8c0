"""mxq.torch.Weights: a quantized tensor as buffers of a module."""
import copy

import pytest
from test_arrays import FORMATS, numbers

import mxq

torch = pytest.importorskip("torch")
mt = pytest.importorskip("mxq.torch")


class Layer(torch.nn.Module):
    def __init__(self, q):
        super().__init__()
        self.weights = mt.Weights(q)

    def forward(self, x):
        return mxq.matmul(x, self.weights.q.T)


def quantized(format="mxfp4", seed=0, shape=(32, 64), **options):
    return mxq.quantize(torch.from_numpy(numbers(*shape, seed=seed)).bfloat16(), format, parts="both", **options)


def saved(module, path):
    torch.save(module.state_dict(), path)
    return torch.load(path, weights_only=True)


@pytest.mark.parametrize("format", FORMATS)
def test_save_and_load(format, tmp_path):
    layer, other, x = Layer(quantized(format)), Layer(quantized(format, seed=1)), torch.from_numpy(numbers(4, 64))
    expected, state = layer(x), saved(layer, tmp_path / "state.pt")
    assert not torch.equal(other(x), expected)
    other.load_state_dict(state)
    assert torch.equal(other(x), expected)
    again = mt.Weights.from_state_dict(state, "weights.")
    assert torch.equal(again.q.dequantize(part="columnwise"), layer.weights.q.dequantize(part="columnwise"))
    assert again.q.dtype == "bfloat16"
    assigned = Layer(quantized(format, seed=1))
    assigned.load_state_dict(state, assign=True)
    assert torch.equal(assigned(x), expected)


def test_names_of_a_state():
    nv = mt.Weights(quantized("nvfp4", hadamard={"rowwise": 0xD7E8}))
    arrays = [f"{part}_{name}" for part in ("rowwise", "columnwise") for name in ("codes", "scales", "amax")]
    assert list(nv.state_dict()) == arrays + ["_extra_state"]
    assert all(isinstance(value, torch.Tensor) for value in nv.state_dict().values())
    assert mt.Weights.from_state_dict(nv.state_dict()).q.rowwise.hadamard == 0xD7E8
    assert not list(nv.parameters()) and "nvfp4 32 x 64" in repr(nv)


@pytest.mark.parametrize("format", ["fp8_e4m3", "nvfp4", "mxfp8_e4m3"])
def test_other_types_and_devices(format):
    layer, x = Layer(quantized(format, shape=(2, 32, 64) if format == "nvfp4" else (32, 64))), torch.from_numpy(numbers(4, 64))
    q = layer.weights.q
    assert layer.half().weights.q is q and layer.to(torch.bfloat16).double().weights.q is q  # float32 scales stay float32
    layer.share_memory()
    assert layer.weights.rowwise_codes.is_shared()
    assert torch.equal(layer.weights.q.dequantize(), quantized(format, shape=q.shape).dequantize())
    moved = copy.deepcopy(layer)
    assert moved.weights.q is not q and moved.weights.q.rowwise.codes is moved.weights.rowwise_codes
    moved.weights.rowwise_codes.zero_()
    assert not moved.weights.q.dequantize().any() and q.dequantize().any()
    with pytest.raises(mxq.Error, match="meta"):
        moved.to("meta").weights.q.dequantize()
    if torch.cuda.is_available() and "without CUDA" not in mxq.build() and q.ndim == 2:
        expected = layer(x)
        assert layer.cuda().weights.q.device == "cuda:0" and torch.allclose(layer(x.cuda()).cpu(), expected, rtol=1e-2, atol=1e-2)
        assert torch.equal(layer.cpu()(x), expected)


@pytest.mark.parametrize("other, says", [
    (dict(format="mxfp8_e5m2"), "format 'mxfp8_e5m2', expected 'mxfp8_e4m3'"), (dict(scaling="32x32"), "scaling '32x32', expected '1x32'"),
    (dict(shape=(32, 96)), r"shape \[32, 96\], expected \[32, 64\]")])
def test_the_state_of_another_tensor_is_refused_and_writes_nothing(other, says):
    layer = Layer(quantized("mxfp8_e4m3"))
    before = layer.weights.q.dequantize()
    with pytest.raises(mxq.Error, match=says):
        layer.load_state_dict(Layer(quantized(**{"format": "mxfp8_e4m3", "seed": 1, **other})).state_dict())
    assert torch.equal(layer.weights.q.dequantize(), before)


def test_refusals():
    x = torch.from_numpy(numbers(32, 64))
    for wrong, says in ((x, "q is a Tensor"), (mxq.quantize(numbers(32, 64)), "QTensor of torch"),
                        (mxq.quantize(x, groups=[1, 32]), "without groups")):
        with pytest.raises(mxq.Error, match=says):
            mt.Weights(wrong)
    with pytest.raises(mxq.Error, match="no 'layer._extra_state'.*prefix"):
        mt.Weights.from_state_dict(mt.Weights(mxq.quantize(x)).state_dict(), "layer.")
    with pytest.raises(RuntimeError, match="Missing key.*rowwise_codes"):
        Layer(mxq.quantize(x)).load_state_dict({})


def test_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    layer = Layer(quantized("nvfp4"))
    safetensors.save_file(layer.state_dict(), tmp_path / "layer.safetensors")
    again = mt.Weights.from_state_dict(safetensors.load_file(tmp_path / "layer.safetensors"), "weights.")
    assert torch.equal(again.q.dequantize(), layer.weights.q.dequantize())


def test_compiled():
    class Compiled(Layer):
        def forward(self, x):
            return mt.matmul(x, self.weights.q.T)

    layer, x = Compiled(quantized("mxfp8_e4m3")), torch.from_numpy(numbers(4, 64))
    torch._dynamo.reset()
    assert torch.equal(torch.compile(layer, fullgraph=True)(x), mxq.matmul(x, layer.weights.q.T))


def test_a_tensor_that_a_module_holds_itself_says_what_to_do():
    """torch calls these of buffers and parameters; register_buffer takes what has __torch_function__."""
    module = torch.nn.Module()
    module.register_buffer("q", quantized())
    for use in (module.state_dict, module.half, lambda: torch.nn.Parameter(quantized())):
        with pytest.raises(mxq.Error, match=r"hold it by mxq\.torch\.Weights"):
            use()
