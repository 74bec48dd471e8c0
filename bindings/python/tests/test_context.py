"""Contexts, threads and the log."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_arrays import numbers

import mxq


@pytest.fixture
def lines():
    """The lines of the log during a test."""
    found = []
    mxq.set_log_callback(lambda level, line: found.append((level, line)))
    yield found
    mxq.set_log_callback(None)


@pytest.fixture
def ignored(monkeypatch):
    """The exceptions of callbacks, which nobody can catch."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: found.append(raised.exc_type))
    return found


def test_log(lines, ignored):
    x = numbers(16, 64)
    q = mxq.quantize(x, scale_rounding="floor")
    assert q @ q.T is not None and len(lines) == 2
    assert lines[0][0] == "info" and "quantize" in lines[0][1] and "mxfp8_e4m3 16 x 64" in lines[0][1] and "gemm" in lines[1][1]
    mxq.set_log_callback(lambda level, line: 1 / 0, "info")  # an exception does not reach the call
    assert mxq.quantize(x).rowwise.codes.any() and ignored == [ZeroDivisionError]
    with pytest.raises(mxq.Error, match="level is 'loud', expected one of off, info, trace"):
        mxq.set_log_callback(print, "loud")
    mxq.set_log_callback(None)
    mxq.quantize(x)
    assert len(lines) == 2


def test_own_context():
    context = mxq.Context("cpu", threads=1, own_threads=True)
    assert "CPU, 1 thread" in repr(context)
    x = numbers(16, 64)
    assert np.array_equal(mxq.quantize(x, context=context).rowwise.codes, mxq.quantize(x).rowwise.codes)
    context._device = (2, 0)
    with pytest.raises(mxq.Error, match="on cpu, but the context is of cuda:0"):
        mxq.quantize(x, context=context)
    with pytest.raises(mxq.Error) as error:
        mxq.Context("cuda", 99)
    assert error.value.code == "NO_DEVICE"
    with pytest.raises(mxq.Error, match="expected one of cpu, cuda"):
        mxq.Context("gpu")
    with pytest.raises(mxq.Error, match="threads"):
        mxq.Context("cpu", threads=-1)


def test_context_of_a_block():
    counts = []

    def one_after_another(count, task):
        counts.append(count)
        for index in range(count):
            task(index)

    x = numbers(512, 512)
    expected = mxq.quantize(x)
    with mxq.Context("cpu", threads=3, parallel_for=one_after_another) as outer:
        q = mxq.quantize(x)
        assert np.array_equal(q.rowwise.codes, expected.rowwise.codes) and len(counts) > 0
        seen = len(counts)
        with mxq.Context("cpu", threads=1):
            mxq.quantize(x)
        assert len(counts) == seen
        y = q @ q.T
        assert len(counts) > seen and "3 threads" in outer.description
        seen = len(counts)
        other = threading.Thread(target=mxq.quantize, args=(x,))
        other.start()
        other.join()
        assert len(counts) == seen  # a block is of its thread
    assert np.array_equal(y, expected @ expected.T)
    mxq.quantize(x)
    assert len(counts) == seen


def test_threads_of_the_host(ignored):
    x = numbers(512, 512)
    expected, ran = mxq.quantize(x), set()

    with ThreadPoolExecutor(2) as pool:

        def parallel_for(count, task):
            def one(index):
                ran.add(threading.get_ident())
                task(index)

            list(pool.map(one, range(count)))

        context = mxq.Context("cpu", threads=2, parallel_for=parallel_for)
        assert np.array_equal(mxq.quantize(x, context=context).rowwise.codes, expected.rowwise.codes)
        assert ran and threading.get_ident() not in ran

    def fails(count, task):
        raise ValueError("no threads today")

    with mxq.Context("cpu", threads=2, parallel_for=fails):
        assert np.array_equal(mxq.quantize(x).rowwise.codes, expected.rowwise.codes)
    assert set(ignored) == {ValueError}
