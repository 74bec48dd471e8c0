/* libmxq: microscaling formats (quantize, dequantize, swizzle, block-scaled grouped GEMM) behind a C ABI.
 *
 * This header is the whole interface and its manual. It is C99 and needs no CUDA header.
 *
 * A program in short: create a context for a device, describe tensors, set their pointers, call verbs.
 *
 *     mxq_context* ctx = NULL;  mxq_tensor *x = NULL, *xq = NULL;
 *     mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &ctx);
 *     mxq_tensor_create_2d(MXQ_FORMAT_F32, rows, cols, &x);
 *     mxq_tensor_create_2d(MXQ_FORMAT_MXFP8_E4M3, rows, cols, &xq);
 *     mxq_tensor_required_bytes(xq, MXQ_PART_ROWWISE, &code_bytes, &scale_bytes);
 *     mxq_tensor_set_data(x, values, value_bytes);
 *     mxq_tensor_set_part(xq, MXQ_PART_ROWWISE, codes, code_bytes, scales, scale_bytes);
 *     if (mxq_quantize(ctx, NULL, x, xq, NULL, 0, NULL)) puts(mxq_last_error());
 *
 * RULES THAT HOLD EVERYWHERE
 *
 *   Errors        Every function that can fail returns an mxq_status; 0 is success. mxq_last_error() then tells which
 *                 argument, what was expected, what came, and what to do. A refused call has written nothing, and the
 *                 context stays usable. The library never aborts, exits or prints, but for what MXQ_LOG asks.
 *   Memory        The library owns no tensor memory. Pointers given to a CUDA context are memory of its device's primary
 *                 CUDA context (what the runtime and the frameworks allocate), or other memory that this can access;
 *                 this is not checked, and an address that the device cannot access is an error of CUDA's that ends its
 *                 context. Those given to a CPU context are host pointers. A written buffer may not overlap another
 *                 buffer of the call.
 *   Threads       A context may be used from many threads at once. A descriptor or options object may be read by
 *                 many calls at once, but not while a setter changes it.
 *   Streams       `stream` is a cudaStream_t on a CUDA context (NULL: the legacy default stream) and must be NULL on a
 *                 CPU context, whose calls are synchronous. CUDA calls enqueue and return: they do not synchronise,
 *                 allocate device memory or read it from the host, and may be captured in a CUDA graph, the first
 *                 call of the process included. The calling thread's current device is left as it was.
 *   Handles       create functions set *out to NULL on failure; destroy functions, and those that read a plan or a
 *                 context, take NULL. After a fork, the child may use and destroy a CPU context, not a CUDA one.
 *   Lifetime      Descriptors and options are read during the call and not kept. They may be destroyed, or given new
 *                 pointers, as soon as the call returns. The memory that they point to must stay until the work is done.
 *   Bits          All verbs but products give the same bytes on every device, for any number of threads. Products are the
 *                 same from run to run on one device and stay inside the bound that stands at mxq_gemm.
 *   Environment   MXQ_LOG=info: a line on stderr for each verb that runs, with its implementation and why it is that one;
 *                 trace: also a line for each implementation that declined. Read once, by the first verb.
 *                 MXQ_IMPL=verb:implementation[,verb:implementation...], such as grouped_gemm:mma_bf16: verbs by these
 *                 names take these implementations or fail, on every device; an options' implementation goes before it.
 *                 Read when a context is created, which refuses names that there are not.
 *                 MXQ_CPU_ISA: see mxq_context_options_set_threads.
 *                 MXQ_CUBLASLT_PATH: see mxq_context_options_set_cublaslt_path.
 *   Growth        New options arrive as new setters. No number changes its meaning, no struct is exposed.
 *
 * All functions are available since 0.1.0. Version 0.x: the ABI may still change; the promise of stability starts with 1.0.
 */
#ifndef MXQ_MXQ_H
#define MXQ_MXQ_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MXQ_API __attribute__((visibility("default")))
#else
#define MXQ_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ------------------------------------------------------------------------------------------------------ */

#define MXQ_VERSION_MAJOR 0
#define MXQ_VERSION_MINOR 1
#define MXQ_VERSION_PATCH 0

/* Version of the loaded library as major * 10000 + minor * 100 + patch (0.1.0 is 100). */
MXQ_API int32_t mxq_version(void);

/* The same as text, "0.1.0". Static storage. */
MXQ_API const char* mxq_version_string(void);

/* What the loaded library was built with, "GCC 12.2.0, CUDA 13.0.48 for 80-real 90a-real" or "GCC 12.2.0, without CUDA".
 * Static storage. */
MXQ_API const char* mxq_build_string(void);

/* ---- Status and messages ------------------------------------------------------------------------------------------ */

typedef int32_t mxq_status;

#define MXQ_STATUS_OK 0
#define MXQ_STATUS_INVALID_ARGUMENT 1 /* NULL handle, unknown value, negative size, overlapping buffers and the like */
#define MXQ_STATUS_SHAPE_MISMATCH 2   /* shapes of the tensors do not fit together */
#define MXQ_STATUS_MISSING_BUFFER 3   /* a pointer is NULL, or a part was not set, that this call needs */
#define MXQ_STATUS_BUFFER_TOO_SMALL 4 /* a byte extent is shorter than mxq_tensor_required_bytes, or the workspace too small */
#define MXQ_STATUS_MISALIGNED 5       /* a pointer is not a multiple of its element's size */
#define MXQ_STATUS_UNSUPPORTED 6      /* a format or feature that this verb does not take, or no implementation takes it here */
#define MXQ_STATUS_NO_DEVICE 7        /* no such device, no driver, or the library was built without CUDA */
#define MXQ_STATUS_OUT_OF_MEMORY 8    /* host memory */
#define MXQ_STATUS_CUDA_ERROR 9       /* CUDA refused a launch or reports an earlier failure; the message has its words */
#define MXQ_STATUS_INTERNAL_ERROR 10  /* a fault of the library: please report it with the message */

/* Name of a status, "MXQ_STATUS_SHAPE_MISMATCH"; "unknown status" for other numbers. Static storage, never NULL. */
MXQ_API const char* mxq_status_name(mxq_status status);

/* Message of the last call of this thread that failed; "" before the first. Valid until this thread's next failure. */
MXQ_API const char* mxq_last_error(void);

/* Value of any constant of this header by its name, for languages that cannot read a C header:
 * mxq_constant("MXQ_FORMAT_BF16", &value). INVALID_ARGUMENT for an unknown name or NULL. */
MXQ_API mxq_status mxq_constant(const char* name, int64_t* value);

/* Name of constant number `index`, from 0; NULL past the last. Static storage. */
MXQ_API const char* mxq_constant_name(int32_t index);

/* ---- Formats ------------------------------------------------------------------------------------------------------ */

/* A format says how elements and their scales are stored. 0 is "unset". */
#define MXQ_FORMAT_F32 1
#define MXQ_FORMAT_F16 2
#define MXQ_FORMAT_BF16 3
#define MXQ_FORMAT_MXFP8_E4M3 4 /* OCP MX: FP8 E4M3 codes (max 448, NaN 0x7F), one E8M0 scale per block of 32 */
#define MXQ_FORMAT_MXFP8_E5M2 5 /* OCP MX: FP8 E5M2 codes (max 57344, has Inf), one E8M0 scale per block of 32 */
#define MXQ_FORMAT_MXFP6_E2M3 6 /* OCP MX: FP6 E2M3 codes (max 7.5), four in three bytes, one E8M0 scale per block of 32 */
#define MXQ_FORMAT_MXFP6_E3M2 7 /* OCP MX: FP6 E3M2 codes (max 28), four in three bytes, one E8M0 scale per block of 32 */
#define MXQ_FORMAT_MXFP4 8      /* OCP MX: FP4 E2M1 codes (max 6), two a byte, one E8M0 scale per block of 32 */
#define MXQ_FORMAT_NVFP4 9      /* FP4 E2M1 codes, two a byte, one E4M3 scale per block of 16, one fp32 amax above them */
#define MXQ_FORMAT_FP8_E4M3 10  /* FP8 E4M3 codes, fp32 scales */
#define MXQ_FORMAT_FP8_E5M2 11  /* FP8 E5M2 codes, fp32 scales */

/* Which elements share a scale. E8M0: value 2^(byte - 127), 255 is NaN. FP8: fp32 scales, which codes are multiplied by. */
#define MXQ_SCALING_NONE 0    /* F32, F16, BF16 */
#define MXQ_SCALING_1X32 1    /* MX (default): 32 neighbours along the part's contraction */
#define MXQ_SCALING_32X32 2   /* MX: square tiles; the rowwise and the columnwise part have the same values and scales */
#define MXQ_SCALING_1X128 3   /* MX, FP8: 128 neighbours along the part's contraction */
#define MXQ_SCALING_128X128 4 /* MX, FP8: square tiles */
#define MXQ_SCALING_1X16 5    /* NVFP4 (default): 16 neighbours along the part's contraction */
#define MXQ_SCALING_16X16 6   /* NVFP4: square tiles, their scale stored for each of the 16 lines */
#define MXQ_SCALING_ROW 7     /* FP8: a whole line of the part: a row (rowwise), a column (columnwise) */
#define MXQ_SCALING_TENSOR 8  /* FP8 (default): the whole tensor, or an expert or group of it */

/* Properties of a format. */
#define MXQ_PROPERTY_ELEMENT_BITS 1 /* bits of one element or code */
#define MXQ_PROPERTY_BLOCK 2        /* elements that share a scale along the contraction with the default scaling: 1 for F32,
                                       F16, BF16; 0 (all of them) for FP8 */
#define MXQ_PROPERTY_QUANTIZED 3    /* 1: codes and scales, made by mxq_quantize; 0: plain numbers */

/* Name of a format, "mxfp8_e4m3"; NULL for an unknown one. Static storage. */
MXQ_API const char* mxq_format_name(int32_t format);

/* A property of a format. INVALID_ARGUMENT for an unknown format or property. */
MXQ_API mxq_status mxq_format_property(int32_t format, int32_t property, int64_t* value);

/* ---- Context ------------------------------------------------------------------------------------------------------ */

typedef struct mxq_context_s mxq_context;
typedef struct mxq_context_options_s mxq_context_options;

/* Device types; the numbers are DLPack's. */
#define MXQ_DEVICE_CPU 1
#define MXQ_DEVICE_CUDA 2

MXQ_API mxq_status mxq_context_options_create(mxq_context_options** out);
MXQ_API void mxq_context_options_destroy(mxq_context_options* options);

/* Threads of the CPU backend, the calling one included: 1 to 1024, or 0 (default) for one per core that the process may
 * use. (The instruction set is the best that the CPU has; the environment variable MXQ_CPU_ISA caps it when a context is
 * created: scalar, avx2 or avx512. The bytes are the same.) */
MXQ_API mxq_status mxq_context_options_set_threads(mxq_context_options* options, int32_t threads);

/* The file of cuBLASLt that a CUDA context uses, and no other, such as "/opt/cuda/lib64/libcublasLt.so.13". NULL or ""
 * (default): the file that the environment variable MXQ_CUBLASLT_PATH names when the process first needs one, or else
 * libcublasLt.so.13 or .12, the one that is loaded already before the one that the loader finds. Where there is none the
 * context does without; mxq_context_cublaslt tells why. A CPU context has no use for it. */
MXQ_API mxq_status mxq_context_options_set_cublaslt_path(mxq_context_options* options, const char* path);

/* A context for one device: MXQ_DEVICE_CPU with ordinal 0, or MXQ_DEVICE_CUDA with a CUDA ordinal. options may be NULL.
 * It loads all that a later call under graph capture must not load, so create it outside of capture. On failure *out is
 * NULL. NO_DEVICE: the message says whether the build has no CUDA, the driver is missing, there is no such device, or it
 * is older than compute capability 8.0. */
MXQ_API mxq_status mxq_context_create(int32_t device_type, int32_t ordinal, const mxq_context_options* options,
                                      mxq_context** out);

/* No call may be using the context; work that it enqueued may still be running. */
MXQ_API void mxq_context_destroy(mxq_context* context);

/* One line about the device, such as "CPU, 8 threads, avx2" or "CUDA 0, NVIDIA H200, sm_90". Lives as long as the context;
 * "" for NULL. */
MXQ_API const char* mxq_context_description(const mxq_context* context);

/* One line about the cuBLASLt that the context's products may use: its version and path, or why there is none. Lives as long
 * as the context; "" for NULL. */
MXQ_API const char* mxq_context_cublaslt(const mxq_context* context);

/* ---- Tensors ------------------------------------------------------------------------------------------------------ */

/* A descriptor: format, shape, and where the bytes are. It owns no memory.
 *
 * Plain tensors (F32, F16, BF16) are row-major: rows x cols elements, or experts x rows x cols, each row starting
 * row_stride elements after the one before, experts one after another (expert e starts at row e * rows).
 *
 * Quantized tensors have one or two parts, each with codes and scales:
 *
 *     part         codes          blocks run
 *     rowwise      (rows, cols)   along a row:    the contraction is cols
 *     columnwise   (cols, rows)   down a column:  the contraction is rows
 *
 * so columnwise codes are stored transposed. With experts, each expert's matrices follow one another, codes
 * (experts, cols, rows) for the columnwise part. A partial last block uses the elements that exist.
 *
 * Codes of 8 bits are bytes. Every line of codes starts on a byte and has ceil(codes * bits / 8) of them, unused bits 0:
 *
 *     4 bits   two a byte, the even element in the low half
 *     6 bits   four in three bytes: element i in bits 6 i .. 6 i + 5 of a little-endian 24-bit word
 *
 * Scales of an (R, C) matrix of codes (rowwise R = rows, C = cols; columnwise R = cols, C = rows), compact, row-major:
 *
 *     1X32, 1X16, 1X128     (R, ceil(C / block))
 *     32X32, 128X128        (ceil(R / tile), ceil(C / tile)): the columnwise matrix is the transpose of the rowwise one
 *     16X16 (NVFP4)         as 1X16: a tile's scale stands at each of its 16 lines
 *     ROW                   (R)
 *     TENSOR                one, or one for each expert or group (mxq_tensor_set_scope)
 *
 * Swizzled scales are what block-scaled tensor cores read:
 *
 *     MX, NVFP4   the (R, ceil(C / 32)) (NVFP4: 16) matrix of bytes in tiles of 128 x 4: scale (i, j) is byte
 *                 ((i / 128) * ceil(ceil(C / 32) / 4) + j / 4) * 512 + (i % 32) * 16 + (i % 128) / 32 * 4 + j % 4; bytes
 *                 that no scale has are zero. A coarser tile's byte stands at every position that it covers, so that all
 *                 that reads MXFP8 reads 32X32, 1X128 and 128X128 too; that they do cover whole tiles is not checked.
 *     FP8         1X128: (ceil(C / 128), R). 128X128: (ceil(R / 128), ceil(C / 128) rounded up to a multiple of 4 with +0).
 *                 With groups, of rowwise parts only. ROW and TENSOR have no swizzled layout.
 *
 * With experts, each expert's matrix is padded by itself. */
typedef struct mxq_tensor_s mxq_tensor;

#define MXQ_PART_ROWWISE 1
#define MXQ_PART_COLUMNWISE 2

/* Integer types of arrays that the caller keeps. */
#define MXQ_TYPE_INT32 1
#define MXQ_TYPE_INT64 2

#define MXQ_MAX_DIM 2147483647  /* largest rows, cols, experts; rows x cols x experts may reach 2^48 */
#define MXQ_MAX_GROUPS 4096     /* largest number of groups */

/* A descriptor for rows x cols; each may be 0. On failure *out is NULL. */
MXQ_API mxq_status mxq_tensor_create_2d(int32_t format, int64_t rows, int64_t cols, mxq_tensor** out);

/* A descriptor for experts x rows x cols; each may be 0. On failure *out is NULL. */
MXQ_API mxq_status mxq_tensor_create_3d(int32_t format, int64_t experts, int64_t rows, int64_t cols, mxq_tensor** out);

MXQ_API void mxq_tensor_destroy(mxq_tensor* tensor);

/* How the tensor is scaled; MXQ_SCALING_* says which formats take what. For quantized tensors. */
MXQ_API mxq_status mxq_tensor_set_scaling(mxq_tensor* tensor, int32_t scaling);

/* 1: the scales of every part are swizzled; 0 (default): compact. For quantized tensors. */
MXQ_API mxq_status mxq_tensor_set_swizzled(mxq_tensor* tensor, int32_t swizzled);

/* Elements from one row to the next, at least cols (default cols). For plain tensors. */
MXQ_API mxq_status mxq_tensor_set_row_stride(mxq_tensor* tensor, int64_t elements);

/* Data of a plain tensor. `bytes` is how much may be accessed from `data`. NULL with 0 takes the pointer back. */
MXQ_API mxq_status mxq_tensor_set_data(mxq_tensor* tensor, void* data, uint64_t bytes);

/* Codes and scales of one part of a quantized tensor, each with its byte extent. The part is then declared: a quantize
 * into this tensor writes it. Declaring both makes both from one read of the input. NULL pointers declare a part for
 * sizes and queries, which need no memory. While no part is declared, a query assumes the one that it needs (rowwise
 * where either would do). */
MXQ_API mxq_status mxq_tensor_set_part(mxq_tensor* tensor, int32_t part, void* codes, uint64_t code_bytes, void* scales,
                                       uint64_t scale_bytes);

/* Takes a declared part back. */
MXQ_API mxq_status mxq_tensor_clear_part(mxq_tensor* tensor, int32_t part);

/* Groups of rows, such as the tokens of each expert. `ends` holds `count` integers of type MXQ_TYPE_INT32 or
 * MXQ_TYPE_INT64 in the memory of the context's device: ends[g] is one past the last row of group g, never decreasing, at
 * most rows. Empty groups are allowed; rows past the last end belong to no group: they are not read and what they would
 * produce is not written. On CUDA the host never reads `ends` (values out of order are clamped, so that nothing outside
 * the buffers is touched); on a CPU context they are checked. 2-D tensors only. count 0 with NULL takes the groups back;
 * ends NULL with a count serves queries and sizes.
 *
 * In memory every group is padded to a multiple of an alignment A: group g starts at
 * P[g] = sum over h < g of A * ceil(m_h / A), m_h being the rows of group h, and padding is as if rows of +0 followed the
 * group. `rows` and `ends` never count padding. P[count] is at most A * floor((rows + (A - 1) * min(count, rows)) / A),
 * which is what mxq_tensor_required_bytes takes for the number of stored rows.
 *
 *     plain, rowwise   codes start at row P[g]; A is the rowwise alignment, by default 1: no padding
 *     columnwise       codes are (cols, Mc), Mc the bound above, and start at column P[g]; A is the columnwise alignment, a
 *                      multiple of the block, which may not straddle groups: by default 32, 16 for NVFP4, 128 for
 *                      1X128 and 128X128
 *
 * Compact scales follow the codes. Square tiles (but NVFP4's) restart at each group: tile row sum over h < g of ceil(m_h / t).
 * Columnwise ROW scales are (count, cols). Swizzled scales start every group at a fresh tile of 128 rows (rowwise) or of 4
 * scales (columnwise), and all bytes of the tiles of groups that have rows are written. */
MXQ_API mxq_status mxq_tensor_set_groups(mxq_tensor* tensor, const void* ends, int32_t ends_type, int32_t count);

/* The values of `ends` in host memory as well, of the type and count that mxq_tensor_set_groups was given; that function
 * comes first and takes earlier ones back. They are read during the call, in addition to `ends` and never in its place: by
 * those of A, mxq_grouped_gemm on a CUDA context may take an implementation that makes a call for each group. They must ascend
 * and end within the rows; that they are those of the device is not checked. While the stream is captured they count as not
 * given, since a replay may have other groups; ask a query without them then. NULL takes them back. */
MXQ_API mxq_status mxq_tensor_set_host_ends(mxq_tensor* tensor, const void* ends);

/* The alignments of the tensor's groups: powers of two up to 128; columnwise 0: the default. */
MXQ_API mxq_status mxq_tensor_set_group_alignment(mxq_tensor* tensor, int32_t rowwise, int32_t columnwise);

/* Where mxq_pad_groups writes each group's padded start and end in a part (a plain tensor: MXQ_PART_ROWWISE): `count`
 * integers each, of the type of the ends, on the device. NULL: not wanted. */
MXQ_API mxq_status mxq_tensor_set_padded_groups(mxq_tensor* tensor, int32_t part, void* starts, uint64_t start_bytes,
                                                void* ends, uint64_t end_bytes);

/* The amax (largest magnitude, NaN ignored) of a part, on the device.
 *     NVFP4  one, or one per expert or group (mxq_tensor_set_scope). Its block scales and codes are made relative to it and
 *            decoding needs it. mxq_quantize reads it, or writes it with mxq_quantize_options_set_compute_amax.
 *            Without a Hadamard transform both parts have the same and may share the memory that is only read.
 *     FP8    as many as scales, laid out like them. mxq_quantize writes it where it is set.
 * NULL takes it back. */
MXQ_API mxq_status mxq_tensor_set_amax(mxq_tensor* tensor, int32_t part, float* amax, uint64_t bytes);

/* Bytes of that; 0 for formats without. */
MXQ_API mxq_status mxq_tensor_required_amax_bytes(const mxq_tensor* tensor, int32_t part, uint64_t* bytes);

/* NVFP4: the factor amax / (6 * scale_max) itself, as checkpoints hold it, in place of the amax, for all that reads a part.
 * As many as amaxes, on the device. */
MXQ_API mxq_status mxq_tensor_set_decode_scale(mxq_tensor* tensor, int32_t part, const float* scale, uint64_t bytes);

/* NVFP4: what a block scale is at most, 448 (default) or 256. Encoding and decoding need the same. */
MXQ_API mxq_status mxq_tensor_set_scale_max(mxq_tensor* tensor, int32_t scale_max);

/* FP8 with TENSOR scales: the factor that mxq_quantize applies (delayed scaling), one, or one per expert or group, on the
 * device; the stored scale is its reciprocal. NULL (default): made from the amax of this call (current scaling). */
MXQ_API mxq_status mxq_tensor_set_quantization_scale(mxq_tensor* tensor, const float* scale, uint64_t bytes);

/* Whether amax, decode scale, quantization scale and the scale of TENSOR are one (default) or one per expert or group. */
#define MXQ_SCOPE_TENSOR 1
#define MXQ_SCOPE_EXPERT 2
MXQ_API mxq_status mxq_tensor_set_scope(mxq_tensor* tensor, int32_t scope);

/* Bytes that a part needs; codes and scales apart. For a plain tensor ask MXQ_PART_ROWWISE: *code_bytes is the data's,
 * *scale_bytes is 0. With groups, the bound that holds for any ends. Either output may be NULL. */
MXQ_API mxq_status mxq_tensor_required_bytes(const mxq_tensor* tensor, int32_t part, uint64_t* code_bytes,
                                             uint64_t* scale_bytes);

/* ---- Options ------------------------------------------------------------------------------------------------------ */

/* Options of quantize and all other verbs but products. NULL means defaults everywhere. Verbs and formats refuse the options
 * that mean nothing to them. */
typedef struct mxq_quantize_options_s mxq_quantize_options;

/* MX: how a block's largest magnitude a becomes its power-of-two scale; max and emax are those of the element type. */
#define MXQ_SCALE_ROUNDING_FLOOR 1 /* floor(log2 a) - emax: OCP MX 1.0; the largest elements may saturate */
#define MXQ_SCALE_ROUNDING_CEIL 2  /* ceil(log2 a) - emax */
#define MXQ_SCALE_ROUNDING_EVEN 3  /* FLOOR after rounding a to the element's mantissa */
#define MXQ_SCALE_ROUNDING_RCEIL 4 /* default: ceil(log2(a / max)); nothing saturates */

/* MX: what a NaN or an infinity in a block does. (NVFP4 and FP8 ignore NaN in maxima; as an element NaN becomes a NaN code,
 * or the largest value where the element type has no NaN.) */
#define MXQ_NONFINITE_PROPAGATE 1 /* default: scale 255 and NaN codes (0 where there are none) for the whole block */
#define MXQ_NONFINITE_SATURATE 2  /* NaN: a NaN code (or the largest), else ignored; infinities saturate under scale 0xFE */

/* NVFP4: for each block the better of two scales, mapping its largest magnitude to 6 or to 4, by the sum of absolute or of
 * squared errors. */
#define MXQ_FOUR_OVER_SIX_NONE 0
#define MXQ_FOUR_OVER_SIX_MAE 1
#define MXQ_FOUR_OVER_SIX_MSE 2

MXQ_API mxq_status mxq_quantize_options_create(mxq_quantize_options** out);
MXQ_API void mxq_quantize_options_destroy(mxq_quantize_options* options);
MXQ_API mxq_status mxq_quantize_options_set_scale_rounding(mxq_quantize_options* options, int32_t rounding);
MXQ_API mxq_status mxq_quantize_options_set_nonfinite(mxq_quantize_options* options, int32_t policy);

/* NVFP4. */
MXQ_API mxq_status mxq_quantize_options_set_four_over_six(mxq_quantize_options* options, int32_t mode);

/* NVFP4 with 1X16 scales and MXFP4 in blocks of one line: a random Hadamard transform of every 16 neighbours along the
 * contraction, before amax and scale. `parts`: MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE, both or-ed, or 0 for none (default).
 * Bit i of `mask` flips the sign of element i first; 0xD7E8 is common. The contraction must be a multiple of 16. */
MXQ_API mxq_status mxq_quantize_options_set_hadamard(mxq_quantize_options* options, int32_t parts, int32_t mask);

/* NVFP4 and MXFP4: codes are rounded up or down with a probability by their distance, from Philox4x32-10. `seed_offset` is
 * the address of two uint64, the seed and the offset, in memory of the context's device, read when the work runs; NULL
 * (default): to nearest. The same numbers give the same codes on every device. Not with four-over-six. */
MXQ_API mxq_status mxq_quantize_options_set_stochastic_rounding(mxq_quantize_options* options, const uint64_t* seed_offset);

/* NVFP4, 1: quantize first computes the amax of every part into its place; 0 (default): it reads it. */
MXQ_API mxq_status mxq_quantize_options_set_compute_amax(mxq_quantize_options* options, int32_t compute);

/* FP8, 1: scales made from an amax are powers of two, rounded down; 0 (default): exact. */
MXQ_API mxq_status mxq_quantize_options_set_power_of_two_scales(mxq_quantize_options* options, int32_t power_of_two);

/* FP8: the least amax from which a scale is made; 0 by default. */
MXQ_API mxq_status mxq_quantize_options_set_amax_epsilon(mxq_quantize_options* options, float epsilon);

/* Take the implementation of this name or fail; NULL or "": the best (default), or that of MXQ_IMPL. Names are those that
 * queries give. */
MXQ_API mxq_status mxq_quantize_options_set_implementation(mxq_quantize_options* options, const char* name);

/* Options of gemm and grouped_gemm. NULL means defaults: A as it is, B transposed (the forward pass). */
typedef struct mxq_gemm_options_s mxq_gemm_options;

#define MXQ_TRANSPOSE_N 1 /* as it is */
#define MXQ_TRANSPOSE_T 2 /* transposed */

MXQ_API mxq_status mxq_gemm_options_create(mxq_gemm_options** out);
MXQ_API void mxq_gemm_options_destroy(mxq_gemm_options* options);
MXQ_API mxq_status mxq_gemm_options_set_transpose(mxq_gemm_options* options, int32_t a, int32_t b);

/* D = alpha op(A) op(B) + beta D + bias. alpha (default 1) and beta (default 0) are finite. With a beta of 0, D is not read;
 * with another, D is read in its own type, whichever that is. */
MXQ_API mxq_status mxq_gemm_options_set_alpha(mxq_gemm_options* options, float alpha);
MXQ_API mxq_status mxq_gemm_options_set_beta(mxq_gemm_options* options, float beta);

/* 1: as a beta of 1, for an F32 D alone, so that no sum is cut to 16 bits by mistake; 0 (default). Not with a beta. */
MXQ_API mxq_status mxq_gemm_options_set_accumulate(mxq_gemm_options* options, int32_t accumulate);

/* One number for each column of D, added to all of its rows: N numbers of MXQ_FORMAT_F32, F16 or BF16, of any of them with
 * any D, in memory of the context's device. With groups of rows (groups, N): each group has its own. Groups along the
 * contraction take none (UNSUPPORTED): their D is a gradient of weights. Format 0 with NULL: none (default). */
MXQ_API mxq_status mxq_gemm_options_set_bias(mxq_gemm_options* options, int32_t format, const void* bias, uint64_t bytes);

/* 1: every product of two values as dequantized is exact but for the rounding of sums; implementations that round operands
 * on the way, such as from blocks of 32 to wider ones, decline. 0 (default): the best implementation. */
MXQ_API mxq_status mxq_gemm_options_set_exact_products(mxq_gemm_options* options, int32_t exact);

/* As for quantize. */
MXQ_API mxq_status mxq_gemm_options_set_implementation(mxq_gemm_options* options, const char* name);

/* ---- Plans: the answer of a query --------------------------------------------------------------------------------- */

/* Every verb has a query with the same arguments, without workspace and stream. It checks shapes, formats and options as
 * the verb does, and pointers where they are set. MXQ_STATUS_OK: the verb would run, and *plan tells how. Otherwise the
 * verb's status; for UNSUPPORTED the message tells why each implementation declined. `plan` may be NULL. */
typedef struct mxq_plan_s mxq_plan;

/* Name of the implementation that would run, on CUDA also that of its kernel and source file. Lives as long as the plan;
 * "" for NULL. */
MXQ_API const char* mxq_plan_implementation(const mxq_plan* plan);

/* Why this implementation: "" for the best of all; the reason of each that is better and declined, "name: reason; name,
 * name: reason"; or what asked for it by name. Lives as long as the plan; "" for NULL. */
MXQ_API const char* mxq_plan_reason(const mxq_plan* plan);

/* Bytes of workspace that the verb needs, at an address that is a multiple of 256. Its content is free before and after.
 * 0 for NULL. */
MXQ_API uint64_t mxq_plan_workspace_bytes(const mxq_plan* plan);

MXQ_API void mxq_plan_destroy(mxq_plan* plan);

/* ---- Quantize, requantize and dequantize -------------------------------------------------------------------------- */

/* in (F32, F16, BF16) to out (quantized): every declared part of out, same shape as in. With groups, out has them, and in
 * holds its rows without padding, or has the same groups and its rows padded to its own rowwise alignment; every group of
 * out is padded on the way. MISSING_BUFFER if out declares no part. Zero elements: nothing is written but an amax that is
 * computed (0) and a TENSOR scale (1). (Swizzled scales of an (R, 0) or (0, C) matrix have no bytes.)
 *
 * MX: for each block a = largest magnitude, s = the scale byte by the scale rounding, code = nearest value to
 * x * 2^(127 - s), ties to even, saturated to +-max, the sign of zero kept. A zero block has s = 0.
 * NVFP4: block scales relative to the amax (S = E4M3 of a / 6 * scale_max * 6 / amax), codes to nearest or stochastic.
 * FP8: code = nearest value to x * q, q = max / amax of what shares the scale, or given; the stored scale is 1 / q. */
MXQ_API mxq_status mxq_quantize(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream);
MXQ_API mxq_status mxq_quantize_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                      const mxq_tensor* out, mxq_plan** plan);

/* in (quantized) to out (quantized), any formats and parts: exactly what mxq_dequantize to F32 and mxq_quantize give, without
 * the F32 tensor. Reads in's rowwise part if declared, else its columnwise one. Groups on both or on neither. */
MXQ_API mxq_status mxq_requantize(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                  const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream);
MXQ_API mxq_status mxq_requantize_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                        const mxq_tensor* out, mxq_plan** plan);

/* The amax of in (F32, F16, BF16) into the amax places of out (NVFP4, or FP8 with TENSOR scales), for each part that has one,
 * after the Hadamard transform where the options give the part one. Nothing else of out is touched. */
MXQ_API mxq_status mxq_amax(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                            const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream);
MXQ_API mxq_status mxq_amax_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                  const mxq_tensor* out, mxq_plan** plan);

/* in (quantized; its rowwise part if declared, else its columnwise one) to out (F32, F16, BF16) of the same shape.
 * Each value is code * 2^(s - 127) (MX), code * S * decode scale (NVFP4, rounded after each), code * scale (FP8), rounded to
 * fp32 and once more to out's type, to nearest even; beyond its range Inf; NaN is written as 0x7FFFFFFF (F32) or 0x7FFF.
 * With groups, out holds the rows without padding, or has in's groups and its own alignment, padded with +0. */
MXQ_API mxq_status mxq_dequantize(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                  const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream);
MXQ_API mxq_status mxq_dequantize_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                        const mxq_tensor* out, mxq_plan** plan);

/* ---- Groups ------------------------------------------------------------------------------------------------------- */

/* The groups of in to those of out: both have the same groups, format, scaling and shape; out's alignments are as large or
 * larger (pad) or as small or smaller (unpad). Plain tensors: rows are moved, padding is +0. Quantized ones: the codes and
 * scales of the parts that both declare; padding is code 0, and scale 0 where a block is padding alone. pad also writes the
 * padded starts and ends where out has a place for them. No size reaches the host. */
MXQ_API mxq_status mxq_pad_groups(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                  const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream);
MXQ_API mxq_status mxq_pad_groups_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                        const mxq_tensor* out, mxq_plan** plan);
MXQ_API mxq_status mxq_unpad_groups(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                    const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream);
MXQ_API mxq_status mxq_unpad_groups_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                          const mxq_tensor* out, mxq_plan** plan);

/* ---- Scale layouts ------------------------------------------------------------------------------------------------ */

/* The scales of in (compact) to out (swizzled), or back. Same format, scaling and shape; the same parts declared on both.
 * Codes are neither read nor written, so their pointers may be NULL. Every byte of out (with groups: of their tiles) is
 * written, padding as zero. With groups, both have the same groups and alignments. */
MXQ_API mxq_status mxq_swizzle_scales(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                      const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream);
MXQ_API mxq_status mxq_swizzle_scales_query(mxq_context* context, const mxq_quantize_options* options,
                                            const mxq_tensor* in, const mxq_tensor* out, mxq_plan** plan);
MXQ_API mxq_status mxq_unswizzle_scales(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                        const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream);
MXQ_API mxq_status mxq_unswizzle_scales_query(mxq_context* context, const mxq_quantize_options* options,
                                              const mxq_tensor* in, const mxq_tensor* out, mxq_plan** plan);

/* ---- Products ----------------------------------------------------------------------------------------------------- */

/* D = alpha op(A) op(B) + beta D + bias; by default D = op(A) op(B). A and B are of any formats, scalings and scale layouts
 * with the same block along the contraction: two MX formats (32), NVFP4 (16), FP8 with 128-wide blocks, FP8 with ROW or TENSOR
 * scales; and either or both may be BF16 where their rows run along the contraction (A as it is, B transposed). Other pairs
 * are UNSUPPORTED.
 * D is F32, F16 or BF16, row-major with a row stride. The part that is read follows from the transpose:
 *
 *     case     A           part read     B           part read      use
 *     (N,T)    (M, K)      rowwise       (N, K)      rowwise        forward:          y  = x w^T
 *     (N,N)    (M, K)      rowwise       (K, N)      columnwise     input gradient:   dx = dy w
 *     (T,N)    (K, M)      columnwise    (K, N)      columnwise     weight gradient:  dw = dy^T x
 *
 * (T,T) works too, A columnwise and B rowwise. Products of codes and scales are exact; sums are fp32.
 * Bound for every element: |err| <= c 2^-24 sum_k |a_k||b_k| + u max(|D|, N) + 2^-134 sum_k (|a_k| + |b_k|), with u = 2^-24
 * (F32), 2^-11 (F16), 2^-8 (BF16), N the smallest normal of D's type, and c of the implementation: K + 1 for `cpu`;
 * 13 K / 10 + 40 for `mma_bf16`, 5 K / 4 + 32 where both operands are MX or BF16. A NaN operand gives NaN in its row or
 * column of D and nowhere else, as long as sum_k |a_k||b_k| < 2^128 and no operand is infinite. K = 0 gives a sum of 0.
 * `cublaslt_rebase` and `cublaslt_grouped_rebase`, with c = 13 K / 10 + 270376, give MX operands scales of 1X128, and of
 * 128X128 where B stands beside an A as it is: the bound gains sum_k (e_a |b_k| + |a_k| e_b + e_a e_b), where e is 0 for
 * values of 2^-6 S or more (E5M2: 2^-14 S), else 2^-10 S (2^-17 S). S is the largest scale of the tile that is no NaN, of MXFP4
 * 2^-6 of that, of MXFP6 2^-5 (E2M3) and 2^-4 (E3M2). It holds where the product of two tiles' scales is a normal number;
 * mxq_gemm_options_set_exact_products has other implementations instead.
 * With alpha, beta D or a bias, P = sum_k |a_k||b_k| becomes |alpha| P + |beta D| + |bias|, the last term is multiplied by
 * |alpha|, c grows by 1 for each of the three, and (1 + |alpha|) 2^-149 is added to the bound. (An alpha of 1 counts as none,
 * and so does the 2^-149 with a beta of 1 into F32 alone.) What is below 2^128 must be the new P, then, and P. With an alpha of
 * 0 it is open whether NaN operands are noticed. */
MXQ_API mxq_status mxq_gemm(mxq_context* context, const mxq_gemm_options* options, const mxq_tensor* a,
                            const mxq_tensor* b, const mxq_tensor* d, void* workspace, uint64_t workspace_bytes,
                            void* stream);
MXQ_API mxq_status mxq_gemm_query(mxq_context* context, const mxq_gemm_options* options, const mxq_tensor* a,
                                  const mxq_tensor* b, const mxq_tensor* d, mxq_plan** plan);

/* One product per group, sizes read from A's groups on the device:
 *
 *     case     A                        B                        D
 *     (N,T)    (M, K), groups of rows   (G, N, K)                (M, N): D[rows of g] = A[rows of g] B[g]^T
 *     (N,N)    (M, K), groups of rows   (G, K, N)                (M, N): D[rows of g] = A[rows of g] B[g]
 *     (T,N)    (M, K), groups of rows   (M, N), the same groups  (G, K, N): D[g] = A[rows of g]^T B[rows of g]
 *
 * Rows of a group lie in A by A's rowwise alignment, in D without padding or, where D has the same groups, by D's:
 * then D's padding becomes +0 (with a beta other than 0 it is left).
 * In (T,N) both operands have groups (B's must be the same array of ends) and their columnwise parts are padded as
 * mxq_tensor_set_groups says; an empty group gives D[g] = beta D[g]. In the first two, rows of D past the last end are not
 * written. (T,T) is UNSUPPORTED. */
MXQ_API mxq_status mxq_grouped_gemm(mxq_context* context, const mxq_gemm_options* options, const mxq_tensor* a,
                                    const mxq_tensor* b, const mxq_tensor* d, void* workspace, uint64_t workspace_bytes,
                                    void* stream);
MXQ_API mxq_status mxq_grouped_gemm_query(mxq_context* context, const mxq_gemm_options* options, const mxq_tensor* a,
                                          const mxq_tensor* b, const mxq_tensor* d, mxq_plan** plan);

#ifdef __cplusplus
}
#endif

#endif /* MXQ_MXQ_H */
