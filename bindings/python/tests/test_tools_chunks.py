"""mxq-quantize in chunks: the same bytes whatever the chunks and threads, an interrupt inside of a file, experts, shared scales."""

import json
import os
import signal
import subprocess
import sys
import time

import mxq
import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes", reason="the tools need ml_dtypes and rich")
pytest.importorskip("rich", reason="the tools need ml_dtypes and rich")
from mxq.tools import devices, layouts, measure, quantize, reader, stored  # noqa: E402
from test_tools import checkpoint, name_of, save, top  # noqa: E402, F401


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def bf16(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, "float32").astype(ml_dtypes.bfloat16)


ROWS = [row for row in layouts.LAYOUTS if row.layout == "compressed-tensors"]


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_chunks_and_threads_do_not_change_what_is_written(checkpoint, tmp_path, monkeypatch, row):  # noqa: F811
    chosen = quantize.recipe(row.layout, row.format, row.scaling)
    quantize.run(checkpoint, tmp_path / "whole", chosen)
    for number, (nbytes, threads) in enumerate(((8_000, 3), (40_000, 1))):
        monkeypatch.setattr(devices.Cpu, "chunk_bytes", nbytes)
        monkeypatch.setattr(quantize, "_BEGUN", (1, 70_000)[number])
        quantize.run(checkpoint, tmp_path / str(number), chosen, threads=threads)
        made, whole = files(tmp_path / str(number)), files(tmp_path / "whole")
        assert set(made) == set(whole)
        for name in whole:
            if not name.startswith("quantization_report"):
                assert made[name] == whole[name], name
        rows, wanted = (json.loads(found[quantize.REPORT])["tensors"] for found in (made, whole))
        assert [{**one, "sqnr_db": 0} for one in rows] == [{**one, "sqnr_db": 0} for one in wanted]


def test_chunks_of_fp8_hold_whole_tiles(tmp_path, monkeypatch):
    fp8 = mxq.quantize(np.random.default_rng(0).standard_normal((700, 256), "float32"), "fp8_e4m3", scaling="128x128")
    tensors = {}
    for name in ("a.weight", "lm_head.weight"):  # quantized, and widened to BF16
        tensors |= {name: fp8.rowwise.codes, name + "_scale_inv": fp8.rowwise.scales}
    save(tmp_path / "m.safetensors", tensors, {"a.weight": "F8_E4M3", "lm_head.weight": "F8_E4M3"})
    chosen = quantize.recipe("compressed-tensors", "mxfp4")
    quantize.run(tmp_path / "m.safetensors", tmp_path / "whole", chosen)
    monkeypatch.setattr(devices.Cpu, "chunk_bytes", 10_000)
    quantize.run(tmp_path / "m.safetensors", tmp_path / "chunks", chosen)
    made = reader.open_checkpoint(tmp_path / "chunks").entries
    assert (tmp_path / "chunks/m.safetensors").read_bytes() == (tmp_path / "whole/m.safetensors").read_bytes()
    want = mxq.quantize(fp8.dequantize(), "mxfp4").rowwise
    assert reader.read_bytes(made["a.weight_packed"]).tobytes() == want.codes.tobytes()
    assert reader.read_bytes(made["lm_head.weight"]).tobytes() == fp8.dequantize("bfloat16").tobytes()


def test_a_large_tensor_is_cut_into_chunks_of_whole_tiles():
    from mxq.tools import chunks, plan
    from pathlib import Path

    entry = reader.Entry("a.weight", "BF16", (1000, 64), 0, 128_000, Path("x"))
    source = stored.Stored("a.weight", "plain", "BF16", (1000, 64), entry)
    for scaling, nbytes, lasts in (
        ("1x16", 30_000, [128, 256, 384, 512, 640, 768, 896, 1000]),
        ("1x16", 40_000, [256, 512, 768, 1000]),
        ("16x16", 3000, [16 * i for i in range(1, 63)] + [1000]),
    ):
        row = layouts.choose("compressed-tensors", "nvfp4", scaling)
        step = plan._quantized(
            "a.weight", (1000, 64), (source,), quantize.recipe("compressed-tensors", "nvfp4", scaling), False
        )
        made = chunks.chunks(step, nbytes)
        assert [chunk.last for chunk in made] == lasts and made[0].first == 0 and row.scaling == scaling
        assert (
            all(one.last == other.first for one, other in zip(made, made[1:]))
            and sum(chunk.nbytes for chunk in made) == 128_000
        )


# ---- What is measured ------------------------------------------------------------------------------------------------


def test_a_sample_is_the_first_128_of_each_2048_rows(tmp_path, monkeypatch):
    assert list(measure.measured_rows(0, 5000, "sample")) == [(0, 128), (2048, 2176), (4096, 4224)]
    assert list(measure.measured_rows(100, 2100, "sample")) == [(100, 128), (2048, 2100)]
    assert list(measure.measured_rows(128, 2048, "sample")) == [] == list(measure.measured_rows(0, 9, "none"))
    assert list(measure.measured_rows(3, 9, "all")) == [(3, 9)]
    x = bf16(5000, 64)
    x[300:, 0] = 9  # rows outside of the sample lose more
    x[2048:2176], x[4096:4224] = x[:128], x[:128]
    x[4999] = 0
    save(tmp_path / "m.safetensors", {"a.weight": x})
    found = {}
    for mode in ("sample", "all", "none"):
        monkeypatch.setattr(devices.Cpu, "chunk_bytes", 50_000)
        chosen = quantize.recipe("compressed-tensors", "mxfp4", measure=mode)
        found[mode] = quantize.run(tmp_path / "m.safetensors", tmp_path / mode, chosen)["tensors"][0]
    q = mxq.quantize(x, "mxfp4")
    rows = np.r_[0:128, 2048:2176, 4096:4224]
    assert found["all"]["sqnr_db"] == pytest.approx(q.sqnr(x), abs=2e-3) and found["all"]["measured_rows"] == 5000
    assert found["sample"]["sqnr_db"] == pytest.approx(mxq.quantize(x[rows].copy(), "mxfp4").sqnr(x[rows]), abs=2e-3)
    assert abs(found["sample"]["sqnr_db"] - found["all"]["sqnr_db"]) > 0.5
    assert (found["sample"]["measured_rows"], found["sample"]["rows"]) == (384, 5000) and "sqnr_db" not in found["none"]
    assert [found[mode]["zero_blocks"] for mode in found] == [2, 2, 2]  # counted in all rows, whatever is measured


def test_scales_are_counted_by_their_exponent():
    x = np.ones((4, 64), "float32")
    x[0, :32], x[1, 32:], x[2] = 0, 2.0**-20, 3 * 2.0**10
    count = {"mxfp8_e4m3": {"zero": 1, "-28": 1, "-8": 4, "3": 2}, "mxfp4": {"zero": 1, "-22": 1, "-2": 4, "9": 2}}
    for format, wanted in count.items():
        assert measure.measure(x, mxq.quantize(x, format))["scale_log2"] == wanted
    assert measure.measure(x, mxq.quantize(x, "fp8_e4m3", scaling="row"))["scale_log2"] == {"-9": 3, "2": 1}
    nvfp4 = measure.measure(x, mxq.quantize(x, "nvfp4", amax=3 * 2.0**10))["scale_log2"]
    scales = mxq.quantize(x, "nvfp4", amax=3 * 2.0**10).rowwise.scales.view(ml_dtypes.float8_e4m3fn).astype("float32")
    exponents = np.floor(np.log2(scales[scales > 0])).astype(int)
    assert nvfp4 == {"zero": 4, **{str(e): int((exponents == e).sum()) for e in sorted(set(exponents))}} and len(nvfp4) > 2


def test_lines_of_zeros_in_tiles_of_nvfp4_are_counted():
    x = np.ones((32, 64), "float32")
    x[3, 16:32] = 0
    row = measure.measure(x, mxq.quantize(x, "nvfp4", scaling="16x16"))
    assert (row["zero_blocks"], row["blocks"]) == (1, 32 * 4)  # under a scale that is not zero
    x[16:32, 48:] = 0
    assert measure.measure(x, mxq.quantize(x, "nvfp4", scaling="16x16"))["zero_blocks"] == 1 + 16


# ---- An interrupt ----------------------------------------------------------------------------------------------------


def test_an_interrupt_inside_of_a_file_goes_on_behind_the_last_tensor(tmp_path, monkeypatch):
    save(tmp_path / "m.safetensors", {f"{i}.weight": bf16(64, 64, seed=i) for i in range(8)})
    chosen, done = quantize.recipe("compressed-tensors", "nvfp4"), []

    def stop(count, name):
        done.append(name)
        if len(done) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize.run(tmp_path / "m.safetensors", tmp_path / "out", chosen, stop)
    part = tmp_path / "out.partial/m.safetensors.part"
    inode, saved = part.stat().st_ino, json.loads((tmp_path / "out.partial/m.safetensors.rows.json").read_text())["rows"]
    assert [row["name"] for row in saved] == [f"{i}.weight" for i in range(4)]
    from mxq.tools import chunks

    again = []
    original = chunks.quantize_chunk
    monkeypatch.setattr(quantize, "quantize_chunk", lambda *a: again.append(a[1].name) or original(*a))
    report = quantize.run(tmp_path / "m.safetensors", tmp_path / "out", chosen)
    assert (tmp_path / "out/m.safetensors").stat().st_ino == inode and sorted(again) == [f"{i}.weight" for i in range(4, 8)]
    assert quantize.run(tmp_path / "m.safetensors", tmp_path / "once", chosen) == report
    assert files(tmp_path / "out") == files(tmp_path / "once")


def test_a_part_with_another_header_is_written_anew(tmp_path):
    save(tmp_path / "m.safetensors", {"a.weight": bf16(64, 64)})
    chosen = quantize.recipe("compressed-tensors", "mxfp4")
    quantize.run(tmp_path / "m.safetensors", tmp_path / "once", chosen)

    def stop(count, name):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize.run(tmp_path / "m.safetensors", tmp_path / "out", chosen, stop)
    part = tmp_path / "out.partial/m.safetensors.part"
    part.write_bytes(b"x" * 100 + part.read_bytes()[100:])
    (tmp_path / "out.partial/m.safetensors.rows.json").write_text('{"rows": [{"name": "a.weight", "bytes_before": 8192}]}')
    quantize.run(tmp_path / "m.safetensors", tmp_path / "out", chosen)
    assert files(tmp_path / "out") == files(tmp_path / "once")


def test_a_signal_ends_the_command_and_the_same_command_goes_on(tmp_path):
    x = bf16(2048, 1024)
    save(tmp_path / "m.safetensors", {f"{i}.weight": x for i in range(40)})
    command = [sys.executable, "-m", "mxq.tools.cli", str(tmp_path / "m.safetensors"), str(tmp_path / "out")]
    command += ["--format", "mxfp8_e4m3", "--measure", "all", "--threads", "1"]
    taken = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731  a shell's background jobs ignore it
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=taken)
    file = tmp_path / "out.partial/m.safetensors.part"
    while not file.exists() and running.poll() is None:
        time.sleep(0.01)
    time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    said = running.communicate(timeout=60)[1]
    assert running.returncode == 130 and "interrupted; the same command goes on from here" in said, said
    assert not (tmp_path / "out").exists() and file.exists()
    rows = json.loads((tmp_path / "out.partial/m.safetensors.rows.json").read_text())["rows"]
    assert len(rows) < 40
    assert subprocess.run(command, capture_output=True).returncode == 0
    found = {one.name: one for one in stored.find(reader.open_checkpoint(tmp_path / "out"))}
    assert len(found) == 40 and not (tmp_path / "out.partial").exists()
    want = mxq.quantize(x, "mxfp8_e4m3").rowwise
    for one in found.values():
        assert reader.read_bytes(one.codes).tobytes() == want.codes.tobytes()
        assert reader.read_bytes(one.scales).tobytes() == want.scales.tobytes()


def test_memory_does_not_grow_with_the_tensors(tmp_path):
    """The most memory of a process, for tensors of 8 and of 64 MB."""
    code = (
        "import sys; from pathlib import Path; from mxq.tools import quantize\n"
        "chosen = quantize.recipe('compressed-tensors', sys.argv[3])\n"
        "quantize.run(Path(sys.argv[1]), Path(sys.argv[2]), chosen, threads=2)\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    )
    most = {}
    for name, rows in (("small", 4096), ("large", 32768)):
        save(tmp_path / f"{name}.safetensors", {"a.weight": bf16(rows, 1024)})
        for format in ("mxfp8_e4m3", "nvfp4"):
            arguments = [str(tmp_path / f"{name}.safetensors"), str(tmp_path / f"{name}-{format}"), format]
            done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=os.environ)
            most[name, format] = int(done.stdout) * 1024
    for format in ("mxfp8_e4m3", "nvfp4"):
        assert most["large", format] < most["small", format] + 16e6 and most["large", format] < 150e6, most


# ---- Experts and shared scales ---------------------------------------------------------------------------------------

CT = "compressed-tensors"


def loaded(folder):
    return {one.name: stored.load(one) for one in stored.find(reader.open_checkpoint(folder)) if one.scales is not None}


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_a_stack_of_experts_is_quantized_as_it_is_and_split(tmp_path, row):
    x = bf16(3, 256, 128)
    save(tmp_path / "m.safetensors", {"layers.0.experts.up": x})
    options = {"include": ["*.experts.*"]}
    quantize.run(tmp_path / "m.safetensors", tmp_path / "kept", quantize.recipe(row.layout, row.format, row.scaling, **options))
    split = quantize.recipe(row.layout, row.format, row.scaling, experts="split", **options)
    quantize.run(tmp_path / "m.safetensors", tmp_path / "split", split)
    whole, parts = loaded(tmp_path / "kept"), loaded(tmp_path / "split")
    assert list(whole) == ["layers.0.experts.up.weight"] and whole["layers.0.experts.up.weight"].shape == (3, 256, 128)
    assert list(parts) == [f"layers.0.experts.{i}.up.weight" for i in range(3)]
    amax = layouts.power_of_two_amax(float(np.abs(x.astype("float32")).max())) if row.format == "nvfp4" else None
    matrix = mxq.quantize(x.reshape(768, 128), row.format, scaling=row.scaling, amax=amax)
    kept = whole["layers.0.experts.up.weight"]
    assert kept.rowwise.codes.tobytes() == matrix.rowwise.codes.tobytes()
    assert kept.rowwise.scales.tobytes() == matrix.rowwise.scales.tobytes()
    assert kept.dequantize().tobytes() == matrix.dequantize("float32").tobytes()
    for i, q in enumerate(parts.values()):
        one = float(np.abs(x[i].astype("float32")).max())
        amax = layouts.power_of_two_amax(one) if row.format == "nvfp4" else None
        want = mxq.quantize(x[i], row.format, scaling=row.scaling, amax=amax)
        assert q.rowwise.codes.tobytes() == want.rowwise.codes.tobytes()
        assert q.rowwise.scales.tobytes() == want.rowwise.scales.tobytes()


@pytest.mark.parametrize("layout, format", [(CT, "mxfp8_e4m3"), ("modelopt", "nvfp4"), ("gpt-oss", "mxfp4")])
def test_tensors_of_experts_become_a_stack(tmp_path, layout, format):
    experts = [bf16(40, 96, seed=i) for i in range(12)]  # 10 comes behind 9, not behind 1
    save(tmp_path / "m.safetensors", {f"l.experts.{i}.up.weight": x for i, x in enumerate(experts)} | {"l.o.bias": bf16(4)})
    quantize.run(tmp_path / "m.safetensors", tmp_path / "out", quantize.recipe(layout, format, experts="stack"))
    found = loaded(tmp_path / "out")
    amax = (
        layouts.power_of_two_amax(max(float(np.abs(x.astype("float32")).max()) for x in experts)) if format == "nvfp4" else None
    )
    want = mxq.quantize(np.stack(experts), format, amax=amax)
    (name, q), *_ = found.items()
    assert (
        name == ("l.experts.up" if layout == "gpt-oss" else "l.experts.up.weight")
        and len(found) == 1
        and q.shape == (12, 40, 96)
    )
    assert (
        q.rowwise.codes.tobytes() == want.rowwise.codes.tobytes()
        and q.rowwise.scales.tobytes() == want.rowwise.scales.tobytes()
    )
    assert q.dequantize().tobytes() == want.dequantize("float32").tobytes()


def test_experts_that_make_no_stack_are_refused(tmp_path):
    for name, tensors in (
        ("gap", {"l.experts.0.up.weight": bf16(64, 64), "l.experts.2.up.weight": bf16(64, 64)}),
        ("shape", {"l.experts.0.up.weight": bf16(64, 64), "l.experts.1.up.weight": bf16(32, 64)}),
    ):
        save(tmp_path / f"{name}.safetensors", tensors)
        with pytest.raises(reader.CheckpointError, match="experts from 0 on without gaps, of one shape"):
            quantize.run(tmp_path / f"{name}.safetensors", tmp_path / "out", quantize.recipe(CT, "mxfp4", experts="stack"))
    with pytest.raises(mxq.Error, match="expected experts in a stack"):
        quantize.recipe("gpt-oss", "mxfp4", experts="split")
    assert not (tmp_path / "out.partial").exists()


def test_tensors_that_engines_join_share_a_global_scale(tmp_path):
    names = [
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
        "experts.0.w1",
        "experts.0.w3",
        "experts.1.w1",
    ]
    tensors = {
        f"layers.{l}.{name}.weight": (bf16(32, 64, seed=l) * (4.0**i)).astype("float32")
        for l in range(2)
        for i, name in enumerate(names)
    }
    save(tmp_path / "m.safetensors", tensors)
    scales = {}
    for shared in (False, True):
        chosen = quantize.recipe(CT, "nvfp4", share_global=shared)
        quantize.run(tmp_path / "m.safetensors", tmp_path / str(shared), chosen)
        entries = reader.open_checkpoint(tmp_path / str(shared)).entries
        scales[shared] = {n: stored.array(entries[n + "_global_scale"]).item() for n in tensors}
    groups = {"q_proj": "v_proj", "k_proj": "v_proj", "gate_proj": "up_proj", "experts.0.w1": "experts.0.w3"}
    for name in tensors:
        head, tail = ".".join(name.split(".")[:2]), name[len("layers.0.") : -len(".weight")]
        assert scales[True][name] == scales[False][f"{head}.{groups.get(tail, tail)}.weight"]
    assert len(set(scales[True].values())) < len(set(scales[False].values()))
    for name, q in loaded(tmp_path / "True").items():
        want = mxq.quantize(tensors[name], "nvfp4", amax=2688 / scales[True][name])
        assert (
            q.rowwise.codes.tobytes() == want.rowwise.codes.tobytes()
            and q.rowwise.scales.tobytes() == want.rowwise.scales.tobytes()
        )
