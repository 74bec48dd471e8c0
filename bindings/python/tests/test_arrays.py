"""Which arrays are taken as they are, and which are refused by name."""
import numpy as np
import pytest

import mxq

FORMATS = ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "nvfp4", "fp8_e4m3", "fp8_e5m2"]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


class Exported:
    """An array of an unknown library, which only exports itself through DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("format", FORMATS)
def test_row_strides_are_read_as_they_are(format):
    wide = numbers(48, 160)
    view = wide[:, 32:96]
    assert np.array_equal(mxq.quantize(view, format).rowwise.codes, mxq.quantize(view.copy(), format).rowwise.codes)
    experts = numbers(3, 16, 96)[:, :, :64]
    assert np.array_equal(mxq.quantize(experts, format).rowwise.codes, mxq.quantize(experts.copy(), format).rowwise.codes)
    every_other = numbers(64, 64)[::2]
    assert np.array_equal(mxq.quantize(every_other, format).rowwise.codes, mxq.quantize(every_other.copy(), format).rowwise.codes)


@pytest.mark.parametrize(
    "array, says",
    [
        (np.zeros((4, 32)), "float64"),
        (np.zeros((4, 32), ">f4"), "foreign order"),
        (np.zeros((4, 32), "f4", order="F"), "contiguous copy"),
        (np.zeros((32, 4), "f4").T, "contiguous copy"),
        (np.zeros((4, 64), "f4")[:, ::2], "contiguous copy"),
        (np.zeros((4, 32), "f4")[::-1], "contiguous copy"),
        (np.broadcast_to(np.zeros(32, "f4"), (4, 32)), "contiguous copy"),
        (np.zeros((6, 4, 32), "f4")[:, :2], "contiguous copy"),
        (np.zeros((4, 32), "i4"), "int32"),
        (np.zeros(32, "f4"), "reshape"),
        (np.zeros((1, 2, 4, 32), "f4"), "reshape"),
        (np.ma.masked_array(np.zeros((4, 32), "f4")), "masked"),
        (np.zeros((4, 32), "f4,f4"), "expected numbers"),
        ([[1.0, 2.0]], "list"),
        (None, "NoneType"),
    ],
)
def test_what_would_be_read_wrongly_is_refused(array, says):
    with pytest.raises(mxq.Error, match=says) as error:
        mxq.quantize(array)
    assert error.value.code == "INVALID_ARGUMENT"


def test_an_array_at_an_odd_address_is_refused_by_the_library():
    array = np.zeros(4 * 32 * 4 + 1, "u1")[1:].view("f4").reshape(4, 32)
    with pytest.raises(mxq.Error, match="multiple of") as error:
        mxq.quantize(array)
    assert error.value.code == "MISALIGNED"


def test_the_library_s_message_is_the_exception():
    with pytest.raises(mxq.Error, match="mxq_quantize.*contraction") as error:
        mxq.quantize(numbers(4, 40), "nvfp4", hadamard=0xD7E8)
    assert error.value.code in ("INVALID_ARGUMENT", "SHAPE_MISMATCH", "UNSUPPORTED")
    with pytest.raises(mxq.Error, match="expected one of .*mxfp8_e4m3"):
        mxq.quantize(numbers(4, 32), "mxfp9")
    with pytest.raises(mxq.Error, match="expected one of .*rceil"):
        mxq.quantize(numbers(4, 32), scale_rounding="up")


def test_read_only_arrays_are_read_and_not_written():
    x = numbers(4, 64)
    x.flags.writeable = False
    q = mxq.quantize(x)
    out = np.zeros_like(x)
    out.flags.writeable = False
    with pytest.raises(mxq.Error, match="may only be read"):
        mxq.dequantize(q, out=out)
    assert not out.any()


@pytest.mark.parametrize("shape", [(0, 64), (64, 0), (0, 0), (0, 4, 32), (2, 0, 32), (2, 4, 0)])
@pytest.mark.parametrize("format", FORMATS)
def test_empty_arrays(shape, format):
    q = mxq.quantize(np.zeros(shape, "f4"), format, parts="both")
    assert q.dequantize().shape == shape
    assert "QTensor" in repr(q)


def test_an_empty_contraction_sums_to_zero():
    a, b = mxq.quantize(np.zeros((3, 0), "f4")), mxq.quantize(np.zeros((5, 0), "f4"))
    assert np.array_equal(mxq.matmul(a, b.T), np.zeros((3, 5), "f4"))


def test_dlpack_of_an_unknown_library():
    x = numbers(48, 96)
    q, expected = mxq.quantize(Exported(x[:, :64])), mxq.quantize(x[:, :64])
    assert np.array_equal(q.rowwise.codes, expected.rowwise.codes)
    assert np.array_equal(mxq.dequantize(q), mxq.dequantize(expected))
    assert np.array_equal(mxq.matmul(Exported(x), Exported(x).array.T), mxq.matmul(x, x.T))
    with pytest.raises(mxq.Error, match="float64"):
        mxq.quantize(Exported(np.zeros((4, 32))))
    with pytest.raises(mxq.Error, match="contiguous copy"):
        mxq.quantize(Exported(np.zeros((4, 64), "f4")[:, ::2]))
    with pytest.raises(mxq.Error, match="out is a Exported"):
        mxq.convert(x, "float16", out=Exported(np.zeros((48, 96), "f2")))


class Old(Exported):
    """An array of a library from before DLPack 1.0."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


class Tracer:
    def __dlpack__(self, **options):
        raise RuntimeError("no values yet\nmore text")

    def __dlpack_device__(self):
        return 1, 0


def test_versions_of_dlpack():
    x = numbers(48, 96)
    expected = mxq.quantize(x).rowwise.codes
    assert np.array_equal(mxq.quantize(Old(x)).rowwise.codes, expected)
    x.flags.writeable = False  # which numpy exports to DLPack 1.0 alone
    assert np.array_equal(mxq.quantize(Exported(x)).rowwise.codes, expected)
    from mxq import _kind_dlpack

    assert _kind_dlpack.memory(Exported(x), "x").read_only and not _kind_dlpack.memory(Exported(x.copy()), "x").read_only
    with pytest.raises(mxq.Error, match=r"x is a \w+ Old that gives no memory"):
        mxq.quantize(Old(x))


def test_arrays_without_values_are_refused_by_name():
    with pytest.raises(mxq.Error, match=r"x is a \w+ Tracer that gives no memory \(no values yet\); .*pure_callback"):
        mxq.quantize(Tracer())
    jax = pytest.importorskip("jax")
    with pytest.raises(mxq.Error, match=r"x is a jax \w*Tracer that gives no memory"):
        jax.jit(lambda x: mxq.quantize(x).rowwise.codes)(jax.numpy.ones((4, 64)))


@pytest.mark.parametrize("dtype", ["float16", "f16", np.float16, np.dtype("f2")])
def test_dtypes_by_any_name(dtype):
    x = numbers(4, 64)
    assert np.array_equal(mxq.convert(x, dtype), x.astype("f2"))
    assert mxq.quantize(x).dequantize(dtype).dtype == np.float16


def test_jax():
    jax = pytest.importorskip("jax")
    jnp, x = jax.numpy, numbers(48, 96)
    with jax.default_device(jax.devices("cpu")[0]):
        q, expected = mxq.quantize(jnp.asarray(x), "nvfp4", parts="both"), mxq.quantize(x, "nvfp4", parts="both")
        assert isinstance(q.rowwise.codes, jax.Array) and np.array_equal(q.columnwise.codes, expected.columnwise.codes)
        assert np.array_equal(q @ q.T, expected @ expected.T) and q.sqnr(jnp.asarray(x)) == pytest.approx(expected.sqnr(x))
        half = mxq.quantize(jnp.asarray(x).astype(jnp.bfloat16))
        assert half.dequantize().dtype == jnp.bfloat16 and np.array_equal(half.dequantize("float32"), np.asarray(half))
        assert 30 < half.sqnr(jnp.asarray(x)) < 35


@pytest.mark.parametrize("options, says", [
    (dict(parts=None), "parts is None"), (dict(parts=()), "parts is"), (dict(hadamard=True), "hadamard is True"),
    (dict(hadamard="x"), "hadamard is 'x'"), (dict(groups=3), "groups.ends is a int"), (dict(groups=[1.5, 4]), "groups.ends.0. is 1.5.*an integer"),
    (dict(stochastic=(1,)), "seed, offset"), (dict(stochastic=(1.0, 0)), "seed of stochastic is 1.0"), (dict(stochastic=1), "stochastic is a int"),
    (dict(context="cpu"), "context is 'cpu'"), (dict(scope="row"), "scope is 'row'"), (dict(format=None), "format is None")])
def test_options_that_mean_nothing_are_refused_by_name(options, says):
    with pytest.raises(mxq.Error, match=says):
        mxq.quantize(numbers(4, 64), **{"format": "nvfp4", **options})


def test_numbers_for_arrays_of_one():
    x = numbers(16, 64)
    number, array = mxq.quantize(x, "nvfp4", amax=3.0), mxq.quantize(x, "nvfp4", amax=np.array([3], "f4"))
    assert np.array_equal(number.rowwise.codes, array.rowwise.codes)
    assert mxq.quantize(x, "fp8_e4m3", quantization_scale=16).rowwise.scales[0] == 1 / 16


def test_numpy_gets_the_values():
    x = numbers(16, 64)
    q = mxq.quantize(x)
    assert np.array_equal(np.asarray(q), q.dequantize()) and np.asarray(q, "f8").dtype == np.float64
    assert np.asarray(mxq.quantize(x.astype("f2"))).dtype == np.float16 and q.ndim == 2 and q.device == "cpu"
    assert q.scope == "tensor" and q.scale_max == 448
    with pytest.raises(mxq.Error, match=r"x has shape \(64,\), expected \(16, 64\)"):
        q.sqnr(x[0])
    with pytest.raises(TypeError):
        x + q


def test_results_have_the_type_that_went_in():
    x = numbers(4, 64).astype("f2")
    q = mxq.quantize(x)
    assert q.dtype == "float16" and q.dequantize().dtype == np.float16 and mxq.matmul(q, q.T).dtype == np.float16


def test_ml_dtypes_both_ways():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = numbers(16, 64)
    half = x.astype(ml_dtypes.bfloat16)
    q = mxq.quantize(half)
    assert q.dequantize().dtype == ml_dtypes.bfloat16
    assert np.array_equal(mxq.convert(x, ml_dtypes.bfloat16).view("u2"), half.view("u2"))
    codes, scales = q.typed()
    assert codes.dtype == ml_dtypes.float8_e4m3fn and scales.dtype == ml_dtypes.float8_e8m0fnu
    values = codes.astype("f4") * np.repeat(scales.astype("f4"), 32, axis=1)
    assert np.array_equal(values, q.dequantize("float32"))
    again = mxq.QTensor.from_parts("mxfp8_e4m3", x.shape, rowwise=(codes, scales))
    assert np.array_equal(again.dequantize(), values)
    with pytest.raises(mxq.Error, match="float8_e5m2"):
        mxq.QTensor.from_parts("mxfp8_e4m3", x.shape, rowwise=(codes.view(ml_dtypes.float8_e5m2), scales))


def test_without_ml_dtypes_bfloat16_is_refused_with_the_remedy():
    try:
        import ml_dtypes  # noqa: F401

        pytest.skip("ml_dtypes is installed")
    except ImportError:
        with pytest.raises(mxq.Error, match="install ml_dtypes"):
            mxq.convert(numbers(4, 32), "bfloat16")
