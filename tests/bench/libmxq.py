"""libmxq through ctypes, for the benchmarks that use torch: tensors in torch's memory, and calls of the verbs."""
import ctypes
from ctypes import byref, c_char_p, c_int32, c_int64, c_uint64, c_void_p

import torch

PLAIN = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


class Library:
    """The library, a context of the current CUDA device, and the constants by name."""

    def __init__(self, path):
        self.functions = ctypes.CDLL(path)
        for name in ("mxq_last_error", "mxq_plan_implementation", "mxq_plan_reason", "mxq_version_string"):
            getattr(self.functions, name).restype = c_char_p
        self.functions.mxq_plan_workspace_bytes.restype = c_uint64
        self.context = self.create("mxq_context_create", c_int32(self.constant("DEVICE_CUDA")),
                                   c_int32(torch.cuda.current_device()), None)

    def call(self, name, *arguments):
        if getattr(self.functions, name)(*arguments):
            raise RuntimeError(self.functions.mxq_last_error().decode())

    def create(self, name, *arguments):
        handle = c_void_p()
        self.call(name, *arguments, byref(handle))
        return handle

    def constant(self, name):
        value = c_int64()
        self.call("mxq_constant", b"MXQ_" + name.encode(), byref(value))
        return value.value

    def _set_groups(self, tensor, ends):
        if ends is not None:
            kind = self.constant("TYPE_INT32")
            self.call("mxq_tensor_set_groups", tensor, c_void_p(ends.data_ptr()), c_uint64(4 * len(ends)), kind, len(ends))

    def _create(self, format, shape):
        extents = [c_int64(extent) for extent in shape]
        return self.create(f"mxq_tensor_create_{len(shape)}d", c_int32(self.constant("FORMAT_" + format.upper())), *extents)

    def plain(self, values, ends=None):
        """A descriptor of a contiguous torch tensor."""
        tensor = self._create(PLAIN[values.dtype], values.shape)
        self._set_groups(tensor, ends)
        self.call("mxq_tensor_set_data", tensor, c_void_p(values.data_ptr()), c_uint64(values.nbytes))
        return tensor

    def quantized(self, format, shape, part="ROWWISE", scaling=None, swizzled=False, ends=None):
        """A descriptor, and the memory that it stands for."""
        tensor = self._create(format, shape)
        if scaling:
            self.call("mxq_tensor_set_scaling", tensor, self.constant("SCALING_" + scaling))
        if swizzled:
            self.call("mxq_tensor_set_swizzled", tensor, 1)
        self._set_groups(tensor, ends)
        parts, size = self.constant("PART_" + part), c_uint64()
        self.call("mxq_tensor_total_bytes", tensor, parts, byref(size))
        memory = torch.empty(size.value, dtype=torch.uint8, device="cuda")
        self.call("mxq_tensor_set_memory", tensor, parts, c_void_p(memory.data_ptr()), size)
        return tensor, memory

    def product_options(self, transposes, implementation=None):
        options = self.create("mxq_gemm_options_create")
        letters = [self.constant("TRANSPOSE_" + letter) for letter in transposes]
        self.call("mxq_gemm_options_set_transpose", options, *letters)
        if implementation:
            self.call("mxq_gemm_options_set_implementation", options, implementation.encode())
        return options

    def verb(self, name, options, *tensors):
        """Returns a call of a verb that has its workspace, and the name of its implementation."""
        plan = c_void_p()
        self.call(f"mxq_{name}_query", self.context, options, *tensors, byref(plan))
        size = c_uint64(self.functions.mxq_plan_workspace_bytes(plan))
        implementation = self.functions.mxq_plan_implementation(plan).decode()
        self.functions.mxq_plan_destroy(plan)
        memory = torch.empty(size.value, dtype=torch.uint8, device="cuda")

        def run():
            stream = c_void_p(torch.cuda.current_stream().cuda_stream)
            self.call(f"mxq_{name}", self.context, options, *tensors, c_void_p(memory.data_ptr() or None), size, stream)

        return run, implementation
