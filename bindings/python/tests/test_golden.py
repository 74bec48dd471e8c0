"""Every byte of the golden vectors, through the package."""
import numpy as np
import pytest
from vectors import load, same_bytes

import mxq

MX = {"e4m3": "mxfp8_e4m3", "e5m2": "mxfp8_e5m2", "e3m2": "mxfp6_e3m2", "e2m3": "mxfp6_e2m3", "e2m1": "mxfp4"}


def test_mx_rowwise():
    vectors, compared = load("golden/mx_rowwise"), 0
    for element, format in MX.items():
        for rounding in ("floor", "ceil", "even", "rceil"):
            for name, x in vectors.items():
                key = f"{element}/{rounding}/{name[2:]}"
                if not name.startswith("x/") or f"{key}.codes" not in vectors:
                    continue
                q = mxq.quantize(x, format, scale_rounding=rounding)
                assert same_bytes(q.rowwise.codes, vectors[f"{key}.codes"]), key
                assert same_bytes(q.rowwise.scales, vectors[f"{key}.scales"]), key
                compared += 2
    assert compared == 2 * 5 * 4 * 11


def test_layout():
    vectors, compared = load("golden/layout"), 0

    def compare(key, x, part, **options):
        q = mxq.quantize(x, parts=part, **options)
        swizzled, chosen = mxq.swizzle(q), getattr(q, part)
        assert same_bytes(chosen.codes, vectors[f"{key}.codes"]), key
        assert same_bytes(chosen.scales, vectors[f"{key}.scales"]), key
        assert same_bytes(getattr(swizzled, part).scales, vectors[f"{key}.swizzled"]), key
        at_once = mxq.quantize(x, parts=part, swizzled=True, **options)
        assert same_bytes(getattr(at_once, part).scales, vectors[f"{key}.swizzled"]), key
        assert same_bytes(getattr(mxq.unswizzle(swizzled), part).scales, vectors[f"{key}.scales"]), key
        return 3

    for element in ("e4m3", "e5m2"):
        for rounding in ("floor", "rceil"):
            head, options = f"{element}/{rounding}", {"format": MX[element], "scale_rounding": rounding}
            for part in ("rowwise", "columnwise"):
                for name in ("mat", "experts"):
                    compared += compare(f"{head}/{part}/{name}", vectors[f"x/{name}"], part, **options)
                if element == "e4m3":
                    compared += compare(f"{head}/tile32/experts.{part}", vectors["x/experts"], part, scaling="32x32", **options)
    assert compared == 60


@pytest.mark.parametrize("given", [False, True])
def test_nvfp4(given):
    vectors, compared = load("golden/nvfp4"), 0
    ways = {"plain": (None, 448), "map4_mae_448": ("mae", 448), "map4_mse_448": ("mse", 448), "map4_mae_256": ("mae", 256),
            "map4_mse_256": ("mse", 256)}
    for name, x in vectors.items():
        if not name.startswith("x/") or name.endswith(".amax"):
            continue
        expected = vectors[f"{name}.amax"].reshape(1)
        assert same_bytes(mxq.amax(x, "nvfp4"), expected)
        for scaling in ("1x16", "16x16"):
            for way, (four_over_six, scale_max) in ways.items():
                q = mxq.quantize(x, "nvfp4", scaling=scaling, four_over_six=four_over_six, scale_max=scale_max,
                                 amax=expected if given else None)
                key = f"{scaling}/{way}/{name[2:]}"
                assert same_bytes(q.rowwise.codes, vectors[f"{key}.codes"]), key
                assert same_bytes(q.rowwise.scales, vectors[f"{key}.scales"]), key
                assert same_bytes(q.rowwise.amax, expected), key
                compared += 1
    assert compared == 6 * 2 * 5


def test_fp8():
    vectors, compared = load("golden/fp8"), 0
    for element in ("e4m3", "e5m2"):
        for scaling in ("tensor", "row", "1x128", "128x128"):
            for suffix, power_of_two in (("exact", False), ("pow2", True)):
                q = mxq.quantize(vectors["x"], f"fp8_{element}", scaling=scaling, power_of_two_scales=power_of_two)
                key = f"{element}/{scaling}/{suffix}"
                assert same_bytes(q.rowwise.codes, vectors[f"{key}.codes"]), key
                assert same_bytes(q.rowwise.scales, vectors[f"{key}.scale_inv"]), key
                compared += 2
        assert same_bytes(mxq.amax(vectors["x"], f"fp8_{element}"), vectors[f"{element}/tensor/exact.amax"])
    assert compared == 32


def test_contract():
    vectors = load("golden/contract")
    x, amax, seed = vectors["x"], vectors["amax"].reshape(1), vectors["seed_offset"]
    q = mxq.quantize(x, "nvfp4", parts="both", amax=amax, stochastic=tuple(seed.view("u8").tolist()))
    fp4 = mxq.quantize(x, "mxfp4", stochastic=seed.view("u8").copy())
    for part, key in ((q.rowwise, "sr/nvfp4/rowwise"), (q.columnwise, "sr/nvfp4/columnwise"), (fp4.rowwise, "sr/mxfp4/rowwise")):
        assert same_bytes(part.codes, vectors[f"{key}.codes"]), key
        assert same_bytes(part.scales, vectors[f"{key}.scales"]), key
    for mask in ("0000", "d7e8", "f52c"):
        part = mxq.quantize(x, "nvfp4", hadamard=int(mask, 16)).rowwise
        for name in ("codes", "scales", "amax"):
            assert same_bytes(getattr(part, name), vectors[f"hadamard/{mask}/{name}"]), mask


def test_groups():
    vectors = load("golden/groups")
    x, ends = vectors["x"], vectors["ends"]
    for alignment in (16, 32, 128):
        padded = mxq.pad_groups(x, ends, alignment=alignment)
        expected = vectors[f"pad{alignment}.rows"]
        assert same_bytes(padded.values[: len(expected)], expected) and not padded.values[len(expected) :].any()
        assert same_bytes(padded.starts, vectors[f"pad{alignment}.starts"])
        assert same_bytes(padded.ends, vectors[f"pad{alignment}.ends"])
        back = mxq.unpad_groups(padded)
        assert np.array_equal(back[: ends[-1]], x[: ends[-1]]) and not back[ends[-1] :].any()
