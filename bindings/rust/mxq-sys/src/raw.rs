// Made by bindings/generate.py from include/mxq/mxq.h of libmxq 0.2.0; change the header, not this file.

pub const MXQ_VERSION_MAJOR: i32 = 0;
pub const MXQ_VERSION_MINOR: i32 = 2;
pub const MXQ_VERSION_PATCH: i32 = 0;
/// Version of this header as mxq\_version gives that of the library: major \* 10000 + minor \* 100 + patch, for #if.
pub const MXQ_VERSION: i32 = 200;
/// Families of constants have types of their own, all int32\_t, so that signatures say which constants they take.
pub type mxq_status = i32;
pub const MXQ_STATUS_OK: mxq_status = 0;
/// NULL handle, unknown value, negative size, overlapping buffers and the like
pub const MXQ_STATUS_INVALID_ARGUMENT: mxq_status = 1;
/// shapes of the tensors do not fit together
pub const MXQ_STATUS_SHAPE_MISMATCH: mxq_status = 2;
/// this call needs a pointer that is NULL, or a part that was not set
pub const MXQ_STATUS_MISSING_BUFFER: mxq_status = 3;
/// a byte extent is shorter than mxq\_tensor\_required\_bytes, or the workspace too small
pub const MXQ_STATUS_BUFFER_TOO_SMALL: mxq_status = 4;
/// a pointer is not a multiple of its element's size
pub const MXQ_STATUS_MISALIGNED: mxq_status = 5;
/// this verb does not take the format or feature, or no implementation takes it here
pub const MXQ_STATUS_UNSUPPORTED: mxq_status = 6;
/// no such device, no driver, or the library was built without CUDA
pub const MXQ_STATUS_NO_DEVICE: mxq_status = 7;
/// host memory
pub const MXQ_STATUS_OUT_OF_MEMORY: mxq_status = 8;
/// CUDA refused a launch or reports an earlier failure; the message quotes CUDA
pub const MXQ_STATUS_CUDA_ERROR: mxq_status = 9;
/// a fault of the library: please report it with the message
pub const MXQ_STATUS_INTERNAL_ERROR: mxq_status = 10;
/// Which lines are wanted, and what a line is.
pub type mxq_log_level = i32;
/// no line
pub const MXQ_LOG_OFF: mxq_log_level = 0;
/// a line for each verb that runs
pub const MXQ_LOG_INFO: mxq_log_level = 1;
/// also a line for each implementation that declined
pub const MXQ_LOG_TRACE: mxq_log_level = 2;
/// Takes one line of the log, without a newline. The text is valid during the call.
pub type mxq_log_callback = Option<unsafe extern "C" fn(user: *mut c_void, level: mxq_log_level, line: *const c_char)>;
/// A format says how elements and their scales are stored. 0 is "unset".
pub type mxq_format = i32;
pub const MXQ_FORMAT_F32: mxq_format = 1;
pub const MXQ_FORMAT_F16: mxq_format = 2;
pub const MXQ_FORMAT_BF16: mxq_format = 3;
/// OCP MX: FP8 E4M3 codes (max 448, NaN 0x7F), one E8M0 scale per block of 32
pub const MXQ_FORMAT_MXFP8_E4M3: mxq_format = 4;
/// OCP MX: FP8 E5M2 codes (max 57344, has Inf), one E8M0 scale per block of 32
pub const MXQ_FORMAT_MXFP8_E5M2: mxq_format = 5;
/// OCP MX: FP6 E2M3 codes (max 7.5), four in three bytes, one E8M0 scale per block of 32
pub const MXQ_FORMAT_MXFP6_E2M3: mxq_format = 6;
/// OCP MX: FP6 E3M2 codes (max 28), four in three bytes, one E8M0 scale per block of 32
pub const MXQ_FORMAT_MXFP6_E3M2: mxq_format = 7;
/// OCP MX: FP4 E2M1 codes (max 6), two a byte, one E8M0 scale per block of 32
pub const MXQ_FORMAT_MXFP4: mxq_format = 8;
/// FP4 E2M1 codes, two a byte, one E4M3 scale per block of 16, one fp32 amax above them
pub const MXQ_FORMAT_NVFP4: mxq_format = 9;
/// FP8 E4M3 codes, fp32 scales
pub const MXQ_FORMAT_FP8_E4M3: mxq_format = 10;
/// FP8 E5M2 codes, fp32 scales
pub const MXQ_FORMAT_FP8_E5M2: mxq_format = 11;
/// Which elements share a scale. An E8M0 scale (MX) has the value 2^(byte - 127), 255 is NaN. FP8 has fp32 scales. A value is
/// its code times its scale.
pub type mxq_scaling = i32;
/// F32, F16, BF16
pub const MXQ_SCALING_NONE: mxq_scaling = 0;
/// MX (default): 32 neighbours along the part's contraction
pub const MXQ_SCALING_1X32: mxq_scaling = 1;
/// MX: square tiles; the rowwise and the columnwise part have the same values and scales
pub const MXQ_SCALING_32X32: mxq_scaling = 2;
/// MX, FP8: 128 neighbours along the part's contraction
pub const MXQ_SCALING_1X128: mxq_scaling = 3;
/// MX, FP8: square tiles
pub const MXQ_SCALING_128X128: mxq_scaling = 4;
/// NVFP4 (default): 16 neighbours along the part's contraction
pub const MXQ_SCALING_1X16: mxq_scaling = 5;
/// NVFP4: square tiles, their scale stored for each of the 16 rows of codes
pub const MXQ_SCALING_16X16: mxq_scaling = 6;
/// MX, FP8: a whole row (rowwise) or column (columnwise) of the matrix; with groups the
/// group's part of a column
pub const MXQ_SCALING_ROW: mxq_scaling = 7;
/// FP8 (default): the whole tensor, or an expert or group of it
pub const MXQ_SCALING_TENSOR: mxq_scaling = 8;
/// Properties of a format.
pub type mxq_property = i32;
/// bits of one element or code
pub const MXQ_PROPERTY_ELEMENT_BITS: mxq_property = 1;
/// elements that share a scale along the contraction with the default scaling: 1 for F32,
/// F16, BF16; 0 (all of them) for FP8
pub const MXQ_PROPERTY_BLOCK: mxq_property = 2;
/// 1: codes and scales, made by mxq\_quantize; 0: plain numbers
pub const MXQ_PROPERTY_QUANTIZED: mxq_property = 3;
#[repr(C)]
pub struct mxq_context {
    _opaque: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}
#[repr(C)]
pub struct mxq_context_options {
    _opaque: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}
/// Device types; the numbers are DLPack's.
pub type mxq_device = i32;
pub const MXQ_DEVICE_CPU: mxq_device = 1;
pub const MXQ_DEVICE_CUDA: mxq_device = 2;
/// A host's own way to run tasks on its threads: calls task(data, index) for each index from 0 to count - 1, on any threads, in
/// any order, concurrently or one after another, and returns when all calls have returned. It may leave tasks out: the calling
/// thread then does the work. It must not throw.
pub type mxq_task = Option<unsafe extern "C" fn(data: *mut c_void, index: i32)>;
/// See [`mxq_task`].
pub type mxq_parallel_for = Option<unsafe extern "C" fn(user: *mut c_void, count: i32, task: mxq_task, data: *mut c_void)>;
/// A descriptor: format, shape, and where the bytes are. It owns no memory.
///
/// Plain tensors (F32, F16, BF16) are row-major: rows x cols elements, or experts x rows x cols, each row starting
/// row\_stride elements after the one before, experts one after another (expert e starts at row e \* rows).
///
/// Quantized tensors have one or two parts, each with codes and scales:
///
/// ```text
/// part         codes          blocks run
/// rowwise      (rows, cols)   along a row:    the contraction is cols
/// columnwise   (cols, rows)   down a column:  the contraction is rows
/// ```
///
/// so columnwise codes are stored transposed; rows and cols of the descriptor are those of the matrix, whatever its parts. With
/// experts, each expert's matrices follow one another, codes (experts, cols, rows) for the columnwise part. A partial last block
/// uses the elements that exist.
///
/// Codes of 8 bits are bytes. Every row of codes, a `line` in the names of arguments, starts on a byte and has ceil(codes \*
/// bits / 8) of them, unused bits 0:
///
/// ```text
/// 4 bits   two a byte, the even element in the low half
/// 6 bits   four in three bytes: element i in bits 6 i .. 6 i + 5 of a little-endian 24-bit word
/// ```
///
/// Scales of an (R, C) matrix of codes (rowwise R = rows, C = cols; columnwise R = cols, C = rows), compact, row-major:
///
/// ```text
/// 1X32, 1X16, 1X128     (R, ceil(C / block))
/// 32X32, 128X128        (ceil(R / tile), ceil(C / tile)): the columnwise matrix is the transpose of the rowwise one
/// 16X16 (NVFP4)         as 1X16: a tile's scale is stored for each of its 16 rows
/// ROW                   (R)
/// TENSOR                one, or one for each expert or group (mxq_tensor_set_scope)
/// ```
///
/// Swizzled scales are what block-scaled tensor cores read:
///
/// ```text
/// MX, NVFP4   the (R, ceil(C / 32)) (NVFP4: 16) matrix of bytes in tiles of 128 x 4: scale (i, j) is byte
///             ((i / 128) * ceil(ceil(C / 32) / 4) + j / 4) * 512 + (i % 32) * 16 + (i % 128) / 32 * 4 + j % 4; bytes
///             that belong to no scale are written as 0, and only cuBLASLt reads them (cublaslt, cublaslt_grouped). A
///             coarser tile's byte is stored at every position that it covers, so that whatever reads 1X32 scales also
///             reads 32X32, 1X128, 128X128 and ROW. That it is the same over the whole tile, no verb checks.
/// FP8         1X128: (ceil(C / 128), R). 128X128: (ceil(R / 128), ceil(C / 128) rounded up to a multiple of 4 with +0).
///             With groups, of rowwise parts only. ROW and TENSOR have no swizzled layout.
/// ```
///
/// With experts, each expert's matrix is padded by itself.
///
/// An address must be a multiple of its element's size. Fast kernels want more, and others take over where it is missing: data,
/// codes and scales at multiples of 16 bytes (mxq\_tensor\_set\_memory gives 256), and rows of a multiple of 16 bytes: the row
/// stride of a plain tensor, and a row of codes. With groups, columnwise parts have these if the columnwise alignment is at
/// least 16 codes of 8 bits, 64 of 6 or 32 of 4 (more than NVFP4's default).
#[repr(C)]
pub struct mxq_tensor {
    _opaque: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}
pub type mxq_part = i32;
pub const MXQ_PART_ROWWISE: mxq_part = 1;
pub const MXQ_PART_COLUMNWISE: mxq_part = 2;
/// where a function takes several parts: both of them
pub const MXQ_PART_BOTH: mxq_part = 3;
/// Integer types of arrays that the caller keeps.
pub type mxq_type = i32;
pub const MXQ_TYPE_INT32: mxq_type = 1;
pub const MXQ_TYPE_INT64: mxq_type = 2;
/// largest rows, cols, experts; rows x cols x experts may reach 2^48
pub const MXQ_MAX_DIM: i32 = 2147483647;
/// largest number of groups
pub const MXQ_MAX_GROUPS: i32 = 4096;
/// How far one amax, decode scale, quantization scale or TENSOR scale reaches. The first three are refused with TENSOR where
/// they have the bytes of one for each expert or group.
pub type mxq_scope = i32;
/// default: one for the whole tensor
pub const MXQ_SCOPE_TENSOR: mxq_scope = 1;
/// one for each expert or group; a matrix without groups has one
pub const MXQ_SCOPE_EXPERT: mxq_scope = 2;
/// Options of quantize and all other verbs but products. NULL means defaults. Options that mean nothing to a call are refused
/// (INVALID\_ARGUMENT): those of another verb, format or scaling, a Hadamard transform of a part that out does not declare,
/// epsilon and powers of two with a given quantization scale. Options that were set to their default are refused alike, but
/// NONE, 0 and NULL, where they are the default, take an option back. mxq\_amax takes all that the quantize after it takes.
#[repr(C)]
pub struct mxq_quantize_options {
    _opaque: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}
/// MX: how a block's largest magnitude a becomes its power-of-two scale; max and emax are those of the element type.
pub type mxq_scale_rounding = i32;
/// floor(log2 a) - emax: OCP MX 1.0; the largest elements may saturate
pub const MXQ_SCALE_ROUNDING_FLOOR: mxq_scale_rounding = 1;
/// ceil(log2 a) - emax
pub const MXQ_SCALE_ROUNDING_CEIL: mxq_scale_rounding = 2;
/// FLOOR after rounding a to the element's mantissa
pub const MXQ_SCALE_ROUNDING_EVEN: mxq_scale_rounding = 3;
/// default: ceil(log2(a / max)); nothing saturates
pub const MXQ_SCALE_ROUNDING_RCEIL: mxq_scale_rounding = 4;
/// MX: what a NaN or an infinity in a block does. (NVFP4 and FP8 ignore NaN in maxima; as an element NaN becomes a NaN code,
/// or the largest value where the element type has no NaN.)
pub type mxq_nonfinite = i32;
/// default: scale 255 and NaN codes (0 where there are none) for the whole block
pub const MXQ_NONFINITE_PROPAGATE: mxq_nonfinite = 1;
/// NaN: a NaN code (or the largest), else ignored; infinities saturate under scale 0xFE
pub const MXQ_NONFINITE_SATURATE: mxq_nonfinite = 2;
/// NVFP4: each block takes the better of two scales, which map its largest magnitude to 6 or to 4.
pub type mxq_four_over_six = i32;
/// default: no choice, the scale maps to 6
pub const MXQ_FOUR_OVER_SIX_NONE: mxq_four_over_six = 0;
/// the scale with the smaller sum of absolute errors
pub const MXQ_FOUR_OVER_SIX_MAE: mxq_four_over_six = 1;
/// the scale with the smaller sum of squared errors
pub const MXQ_FOUR_OVER_SIX_MSE: mxq_four_over_six = 2;
/// Options of gemm and grouped\_gemm. NULL means defaults: A as it is, B transposed (the forward pass).
#[repr(C)]
pub struct mxq_gemm_options {
    _opaque: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}
pub type mxq_transpose = i32;
/// op(A) is A
pub const MXQ_TRANSPOSE_N: mxq_transpose = 1;
/// op(A) is A transposed
pub const MXQ_TRANSPOSE_T: mxq_transpose = 2;
/// Every verb has a query with the same arguments, without workspace and stream. It checks shapes, formats and options as
/// the verb does, and pointers where they are set. It returns MXQ\_STATUS\_OK where the verb would run, and \*plan tells how;
/// otherwise it returns the verb's status with \*plan NULL, and for UNSUPPORTED the message tells why each implementation
/// declined. `plan` may be NULL. A query reads no memory but descriptors, options and the copy that mxq\_tensor\_set\_host\_ends
/// names: ends out of order, which a CPU context refuses, are found by the verb alone.
#[repr(C)]
pub struct mxq_plan {
    _opaque: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}
/// The class of bound that a product's error keeps; mxq\_gemm tells what each class promises.
pub type mxq_bound = i32;
/// the verb is no product: its bytes are the same everywhere
pub const MXQ_BOUND_NONE: mxq_bound = 0;
/// products of two values are exact, sums are rounded to fp32
pub const MXQ_BOUND_EXACT_PRODUCTS: mxq_bound = 1;
/// products of two codes are exact, FP8 tensor cores cut the sums of 32 products
pub const MXQ_BOUND_FP8_TENSOR_CORES: mxq_bound = 2;
/// the same, after MX operands were given wider scales, which rounds small codes
pub const MXQ_BOUND_REBASED: mxq_bound = 3;
/// the same, but blocks far below their neighbours keep scales of their own
pub const MXQ_BOUND_REBASED_GUARDED: mxq_bound = 4;
/// products of two codes are exact; not measured: how FP8 and FP4 tensor cores sum
pub const MXQ_BOUND_BLACKWELL_TENSOR_CORES: mxq_bound = 5;
/// Names the activation between the two products of a feed-forward layer. g is the gate and u is `up`, each with its bias;
/// sigmoid(x) is 1 / (1 + e^-x). docs/numerics.md has each step and what NaN, infinities and -0 give. Since 0.3.
pub type mxq_activation = i32;
/// default: g sigmoid(g) u. Since 0.3
pub const MXQ_ACTIVATION_SWIGLU: mxq_activation = 1;
/// g (1 + erf(g / sqrt 2)) / 2 u. Since 0.3
pub const MXQ_ACTIVATION_GEGLU_ERF: mxq_activation = 2;
/// g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))) / 2 u. Since 0.3
pub const MXQ_ACTIVATION_GEGLU_TANH: mxq_activation = 3;
/// g sigmoid(alpha g) (u + addend), with g at most limit, u within +-limit. Since 0.3
pub const MXQ_ACTIVATION_SWIGLU_CLAMPED: mxq_activation = 4;
/// without a gate: x sigmoid(x). Since 0.3
pub const MXQ_ACTIVATION_SILU: mxq_activation = 5;
/// without a gate: x (1 + erf(x / sqrt 2)) / 2. Since 0.3
pub const MXQ_ACTIVATION_GELU_ERF: mxq_activation = 6;
/// without a gate: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. Since 0.3
pub const MXQ_ACTIVATION_GELU_TANH: mxq_activation = 7;
/// without a gate: max(x, 0)^2. Since 0.3
pub const MXQ_ACTIVATION_SQUARED_RELU: mxq_activation = 8;
/// Which columns of a row of 2 I are gates, and which are `up`. Since 0.3.
pub type mxq_gate_layout = i32;
/// default: I gates, then I ups. Since 0.3
pub const MXQ_GATE_LAYOUT_GATE_UP: mxq_gate_layout = 1;
/// I ups, then I gates. Since 0.3
pub const MXQ_GATE_LAYOUT_UP_GATE: mxq_gate_layout = 2;
/// gate, up, gate, up, ..., as gpt-oss has them. Since 0.3
pub const MXQ_GATE_LAYOUT_INTERLEAVED_GATE_UP: mxq_gate_layout = 3;
/// up, gate, up, gate, ... Since 0.3
pub const MXQ_GATE_LAYOUT_INTERLEAVED_UP_GATE: mxq_gate_layout = 4;
/// Options of activate, each at its default until it is set. NULL means defaults: SwiGLU, the gates first. Options that mean
/// nothing to a call are refused (INVALID\_ARGUMENT): a gate layout or a clamp of an activation that has none, options of
/// quantize where out is plain or that mean nothing to its format. Since 0.3.
#[repr(C)]
pub struct mxq_activate_options {
    _opaque: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}
/// A descriptor of one routing: each of T tokens chooses k of E experts. It owns no memory. Letters: T tokens, k choices, S
/// = T \* k. Choice j of token t has the number t \* k + j. mxq\_route computes, all int32 but the last:
///
/// ```text
/// ends          (experts of this rank)   one past the last row of each expert: groups for mxq_tensor_set_groups
/// row_tokens    (S)                      the token of each row; -1 for rows past the last end
/// choice_rows   (T, k)                   the row of each choice; -1 for a choice that is dropped
/// row_weights   (S), F32                 the weight of each row, where weights are set; 0 for rows past the last end
/// ```
///
/// Rows are sorted by expert, and rows of an expert by the number of their choice. Since 0.3.
#[repr(C)]
pub struct mxq_routing {
    _opaque: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}
/// Options of mxq\_expert\_layer, each at its default until it is set. What setters get is copied, but the memory that it
/// points to. Since 0.3.
#[repr(C)]
pub struct mxq_expert_layer_options {
    _opaque: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

extern "C" {
    /// Version of the loaded library as major \* 10000 + minor \* 100 + patch (0.2.0 is 200).
    pub fn mxq_version() -> i32;
    /// Version of the loaded library as text, "0.2.0". Static storage.
    pub fn mxq_version_string() -> *const c_char;
    /// Returns what the loaded library was built with, "GCC 12.2.0, CUDA 13.0.48 for 80-real 90a-real" or "GCC 12.2.0, without
    /// CUDA". Static storage.
    pub fn mxq_build_string() -> *const c_char;
    /// Name of a status, "MXQ\_STATUS\_SHAPE\_MISMATCH"; "unknown status" for a number that is none. Static storage, never NULL.
    pub fn mxq_status_name(status: mxq_status) -> *const c_char;
    /// Message of the last call of this thread that failed; "" before the first. Valid until this thread's next failure.
    pub fn mxq_last_error() -> *const c_char;
    /// Value of any constant of this header by its name, for languages that cannot read a C header:
    /// mxq\_constant("MXQ\_FORMAT\_BF16", &value). INVALID\_ARGUMENT for an unknown name or NULL.
    pub fn mxq_constant(name: *const c_char, value: *mut i64) -> mxq_status;
    /// Name of constant number `index`, from 0; NULL past the last. Static storage.
    pub fn mxq_constant_name(index: i32) -> *const c_char;
    /// Gives the lines up to `level` to the callback instead of writing them to stderr; MXQ\_LOG then means nothing. It holds for the
    /// whole process, as MXQ\_LOG does and stderr is: a program has one log, whichever of its parts use the library. The callback is
    /// called by the thread that calls a verb, before its work begins and while no lock is held, so that it may call the library;
    /// lines of its own calls come to it as well. Several threads may call it concurrently. A call that began before may still use
    /// the callback that was set before. NULL with MXQ\_LOG\_OFF and NULL (default): lines go to stderr as MXQ\_LOG says.
    pub fn mxq_set_log_callback(callback: mxq_log_callback, level: mxq_log_level, user: *mut c_void) -> mxq_status;
    /// Name of a format, "mxfp8\_e4m3"; NULL for an unknown one. Static storage.
    pub fn mxq_format_name(format: mxq_format) -> *const c_char;
    /// A property of a format. INVALID\_ARGUMENT for an unknown format or property.
    pub fn mxq_format_property(format: mxq_format, property: mxq_property, value: *mut i64) -> mxq_status;
    /// Options of a context, each at its default until it is set.
    pub fn mxq_context_options_create(out: *mut *mut mxq_context_options) -> mxq_status;
    /// See [`mxq_context_options_create`].
    pub fn mxq_context_options_destroy(options: *mut mxq_context_options);
    /// Threads of the CPU backend, the calling one included: 1 to 1024, or 0 (default) for as many cores as the process may use:
    /// those of the calling thread's affinity, but no more than the CPU quota of its cgroup (a container's limit), rounded up. A
    /// CUDA context has no threads. (The instruction set is the fastest that the CPU has; the environment variable MXQ\_CPU\_ISA
    /// names the most that it may be when a context is created: scalar, avx2, avx512bw, avx512 or avx512bf16. The bytes are the
    /// same.)
    pub fn mxq_context_options_set_threads(options: *mut mxq_context_options, threads: i32) -> mxq_status;
    /// 0 (default): the context shares its threads with all CPU contexts of the process that have as many and were created under
    /// the same affinity; they start with the first of these contexts and end with the last. Calls of several contexts then divide
    /// the threads, and each caller works on its own call, so that none waits for another. 1: the context has threads of its own.
    pub fn mxq_context_options_set_own_threads(options: *mut mxq_context_options, own: i32) -> mxq_status;
    /// Runs the work of the CPU backend on threads of the host: the context starts none. parallel\_for gets `user`, and a count of 2
    /// up to the number of mxq\_context\_options\_set\_threads. It is called by the thread that calls a verb, once or more for a call,
    /// and not at all for little work or in a forked child, where the calling thread does the work. When several threads call verbs,
    /// several threads call it concurrently; tasks never wait for one another. It must be callable as long as the context lives.
    /// The bytes, products too, are the same for any pool. Cannot be combined with threads of its own: the setter that is called
    /// second is refused. NULL with NULL (default): the library's threads.
    pub fn mxq_context_options_set_parallel_for(options: *mut mxq_context_options, parallel_for: mxq_parallel_for, user: *mut c_void) -> mxq_status;
    /// The cuBLASLt that a CUDA context uses, as a file such as "/opt/cuda/lib64/libcublasLt.so.13"; no other file is tried. NULL
    /// or "" (default): the file that the environment variable MXQ\_CUBLASLT\_PATH names when the process first needs one, or else
    /// libcublasLt.so.13 or .12, first one that the process has loaded already, then one that the loader finds. Without cuBLASLt
    /// the context uses other implementations, and mxq\_context\_cublaslt tells why. A CPU context does not use cuBLASLt.
    pub fn mxq_context_options_set_cublaslt_path(options: *mut mxq_context_options, path: *const c_char) -> mxq_status;
    /// Each setter of options has a getter, which gives what was set or the default. Every output may be NULL for "not wanted". A
    /// text is "" where none is set, and lives until its setter is called again or the options are destroyed.
    pub fn mxq_context_options_get_threads(options: *const mxq_context_options, threads: *mut i32) -> mxq_status;
    /// See [`mxq_context_options_get_threads`].
    pub fn mxq_context_options_get_own_threads(options: *const mxq_context_options, own: *mut i32) -> mxq_status;
    /// See [`mxq_context_options_get_threads`].
    pub fn mxq_context_options_get_parallel_for(options: *const mxq_context_options, parallel_for: *mut mxq_parallel_for, user: *mut *mut c_void) -> mxq_status;
    /// See [`mxq_context_options_get_threads`].
    pub fn mxq_context_options_get_cublaslt_path(options: *const mxq_context_options, path: *mut *const c_char) -> mxq_status;
    /// Creates a context for one device: MXQ\_DEVICE\_CPU with ordinal 0, or MXQ\_DEVICE\_CUDA with a CUDA ordinal. options may be
    /// NULL. It loads everything that a later call under graph capture must not load, so create it outside of capture. On failure
    /// \*out is NULL. NO\_DEVICE: the message says whether the build has no CUDA, the driver is missing, there is no such device, or
    /// it is older than compute capability 8.0.
    pub fn mxq_context_create(device_type: mxq_device, ordinal: i32, options: *const mxq_context_options, out: *mut *mut mxq_context) -> mxq_status;
    /// Destroys a context. No call may be using it; work that it enqueued may still be running.
    pub fn mxq_context_destroy(context: *mut mxq_context);
    /// One line about the device, such as "CPU, 8 threads, avx2" or "CUDA 0, NVIDIA H200, sm\_90". Lives as long as the context;
    /// "" for NULL.
    pub fn mxq_context_description(context: *const mxq_context) -> *const c_char;
    /// One line about the cuBLASLt that the context's products may use: its version and path, or why there is none. Lives as long
    /// as the context; "" for NULL.
    pub fn mxq_context_cublaslt(context: *const mxq_context) -> *const c_char;
    /// A descriptor for rows x cols; each may be 0. On failure \*out is NULL.
    pub fn mxq_tensor_create_2d(format: mxq_format, rows: i64, cols: i64, out: *mut *mut mxq_tensor) -> mxq_status;
    /// A descriptor for experts x rows x cols; each may be 0. On failure \*out is NULL.
    pub fn mxq_tensor_create_3d(format: mxq_format, experts: i64, rows: i64, cols: i64, out: *mut *mut mxq_tensor) -> mxq_status;
    pub fn mxq_tensor_destroy(tensor: *mut mxq_tensor);
    /// Sets which elements share a scale: MXQ\_SCALING\_\*, which says the formats that take it. For quantized tensors. Setters may be
    /// called in any order, but where their comments say otherwise; the later one refuses what cannot go together, such as FP8's ROW
    /// and swizzled scales.
    pub fn mxq_tensor_set_scaling(tensor: *mut mxq_tensor, scaling: mxq_scaling) -> mxq_status;
    /// 1: the scales of every part are swizzled; 0 (default): compact. For quantized tensors.
    pub fn mxq_tensor_set_swizzled(tensor: *mut mxq_tensor, swizzled: i32) -> mxq_status;
    /// Elements from one row to the next, at least cols (default cols). For plain tensors; the codes and scales of quantized ones
    /// have mxq\_tensor\_set\_strides. Nothing behind the last row's cols is touched: the tensor has (experts \* rows - 1) \* row stride
    /// \+ cols elements, none if it is empty. Tensors of equal strides in bytes may be column ranges of one buffer: only shared
    /// elements overlap.
    pub fn mxq_tensor_set_row_stride(tensor: *mut mxq_tensor, elements: i64) -> mxq_status;
    /// Data of a plain tensor. `bytes` is how much may be accessed from `data`. NULL with 0 clears the pointer. NULL with more is
    /// refused, as by the other setters of a part and of its numbers: memory that could not be allocated looks so.
    pub fn mxq_tensor_set_data(tensor: *mut mxq_tensor, data: *mut c_void, bytes: u64) -> mxq_status;
    /// Data of a plain tensor that is only read: verbs refuse to write it (INVALID\_ARGUMENT). Otherwise as mxq\_tensor\_set\_data,
    /// and each replaces the other.
    pub fn mxq_tensor_set_const_data(tensor: *mut mxq_tensor, data: *const c_void, bytes: u64) -> mxq_status;
    /// Data of a plain tensor as one address for each expert, for experts that are not contiguous, as in a checkpoint that has
    /// a tensor for each, or as halves of larger tensors. `data` is an array of `count` addresses in memory of the context's device;
    /// `count` is the number of experts, and each address has `bytes` bytes from there on: rows one row stride apart, and no stride
    /// between experts. mxq\_tensor\_required\_bytes then tells the bytes of one expert, and mxq\_tensor\_total\_bytes still those of all
    /// together. The array must stay until the work is done. Experts without rows have addresses too. Such data are only read,
    /// by mxq\_quantize, mxq\_amax, mxq\_convert and products; verbs refuse to write them (INVALID\_ARGUMENT). All implementations of
    /// the CPU take a list; others decline by name in the plan, and on CUDA none takes one yet. It replaces mxq\_tensor\_set\_data and
    /// mxq\_tensor\_set\_memory, and the other way round. 3-D tensors only; a NULL array with 0 bytes serves queries.
    pub fn mxq_tensor_set_data_list(tensor: *mut mxq_tensor, count: i64, data: *const *const c_void, bytes: u64) -> mxq_status;
    /// Codes and scales of one part of a quantized tensor, each with its byte extent. The part is then declared: a quantize
    /// into this tensor writes it, and writes both from one read of the input where both are declared. NULL pointers
    /// with 0 bytes declare a part for sizes and queries, which need no memory. While no part is declared, a query assumes the
    /// part that it needs (rowwise where either would do). A verb that only reads the tensor writes neither, so that both may be
    /// in memory that is mapped for reading. An extent may be larger than needed; whether the bytes are those of the scaling and
    /// the layout that were set, the library cannot see.
    pub fn mxq_tensor_set_part(tensor: *mut mxq_tensor, part: mxq_part, codes: *mut c_void, code_bytes: u64, scales: *mut c_void, scale_bytes: u64) -> mxq_status;
    /// Codes and scales of one part that are only read: verbs refuse to write either (INVALID\_ARGUMENT). Otherwise as
    /// mxq\_tensor\_set\_part, and each replaces the other.
    pub fn mxq_tensor_set_const_part(tensor: *mut mxq_tensor, part: mxq_part, codes: *const c_void, code_bytes: u64, scales: *const c_void, scale_bytes: u64) -> mxq_status;
    /// Codes and scales of a part as one address for each expert, for experts that are not contiguous, as in a checkpoint that
    /// has a tensor for each. `codes` and `scales` are arrays of `count` addresses in memory of the context's device; `count` is the
    /// number of experts, and each address has code\_bytes or scale\_bytes from there on. mxq\_tensor\_required\_bytes then tells the
    /// bytes of one expert, and mxq\_tensor\_total\_bytes still those of all together. Both arrays must stay until the work is
    /// done. Row strides are those of each expert; there are no expert strides. TENSOR scales need MXQ\_SCOPE\_EXPERT; the amax or
    /// decode scales of NVFP4 stay one array. Experts without rows have addresses too. Such a part is only read, by
    /// mxq\_dequantize, mxq\_requantize and products; verbs refuse to write it (INVALID\_ARGUMENT). All implementations of the CPU take
    /// a list; others decline by name in the plan, and on CUDA none takes one yet. It replaces mxq\_tensor\_set\_part and
    /// mxq\_tensor\_set\_memory, and the other way round. 3-D tensors only; NULL arrays with 0 bytes serve queries.
    pub fn mxq_tensor_set_part_list(tensor: *mut mxq_tensor, part: mxq_part, count: i64, codes: *const *const c_void, code_bytes: u64, scales: *const *const c_void, scale_bytes: u64) -> mxq_status;
    /// Strides in bytes of a part that is a slice of something larger: from one row of codes (code\_line) and from one row of the
    /// compact scales (scale\_line) to the next, and from one expert's codes and scales to the next expert's. Rows of a columnwise
    /// part are its K-major rows, one for each column. 0 (default): contiguous; experts then follow their rows. Columns \[k, k + K)
    /// of rowwise MXFP8 weights (N, K\_all), k and K\_all multiples of 32, are read in place, with their addresses moved by k codes
    /// and k / 32 scales and with the strides (K\_all, 0, K\_all / 32, 0); of MXFP4 weights with k / 2 and K\_all / 2 for the codes.
    /// Where K\_all is no multiple of 32, rows of scales are ceil(K\_all / 32) bytes apart. `gate` of a `gate_up` in codes (experts, 2
    /// N, K) has an expert stride of 2 N K. Rows of different experts may overlap, since they are only read. A stride is at least
    /// one row, and a multiple of 4 for fp32 scales; it is compared with the scaling, the layout and the scope that the tensor has,
    /// so set those before strides. Rows of different experts may alternate. Bytes between rows are not touched.
    /// mxq\_tensor\_required\_bytes counts from the first row to the end of the last.
    ///
    /// Swizzled and TENSOR scales have no row stride; TENSOR ones have an expert stride with MXQ\_SCOPE\_EXPERT. 2-D tensors have no
    /// expert strides, and groups none at all (INVALID\_ARGUMENT). Parts with strides are only read, by mxq\_dequantize,
    /// mxq\_requantize, the products and, but not from a list, mxq\_swizzle\_scales and mxq\_unswizzle\_scales. All implementations of
    /// the CPU take them; others decline by name in the plan, and on CUDA none takes strides yet. No verb writes such a part
    /// (UNSUPPORTED). Pointers that are set anew leave the strides as they are; mxq\_tensor\_clear\_part clears them.
    pub fn mxq_tensor_set_strides(tensor: *mut mxq_tensor, part: mxq_part, code_line: i64, code_expert: i64, scale_line: i64, scale_expert: i64) -> mxq_status;
    /// Declares the named parts of a quantized tensor (MXQ\_PART\_ROWWISE, MXQ\_PART\_COLUMNWISE or MXQ\_PART\_BOTH), or the data of a
    /// plain one (MXQ\_PART\_ROWWISE), in one block of memory at a multiple of 256 bytes, of at least mxq\_tensor\_total\_bytes. For each
    /// part, rowwise first, the block has codes, scales and, for NVFP4, the amax, each at a multiple of 256 bytes. Format, scaling,
    /// layout, scope and groups must be set before, since sizes follow from them. NULL with 0 where the total is 0. Replaces what
    /// mxq\_tensor\_set\_data, mxq\_tensor\_set\_part and mxq\_tensor\_set\_amax said; other buffers stay as they are. An NVFP4 part that
    /// has a decode scale needs no amax and gets none, nor does a tensor of 0 experts. FP8's amax is optional: it is set by
    /// mxq\_tensor\_set\_amax.
    pub fn mxq_tensor_set_memory(tensor: *mut mxq_tensor, parts: mxq_part, memory: *mut c_void, bytes: u64) -> mxq_status;
    /// Bytes of the block that mxq\_tensor\_set\_memory takes for the named parts, a multiple of 256. With groups, they suffice for any
    /// ends.
    pub fn mxq_tensor_total_bytes(tensor: *const mxq_tensor, parts: mxq_part, bytes: *mut u64) -> mxq_status;
    /// Clears a declared part, and all that was set for it: the tensor no longer has it.
    pub fn mxq_tensor_clear_part(tensor: *mut mxq_tensor, part: mxq_part) -> mxq_status;
    /// Groups of rows, such as the tokens of each expert. `ends` holds `count` integers of type MXQ\_TYPE\_INT32 or
    /// MXQ\_TYPE\_INT64 in the memory of the context's device, and `bytes` is exactly their size (it is not looked at where ends is
    /// NULL): ends\[g\] is one past the last row of group g, never decreasing, at most rows. Empty groups are allowed; rows past
    /// the last end belong to no group: they are not read and what they would produce is not written. On CUDA the host never
    /// reads `ends`: where values are out of order nothing outside the buffers is touched, and what is written is not defined. On a
    /// CPU context the verbs check them, but not those of a call that has nothing to write. 2-D tensors only. A count of 0 with
    /// NULL clears the groups; a count with NULL ends serves queries and sizes.
    ///
    /// In memory every group is padded to a multiple of an alignment A: group g starts at
    /// P\[g\] = sum over h \< g of A \* ceil(m\_h / A), m\_h being the rows of group h, and padding is as if rows of +0 followed the
    /// group. `rows` and `ends` never count padding. P\[count\] is at most A \* floor((rows + (A - 1) \* min(count, rows)) / A),
    /// which is what mxq\_tensor\_required\_bytes takes for the number of stored rows. So the ends {30, 30, 70} of 70 rows are
    /// groups of 30, 0 and 40 rows; with A = 32 they start at stored rows P = {0, 32, 32} and fill P\[3\] = 96 of at most 160.
    ///
    /// ```text
    /// plain, rowwise   codes start at row P[g]; A is the rowwise alignment, by default 1: no padding
    /// columnwise       codes are (cols, Mc), Mc the bound above, and start at column P[g]; A is the columnwise alignment, a
    ///                  multiple of the block, which may not straddle groups: by default 32, 16 for NVFP4, 128 for
    ///                  1X128 and 128X128; ROW of MX wants a multiple of 32, ROW and TENSOR of FP8 one of 16 (default 32)
    /// ```
    ///
    /// Two tensors of a call have the same groups where type and count are equal and ends is the same address. On a CPU context
    /// ends may also be two arrays of equal values, which the verb compares and a query, which reads no memory, takes for equal.
    ///
    /// Compact scales follow the codes. Square tiles (but NVFP4's) restart at each group: tile row sum over h \< g of ceil(m\_h / t).
    /// Columnwise ROW scales are (count, cols). Swizzled scales of a group are a matrix of their own, of its rows or, for the
    /// columnwise part, of cols rows of codes, in tiles as ever; they follow those of the group before, and all their bytes are
    /// written.
    pub fn mxq_tensor_set_groups(tensor: *mut mxq_tensor, ends: *const c_void, bytes: u64, ends_type: mxq_type, count: i32) -> mxq_status;
    /// 1: every row belongs to a group, so the last end must be `rows`; a call refuses other ends where the host can read them:
    /// on a CPU context, and those of mxq\_tensor\_set\_host\_ends. It finds starts or sizes that were given instead of ends. 0
    /// (default): rows may follow the last end. Stays when the groups change; without groups it means nothing. 2-D tensors only.
    pub fn mxq_tensor_set_groups_cover_rows(tensor: *mut mxq_tensor, cover: i32) -> mxq_status;
    /// Optional copy of `ends` in host memory, of the type, count and bytes given to mxq\_tensor\_set\_groups. Call that function
    /// first: it clears an earlier copy. The copy is read during a call and never replaces `ends`; that of A lets mxq\_grouped\_gemm
    /// on a CUDA context take an implementation that makes one call per group. Its values must ascend and end within the rows;
    /// that they equal those on the device is not checked. While the stream is captured the copy is ignored, because a replay may
    /// have other groups: clear it before the query for a captured call. NULL clears it.
    pub fn mxq_tensor_set_host_ends(tensor: *mut mxq_tensor, ends: *const c_void, bytes: u64) -> mxq_status;
    /// The alignments of the tensor's groups: powers of two up to 128; columnwise 0: the default. A columnwise one must be a
    /// multiple of the block of the scaling, or of the format's smallest block until a scaling is set.
    pub fn mxq_tensor_set_group_alignment(tensor: *mut mxq_tensor, rowwise: i32, columnwise: i32) -> mxq_status;
    /// Where mxq\_pad\_groups and mxq\_unpad\_groups write the start and the end, padding included, of each group in a part of out (a
    /// plain tensor: MXQ\_PART\_ROWWISE): `count` integers each, of the type of the ends, on the device. NULL: not wanted.
    pub fn mxq_tensor_set_padded_groups(tensor: *mut mxq_tensor, part: mxq_part, starts: *mut c_void, start_bytes: u64, ends: *mut c_void, end_bytes: u64) -> mxq_status;
    /// The amax (largest magnitude, NaN ignored) of a part, on the device.
    /// ```text
    /// NVFP4  One, or one per expert or group (mxq_tensor_set_scope). Block scales and codes are made relative to it, and
    ///        decoding needs it. mxq_quantize and mxq_requantize compute and write it, or read it where
    ///        mxq_quantize_options_set_compute_amax says that it is given. Without a Hadamard transform both parts have the
    ///        same amax; where it is only read they may share its memory. A tensor of 0 experts may leave it out.
    /// FP8    As many as scales, laid out like them, swizzled ones and their padding too. mxq_quantize writes it where set.
    /// ```
    /// On a CPU context, verbs refuse an amax, decode scale or quantization scale that they read and that is NaN or negative. On
    /// CUDA nobody sees it, and a NaN or negative one makes codes and values that mean nothing. NULL clears it.
    pub fn mxq_tensor_set_amax(tensor: *mut mxq_tensor, part: mxq_part, amax: *mut f32, bytes: u64) -> mxq_status;
    /// Bytes that the amax of a part takes; 0 for a format without amax.
    pub fn mxq_tensor_required_amax_bytes(tensor: *const mxq_tensor, part: mxq_part, bytes: *mut u64) -> mxq_status;
    /// NVFP4: the decode scale amax / (6 \* scale\_max) of a part, as checkpoints store it. Verbs that read the part use it
    /// instead of the amax; a part that has one of the two refuses the other. A quantize into the part refuses it: it needs an amax.
    /// As many as amaxes, on the device. NULL clears it.
    pub fn mxq_tensor_set_decode_scale(tensor: *mut mxq_tensor, part: mxq_part, scale: *const f32, bytes: u64) -> mxq_status;
    /// NVFP4: the largest block scale, 448 (default) or 256. Encoding and decoding need the same value.
    pub fn mxq_tensor_set_scale_max(tensor: *mut mxq_tensor, scale_max: i32) -> mxq_status;
    /// NVFP4 with 1X16 scales and MXFP4 with 1X32 or 1X128 ones, 1: the part holds values that a random Hadamard transform was
    /// applied to, every 16 neighbours along the contraction, which must be a multiple of 16; 0 with a mask of 0 (default): the
    /// values themselves. Bit i of `mask` flips the sign of element i first; 0xD7E8 is common. mxq\_quantize, mxq\_requantize and
    /// mxq\_amax apply the transform before amax and scale, and mxq\_dequantize undoes it. Products multiply transformed values as
    /// they are: it cancels where both operands have it, so they refuse parts with different ones.
    pub fn mxq_tensor_set_hadamard(tensor: *mut mxq_tensor, part: mxq_part, transformed: i32, mask: i32) -> mxq_status;
    /// FP8 with TENSOR scales, others refuse it: the factor that mxq\_quantize multiplies by (delayed scaling), one, or one per
    /// expert or group, on the device. It is positive and finite. Verbs refuse another one on a CPU context; on CUDA nobody sees
    /// it: a 0 makes a stored scale of Inf, and what is dequantized is then NaN. The stored scale is its reciprocal. NULL
    /// (default): mxq\_quantize makes it from the amax of its input (current scaling).
    pub fn mxq_tensor_set_quantization_scale(tensor: *mut mxq_tensor, scale: *const f32, bytes: u64) -> mxq_status;
    pub fn mxq_tensor_set_scope(tensor: *mut mxq_tensor, scope: mxq_scope) -> mxq_status;
    /// Bytes of codes and bytes of scales that a part needs. For a plain tensor ask for MXQ\_PART\_ROWWISE: \*code\_bytes is that of
    /// its data, \*scale\_bytes is 0. With groups, the bytes suffice for any ends. Either output may be NULL.
    pub fn mxq_tensor_required_bytes(tensor: *const mxq_tensor, part: mxq_part, code_bytes: *mut u64, scale_bytes: *mut u64) -> mxq_status;
    /// Each setter has a getter, which gives what was set or the default. Every output may be NULL for "not wanted"; pointers that
    /// are not set are NULL with 0 bytes.
    pub fn mxq_tensor_get_format(tensor: *const mxq_tensor, format: *mut mxq_format) -> mxq_status;
    /// \*dimensions is 2 or 3; \*experts is 1 for 2.
    pub fn mxq_tensor_get_shape(tensor: *const mxq_tensor, dimensions: *mut i32, experts: *mut i64, rows: *mut i64, cols: *mut i64) -> mxq_status;
    /// See [`mxq_tensor_get_shape`].
    pub fn mxq_tensor_get_scaling(tensor: *const mxq_tensor, scaling: *mut mxq_scaling) -> mxq_status;
    /// See [`mxq_tensor_get_shape`].
    pub fn mxq_tensor_get_swizzled(tensor: *const mxq_tensor, swizzled: *mut i32) -> mxq_status;
    /// \*elements is cols for a quantized tensor.
    pub fn mxq_tensor_get_row_stride(tensor: *const mxq_tensor, elements: *mut i64) -> mxq_status;
    /// Data of a plain tensor; \*is\_const is 1 where it may not be written: set by mxq\_tensor\_set\_const\_data, or a list.
    pub fn mxq_tensor_get_data(tensor: *const mxq_tensor, data: *mut *mut c_void, bytes: *mut u64, is_const: *mut i32) -> mxq_status;
    /// \*count is 0 where the plain tensor has no list. mxq\_tensor\_get\_data gives no address of one that has.
    pub fn mxq_tensor_get_data_list(tensor: *const mxq_tensor, count: *mut i64, data: *mut *const *const c_void, bytes: *mut u64) -> mxq_status;
    /// \*declared is 1 where the quantized tensor has the part, and \*is\_const is 1 where it is only read.
    pub fn mxq_tensor_get_part(tensor: *const mxq_tensor, part: mxq_part, declared: *mut i32, codes: *mut *mut c_void, code_bytes: *mut u64, scales: *mut *mut c_void, scale_bytes: *mut u64, is_const: *mut i32) -> mxq_status;
    /// \*count is 0 where the part has no list. mxq\_tensor\_get\_part gives no addresses of one that has.
    pub fn mxq_tensor_get_part_list(tensor: *const mxq_tensor, part: mxq_part, count: *mut i64, codes: *mut *const *const c_void, code_bytes: *mut u64, scales: *mut *const *const c_void, scale_bytes: *mut u64) -> mxq_status;
    /// The strides that were set; 0: none.
    pub fn mxq_tensor_get_strides(tensor: *const mxq_tensor, part: mxq_part, code_line: *mut i64, code_expert: *mut i64, scale_line: *mut i64, scale_expert: *mut i64) -> mxq_status;
    /// \*ends\_type is 0 without groups. \*bytes is the size of the ends by their type and count, with ends of NULL too.
    pub fn mxq_tensor_get_groups(tensor: *const mxq_tensor, ends: *mut *const c_void, bytes: *mut u64, ends_type: *mut mxq_type, count: *mut i32) -> mxq_status;
    /// See [`mxq_tensor_get_groups`].
    pub fn mxq_tensor_get_groups_cover_rows(tensor: *const mxq_tensor, cover: *mut i32) -> mxq_status;
    /// See [`mxq_tensor_get_groups`].
    pub fn mxq_tensor_get_host_ends(tensor: *const mxq_tensor, ends: *mut *const c_void, bytes: *mut u64) -> mxq_status;
    /// The alignments that hold: the default for the scaling where columnwise is 0.
    pub fn mxq_tensor_get_group_alignment(tensor: *const mxq_tensor, rowwise: *mut i32, columnwise: *mut i32) -> mxq_status;
    /// See [`mxq_tensor_get_group_alignment`].
    pub fn mxq_tensor_get_padded_groups(tensor: *const mxq_tensor, part: mxq_part, starts: *mut *mut c_void, start_bytes: *mut u64, ends: *mut *mut c_void, end_bytes: *mut u64) -> mxq_status;
    /// See [`mxq_tensor_get_group_alignment`].
    pub fn mxq_tensor_get_amax(tensor: *const mxq_tensor, part: mxq_part, amax: *mut *mut f32, bytes: *mut u64) -> mxq_status;
    /// See [`mxq_tensor_get_group_alignment`].
    pub fn mxq_tensor_get_decode_scale(tensor: *const mxq_tensor, part: mxq_part, scale: *mut *const f32, bytes: *mut u64) -> mxq_status;
    /// See [`mxq_tensor_get_group_alignment`].
    pub fn mxq_tensor_get_hadamard(tensor: *const mxq_tensor, part: mxq_part, transformed: *mut i32, mask: *mut i32) -> mxq_status;
    /// See [`mxq_tensor_get_group_alignment`].
    pub fn mxq_tensor_get_scale_max(tensor: *const mxq_tensor, scale_max: *mut i32) -> mxq_status;
    /// See [`mxq_tensor_get_group_alignment`].
    pub fn mxq_tensor_get_quantization_scale(tensor: *const mxq_tensor, scale: *mut *const f32, bytes: *mut u64) -> mxq_status;
    /// See [`mxq_tensor_get_group_alignment`].
    pub fn mxq_tensor_get_scope(tensor: *const mxq_tensor, scope: *mut mxq_scope) -> mxq_status;
    /// Writes what MXQ\_LOG calls the tensor, such as "mxfp8\_e4m3 100 x 64 in 4 groups 1x32 rowwise swizzled", to `buffer`, cut to
    /// size - 1 bytes and ended by a 0 as snprintf does; with its strides, in bytes but a row stride, and its lists: "bf16 8 x 64 x
    /// 32 row stride 96 listed", "mxfp4 64 x 32 1x32 rowwise strides (64, 0, 4, 0)". Returns the length of the whole text without
    /// the 0; 0 for a handle that is NULL or refused, with "" in the buffer. A buffer of NULL or a size of 0: nothing is written.
    pub fn mxq_tensor_describe(tensor: *const mxq_tensor, buffer: *mut c_char, size: u64) -> u64;
    pub fn mxq_quantize_options_create(out: *mut *mut mxq_quantize_options) -> mxq_status;
    pub fn mxq_quantize_options_destroy(options: *mut mxq_quantize_options);
    /// MX: MXQ\_SCALE\_ROUNDING\_\*.
    pub fn mxq_quantize_options_set_scale_rounding(options: *mut mxq_quantize_options, rounding: mxq_scale_rounding) -> mxq_status;
    /// MX: MXQ\_NONFINITE\_\*.
    pub fn mxq_quantize_options_set_nonfinite(options: *mut mxq_quantize_options, policy: mxq_nonfinite) -> mxq_status;
    /// NVFP4: MXQ\_FOUR\_OVER\_SIX\_\*.
    pub fn mxq_quantize_options_set_four_over_six(options: *mut mxq_quantize_options, mode: mxq_four_over_six) -> mxq_status;
    /// NVFP4 and MXFP4, 1 (default): mxq\_dequantize undoes the transform that mxq\_tensor\_set\_hadamard says the part has; 0: it gives
    /// the transformed values. Groups along the contraction refuse 0 for a transformed part, which has values in their padding.
    pub fn mxq_quantize_options_set_undo_hadamard(options: *mut mxq_quantize_options, undo: i32) -> mxq_status;
    /// NVFP4 and MXFP4, but not with ROW scales: rounds codes up or down at random (Philox4x32-10), with probabilities that follow
    /// the distances to the two codes. `seed_offset` is the address of two uint64, the seed and the offset, in memory of the
    /// context's device, read when the work runs; `bytes` is exactly 16. NULL (default): codes are rounded to nearest. The same
    /// seed and offset give the same codes on every device. Cannot be combined with four-over-six: the setter that is called second
    /// is refused.
    pub fn mxq_quantize_options_set_stochastic_rounding(options: *mut mxq_quantize_options, seed_offset: *const u64, bytes: u64) -> mxq_status;
    /// NVFP4, 1 (default): quantize and requantize first compute the amax of every part and write it where mxq\_tensor\_set\_amax
    /// says, which reads the input once more; 0: the amax is given, and they read it from there. mxq\_amax computes it in either
    /// case.
    pub fn mxq_quantize_options_set_compute_amax(options: *mut mxq_quantize_options, compute: i32) -> mxq_status;
    /// FP8, 1: quantization scales that are made from an amax are rounded down to powers of two; 0 (default): they are not.
    pub fn mxq_quantize_options_set_power_of_two_scales(options: *mut mxq_quantize_options, power_of_two: i32) -> mxq_status;
    /// FP8: a scale is made from max(amax, epsilon); 0 by default.
    pub fn mxq_quantize_options_set_amax_epsilon(options: *mut mxq_quantize_options, epsilon: f32) -> mxq_status;
    /// dequantize and requantize: the part of in that is read, which in must declare. 0 (default): the rowwise part if declared,
    /// else the columnwise one.
    pub fn mxq_quantize_options_set_source_part(options: *mut mxq_quantize_options, part: mxq_part) -> mxq_status;
    /// Makes the verb take the implementation of this name or fail. NULL or "" (default): the best one, or that of MXQ\_IMPL.
    /// Names are those that mxq\_plan\_implementation gives.
    pub fn mxq_quantize_options_set_implementation(options: *mut mxq_quantize_options, name: *const c_char) -> mxq_status;
    /// Return what was set, or the default, like the getters of a context's options. \*seed\_offset is NULL with 0 bytes where codes
    /// are rounded to nearest.
    pub fn mxq_quantize_options_get_scale_rounding(options: *const mxq_quantize_options, rounding: *mut mxq_scale_rounding) -> mxq_status;
    /// See [`mxq_quantize_options_get_scale_rounding`].
    pub fn mxq_quantize_options_get_nonfinite(options: *const mxq_quantize_options, policy: *mut mxq_nonfinite) -> mxq_status;
    /// See [`mxq_quantize_options_get_scale_rounding`].
    pub fn mxq_quantize_options_get_four_over_six(options: *const mxq_quantize_options, mode: *mut mxq_four_over_six) -> mxq_status;
    /// See [`mxq_quantize_options_get_scale_rounding`].
    pub fn mxq_quantize_options_get_undo_hadamard(options: *const mxq_quantize_options, undo: *mut i32) -> mxq_status;
    /// See [`mxq_quantize_options_get_scale_rounding`].
    pub fn mxq_quantize_options_get_stochastic_rounding(options: *const mxq_quantize_options, seed_offset: *mut *const u64, bytes: *mut u64) -> mxq_status;
    /// See [`mxq_quantize_options_get_scale_rounding`].
    pub fn mxq_quantize_options_get_compute_amax(options: *const mxq_quantize_options, compute: *mut i32) -> mxq_status;
    /// See [`mxq_quantize_options_get_scale_rounding`].
    pub fn mxq_quantize_options_get_power_of_two_scales(options: *const mxq_quantize_options, power_of_two: *mut i32) -> mxq_status;
    /// See [`mxq_quantize_options_get_scale_rounding`].
    pub fn mxq_quantize_options_get_amax_epsilon(options: *const mxq_quantize_options, epsilon: *mut f32) -> mxq_status;
    /// See [`mxq_quantize_options_get_scale_rounding`].
    pub fn mxq_quantize_options_get_source_part(options: *const mxq_quantize_options, part: *mut mxq_part) -> mxq_status;
    /// See [`mxq_quantize_options_get_scale_rounding`].
    pub fn mxq_quantize_options_get_implementation(options: *const mxq_quantize_options, name: *mut *const c_char) -> mxq_status;
    pub fn mxq_gemm_options_create(out: *mut *mut mxq_gemm_options) -> mxq_status;
    pub fn mxq_gemm_options_destroy(options: *mut mxq_gemm_options);
    pub fn mxq_gemm_options_set_transpose(options: *mut mxq_gemm_options, a: mxq_transpose, b: mxq_transpose) -> mxq_status;
    /// D = alpha op(A) op(B) + beta D + bias. alpha (default 1) and beta (default 0) are finite. With a beta of 0, D is not read;
    /// with any other, D is read in its own type.
    pub fn mxq_gemm_options_set_alpha(options: *mut mxq_gemm_options, alpha: f32) -> mxq_status;
    /// See [`mxq_gemm_options_set_alpha`].
    pub fn mxq_gemm_options_set_beta(options: *mut mxq_gemm_options, beta: f32) -> mxq_status;
    /// 1: adds to D, as a beta of 1 does, but refuses a D other than F32, so that no running sum is rounded to 16 bits by mistake.
    /// 0 (default): overwrites D. Cannot be combined with a beta: the setter that is called second is refused.
    pub fn mxq_gemm_options_set_accumulate(options: *mut mxq_gemm_options, accumulate: i32) -> mxq_status;
    /// A bias: one number for each column of D, added to all rows. They are of MXQ\_FORMAT\_F32, F16 or BF16, whatever D is, in
    /// memory of the context's device; with groups of rows (groups, columns), one bias per group. Groups along the contraction
    /// refuse a bias (UNSUPPORTED), since their D is a gradient of weights. Format 0 with NULL: no bias (default).
    pub fn mxq_gemm_options_set_bias(options: *mut mxq_gemm_options, format: mxq_format, bias: *const c_void, bytes: u64) -> mxq_status;
    /// 1: implementations that round operands before they multiply them (MXQ\_BOUND\_REBASED, MXQ\_BOUND\_REBASED\_GUARDED) decline, so
    /// that only sums are rounded; MXQ\_BOUND\_FP8\_TENSOR\_CORES, whose sums are rounded more, and MXQ\_BOUND\_BLACKWELL\_TENSOR\_CORES
    /// remain. 0 (default): the best implementation.
    pub fn mxq_gemm_options_set_exact_products(options: *mut mxq_gemm_options, exact: i32) -> mxq_status;
    /// Leaves SMs of a GPU to other work, such as communication on another stream: the product takes at most `count` of
    /// them, 1 to 1024; 0 (default): all. D keeps its bound; where SMs share a sum, its bits may be others. Who cannot
    /// keep to it declines; cuBLASLt takes it as the target of its choice. A CPU context refuses it (UNSUPPORTED).
    pub fn mxq_gemm_options_set_sm_count(options: *mut mxq_gemm_options, count: i32) -> mxq_status;
    /// 1: the bits of a row of D depend on that row of op(A) and its scales, on B, N, K, formats, layouts and options alone: not on
    /// other rows, their number, groups, sm\_count, streams or graphs (docs/numerics.md). It holds on one chip with one version of
    /// the library. Implementations that cannot promise it decline, and the choice among the others does not depend on rows.
    /// Groups along the contraction refuse it (UNSUPPORTED), since their sums run over rows. 0 (default): the fastest. Since 0.3.
    pub fn mxq_gemm_options_set_row_invariant(options: *mut mxq_gemm_options, row_invariant: i32) -> mxq_status;
    /// Makes the product take the implementation of this name or fail, as mxq\_quantize\_options\_set\_implementation does.
    pub fn mxq_gemm_options_set_implementation(options: *mut mxq_gemm_options, name: *const c_char) -> mxq_status;
    /// Return what was set, or the default, like the getters of a context's options. \*format is 0, with NULL and 0 bytes, where
    /// there is no bias.
    pub fn mxq_gemm_options_get_transpose(options: *const mxq_gemm_options, a: *mut mxq_transpose, b: *mut mxq_transpose) -> mxq_status;
    /// See [`mxq_gemm_options_get_transpose`].
    pub fn mxq_gemm_options_get_alpha(options: *const mxq_gemm_options, alpha: *mut f32) -> mxq_status;
    /// See [`mxq_gemm_options_get_transpose`].
    pub fn mxq_gemm_options_get_beta(options: *const mxq_gemm_options, beta: *mut f32) -> mxq_status;
    /// See [`mxq_gemm_options_get_transpose`].
    pub fn mxq_gemm_options_get_accumulate(options: *const mxq_gemm_options, accumulate: *mut i32) -> mxq_status;
    /// See [`mxq_gemm_options_get_transpose`].
    pub fn mxq_gemm_options_get_bias(options: *const mxq_gemm_options, format: *mut mxq_format, bias: *mut *const c_void, bytes: *mut u64) -> mxq_status;
    /// See [`mxq_gemm_options_get_transpose`].
    pub fn mxq_gemm_options_get_exact_products(options: *const mxq_gemm_options, exact: *mut i32) -> mxq_status;
    /// See [`mxq_gemm_options_get_transpose`].
    pub fn mxq_gemm_options_get_sm_count(options: *const mxq_gemm_options, count: *mut i32) -> mxq_status;
    /// See [`mxq_gemm_options_get_transpose`].
    pub fn mxq_gemm_options_get_implementation(options: *const mxq_gemm_options, name: *mut *const c_char) -> mxq_status;
    /// Since 0.3.
    pub fn mxq_gemm_options_get_row_invariant(options: *const mxq_gemm_options, row_invariant: *mut i32) -> mxq_status;
    /// Name of the implementation that would run; on CUDA its kernel and its source file have the same name. Lives as long as the
    /// plan; "" for NULL.
    pub fn mxq_plan_implementation(plan: *const mxq_plan) -> *const c_char;
    /// Why this implementation would run: "" for the best one of all; "name: reason; name, name: reason" for the better ones of the
    /// context's device type that declined; or who asked for it; and whether b is read transposed. Lives as long as the plan; "" for
    /// NULL.
    pub fn mxq_plan_reason(plan: *const mxq_plan) -> *const c_char;
    /// Bytes of workspace that the verb needs, at an address that is a multiple of 256. Its content does not matter before the
    /// call and is undefined after it. A CPU context never needs any. A workspace that is given and not needed must be aligned and
    /// not NULL all the same, unless it has 0 bytes. 0 for NULL.
    pub fn mxq_plan_workspace_bytes(plan: *const mxq_plan) -> u64;
    /// The class of bound of the implementation that would run, MXQ\_BOUND\_\*; MXQ\_BOUND\_NONE for NULL.
    pub fn mxq_plan_bound(plan: *const mxq_plan) -> mxq_bound;
    pub fn mxq_plan_destroy(plan: *mut mxq_plan);
    /// Quantizes in (F32, F16, BF16) into every declared part of out, which has the same shape. With groups, out has the groups,
    /// and in holds its rows without padding, or has the same groups and its rows padded to its own rowwise alignment; every group
    /// of out is padded on the way. MISSING\_BUFFER if out declares no part. With zero elements, only a computed amax (0) and a
    /// TENSOR scale (1) are written. (Swizzled scales of an (R, 0) or (0, C) matrix have no bytes. ROW scales of an (R, 0) matrix
    /// have memory for R numbers, which are not written.) An empty group has an amax of 0 and FP8 scales of 1, where TENSOR scales
    /// are one for each group and ROW scales columnwise; rowwise it has none.
    ///
    /// docs/numerics.md has the exact rules. In short, with a the largest magnitude of a block and x an element:
    /// MX      The scale byte s follows from a by the scale rounding. A code is the value nearest to x \* 2^(127 - s), ties to even,
    /// ```text
    ///     saturated to +-max; zero keeps its sign. A zero block has s = 0.
    /// ```
    /// NVFP4   The block scale is S = E4M3 of a / 6 \* scale\_max \* 6 / amax. Codes are rounded to nearest or stochastically.
    /// FP8     A code is the value nearest to x \* q, q being max / amax of what shares the scale, or given. The stored scale is
    /// ```text
    ///     1 / q.
    /// ```
    pub fn mxq_quantize(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_quantize`].
    pub fn mxq_quantize_query(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// Requantizes in to out, both quantized, of any formats and parts. Gives exactly the bytes of mxq\_dequantize to F32 followed
    /// by mxq\_quantize, without the F32 tensor. Reads the part of in that mxq\_quantize\_options\_set\_source\_part names, by default the
    /// rowwise part if declared, else the columnwise one. Either both have groups or neither has. From a part with a Hadamard
    /// transform it goes only to the same part with the same mask, whose values are the transformed ones as they are, and not where
    /// groups run along the contraction (UNSUPPORTED).
    pub fn mxq_requantize(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_requantize`].
    pub fn mxq_requantize_query(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// Computes the amax of in (F32, F16, BF16) and writes it to the amax of out (NVFP4, or FP8 with TENSOR scales), for each part
    /// that has one; after the part's Hadamard transform. Writes nothing else of out.
    pub fn mxq_amax(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_amax`].
    pub fn mxq_amax_query(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// Dequantizes in (the part that mxq\_quantize\_options\_set\_source\_part names, by default the rowwise part if declared, else the
    /// columnwise one) to out (F32, F16, BF16) of the same shape. Each value is code \* 2^(s - 127) (MX), code \* S \* decode scale
    /// (NVFP4, rounded after each product) or code \* scale (FP8), rounded to fp32 and then to out's type, to nearest even; between
    /// the two a Hadamard transform of the part is undone. A value beyond the range of out's type becomes Inf; NaN is written as
    /// 0x7FFFFFFF (F32) or 0x7FFF. With groups, out holds the rows without padding, or has in's groups and its own alignment, padded
    /// with +0.
    pub fn mxq_dequantize(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_dequantize`].
    pub fn mxq_dequantize_query(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// Converts in to out, both plain (F32, F16, BF16), of the same shape and without groups; row strides may differ. A number
    /// is rounded once, to nearest even; beyond the range of out's type it becomes Inf, and NaN is written as mxq\_dequantize
    /// does, where both have the same format too.
    pub fn mxq_convert(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_convert`].
    pub fn mxq_convert_query(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// Copy groups of rows from the alignment of in to that of out. Both have the same groups, format, scaling, shape and
    /// Hadamard transforms of parts; an alignment of out is at least that of in (pad) or at most that of in (unpad). Of plain
    /// tensors they move rows, and padding is +0, whatever in has there. Of quantized tensors they move codes and scales of the
    /// parts that both declare; padding is code 0, also in a block of scale 255, and scale 0 where a block is padding alone. (But
    /// columnwise the last 16 codes of a group are moved as they are, since a Hadamard transform spreads rows over them.) Both
    /// write the starts and ends of the groups of out where mxq\_tensor\_set\_padded\_groups says. With a count of 0 nothing is
    /// written, a TENSOR scale neither. No size reaches the host.
    pub fn mxq_pad_groups(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_pad_groups`].
    pub fn mxq_pad_groups_query(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// See [`mxq_pad_groups`].
    pub fn mxq_unpad_groups(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_pad_groups`].
    pub fn mxq_unpad_groups_query(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// Copy the scales of in (compact) to out (swizzled), or back. Both have the same format, scaling and shape, declare the same
    /// parts with the same Hadamard transforms, and with groups have the same groups and alignments. Codes are neither read nor
    /// written, so their pointers may be NULL. Every byte of out's scales is written, padding as 0 (of groups with rows every byte
    /// of their tiles, of others compact columnwise ROW scales, as 0). A coarser tile's or row's byte is read where it begins.
    pub fn mxq_swizzle_scales(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_swizzle_scales`].
    pub fn mxq_swizzle_scales_query(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// See [`mxq_swizzle_scales`].
    pub fn mxq_unswizzle_scales(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_swizzle_scales`].
    pub fn mxq_unswizzle_scales_query(context: *mut mxq_context, options: *const mxq_quantize_options, input: *const mxq_tensor, out: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// Multiplies: D = alpha op(A) op(B) + beta D + bias, by default D = op(A) op(B); on Hopper GPUs it rounds small codes of MX
    /// operands first (MXQ\_BOUND\_REBASED, MXQ\_BOUND\_REBASED\_GUARDED), unless mxq\_gemm\_options\_set\_exact\_products or
    /// mxq\_gemm\_options\_set\_implementation asks for another implementation. A and B have any formats, scalings and scale layouts
    /// with the same block along the contraction: two MX formats (32), NVFP4 (16), FP8 with 128-wide blocks, FP8 with ROW or TENSOR
    /// scales. An FP8 A also goes with a B of MX or NVFP4. Either or both may be plain: on a CUDA context BF16 with any of them, F16
    /// on both sides, or F16 as A with a quantized B; on a CPU context F32, F16 and BF16 with any. Other pairs are UNSUPPORTED.
    /// Parts with different Hadamard transforms, or of which one has none, are refused (INVALID\_ARGUMENT). D is F32, F16 or BF16,
    /// row-major with a row stride. The part that is read follows from the transposes, which are (N,T) by default; a plain operand
    /// serves them all. With M tokens, K inputs and N outputs of a layer:
    ///
    /// ```text
    /// case     A           part read     B           part read     D          use
    /// (N,T)    (M, K)      rowwise       (N, K)      rowwise       (M, N)     forward:          y  = x w^T
    /// (N,N)    (M, N)      rowwise       (N, K)      columnwise    (M, K)     input gradient:   dx = dy w
    /// (T,N)    (M, N)      columnwise    (M, K)      columnwise    (N, K)     weight gradient:  dw = dy^T x
    /// ```
    ///
    /// (T,T) works too, with A columnwise and B rowwise. In (N,N), the rowwise part of a B that declares no columnwise one is read
    /// transposed, and mxq\_plan\_reason says so; a CUDA context refuses FP8 with ROW or 1X128 scales there (UNSUPPORTED), since
    /// they multiply no sum. A contraction of 0 numbers gives a sum of 0.
    ///
    /// The error of every element keeps a bound, by the class that mxq\_plan\_bound gives:
    ///
    /// ```text
    /// |error| <= c 2^-24 P + u max(|D|, t) + 2^-134 sum (|a| + |b|) + R,    P = sum |a||b| over the contraction
    /// ```
    ///
    /// u is 2^-24 (F32), 2^-11 (F16), 2^-8 (BF16), t the smallest normal number of D's type, and L the length of the contraction.
    /// On a CUDA context, numbers of two F16 operands that are below 2^-14 and not 0 count as 2^-14 in P.
    ///
    /// ```text
    /// EXACT_PRODUCTS     c = 13 L / 10 + 40 and R = 0. A NaN operand gives NaN in its row or column of D and nowhere else. It
    ///                    holds where P < 2^128 and no operand is infinite.
    /// FP8_TENSOR_CORES   The same with c = 13 L / 10 + 270376. The fp32 scales of a and of b and their product must also be
    ///                    normal numbers; the sum of the codes' products times either scale, and that times alpha, below 2^128.
    /// REBASED            The same as FP8_TENSOR_CORES, and R is what small codes lose because a tile of MX blocks gets one
    ///                    scale, its largest. The scales of two tiles that meet count as fp32 scales: one very large scale in
    ///                    a tile of B (128 columns of D by 128 of L) or of A (a row by 128 of L) can make Inf and NaN of all
    ///                    that the tile meets; mxq_gemm_options_set_exact_products takes another implementation.
    /// REBASED_GUARDED    c as there, and the conditions of EXACT_PRODUCTS; with FP8 activations those of FP8_TENSOR_CORES. Codes
    ///                    of MX move to the largest scale of a row of B or of 128 codes, except those of blocks 2^10 below it:
    ///                    R is at most about 2^-9 of a block's largest value.
    /// BLACKWELL_TENSOR_CORES   FP8 and FP4 tensor cores of compute capability 10.0 and later. The same as FP8_TENSOR_CORES, but
    ///                    nobody has measured it yet: NVIDIA does not say how many bits their sums keep.
    /// ```
    ///
    /// On a CPU context D has the same bits on all CPUs, with any number of threads, and rows are invariant as with
    /// mxq\_gemm\_options\_set\_row\_invariant. Since 0.3.
    ///
    /// alpha, beta and a bias change P, c and the conditions a little. docs/numerics.md has every term and condition, and the
    /// smaller c of some implementations. With an alpha of 0 it is open whether NaN operands are noticed.
    pub fn mxq_gemm(context: *mut mxq_context, options: *const mxq_gemm_options, a: *const mxq_tensor, b: *const mxq_tensor, d: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_gemm`].
    pub fn mxq_gemm_query(context: *mut mxq_context, options: *const mxq_gemm_options, a: *const mxq_tensor, b: *const mxq_tensor, d: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// Multiplies once per group, with the options and the bound of mxq\_gemm. Reads the sizes from A's groups on the device; G is
    /// their number:
    ///
    /// ```text
    /// case     A                        B                        D
    /// (N,T)    (M, K), groups of rows   (G, N, K)                (M, N): D[rows of g] = A[rows of g] B[g]^T
    /// (N,N)    (M, N), groups of rows   (G, N, K)                (M, K): D[rows of g] = A[rows of g] B[g]
    /// (T,N)    (M, N), groups of rows   (M, K), the same groups  (G, N, K): D[g] = A[rows of g]^T B[rows of g]
    /// ```
    ///
    /// In A, rows of a group are padded to A's rowwise alignment. In D they have no padding or, where D has the same groups, are
    /// padded to D's alignment; that padding becomes +0 (with a beta other than 0 it is left as it is). In (T,N) both operands
    /// have groups, padded as mxq\_tensor\_set\_groups says: columnwise parts, or rows of plain operands, whose padding is never read;
    /// an empty group has D\[g\] = beta D\[g\]. In (N,T), (N,N) rows of D past the last end are not written. (T,T) is UNSUPPORTED.
    pub fn mxq_grouped_gemm(context: *mut mxq_context, options: *const mxq_gemm_options, a: *const mxq_tensor, b: *const mxq_tensor, d: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_grouped_gemm`].
    pub fn mxq_grouped_gemm_query(context: *mut mxq_context, options: *const mxq_gemm_options, a: *const mxq_tensor, b: *const mxq_tensor, d: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// Since 0.3.
    pub fn mxq_activate_options_create(out: *mut *mut mxq_activate_options) -> mxq_status;
    /// Since 0.3.
    pub fn mxq_activate_options_destroy(options: *mut mxq_activate_options);
    /// MXQ\_ACTIVATION\_\*. Since 0.3.
    pub fn mxq_activate_options_set_activation(options: *mut mxq_activate_options, activation: mxq_activation) -> mxq_status;
    /// MXQ\_GATE\_LAYOUT\_\*. Since 0.3.
    pub fn mxq_activate_options_set_gate_layout(options: *mut mxq_activate_options, layout: mxq_gate_layout) -> mxq_status;
    /// The numbers of SWIGLU\_CLAMPED. By default they are those of gpt-oss: 1.702, 7 and 1. alpha and addend are finite, limit is
    /// above 0 and may be infinite. Since 0.3.
    pub fn mxq_activate_options_set_clamp(options: *mut mxq_activate_options, alpha: f32, limit: f32, addend: f32) -> mxq_status;
    /// A bias: one number for each column of in, added to all rows; with experts or groups (experts, columns of in), one bias for
    /// each. They are of MXQ\_FORMAT\_F32, F16 or BF16, whatever in is, in memory of the context's device. Format 0 with NULL: no bias
    /// (default). Since 0.3.
    pub fn mxq_activate_options_set_bias(options: *mut mxq_activate_options, format: mxq_format, bias: *const c_void, bytes: u64) -> mxq_status;
    /// A factor for each row of the result, such as a router's weight: one number for each row of in, of all experts, of
    /// MXQ\_FORMAT\_F32, F16 or BF16, in memory of the context's device. Format 0 with NULL: none (default). Since 0.3.
    pub fn mxq_activate_options_set_row_weights(options: *mut mxq_activate_options, format: mxq_format, weights: *const c_void, bytes: u64) -> mxq_status;
    /// How a quantized result is quantized: all options of mxq\_quantize, but an implementation, which has a setter of its own. They
    /// are copied. NULL (default): the defaults. Since 0.3.
    pub fn mxq_activate_options_set_quantize_options(options: *mut mxq_activate_options, quantize: *const mxq_quantize_options) -> mxq_status;
    /// Makes the verb take the implementation of this name or fail. NULL or "" (default): the best one, or that of MXQ\_IMPL.
    /// Since 0.3.
    pub fn mxq_activate_options_set_implementation(options: *mut mxq_activate_options, name: *const c_char) -> mxq_status;
    /// mxq\_activate\_backward also writes the gradient of the bias: the sum of the gradients of each column of in, over the rows of
    /// each expert or group, as many numbers as the bias has. In memory of the context's device; NULL with 0 (default): not wanted.
    /// mxq\_activate refuses it. Since 0.3.
    pub fn mxq_activate_options_set_bias_gradient(options: *mut mxq_activate_options, gradient: *mut f32, bytes: u64) -> mxq_status;
    /// mxq\_activate\_backward also writes the gradient of the weight of each row, one number for each row of in, whether or not
    /// weights are set. Rows in no group keep what is there. NULL with 0 (default): not wanted. mxq\_activate refuses it. Since 0.3.
    pub fn mxq_activate_options_set_row_weight_gradient(options: *mut mxq_activate_options, gradient: *mut f32, bytes: u64) -> mxq_status;
    /// Return what was set, or the default, like the getters of a context's options. Pointers that are not set are NULL with 0
    /// bytes. Since 0.3.
    pub fn mxq_activate_options_get_activation(options: *const mxq_activate_options, activation: *mut mxq_activation) -> mxq_status;
    /// See [`mxq_activate_options_get_activation`].
    pub fn mxq_activate_options_get_gate_layout(options: *const mxq_activate_options, layout: *mut mxq_gate_layout) -> mxq_status;
    /// See [`mxq_activate_options_get_activation`].
    pub fn mxq_activate_options_get_clamp(options: *const mxq_activate_options, alpha: *mut f32, limit: *mut f32, addend: *mut f32) -> mxq_status;
    /// See [`mxq_activate_options_get_activation`].
    pub fn mxq_activate_options_get_bias(options: *const mxq_activate_options, format: *mut mxq_format, bias: *mut *const c_void, bytes: *mut u64) -> mxq_status;
    /// See [`mxq_activate_options_get_activation`].
    pub fn mxq_activate_options_get_row_weights(options: *const mxq_activate_options, format: *mut mxq_format, weights: *mut *const c_void, bytes: *mut u64) -> mxq_status;
    /// Since 0.3.
    pub fn mxq_activate_options_get_bias_gradient(options: *const mxq_activate_options, gradient: *mut *mut f32, bytes: *mut u64) -> mxq_status;
    /// Since 0.3.
    pub fn mxq_activate_options_get_row_weight_gradient(options: *const mxq_activate_options, gradient: *mut *mut f32, bytes: *mut u64) -> mxq_status;
    /// Copies the options to `quantize`, which the caller has created. Since 0.3.
    pub fn mxq_activate_options_get_quantize_options(options: *const mxq_activate_options, quantize: *mut mxq_quantize_options) -> mxq_status;
    /// Since 0.3.
    pub fn mxq_activate_options_get_implementation(options: *const mxq_activate_options, name: *mut *const c_char) -> mxq_status;
    /// Activates in (F32, F16, BF16) and stores the result in out, which has the same rows: plain numbers, or every declared part of
    /// a quantized tensor, from one read of in on the CPU, and on CUDA where a plan names activate or activate\_tile. in is (S, 2 I)
    /// and out (S, I), or both are (S, I) for activations without a gate; experts are a first dimension of both. An element is
    /// computed in fp32 and rounded once: by quantize as mxq\_quantize rounds an F32 input, or to out's type as mxq\_convert does.
    /// With groups, which in, out or both may have, each has its own bias; rows of in and of a plain out have no padding (UNSUPPORTED
    /// otherwise), and rows past the last end are neither read nor written. A NaN stays in its element, or in what shares its scale.
    /// Concurrent calls and graphs are as for all verbs. CUDA declines lists of experts. Since 0.3.
    pub fn mxq_activate(context: *mut mxq_context, options: *const mxq_activate_options, input: *const mxq_tensor, out: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// Since 0.3.
    pub fn mxq_activate_query(context: *mut mxq_context, options: *const mxq_activate_options, input: *const mxq_tensor, out: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// The gradients of gates and ups, from `gradient` (S, I; F32, F16 or BF16), that of what mxq\_activate makes of in (S, 2 I) with
    /// these options. out is (S, 2 I), with gates and ups where in has them: plain numbers, or every declared part of a quantized
    /// tensor. The clamped form has a gradient of 0 where it clamps. Groups, which any of the three may have, are as for
    /// mxq\_activate; gradients of biases and of weights of rows are options. All sums have a fixed order, so that the bytes are the
    /// same everywhere. Activations without a gate are UNSUPPORTED. The workspace of CUDA has the numbers that are quantized, in
    /// F32, and sums of 128 rows. Since 0.3.
    pub fn mxq_activate_backward(context: *mut mxq_context, options: *const mxq_activate_options, gradient: *const mxq_tensor, input: *const mxq_tensor, out: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// Since 0.3.
    pub fn mxq_activate_backward_query(context: *mut mxq_context, options: *const mxq_activate_options, gradient: *const mxq_tensor, input: *const mxq_tensor, out: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// A descriptor for `tokens` (0 or more) with `choices` of `experts` each. choices is 1 or more, experts 1 to
    /// MXQ\_MAX\_GROUPS, and tokens \* choices at most MXQ\_MAX\_DIM. On failure \*out is NULL. Since 0.3.
    pub fn mxq_routing_create(tokens: i64, choices: i32, experts: i32, out: *mut *mut mxq_routing) -> mxq_status;
    /// See [`mxq_routing_create`].
    pub fn mxq_routing_destroy(routing: *mut mxq_routing);
    /// The expert of each choice, (T, k), in memory of the context's device; `bytes` is exactly their size. -1 drops a choice. A
    /// CPU context refuses other numbers below 0, or experts and more; CUDA drops and counts them (mxq\_routing\_set\_dropped). An
    /// expert that a token chooses twice gets two rows. NULL with 0 bytes clears them. Since 0.3.
    pub fn mxq_routing_set_ids(routing: *mut mxq_routing, ids: *const c_void, bytes: u64, kind: mxq_type) -> mxq_status;
    /// The weight of each choice, (T, k), F32 or BF16, in memory of the context's device; `bytes` is exactly their size. Format
    /// 0 with NULL (default): none, which mxq\_combine takes for weights of 1. Since 0.3.
    pub fn mxq_routing_set_weights(routing: *mut mxq_routing, format: mxq_format, weights: *const c_void, bytes: u64) -> mxq_status;
    /// The experts of this rank, `count` (1 or more) from `first` on; choices of others are dropped. Default: all, with 0 and 0.
    /// `ends` has `count` numbers. Refused where the memory that was set is then too small, or with computed arrays. Since 0.3.
    pub fn mxq_routing_set_local_experts(routing: *mut mxq_routing, first: i32, count: i32) -> mxq_status;
    /// Memory for what mxq\_route computes, at a multiple of 256 bytes, at least mxq\_routing\_required\_bytes, which does not
    /// depend on weights. Its content does not matter before mxq\_route. NULL with 0 clears it. It replaces what
    /// mxq\_routing\_set\_computed said. Since 0.3.
    pub fn mxq_routing_set_memory(routing: *mut mxq_routing, memory: *mut c_void, bytes: u64) -> mxq_status;
    /// See [`mxq_routing_set_memory`].
    pub fn mxq_routing_required_bytes(routing: *const mxq_routing, bytes: *mut u64) -> mxq_status;
    /// Where mxq\_route writes how many ids were out of range and not -1, one int32 in memory of the context's device; `bytes` is
    /// 4. A CPU context writes 0. NULL with 0 (default): not wanted. Since 0.3.
    pub fn mxq_routing_set_dropped(routing: *mut mxq_routing, dropped: *mut i32, bytes: u64) -> mxq_status;
    /// Sets arrays that another library computed as mxq\_route would, which then refuses the routing. Each `bytes` is exactly the size
    /// of its array; row\_weights may be NULL with 0. On CUDA, numbers out of range count as -1; a CPU context refuses them. NULL
    /// everywhere clears them. It replaces mxq\_routing\_set\_memory. Since 0.3.
    pub fn mxq_routing_set_computed(routing: *mut mxq_routing, ends: *const i32, end_bytes: u64, row_tokens: *const i32, row_token_bytes: u64, choice_rows: *const i32, choice_row_bytes: u64, row_weights: *const f32, row_weight_bytes: u64) -> mxq_status;
    /// Return what was set, or the default, like the getters of a tensor. \*type and \*format are 0 where nothing is set.
    /// Since 0.3.
    pub fn mxq_routing_get_shape(routing: *const mxq_routing, tokens: *mut i64, choices: *mut i32, experts: *mut i32) -> mxq_status;
    /// See [`mxq_routing_get_shape`].
    pub fn mxq_routing_get_ids(routing: *const mxq_routing, ids: *mut *const c_void, bytes: *mut u64, kind: *mut mxq_type) -> mxq_status;
    /// See [`mxq_routing_get_shape`].
    pub fn mxq_routing_get_weights(routing: *const mxq_routing, format: *mut mxq_format, weights: *mut *const c_void, bytes: *mut u64) -> mxq_status;
    /// See [`mxq_routing_get_shape`].
    pub fn mxq_routing_get_local_experts(routing: *const mxq_routing, first: *mut i32, count: *mut i32) -> mxq_status;
    /// See [`mxq_routing_get_shape`].
    pub fn mxq_routing_get_memory(routing: *const mxq_routing, memory: *mut *mut c_void, bytes: *mut u64) -> mxq_status;
    /// See [`mxq_routing_get_shape`].
    pub fn mxq_routing_get_dropped(routing: *const mxq_routing, dropped: *mut *mut i32, bytes: *mut u64) -> mxq_status;
    /// Return the arrays that mxq\_route fills or that mxq\_routing\_set\_computed gave, with their exact bytes; NULL with 0 bytes
    /// before either has memory. Since 0.3.
    pub fn mxq_routing_get_ends(routing: *const mxq_routing, ends: *mut *const i32, bytes: *mut u64) -> mxq_status;
    /// See [`mxq_routing_get_ends`].
    pub fn mxq_routing_get_row_tokens(routing: *const mxq_routing, tokens: *mut *const i32, bytes: *mut u64) -> mxq_status;
    /// See [`mxq_routing_get_ends`].
    pub fn mxq_routing_get_choice_rows(routing: *const mxq_routing, rows: *mut *const i32, bytes: *mut u64) -> mxq_status;
    /// See [`mxq_routing_get_ends`].
    pub fn mxq_routing_get_row_weights(routing: *const mxq_routing, weights: *mut *const f32, bytes: *mut u64) -> mxq_status;
    /// Fills the memory of a routing from its ids and weights: ends, row\_tokens, choice\_rows, and row\_weights where it has
    /// weights. On CUDA one launch, which reads nothing on the host: a graph that captures it may be replayed with other ids.
    /// options may only ask for an implementation. Without tokens, ends are 0. Since 0.3.
    pub fn mxq_route(context: *mut mxq_context, options: *const mxq_quantize_options, routing: *const mxq_routing, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_route`].
    pub fn mxq_route_query(context: *mut mxq_context, options: *const mxq_quantize_options, routing: *const mxq_routing, plan: *mut *mut mxq_plan) -> mxq_status;
    /// The rows of a plain matrix by index: row i is row indices\[i\] of its data, which then have `source_rows` rows, and -1 is a
    /// row of zeros. `indices` holds one MXQ\_TYPE\_INT32 or MXQ\_TYPE\_INT64 for each row in memory of the context's device;
    /// `bytes` is exactly their size. Other numbers out of range count as -1 on CUDA, and a CPU context refuses them. The input
    /// of mxq\_quantize, mxq\_amax, mxq\_convert and mxq\_pad\_groups, and plain operands of products may have them; other verbs
    /// refuse them by name. Groups of such a tensor have no padding. mxq\_tensor\_required\_bytes tells the bytes of the source
    /// rows. An implementation that does not read rows by index gets a copy, which a CUDA context makes in the workspace by one
    /// more launch (mxq\_plan\_reason says so). NULL with 0 bytes, type 0 and 0 rows clears them; NULL with a type serves queries.
    /// 2-D tensors only. Since 0.3.
    pub fn mxq_tensor_set_row_indices(tensor: *mut mxq_tensor, indices: *const c_void, bytes: u64, kind: mxq_type, source_rows: i64) -> mxq_status;
    /// Returns the indices that were set; \*type is 0 where rows are not by index. Since 0.3.
    pub fn mxq_tensor_get_row_indices(tensor: *const mxq_tensor, indices: *mut *const c_void, bytes: *mut u64, kind: *mut mxq_type, source_rows: *mut i64) -> mxq_status;
    /// Give a matrix of T \* k rows the groups of a routing: its ends, for each expert of this rank. mxq\_tensor\_set\_routing\_rows
    /// also makes its rows those of the tokens, by row\_tokens: the data of the plain tensor have T rows. The addresses that the
    /// routing has now are set; after it got other memory, call them again. Since 0.3.
    pub fn mxq_tensor_set_routing_rows(tensor: *mut mxq_tensor, routing: *const mxq_routing) -> mxq_status;
    /// See [`mxq_tensor_set_routing_rows`].
    pub fn mxq_tensor_set_routing_groups(tensor: *mut mxq_tensor, routing: *const mxq_routing) -> mxq_status;
    /// Sums the rows of each token's choices: out\[t\] = residual\[t\] + sum over j of weight\[t, j\] \* in\[row of choice (t, j)\]. in
    /// has a row for each choice (T \* k), out and residual one for each token, all plain of any type with row strides; residual
    /// may be NULL: 0. A choice that is dropped adds nothing, and without weights each weight is 1. A sum starts at the
    /// residual. It adds the choices of a token in order, in fp32: a product is rounded, then added, and the sum is rounded once
    /// to out's type, as mxq\_convert does. Weights and rows of choices are those of the routing. A CPU context refuses rows of
    /// choices that in does not have; CUDA drops them. in may have groups without padding. options may only ask for an
    /// implementation. Since 0.3.
    pub fn mxq_combine(context: *mut mxq_context, options: *const mxq_quantize_options, routing: *const mxq_routing, input: *const mxq_tensor, residual: *const mxq_tensor, out: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_combine`].
    pub fn mxq_combine_query(context: *mut mxq_context, options: *const mxq_quantize_options, routing: *const mxq_routing, input: *const mxq_tensor, residual: *const mxq_tensor, out: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// The gradients of mxq\_combine, from d\_out, the gradient of its output (T rows), all plain and of any type:
    ///
    /// ```text
    /// d_in        d_in[row of (t, j)] = weight[t, j] * d_out[t], rounded once to its type; other rows are not written
    /// d_weights   F32 (T, k): d_weights[t, j] = sum over columns of d_out[t] * in[row of (t, j)]; 0 for a dropped choice
    /// ```
    ///
    /// Either may be NULL: not wanted. in is read for d\_weights alone, and may be NULL without. A residual has the gradient
    /// d\_out. Products and sums are rounded in fp32, in an order that docs/numerics.md fixes, so that the bits are the same
    /// everywhere. options may only ask for an implementation. Since 0.3.
    pub fn mxq_combine_backward(context: *mut mxq_context, options: *const mxq_quantize_options, routing: *const mxq_routing, d_out: *const mxq_tensor, input: *const mxq_tensor, d_in: *const mxq_tensor, d_weights: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_combine_backward`].
    pub fn mxq_combine_backward_query(context: *mut mxq_context, options: *const mxq_quantize_options, routing: *const mxq_routing, d_out: *const mxq_tensor, input: *const mxq_tensor, d_in: *const mxq_tensor, d_weights: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
    /// Since 0.3.
    pub fn mxq_expert_layer_options_create(out: *mut *mut mxq_expert_layer_options) -> mxq_status;
    /// Since 0.3.
    pub fn mxq_expert_layer_options_destroy(options: *mut mxq_expert_layer_options);
    /// The activation with its numbers, its layout of gates and, where set, its bias, which is added after the first product was
    /// rounded. Row weights and an implementation are refused. NULL (default): the defaults of mxq\_activate. Since 0.3.
    pub fn mxq_expert_layer_options_set_activate_options(options: *mut mxq_expert_layer_options, activate: *const mxq_activate_options) -> mxq_status;
    /// The format and scaling of the rows that enter each product: a quantized format, scaling 0 being its default, or format 0
    /// with scaling 0 (default): plain, those of x and of the inner format. Since 0.3.
    pub fn mxq_expert_layer_options_set_row_format(options: *mut mxq_expert_layer_options, format: mxq_format, scaling: mxq_scaling) -> mxq_status;
    /// How these rows are quantized. An amax that is given, a source part and an implementation are refused. NULL (default): the
    /// defaults of mxq\_quantize. Since 0.3.
    pub fn mxq_expert_layer_options_set_quantize_options(options: *mut mxq_expert_layer_options, quantize: *const mxq_quantize_options) -> mxq_status;
    /// Sets the format of numbers between the steps: the first product, a plain activation and the second product.
    /// MXQ\_FORMAT\_BF16 (default), F16 or F32. Since 0.3.
    pub fn mxq_expert_layer_options_set_inner_format(options: *mut mxq_expert_layer_options, format: mxq_format) -> mxq_status;
    /// The bias of a product, (experts of this rank, its columns), added in fp32 before the product is rounded: as
    /// mxq\_gemm\_options\_set\_bias. Format 0 with NULL: none (default). Since 0.3.
    pub fn mxq_expert_layer_options_set_gate_up_bias(options: *mut mxq_expert_layer_options, format: mxq_format, bias: *const c_void, bytes: u64) -> mxq_status;
    /// See [`mxq_expert_layer_options_set_gate_up_bias`].
    pub fn mxq_expert_layer_options_set_down_bias(options: *mut mxq_expert_layer_options, format: mxq_format, bias: *const c_void, bytes: u64) -> mxq_status;
    /// Sets what the sum of each token starts at: a plain tensor of out's shape, such as the output of a shared expert. The
    /// descriptor is copied. NULL (default): 0. Since 0.3.
    pub fn mxq_expert_layer_options_set_residual(options: *mut mxq_expert_layer_options, residual: *const mxq_tensor) -> mxq_status;
    /// 1: the weights of choices multiply the activation, before the second product, whose bias they then leave alone; 0
    /// (default): they multiply the second product with its bias. Since 0.3.
    pub fn mxq_expert_layer_options_set_weights_first(options: *mut mxq_expert_layer_options, first: i32) -> mxq_status;
    /// As mxq\_gemm\_options\_set\_exact\_products, for both products. Since 0.3.
    pub fn mxq_expert_layer_options_set_exact_products(options: *mut mxq_expert_layer_options, exact: i32) -> mxq_status;
    /// As mxq\_gemm\_options\_set\_row\_invariant, for both products: the bits of a token depend on its own row, choices and weights,
    /// and not on other tokens, where rows are quantized by themselves (docs/embedding.md). Since 0.3.
    pub fn mxq_expert_layer_options_set_row_invariant(options: *mut mxq_expert_layer_options, row_invariant: i32) -> mxq_status;
    /// Return what was set, or the default, like the getters of a context's options. Options and descriptors are copied to
    /// objects that the caller has created; \*has\_residual is 0 where there is none, and residual, a tensor of any shape, is then
    /// left alone. Since 0.3.
    pub fn mxq_expert_layer_options_get_activate_options(options: *const mxq_expert_layer_options, activate: *mut mxq_activate_options) -> mxq_status;
    /// See [`mxq_expert_layer_options_get_activate_options`].
    pub fn mxq_expert_layer_options_get_row_format(options: *const mxq_expert_layer_options, format: *mut mxq_format, scaling: *mut mxq_scaling) -> mxq_status;
    /// See [`mxq_expert_layer_options_get_activate_options`].
    pub fn mxq_expert_layer_options_get_quantize_options(options: *const mxq_expert_layer_options, quantize: *mut mxq_quantize_options) -> mxq_status;
    /// See [`mxq_expert_layer_options_get_activate_options`].
    pub fn mxq_expert_layer_options_get_inner_format(options: *const mxq_expert_layer_options, format: *mut mxq_format) -> mxq_status;
    /// See [`mxq_expert_layer_options_get_activate_options`].
    pub fn mxq_expert_layer_options_get_gate_up_bias(options: *const mxq_expert_layer_options, format: *mut mxq_format, bias: *mut *const c_void, bytes: *mut u64) -> mxq_status;
    /// See [`mxq_expert_layer_options_get_activate_options`].
    pub fn mxq_expert_layer_options_get_down_bias(options: *const mxq_expert_layer_options, format: *mut mxq_format, bias: *mut *const c_void, bytes: *mut u64) -> mxq_status;
    /// See [`mxq_expert_layer_options_get_activate_options`].
    pub fn mxq_expert_layer_options_get_residual(options: *const mxq_expert_layer_options, has_residual: *mut i32, residual: *mut mxq_tensor) -> mxq_status;
    /// See [`mxq_expert_layer_options_get_activate_options`].
    pub fn mxq_expert_layer_options_get_weights_first(options: *const mxq_expert_layer_options, first: *mut i32) -> mxq_status;
    /// See [`mxq_expert_layer_options_get_activate_options`].
    pub fn mxq_expert_layer_options_get_exact_products(options: *const mxq_expert_layer_options, exact: *mut i32) -> mxq_status;
    /// See [`mxq_expert_layer_options_get_activate_options`].
    pub fn mxq_expert_layer_options_get_row_invariant(options: *const mxq_expert_layer_options, row_invariant: *mut i32) -> mxq_status;
    /// Runs an expert layer, from tokens to tokens. With T tokens of K numbers, E experts of this rank and an activation from 2
    /// I numbers to I (without a gate: from I to I):
    ///
    /// ```text
    /// step            what                                              argument
    /// mxq_route       ids to rows of experts                            routing: left out where its arrays are computed
    /// mxq_quantize    rows of x by index, where the options say so      x (T, K), plain
    /// mxq_grouped_gemm   with its bias, to the inner format             gate_up (E, 2 I, K), any format
    /// mxq_activate    to the inner format, or quantized                 with the row weights, where they come first
    /// mxq_grouped_gemm   with its bias, to the inner format             down (E, K, I), any format
    /// mxq_combine     with the weights of choices, and the residual     out (T, K), plain
    /// ```
    ///
    /// The bits are those of these verbs, where a query names the same implementations. routing has ids, memory and, where
    /// wanted, weights. mxq\_plan\_implementation names those of all steps, separated by ", ": for few tokens on CUDA one does
    /// several steps, with the bits of the product that its name begins with. mxq\_plan\_reason has their reasons, mxq\_plan\_bound
    /// the larger number of the two products, and mxq\_plan\_workspace\_bytes what all need. Sizes of groups stay on the device: a
    /// graph that captures the call may be replayed with other ids and weights. Since 0.3.
    pub fn mxq_expert_layer(context: *mut mxq_context, options: *const mxq_expert_layer_options, x: *const mxq_tensor, routing: *const mxq_routing, gate_up: *const mxq_tensor, down: *const mxq_tensor, out: *const mxq_tensor, workspace: *mut c_void, workspace_bytes: u64, stream: *mut c_void) -> mxq_status;
    /// See [`mxq_expert_layer`].
    pub fn mxq_expert_layer_query(context: *mut mxq_context, options: *const mxq_expert_layer_options, x: *const mxq_tensor, routing: *const mxq_routing, gate_up: *const mxq_tensor, down: *const mxq_tensor, out: *const mxq_tensor, plan: *mut *mut mxq_plan) -> mxq_status;
}
