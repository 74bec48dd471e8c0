// The tables of formats and scalings. Nothing else says what a format is.
#pragma once
#include <cstdint>

#include "mxq/mxq.h"
#include "numerics/convert.h"
#include "numerics/element.h"

namespace mxq {

enum class ScaleType : int32_t { None, E8M0, E4M3, F32 };

// The codes that share a scale: a tile of `lines` K-major rows x `length` codes of each. 0 stands for all rows, or all
// codes of a row. ("Lines" are the K-major rows of a part: src/README.md has the glossary.)
struct Scaling {
    int32_t id;        // MXQ_SCALING_*
    const char* name;  // for messages
    int32_t lines, length;

    bool is_square() const { return lines > 1; }
    bool is_row() const { return lines == 1 && length == 0; }
};

struct Format {
    int32_t id;          // MXQ_FORMAT_*
    const char* name;    // returned by mxq_format_name
    Element element;
    int32_t bits;        // bits of one element or code
    ScaleType scale;
    int32_t scaling;     // the default scaling, MXQ_SCALING_*
    uint32_t scalings;   // the scalings that the format takes: bit MXQ_SCALING_* is set for each

    bool quantized() const { return scale != ScaleType::None; }
    bool is_mx() const { return scale == ScaleType::E8M0; }
    bool is_nvfp4() const { return scale == ScaleType::E4M3; }
    bool is_fp8() const { return scale == ScaleType::F32; }
    bool takes(int32_t scaling_id) const { return scaling_id >= 0 && scaling_id < 32 && (scalings >> scaling_id & 1); }
    int64_t bytes_of(int64_t count) const { return (count * bits + 7) / 8; }
    int64_t scale_bytes() const { return scale == ScaleType::F32 ? 4 : scale == ScaleType::None ? 0 : 1; }
};

// Returns the format with this MXQ_FORMAT_* id, or NULL for an unknown id.
const Format* find_format(int32_t id);

// Returns the scaling with this MXQ_SCALING_* id, which must be a known one.
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
