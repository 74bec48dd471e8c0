// The formats table and the scalings table: the only places that list what a format is.
#pragma once
#include <cstdint>

#include "mxq/mxq.h"
#include "numerics/convert.h"
#include "numerics/element.h"

namespace mxq {

enum class ScaleType : int32_t { None, E8M0, E4M3, F32 };

// Tells which codes share a scale: `lines` neighbouring lines x `length` neighbours along the contraction; 0 means all of them.
struct Scaling {
    int32_t id;        // MXQ_SCALING_*
    const char* name;  // what messages call it
    int32_t lines, length;

    bool is_square() const { return lines > 1; }
};

struct Format {
    int32_t id;          // MXQ_FORMAT_*
    const char* name;    // what mxq_format_name gives
    Element element;
    int32_t bits;        // how many an element or a code has
    ScaleType scale;     // what its scales are stored as
    int32_t scaling;     // the default MXQ_SCALING_*
    uint32_t scalings;   // a bit 1 << MXQ_SCALING_* for each scaling that it takes

    bool quantized() const { return scale != ScaleType::None; }
    bool is_mx() const { return scale == ScaleType::E8M0; }
    bool is_nvfp4() const { return scale == ScaleType::E4M3; }
    bool is_fp8() const { return scale == ScaleType::F32; }
    bool takes(int32_t scaling_id) const { return scaling_id >= 0 && scaling_id < 32 && (scalings >> scaling_id & 1); }
    int64_t bytes_of(int64_t count) const { return (count * bits + 7) / 8; }
    int64_t scale_bytes() const { return scale == ScaleType::F32 ? 4 : scale == ScaleType::None ? 0 : 1; }
};

// Returns the row of a format, or NULL for an unknown id.
const Format* find_format(int32_t id);

// Returns the row of a known scaling.
const Scaling& scaling_of(int32_t id);

// Returns body(value), the value being of a plain format's type. Without a call it returns an empty result for other formats.
template <class Body>
MXQ_HOST auto with_plain(int32_t format, const Body& body) {
    switch (format) {
        case MXQ_FORMAT_F32: return body(float{});
        case MXQ_FORMAT_F16: return body(F16{});
        case MXQ_FORMAT_BF16: return body(Bf16{});
    }
    return decltype(body(float{}))();
}

}  // namespace mxq
