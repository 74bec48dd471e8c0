"""TransformerEngine's own tensor classes take what to_transformer_engine makes, with the shapes that they ask for.

They are Python over a compiled module that needs CUDA. Here that module is an empty one, which is enough for what its classes
hold and for the shapes that they compute. In an environment with torch: pip install --no-deps transformer-engine-cu12, and
pip install pydantic onnx onnxscript.
"""
import enum
import importlib
import importlib.util
import re
import sys
import types
from pathlib import Path
from unittest.mock import MagicMock

import pytest

import mxq

torch = pytest.importorskip("torch")
pytest.importorskip("pydantic")
mt = pytest.importorskip("mxq.torch")

PACKAGES = ("transformer_engine", "transformer_engine.common", "transformer_engine.pytorch", "transformer_engine.pytorch.tensor")
MODULES = ("float8_blockwise_tensor", "nvfp4_tensor", "mxfp8_tensor")
SIZES = [(32, 32), (64, 96), (128, 128), (160, 416), (256, 512)]


class Compiled(types.ModuleType):
    """Stands in for the compiled module: any name is there, and does nothing."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


@pytest.fixture(scope="module")
def classes():
    """The modules of the three classes, imported without the packages around them, which load CUDA."""
    found = importlib.util.find_spec("transformer_engine")
    if found is None or importlib.util.find_spec("transformer_engine_torch") is not None or "transformer_engine" in sys.modules:
        pytest.skip("transformer_engine is not installed, or with its compiled part")
    root = Path(found.submodule_search_locations[0]).parent
    patch = pytest.MonkeyPatch()
    for name in PACKAGES:
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        patch.setitem(sys.modules, name, package)
    sys.modules["transformer_engine.common"].decode_cudnn_version = lambda version: (9, 0, 0)
    compiled = Compiled("transformer_engine_torch")
    names = re.findall(r"^    (k\w+) = int\(tex", (root / "transformer_engine/pytorch/constants.py").read_text(), re.M)
    compiled.DType = enum.IntEnum("DType", names)
    patch.setitem(sys.modules, "transformer_engine_torch", compiled)
    patch.setattr(torch.cuda, "current_device", lambda: "cpu")
    made = {}
    for name in 2 * MODULES:  # they import each other, and the first one finds itself half imported
        try:
            made[name] = importlib.import_module(f"transformer_engine.pytorch.tensor.{name}")
        except ImportError:
            pass
    yield made
    for name in [name for name in sys.modules if name.split(".")[0] == "transformer_engine"]:
        patch.delitem(sys.modules, name)
    patch.undo()


def quantizer_and_class(classes, format, scaling):
    """The quantizer whose shapes count, the class, and the argument that names the type of its codes."""
    types_ = sys.modules["transformer_engine_torch"].DType
    if format == "nvfp4":
        module = classes["nvfp4_tensor"]
        return module.NVFP4Quantizer(types_.kFloat4E2M1), module.NVFP4Tensor, {"fp4_dtype": types_.kFloat4E2M1}
    type_ = types_.kFloat8E5M2 if format.endswith("e5m2") else types_.kFloat8E4M3
    if format.startswith("mxfp8"):
        module = classes["mxfp8_tensor"]
        return module.MXFP8Quantizer(type_), module.MXFP8Tensor, {"fp8_dtype": type_}
    module = classes["float8_blockwise_tensor"]
    quantizer = module.Float8BlockQuantizer(type_, rowwise=True, columnwise=True, block_scaling_dim=1 if scaling == "1x128" else 2)
    return quantizer, module.Float8BlockwiseQTensor, {"fp8_dtype": type_}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("format, scaling", [("mxfp8_e4m3", "1x32"), ("mxfp8_e5m2", "1x32"), ("nvfp4", "1x16"), ("nvfp4", "16x16"),
                                             ("fp8_e4m3", "1x128"), ("fp8_e4m3", "128x128")])
def test_its_classes_take_our_layouts(classes, format, scaling, size):
    q = mxq.quantize(torch.randn(size, generator=torch.Generator().manual_seed(1)), format, scaling=scaling, parts="both")
    stored = mt.to_transformer_engine(q)
    quantizer, class_, code_type = quantizer_and_class(classes, format, scaling)
    for part, columnwise in (("rowwise", False), ("columnwise", True)):
        assert tuple(stored[f"{part}_scale_inv"].shape) == tuple(quantizer.get_scale_shape(size, columnwise))
    theirs = class_(shape=size, dtype=torch.float32, quantizer=quantizer, device=torch.device("cpu"), **code_type, **stored)
    assert tuple(theirs.shape) == size
    kept = theirs.get_metadata()
    back = mt.from_transformer_engine(format, {name: kept[name] for name in stored if name in kept}, scaling=scaling)
    for part in ("rowwise", "columnwise"):
        assert torch.equal(back.dequantize(part=part), q.dequantize(part=part))
