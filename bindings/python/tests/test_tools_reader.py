"""Reading checkpoints: what is in them, and that what is hostile or truncated is refused by name."""

import json
import os

import numpy as np
import pytest
from mxq.tools import reader


def blob(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor(begin, end, dtype="U8", shape=None):
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


def written(path, content):
    path.write_bytes(content)
    return path


def test_a_file_gives_its_tensors_in_the_order_of_their_bytes(tmp_path):
    header = {
        "b": tensor(4, 12, "BF16", [2, 2]),
        "__metadata__": {"format": "pt"},
        "a": tensor(0, 4, "F32", []),
        "none": tensor(12, 12),
    }
    path = written(tmp_path / "m.safetensors", blob(header, bytes(range(12))))
    checkpoint = reader.open_checkpoint(path)
    assert list(checkpoint.entries) == ["a", "b", "none"] and checkpoint.files[0].metadata == {"format": "pt"}
    assert checkpoint.entries["b"].shape == (2, 2) and checkpoint.entries["b"].dtype == "BF16"
    assert reader.read_bytes(checkpoint.entries["b"]).tobytes() == bytes(range(4, 12))
    assert reader.read_bytes(checkpoint.entries["none"]).size == 0
    assert reader.open_checkpoint(tmp_path).entries == checkpoint.entries  # the folder of a single file


GOOD = {"a": tensor(0, 4), "b": tensor(4, 8)}
HOSTILE = [
    ("empty file", b"", "length of the header"),
    ("length alone", blob(b"", length=0), "length of the header"),
    ("length beyond the file", blob(GOOD, bytes(8), length=10_000), "length of the header"),
    ("length beyond 64 bits of sense", blob(GOOD, bytes(8), length=2**64 - 1), "length of the header"),
    ("length cut", (5).to_bytes(4, "little"), "a file of 4 bytes"),
    ("no JSON", blob(b"{]", b""), "expected JSON"),
    ("bad UTF-8", blob(b'{"\xff":1}'), "expected JSON"),
    ("a list", blob(b"[]"), "expected an object, found list"),
    ("NaN", blob(b'{"a":NaN}'), "expected JSON, found 'NaN'"),
    ("depth", blob(b'{"a":' * 200_000 + b"1" + b"}" * 200_000), "little depth"),
    ("digits", blob(b'{"a":' + b"9" * 100_000 + b"}"), "expected JSON"),
    ("duplicate names", blob(b'{"a":%s,"a":%s}' % ((json.dumps(tensor(0, 4)).encode(),) * 2), bytes(4)), "'a' twice"),
    (
        "duplicate fields",
        blob(b'{"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}}', bytes(4)),
        "'dtype' twice",
    ),
    ("a field too many", blob({"a": {**tensor(0, 4), "more": 1}}, bytes(4)), "dtype, shape and data_offsets"),
    ("a tensor that is a number", blob({"a": 1}), "dtype, shape and data_offsets"),
    ("unknown dtype", blob({"a": tensor(0, 4, "F7")}, bytes(4)), "found 'F7'"),
    ("dtype of a list", blob({"a": tensor(0, 4, ["U8"])}, bytes(4)), "a dtype of"),
    ("negative shape", blob({"a": tensor(0, 4, shape=[-4])}, bytes(4)), "a shape of"),
    ("true as a shape", blob({"a": tensor(0, 1, shape=[True])}, bytes(1)), "a shape of"),
    ("fractional shape", blob({"a": tensor(0, 4, shape=[4.0])}, bytes(4)), "a shape of"),
    ("shape of high rank", blob({"a": tensor(0, 1, shape=[1] * 33)}, bytes(1)), "a shape of"),
    ("shape that overflows 64 bits to 0", blob({"a": tensor(0, 0, shape=[2**32, 2**32])}), "found data_offsets of 0 bytes"),
    ("shape against bytes", blob({"a": tensor(0, 4, "F32", [2])}, bytes(4)), "8 bytes for F32"),
    ("half a byte", blob({"a": tensor(0, 2, "F4", [3])}, bytes(2)), "1.5 bytes for F4"),
    ("offsets in reverse", blob({"a": tensor(4, 0, shape=[4])}, bytes(4)), "[begin, end]"),
    ("offsets beyond the file", blob({"a": tensor(0, 8)}, bytes(4)), "in 4 bytes of data"),
    ("negative offsets", blob({"a": tensor(-4, 0, shape=[4])}, bytes(4)), "[begin, end]"),
    ("three offsets", blob({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4, 4]}}, bytes(4)), "[begin, end]"),
    ("overlap", blob({"a": tensor(0, 4), "b": tensor(3, 7)}, bytes(7)), "an overlap"),
    ("the same bytes twice", blob({"a": tensor(0, 4), "b": tensor(0, 4)}, bytes(4)), "an overlap"),
    ("gap", blob({"a": tensor(0, 4), "b": tensor(5, 8)}, bytes(8)), "a gap"),
    ("bytes behind", blob(GOOD, bytes(9)), "found 9 bytes"),
    ("truncated", blob(GOOD, bytes(7)), "in 7 bytes of data"),
    ("metadata of numbers", blob({**GOOD, "__metadata__": {"a": 1}}, bytes(8)), "an object of texts"),
]


@pytest.mark.parametrize("content, says", [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_a_hostile_file_is_refused_by_name(tmp_path, content, says):
    path = written(tmp_path / "m.safetensors", content)
    with pytest.raises(reader.CheckpointError) as refused:
        reader.open_checkpoint(path)
    assert str(refused.value).startswith(f"{path}: ") and says in str(refused.value)


def test_every_truncation_of_a_file_is_refused(tmp_path):
    whole = blob(GOOD, bytes(8))
    for size in range(len(whole)):
        with pytest.raises(reader.CheckpointError):
            reader.open_checkpoint(written(tmp_path / "m.safetensors", whole[:size]))
    assert len(reader.open_checkpoint(written(tmp_path / "m.safetensors", whole)).entries) == 2


def test_a_changed_byte_of_the_header_is_refused_or_read_without_harm(tmp_path):
    whole = bytearray(blob(GOOD, bytes(8)))
    outcomes = {True: 0, False: 0}
    for offset in range(len(whole) - 8):
        for value in (0, 0x22, 0x2D, 0x39, 0x7D, 0xFF):
            changed = bytes(whole[:offset]) + bytes([value]) + bytes(whole[offset + 1 :])
            path = written(tmp_path / "m.safetensors", changed)
            try:
                entries = reader.open_checkpoint(path).entries.values()
                assert sum(reader.read_bytes(entry).size for entry in entries) == 8
                outcomes[True] += 1
            except reader.CheckpointError:
                outcomes[False] += 1
    assert outcomes[True] + outcomes[False] == 6 * (len(whole) - 8) and outcomes[False] > outcomes[True] > 0


def sharded(folder, weight_map, **files):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        written(folder / f"{name}.safetensors", content)
    return written(folder / reader.INDEX_NAME, json.dumps({"weight_map": weight_map}).encode())


def test_an_index_gives_the_tensors_of_all_files(tmp_path):
    files = {"s1": blob({"a": tensor(0, 4)}, bytes(4)), "s2": blob({"b": tensor(0, 2)}, bytes([1, 2]))}
    index = sharded(tmp_path, {"a": "s1.safetensors", "b": "s2.safetensors"}, **files)
    for path in (tmp_path, index):
        checkpoint = reader.open_checkpoint(path)
        assert [file.path.name for file in checkpoint.files] == ["s1.safetensors", "s2.safetensors"]
        assert np.array_equal(reader.read_bytes(checkpoint.entries["b"]), [1, 2])


def test_an_index_may_have_another_name(tmp_path):
    index = sharded(tmp_path, {"a": "s1.safetensors"}, s1=blob({"a": tensor(0, 4)}, bytes(4)))
    for name in ("diffusion_pytorch_model.safetensors.index.json", "model.safetensors.index.fp16.json"):
        index = index.rename(tmp_path / name)
        for path in (tmp_path, index):
            found = reader.open_checkpoint(path)
            assert (found.index_name, found.whole, list(found.entries)) == (name, True, ["a"])
    (tmp_path / "other.safetensors.index.json").write_text("{}")
    with pytest.raises(reader.CheckpointError, match="found the indexes model.safetensors.index.fp16.json, other"):
        reader.open_checkpoint(tmp_path)
    assert reader.open_checkpoint(index).index_name == name


def test_a_folder_without_weights_names_the_subfolders_that_have_some(tmp_path):
    with pytest.raises(reader.CheckpointError, match="found 0 .safetensors files and no index$"):
        reader.open_checkpoint(tmp_path)
    for part in ("unet", "vae"):
        (tmp_path / part).mkdir()
        written(tmp_path / part / "m.safetensors", blob(GOOD, bytes(8)))
    with pytest.raises(reader.CheckpointError, match="give one of its subfolders: unet, vae$"):
        reader.open_checkpoint(tmp_path)


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(reader.CheckpointError) as refused:
        reader.open_checkpoint(tmp_path / "none.safetensors")
    wanted = "file: expected a file that can be read, found nothing of this name"
    assert str(refused.value) == f"{tmp_path / 'none.safetensors'}: {wanted}"


@pytest.mark.parametrize(
    "weight_map, says",
    [
        ({}, "weight_map"),
        ([], "weight_map"),
        ({"a": 1}, "the name of a .safetensors file"),
        ({"a": "../s1.safetensors"}, "in the folder of the index"),
        ({"a": "/s1.safetensors"}, "in the folder of the index"),
        ({"a": ".s1.safetensors"}, "in the folder of the index"),
        ({"a": "s1.bin"}, "in the folder of the index"),
        ({"a": "s1.safetensors", "x": "s1.safetensors"}, "none of this name"),
        ({"a": "s3.safetensors"}, "s3.safetensors: file: .*found nothing of this name"),
        ({"a": "s1.safetensors", "b": "s2.safetensors"}, "a name in one file alone"),
    ],
)
def test_an_index_that_lies_is_refused(tmp_path, weight_map, says):
    files = {"s1": blob({"a": tensor(0, 4)}, bytes(4)), "s2": blob({"a": tensor(0, 4), "b": tensor(4, 6)}, bytes(6))}
    sharded(tmp_path, weight_map, **files)
    with pytest.raises(reader.CheckpointError, match=says):
        reader.open_checkpoint(tmp_path)


def test_a_file_that_shrinks_after_it_was_opened_is_refused(tmp_path):
    path = written(tmp_path / "m.safetensors", blob(GOOD, bytes(8)))
    entry = reader.open_checkpoint(path).entries["b"]
    path.write_bytes(blob(GOOD, bytes(6)))
    with pytest.raises(reader.CheckpointError, match="became shorter"):
        reader.read_bytes(entry)


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "m.safetensors")
    with pytest.raises(reader.CheckpointError, match="expected a regular file"):
        reader.open_checkpoint(tmp_path / "m.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(reader.CheckpointError):
        reader.open_file(tmp_path / "folder.safetensors")
    with pytest.raises(reader.CheckpointError, match="expected a regular file"):
        reader.open_checkpoint("/dev/zero")


STEMS = ("a.weight", "a.weight_packed", "a.weight_scale", "a.weight_scale_inv", "a.weight_scale_2", "a.weight_global_scale")
NAMES = (
    *STEMS,
    "a.scale",
    "x.experts.0.w1.weight",
    "x.experts.1.w1.weight",
    "x.experts.up",
    "x_blocks",
    "x_scales",
    "a.weight_shape",
)


def random_file(rng):
    """A file that is well-formed, whose names and types are those of quantized checkpoints and whose shapes are anything."""
    header, end = {}, 0
    for name in rng.choice(NAMES, rng.integers(1, 7), replace=False):
        dtype = str(rng.choice(["F32", "BF16", "F16", "F8_E4M3", "F8_E8M0", "U8", "I8", "I32", "F4", "F64"]))
        sizes = rng.choice([0, 1, 2, 3, 16, 32, 128, 130], rng.integers(0, 5))
        bits = int(np.prod(sizes, dtype=object)) * reader.BITS[dtype]
        if bits % 8 or bits > 1 << 22:
            continue
        header[str(name)] = tensor(end, end + bits // 8, dtype, [int(size) for size in sizes])
        end += bits // 8
    return blob(header, rng.bytes(end))


def test_any_names_types_and_shapes_are_taken_or_refused_by_name(tmp_path):
    """Random files through inspect, compare and every layout: each call works or is refused with an error of this package."""
    import mxq

    pytest.importorskip("ml_dtypes")
    from mxq.tools import compare, layouts, quantize

    rng, outcomes = np.random.default_rng(0), {True: 0, False: 0}
    for turn in range(150):
        path = written(tmp_path / f"{turn}.safetensors", random_file(rng))
        row = layouts.LAYOUTS[turn % len(layouts.LAYOUTS)]
        experts = ("keep", "stack", "split")[turn % 3] if row.rank == 2 else "keep"
        chosen = quantize.recipe(row.layout, row.format, row.scaling, include=["*"], experts=experts)
        for work in (
            lambda: compare.inspect(path),
            lambda: list(compare.compare(path, path)),
            lambda: quantize.run(path, tmp_path / f"{turn}-out", chosen),
        ):
            try:
                work()
                outcomes[True] += 1
            except mxq.Error:
                outcomes[False] += 1
        assert not (tmp_path / f"{turn}-out.partial").exists()
    assert outcomes[True] > 250 and outcomes[False] > 50, outcomes
