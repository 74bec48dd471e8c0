// The descriptor behind mxq_tensor.
#pragma once
#include <cstdint>

#include "core/formats.h"
#include "core/layout.h"
#include "mxq/mxq.h"

namespace mxq {

struct Buffer {
    void* pointer = nullptr;
    uint64_t bytes = 0;
};

struct Part {
    bool declared = false;
    Buffer codes;  // of a plain tensor: its data
    Buffer scales;
    Buffer amax;
    Buffer decode_scale;  // NVFP4, in place of the amax
    Buffer starts, ends;  // padded groups, written by pad_groups
};

struct Groups {
    const void* ends = nullptr;
    int32_t type = 0;   // MXQ_TYPE_*
    int32_t count = 0;
    bool set = false;
};

// One part of a quantized tensor as it is stored: lines of codes, contiguous along the contraction.
struct Storage {
    int64_t lines;
    int64_t length;
    int64_t line_bytes;
    ScaleLayout scales;
    GroupUnits units;
    int64_t code_bytes;
    int64_t scale_count;
    int64_t amax_count;
    int64_t scale_bytes() const { return scale_count * scales.bytes; }
};

}  // namespace mxq

struct mxq_tensor_s {
    const mxq::Format* format = nullptr;
    int32_t scaling = MXQ_SCALING_NONE;
    bool is_3d = false;
    int64_t experts = 1, rows = 0, cols = 0;
    int64_t row_stride = 0;
    bool swizzled = false;
    bool per_expert = false;  // amax, decode scale, scale of TENSOR: one per expert or group
    int32_t scale_max = 448;  // NVFP4's T
    mxq::Buffer quantization_scale;
    mxq::Part rowwise, columnwise;
    mxq::Groups groups;
    const void* host_ends = nullptr;  // the values of groups.ends in host memory; NULL: not given
    int32_t rowwise_alignment = 1, columnwise_alignment = 0;  // of groups; 0: the least

    int64_t elements() const { return experts * rows * cols; }
    const mxq::Scaling& tile() const { return mxq::scaling_of(scaling); }
    const mxq::Part& part(int32_t which) const { return which == MXQ_PART_ROWWISE ? rowwise : columnwise; }
    mxq::Part& part(int32_t which) { return which == MXQ_PART_ROWWISE ? rowwise : columnwise; }

    // What the rows of a group are padded to in a part, and the least that its blocks allow.
    int32_t alignment(int32_t which) const;
    int32_t least_alignment(int32_t which) const;

    // How many amaxes, decode scales or TENSOR scales there are.
    int64_t scope_count() const { return !per_expert ? 1 : groups.set ? groups.count : experts; }

    // Bytes that a plain tensor spans, padded groups included; -1 where that is 2^63 or more.
    int64_t data_bytes() const;

    // Of a quantized tensor.
    mxq::Storage storage(int32_t which) const;
};
