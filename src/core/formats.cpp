#include "core/formats.h"

#include "core/layout.h"
#include "mxq/mxq.h"
#include "numerics/element.h"

namespace mxq {
namespace {

constexpr Format table[] = {
    // id                     name          bits        block     quantized
    {MXQ_FORMAT_F32,         "f32",         32,         1,        false},
    {MXQ_FORMAT_F16,         "f16",         16,         1,        false},
    {MXQ_FORMAT_BF16,        "bf16",        16,         1,        false},
    {MXQ_FORMAT_MXFP8_E4M3,  "mxfp8_e4m3",  E4M3::bits, kMxBlock, true},
    {MXQ_FORMAT_MXFP8_E5M2,  "mxfp8_e5m2",  E5M2::bits, kMxBlock, true},
};

}  // namespace

const Format* find_format(int32_t id) {
    for (const Format& format : table)
        if (format.id == id) return &format;
    return nullptr;
}

}  // namespace mxq
