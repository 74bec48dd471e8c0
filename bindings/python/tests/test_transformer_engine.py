"""TransformerEngine's layouts: shapes as its documentation states them, bytes by their offsets, and back."""

import numpy as np
import pytest
from test_arrays import numbers

import mxq


def up(size, multiple):
    return -(-size // multiple) * multiple


# Lists the shapes of rowwise_data, rowwise_scale_inv, columnwise_data and columnwise_scale_inv of an (M, K) matrix.
def shapes(format, scaling, m, k):
    if format.startswith("mxfp8"):
        return (m, k), (up(m, 128), up(k // 32, 4)), (m, k), (up(m // 32, 4), up(k, 128))
    if format == "nvfp4":
        return (m, k // 2), (up(m, 128), up(-(-k // 16), 4)), (k, m // 2), (up(k, 128), up(-(-m // 16), 4))
    if scaling == "1x128":
        return (m, k), (-(-k // 128), up(m, 4)), (k, m), (-(-m // 128), up(k, 4))
    return (m, k), (-(-m // 128), up(-(-k // 128), 4)), (k, m), (-(-k // 128), up(-(-m // 128), 4))


NAMES = ("rowwise_data", "rowwise_scale_inv", "columnwise_data", "columnwise_scale_inv")
LAYOUTS = [
    ("mxfp8_e4m3", "1x32"),
    ("mxfp8_e5m2", "1x32"),
    ("nvfp4", "1x16"),
    ("nvfp4", "16x16"),
    ("fp8_e4m3", "1x128"),
    ("fp8_e5m2", "1x128"),
    ("fp8_e4m3", "128x128"),
]
SIZES = [(32, 32), (64, 96), (128, 128), (160, 416), (256, 512)]


@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("parts", ["rowwise", "columnwise", "both"])
@pytest.mark.parametrize("format, scaling", LAYOUTS)
def test_shapes_and_back(format, scaling, parts, swizzled):
    for m, k in SIZES:
        q = mxq.quantize(numbers(m, k), format, scaling=scaling, parts=parts, swizzled=swizzled)
        stored = mxq.to_transformer_engine(q)
        for name, shape in zip(NAMES, shapes(format, scaling, m, k)):
            there = parts in ("both", name.split("_")[0])
            assert (stored[name].shape == shape and stored[name].flags.c_contiguous) if there else stored[name] is None
            assert not there or stored[name].dtype == (np.float32 if "scale" in name and format.startswith("fp8") else np.uint8)
        assert stored.get("with_gemm_swizzled_scales") == (None if format.startswith("fp8") else swizzled)
        assert stored.get("is_2D_scaled") == (scaling == "128x128" if format.startswith("fp8") else None)
        back = mxq.from_transformer_engine(
            format, {**stored, "quantizer": None}, scaling="16x16" if scaling == "16x16" else None
        )
        plain = mxq.unswizzle(q) if swizzled and format.startswith("fp8") else q
        assert back.shape == q.shape and back.scaling == scaling and list(back.parts) == list(q.parts)
        for name, part in back.parts.items():
            assert np.array_equal(part.codes, plain.parts[name].codes) and np.array_equal(part.scales, plain.parts[name].scales)
            assert np.array_equal(back.dequantize(part=name), q.dequantize(part=name)) and back.dequantize(part=name).any()


def values(format, codes):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    if format == "nvfp4":
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(codes.shape[0], -1)
        return np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], "f4")[codes]
    return codes.view(ml_dtypes.float8_e4m3fn).astype("f4")


@pytest.mark.parametrize("format, scaling", [layout for layout in LAYOUTS if "e5m2" not in layout[0]])
def test_each_value_is_found_where_the_documentation_says(format, scaling):
    """Decodes with the layouts' own rules, and with nothing of mxq but its numbers."""
    m, k = 160, 416
    q = mxq.quantize(numbers(m, k), format, scaling=scaling, parts="both")
    te = mxq.to_transformer_engine(q)
    rows, cols = np.arange(m)[:, None], np.arange(k)[None, :]
    for part in ("rowwise", "columnwise"):
        data, scales = values(format, te[f"{part}_data"]), te[f"{part}_scale_inv"]
        line, code = (rows, cols) if part == "rowwise" else (cols, rows)
        if format == "mxfp8_e4m3":
            exponents = scales[line, code // 32] if part == "rowwise" else scales[code // 32, line]
            got = data * 2.0 ** (exponents.astype("f4") - 127)
        elif format == "nvfp4":
            e4m3 = values("fp8_e4m3", scales)
            got = data[line, code] * e4m3[line, code // 16] * (te[f"amax_{part}"][0] / np.float32(6 * 448))
        else:
            got = data[line, code] * (scales[code // 128, line] if scaling == "1x128" else scales[line // 128, code // 128])
        assert np.allclose(got, q.dequantize(part=part), rtol=1e-6, atol=0)


def test_padding_is_zero_and_what_can_be_shared_is():
    te = mxq.to_transformer_engine(mxq.quantize(numbers(160, 96), parts="both"))
    assert (
        te["rowwise_scale_inv"][:160, :3].all()
        and not te["rowwise_scale_inv"][160:].any()
        and not te["rowwise_scale_inv"][:, 3:].any()
    )
    assert (
        te["columnwise_scale_inv"][:5, :96].all()
        and not te["columnwise_scale_inv"][5:].any()
        and not te["columnwise_scale_inv"][:, 96:].any()
    )
    q = mxq.quantize(numbers(128, 128), "nvfp4", parts="both", swizzled=True)
    te = mxq.to_transformer_engine(q)
    for name, part in q.parts.items():
        assert (
            np.shares_memory(te[f"{name}_data"], part.codes)
            and np.shares_memory(te[f"{name}_scale_inv"], part.scales)
            and te[f"amax_{name}"] is part.amax
        )
        assert np.shares_memory(mxq.from_transformer_engine("nvfp4", te).parts[name].scales, part.scales)


def test_slices_become_whole():
    x = numbers(64, 128)
    q = mxq.quantize(x, parts="both")
    half = mxq.QTensor.from_parts("mxfp8_e4m3", (64, 64), rowwise=(q.rowwise.codes[:, 64:], q.rowwise.scales[:, 2:]))
    te, expected = mxq.to_transformer_engine(half), mxq.to_transformer_engine(mxq.quantize(x[:, 64:]))
    assert te["rowwise_data"].flags.c_contiguous and np.array_equal(te["rowwise_data"], expected["rowwise_data"])
    assert np.array_equal(te["rowwise_scale_inv"], expected["rowwise_scale_inv"])


def test_types_of_one_byte_are_bytes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q = mxq.quantize(numbers(64, 96), parts="both")
    typed = mxq.QTensor.from_parts("mxfp8_e4m3", q.shape, rowwise=q.typed(), columnwise=q.typed("columnwise"))
    assert typed.columnwise.codes.dtype == ml_dtypes.float8_e4m3fn
    for name, value in mxq.to_transformer_engine(typed).items():
        assert np.array_equal(value, mxq.to_transformer_engine(q)[name]) and (name[0] == "w" or value.dtype == np.uint8)


def test_leading_dimensions_are_rows():
    q = mxq.quantize(numbers(128, 64), "fp8_e4m3", scaling="1x128", parts="both")
    te = mxq.to_transformer_engine(q)
    te["rowwise_data"], te["columnwise_data"] = te["rowwise_data"].reshape(2, 64, 64), te["columnwise_data"].reshape(64, 2, 64)
    assert np.array_equal(
        mxq.from_transformer_engine("fp8_e4m3", te).dequantize(part="columnwise"), q.dequantize(part="columnwise")
    )


def test_a_transform_is_named():
    q = mxq.quantize(numbers(64, 64), "nvfp4", parts="both", hadamard={"columnwise": 0xD7E8})
    back = mxq.from_transformer_engine("nvfp4", mxq.to_transformer_engine(q), hadamard={"columnwise": 0xD7E8})
    assert np.array_equal(back.dequantize(part="columnwise"), q.dequantize(part="columnwise"))


def test_what_has_no_layout_there_is_refused():
    x = numbers(64, 64)
    for q, says in (
        (mxq.quantize(x, "mxfp4"), "mxfp4 1x32"),
        (mxq.quantize(x, scaling="32x32"), "mxfp8_e4m3 32x32"),
        (x, "expected a QTensor"),
        (mxq.quantize(x[:40]), "multiples of 32"),
        (mxq.quantize(x[None]), "multiples of 32"),
        (mxq.quantize(x, groups=[64]), "groups"),
    ):
        with pytest.raises(mxq.Error, match=says):
            mxq.to_transformer_engine(q)
    te = mxq.to_transformer_engine(mxq.quantize(x, parts="both"))
    for wrong, says in (
        ({}, "no part"),
        ({**te, "rowwise_scale_inv": te["rowwise_scale_inv"][:64]}, r"of shape \(64, 4\), expected \(128, 4\)"),
        ({**te, "columnwise_scale_inv": None}, r"is None, expected \(4, 128\)"),
        ({**te, "columnwise_data": te["columnwise_data"][:32]}, "32, 64"),
        ({**te, "rowwise_data": te["rowwise_data"].astype("f4")}, "float32"),
    ):
        with pytest.raises(mxq.Error, match=says):
            mxq.from_transformer_engine("mxfp8_e4m3", wrong)
    with pytest.raises(mxq.Error, match="mxfp6_e2m3 1x32"):
        mxq.from_transformer_engine("mxfp6_e2m3", te)
