"""Which library is opened, and two of them in one process."""
import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from test_arrays import numbers

import mxq
from mxq import _library, _raw


def opened():
    """The file of the library that this process opened."""
    return Path(os.environ.get("MXQ_LIBRARY") or Path(mxq.__file__).with_name("libmxq.so.0"))


def test_version_of_the_header():
    assert mxq.version() == mxq.__version__ == _raw.VERSION


def test_two_copies_in_one_process(tmp_path):
    other = ctypes.CDLL(shutil.copy(opened(), tmp_path / "libmxq.so.0"))
    for name, (result, parameters) in _raw.PROTOTYPES.items():
        getattr(other, name).restype, getattr(other, name).argtypes = result, parameters
    address = [ctypes.cast(library.mxq_quantize, ctypes.c_void_p).value for library in (other, _library.lib)]
    assert address[0] != address[1]
    context, tensor = ctypes.c_void_p(), ctypes.c_void_p()
    assert other.mxq_context_create(_raw.MXQ_DEVICE_CPU, 0, None, context) == 0
    assert other.mxq_tensor_create_2d(_raw.MXQ_FORMAT_F32, -1, 4, tensor) == _raw.MXQ_STATUS_INVALID_ARGUMENT
    assert b"mxq_tensor_create_2d" in other.mxq_last_error() and b"create_2d" not in _library.lib.mxq_last_error()
    x = numbers(64, 64)
    expected = mxq.quantize(x).rowwise.codes.copy()
    other.mxq_context_destroy(context)
    assert np.array_equal(mxq.quantize(x).rowwise.codes, expected)


def run(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment})


def test_a_library_that_is_not_there_is_named():
    result = run("import mxq", MXQ_LIBRARY="/nowhere/libmxq.so.0")
    assert "ImportError: mxq: cannot open libmxq (/nowhere/libmxq.so.0" in result.stderr and "MXQ_LIBRARY" in result.stderr


def test_after_a_fork():
    code = """
import multiprocessing as mp, numpy as np, mxq
x = np.ones((256, 256), "f4")
mxq.quantize(x)
def work(queue): queue.put(int(mxq.quantize(x).rowwise.codes.astype(int).sum()))
context = mp.get_context("fork"); queue = context.Queue()
child = context.Process(target=work, args=(queue,)); child.start()
print(queue.get(timeout=60) == int(mxq.quantize(x).rowwise.codes.astype(int).sum()))
child.join()
"""
    result = run(code)
    assert result.stdout.strip() == "True", result.stderr
