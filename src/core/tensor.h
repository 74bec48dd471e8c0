// The descriptor behind mxq_tensor.
#pragma once
#include <cstdint>

#include "core/formats.h"
#include "core/layout.h"
#include "mxq/mxq.h"

namespace mxq {

struct Part {
    bool declared = false;
    void* codes = nullptr;  // of a plain tensor: its data
    uint64_t code_bytes = 0;
    void* scales = nullptr;
    uint64_t scale_bytes = 0;
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
    ScaleLayout scales;
    int64_t code_bytes;
    int64_t scale_bytes;
};

}  // namespace mxq

struct mxq_tensor_s {
    const mxq::Format* format = nullptr;
    int32_t scaling = MXQ_SCALING_NONE;
    bool is_3d = false;
    int64_t experts = 1, rows = 0, cols = 0;
    int64_t row_stride = 0;
    bool swizzled = false;
    mxq::Part rowwise, columnwise;
    mxq::Groups groups;

    int64_t elements() const { return experts * rows * cols; }
    const mxq::Part& part(int32_t which) const { return which == MXQ_PART_ROWWISE ? rowwise : columnwise; }
    mxq::Part& part(int32_t which) { return which == MXQ_PART_ROWWISE ? rowwise : columnwise; }

    // Bytes that a plain tensor spans; -1 where that is 2^63 or more.
    int64_t data_bytes() const;

    // Of a quantized tensor.
    mxq::Storage storage(int32_t which) const;
};
