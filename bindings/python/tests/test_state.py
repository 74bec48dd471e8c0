"""quantize_state_dict makes in memory what mxq-quantize writes into files, and dequantize_state_dict reads it."""

import copy
import tracemalloc

import mxq
import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes", reason="the tools need ml_dtypes and rich")
pytest.importorskip("rich", reason="the tools need ml_dtypes and rich")
from mxq.tools import layouts, quantize, reader, stored  # noqa: E402
from test_tools import name_of, save  # noqa: E402

DTYPES = {"uint8": "U8", "float8_e4m3fn": "F8_E4M3", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64"}
KINDS = ["numpy", "torch"]


def state(rank):
    """Weights of several types, experts in a stack and one by one, and tensors that stay."""
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.standard_normal(shape, "float32")  # noqa: E731
    weights = {"a.q_proj.weight": (7 * normal(256, 128)).astype(ml_dtypes.bfloat16), "a.k_proj.weight": normal(128, 128),
               "a.odd.weight": normal(130, 160).astype("float16"), "a.narrow.weight": normal(4, 24)}
    experts = {"m.experts.gate_up_proj": normal(3, 128, 256), "m.experts.down_proj": normal(3, 256, 128).astype(ml_dtypes.bfloat16)}
    single = {f"n.experts.{i}.up.weight": normal(128, 64) for i in range(2)}
    return {**(experts if rank == 3 else {**weights, **experts, **single}), "a.norm.weight": normal(128), "bias": normal(3)}


def as_kind(tensors, kind):
    if kind == "numpy":
        return dict(tensors)
    torch = pytest.importorskip("torch")
    return {name: torch.from_numpy(a.view("int16")).view(torch.bfloat16) if a.dtype.name == "bfloat16" else torch.from_numpy(a)
            for name, a in tensors.items()}


def raw(array):
    """The bytes of an array of either kind."""
    if not isinstance(array, np.ndarray):
        import torch

        array = array.contiguous().reshape(-1).view(torch.uint8).numpy()
    return np.ascontiguousarray(array).reshape(-1).view("uint8")


def dtype_of(array):
    return DTYPES[str(array.dtype).rpartition(".")[2]]


def from_file(path):
    """What a file has: type, shape and bytes by names."""
    entries = reader.open_checkpoint(path).entries
    return {name: (entry.dtype, entry.shape, reader.read_bytes(entry).tobytes()) for name, entry in entries.items()}


def told(tensors):
    return {name: (dtype_of(a), tuple(a.shape), raw(a).tobytes()) for name, a in tensors.items()}


def both(tmp_path, kind, tensors, types={}, **words):
    """What quantize_state_dict makes and what mxq-quantize writes; these are the same."""
    save(tmp_path / "in.safetensors", tensors, types)
    quantize.run(tmp_path / "in.safetensors", tmp_path / "out", quantize.recipe(**words))
    made = mxq.quantize_state_dict(as_kind(tensors, kind), mxq.recipe(**words))
    assert told(made) == from_file(tmp_path / "out")
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", layouts.LAYOUTS, ids=name_of)
def test_memory_has_what_a_file_has_and_reads_it(tmp_path, row, kind):
    include = () if row.rank == 3 else ("*.weight", "*.experts.*")
    tensors = state(row.rank)
    made = both(tmp_path, kind, tensors, layout=row.layout, format=row.format, scaling=row.scaling, include=include)
    back = mxq.dequantize_state_dict(made, "float32")
    files = {one.name: one for one in stored.find(reader.open_checkpoint(tmp_path / "out"))}
    assert set(back) == set(files) and sum(one.scales is not None for one in files.values()) >= 2
    for name, one in files.items():
        assert tuple(back[name].shape) == tensors[name.removesuffix(".weight") if name not in tensors else name].shape
        if one.scales is not None:
            wanted = stored.values(one)
            assert raw(back[name]).tobytes() == raw(wanted).tobytes() and np.count_nonzero(wanted) > wanted.size / 2


@pytest.mark.parametrize("experts, share", [("split", False), ("stack", True)])
def test_experts_and_shared_scales_are_those_of_files(tmp_path, experts, share):
    words = {"layout": "modelopt", "format": "nvfp4", "include": ("*.weight", "*.experts.*"), "experts": experts}
    made = both(tmp_path, "numpy", state(2), **words, share_global=share)
    assert ("n.experts.up.weight" in made) == (experts == "stack") == ("m.experts.0.gate_up_proj.weight" not in made)
    assert (made["a.q_proj.weight_scale_2"] == made["a.k_proj.weight_scale_2"]) == share


@pytest.mark.parametrize("kind", KINDS)
def test_fp8_is_widened_and_quantized_as_in_files(tmp_path, kind):
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 126, (200, 256), np.uint8)
    scales = rng.uniform(0.001, 0.01, (2, 2)).astype("float32").astype(ml_dtypes.bfloat16)
    tensors = {"a.up.weight": codes, "a.up.weight_scale_inv": scales, "lm_head.weight": codes, "lm_head.weight_scale_inv": scales}
    fp8 = {name: "F8_E4M3" for name in ("a.up.weight", "lm_head.weight")}
    given = {name: a.view(ml_dtypes.float8_e4m3fn) if name in fp8 else a for name, a in tensors.items()}
    save(tmp_path / "in.safetensors", tensors, fp8)
    quantize.run(tmp_path / "in.safetensors", tmp_path / "out", quantize.recipe("compressed-tensors", "mxfp4"))
    if kind == "torch":
        torch = pytest.importorskip("torch")
        like = as_kind({name: a for name, a in tensors.items()}, kind)
        given = {name: a.view(torch.float8_e4m3fn) if name in fp8 else a for name, a in like.items()}
    made = mxq.quantize_state_dict(given, mxq.recipe("compressed-tensors", "mxfp4"))
    assert told(made) == from_file(tmp_path / "out") and dtype_of(made["lm_head.weight"]) == "BF16"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout, format", [("compressed-tensors", "nvfp4"), ("gpt-oss", "mxfp4"), ("modelopt", "fp8_e4m3")])
def test_new_weights_are_copied_into_the_same_buffers(kind, layout, format):
    recipe = mxq.recipe(layout, format)
    old = as_kind(state(3 if layout == "gpt-oss" else 2), kind)
    new = {name: -2 * array for name, array in old.items()}
    buffers = {name: copy.deepcopy(array) for name, array in mxq.quantize_state_dict(new, recipe).items()}
    wanted = told(buffers)
    addresses = {name: raw(array).__array_interface__["data"][0] for name, array in buffers.items()}
    mxq.quantize_state_dict(old, recipe, out={**buffers, "more": buffers["bias"]})
    assert sum(told(buffers)[name] != wanted[name] for name in wanted) >= 2
    made = mxq.quantize_state_dict(new, recipe, out=buffers)
    assert told(made) == wanted and all(made[name] is buffers[name] or kind == "torch" for name in made)
    assert {name: raw(array).__array_interface__["data"][0] for name, array in made.items()} == {
        name: addresses[name] for name in made}
    back = mxq.dequantize_state_dict(made, "float32")
    zeros = {name: array * 0 for name, array in back.items()}
    mxq.dequantize_state_dict(made, "float32", out=zeros)
    assert told(zeros) == told(back)


def test_buffers_take_new_weights_with_the_memory_of_one_matrix():
    recipe = mxq.recipe("compressed-tensors", "mxfp8_e4m3")
    weights = {f"{i}.weight": np.ones((1024, 1024), "float32") for i in range(8)}
    buffers = mxq.quantize_state_dict(weights, recipe)
    tracemalloc.start()
    mxq.quantize_state_dict(weights, recipe, out=buffers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 1 << 20 <= peak < 1.5 * (1 << 20)


def test_parameters_views_and_buckets_are_taken():
    torch = pytest.importorskip("torch")
    weight = torch.randn(64, 128)
    recipe = mxq.recipe("compressed-tensors", "mxfp8_e4m3")
    plain = told(mxq.quantize_state_dict({"a.weight": weight}, recipe))
    assert told(mxq.quantize_state_dict({"a.weight": torch.nn.Parameter(weight)}, recipe)) == plain
    assert told(mxq.quantize_state_dict({"a.weight": weight.T.contiguous().T}, recipe)) == plain
    norm = {"a.norm.weight": torch.ones(4)}
    assert mxq.quantize_state_dict(norm, recipe)["a.norm.weight"].data_ptr() == norm["a.norm.weight"].data_ptr()


def test_a_config_says_what_a_family_keeps():
    gpt2 = {"h.0.attn.c_attn.weight": np.ones((64, 192), "float32")}
    recipe = mxq.recipe("compressed-tensors", "mxfp4")
    assert "h.0.attn.c_attn.weight_packed" in mxq.quantize_state_dict(gpt2, recipe)
    assert set(mxq.quantize_state_dict(gpt2, recipe, config={"model_type": "gpt2"})) == set(gpt2)


X = np.ones((64, 64), "float32")
FROZEN = X.view()
FROZEN.flags.writeable = False


@pytest.mark.parametrize("buffer, says", [
    (None, r"out: tensor 'a\.weight': expected a buffer of this name, found none"),
    (X, r"expected dtype float8_e4m3fn, found float32"),
    (np.ones((64, 32), "uint8"), r"expected shape \(64, 64\), found \(64, 32\)"),
    (np.ones((64, 128), "uint8")[:, ::2], r"expected memory without gaps that can be written, found gaps"),
    (FROZEN.view("uint8")[:, :64], r"found read-only memory"),
    ("codes", r"out\['a\.weight'\] is a str, expected a numpy array"),
])
def test_buffers_that_do_not_fit_are_refused_before_any_is_written(buffer, says):
    recipe, given = mxq.recipe("compressed-tensors", "mxfp8_e4m3"), {"b.weight": X, "a.weight": X}
    out = {name: array * 0 for name, array in mxq.quantize_state_dict(given, recipe).items()}
    out["a.weight"] = buffer
    if buffer is None:
        del out["a.weight"]
    with pytest.raises(mxq.Error, match=says):
        mxq.quantize_state_dict(given, recipe, out=out)
    assert not raw(out["b.weight"]).any()


@pytest.mark.parametrize("given, says", [
    ({"a.weight": X.view("uint8"), "a.weight_scale": X}, "U8 without scales of a known name"),
    ({"a.qweight": X.view("int32")}, "integer quantization"),
    ({"a.weight": X.astype(ml_dtypes.float8_e4m3fn)}, "F8_E4M3 without scales"),
    ({"a.weight": X.astype("complex128")}, "expected a dtype of .*, found complex128"),
    ({"a.weight": [1.0]}, r"state\['a\.weight'\] is a list, expected a numpy array"),
])
def test_states_that_would_be_read_wrongly_are_refused(given, says):
    with pytest.raises(mxq.Error, match=says):
        mxq.dequantize_state_dict(given)
