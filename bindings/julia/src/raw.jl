# Made by bindings/generate.py from include/mxq/mxq.h of libmxq 0.2.0; change the header, not this file.

const MXQ_VERSION_MAJOR = Int32(0)
const MXQ_VERSION_MINOR = Int32(2)
const MXQ_VERSION_PATCH = Int32(0)
# Version of this header as mxq_version gives that of the library: major * 10000 + minor * 100 + patch, for #if.
const MXQ_VERSION = Int32(200)
# Families of constants have types of their own, all int32_t, so that signatures say which constants they take.
const mxq_status = Int32
const MXQ_STATUS_OK = mxq_status(0)
# NULL handle, unknown value, negative size, overlapping buffers and the like
const MXQ_STATUS_INVALID_ARGUMENT = mxq_status(1)
# shapes of the tensors do not fit together
const MXQ_STATUS_SHAPE_MISMATCH = mxq_status(2)
# this call needs a pointer that is NULL, or a part that was not set
const MXQ_STATUS_MISSING_BUFFER = mxq_status(3)
# a byte extent is shorter than mxq_tensor_required_bytes, or the workspace too small
const MXQ_STATUS_BUFFER_TOO_SMALL = mxq_status(4)
# a pointer is not a multiple of its element's size
const MXQ_STATUS_MISALIGNED = mxq_status(5)
# this verb does not take the format or feature, or no implementation takes it here
const MXQ_STATUS_UNSUPPORTED = mxq_status(6)
# no such device, no driver, or the library was built without CUDA
const MXQ_STATUS_NO_DEVICE = mxq_status(7)
# host memory
const MXQ_STATUS_OUT_OF_MEMORY = mxq_status(8)
# CUDA refused a launch or reports an earlier failure; the message quotes CUDA
const MXQ_STATUS_CUDA_ERROR = mxq_status(9)
# a fault of the library: please report it with the message
const MXQ_STATUS_INTERNAL_ERROR = mxq_status(10)
# Which lines are wanted, and what a line is.
const mxq_log_level = Int32
# no line
const MXQ_LOG_OFF = mxq_log_level(0)
# a line for each verb that runs
const MXQ_LOG_INFO = mxq_log_level(1)
# also a line for each implementation that declined
const MXQ_LOG_TRACE = mxq_log_level(2)
# A format says how elements and their scales are stored. 0 is "unset".
const mxq_format = Int32
const MXQ_FORMAT_F32 = mxq_format(1)
const MXQ_FORMAT_F16 = mxq_format(2)
const MXQ_FORMAT_BF16 = mxq_format(3)
# OCP MX: FP8 E4M3 codes (max 448, NaN 0x7F), one E8M0 scale per block of 32
const MXQ_FORMAT_MXFP8_E4M3 = mxq_format(4)
# OCP MX: FP8 E5M2 codes (max 57344, has Inf), one E8M0 scale per block of 32
const MXQ_FORMAT_MXFP8_E5M2 = mxq_format(5)
# OCP MX: FP6 E2M3 codes (max 7.5), four in three bytes, one E8M0 scale per block of 32
const MXQ_FORMAT_MXFP6_E2M3 = mxq_format(6)
# OCP MX: FP6 E3M2 codes (max 28), four in three bytes, one E8M0 scale per block of 32
const MXQ_FORMAT_MXFP6_E3M2 = mxq_format(7)
# OCP MX: FP4 E2M1 codes (max 6), two a byte, one E8M0 scale per block of 32
const MXQ_FORMAT_MXFP4 = mxq_format(8)
# FP4 E2M1 codes, two a byte, one E4M3 scale per block of 16, one fp32 amax above them
const MXQ_FORMAT_NVFP4 = mxq_format(9)
# FP8 E4M3 codes, fp32 scales
const MXQ_FORMAT_FP8_E4M3 = mxq_format(10)
# FP8 E5M2 codes, fp32 scales
const MXQ_FORMAT_FP8_E5M2 = mxq_format(11)
# Which elements share a scale. An E8M0 scale (MX) has the value 2^(byte - 127), 255 is NaN. FP8 has fp32 scales. A value is
# its code times its scale.
const mxq_scaling = Int32
# F32, F16, BF16
const MXQ_SCALING_NONE = mxq_scaling(0)
# MX (default): 32 neighbours along the part's contraction
const MXQ_SCALING_1X32 = mxq_scaling(1)
# MX: square tiles; the rowwise and the columnwise part have the same values and scales
const MXQ_SCALING_32X32 = mxq_scaling(2)
# MX, FP8: 128 neighbours along the part's contraction
const MXQ_SCALING_1X128 = mxq_scaling(3)
# MX, FP8: square tiles
const MXQ_SCALING_128X128 = mxq_scaling(4)
# NVFP4 (default): 16 neighbours along the part's contraction
const MXQ_SCALING_1X16 = mxq_scaling(5)
# NVFP4: square tiles, their scale stored for each of the 16 rows of codes
const MXQ_SCALING_16X16 = mxq_scaling(6)
# MX, FP8: a whole row (rowwise) or column (columnwise) of the matrix; with groups the
# group's part of a column
const MXQ_SCALING_ROW = mxq_scaling(7)
# FP8 (default): the whole tensor, or an expert or group of it
const MXQ_SCALING_TENSOR = mxq_scaling(8)
# Properties of a format.
const mxq_property = Int32
# bits of one element or code
const MXQ_PROPERTY_ELEMENT_BITS = mxq_property(1)
# elements that share a scale along the contraction with the default scaling: 1 for F32,
# F16, BF16; 0 (all of them) for FP8
const MXQ_PROPERTY_BLOCK = mxq_property(2)
# 1: codes and scales, made by mxq_quantize; 0: plain numbers
const MXQ_PROPERTY_QUANTIZED = mxq_property(3)
mutable struct mxq_context end
mutable struct mxq_context_options end
# Device types; the numbers are DLPack's.
const mxq_device = Int32
const MXQ_DEVICE_CPU = mxq_device(1)
const MXQ_DEVICE_CUDA = mxq_device(2)
# A descriptor: format, shape, and where the bytes are. It owns no memory.
#
# Plain tensors (F32, F16, BF16) are row-major: rows x cols elements, or experts x rows x cols, each row starting
# row_stride elements after the one before, experts one after another (expert e starts at row e * rows).
#
# Quantized tensors have one or two parts, each with codes and scales:
#
#     part         codes          blocks run
#     rowwise      (rows, cols)   along a row:    the contraction is cols
#     columnwise   (cols, rows)   down a column:  the contraction is rows
#
# so columnwise codes are stored transposed; rows and cols of the descriptor are those of the matrix, whatever its parts. With
# experts, each expert's matrices follow one another, codes (experts, cols, rows) for the columnwise part. A partial last block
# uses the elements that exist.
#
# Codes of 8 bits are bytes. Every row of codes, a `line` in the names of arguments, starts on a byte and has ceil(codes *
# bits / 8) of them, unused bits 0:
#
#     4 bits   two a byte, the even element in the low half
#     6 bits   four in three bytes: element i in bits 6 i .. 6 i + 5 of a little-endian 24-bit word
#
# Scales of an (R, C) matrix of codes (rowwise R = rows, C = cols; columnwise R = cols, C = rows), compact, row-major:
#
#     1X32, 1X16, 1X128     (R, ceil(C / block))
#     32X32, 128X128        (ceil(R / tile), ceil(C / tile)): the columnwise matrix is the transpose of the rowwise one
#     16X16 (NVFP4)         as 1X16: a tile's scale is stored for each of its 16 rows
#     ROW                   (R)
#     TENSOR                one, or one for each expert or group (mxq_tensor_set_scope)
#
# Swizzled scales are what block-scaled tensor cores read:
#
#     MX, NVFP4   the (R, ceil(C / 32)) (NVFP4: 16) matrix of bytes in tiles of 128 x 4: scale (i, j) is byte
#                 ((i / 128) * ceil(ceil(C / 32) / 4) + j / 4) * 512 + (i % 32) * 16 + (i % 128) / 32 * 4 + j % 4; bytes
#                 that belong to no scale are written as 0, and only cuBLASLt reads them (cublaslt, cublaslt_grouped). A
#                 coarser tile's byte is stored at every position that it covers, so that whatever reads 1X32 scales also
#                 reads 32X32, 1X128, 128X128 and ROW. That it is the same over the whole tile, no verb checks.
#     FP8         1X128: (ceil(C / 128), R). 128X128: (ceil(R / 128), ceil(C / 128) rounded up to a multiple of 4 with +0).
#                 With groups, of rowwise parts only. ROW and TENSOR have no swizzled layout.
#
# With experts, each expert's matrix is padded by itself.
#
# An address must be a multiple of its element's size. Fast kernels want more, and others take over where it is missing: data,
# codes and scales at multiples of 16 bytes (mxq_tensor_set_memory gives 256), and rows of a multiple of 16 bytes: the row
# stride of a plain tensor, and a row of codes. With groups, columnwise parts have these if the columnwise alignment is at
# least 16 codes of 8 bits, 64 of 6 or 32 of 4 (more than NVFP4's default).
mutable struct mxq_tensor end
const mxq_part = Int32
const MXQ_PART_ROWWISE = mxq_part(1)
const MXQ_PART_COLUMNWISE = mxq_part(2)
# where a function takes several parts: both of them
const MXQ_PART_BOTH = mxq_part(3)
# Integer types of arrays that the caller keeps.
const mxq_type = Int32
const MXQ_TYPE_INT32 = mxq_type(1)
const MXQ_TYPE_INT64 = mxq_type(2)
# largest rows, cols, experts; rows x cols x experts may reach 2^48
const MXQ_MAX_DIM = Int32(2147483647)
# largest number of groups
const MXQ_MAX_GROUPS = Int32(4096)
# How far one amax, decode scale, quantization scale or TENSOR scale reaches. The first three are refused with TENSOR where
# they have the bytes of one for each expert or group.
const mxq_scope = Int32
# default: one for the whole tensor
const MXQ_SCOPE_TENSOR = mxq_scope(1)
# one for each expert or group; a matrix without groups has one
const MXQ_SCOPE_EXPERT = mxq_scope(2)
# Options of quantize and all other verbs but products. NULL means defaults. Options that mean nothing to a call are refused
# (INVALID_ARGUMENT): those of another verb, format or scaling, a Hadamard transform of a part that out does not declare,
# epsilon and powers of two with a given quantization scale. Options that were set to their default are refused alike, but
# NONE, 0 and NULL, where they are the default, take an option back. mxq_amax takes all that the quantize after it takes.
mutable struct mxq_quantize_options end
# MX: how a block's largest magnitude a becomes its power-of-two scale; max and emax are those of the element type.
const mxq_scale_rounding = Int32
# floor(log2 a) - emax: OCP MX 1.0; the largest elements may saturate
const MXQ_SCALE_ROUNDING_FLOOR = mxq_scale_rounding(1)
# ceil(log2 a) - emax
const MXQ_SCALE_ROUNDING_CEIL = mxq_scale_rounding(2)
# FLOOR after rounding a to the element's mantissa
const MXQ_SCALE_ROUNDING_EVEN = mxq_scale_rounding(3)
# default: ceil(log2(a / max)); nothing saturates
const MXQ_SCALE_ROUNDING_RCEIL = mxq_scale_rounding(4)
# MX: what a NaN or an infinity in a block does. (NVFP4 and FP8 ignore NaN in maxima; as an element NaN becomes a NaN code,
# or the largest value where the element type has no NaN.)
const mxq_nonfinite = Int32
# default: scale 255 and NaN codes (0 where there are none) for the whole block
const MXQ_NONFINITE_PROPAGATE = mxq_nonfinite(1)
# NaN: a NaN code (or the largest), else ignored; infinities saturate under scale 0xFE
const MXQ_NONFINITE_SATURATE = mxq_nonfinite(2)
# NVFP4: each block takes the better of two scales, which map its largest magnitude to 6 or to 4.
const mxq_four_over_six = Int32
# default: no choice, the scale maps to 6
const MXQ_FOUR_OVER_SIX_NONE = mxq_four_over_six(0)
# the scale with the smaller sum of absolute errors
const MXQ_FOUR_OVER_SIX_MAE = mxq_four_over_six(1)
# the scale with the smaller sum of squared errors
const MXQ_FOUR_OVER_SIX_MSE = mxq_four_over_six(2)
# Options of gemm and grouped_gemm. NULL means defaults: A as it is, B transposed (the forward pass).
mutable struct mxq_gemm_options end
const mxq_transpose = Int32
# op(A) is A
const MXQ_TRANSPOSE_N = mxq_transpose(1)
# op(A) is A transposed
const MXQ_TRANSPOSE_T = mxq_transpose(2)
# Every verb has a query with the same arguments, without workspace and stream. It checks shapes, formats and options as
# the verb does, and pointers where they are set. It returns MXQ_STATUS_OK where the verb would run, and *plan tells how;
# otherwise it returns the verb's status with *plan NULL, and for UNSUPPORTED the message tells why each implementation
# declined. `plan` may be NULL. A query reads no memory but descriptors, options and the copy that mxq_tensor_set_host_ends
# names: ends out of order, which a CPU context refuses, are found by the verb alone.
mutable struct mxq_plan end
# The class of bound that a product's error keeps; mxq_gemm tells what each class promises.
const mxq_bound = Int32
# the verb is no product: its bytes are the same everywhere
const MXQ_BOUND_NONE = mxq_bound(0)
# products of two values are exact, sums are rounded to fp32
const MXQ_BOUND_EXACT_PRODUCTS = mxq_bound(1)
# products of two codes are exact, FP8 tensor cores cut the sums of 32 products
const MXQ_BOUND_FP8_TENSOR_CORES = mxq_bound(2)
# the same, after MX operands were given wider scales, which rounds small codes
const MXQ_BOUND_REBASED = mxq_bound(3)
# the same, but blocks far below their neighbours keep scales of their own
const MXQ_BOUND_REBASED_GUARDED = mxq_bound(4)
# products of two codes are exact; not measured: how FP8 and FP4 tensor cores sum
const MXQ_BOUND_BLACKWELL_TENSOR_CORES = mxq_bound(5)
# Names the activation between the two products of a feed-forward layer. g is the gate and u is `up`, each with its bias;
# sigmoid(x) is 1 / (1 + e^-x). docs/numerics.md has each step and what NaN, infinities and -0 give. Since 0.3.
const mxq_activation = Int32
# default: g sigmoid(g) u. Since 0.3
const MXQ_ACTIVATION_SWIGLU = mxq_activation(1)
# g (1 + erf(g / sqrt 2)) / 2 u. Since 0.3
const MXQ_ACTIVATION_GEGLU_ERF = mxq_activation(2)
# g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))) / 2 u. Since 0.3
const MXQ_ACTIVATION_GEGLU_TANH = mxq_activation(3)
# g sigmoid(alpha g) (u + addend), with g at most limit, u within +-limit. Since 0.3
const MXQ_ACTIVATION_SWIGLU_CLAMPED = mxq_activation(4)
# without a gate: x sigmoid(x). Since 0.3
const MXQ_ACTIVATION_SILU = mxq_activation(5)
# without a gate: x (1 + erf(x / sqrt 2)) / 2. Since 0.3
const MXQ_ACTIVATION_GELU_ERF = mxq_activation(6)
# without a gate: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. Since 0.3
const MXQ_ACTIVATION_GELU_TANH = mxq_activation(7)
# without a gate: max(x, 0)^2. Since 0.3
const MXQ_ACTIVATION_SQUARED_RELU = mxq_activation(8)
# Which columns of a row of 2 I are gates, and which are `up`. Since 0.3.
const mxq_gate_layout = Int32
# default: I gates, then I ups. Since 0.3
const MXQ_GATE_LAYOUT_GATE_UP = mxq_gate_layout(1)
# I ups, then I gates. Since 0.3
const MXQ_GATE_LAYOUT_UP_GATE = mxq_gate_layout(2)
# gate, up, gate, up, ..., as gpt-oss has them. Since 0.3
const MXQ_GATE_LAYOUT_INTERLEAVED_GATE_UP = mxq_gate_layout(3)
# up, gate, up, gate, ... Since 0.3
const MXQ_GATE_LAYOUT_INTERLEAVED_UP_GATE = mxq_gate_layout(4)
# Options of activate, each at its default until it is set. NULL means defaults: SwiGLU, the gates first. Options that mean
# nothing to a call are refused (INVALID_ARGUMENT): a gate layout or a clamp of an activation that has none, options of
# quantize where out is plain or that mean nothing to its format. Since 0.3.
mutable struct mxq_activate_options end
# A descriptor of one routing: each of T tokens chooses k of E experts. It owns no memory. Letters: T tokens, k choices, S
# = T * k. Choice j of token t has the number t * k + j. mxq_route computes, all int32 but the last:
#
#     ends          (experts of this rank)   one past the last row of each expert: groups for mxq_tensor_set_groups
#     row_tokens    (S)                      the token of each row; -1 for rows past the last end
#     choice_rows   (T, k)                   the row of each choice; -1 for a choice that is dropped
#     row_weights   (S), F32                 the weight of each row, where weights are set; 0 for rows past the last end
#
# Rows are sorted by expert, and rows of an expert by the number of their choice. Since 0.3.
mutable struct mxq_routing end
# Options of mxq_expert_layer, each at its default until it is set. What setters get is copied, but the memory that it
# points to. Since 0.3.
mutable struct mxq_expert_layer_options end

@doc raw"""
Version of the loaded library as major * 10000 + minor * 100 + patch (0.2.0 is 200).
"""
mxq_version() = @ccall libmxq.mxq_version()::Int32

@doc raw"""
Version of the loaded library as text, "0.2.0". Static storage.
"""
mxq_version_string() = @ccall libmxq.mxq_version_string()::Cstring

@doc raw"""
Returns what the loaded library was built with, "GCC 12.2.0, CUDA 13.0.48 for 80-real 90a-real" or "GCC 12.2.0, without
CUDA". Static storage.
"""
mxq_build_string() = @ccall libmxq.mxq_build_string()::Cstring

@doc raw"""
Name of a status, "MXQ_STATUS_SHAPE_MISMATCH"; "unknown status" for a number that is none. Static storage, never NULL.
"""
mxq_status_name(status) = @ccall libmxq.mxq_status_name(status::mxq_status)::Cstring

@doc raw"""
Message of the last call of this thread that failed; "" before the first. Valid until this thread's next failure.
"""
mxq_last_error() = @ccall libmxq.mxq_last_error()::Cstring

@doc raw"""
Value of any constant of this header by its name, for languages that cannot read a C header:
mxq_constant("MXQ_FORMAT_BF16", &value). INVALID_ARGUMENT for an unknown name or NULL.
"""
mxq_constant(name, value) = @ccall libmxq.mxq_constant(name::Cstring, value::Ptr{Int64})::mxq_status

@doc raw"""
Name of constant number `index`, from 0; NULL past the last. Static storage.
"""
mxq_constant_name(index) = @ccall libmxq.mxq_constant_name(index::Int32)::Cstring

@doc raw"""
Gives the lines up to `level` to the callback instead of writing them to stderr; MXQ_LOG then means nothing. It holds for the
whole process, as MXQ_LOG does and stderr is: a program has one log, whichever of its parts use the library. The callback is
called by the thread that calls a verb, before its work begins and while no lock is held, so that it may call the library;
lines of its own calls come to it as well. Several threads may call it concurrently. A call that began before may still use
the callback that was set before. NULL with MXQ_LOG_OFF and NULL (default): lines go to stderr as MXQ_LOG says.
"""
mxq_set_log_callback(callback, level, user) = @ccall libmxq.mxq_set_log_callback(callback::Ptr{Cvoid}, level::mxq_log_level, user::Ptr{Cvoid})::mxq_status

@doc raw"""
Name of a format, "mxfp8_e4m3"; NULL for an unknown one. Static storage.
"""
mxq_format_name(format) = @ccall libmxq.mxq_format_name(format::mxq_format)::Cstring

@doc raw"""
A property of a format. INVALID_ARGUMENT for an unknown format or property.
"""
mxq_format_property(format, property, value) = @ccall libmxq.mxq_format_property(format::mxq_format, property::mxq_property, value::Ptr{Int64})::mxq_status

@doc raw"""
Options of a context, each at its default until it is set.
"""
mxq_context_options_create(out) = @ccall libmxq.mxq_context_options_create(out::Ptr{Ptr{mxq_context_options}})::mxq_status

@doc raw"""
See `mxq_context_options_create`.
"""
mxq_context_options_destroy(options) = @ccall libmxq.mxq_context_options_destroy(options::Ptr{mxq_context_options})::Cvoid

@doc raw"""
Threads of the CPU backend, the calling one included: 1 to 1024, or 0 (default) for as many cores as the process may use:
those of the calling thread's affinity, but no more than the CPU quota of its cgroup (a container's limit), rounded up. A
CUDA context has no threads. (The instruction set is the fastest that the CPU has; the environment variable MXQ_CPU_ISA
names the most that it may be when a context is created: scalar, avx2, avx512bw, avx512 or avx512bf16. The bytes are the
same.)
"""
mxq_context_options_set_threads(options, threads) = @ccall libmxq.mxq_context_options_set_threads(options::Ptr{mxq_context_options}, threads::Int32)::mxq_status

@doc raw"""
0 (default): the context shares its threads with all CPU contexts of the process that have as many and were created under
the same affinity; they start with the first of these contexts and end with the last. Calls of several contexts then divide
the threads, and each caller works on its own call, so that none waits for another. 1: the context has threads of its own.
"""
mxq_context_options_set_own_threads(options, own) = @ccall libmxq.mxq_context_options_set_own_threads(options::Ptr{mxq_context_options}, own::Int32)::mxq_status

@doc raw"""
Runs the work of the CPU backend on threads of the host: the context starts none. parallel_for gets `user`, and a count of 2
up to the number of mxq_context_options_set_threads. It is called by the thread that calls a verb, once or more for a call,
and not at all for little work or in a forked child, where the calling thread does the work. When several threads call verbs,
several threads call it concurrently; tasks never wait for one another. It must be callable as long as the context lives.
The bytes, products too, are the same for any pool. Cannot be combined with threads of its own: the setter that is called
second is refused. NULL with NULL (default): the library's threads.
"""
mxq_context_options_set_parallel_for(options, parallel_for, user) = @ccall libmxq.mxq_context_options_set_parallel_for(options::Ptr{mxq_context_options}, parallel_for::Ptr{Cvoid}, user::Ptr{Cvoid})::mxq_status

@doc raw"""
The cuBLASLt that a CUDA context uses, as a file such as "/opt/cuda/lib64/libcublasLt.so.13"; no other file is tried. NULL
or "" (default): the file that the environment variable MXQ_CUBLASLT_PATH names when the process first needs one, or else
libcublasLt.so.13 or .12, first one that the process has loaded already, then one that the loader finds. Without cuBLASLt
the context uses other implementations, and mxq_context_cublaslt tells why. A CPU context does not use cuBLASLt.
"""
mxq_context_options_set_cublaslt_path(options, path) = @ccall libmxq.mxq_context_options_set_cublaslt_path(options::Ptr{mxq_context_options}, path::Cstring)::mxq_status

@doc raw"""
Each setter of options has a getter, which gives what was set or the default. Every output may be NULL for "not wanted". A
text is "" where none is set, and lives until its setter is called again or the options are destroyed.
"""
mxq_context_options_get_threads(options, threads) = @ccall libmxq.mxq_context_options_get_threads(options::Ptr{mxq_context_options}, threads::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_context_options_get_threads`.
"""
mxq_context_options_get_own_threads(options, own) = @ccall libmxq.mxq_context_options_get_own_threads(options::Ptr{mxq_context_options}, own::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_context_options_get_threads`.
"""
mxq_context_options_get_parallel_for(options, parallel_for, user) = @ccall libmxq.mxq_context_options_get_parallel_for(options::Ptr{mxq_context_options}, parallel_for::Ptr{Ptr{Cvoid}}, user::Ptr{Ptr{Cvoid}})::mxq_status

@doc raw"""
See `mxq_context_options_get_threads`.
"""
mxq_context_options_get_cublaslt_path(options, path) = @ccall libmxq.mxq_context_options_get_cublaslt_path(options::Ptr{mxq_context_options}, path::Ptr{Cstring})::mxq_status

@doc raw"""
Creates a context for one device: MXQ_DEVICE_CPU with ordinal 0, or MXQ_DEVICE_CUDA with a CUDA ordinal. options may be
NULL. It loads everything that a later call under graph capture must not load, so create it outside of capture. On failure
*out is NULL. NO_DEVICE: the message says whether the build has no CUDA, the driver is missing, there is no such device, or
it is older than compute capability 8.0.
"""
mxq_context_create(device_type, ordinal, options, out) = @ccall libmxq.mxq_context_create(device_type::mxq_device, ordinal::Int32, options::Ptr{mxq_context_options}, out::Ptr{Ptr{mxq_context}})::mxq_status

@doc raw"""
Destroys a context. No call may be using it; work that it enqueued may still be running.
"""
mxq_context_destroy(context) = @ccall libmxq.mxq_context_destroy(context::Ptr{mxq_context})::Cvoid

@doc raw"""
One line about the device, such as "CPU, 8 threads, avx2" or "CUDA 0, NVIDIA H200, sm_90". Lives as long as the context;
"" for NULL.
"""
mxq_context_description(context) = @ccall libmxq.mxq_context_description(context::Ptr{mxq_context})::Cstring

@doc raw"""
One line about the cuBLASLt that the context's products may use: its version and path, or why there is none. Lives as long
as the context; "" for NULL.
"""
mxq_context_cublaslt(context) = @ccall libmxq.mxq_context_cublaslt(context::Ptr{mxq_context})::Cstring

@doc raw"""
A descriptor for rows x cols; each may be 0. On failure *out is NULL.
"""
mxq_tensor_create_2d(format, rows, cols, out) = @ccall libmxq.mxq_tensor_create_2d(format::mxq_format, rows::Int64, cols::Int64, out::Ptr{Ptr{mxq_tensor}})::mxq_status

@doc raw"""
A descriptor for experts x rows x cols; each may be 0. On failure *out is NULL.
"""
mxq_tensor_create_3d(format, experts, rows, cols, out) = @ccall libmxq.mxq_tensor_create_3d(format::mxq_format, experts::Int64, rows::Int64, cols::Int64, out::Ptr{Ptr{mxq_tensor}})::mxq_status

mxq_tensor_destroy(tensor) = @ccall libmxq.mxq_tensor_destroy(tensor::Ptr{mxq_tensor})::Cvoid

@doc raw"""
Sets which elements share a scale: MXQ_SCALING_*, which says the formats that take it. For quantized tensors. Setters may be
called in any order, but where their comments say otherwise; the later one refuses what cannot go together, such as FP8's ROW
and swizzled scales.
"""
mxq_tensor_set_scaling(tensor, scaling) = @ccall libmxq.mxq_tensor_set_scaling(tensor::Ptr{mxq_tensor}, scaling::mxq_scaling)::mxq_status

@doc raw"""
1: the scales of every part are swizzled; 0 (default): compact. For quantized tensors.
"""
mxq_tensor_set_swizzled(tensor, swizzled) = @ccall libmxq.mxq_tensor_set_swizzled(tensor::Ptr{mxq_tensor}, swizzled::Int32)::mxq_status

@doc raw"""
Elements from one row to the next, at least cols (default cols). For plain tensors; the codes and scales of quantized ones
have mxq_tensor_set_strides. Nothing behind the last row's cols is touched: the tensor has (experts * rows - 1) * row stride
+ cols elements, none if it is empty. Tensors of equal strides in bytes may be column ranges of one buffer: only shared
elements overlap.
"""
mxq_tensor_set_row_stride(tensor, elements) = @ccall libmxq.mxq_tensor_set_row_stride(tensor::Ptr{mxq_tensor}, elements::Int64)::mxq_status

@doc raw"""
Data of a plain tensor. `bytes` is how much may be accessed from `data`. NULL with 0 clears the pointer. NULL with more is
refused, as by the other setters of a part and of its numbers: memory that could not be allocated looks so.
"""
mxq_tensor_set_data(tensor, data, bytes) = @ccall libmxq.mxq_tensor_set_data(tensor::Ptr{mxq_tensor}, data::Ptr{Cvoid}, bytes::UInt64)::mxq_status

@doc raw"""
Data of a plain tensor that is only read: verbs refuse to write it (INVALID_ARGUMENT). Otherwise as mxq_tensor_set_data,
and each replaces the other.
"""
mxq_tensor_set_const_data(tensor, data, bytes) = @ccall libmxq.mxq_tensor_set_const_data(tensor::Ptr{mxq_tensor}, data::Ptr{Cvoid}, bytes::UInt64)::mxq_status

@doc raw"""
Data of a plain tensor as one address for each expert, for experts that are not contiguous, as in a checkpoint that has
a tensor for each, or as halves of larger tensors. `data` is an array of `count` addresses in memory of the context's device;
`count` is the number of experts, and each address has `bytes` bytes from there on: rows one row stride apart, and no stride
between experts. mxq_tensor_required_bytes then tells the bytes of one expert, and mxq_tensor_total_bytes still those of all
together. The array must stay until the work is done. Experts without rows have addresses too. Such data are only read,
by mxq_quantize, mxq_amax, mxq_convert and products; verbs refuse to write them (INVALID_ARGUMENT). All implementations of
the CPU take a list; others decline by name in the plan, and on CUDA none takes one yet. It replaces mxq_tensor_set_data and
mxq_tensor_set_memory, and the other way round. 3-D tensors only; a NULL array with 0 bytes serves queries.
"""
mxq_tensor_set_data_list(tensor, count, data, bytes) = @ccall libmxq.mxq_tensor_set_data_list(tensor::Ptr{mxq_tensor}, count::Int64, data::Ptr{Ptr{Cvoid}}, bytes::UInt64)::mxq_status

@doc raw"""
Codes and scales of one part of a quantized tensor, each with its byte extent. The part is then declared: a quantize
into this tensor writes it, and writes both from one read of the input where both are declared. NULL pointers
with 0 bytes declare a part for sizes and queries, which need no memory. While no part is declared, a query assumes the
part that it needs (rowwise where either would do). A verb that only reads the tensor writes neither, so that both may be
in memory that is mapped for reading. An extent may be larger than needed; whether the bytes are those of the scaling and
the layout that were set, the library cannot see.
"""
mxq_tensor_set_part(tensor, part, codes, code_bytes, scales, scale_bytes) = @ccall libmxq.mxq_tensor_set_part(tensor::Ptr{mxq_tensor}, part::mxq_part, codes::Ptr{Cvoid}, code_bytes::UInt64, scales::Ptr{Cvoid}, scale_bytes::UInt64)::mxq_status

@doc raw"""
Codes and scales of one part that are only read: verbs refuse to write either (INVALID_ARGUMENT). Otherwise as
mxq_tensor_set_part, and each replaces the other.
"""
mxq_tensor_set_const_part(tensor, part, codes, code_bytes, scales, scale_bytes) = @ccall libmxq.mxq_tensor_set_const_part(tensor::Ptr{mxq_tensor}, part::mxq_part, codes::Ptr{Cvoid}, code_bytes::UInt64, scales::Ptr{Cvoid}, scale_bytes::UInt64)::mxq_status

@doc raw"""
Codes and scales of a part as one address for each expert, for experts that are not contiguous, as in a checkpoint that
has a tensor for each. `codes` and `scales` are arrays of `count` addresses in memory of the context's device; `count` is the
number of experts, and each address has code_bytes or scale_bytes from there on. mxq_tensor_required_bytes then tells the
bytes of one expert, and mxq_tensor_total_bytes still those of all together. Both arrays must stay until the work is
done. Row strides are those of each expert; there are no expert strides. TENSOR scales need MXQ_SCOPE_EXPERT; the amax or
decode scales of NVFP4 stay one array. Experts without rows have addresses too. Such a part is only read, by
mxq_dequantize, mxq_requantize and products; verbs refuse to write it (INVALID_ARGUMENT). All implementations of the CPU take
a list; others decline by name in the plan, and on CUDA none takes one yet. It replaces mxq_tensor_set_part and
mxq_tensor_set_memory, and the other way round. 3-D tensors only; NULL arrays with 0 bytes serve queries.
"""
mxq_tensor_set_part_list(tensor, part, count, codes, code_bytes, scales, scale_bytes) = @ccall libmxq.mxq_tensor_set_part_list(tensor::Ptr{mxq_tensor}, part::mxq_part, count::Int64, codes::Ptr{Ptr{Cvoid}}, code_bytes::UInt64, scales::Ptr{Ptr{Cvoid}}, scale_bytes::UInt64)::mxq_status

@doc raw"""
Strides in bytes of a part that is a slice of something larger: from one row of codes (code_line) and from one row of the
compact scales (scale_line) to the next, and from one expert's codes and scales to the next expert's. Rows of a columnwise
part are its K-major rows, one for each column. 0 (default): contiguous; experts then follow their rows. Columns [k, k + K)
of rowwise MXFP8 weights (N, K_all), k and K_all multiples of 32, are read in place, with their addresses moved by k codes
and k / 32 scales and with the strides (K_all, 0, K_all / 32, 0); of MXFP4 weights with k / 2 and K_all / 2 for the codes.
Where K_all is no multiple of 32, rows of scales are ceil(K_all / 32) bytes apart. `gate` of a `gate_up` in codes (experts, 2
N, K) has an expert stride of 2 N K. Rows of different experts may overlap, since they are only read. A stride is at least
one row, and a multiple of 4 for fp32 scales; it is compared with the scaling, the layout and the scope that the tensor has,
so set those before strides. Rows of different experts may alternate. Bytes between rows are not touched.
mxq_tensor_required_bytes counts from the first row to the end of the last.

Swizzled and TENSOR scales have no row stride; TENSOR ones have an expert stride with MXQ_SCOPE_EXPERT. 2-D tensors have no
expert strides, and groups none at all (INVALID_ARGUMENT). Parts with strides are only read, by mxq_dequantize,
mxq_requantize, the products and, but not from a list, mxq_swizzle_scales and mxq_unswizzle_scales. All implementations of
the CPU take them; others decline by name in the plan, and on CUDA none takes strides yet. No verb writes such a part
(UNSUPPORTED). Pointers that are set anew leave the strides as they are; mxq_tensor_clear_part clears them.
"""
mxq_tensor_set_strides(tensor, part, code_line, code_expert, scale_line, scale_expert) = @ccall libmxq.mxq_tensor_set_strides(tensor::Ptr{mxq_tensor}, part::mxq_part, code_line::Int64, code_expert::Int64, scale_line::Int64, scale_expert::Int64)::mxq_status

@doc raw"""
Declares the named parts of a quantized tensor (MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE or MXQ_PART_BOTH), or the data of a
plain one (MXQ_PART_ROWWISE), in one block of memory at a multiple of 256 bytes, of at least mxq_tensor_total_bytes. For each
part, rowwise first, the block has codes, scales and, for NVFP4, the amax, each at a multiple of 256 bytes. Format, scaling,
layout, scope and groups must be set before, since sizes follow from them. NULL with 0 where the total is 0. Replaces what
mxq_tensor_set_data, mxq_tensor_set_part and mxq_tensor_set_amax said; other buffers stay as they are. An NVFP4 part that
has a decode scale needs no amax and gets none, nor does a tensor of 0 experts. FP8's amax is optional: it is set by
mxq_tensor_set_amax.
"""
mxq_tensor_set_memory(tensor, parts, memory, bytes) = @ccall libmxq.mxq_tensor_set_memory(tensor::Ptr{mxq_tensor}, parts::mxq_part, memory::Ptr{Cvoid}, bytes::UInt64)::mxq_status

@doc raw"""
Bytes of the block that mxq_tensor_set_memory takes for the named parts, a multiple of 256. With groups, they suffice for any
ends.
"""
mxq_tensor_total_bytes(tensor, parts, bytes) = @ccall libmxq.mxq_tensor_total_bytes(tensor::Ptr{mxq_tensor}, parts::mxq_part, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
Clears a declared part, and all that was set for it: the tensor no longer has it.
"""
mxq_tensor_clear_part(tensor, part) = @ccall libmxq.mxq_tensor_clear_part(tensor::Ptr{mxq_tensor}, part::mxq_part)::mxq_status

@doc raw"""
Groups of rows, such as the tokens of each expert. `ends` holds `count` integers of type MXQ_TYPE_INT32 or
MXQ_TYPE_INT64 in the memory of the context's device, and `bytes` is exactly their size (it is not looked at where ends is
NULL): ends[g] is one past the last row of group g, never decreasing, at most rows. Empty groups are allowed; rows past
the last end belong to no group: they are not read and what they would produce is not written. On CUDA the host never
reads `ends`: where values are out of order nothing outside the buffers is touched, and what is written is not defined. On a
CPU context the verbs check them, but not those of a call that has nothing to write. 2-D tensors only. A count of 0 with
NULL clears the groups; a count with NULL ends serves queries and sizes.

In memory every group is padded to a multiple of an alignment A: group g starts at
P[g] = sum over h < g of A * ceil(m_h / A), m_h being the rows of group h, and padding is as if rows of +0 followed the
group. `rows` and `ends` never count padding. P[count] is at most A * floor((rows + (A - 1) * min(count, rows)) / A),
which is what mxq_tensor_required_bytes takes for the number of stored rows. So the ends {30, 30, 70} of 70 rows are
groups of 30, 0 and 40 rows; with A = 32 they start at stored rows P = {0, 32, 32} and fill P[3] = 96 of at most 160.

    plain, rowwise   codes start at row P[g]; A is the rowwise alignment, by default 1: no padding
    columnwise       codes are (cols, Mc), Mc the bound above, and start at column P[g]; A is the columnwise alignment, a
                     multiple of the block, which may not straddle groups: by default 32, 16 for NVFP4, 128 for
                     1X128 and 128X128; ROW of MX wants a multiple of 32, ROW and TENSOR of FP8 one of 16 (default 32)

Two tensors of a call have the same groups where type and count are equal and ends is the same address. On a CPU context
ends may also be two arrays of equal values, which the verb compares and a query, which reads no memory, takes for equal.

Compact scales follow the codes. Square tiles (but NVFP4's) restart at each group: tile row sum over h < g of ceil(m_h / t).
Columnwise ROW scales are (count, cols). Swizzled scales of a group are a matrix of their own, of its rows or, for the
columnwise part, of cols rows of codes, in tiles as ever; they follow those of the group before, and all their bytes are
written.
"""
mxq_tensor_set_groups(tensor, ends, bytes, ends_type, count) = @ccall libmxq.mxq_tensor_set_groups(tensor::Ptr{mxq_tensor}, ends::Ptr{Cvoid}, bytes::UInt64, ends_type::mxq_type, count::Int32)::mxq_status

@doc raw"""
1: every row belongs to a group, so the last end must be `rows`; a call refuses other ends where the host can read them:
on a CPU context, and those of mxq_tensor_set_host_ends. It finds starts or sizes that were given instead of ends. 0
(default): rows may follow the last end. Stays when the groups change; without groups it means nothing. 2-D tensors only.
"""
mxq_tensor_set_groups_cover_rows(tensor, cover) = @ccall libmxq.mxq_tensor_set_groups_cover_rows(tensor::Ptr{mxq_tensor}, cover::Int32)::mxq_status

@doc raw"""
Optional copy of `ends` in host memory, of the type, count and bytes given to mxq_tensor_set_groups. Call that function
first: it clears an earlier copy. The copy is read during a call and never replaces `ends`; that of A lets mxq_grouped_gemm
on a CUDA context take an implementation that makes one call per group. Its values must ascend and end within the rows;
that they equal those on the device is not checked. While the stream is captured the copy is ignored, because a replay may
have other groups: clear it before the query for a captured call. NULL clears it.
"""
mxq_tensor_set_host_ends(tensor, ends, bytes) = @ccall libmxq.mxq_tensor_set_host_ends(tensor::Ptr{mxq_tensor}, ends::Ptr{Cvoid}, bytes::UInt64)::mxq_status

@doc raw"""
The alignments of the tensor's groups: powers of two up to 128; columnwise 0: the default. A columnwise one must be a
multiple of the block of the scaling, or of the format's smallest block until a scaling is set.
"""
mxq_tensor_set_group_alignment(tensor, rowwise, columnwise) = @ccall libmxq.mxq_tensor_set_group_alignment(tensor::Ptr{mxq_tensor}, rowwise::Int32, columnwise::Int32)::mxq_status

@doc raw"""
Where mxq_pad_groups and mxq_unpad_groups write the start and the end, padding included, of each group in a part of out (a
plain tensor: MXQ_PART_ROWWISE): `count` integers each, of the type of the ends, on the device. NULL: not wanted.
"""
mxq_tensor_set_padded_groups(tensor, part, starts, start_bytes, ends, end_bytes) = @ccall libmxq.mxq_tensor_set_padded_groups(tensor::Ptr{mxq_tensor}, part::mxq_part, starts::Ptr{Cvoid}, start_bytes::UInt64, ends::Ptr{Cvoid}, end_bytes::UInt64)::mxq_status

@doc raw"""
The amax (largest magnitude, NaN ignored) of a part, on the device.
    NVFP4  One, or one per expert or group (mxq_tensor_set_scope). Block scales and codes are made relative to it, and
           decoding needs it. mxq_quantize and mxq_requantize compute and write it, or read it where
           mxq_quantize_options_set_compute_amax says that it is given. Without a Hadamard transform both parts have the
           same amax; where it is only read they may share its memory. A tensor of 0 experts may leave it out.
    FP8    As many as scales, laid out like them, swizzled ones and their padding too. mxq_quantize writes it where set.
On a CPU context, verbs refuse an amax, decode scale or quantization scale that they read and that is NaN or negative. On
CUDA nobody sees it, and a NaN or negative one makes codes and values that mean nothing. NULL clears it.
"""
mxq_tensor_set_amax(tensor, part, amax, bytes) = @ccall libmxq.mxq_tensor_set_amax(tensor::Ptr{mxq_tensor}, part::mxq_part, amax::Ptr{Cfloat}, bytes::UInt64)::mxq_status

@doc raw"""
Bytes that the amax of a part takes; 0 for a format without amax.
"""
mxq_tensor_required_amax_bytes(tensor, part, bytes) = @ccall libmxq.mxq_tensor_required_amax_bytes(tensor::Ptr{mxq_tensor}, part::mxq_part, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
NVFP4: the decode scale amax / (6 * scale_max) of a part, as checkpoints store it. Verbs that read the part use it
instead of the amax; a part that has one of the two refuses the other. A quantize into the part refuses it: it needs an amax.
As many as amaxes, on the device. NULL clears it.
"""
mxq_tensor_set_decode_scale(tensor, part, scale, bytes) = @ccall libmxq.mxq_tensor_set_decode_scale(tensor::Ptr{mxq_tensor}, part::mxq_part, scale::Ptr{Cfloat}, bytes::UInt64)::mxq_status

@doc raw"""
NVFP4: the largest block scale, 448 (default) or 256. Encoding and decoding need the same value.
"""
mxq_tensor_set_scale_max(tensor, scale_max) = @ccall libmxq.mxq_tensor_set_scale_max(tensor::Ptr{mxq_tensor}, scale_max::Int32)::mxq_status

@doc raw"""
NVFP4 with 1X16 scales and MXFP4 with 1X32 or 1X128 ones, 1: the part holds values that a random Hadamard transform was
applied to, every 16 neighbours along the contraction, which must be a multiple of 16; 0 with a mask of 0 (default): the
values themselves. Bit i of `mask` flips the sign of element i first; 0xD7E8 is common. mxq_quantize, mxq_requantize and
mxq_amax apply the transform before amax and scale, and mxq_dequantize undoes it. Products multiply transformed values as
they are: it cancels where both operands have it, so they refuse parts with different ones.
"""
mxq_tensor_set_hadamard(tensor, part, transformed, mask) = @ccall libmxq.mxq_tensor_set_hadamard(tensor::Ptr{mxq_tensor}, part::mxq_part, transformed::Int32, mask::Int32)::mxq_status

@doc raw"""
FP8 with TENSOR scales, others refuse it: the factor that mxq_quantize multiplies by (delayed scaling), one, or one per
expert or group, on the device. It is positive and finite. Verbs refuse another one on a CPU context; on CUDA nobody sees
it: a 0 makes a stored scale of Inf, and what is dequantized is then NaN. The stored scale is its reciprocal. NULL
(default): mxq_quantize makes it from the amax of its input (current scaling).
"""
mxq_tensor_set_quantization_scale(tensor, scale, bytes) = @ccall libmxq.mxq_tensor_set_quantization_scale(tensor::Ptr{mxq_tensor}, scale::Ptr{Cfloat}, bytes::UInt64)::mxq_status

mxq_tensor_set_scope(tensor, scope) = @ccall libmxq.mxq_tensor_set_scope(tensor::Ptr{mxq_tensor}, scope::mxq_scope)::mxq_status

@doc raw"""
Bytes of codes and bytes of scales that a part needs. For a plain tensor ask for MXQ_PART_ROWWISE: *code_bytes is that of
its data, *scale_bytes is 0. With groups, the bytes suffice for any ends. Either output may be NULL.
"""
mxq_tensor_required_bytes(tensor, part, code_bytes, scale_bytes) = @ccall libmxq.mxq_tensor_required_bytes(tensor::Ptr{mxq_tensor}, part::mxq_part, code_bytes::Ptr{UInt64}, scale_bytes::Ptr{UInt64})::mxq_status

@doc raw"""
Each setter has a getter, which gives what was set or the default. Every output may be NULL for "not wanted"; pointers that
are not set are NULL with 0 bytes.
"""
mxq_tensor_get_format(tensor, format) = @ccall libmxq.mxq_tensor_get_format(tensor::Ptr{mxq_tensor}, format::Ptr{mxq_format})::mxq_status

@doc raw"""
*dimensions is 2 or 3; *experts is 1 for 2.
"""
mxq_tensor_get_shape(tensor, dimensions, experts, rows, cols) = @ccall libmxq.mxq_tensor_get_shape(tensor::Ptr{mxq_tensor}, dimensions::Ptr{Int32}, experts::Ptr{Int64}, rows::Ptr{Int64}, cols::Ptr{Int64})::mxq_status

@doc raw"""
See `mxq_tensor_get_shape`.
"""
mxq_tensor_get_scaling(tensor, scaling) = @ccall libmxq.mxq_tensor_get_scaling(tensor::Ptr{mxq_tensor}, scaling::Ptr{mxq_scaling})::mxq_status

@doc raw"""
See `mxq_tensor_get_shape`.
"""
mxq_tensor_get_swizzled(tensor, swizzled) = @ccall libmxq.mxq_tensor_get_swizzled(tensor::Ptr{mxq_tensor}, swizzled::Ptr{Int32})::mxq_status

@doc raw"""
*elements is cols for a quantized tensor.
"""
mxq_tensor_get_row_stride(tensor, elements) = @ccall libmxq.mxq_tensor_get_row_stride(tensor::Ptr{mxq_tensor}, elements::Ptr{Int64})::mxq_status

@doc raw"""
Data of a plain tensor; *is_const is 1 where it may not be written: set by mxq_tensor_set_const_data, or a list.
"""
mxq_tensor_get_data(tensor, data, bytes, is_const) = @ccall libmxq.mxq_tensor_get_data(tensor::Ptr{mxq_tensor}, data::Ptr{Ptr{Cvoid}}, bytes::Ptr{UInt64}, is_const::Ptr{Int32})::mxq_status

@doc raw"""
*count is 0 where the plain tensor has no list. mxq_tensor_get_data gives no address of one that has.
"""
mxq_tensor_get_data_list(tensor, count, data, bytes) = @ccall libmxq.mxq_tensor_get_data_list(tensor::Ptr{mxq_tensor}, count::Ptr{Int64}, data::Ptr{Ptr{Ptr{Cvoid}}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
*declared is 1 where the quantized tensor has the part, and *is_const is 1 where it is only read.
"""
mxq_tensor_get_part(tensor, part, declared, codes, code_bytes, scales, scale_bytes, is_const) = @ccall libmxq.mxq_tensor_get_part(tensor::Ptr{mxq_tensor}, part::mxq_part, declared::Ptr{Int32}, codes::Ptr{Ptr{Cvoid}}, code_bytes::Ptr{UInt64}, scales::Ptr{Ptr{Cvoid}}, scale_bytes::Ptr{UInt64}, is_const::Ptr{Int32})::mxq_status

@doc raw"""
*count is 0 where the part has no list. mxq_tensor_get_part gives no addresses of one that has.
"""
mxq_tensor_get_part_list(tensor, part, count, codes, code_bytes, scales, scale_bytes) = @ccall libmxq.mxq_tensor_get_part_list(tensor::Ptr{mxq_tensor}, part::mxq_part, count::Ptr{Int64}, codes::Ptr{Ptr{Ptr{Cvoid}}}, code_bytes::Ptr{UInt64}, scales::Ptr{Ptr{Ptr{Cvoid}}}, scale_bytes::Ptr{UInt64})::mxq_status

@doc raw"""
The strides that were set; 0: none.
"""
mxq_tensor_get_strides(tensor, part, code_line, code_expert, scale_line, scale_expert) = @ccall libmxq.mxq_tensor_get_strides(tensor::Ptr{mxq_tensor}, part::mxq_part, code_line::Ptr{Int64}, code_expert::Ptr{Int64}, scale_line::Ptr{Int64}, scale_expert::Ptr{Int64})::mxq_status

@doc raw"""
*ends_type is 0 without groups. *bytes is the size of the ends by their type and count, with ends of NULL too.
"""
mxq_tensor_get_groups(tensor, ends, bytes, ends_type, count) = @ccall libmxq.mxq_tensor_get_groups(tensor::Ptr{mxq_tensor}, ends::Ptr{Ptr{Cvoid}}, bytes::Ptr{UInt64}, ends_type::Ptr{mxq_type}, count::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_tensor_get_groups`.
"""
mxq_tensor_get_groups_cover_rows(tensor, cover) = @ccall libmxq.mxq_tensor_get_groups_cover_rows(tensor::Ptr{mxq_tensor}, cover::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_tensor_get_groups`.
"""
mxq_tensor_get_host_ends(tensor, ends, bytes) = @ccall libmxq.mxq_tensor_get_host_ends(tensor::Ptr{mxq_tensor}, ends::Ptr{Ptr{Cvoid}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
The alignments that hold: the default for the scaling where columnwise is 0.
"""
mxq_tensor_get_group_alignment(tensor, rowwise, columnwise) = @ccall libmxq.mxq_tensor_get_group_alignment(tensor::Ptr{mxq_tensor}, rowwise::Ptr{Int32}, columnwise::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_tensor_get_group_alignment`.
"""
mxq_tensor_get_padded_groups(tensor, part, starts, start_bytes, ends, end_bytes) = @ccall libmxq.mxq_tensor_get_padded_groups(tensor::Ptr{mxq_tensor}, part::mxq_part, starts::Ptr{Ptr{Cvoid}}, start_bytes::Ptr{UInt64}, ends::Ptr{Ptr{Cvoid}}, end_bytes::Ptr{UInt64})::mxq_status

@doc raw"""
See `mxq_tensor_get_group_alignment`.
"""
mxq_tensor_get_amax(tensor, part, amax, bytes) = @ccall libmxq.mxq_tensor_get_amax(tensor::Ptr{mxq_tensor}, part::mxq_part, amax::Ptr{Ptr{Cfloat}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
See `mxq_tensor_get_group_alignment`.
"""
mxq_tensor_get_decode_scale(tensor, part, scale, bytes) = @ccall libmxq.mxq_tensor_get_decode_scale(tensor::Ptr{mxq_tensor}, part::mxq_part, scale::Ptr{Ptr{Cfloat}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
See `mxq_tensor_get_group_alignment`.
"""
mxq_tensor_get_hadamard(tensor, part, transformed, mask) = @ccall libmxq.mxq_tensor_get_hadamard(tensor::Ptr{mxq_tensor}, part::mxq_part, transformed::Ptr{Int32}, mask::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_tensor_get_group_alignment`.
"""
mxq_tensor_get_scale_max(tensor, scale_max) = @ccall libmxq.mxq_tensor_get_scale_max(tensor::Ptr{mxq_tensor}, scale_max::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_tensor_get_group_alignment`.
"""
mxq_tensor_get_quantization_scale(tensor, scale, bytes) = @ccall libmxq.mxq_tensor_get_quantization_scale(tensor::Ptr{mxq_tensor}, scale::Ptr{Ptr{Cfloat}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
See `mxq_tensor_get_group_alignment`.
"""
mxq_tensor_get_scope(tensor, scope) = @ccall libmxq.mxq_tensor_get_scope(tensor::Ptr{mxq_tensor}, scope::Ptr{mxq_scope})::mxq_status

@doc raw"""
Writes what MXQ_LOG calls the tensor, such as "mxfp8_e4m3 100 x 64 in 4 groups 1x32 rowwise swizzled", to `buffer`, cut to
size - 1 bytes and ended by a 0 as snprintf does; with its strides, in bytes but a row stride, and its lists: "bf16 8 x 64 x
32 row stride 96 listed", "mxfp4 64 x 32 1x32 rowwise strides (64, 0, 4, 0)". Returns the length of the whole text without
the 0; 0 for a handle that is NULL or refused, with "" in the buffer. A buffer of NULL or a size of 0: nothing is written.
"""
mxq_tensor_describe(tensor, buffer, size) = @ccall libmxq.mxq_tensor_describe(tensor::Ptr{mxq_tensor}, buffer::Ptr{Cchar}, size::UInt64)::UInt64

mxq_quantize_options_create(out) = @ccall libmxq.mxq_quantize_options_create(out::Ptr{Ptr{mxq_quantize_options}})::mxq_status

mxq_quantize_options_destroy(options) = @ccall libmxq.mxq_quantize_options_destroy(options::Ptr{mxq_quantize_options})::Cvoid

@doc raw"""
MX: MXQ_SCALE_ROUNDING_*.
"""
mxq_quantize_options_set_scale_rounding(options, rounding) = @ccall libmxq.mxq_quantize_options_set_scale_rounding(options::Ptr{mxq_quantize_options}, rounding::mxq_scale_rounding)::mxq_status

@doc raw"""
MX: MXQ_NONFINITE_*.
"""
mxq_quantize_options_set_nonfinite(options, policy) = @ccall libmxq.mxq_quantize_options_set_nonfinite(options::Ptr{mxq_quantize_options}, policy::mxq_nonfinite)::mxq_status

@doc raw"""
NVFP4: MXQ_FOUR_OVER_SIX_*.
"""
mxq_quantize_options_set_four_over_six(options, mode) = @ccall libmxq.mxq_quantize_options_set_four_over_six(options::Ptr{mxq_quantize_options}, mode::mxq_four_over_six)::mxq_status

@doc raw"""
NVFP4 and MXFP4, 1 (default): mxq_dequantize undoes the transform that mxq_tensor_set_hadamard says the part has; 0: it gives
the transformed values. Groups along the contraction refuse 0 for a transformed part, which has values in their padding.
"""
mxq_quantize_options_set_undo_hadamard(options, undo) = @ccall libmxq.mxq_quantize_options_set_undo_hadamard(options::Ptr{mxq_quantize_options}, undo::Int32)::mxq_status

@doc raw"""
NVFP4 and MXFP4, but not with ROW scales: rounds codes up or down at random (Philox4x32-10), with probabilities that follow
the distances to the two codes. `seed_offset` is the address of two uint64, the seed and the offset, in memory of the
context's device, read when the work runs; `bytes` is exactly 16. NULL (default): codes are rounded to nearest. The same
seed and offset give the same codes on every device. Cannot be combined with four-over-six: the setter that is called second
is refused.
"""
mxq_quantize_options_set_stochastic_rounding(options, seed_offset, bytes) = @ccall libmxq.mxq_quantize_options_set_stochastic_rounding(options::Ptr{mxq_quantize_options}, seed_offset::Ptr{UInt64}, bytes::UInt64)::mxq_status

@doc raw"""
NVFP4, 1 (default): quantize and requantize first compute the amax of every part and write it where mxq_tensor_set_amax
says, which reads the input once more; 0: the amax is given, and they read it from there. mxq_amax computes it in either
case.
"""
mxq_quantize_options_set_compute_amax(options, compute) = @ccall libmxq.mxq_quantize_options_set_compute_amax(options::Ptr{mxq_quantize_options}, compute::Int32)::mxq_status

@doc raw"""
FP8, 1: quantization scales that are made from an amax are rounded down to powers of two; 0 (default): they are not.
"""
mxq_quantize_options_set_power_of_two_scales(options, power_of_two) = @ccall libmxq.mxq_quantize_options_set_power_of_two_scales(options::Ptr{mxq_quantize_options}, power_of_two::Int32)::mxq_status

@doc raw"""
FP8: a scale is made from max(amax, epsilon); 0 by default.
"""
mxq_quantize_options_set_amax_epsilon(options, epsilon) = @ccall libmxq.mxq_quantize_options_set_amax_epsilon(options::Ptr{mxq_quantize_options}, epsilon::Cfloat)::mxq_status

@doc raw"""
dequantize and requantize: the part of in that is read, which in must declare. 0 (default): the rowwise part if declared,
else the columnwise one.
"""
mxq_quantize_options_set_source_part(options, part) = @ccall libmxq.mxq_quantize_options_set_source_part(options::Ptr{mxq_quantize_options}, part::mxq_part)::mxq_status

@doc raw"""
Makes the verb take the implementation of this name or fail. NULL or "" (default): the best one, or that of MXQ_IMPL.
Names are those that mxq_plan_implementation gives.
"""
mxq_quantize_options_set_implementation(options, name) = @ccall libmxq.mxq_quantize_options_set_implementation(options::Ptr{mxq_quantize_options}, name::Cstring)::mxq_status

@doc raw"""
Return what was set, or the default, like the getters of a context's options. *seed_offset is NULL with 0 bytes where codes
are rounded to nearest.
"""
mxq_quantize_options_get_scale_rounding(options, rounding) = @ccall libmxq.mxq_quantize_options_get_scale_rounding(options::Ptr{mxq_quantize_options}, rounding::Ptr{mxq_scale_rounding})::mxq_status

@doc raw"""
See `mxq_quantize_options_get_scale_rounding`.
"""
mxq_quantize_options_get_nonfinite(options, policy) = @ccall libmxq.mxq_quantize_options_get_nonfinite(options::Ptr{mxq_quantize_options}, policy::Ptr{mxq_nonfinite})::mxq_status

@doc raw"""
See `mxq_quantize_options_get_scale_rounding`.
"""
mxq_quantize_options_get_four_over_six(options, mode) = @ccall libmxq.mxq_quantize_options_get_four_over_six(options::Ptr{mxq_quantize_options}, mode::Ptr{mxq_four_over_six})::mxq_status

@doc raw"""
See `mxq_quantize_options_get_scale_rounding`.
"""
mxq_quantize_options_get_undo_hadamard(options, undo) = @ccall libmxq.mxq_quantize_options_get_undo_hadamard(options::Ptr{mxq_quantize_options}, undo::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_quantize_options_get_scale_rounding`.
"""
mxq_quantize_options_get_stochastic_rounding(options, seed_offset, bytes) = @ccall libmxq.mxq_quantize_options_get_stochastic_rounding(options::Ptr{mxq_quantize_options}, seed_offset::Ptr{Ptr{UInt64}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
See `mxq_quantize_options_get_scale_rounding`.
"""
mxq_quantize_options_get_compute_amax(options, compute) = @ccall libmxq.mxq_quantize_options_get_compute_amax(options::Ptr{mxq_quantize_options}, compute::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_quantize_options_get_scale_rounding`.
"""
mxq_quantize_options_get_power_of_two_scales(options, power_of_two) = @ccall libmxq.mxq_quantize_options_get_power_of_two_scales(options::Ptr{mxq_quantize_options}, power_of_two::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_quantize_options_get_scale_rounding`.
"""
mxq_quantize_options_get_amax_epsilon(options, epsilon) = @ccall libmxq.mxq_quantize_options_get_amax_epsilon(options::Ptr{mxq_quantize_options}, epsilon::Ptr{Cfloat})::mxq_status

@doc raw"""
See `mxq_quantize_options_get_scale_rounding`.
"""
mxq_quantize_options_get_source_part(options, part) = @ccall libmxq.mxq_quantize_options_get_source_part(options::Ptr{mxq_quantize_options}, part::Ptr{mxq_part})::mxq_status

@doc raw"""
See `mxq_quantize_options_get_scale_rounding`.
"""
mxq_quantize_options_get_implementation(options, name) = @ccall libmxq.mxq_quantize_options_get_implementation(options::Ptr{mxq_quantize_options}, name::Ptr{Cstring})::mxq_status

mxq_gemm_options_create(out) = @ccall libmxq.mxq_gemm_options_create(out::Ptr{Ptr{mxq_gemm_options}})::mxq_status

mxq_gemm_options_destroy(options) = @ccall libmxq.mxq_gemm_options_destroy(options::Ptr{mxq_gemm_options})::Cvoid

mxq_gemm_options_set_transpose(options, a, b) = @ccall libmxq.mxq_gemm_options_set_transpose(options::Ptr{mxq_gemm_options}, a::mxq_transpose, b::mxq_transpose)::mxq_status

@doc raw"""
D = alpha op(A) op(B) + beta D + bias. alpha (default 1) and beta (default 0) are finite. With a beta of 0, D is not read;
with any other, D is read in its own type.
"""
mxq_gemm_options_set_alpha(options, alpha) = @ccall libmxq.mxq_gemm_options_set_alpha(options::Ptr{mxq_gemm_options}, alpha::Cfloat)::mxq_status

@doc raw"""
See `mxq_gemm_options_set_alpha`.
"""
mxq_gemm_options_set_beta(options, beta) = @ccall libmxq.mxq_gemm_options_set_beta(options::Ptr{mxq_gemm_options}, beta::Cfloat)::mxq_status

@doc raw"""
1: adds to D, as a beta of 1 does, but refuses a D other than F32, so that no running sum is rounded to 16 bits by mistake.
0 (default): overwrites D. Cannot be combined with a beta: the setter that is called second is refused.
"""
mxq_gemm_options_set_accumulate(options, accumulate) = @ccall libmxq.mxq_gemm_options_set_accumulate(options::Ptr{mxq_gemm_options}, accumulate::Int32)::mxq_status

@doc raw"""
A bias: one number for each column of D, added to all rows. They are of MXQ_FORMAT_F32, F16 or BF16, whatever D is, in
memory of the context's device; with groups of rows (groups, columns), one bias per group. Groups along the contraction
refuse a bias (UNSUPPORTED), since their D is a gradient of weights. Format 0 with NULL: no bias (default).
"""
mxq_gemm_options_set_bias(options, format, bias, bytes) = @ccall libmxq.mxq_gemm_options_set_bias(options::Ptr{mxq_gemm_options}, format::mxq_format, bias::Ptr{Cvoid}, bytes::UInt64)::mxq_status

@doc raw"""
1: implementations that round operands before they multiply them (MXQ_BOUND_REBASED, MXQ_BOUND_REBASED_GUARDED) decline, so
that only sums are rounded; MXQ_BOUND_FP8_TENSOR_CORES, whose sums are rounded more, and MXQ_BOUND_BLACKWELL_TENSOR_CORES
remain. 0 (default): the best implementation.
"""
mxq_gemm_options_set_exact_products(options, exact) = @ccall libmxq.mxq_gemm_options_set_exact_products(options::Ptr{mxq_gemm_options}, exact::Int32)::mxq_status

@doc raw"""
Leaves SMs of a GPU to other work, such as communication on another stream: the product takes at most `count` of
them, 1 to 1024; 0 (default): all. D keeps its bound; where SMs share a sum, its bits may be others. Who cannot
keep to it declines; cuBLASLt takes it as the target of its choice. A CPU context refuses it (UNSUPPORTED).
"""
mxq_gemm_options_set_sm_count(options, count) = @ccall libmxq.mxq_gemm_options_set_sm_count(options::Ptr{mxq_gemm_options}, count::Int32)::mxq_status

@doc raw"""
1: the bits of a row of D depend on that row of op(A) and its scales, on B, N, K, formats, layouts and options alone: not on
other rows, their number, groups, sm_count, streams or graphs (docs/numerics.md). It holds on one chip with one version of
the library. Implementations that cannot promise it decline, and the choice among the others does not depend on rows.
Groups along the contraction refuse it (UNSUPPORTED), since their sums run over rows. 0 (default): the fastest. Since 0.3.
"""
mxq_gemm_options_set_row_invariant(options, row_invariant) = @ccall libmxq.mxq_gemm_options_set_row_invariant(options::Ptr{mxq_gemm_options}, row_invariant::Int32)::mxq_status

@doc raw"""
Makes the product take the implementation of this name or fail, as mxq_quantize_options_set_implementation does.
"""
mxq_gemm_options_set_implementation(options, name) = @ccall libmxq.mxq_gemm_options_set_implementation(options::Ptr{mxq_gemm_options}, name::Cstring)::mxq_status

@doc raw"""
Return what was set, or the default, like the getters of a context's options. *format is 0, with NULL and 0 bytes, where
there is no bias.
"""
mxq_gemm_options_get_transpose(options, a, b) = @ccall libmxq.mxq_gemm_options_get_transpose(options::Ptr{mxq_gemm_options}, a::Ptr{mxq_transpose}, b::Ptr{mxq_transpose})::mxq_status

@doc raw"""
See `mxq_gemm_options_get_transpose`.
"""
mxq_gemm_options_get_alpha(options, alpha) = @ccall libmxq.mxq_gemm_options_get_alpha(options::Ptr{mxq_gemm_options}, alpha::Ptr{Cfloat})::mxq_status

@doc raw"""
See `mxq_gemm_options_get_transpose`.
"""
mxq_gemm_options_get_beta(options, beta) = @ccall libmxq.mxq_gemm_options_get_beta(options::Ptr{mxq_gemm_options}, beta::Ptr{Cfloat})::mxq_status

@doc raw"""
See `mxq_gemm_options_get_transpose`.
"""
mxq_gemm_options_get_accumulate(options, accumulate) = @ccall libmxq.mxq_gemm_options_get_accumulate(options::Ptr{mxq_gemm_options}, accumulate::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_gemm_options_get_transpose`.
"""
mxq_gemm_options_get_bias(options, format, bias, bytes) = @ccall libmxq.mxq_gemm_options_get_bias(options::Ptr{mxq_gemm_options}, format::Ptr{mxq_format}, bias::Ptr{Ptr{Cvoid}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
See `mxq_gemm_options_get_transpose`.
"""
mxq_gemm_options_get_exact_products(options, exact) = @ccall libmxq.mxq_gemm_options_get_exact_products(options::Ptr{mxq_gemm_options}, exact::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_gemm_options_get_transpose`.
"""
mxq_gemm_options_get_sm_count(options, count) = @ccall libmxq.mxq_gemm_options_get_sm_count(options::Ptr{mxq_gemm_options}, count::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_gemm_options_get_transpose`.
"""
mxq_gemm_options_get_implementation(options, name) = @ccall libmxq.mxq_gemm_options_get_implementation(options::Ptr{mxq_gemm_options}, name::Ptr{Cstring})::mxq_status

@doc raw"""
Since 0.3.
"""
mxq_gemm_options_get_row_invariant(options, row_invariant) = @ccall libmxq.mxq_gemm_options_get_row_invariant(options::Ptr{mxq_gemm_options}, row_invariant::Ptr{Int32})::mxq_status

@doc raw"""
Name of the implementation that would run; on CUDA its kernel and its source file have the same name. Lives as long as the
plan; "" for NULL.
"""
mxq_plan_implementation(plan) = @ccall libmxq.mxq_plan_implementation(plan::Ptr{mxq_plan})::Cstring

@doc raw"""
Why this implementation would run: "" for the best one of all; "name: reason; name, name: reason" for the better ones of the
context's device type that declined; or who asked for it; and whether b is read transposed. Lives as long as the plan; "" for
NULL.
"""
mxq_plan_reason(plan) = @ccall libmxq.mxq_plan_reason(plan::Ptr{mxq_plan})::Cstring

@doc raw"""
Bytes of workspace that the verb needs, at an address that is a multiple of 256. Its content does not matter before the
call and is undefined after it. A CPU context never needs any. A workspace that is given and not needed must be aligned and
not NULL all the same, unless it has 0 bytes. 0 for NULL.
"""
mxq_plan_workspace_bytes(plan) = @ccall libmxq.mxq_plan_workspace_bytes(plan::Ptr{mxq_plan})::UInt64

@doc raw"""
The class of bound of the implementation that would run, MXQ_BOUND_*; MXQ_BOUND_NONE for NULL.
"""
mxq_plan_bound(plan) = @ccall libmxq.mxq_plan_bound(plan::Ptr{mxq_plan})::mxq_bound

mxq_plan_destroy(plan) = @ccall libmxq.mxq_plan_destroy(plan::Ptr{mxq_plan})::Cvoid

@doc raw"""
Quantizes in (F32, F16, BF16) into every declared part of out, which has the same shape. With groups, out has the groups,
and in holds its rows without padding, or has the same groups and its rows padded to its own rowwise alignment; every group
of out is padded on the way. MISSING_BUFFER if out declares no part. With zero elements, only a computed amax (0) and a
TENSOR scale (1) are written. (Swizzled scales of an (R, 0) or (0, C) matrix have no bytes. ROW scales of an (R, 0) matrix
have memory for R numbers, which are not written.) An empty group has an amax of 0 and FP8 scales of 1, where TENSOR scales
are one for each group and ROW scales columnwise; rowwise it has none.

docs/numerics.md has the exact rules. In short, with a the largest magnitude of a block and x an element:
MX      The scale byte s follows from a by the scale rounding. A code is the value nearest to x * 2^(127 - s), ties to even,
        saturated to +-max; zero keeps its sign. A zero block has s = 0.
NVFP4   The block scale is S = E4M3 of a / 6 * scale_max * 6 / amax. Codes are rounded to nearest or stochastically.
FP8     A code is the value nearest to x * q, q being max / amax of what shares the scale, or given. The stored scale is
        1 / q.
"""
mxq_quantize(context, options, input, out, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_quantize(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_quantize`.
"""
mxq_quantize_query(context, options, input, out, plan) = @ccall libmxq.mxq_quantize_query(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
Requantizes in to out, both quantized, of any formats and parts. Gives exactly the bytes of mxq_dequantize to F32 followed
by mxq_quantize, without the F32 tensor. Reads the part of in that mxq_quantize_options_set_source_part names, by default the
rowwise part if declared, else the columnwise one. Either both have groups or neither has. From a part with a Hadamard
transform it goes only to the same part with the same mask, whose values are the transformed ones as they are, and not where
groups run along the contraction (UNSUPPORTED).
"""
mxq_requantize(context, options, input, out, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_requantize(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_requantize`.
"""
mxq_requantize_query(context, options, input, out, plan) = @ccall libmxq.mxq_requantize_query(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
Computes the amax of in (F32, F16, BF16) and writes it to the amax of out (NVFP4, or FP8 with TENSOR scales), for each part
that has one; after the part's Hadamard transform. Writes nothing else of out.
"""
mxq_amax(context, options, input, out, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_amax(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_amax`.
"""
mxq_amax_query(context, options, input, out, plan) = @ccall libmxq.mxq_amax_query(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
Dequantizes in (the part that mxq_quantize_options_set_source_part names, by default the rowwise part if declared, else the
columnwise one) to out (F32, F16, BF16) of the same shape. Each value is code * 2^(s - 127) (MX), code * S * decode scale
(NVFP4, rounded after each product) or code * scale (FP8), rounded to fp32 and then to out's type, to nearest even; between
the two a Hadamard transform of the part is undone. A value beyond the range of out's type becomes Inf; NaN is written as
0x7FFFFFFF (F32) or 0x7FFF. With groups, out holds the rows without padding, or has in's groups and its own alignment, padded
with +0.
"""
mxq_dequantize(context, options, input, out, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_dequantize(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_dequantize`.
"""
mxq_dequantize_query(context, options, input, out, plan) = @ccall libmxq.mxq_dequantize_query(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
Converts in to out, both plain (F32, F16, BF16), of the same shape and without groups; row strides may differ. A number
is rounded once, to nearest even; beyond the range of out's type it becomes Inf, and NaN is written as mxq_dequantize
does, where both have the same format too.
"""
mxq_convert(context, options, input, out, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_convert(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_convert`.
"""
mxq_convert_query(context, options, input, out, plan) = @ccall libmxq.mxq_convert_query(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
Copy groups of rows from the alignment of in to that of out. Both have the same groups, format, scaling, shape and
Hadamard transforms of parts; an alignment of out is at least that of in (pad) or at most that of in (unpad). Of plain
tensors they move rows, and padding is +0, whatever in has there. Of quantized tensors they move codes and scales of the
parts that both declare; padding is code 0, also in a block of scale 255, and scale 0 where a block is padding alone. (But
columnwise the last 16 codes of a group are moved as they are, since a Hadamard transform spreads rows over them.) Both
write the starts and ends of the groups of out where mxq_tensor_set_padded_groups says. With a count of 0 nothing is
written, a TENSOR scale neither. No size reaches the host.
"""
mxq_pad_groups(context, options, input, out, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_pad_groups(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_pad_groups`.
"""
mxq_pad_groups_query(context, options, input, out, plan) = @ccall libmxq.mxq_pad_groups_query(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
See `mxq_pad_groups`.
"""
mxq_unpad_groups(context, options, input, out, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_unpad_groups(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_pad_groups`.
"""
mxq_unpad_groups_query(context, options, input, out, plan) = @ccall libmxq.mxq_unpad_groups_query(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
Copy the scales of in (compact) to out (swizzled), or back. Both have the same format, scaling and shape, declare the same
parts with the same Hadamard transforms, and with groups have the same groups and alignments. Codes are neither read nor
written, so their pointers may be NULL. Every byte of out's scales is written, padding as 0 (of groups with rows every byte
of their tiles, of others compact columnwise ROW scales, as 0). A coarser tile's or row's byte is read where it begins.
"""
mxq_swizzle_scales(context, options, input, out, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_swizzle_scales(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_swizzle_scales`.
"""
mxq_swizzle_scales_query(context, options, input, out, plan) = @ccall libmxq.mxq_swizzle_scales_query(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
See `mxq_swizzle_scales`.
"""
mxq_unswizzle_scales(context, options, input, out, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_unswizzle_scales(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_swizzle_scales`.
"""
mxq_unswizzle_scales_query(context, options, input, out, plan) = @ccall libmxq.mxq_unswizzle_scales_query(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
Multiplies: D = alpha op(A) op(B) + beta D + bias, by default D = op(A) op(B); on Hopper GPUs it rounds small codes of MX
operands first (MXQ_BOUND_REBASED, MXQ_BOUND_REBASED_GUARDED), unless mxq_gemm_options_set_exact_products or
mxq_gemm_options_set_implementation asks for another implementation. A and B have any formats, scalings and scale layouts
with the same block along the contraction: two MX formats (32), NVFP4 (16), FP8 with 128-wide blocks, FP8 with ROW or TENSOR
scales. An FP8 A also goes with a B of MX or NVFP4. Either or both may be plain: on a CUDA context BF16 with any of them, F16
on both sides, or F16 as A with a quantized B; on a CPU context F32, F16 and BF16 with any. Other pairs are UNSUPPORTED.
Parts with different Hadamard transforms, or of which one has none, are refused (INVALID_ARGUMENT). D is F32, F16 or BF16,
row-major with a row stride. The part that is read follows from the transposes, which are (N,T) by default; a plain operand
serves them all. With M tokens, K inputs and N outputs of a layer:

    case     A           part read     B           part read     D          use
    (N,T)    (M, K)      rowwise       (N, K)      rowwise       (M, N)     forward:          y  = x w^T
    (N,N)    (M, N)      rowwise       (N, K)      columnwise    (M, K)     input gradient:   dx = dy w
    (T,N)    (M, N)      columnwise    (M, K)      columnwise    (N, K)     weight gradient:  dw = dy^T x

(T,T) works too, with A columnwise and B rowwise. In (N,N), the rowwise part of a B that declares no columnwise one is read
transposed, and mxq_plan_reason says so; a CUDA context refuses FP8 with ROW or 1X128 scales there (UNSUPPORTED), since
they multiply no sum. A contraction of 0 numbers gives a sum of 0.

The error of every element keeps a bound, by the class that mxq_plan_bound gives:

    |error| <= c 2^-24 P + u max(|D|, t) + 2^-134 sum (|a| + |b|) + R,    P = sum |a||b| over the contraction

u is 2^-24 (F32), 2^-11 (F16), 2^-8 (BF16), t the smallest normal number of D's type, and L the length of the contraction.
On a CUDA context, numbers of two F16 operands that are below 2^-14 and not 0 count as 2^-14 in P.

    EXACT_PRODUCTS     c = 13 L / 10 + 40 and R = 0. A NaN operand gives NaN in its row or column of D and nowhere else. It
                       holds where P < 2^128 and no operand is infinite.
    FP8_TENSOR_CORES   The same with c = 13 L / 10 + 270376. The fp32 scales of a and of b and their product must also be
                       normal numbers; the sum of the codes' products times either scale, and that times alpha, below 2^128.
    REBASED            The same as FP8_TENSOR_CORES, and R is what small codes lose because a tile of MX blocks gets one
                       scale, its largest. The scales of two tiles that meet count as fp32 scales: one very large scale in
                       a tile of B (128 columns of D by 128 of L) or of A (a row by 128 of L) can make Inf and NaN of all
                       that the tile meets; mxq_gemm_options_set_exact_products takes another implementation.
    REBASED_GUARDED    c as there, and the conditions of EXACT_PRODUCTS; with FP8 activations those of FP8_TENSOR_CORES. Codes
                       of MX move to the largest scale of a row of B or of 128 codes, except those of blocks 2^10 below it:
                       R is at most about 2^-9 of a block's largest value.
    BLACKWELL_TENSOR_CORES   FP8 and FP4 tensor cores of compute capability 10.0 and later. The same as FP8_TENSOR_CORES, but
                       nobody has measured it yet: NVIDIA does not say how many bits their sums keep.

On a CPU context D has the same bits on all CPUs, with any number of threads, and rows are invariant as with
mxq_gemm_options_set_row_invariant. Since 0.3.

alpha, beta and a bias change P, c and the conditions a little. docs/numerics.md has every term and condition, and the
smaller c of some implementations. With an alpha of 0 it is open whether NaN operands are noticed.
"""
mxq_gemm(context, options, a, b, d, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_gemm(context::Ptr{mxq_context}, options::Ptr{mxq_gemm_options}, a::Ptr{mxq_tensor}, b::Ptr{mxq_tensor}, d::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_gemm`.
"""
mxq_gemm_query(context, options, a, b, d, plan) = @ccall libmxq.mxq_gemm_query(context::Ptr{mxq_context}, options::Ptr{mxq_gemm_options}, a::Ptr{mxq_tensor}, b::Ptr{mxq_tensor}, d::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
Multiplies once per group, with the options and the bound of mxq_gemm. Reads the sizes from A's groups on the device; G is
their number:

    case     A                        B                        D
    (N,T)    (M, K), groups of rows   (G, N, K)                (M, N): D[rows of g] = A[rows of g] B[g]^T
    (N,N)    (M, N), groups of rows   (G, N, K)                (M, K): D[rows of g] = A[rows of g] B[g]
    (T,N)    (M, N), groups of rows   (M, K), the same groups  (G, N, K): D[g] = A[rows of g]^T B[rows of g]

In A, rows of a group are padded to A's rowwise alignment. In D they have no padding or, where D has the same groups, are
padded to D's alignment; that padding becomes +0 (with a beta other than 0 it is left as it is). In (T,N) both operands
have groups, padded as mxq_tensor_set_groups says: columnwise parts, or rows of plain operands, whose padding is never read;
an empty group has D[g] = beta D[g]. In (N,T), (N,N) rows of D past the last end are not written. (T,T) is UNSUPPORTED.
"""
mxq_grouped_gemm(context, options, a, b, d, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_grouped_gemm(context::Ptr{mxq_context}, options::Ptr{mxq_gemm_options}, a::Ptr{mxq_tensor}, b::Ptr{mxq_tensor}, d::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_grouped_gemm`.
"""
mxq_grouped_gemm_query(context, options, a, b, d, plan) = @ccall libmxq.mxq_grouped_gemm_query(context::Ptr{mxq_context}, options::Ptr{mxq_gemm_options}, a::Ptr{mxq_tensor}, b::Ptr{mxq_tensor}, d::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
Since 0.3.
"""
mxq_activate_options_create(out) = @ccall libmxq.mxq_activate_options_create(out::Ptr{Ptr{mxq_activate_options}})::mxq_status

@doc raw"""
Since 0.3.
"""
mxq_activate_options_destroy(options) = @ccall libmxq.mxq_activate_options_destroy(options::Ptr{mxq_activate_options})::Cvoid

@doc raw"""
MXQ_ACTIVATION_*. Since 0.3.
"""
mxq_activate_options_set_activation(options, activation) = @ccall libmxq.mxq_activate_options_set_activation(options::Ptr{mxq_activate_options}, activation::mxq_activation)::mxq_status

@doc raw"""
MXQ_GATE_LAYOUT_*. Since 0.3.
"""
mxq_activate_options_set_gate_layout(options, layout) = @ccall libmxq.mxq_activate_options_set_gate_layout(options::Ptr{mxq_activate_options}, layout::mxq_gate_layout)::mxq_status

@doc raw"""
The numbers of SWIGLU_CLAMPED. By default they are those of gpt-oss: 1.702, 7 and 1. alpha and addend are finite, limit is
above 0 and may be infinite. Since 0.3.
"""
mxq_activate_options_set_clamp(options, alpha, limit, addend) = @ccall libmxq.mxq_activate_options_set_clamp(options::Ptr{mxq_activate_options}, alpha::Cfloat, limit::Cfloat, addend::Cfloat)::mxq_status

@doc raw"""
A bias: one number for each column of in, added to all rows; with experts or groups (experts, columns of in), one bias for
each. They are of MXQ_FORMAT_F32, F16 or BF16, whatever in is, in memory of the context's device. Format 0 with NULL: no bias
(default). Since 0.3.
"""
mxq_activate_options_set_bias(options, format, bias, bytes) = @ccall libmxq.mxq_activate_options_set_bias(options::Ptr{mxq_activate_options}, format::mxq_format, bias::Ptr{Cvoid}, bytes::UInt64)::mxq_status

@doc raw"""
A factor for each row of the result, such as a router's weight: one number for each row of in, of all experts, of
MXQ_FORMAT_F32, F16 or BF16, in memory of the context's device. Format 0 with NULL: none (default). Since 0.3.
"""
mxq_activate_options_set_row_weights(options, format, weights, bytes) = @ccall libmxq.mxq_activate_options_set_row_weights(options::Ptr{mxq_activate_options}, format::mxq_format, weights::Ptr{Cvoid}, bytes::UInt64)::mxq_status

@doc raw"""
How a quantized result is quantized: all options of mxq_quantize, but an implementation, which has a setter of its own. They
are copied. NULL (default): the defaults. Since 0.3.
"""
mxq_activate_options_set_quantize_options(options, quantize) = @ccall libmxq.mxq_activate_options_set_quantize_options(options::Ptr{mxq_activate_options}, quantize::Ptr{mxq_quantize_options})::mxq_status

@doc raw"""
Makes the verb take the implementation of this name or fail. NULL or "" (default): the best one, or that of MXQ_IMPL.
Since 0.3.
"""
mxq_activate_options_set_implementation(options, name) = @ccall libmxq.mxq_activate_options_set_implementation(options::Ptr{mxq_activate_options}, name::Cstring)::mxq_status

@doc raw"""
mxq_activate_backward also writes the gradient of the bias: the sum of the gradients of each column of in, over the rows of
each expert or group, as many numbers as the bias has. In memory of the context's device; NULL with 0 (default): not wanted.
mxq_activate refuses it. Since 0.3.
"""
mxq_activate_options_set_bias_gradient(options, gradient, bytes) = @ccall libmxq.mxq_activate_options_set_bias_gradient(options::Ptr{mxq_activate_options}, gradient::Ptr{Cfloat}, bytes::UInt64)::mxq_status

@doc raw"""
mxq_activate_backward also writes the gradient of the weight of each row, one number for each row of in, whether or not
weights are set. Rows in no group keep what is there. NULL with 0 (default): not wanted. mxq_activate refuses it. Since 0.3.
"""
mxq_activate_options_set_row_weight_gradient(options, gradient, bytes) = @ccall libmxq.mxq_activate_options_set_row_weight_gradient(options::Ptr{mxq_activate_options}, gradient::Ptr{Cfloat}, bytes::UInt64)::mxq_status

@doc raw"""
Return what was set, or the default, like the getters of a context's options. Pointers that are not set are NULL with 0
bytes. Since 0.3.
"""
mxq_activate_options_get_activation(options, activation) = @ccall libmxq.mxq_activate_options_get_activation(options::Ptr{mxq_activate_options}, activation::Ptr{mxq_activation})::mxq_status

@doc raw"""
See `mxq_activate_options_get_activation`.
"""
mxq_activate_options_get_gate_layout(options, layout) = @ccall libmxq.mxq_activate_options_get_gate_layout(options::Ptr{mxq_activate_options}, layout::Ptr{mxq_gate_layout})::mxq_status

@doc raw"""
See `mxq_activate_options_get_activation`.
"""
mxq_activate_options_get_clamp(options, alpha, limit, addend) = @ccall libmxq.mxq_activate_options_get_clamp(options::Ptr{mxq_activate_options}, alpha::Ptr{Cfloat}, limit::Ptr{Cfloat}, addend::Ptr{Cfloat})::mxq_status

@doc raw"""
See `mxq_activate_options_get_activation`.
"""
mxq_activate_options_get_bias(options, format, bias, bytes) = @ccall libmxq.mxq_activate_options_get_bias(options::Ptr{mxq_activate_options}, format::Ptr{mxq_format}, bias::Ptr{Ptr{Cvoid}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
See `mxq_activate_options_get_activation`.
"""
mxq_activate_options_get_row_weights(options, format, weights, bytes) = @ccall libmxq.mxq_activate_options_get_row_weights(options::Ptr{mxq_activate_options}, format::Ptr{mxq_format}, weights::Ptr{Ptr{Cvoid}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
Since 0.3.
"""
mxq_activate_options_get_bias_gradient(options, gradient, bytes) = @ccall libmxq.mxq_activate_options_get_bias_gradient(options::Ptr{mxq_activate_options}, gradient::Ptr{Ptr{Cfloat}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
Since 0.3.
"""
mxq_activate_options_get_row_weight_gradient(options, gradient, bytes) = @ccall libmxq.mxq_activate_options_get_row_weight_gradient(options::Ptr{mxq_activate_options}, gradient::Ptr{Ptr{Cfloat}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
Copies the options to `quantize`, which the caller has created. Since 0.3.
"""
mxq_activate_options_get_quantize_options(options, quantize) = @ccall libmxq.mxq_activate_options_get_quantize_options(options::Ptr{mxq_activate_options}, quantize::Ptr{mxq_quantize_options})::mxq_status

@doc raw"""
Since 0.3.
"""
mxq_activate_options_get_implementation(options, name) = @ccall libmxq.mxq_activate_options_get_implementation(options::Ptr{mxq_activate_options}, name::Ptr{Cstring})::mxq_status

@doc raw"""
Activates in (F32, F16, BF16) and stores the result in out, which has the same rows: plain numbers, or every declared part of
a quantized tensor, from one read of in on the CPU, and on CUDA where a plan names activate or activate_tile. in is (S, 2 I)
and out (S, I), or both are (S, I) for activations without a gate; experts are a first dimension of both. An element is
computed in fp32 and rounded once: by quantize as mxq_quantize rounds an F32 input, or to out's type as mxq_convert does.
With groups, which in, out or both may have, each has its own bias; rows of in and of a plain out have no padding (UNSUPPORTED
otherwise), and rows past the last end are neither read nor written. A NaN stays in its element, or in what shares its scale.
Concurrent calls and graphs are as for all verbs. CUDA declines lists of experts. Since 0.3.
"""
mxq_activate(context, options, input, out, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_activate(context::Ptr{mxq_context}, options::Ptr{mxq_activate_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
Since 0.3.
"""
mxq_activate_query(context, options, input, out, plan) = @ccall libmxq.mxq_activate_query(context::Ptr{mxq_context}, options::Ptr{mxq_activate_options}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
The gradients of gates and ups, from `gradient` (S, I; F32, F16 or BF16), that of what mxq_activate makes of in (S, 2 I) with
these options. out is (S, 2 I), with gates and ups where in has them: plain numbers, or every declared part of a quantized
tensor. The clamped form has a gradient of 0 where it clamps. Groups, which any of the three may have, are as for
mxq_activate; gradients of biases and of weights of rows are options. All sums have a fixed order, so that the bytes are the
same everywhere. Activations without a gate are UNSUPPORTED. The workspace of CUDA has the numbers that are quantized, in
F32, and sums of 128 rows. Since 0.3.
"""
mxq_activate_backward(context, options, gradient, input, out, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_activate_backward(context::Ptr{mxq_context}, options::Ptr{mxq_activate_options}, gradient::Ptr{mxq_tensor}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
Since 0.3.
"""
mxq_activate_backward_query(context, options, gradient, input, out, plan) = @ccall libmxq.mxq_activate_backward_query(context::Ptr{mxq_context}, options::Ptr{mxq_activate_options}, gradient::Ptr{mxq_tensor}, input::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
A descriptor for `tokens` (0 or more) with `choices` of `experts` each. choices is 1 or more, experts 1 to
MXQ_MAX_GROUPS, and tokens * choices at most MXQ_MAX_DIM. On failure *out is NULL. Since 0.3.
"""
mxq_routing_create(tokens, choices, experts, out) = @ccall libmxq.mxq_routing_create(tokens::Int64, choices::Int32, experts::Int32, out::Ptr{Ptr{mxq_routing}})::mxq_status

@doc raw"""
See `mxq_routing_create`.
"""
mxq_routing_destroy(routing) = @ccall libmxq.mxq_routing_destroy(routing::Ptr{mxq_routing})::Cvoid

@doc raw"""
The expert of each choice, (T, k), in memory of the context's device; `bytes` is exactly their size. -1 drops a choice. A
CPU context refuses other numbers below 0, or experts and more; CUDA drops and counts them (mxq_routing_set_dropped). An
expert that a token chooses twice gets two rows. NULL with 0 bytes clears them. Since 0.3.
"""
mxq_routing_set_ids(routing, ids, bytes, kind) = @ccall libmxq.mxq_routing_set_ids(routing::Ptr{mxq_routing}, ids::Ptr{Cvoid}, bytes::UInt64, kind::mxq_type)::mxq_status

@doc raw"""
The weight of each choice, (T, k), F32 or BF16, in memory of the context's device; `bytes` is exactly their size. Format
0 with NULL (default): none, which mxq_combine takes for weights of 1. Since 0.3.
"""
mxq_routing_set_weights(routing, format, weights, bytes) = @ccall libmxq.mxq_routing_set_weights(routing::Ptr{mxq_routing}, format::mxq_format, weights::Ptr{Cvoid}, bytes::UInt64)::mxq_status

@doc raw"""
The experts of this rank, `count` (1 or more) from `first` on; choices of others are dropped. Default: all, with 0 and 0.
`ends` has `count` numbers. Refused where the memory that was set is then too small, or with computed arrays. Since 0.3.
"""
mxq_routing_set_local_experts(routing, first, count) = @ccall libmxq.mxq_routing_set_local_experts(routing::Ptr{mxq_routing}, first::Int32, count::Int32)::mxq_status

@doc raw"""
Memory for what mxq_route computes, at a multiple of 256 bytes, at least mxq_routing_required_bytes, which does not
depend on weights. Its content does not matter before mxq_route. NULL with 0 clears it. It replaces what
mxq_routing_set_computed said. Since 0.3.
"""
mxq_routing_set_memory(routing, memory, bytes) = @ccall libmxq.mxq_routing_set_memory(routing::Ptr{mxq_routing}, memory::Ptr{Cvoid}, bytes::UInt64)::mxq_status

@doc raw"""
See `mxq_routing_set_memory`.
"""
mxq_routing_required_bytes(routing, bytes) = @ccall libmxq.mxq_routing_required_bytes(routing::Ptr{mxq_routing}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
Where mxq_route writes how many ids were out of range and not -1, one int32 in memory of the context's device; `bytes` is
4. A CPU context writes 0. NULL with 0 (default): not wanted. Since 0.3.
"""
mxq_routing_set_dropped(routing, dropped, bytes) = @ccall libmxq.mxq_routing_set_dropped(routing::Ptr{mxq_routing}, dropped::Ptr{Int32}, bytes::UInt64)::mxq_status

@doc raw"""
Sets arrays that another library computed as mxq_route would, which then refuses the routing. Each `bytes` is exactly the size
of its array; row_weights may be NULL with 0. On CUDA, numbers out of range count as -1; a CPU context refuses them. NULL
everywhere clears them. It replaces mxq_routing_set_memory. Since 0.3.
"""
mxq_routing_set_computed(routing, ends, end_bytes, row_tokens, row_token_bytes, choice_rows, choice_row_bytes, row_weights, row_weight_bytes) = @ccall libmxq.mxq_routing_set_computed(routing::Ptr{mxq_routing}, ends::Ptr{Int32}, end_bytes::UInt64, row_tokens::Ptr{Int32}, row_token_bytes::UInt64, choice_rows::Ptr{Int32}, choice_row_bytes::UInt64, row_weights::Ptr{Cfloat}, row_weight_bytes::UInt64)::mxq_status

@doc raw"""
Return what was set, or the default, like the getters of a tensor. *type and *format are 0 where nothing is set.
Since 0.3.
"""
mxq_routing_get_shape(routing, tokens, choices, experts) = @ccall libmxq.mxq_routing_get_shape(routing::Ptr{mxq_routing}, tokens::Ptr{Int64}, choices::Ptr{Int32}, experts::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_routing_get_shape`.
"""
mxq_routing_get_ids(routing, ids, bytes, kind) = @ccall libmxq.mxq_routing_get_ids(routing::Ptr{mxq_routing}, ids::Ptr{Ptr{Cvoid}}, bytes::Ptr{UInt64}, kind::Ptr{mxq_type})::mxq_status

@doc raw"""
See `mxq_routing_get_shape`.
"""
mxq_routing_get_weights(routing, format, weights, bytes) = @ccall libmxq.mxq_routing_get_weights(routing::Ptr{mxq_routing}, format::Ptr{mxq_format}, weights::Ptr{Ptr{Cvoid}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
See `mxq_routing_get_shape`.
"""
mxq_routing_get_local_experts(routing, first, count) = @ccall libmxq.mxq_routing_get_local_experts(routing::Ptr{mxq_routing}, first::Ptr{Int32}, count::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_routing_get_shape`.
"""
mxq_routing_get_memory(routing, memory, bytes) = @ccall libmxq.mxq_routing_get_memory(routing::Ptr{mxq_routing}, memory::Ptr{Ptr{Cvoid}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
See `mxq_routing_get_shape`.
"""
mxq_routing_get_dropped(routing, dropped, bytes) = @ccall libmxq.mxq_routing_get_dropped(routing::Ptr{mxq_routing}, dropped::Ptr{Ptr{Int32}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
Return the arrays that mxq_route fills or that mxq_routing_set_computed gave, with their exact bytes; NULL with 0 bytes
before either has memory. Since 0.3.
"""
mxq_routing_get_ends(routing, ends, bytes) = @ccall libmxq.mxq_routing_get_ends(routing::Ptr{mxq_routing}, ends::Ptr{Ptr{Int32}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
See `mxq_routing_get_ends`.
"""
mxq_routing_get_row_tokens(routing, tokens, bytes) = @ccall libmxq.mxq_routing_get_row_tokens(routing::Ptr{mxq_routing}, tokens::Ptr{Ptr{Int32}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
See `mxq_routing_get_ends`.
"""
mxq_routing_get_choice_rows(routing, rows, bytes) = @ccall libmxq.mxq_routing_get_choice_rows(routing::Ptr{mxq_routing}, rows::Ptr{Ptr{Int32}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
See `mxq_routing_get_ends`.
"""
mxq_routing_get_row_weights(routing, weights, bytes) = @ccall libmxq.mxq_routing_get_row_weights(routing::Ptr{mxq_routing}, weights::Ptr{Ptr{Cfloat}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
Fills the memory of a routing from its ids and weights: ends, row_tokens, choice_rows, and row_weights where it has
weights. On CUDA one launch, which reads nothing on the host: a graph that captures it may be replayed with other ids.
options may only ask for an implementation. Without tokens, ends are 0. Since 0.3.
"""
mxq_route(context, options, routing, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_route(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, routing::Ptr{mxq_routing}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_route`.
"""
mxq_route_query(context, options, routing, plan) = @ccall libmxq.mxq_route_query(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, routing::Ptr{mxq_routing}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
The rows of a plain matrix by index: row i is row indices[i] of its data, which then have `source_rows` rows, and -1 is a
row of zeros. `indices` holds one MXQ_TYPE_INT32 or MXQ_TYPE_INT64 for each row in memory of the context's device;
`bytes` is exactly their size. Other numbers out of range count as -1 on CUDA, and a CPU context refuses them. The input
of mxq_quantize, mxq_amax, mxq_convert and mxq_pad_groups, and plain operands of products may have them; other verbs
refuse them by name. Groups of such a tensor have no padding. mxq_tensor_required_bytes tells the bytes of the source
rows. An implementation that does not read rows by index gets a copy, which a CUDA context makes in the workspace by one
more launch (mxq_plan_reason says so). NULL with 0 bytes, type 0 and 0 rows clears them; NULL with a type serves queries.
2-D tensors only. Since 0.3.
"""
mxq_tensor_set_row_indices(tensor, indices, bytes, kind, source_rows) = @ccall libmxq.mxq_tensor_set_row_indices(tensor::Ptr{mxq_tensor}, indices::Ptr{Cvoid}, bytes::UInt64, kind::mxq_type, source_rows::Int64)::mxq_status

@doc raw"""
Returns the indices that were set; *type is 0 where rows are not by index. Since 0.3.
"""
mxq_tensor_get_row_indices(tensor, indices, bytes, kind, source_rows) = @ccall libmxq.mxq_tensor_get_row_indices(tensor::Ptr{mxq_tensor}, indices::Ptr{Ptr{Cvoid}}, bytes::Ptr{UInt64}, kind::Ptr{mxq_type}, source_rows::Ptr{Int64})::mxq_status

@doc raw"""
Give a matrix of T * k rows the groups of a routing: its ends, for each expert of this rank. mxq_tensor_set_routing_rows
also makes its rows those of the tokens, by row_tokens: the data of the plain tensor have T rows. The addresses that the
routing has now are set; after it got other memory, call them again. Since 0.3.
"""
mxq_tensor_set_routing_rows(tensor, routing) = @ccall libmxq.mxq_tensor_set_routing_rows(tensor::Ptr{mxq_tensor}, routing::Ptr{mxq_routing})::mxq_status

@doc raw"""
See `mxq_tensor_set_routing_rows`.
"""
mxq_tensor_set_routing_groups(tensor, routing) = @ccall libmxq.mxq_tensor_set_routing_groups(tensor::Ptr{mxq_tensor}, routing::Ptr{mxq_routing})::mxq_status

@doc raw"""
Sums the rows of each token's choices: out[t] = residual[t] + sum over j of weight[t, j] * in[row of choice (t, j)]. in
has a row for each choice (T * k), out and residual one for each token, all plain of any type with row strides; residual
may be NULL: 0. A choice that is dropped adds nothing, and without weights each weight is 1. A sum starts at the
residual. It adds the choices of a token in order, in fp32: a product is rounded, then added, and the sum is rounded once
to out's type, as mxq_convert does. Weights and rows of choices are those of the routing. A CPU context refuses rows of
choices that in does not have; CUDA drops them. in may have groups without padding. options may only ask for an
implementation. Since 0.3.
"""
mxq_combine(context, options, routing, input, residual, out, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_combine(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, routing::Ptr{mxq_routing}, input::Ptr{mxq_tensor}, residual::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_combine`.
"""
mxq_combine_query(context, options, routing, input, residual, out, plan) = @ccall libmxq.mxq_combine_query(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, routing::Ptr{mxq_routing}, input::Ptr{mxq_tensor}, residual::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
The gradients of mxq_combine, from d_out, the gradient of its output (T rows), all plain and of any type:

    d_in        d_in[row of (t, j)] = weight[t, j] * d_out[t], rounded once to its type; other rows are not written
    d_weights   F32 (T, k): d_weights[t, j] = sum over columns of d_out[t] * in[row of (t, j)]; 0 for a dropped choice

Either may be NULL: not wanted. in is read for d_weights alone, and may be NULL without. A residual has the gradient
d_out. Products and sums are rounded in fp32, in an order that docs/numerics.md fixes, so that the bits are the same
everywhere. options may only ask for an implementation. Since 0.3.
"""
mxq_combine_backward(context, options, routing, d_out, input, d_in, d_weights, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_combine_backward(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, routing::Ptr{mxq_routing}, d_out::Ptr{mxq_tensor}, input::Ptr{mxq_tensor}, d_in::Ptr{mxq_tensor}, d_weights::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_combine_backward`.
"""
mxq_combine_backward_query(context, options, routing, d_out, input, d_in, d_weights, plan) = @ccall libmxq.mxq_combine_backward_query(context::Ptr{mxq_context}, options::Ptr{mxq_quantize_options}, routing::Ptr{mxq_routing}, d_out::Ptr{mxq_tensor}, input::Ptr{mxq_tensor}, d_in::Ptr{mxq_tensor}, d_weights::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status

@doc raw"""
Since 0.3.
"""
mxq_expert_layer_options_create(out) = @ccall libmxq.mxq_expert_layer_options_create(out::Ptr{Ptr{mxq_expert_layer_options}})::mxq_status

@doc raw"""
Since 0.3.
"""
mxq_expert_layer_options_destroy(options) = @ccall libmxq.mxq_expert_layer_options_destroy(options::Ptr{mxq_expert_layer_options})::Cvoid

@doc raw"""
The activation with its numbers, its layout of gates and, where set, its bias, which is added after the first product was
rounded. Row weights and an implementation are refused. NULL (default): the defaults of mxq_activate. Since 0.3.
"""
mxq_expert_layer_options_set_activate_options(options, activate) = @ccall libmxq.mxq_expert_layer_options_set_activate_options(options::Ptr{mxq_expert_layer_options}, activate::Ptr{mxq_activate_options})::mxq_status

@doc raw"""
The format and scaling of the rows that enter each product: a quantized format, scaling 0 being its default, or format 0
with scaling 0 (default): plain, those of x and of the inner format. Since 0.3.
"""
mxq_expert_layer_options_set_row_format(options, format, scaling) = @ccall libmxq.mxq_expert_layer_options_set_row_format(options::Ptr{mxq_expert_layer_options}, format::mxq_format, scaling::mxq_scaling)::mxq_status

@doc raw"""
How these rows are quantized. An amax that is given, a source part and an implementation are refused. NULL (default): the
defaults of mxq_quantize. Since 0.3.
"""
mxq_expert_layer_options_set_quantize_options(options, quantize) = @ccall libmxq.mxq_expert_layer_options_set_quantize_options(options::Ptr{mxq_expert_layer_options}, quantize::Ptr{mxq_quantize_options})::mxq_status

@doc raw"""
Sets the format of numbers between the steps: the first product, a plain activation and the second product.
MXQ_FORMAT_BF16 (default), F16 or F32. Since 0.3.
"""
mxq_expert_layer_options_set_inner_format(options, format) = @ccall libmxq.mxq_expert_layer_options_set_inner_format(options::Ptr{mxq_expert_layer_options}, format::mxq_format)::mxq_status

@doc raw"""
The bias of a product, (experts of this rank, its columns), added in fp32 before the product is rounded: as
mxq_gemm_options_set_bias. Format 0 with NULL: none (default). Since 0.3.
"""
mxq_expert_layer_options_set_gate_up_bias(options, format, bias, bytes) = @ccall libmxq.mxq_expert_layer_options_set_gate_up_bias(options::Ptr{mxq_expert_layer_options}, format::mxq_format, bias::Ptr{Cvoid}, bytes::UInt64)::mxq_status

@doc raw"""
See `mxq_expert_layer_options_set_gate_up_bias`.
"""
mxq_expert_layer_options_set_down_bias(options, format, bias, bytes) = @ccall libmxq.mxq_expert_layer_options_set_down_bias(options::Ptr{mxq_expert_layer_options}, format::mxq_format, bias::Ptr{Cvoid}, bytes::UInt64)::mxq_status

@doc raw"""
Sets what the sum of each token starts at: a plain tensor of out's shape, such as the output of a shared expert. The
descriptor is copied. NULL (default): 0. Since 0.3.
"""
mxq_expert_layer_options_set_residual(options, residual) = @ccall libmxq.mxq_expert_layer_options_set_residual(options::Ptr{mxq_expert_layer_options}, residual::Ptr{mxq_tensor})::mxq_status

@doc raw"""
1: the weights of choices multiply the activation, before the second product, whose bias they then leave alone; 0
(default): they multiply the second product with its bias. Since 0.3.
"""
mxq_expert_layer_options_set_weights_first(options, first) = @ccall libmxq.mxq_expert_layer_options_set_weights_first(options::Ptr{mxq_expert_layer_options}, first::Int32)::mxq_status

@doc raw"""
As mxq_gemm_options_set_exact_products, for both products. Since 0.3.
"""
mxq_expert_layer_options_set_exact_products(options, exact) = @ccall libmxq.mxq_expert_layer_options_set_exact_products(options::Ptr{mxq_expert_layer_options}, exact::Int32)::mxq_status

@doc raw"""
As mxq_gemm_options_set_row_invariant, for both products: the bits of a token depend on its own row, choices and weights,
and not on other tokens, where rows are quantized by themselves (docs/embedding.md). Since 0.3.
"""
mxq_expert_layer_options_set_row_invariant(options, row_invariant) = @ccall libmxq.mxq_expert_layer_options_set_row_invariant(options::Ptr{mxq_expert_layer_options}, row_invariant::Int32)::mxq_status

@doc raw"""
Return what was set, or the default, like the getters of a context's options. Options and descriptors are copied to
objects that the caller has created; *has_residual is 0 where there is none, and residual, a tensor of any shape, is then
left alone. Since 0.3.
"""
mxq_expert_layer_options_get_activate_options(options, activate) = @ccall libmxq.mxq_expert_layer_options_get_activate_options(options::Ptr{mxq_expert_layer_options}, activate::Ptr{mxq_activate_options})::mxq_status

@doc raw"""
See `mxq_expert_layer_options_get_activate_options`.
"""
mxq_expert_layer_options_get_row_format(options, format, scaling) = @ccall libmxq.mxq_expert_layer_options_get_row_format(options::Ptr{mxq_expert_layer_options}, format::Ptr{mxq_format}, scaling::Ptr{mxq_scaling})::mxq_status

@doc raw"""
See `mxq_expert_layer_options_get_activate_options`.
"""
mxq_expert_layer_options_get_quantize_options(options, quantize) = @ccall libmxq.mxq_expert_layer_options_get_quantize_options(options::Ptr{mxq_expert_layer_options}, quantize::Ptr{mxq_quantize_options})::mxq_status

@doc raw"""
See `mxq_expert_layer_options_get_activate_options`.
"""
mxq_expert_layer_options_get_inner_format(options, format) = @ccall libmxq.mxq_expert_layer_options_get_inner_format(options::Ptr{mxq_expert_layer_options}, format::Ptr{mxq_format})::mxq_status

@doc raw"""
See `mxq_expert_layer_options_get_activate_options`.
"""
mxq_expert_layer_options_get_gate_up_bias(options, format, bias, bytes) = @ccall libmxq.mxq_expert_layer_options_get_gate_up_bias(options::Ptr{mxq_expert_layer_options}, format::Ptr{mxq_format}, bias::Ptr{Ptr{Cvoid}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
See `mxq_expert_layer_options_get_activate_options`.
"""
mxq_expert_layer_options_get_down_bias(options, format, bias, bytes) = @ccall libmxq.mxq_expert_layer_options_get_down_bias(options::Ptr{mxq_expert_layer_options}, format::Ptr{mxq_format}, bias::Ptr{Ptr{Cvoid}}, bytes::Ptr{UInt64})::mxq_status

@doc raw"""
See `mxq_expert_layer_options_get_activate_options`.
"""
mxq_expert_layer_options_get_residual(options, has_residual, residual) = @ccall libmxq.mxq_expert_layer_options_get_residual(options::Ptr{mxq_expert_layer_options}, has_residual::Ptr{Int32}, residual::Ptr{mxq_tensor})::mxq_status

@doc raw"""
See `mxq_expert_layer_options_get_activate_options`.
"""
mxq_expert_layer_options_get_weights_first(options, first) = @ccall libmxq.mxq_expert_layer_options_get_weights_first(options::Ptr{mxq_expert_layer_options}, first::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_expert_layer_options_get_activate_options`.
"""
mxq_expert_layer_options_get_exact_products(options, exact) = @ccall libmxq.mxq_expert_layer_options_get_exact_products(options::Ptr{mxq_expert_layer_options}, exact::Ptr{Int32})::mxq_status

@doc raw"""
See `mxq_expert_layer_options_get_activate_options`.
"""
mxq_expert_layer_options_get_row_invariant(options, row_invariant) = @ccall libmxq.mxq_expert_layer_options_get_row_invariant(options::Ptr{mxq_expert_layer_options}, row_invariant::Ptr{Int32})::mxq_status

@doc raw"""
Runs an expert layer, from tokens to tokens. With T tokens of K numbers, E experts of this rank and an activation from 2
I numbers to I (without a gate: from I to I):

    step            what                                              argument
    mxq_route       ids to rows of experts                            routing: left out where its arrays are computed
    mxq_quantize    rows of x by index, where the options say so      x (T, K), plain
    mxq_grouped_gemm   with its bias, to the inner format             gate_up (E, 2 I, K), any format
    mxq_activate    to the inner format, or quantized                 with the row weights, where they come first
    mxq_grouped_gemm   with its bias, to the inner format             down (E, K, I), any format
    mxq_combine     with the weights of choices, and the residual     out (T, K), plain

The bits are those of these verbs, where a query names the same implementations. routing has ids, memory and, where
wanted, weights. mxq_plan_implementation names those of all steps, separated by ", ": for few tokens on CUDA one does
several steps, with the bits of the product that its name begins with. mxq_plan_reason has their reasons, mxq_plan_bound
the larger number of the two products, and mxq_plan_workspace_bytes what all need. Sizes of groups stay on the device: a
graph that captures the call may be replayed with other ids and weights. Since 0.3.
"""
mxq_expert_layer(context, options, x, routing, gate_up, down, out, workspace, workspace_bytes, stream) = @ccall libmxq.mxq_expert_layer(context::Ptr{mxq_context}, options::Ptr{mxq_expert_layer_options}, x::Ptr{mxq_tensor}, routing::Ptr{mxq_routing}, gate_up::Ptr{mxq_tensor}, down::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, workspace::Ptr{Cvoid}, workspace_bytes::UInt64, stream::Ptr{Cvoid})::mxq_status

@doc raw"""
See `mxq_expert_layer`.
"""
mxq_expert_layer_query(context, options, x, routing, gate_up, down, out, plan) = @ccall libmxq.mxq_expert_layer_query(context::Ptr{mxq_context}, options::Ptr{mxq_expert_layer_options}, x::Ptr{mxq_tensor}, routing::Ptr{mxq_routing}, gate_up::Ptr{mxq_tensor}, down::Ptr{mxq_tensor}, out::Ptr{mxq_tensor}, plan::Ptr{Ptr{mxq_plan}})::mxq_status
