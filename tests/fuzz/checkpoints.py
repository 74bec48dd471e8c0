"""Fuzzes what mxq-quantize reads of strangers: .safetensors files, indexes and config.json, and the plan made of them.

    checkpoints.py --count N [--seed S]                  N inputs by a generator of random numbers, without any package's help
    checkpoints.py --atheris FOLDER -max_total_time=60   under atheris, guided by coverage (pip install atheris)
    checkpoints.py --only FILE                           one input again

Checks that each input is read or refused with CheckpointError, which names the file; that tensors of a checkpoint that is read
lie in its files; and that a plan has a source and an output of the same number of elements for each step. It needs the Python
package with numpy (PYTHONPATH=bindings/python/src, MXQ_LIBRARY).
"""

import argparse
import json
import math
import random
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, Dict, List, Sequence

NAMES = ["model.layers.0.mlp.experts.0.down_proj", "model.layers.0.mlp.experts.1.down_proj", "a", "lm_head", "b.gate_up_proj", "q_proj"]
ENDINGS = [".weight", ".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".weight_packed", ".weight_global_scale", ".scale"]
ENDINGS += ["_blocks", "_scales", ".blocks", ".scales", "", "_scale", "_scale_inv", ".bias", ".qweight", ".experts.99999999999.weight"]
DTYPES = ["F32", "BF16", "F16", "BF16", "F32", "BF16", "U8", "F8_E4M3", "F8_E8M0", "I8", "F4", "F6_E2M3", "I64", "BOOL", "F8_E5M2", "x"]
SIZES = [0, 1, 2, 3, 16, 32, 33, 128, 64, 129, 256, 2**31, 2**62, 2**63 - 1, -1]
CONFIGS: List[Any] = [
    {},
    {"model_type": "gpt_oss"},
    {"quantization_config": {"quant_method": "fp8"}},
    {"model_type": 7, "num_hidden_layers": "x"},
    {"text_config": {"compression_config": {"a": []}}},
    {"architectures": [None], "model_type": None},
    {"model_type": ["deepseek_v3"], "first_k_dense_replace": "3"},
]


class Choices:
    """Choices from the bytes of an input; 0 behind its end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def one_of(self, values: Sequence[Any]) -> Any:
        return values[self.byte() % len(values)]

    def rest(self) -> bytes:
        return self.data[self.at :]


def tensor(choices: Choices, end: int) -> Dict[str, Any]:
    """A header's entry that mostly is right and begins where the last one ended."""
    from mxq.tools.reader import BITS

    dtype = choices.one_of(DTYPES if choices.byte() % 4 == 0 else DTYPES[:3])
    wild = choices.byte() > 248
    shape = [choices.one_of(SIZES if wild else SIZES[4:8]) for _ in range(choices.one_of([2, 2, 2, 2, 3, 1, 0]))]
    nbytes = max(math.prod(shape) * BITS.get(dtype, 8) // 8, 0)
    entry: Dict[str, Any] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + nbytes]}
    if choices.byte() > 252:
        entry[choices.one_of(list(entry))] = choices.one_of([None, "x", [], [1], 1.5, {}, True, [-1, 2], [2**64, 0], [[0], 1]])
    return entry


def blob(choices: Choices) -> bytes:
    header: Dict[str, Any] = {}
    end = 0
    for _ in range(choices.byte() % 6):
        entry = tensor(choices, end)
        header[choices.one_of(NAMES) + choices.one_of(ENDINGS if choices.byte() % 2 else ENDINGS[:1])] = entry
        offsets = entry["data_offsets"]
        if isinstance(offsets, list) and len(offsets) == 2 and isinstance(offsets[1], int) and 0 <= offsets[1] < 1 << 22:
            end = offsets[1]
    if choices.byte() > 240:
        header["__metadata__"] = choices.one_of([{"format": "pt"}, {"a": 1}, [], None])
    text = json.dumps(header).encode()
    change = choices.byte()
    if change > 245:
        at = choices.byte() * 7 % (len(text) + 1)
        text = text[:at] + bytes([choices.byte()]) + text[at + choices.byte() % 3 :]
    length = len(text) if choices.byte() < 250 else choices.one_of([0, 1, len(text) + 1, 2**31, 2**63, 2**64 - 1])
    return length.to_bytes(8, "little") + text + bytes(end if choices.byte() < 250 else choices.byte())


def write(folder: Path, choices: Choices) -> Path:
    """Writes a checkpoint and returns its path. The first byte says of which kind."""
    kind = choices.byte() % 4
    if kind == 0:
        (folder / "model.safetensors").write_bytes(choices.rest())
        return folder / "model.safetensors"
    config = choices.one_of([None, *CONFIGS, b"[", b'{"a":1e999}'])
    if config is not None:
        (folder / "config.json").write_bytes(config if isinstance(config, bytes) else json.dumps(config).encode())
    if kind != 3:
        (folder / "model.safetensors").write_bytes(blob(choices))
        return folder if kind == 1 else folder / "model.safetensors"
    names = ["m-1.safetensors", "m-2.safetensors"]
    for name in names:
        (folder / name).write_bytes(blob(choices))
    bad = [3, None, "../x.safetensors", "/etc/passwd", "missing.safetensors", "m-1.safetensors\0"]
    weight_map = {}
    for _ in range(choices.byte() % 5):
        weight_map[choices.one_of(NAMES) + choices.one_of(ENDINGS)] = choices.one_of(names if choices.byte() < 240 else bad)
    index = {"weight_map": weight_map if choices.byte() < 250 else choices.one_of([[], "x", None])}
    (folder / "model.safetensors.index.json").write_bytes(json.dumps(index).encode())
    return folder


def check_steps(steps: Dict[str, List[Any]]) -> None:
    for step in (step for of_file in steps.values() for step in of_file):
        elements = sum(math.prod(source.shape) for source in step.sources)
        assert step.sources and step.outputs, "a step without a source or an output"
        assert math.prod(step.shape) == elements or not step.layout, "a step of other elements than its sources"


def read(path: Path, choices: Choices) -> str:
    """Reads and plans as mxq-quantize does. Returns what came of it."""
    from mxq._library import Error
    from mxq.tools import layouts, plan, reader, stored

    try:
        checkpoint = reader.open_checkpoint(path)
        for entry in checkpoint.entries.values():
            assert 0 <= entry.start <= entry.end <= entry.path.stat().st_size, "a tensor outside of its file"
            if entry.nbytes < 4096:
                assert reader.read_bytes(entry).nbytes == entry.nbytes
        stored.find(checkpoint)
        row = choices.one_of(layouts.LAYOUTS)
        chosen = plan.recipe(row.layout, row.format, row.scaling, ("*",) if choices.byte() % 4 else (), (), choices.one_of(plan.EXPERTS))
        check_steps(plan.plan(checkpoint, chosen))
        return "planned"
    except reader.CheckpointError as error:
        assert str(path.parent if path.is_file() else path) in str(error) or path.name in str(error), f"no file is named: {error}"
        return "refused"
    except Error:
        return "refused"


def run(data: bytes) -> str:
    folder = Path(tempfile.mkdtemp(prefix="mxq-fuzz-", dir=_root))
    try:
        choices = Choices(data)
        return read(write(folder, choices), choices)
    finally:
        shutil.rmtree(folder)


_root = "/dev/shm" if Path("/dev/shm").is_dir() else None  # files of a few bytes, made and removed in turn


def run_random(count: int, seed: int) -> int:
    """Runs inputs of one seed. The last line has the counts."""
    results: Dict[str, int] = {}
    for number in range(count):
        data = random.Random(seed * 1_000_003 + number).randbytes(16 + number % 90)
        try:
            result = run(data)
        except Exception:  # noqa: BLE001  anything but a refusal is a fault
            traceback.print_exc()
            print(f"FAIL  checkpoints: input {number} of seed {seed}: {data.hex()}")
            print("0 passed, 1 failed, 0 skipped")
            return 1
        results[result] = results.get(result, 0) + 1
    print(f"{count} checkpoints: {results}")
    both = all(results.get(name, 0) > count // 50 for name in ("planned", "refused"))
    print("1 passed, 0 failed, 0 skipped" if both else "FAIL  checkpoints: too few planned or refused\n0 passed, 1 failed, 0 skipped")
    return 0 if both else 1


def run_atheris(arguments: List[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["mxq.tools"]):
        import mxq.tools.plan  # noqa: F401
    atheris.Setup([sys.argv[0], *arguments], lambda data: run(data) and None)
    atheris.Fuzz()


def main() -> int:
    if "--atheris" in sys.argv:
        run_atheris([word for word in sys.argv[1:] if word != "--atheris"])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=Path)
    arguments = parser.parse_args()
    if arguments.only:
        print(run(arguments.only.read_bytes()))
        return 0
    return run_random(arguments.count, arguments.seed)


if __name__ == "__main__":
    sys.exit(main())
