"""Matrices without rows, columns or experts: shapes as docs/layouts.md has them, whichever way a tensor is made."""
import numpy as np
import pytest
from test_arrays import FORMATS

import mxq
from mxq import _raw

SHAPES = [(0, 64), (64, 0), (0, 0), (0, 96, 64), (2, 0, 64), (2, 64, 0), (0, 0, 0)]
ROWS = {"1x32": 32, "1x16": 16, "1x128": 128, "16x16": 16}
TILES = {"32x32": 32, "128x128": 128}


def takes(format, scaling):
    try:
        return mxq.quantize(np.zeros((1, 1), "f4"), format, scaling=scaling) is not None
    except mxq.Error:
        return False


KINDS = [(format, scaling) for format in FORMATS for scaling in _raw.FAMILIES["mxq_scaling"] if takes(format, scaling)]


def scale_shape(shape, part, scaling):
    """The table of compact scales of docs/layouts.md."""
    lines, codes = shape[-2:] if part == "rowwise" else shape[:-3:-1]
    if scaling in ROWS:
        return (*shape[:-2], lines, -(-codes // ROWS[scaling]))
    if scaling in TILES:
        return (*shape[:-2], -(-lines // TILES[scaling]), -(-codes // TILES[scaling]))
    return (*shape[:-2], lines) if scaling == "row" else (1,)


def test_all_kinds_are_here():
    assert len(KINDS) == 35


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("format, scaling", KINDS)
def test_scales_and_from_parts(format, scaling, shape):
    q = mxq.quantize(np.zeros(shape, "f4"), format, scaling=scaling, parts="both")
    for name, part in q.parts.items():
        assert part.scales.shape == scale_shape(shape, name, scaling)
        again = mxq.QTensor.from_parts(format, shape, scaling=scaling, **{name: part})
        assert again.dequantize().shape == shape
        if np.prod(part.scales.shape) == 0 and len(part.scales.shape) > 1:
            wrong = part._replace(scales=np.zeros((*part.scales.shape[:-1], part.scales.shape[-1] + 1), part.scales.dtype))
            if wrong.scales.size == 0:
                with pytest.raises(mxq.Error, match=f"{name}.scales has shape"):
                    mxq.QTensor.from_parts(format, shape, scaling=scaling, **{name: wrong})


def test_parts_without_rows_join_others():
    none, some = (mxq.quantize(np.zeros((rows, 64), "f4"), "nvfp4").rowwise for rows in (0, 5))
    assert np.concatenate([none.scales, some.scales]).shape == (5, 4)


@pytest.mark.parametrize("shape", [(0, 256), (256, 0)])
@pytest.mark.parametrize("format, scaling", [
    ("mxfp8_e4m3", "1x32"), ("nvfp4", "1x16"), ("nvfp4", "16x16"), ("fp8_e4m3", "1x128"), ("fp8_e4m3", "128x128")])
def test_transformer_engine(format, scaling, shape):
    for parts in ("rowwise", "columnwise", "both"):
        q = mxq.quantize(np.zeros(shape, "f4"), format, scaling=scaling, parts=parts)
        again = mxq.from_transformer_engine(format, mxq.to_transformer_engine(q), scaling=scaling)
        assert again.shape == shape and list(again.parts) == list(q.parts)
        for name, part in q.parts.items():
            assert again.part(name).codes.shape == part.codes.shape and again.part(name).scales.shape == part.scales.shape


# ---- torch -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES[:3] + SHAPES[4:6])
@pytest.mark.parametrize("format, scaling", KINDS)
def test_operators_agree_with_eager_calls(format, scaling, shape):
    torch = pytest.importorskip("torch")
    pytest.importorskip("mxq.torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    for ends in (None, torch.tensor([0, shape[0]], dtype=torch.int32)) if len(shape) == 2 else (None,):
        options = (format, "both", scaling, False, "tensor", None)
        eager = torch.ops.mxq.quantize(torch.zeros(shape), *options, ends)
        with FakeTensorMode() as mode:
            fake = torch.ops.mxq.quantize(mode.from_tensor(torch.zeros(shape)), *options, None if ends is None else mode.from_tensor(ends))
        assert [(each.shape, each.dtype) for each in fake] == [(each.shape, each.dtype) for each in eager]


def test_compiled():
    torch = pytest.importorskip("torch")
    mt = pytest.importorskip("mxq.torch")

    def scales(x):
        return mt.quantize(x, "mxfp8_e4m3", parts="both").rowwise.scales.float() + 1

    assert torch.compile(scales)(torch.zeros(0, 64)).shape == scales(torch.zeros(0, 64)).shape == (0, 2)


@pytest.mark.parametrize("shape", [(0, 64), (64, 0), (2, 0, 64)])
@pytest.mark.parametrize("format", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp4"])
def test_torchao(format, shape):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchao")
    mt = pytest.importorskip("mxq.torch")
    q = mxq.quantize(torch.zeros(shape), format)
    tensor = mt.to_mxtensor(q)
    again = mt.from_mxtensor(tensor)
    assert tuple(tensor.shape) == shape == again.shape and again.rowwise.scales.shape == q.rowwise.scales.shape
