"""The same program through ctypes: python3 program.py path/to/libmxq.so.0"""
import ctypes
import sys

lib = ctypes.CDLL(sys.argv[1])
lib.mxq_last_error.restype = ctypes.c_char_p
pointer, u64, i64, i32 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32
lib.mxq_tensor_create_2d.argtypes = [i32, i64, i64, ctypes.POINTER(pointer)]
lib.mxq_tensor_set_data.argtypes = [pointer, pointer, u64]
lib.mxq_tensor_set_part.argtypes = [pointer, i32, pointer, u64, pointer, u64]
lib.mxq_quantize.argtypes = [pointer, pointer, pointer, pointer, pointer, u64, pointer]
lib.mxq_context_create.argtypes = [i32, i32, pointer, ctypes.POINTER(pointer)]
for name in ("mxq_tensor_destroy", "mxq_context_destroy"):
    getattr(lib, name).argtypes = [pointer]
    getattr(lib, name).restype = None


def call(name, *arguments):
    if getattr(lib, name)(*arguments) != 0:
        sys.exit(lib.mxq_last_error().decode())


def constant(name):
    value = i64()
    call("mxq_constant", name.encode(), ctypes.byref(value))
    return value.value


x = (ctypes.c_float * 32)(448.0)
codes, scale = (ctypes.c_uint8 * 32)(), ctypes.c_uint8()
context, source, target = pointer(), pointer(), pointer()
call("mxq_context_create", constant("MXQ_DEVICE_CPU"), 0, None, ctypes.byref(context))
call("mxq_tensor_create_2d", constant("MXQ_FORMAT_F32"), 1, 32, ctypes.byref(source))
call("mxq_tensor_create_2d", constant("MXQ_FORMAT_MXFP8_E4M3"), 1, 32, ctypes.byref(target))
call("mxq_tensor_set_data", source, x, 128)
call("mxq_tensor_set_part", target, constant("MXQ_PART_ROWWISE"), codes, 32, ctypes.byref(scale), 1)
call("mxq_quantize", context, None, source, target, None, 0, None)
lib.mxq_tensor_destroy(target)
lib.mxq_tensor_destroy(source)
lib.mxq_context_destroy(context)
sys.exit(0 if (codes[0], codes[1], scale.value) == (0x7E, 0, 127) else "wrong bytes")
