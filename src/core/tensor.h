// The descriptor behind mxq_tensor.
#pragma once
#include <cstdint>

#include "core/formats.h"
#include "core/handle.h"
#include "core/layout.h"
#include "mxq/mxq.h"

namespace mxq {

struct Buffer {
    void* pointer = nullptr;
    uint64_t bytes = 0;
};

// Aligns blocks of the caller's memory, and the arrays in them.
constexpr uint64_t kMemoryAlignment = 256;
inline uint64_t aligned_bytes(uint64_t bytes) {
    return (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
}

// Numbers of a plain format, such as a bias.
struct Numbers {
    int32_t format = 0;  // MXQ_FORMAT_*; 0: none
    Buffer values;
};

// Bytes from a K-major row to the next and from an expert to the next, of codes and of the compact matrix of scales. 0: no
// gaps.
struct Strides {
    int64_t code_line = 0, code_expert = 0, scale_line = 0, scale_expert = 0;
    bool set() const { return (code_line | code_expert | scale_line | scale_expert) != 0; }
};

struct Part {
    bool declared = false;
    bool is_const = false;  // may not be written
    bool listed = false;  // codes and scales are arrays of addresses, one for each expert; the bytes are those of an expert
    Buffer codes;         // of a plain tensor its data
    Buffer scales;
    Strides strides;
    Buffer amax;
    Buffer decode_scale;  // NVFP4: decoding takes it instead of the amax
    Buffer starts, ends;  // where padded groups start and end, written by pad_groups and unpad_groups
    bool transformed = false;    // by the random Hadamard transform
    uint16_t hadamard_mask = 0;  // of elements whose sign it flips; 0 where there is none

    // Declares the part to have this memory, or to have experts at such lists of addresses.
    void declare(const Buffer& of_codes, const Buffer& of_scales, bool constant, bool lists) {
        declared = true;
        is_const = constant;
        listed = lists;
        codes = of_codes;
        scales = of_scales;
    }
};

struct Groups {
    const void* ends = nullptr;
    int32_t type = 0;   // MXQ_TYPE_*
    int32_t count = 0;
    bool set = false;
    bool cover_rows = false;  // the last end must be the number of rows

    uint64_t end_bytes() const { return type == MXQ_TYPE_INT32 ? 4 : 8; }
};

// The rows of a plain matrix by index, in order: row i is row indices[i] of the stored ones. A number that is none of these is
// a row of zeros.
struct RowIndices {
    const void* indices = nullptr;
    int32_t type = 0;  // MXQ_TYPE_*
    int64_t source_rows = 0;
    bool set = false;

    int64_t index_bytes() const { return type == MXQ_TYPE_INT32 ? 4 : 8; }
};

// One-byte scales of a matrix in 128 x 4 tiles, and what the scales of each of its groups are rounded up to.
struct SwizzledScales {
    ScaleLayout layout;
    int32_t group_unit;
};

// Lays out the swizzled scales of `lines` K-major rows of `length` codes. `block` codes share a scale, which fills `repeat`
// columns. `groups` divide `rows` rows of the tensor. These are the K-major rows, or in a columnwise part the codes of
// each. There the codes of a group are rounded up to `code_unit`.
SwizzledScales lay_out_swizzled(int64_t lines, int64_t length, int32_t block, int32_t repeat, bool columnwise,
                                int32_t code_unit, const Groups& groups, int64_t rows);

// The sizes of one part of a quantized tensor, which is stored as K-major rows of codes.
struct Storage {
    int64_t lines;
    int64_t length;
    int64_t line_bytes;
    int64_t line_stride, matrix_stride;  // bytes from a K-major row to the next and from an expert to the next
    ScaleLayout scales;
    GroupUnits units;
    int64_t scale_lines,
        scale_width;     // the matrix of scales of an expert; one row where rows have no stride of their own
    int64_t code_bytes;  // of an expert where experts are listed
    int64_t scale_count;
    int64_t amax_count;
    int64_t scale_bytes() const { return scale_count * scales.bytes; }
};

}  // namespace mxq

struct mxq_tensor_s : mxq::Handle<mxq::Kind::Tensor> {
    const mxq::Format* format = nullptr;
    int32_t scaling = MXQ_SCALING_NONE;
    bool scaling_set = false;  // by the caller; else it is the format's default, which the caller may still replace
    bool is_3d = false;
    int64_t experts = 1, rows = 0, cols = 0;
    int64_t row_stride = 0;
    bool swizzled = false;
    bool per_expert = false;  // each expert or group has its own amax, decode scale or TENSOR scale
    int32_t scale_max = 448;  // NVFP4: T, the largest block scale
    mxq::Buffer quantization_scale;
    mxq::Part rowwise, columnwise;
    mxq::Groups groups;
    mxq::RowIndices row_indices;  // of a plain matrix
    const void* host_ends = nullptr;  // a copy of groups.ends in host memory; NULL: not given
    int32_t rowwise_alignment = 1, columnwise_alignment = 0;  // of groups; 0: the default for the scaling

    int64_t elements() const { return experts * rows * cols; }
    const mxq::Scaling& tile() const { return mxq::scaling_of(scaling); }
    const mxq::Part& part(int32_t part) const { return part == MXQ_PART_ROWWISE ? rowwise : columnwise; }
    mxq::Part& part(int32_t part) { return part == MXQ_PART_ROWWISE ? rowwise : columnwise; }

    // Returns the multiple that the rows of each group are padded to in a part.
    int32_t alignment(int32_t part) const;

    // Returns the smallest such multiple with which no block lies in two groups.
    int32_t least_alignment(int32_t part) const;

    // Returns the number of amaxes, decode scales or TENSOR scales of a part.
    int64_t scope_count() const { return !per_expert ? 1 : groups.set ? groups.count : experts; }

    // Returns the bytes that a plain tensor spans, or an expert of it where they are listed, padded groups included; -1 where
    // that is 2^63 or more.
    int64_t data_bytes() const;

    // Returns how a part is stored. The tensor must be quantized.
    mxq::Storage storage(int32_t part) const;
};
