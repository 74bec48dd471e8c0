"""Reads the golden vectors of tests/data (safetensors) as numpy arrays."""
import json
import os
from pathlib import Path

import numpy as np

DATA = Path(os.environ.get("MXQ_TEST_DATA_DIR", Path(__file__).resolve().parents[3] / "tests/data"))
_DTYPES = {"F32": "f4", "U8": "u1", "I32": "i4", "I64": "i8", "U64": "u8", "F8_E4M3": "u1", "F8_E5M2": "u1", "BF16": "u2"}


def load(name):
    """The tensors of a file by name. BF16 becomes float32, which has all of its values."""
    raw = (DATA / f"{name}.safetensors").read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    out = {}
    for key, entry in json.loads(raw[8:start]).items():
        if key == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        array = np.frombuffer(raw[start + first : start + last], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            array = (array.astype("u4") << 16).view("f4")
        out[key] = array
    return out


def same_bytes(array, expected):
    return array.tobytes() == expected.tobytes()
