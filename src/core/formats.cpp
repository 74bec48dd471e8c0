#include "core/formats.h"

namespace mxq {
namespace {

constexpr uint32_t bit_of(int32_t scaling) { return 1u << scaling; }

constexpr uint32_t kPlainScalings = bit_of(MXQ_SCALING_NONE);
constexpr uint32_t kMxScalings = bit_of(MXQ_SCALING_1X32) | bit_of(MXQ_SCALING_32X32) | bit_of(MXQ_SCALING_1X128) |
                                 bit_of(MXQ_SCALING_128X128) | bit_of(MXQ_SCALING_ROW);
constexpr uint32_t kNvScalings = bit_of(MXQ_SCALING_1X16) | bit_of(MXQ_SCALING_16X16);
constexpr uint32_t kFp8Scalings = bit_of(MXQ_SCALING_TENSOR) | bit_of(MXQ_SCALING_ROW) | bit_of(MXQ_SCALING_1X128) |
                                  bit_of(MXQ_SCALING_128X128);

constexpr Format formats[] = {
    // id                     name           element         bits        scale            scaling             scalings
    {MXQ_FORMAT_F32,         "f32",         Element::F32,   32,         ScaleType::None, MXQ_SCALING_NONE,   kPlainScalings},
    {MXQ_FORMAT_F16,         "f16",         Element::F16,   16,         ScaleType::None, MXQ_SCALING_NONE,   kPlainScalings},
    {MXQ_FORMAT_BF16,        "bf16",        Element::Bf16,  16,         ScaleType::None, MXQ_SCALING_NONE,   kPlainScalings},
    {MXQ_FORMAT_MXFP8_E4M3,  "mxfp8_e4m3",  Element::E4M3,  E4M3::bits, ScaleType::E8M0, MXQ_SCALING_1X32,   kMxScalings},
    {MXQ_FORMAT_MXFP8_E5M2,  "mxfp8_e5m2",  Element::E5M2,  E5M2::bits, ScaleType::E8M0, MXQ_SCALING_1X32,   kMxScalings},
    {MXQ_FORMAT_MXFP6_E2M3,  "mxfp6_e2m3",  Element::E2M3,  E2M3::bits, ScaleType::E8M0, MXQ_SCALING_1X32,   kMxScalings},
    {MXQ_FORMAT_MXFP6_E3M2,  "mxfp6_e3m2",  Element::E3M2,  E3M2::bits, ScaleType::E8M0, MXQ_SCALING_1X32,   kMxScalings},
    {MXQ_FORMAT_MXFP4,       "mxfp4",       Element::E2M1,  E2M1::bits, ScaleType::E8M0, MXQ_SCALING_1X32,   kMxScalings},
    {MXQ_FORMAT_NVFP4,       "nvfp4",       Element::E2M1,  E2M1::bits, ScaleType::E4M3, MXQ_SCALING_1X16,   kNvScalings},
    {MXQ_FORMAT_FP8_E4M3,    "fp8_e4m3",    Element::E4M3,  E4M3::bits, ScaleType::F32,  MXQ_SCALING_TENSOR, kFp8Scalings},
    {MXQ_FORMAT_FP8_E5M2,    "fp8_e5m2",    Element::E5M2,  E5M2::bits, ScaleType::F32,  MXQ_SCALING_TENSOR, kFp8Scalings},
};

constexpr Scaling scalings[] = {
    // id                  name       lines length
    {MXQ_SCALING_NONE,    "none",    1,    1},
    {MXQ_SCALING_1X32,    "1x32",    1,    32},
    {MXQ_SCALING_32X32,   "32x32",   32,   32},
    {MXQ_SCALING_1X128,   "1x128",   1,    128},
    {MXQ_SCALING_128X128, "128x128", 128,  128},
    {MXQ_SCALING_1X16,    "1x16",    1,    16},
    {MXQ_SCALING_16X16,   "16x16",   16,   16},
    {MXQ_SCALING_ROW,     "row",     1,    0},
    {MXQ_SCALING_TENSOR,  "tensor",  0,    0},
};
static_assert(scalings[MXQ_SCALING_TENSOR].id == MXQ_SCALING_TENSOR, "scaling_of indexes the table by id");

}  // namespace

const Format* find_format(int32_t id) {
    for (const Format& format : formats)
        if (format.id == id) return &format;
    return nullptr;
}

const Scaling& scaling_of(int32_t id) { return scalings[id]; }

}  // namespace mxq
