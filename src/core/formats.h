// The formats table: the only place that lists what a format is.
#pragma once
#include <cstdint>

namespace mxq {

struct Format {
    int32_t id;        // MXQ_FORMAT_*
    const char* name;  // what mxq_format_name gives
    int32_t bits;      // of one element or code
    int32_t block;     // elements that share a scale along the contraction, 1 for plain formats
    bool quantized;

    int64_t bytes() const { return bits / 8; }
};

// NULL for an unknown id.
const Format* find_format(int32_t id);

}  // namespace mxq
