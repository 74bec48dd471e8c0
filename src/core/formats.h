// The formats table and the scalings table: the only places that list what a format is.
#pragma once
#include <cstdint>

#include "mxq/mxq.h"

namespace mxq {

// What one number is stored as.
enum class Element : int32_t { F32, F16, Bf16, E4M3, E5M2, E2M3, E3M2, E2M1 };

enum class ScaleType : int32_t { None, E8M0, E4M3, F32 };

// Which codes share a scale: `lines` neighbouring lines x `length` neighbours along the contraction; 0: all of them.
struct Scaling {
    int32_t id;        // MXQ_SCALING_*
    const char* name;  // as in messages
    int32_t lines, length;

    bool is_square() const { return lines > 1; }
};

struct Format {
    int32_t id;          // MXQ_FORMAT_*
    const char* name;    // what mxq_format_name gives
    Element element;
    int32_t bits;        // of one element or code
    ScaleType scale;
    int32_t scaling;     // the default one
    uint32_t scalings;   // bit MXQ_SCALING_* for each that it takes

    bool quantized() const { return scale != ScaleType::None; }
    bool is_mx() const { return scale == ScaleType::E8M0; }
    bool is_nvfp4() const { return scale == ScaleType::E4M3; }
    bool is_fp8() const { return scale == ScaleType::F32; }
    bool takes(int32_t scaling_id) const { return scaling_id >= 0 && scaling_id < 32 && (scalings >> scaling_id & 1); }
    int64_t bytes_of(int64_t count) const { return (count * bits + 7) / 8; }
    int64_t scale_bytes() const { return scale == ScaleType::F32 ? 4 : scale == ScaleType::None ? 0 : 1; }
};

// NULL for an unknown id.
const Format* find_format(int32_t id);

// Of a known id.
const Scaling& scaling_of(int32_t id);

}  // namespace mxq
