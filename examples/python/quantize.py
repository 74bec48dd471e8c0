"""Quantizes a small matrix to MXFP8 E4M3 through ctypes, as quantize.c does. Needs nothing but the library.

    python3 quantize.py [path of libmxq.so]
"""
import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_float, c_int32, c_int64, c_uint8, c_uint64, c_void_p, sizeof

mxq = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libmxq.so.0")
mxq.mxq_last_error.restype = c_char_p
mxq.mxq_version_string.restype = c_char_p
mxq.mxq_context_description.restype = c_char_p
mxq.mxq_context_description.argtypes = [c_void_p]
mxq.mxq_tensor_destroy.argtypes = [c_void_p]
mxq.mxq_context_destroy.argtypes = [c_void_p]
mxq.mxq_constant.argtypes = [c_char_p, POINTER(c_int64)]
mxq.mxq_context_create.argtypes = [c_int32, c_int32, c_void_p, POINTER(c_void_p)]
mxq.mxq_tensor_create_2d.argtypes = [c_int32, c_int64, c_int64, POINTER(c_void_p)]
mxq.mxq_tensor_set_data.argtypes = [c_void_p, c_void_p, c_uint64]
mxq.mxq_tensor_set_part.argtypes = [c_void_p, c_int32, c_void_p, c_uint64, c_void_p, c_uint64]
for verb in (mxq.mxq_quantize, mxq.mxq_dequantize):
    verb.argtypes = [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_uint64, c_void_p]


def check(status):
    if status:
        raise RuntimeError(mxq.mxq_last_error().decode())


def constant(name):
    value = c_int64()
    check(mxq.mxq_constant(name.encode(), byref(value)))
    return value.value


def tensor(format, rows, cols):
    handle = c_void_p()
    check(mxq.mxq_tensor_create_2d(constant(format), rows, cols, byref(handle)))
    return handle


rows, cols, blocks = 2, 64, 2
count = rows * cols
values = (c_float * count)(*((i % 32 + 1) * (1 if i < cols else 1000) * (-1) ** i for i in range(count)))
back, codes, scales = (c_float * count)(), (c_uint8 * count)(), (c_uint8 * (rows * blocks))()

context = c_void_p()
check(mxq.mxq_context_create(constant("MXQ_DEVICE_CPU"), 0, None, byref(context)))
x, q, y = (tensor(f, rows, cols) for f in ("MXQ_FORMAT_F32", "MXQ_FORMAT_MXFP8_E4M3", "MXQ_FORMAT_F32"))
check(mxq.mxq_tensor_set_data(x, values, sizeof(values)))
check(mxq.mxq_tensor_set_data(y, back, sizeof(back)))
check(mxq.mxq_tensor_set_part(q, constant("MXQ_PART_ROWWISE"), codes, sizeof(codes), scales, sizeof(scales)))

check(mxq.mxq_quantize(context, None, x, q, None, 0, None))
check(mxq.mxq_dequantize(context, None, q, y, None, 0, None))

print(f"libmxq {mxq.mxq_version_string().decode()} on {mxq.mxq_context_description(context).decode()}")
for i in range(rows * blocks):
    first = slice(32 * i, 32 * i + 3)
    print(f"row {i // blocks}, block {i % blocks}: scale {scales[i]:3} = 2^{scales[i] - 127};",
          "first codes", *(f"{code:02X}" for code in codes[first]), end="; ")
    print("first values", *(f"{v:g}" for v in back[first]), end=", was ")
    print(*(f"{v:g}" for v in values[first]))

for handle in (x, q, y):
    mxq.mxq_tensor_destroy(handle)
mxq.mxq_context_destroy(context)
