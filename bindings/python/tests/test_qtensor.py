"""Quantized tensors: what they tell, how they are made and kept."""
import copy
import gc
import pickle
import threading

import numpy as np
import pytest
from test_arrays import FORMATS, numbers

import mxq


@pytest.mark.parametrize("format, least", [("mxfp8_e4m3", 30), ("mxfp8_e5m2", 24), ("mxfp6_e2m3", 29), ("mxfp4", 17), ("nvfp4", 19), ("fp8_e4m3", 30)])
def test_sqnr(format, least):
    x = numbers(64, 256)
    q = mxq.quantize(x, format, parts="both")
    back = q.dequantize().astype("f8")
    expected = 10 * np.log10((x.astype("f8") ** 2).sum() / ((x - back) ** 2).sum())
    assert q.sqnr(x) == pytest.approx(expected) and least < q.sqnr(x) < least + 4
    assert q.sqnr(back.astype("f4")) == float("inf") and least < q.sqnr(x, "columnwise") < least + 4


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_sqnr_without_a_finite_number(library):
    convert = np.asarray if library == "numpy" else pytest.importorskip("torch").from_numpy
    x = np.ones((2, 32), "f4")
    infinite = x.copy()
    infinite[0, 0] = np.inf
    assert mxq.quantize(convert(x)).sqnr(convert(x)) == float("inf")
    assert mxq.quantize(convert(x)).sqnr(convert(0 * x)) == float("-inf")
    assert mxq.quantize(convert(infinite), "mxfp8_e5m2", nonfinite="saturate").sqnr(convert(x)) == float("-inf")


def test_repr_tells_what_it_is():
    q = mxq.quantize(numbers(100, 64), groups=[30, 30, 70, 100], swizzled=True)
    assert repr(q).startswith("QTensor(mxfp8_e4m3 100 x 64 in 4 groups 1x32 rowwise swizzled, numpy on cpu, ")
    assert repr(mxq.quantize(numbers(128, 64), "nvfp4")).endswith("nvfp4 128 x 64 1x16 rowwise, numpy on cpu, 4.5 bits an element)")
    assert repr(q.T) == repr(q) + ".T" and q.T.shape == (64, 100) and q.T.T is q


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("scaling", [None, "row"])
def test_parts_that_are_there(format, scaling):
    if scaling == "row" and format == "nvfp4":
        pytest.skip("NVFP4 has no scale for a row")
    x = numbers(40, 64)
    q = mxq.quantize(x, format, parts="both", scaling=scaling)
    again = mxq.QTensor.from_parts(format, x.shape, rowwise=q.rowwise, columnwise=q.columnwise, scaling=scaling)
    for part in ("rowwise", "columnwise"):
        assert np.array_equal(again.dequantize(part=part), q.dequantize(part=part))


def test_parts_of_wrong_shape_or_type_are_refused():
    q = mxq.quantize(numbers(40, 64), parts="both")
    codes, scales = q.rowwise[:2]
    for part, says in (((codes.T.copy(), scales), "shape"), ((codes.astype("f4"), scales), "float32"), ((codes, scales.astype("f4")), "float32"),
                       ((codes[:, ::2], scales), "shape"), ((codes, scales.T.copy()), "shape"), ((codes.repeat(2, 1)[:, ::2], scales), "no gaps"),
                       ((codes[::-1], scales), "no gaps"), (codes, "expected a Part"), (([codes], [scales]), "one for each expert")):
        with pytest.raises(mxq.Error, match=says):
            mxq.QTensor.from_parts("mxfp8_e4m3", (40, 64), rowwise=part)
    with pytest.raises(mxq.Error, match="no part"):
        mxq.QTensor.from_parts("mxfp8_e4m3", (40, 64))


def test_requantize_has_the_bytes_of_dequantize_and_quantize():
    q = mxq.quantize(numbers(64, 128), "mxfp8_e4m3")
    for format in FORMATS:
        got, expected = mxq.requantize(q, format, parts="both"), mxq.quantize(q.dequantize("float32"), format, parts="both")
        for part in ("rowwise", "columnwise"):
            assert np.array_equal(getattr(got, part).codes, getattr(expected, part).codes), format
            assert np.array_equal(getattr(got, part).scales, getattr(expected, part).scales), format


def test_groups_have_their_own_blocks():
    x, ends = numbers(70, 64), [30, 30, 70]
    q = mxq.quantize(x, groups=ends, parts="both")
    for part in ("rowwise", "columnwise"):
        back = q.dequantize(part=part)
        for first, last in zip([0, *ends], ends):
            alone = mxq.quantize(x[first:last], parts=part).dequantize()
            assert np.array_equal(back[first:last], alone)
    padded = mxq.pad_groups(q, alignment=(32, 64))
    assert np.array_equal(padded.dequantize(), q.dequantize())
    assert np.array_equal(mxq.unpad_groups(padded).rowwise.codes[:70], q.rowwise.codes[:70])
    from_padded = mxq.quantize(mxq.pad_groups(x, ends, alignment=32), groups=ends)
    assert np.array_equal(from_padded.rowwise.codes, mxq.quantize(x, groups=ends).rowwise.codes)


def test_rows_in_no_group_are_zero():
    x = numbers(70, 64)
    assert not mxq.quantize(x, groups=[10, 40]).dequantize()[40:].any()
    with pytest.raises(mxq.Error, match="end of the last group"):
        mxq.quantize(x, groups=mxq.Groups([10, 40], cover_rows=True))
    with pytest.raises(mxq.Error, match="ends"):
        mxq.quantize(x, groups=[40, 10])
    with pytest.raises(mxq.Error, match="empty"):
        mxq.quantize(x, groups=[])
    with pytest.raises(mxq.Error, match="float32"):
        mxq.quantize(x, groups=np.array([10, 70], "f4"))


def test_given_scales():
    x = numbers(32, 64)
    q = mxq.quantize(x, "fp8_e4m3", quantization_scale=np.array([16], "f4"))
    assert q.rowwise.scales[0] == 1 / 16
    experts = mxq.quantize(numbers(3, 16, 64), "nvfp4", scope="expert")
    assert experts.rowwise.amax.shape == (3,)
    decode = experts.rowwise.amax / np.float32(6 * 448)
    part = experts.rowwise._replace(amax=None, decode_scale=decode)
    again = mxq.QTensor.from_parts("nvfp4", (3, 16, 64), rowwise=part, scope="expert")
    assert np.array_equal(again.dequantize(), experts.dequantize())


def test_hadamard_is_undone():
    x = numbers(16, 64)
    q = mxq.quantize(x, "nvfp4", hadamard=0xD7E8)
    assert q.rowwise.hadamard == 0xD7E8 and q.sqnr(x) > 18
    assert not np.allclose(q.dequantize(undo_hadamard=False), x, atol=0.5)


def test_buffers_stay_alive():
    x = numbers(64, 64)
    expected = mxq.quantize(x).dequantize()
    rowwise = mxq.quantize(x.copy()).rowwise
    q = mxq.QTensor.from_parts("mxfp8_e4m3", x.shape, rowwise=rowwise)
    del rowwise
    gc.collect()
    waste = [np.full((64, 64), 255, "u1") for _ in range(100)]
    assert np.array_equal(q.dequantize(), expected) and waste


def test_copies_and_pickles_stand_alone():
    q = mxq.quantize(numbers(64, 64), "nvfp4", parts="both")
    expected = q.dequantize()
    copies = [copy.copy(q), copy.deepcopy(q), pickle.loads(pickle.dumps(q))]
    del q
    gc.collect()
    for other in copies:
        assert np.array_equal(other.dequantize(), expected)


def test_many_threads():
    x = numbers(128, 256)
    expected, wrong = mxq.quantize(x).rowwise.codes, []

    def work():
        for _ in range(50):
            if not np.array_equal(mxq.quantize(x).rowwise.codes, expected):
                wrong.append(1)
            try:
                mxq.quantize(x, "nvfp9")
            except mxq.Error:
                continue

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_handles_are_destroyed(monkeypatch):
    from mxq._library import Handle

    made, destroyed = [], []

    def count(self, address, destroy, idle=None):
        made.append(address)
        self.value, self._idle, self._destroy = address, None, lambda value: (destroyed.append(value), destroy(value))

    monkeypatch.setattr(Handle, "__init__", count)
    q = mxq.quantize(numbers(16, 64), scale_rounding="floor")
    assert len(made) >= 3 and mxq.matmul(q, q.T, alpha=2).any()
    del q
    gc.collect()
    assert sorted(made) == sorted(destroyed)


def test_descriptors_serve_again_and_carry_nothing_over():
    x = numbers(16, 128)
    plainly = {format: mxq.quantize(x, format) for format in ("nvfp4", "fp8_e4m3", "mxfp8_e4m3")}

    def check():
        for format, expected in plainly.items():
            for _ in range(2):
                q = mxq.quantize(x, format)
                assert q.columnwise is None and q._descriptor().value != expected._descriptor().value
                assert all(np.array_equal(got, want) for got, want in zip(q.rowwise[:2], expected.rowwise[:2]))
                assert np.array_equal(q.dequantize(), expected.dequantize())

    check()
    for format, options in (("nvfp4", {"amax": 100.0}), ("nvfp4", {"parts": "both"}), ("nvfp4", {"hadamard": 0xD7E8}),
                            ("fp8_e4m3", {"quantization_scale": 2.0}), ("mxfp8_e4m3", {"groups": [3, 16]})):
        for _ in range(2):
            mxq.quantize(x, format, **options)
        check()


def test_few_descriptors_wait_for_their_next_use(monkeypatch):
    from mxq import _descriptors, _qtensor
    from mxq._library import Idle

    destroyed = []
    monkeypatch.setattr(Idle, "_destroy", destroyed.append)
    monkeypatch.setattr(_descriptors, "_destroy", destroyed.append)
    many = [mxq.quantize(numbers(16, 96)) for _ in range(Idle.MOST + 3)]
    sources = _descriptors._idle_plain(1, (16, 96))
    assert len(sources) == 1
    destroyed.clear()  # one described the sizes
    waiting = _qtensor._recipe(many[0].spec, (16, 96), ("rowwise",)).idle
    addresses = sorted(q._descriptor().value for q in many)
    del many
    gc.collect()
    assert len(waiting) == Idle.MOST and len(destroyed) == 3 and sorted(waiting + destroyed) == addresses
    del sources, waiting
    _qtensor._recipe.cache_clear()
    _descriptors._idle_plain.cache_clear()
    gc.collect()
    assert set(addresses) < set(destroyed)
