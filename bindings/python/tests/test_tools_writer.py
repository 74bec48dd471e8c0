"""Writing checkpoints: complete or absent, resumed, and refused where something is missing."""

import json
from pathlib import Path

import numpy as np
import pytest
from mxq.tools import reader
from mxq.tools.writer import FileWriter, Folder, Output

OUTPUTS = [
    Output("a.codes", "U8", (3,)),
    Output("a.scale", "F32", ()),
    Output("b", "BF16", (2, 2)),
    Output("none", "F16", (0, 4)),
]
ARRAYS = {
    "a.codes": np.array([1, 2, 3], np.uint8),
    "a.scale": np.float32(2.5).reshape(()),
    "b": np.arange(4, dtype=np.uint16).reshape(2, 2),
    "none": np.zeros((0, 4), np.float16),
}


def fill(file, names=None):
    for name in names or ARRAYS:
        file.add(name, ARRAYS[name])


def test_a_written_file_reads_back_and_its_tensors_are_aligned(tmp_path):
    file = FileWriter(tmp_path / "m.safetensors", OUTPUTS, {"format": "pt"})
    fill(file, reversed(list(ARRAYS)))
    assert not (tmp_path / "m.safetensors").exists()
    file.finish()
    found = reader.open_file(tmp_path / "m.safetensors")
    assert found.metadata == {"format": "pt"} and set(found.entries) == set(ARRAYS)
    for output in OUTPUTS:
        entry = found.entries[output.name]
        assert (entry.dtype, entry.shape) == output[1:] and reader.read_bytes(entry).tobytes() == ARRAYS[output.name].tobytes()
        assert entry.start % (reader.BITS[entry.dtype] // 8) == 0
    assert list(tmp_path.iterdir()) == [tmp_path / "m.safetensors"]


@pytest.mark.parametrize("length", range(1, 9))
def test_data_begins_at_a_multiple_of_8(tmp_path, length):
    file = FileWriter(tmp_path / "m.safetensors", [Output("x" * length, "U8", (1,))], {})
    file.add("x" * length, np.array([7], np.uint8))
    file.finish()
    assert next(iter(reader.open_file(tmp_path / "m.safetensors").entries.values())).start % 8 == 0


def test_the_package_safetensors_reads_what_is_written(tmp_path):
    numpy_files = pytest.importorskip("safetensors.numpy")
    outputs = [output for output in OUTPUTS if output.dtype != "BF16"]
    file = FileWriter(tmp_path / "m.safetensors", outputs, {})
    fill(file, [output.name for output in outputs])
    file.finish()
    found = numpy_files.load_file(tmp_path / "m.safetensors")
    assert len(found) == 3 and all(np.array_equal(found[name], ARRAYS[name]) for name in found)


def test_a_file_is_refused_that_lacks_a_tensor_or_gets_another(tmp_path):
    file = FileWriter(tmp_path / "m.safetensors", OUTPUTS, {})
    fill(file, ["a.codes", "a.scale", "none"])
    with pytest.raises(reader.CheckpointError, match="'b': expected its bytes"):
        file.finish()
    with pytest.raises(reader.CheckpointError, match="expected 8 bytes, found 3"):
        file.add("b", ARRAYS["a.codes"])
    for name in ("a.codes", "other"):
        with pytest.raises(reader.CheckpointError, match="not yet written"):
            file.add(name, ARRAYS["a.codes"])
    assert not (tmp_path / "m.safetensors").exists()
    with pytest.raises(reader.CheckpointError, match="it twice"):
        FileWriter(tmp_path / "n.safetensors", OUTPUTS + OUTPUTS[:1], {})


def write(folder, name, rows):
    file, _ = folder.file(name, OUTPUTS[:1] if name == "1.safetensors" else OUTPUTS[1:], {})
    fill(file, ["a.codes"] if name == "1.safetensors" else ["a.scale", "b", "none"])
    folder.complete(file, rows)


def test_a_folder_is_absent_until_it_is_complete(tmp_path):
    out = tmp_path / "out"
    folder = Folder(out, {"format": "mxfp4"})
    for name in ("1.safetensors", "2.safetensors"):
        write(folder, name, [])
        assert not out.exists()
    folder.finish(reader.INDEX_NAME)
    assert sorted(path.name for path in out.iterdir()) == ["1.safetensors", "2.safetensors", reader.INDEX_NAME]
    assert list(tmp_path.iterdir()) == [out] and len(reader.open_checkpoint(out).entries) == 4
    assert json.loads((out / reader.INDEX_NAME).read_text())["metadata"] == {"total_size": 3 + 4 + 8}
    (tmp_path / "link").symlink_to("nowhere")
    for taken in (out, tmp_path / "link", Path("."), Path("/"), Path(".."), tmp_path / "new/.."):
        with pytest.raises(reader.CheckpointError, match="output: expected a name that is not taken, found a file or folder"):
            Folder(taken, {"format": "mxfp4"})


def test_an_interrupted_run_is_taken_up_behind_its_last_complete_file(tmp_path):
    out, rows = tmp_path / "out", [{"name": "a", "sqnr_db": 20.5}]
    folder = Folder(out, {"shape": (1, 2)})
    write(folder, "1.safetensors", rows)
    file, _ = folder.file("2.safetensors", OUTPUTS[1:], {})
    file.add("b", ARRAYS["b"])  # and here it stops
    file.close()
    folder.close()
    with pytest.raises(reader.CheckpointError, match="one of the same input and options"):
        Folder(out, {"shape": (1, 3)})
    folder = Folder(out, {"shape": (1, 2)})
    assert folder.rows("1.safetensors") == rows and folder.rows("2.safetensors") is None
    write(folder, "2.safetensors", [])
    folder.finish(reader.INDEX_NAME)
    assert len(reader.open_checkpoint(out).entries) == 4 and not (out / "2.safetensors.part").exists()


def test_a_file_and_its_rows_count_together_alone(tmp_path):
    folder = Folder(tmp_path / "out", {})
    for lost in ("1.safetensors", "1.safetensors.rows.json"):
        write(folder, "1.safetensors", [])
        assert folder.rows("1.safetensors") == []
        (folder.part / lost).unlink()
        assert folder.rows("1.safetensors") is None


def test_two_runs_do_not_write_one_folder(tmp_path):
    folder = Folder(tmp_path / "out", {})
    with pytest.raises(reader.CheckpointError, match="no other run"):
        Folder(tmp_path / "out", {})
    folder.close()
    Folder(tmp_path / "out", {}).close()


def test_a_name_that_is_taken_meanwhile_is_not_overwritten(tmp_path):
    out = tmp_path / "out"
    folder = Folder(out, {})
    write(folder, "1.safetensors", [])
    out.mkdir()
    with pytest.raises(reader.CheckpointError, match="came meanwhile"):
        folder.finish()
    assert (folder.part / "1.safetensors").exists() and not list(out.iterdir())


def test_chunks_of_a_tensor_are_counted(tmp_path):
    file = FileWriter(tmp_path / "m.safetensors", [Output("a", "U8", (8,)), Output("b", "U8", (2,))], {})
    file.add_chunk("a", 5, np.array([6, 7, 8], np.uint8))
    for offset, size in ((0, 6), (6, 3), (8, 1)):  # more than is missing, and beyond the end
        with pytest.raises(reader.CheckpointError, match=f"expected 5 more bytes, found {size} from {offset} on"):
            file.add_chunk("a", offset, np.zeros(size, np.uint8))
    with pytest.raises(reader.CheckpointError, match="'a': expected its bytes, found 5 missing"):
        file.finish()
    file.add_chunk("a", 0, np.array([1, 2, 3, 4, 5], np.uint8))
    file.add("b", np.array([9, 9], np.uint8))
    file.finish()
    entries = reader.open_file(tmp_path / "m.safetensors").entries
    assert reader.read_bytes(entries["a"]).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
