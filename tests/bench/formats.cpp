#include "formats.h"

#include <mxq/mxq.h>

#include <algorithm>
#include <stdexcept>

namespace {

const std::vector<int32_t> mx = {MXQ_SCALING_1X32, MXQ_SCALING_32X32, MXQ_SCALING_1X128, MXQ_SCALING_128X128,
                                 MXQ_SCALING_ROW};
const std::vector<int32_t> nv = {MXQ_SCALING_1X16, MXQ_SCALING_16X16};
const std::vector<int32_t> fp8 = {MXQ_SCALING_TENSOR, MXQ_SCALING_ROW, MXQ_SCALING_1X128, MXQ_SCALING_128X128};

const Format formats[] = {
    {MXQ_FORMAT_F32, "f32", {}},
    {MXQ_FORMAT_F16, "f16", {}},
    {MXQ_FORMAT_BF16, "bf16", {}},
    {MXQ_FORMAT_MXFP8_E4M3, "mxfp8_e4m3", mx},
    {MXQ_FORMAT_MXFP8_E5M2, "mxfp8_e5m2", mx},
    {MXQ_FORMAT_MXFP6_E2M3, "mxfp6_e2m3", mx},
    {MXQ_FORMAT_MXFP6_E3M2, "mxfp6_e3m2", mx},
    {MXQ_FORMAT_MXFP4, "mxfp4", mx},
    {MXQ_FORMAT_NVFP4, "nvfp4", nv},
    {MXQ_FORMAT_FP8_E4M3, "fp8_e4m3", fp8},
    {MXQ_FORMAT_FP8_E5M2, "fp8_e5m2", fp8},
};

const struct {
    int32_t id;
    const char* name;
} scalings[] = {
    {MXQ_SCALING_1X32, "1x32"}, {MXQ_SCALING_32X32, "32x32"}, {MXQ_SCALING_1X128, "1x128"}, {MXQ_SCALING_128X128, "128x128"},
    {MXQ_SCALING_1X16, "1x16"}, {MXQ_SCALING_16X16, "16x16"}, {MXQ_SCALING_ROW, "row"},     {MXQ_SCALING_TENSOR, "tensor"},
};

const Format& find_format(const std::string& name) {
    std::string names;
    for (const Format& format : formats) {
        if (name == format.name) return format;
        names += std::string(" ") + format.name;
    }
    throw std::runtime_error("no format " + name + "; there are" + names);
}

const char* scaling_name(int32_t scaling) {
    return std::find_if(std::begin(scalings), std::end(scalings), [&](const auto& s) { return s.id == scaling; })->name;
}

}  // namespace

int32_t parse_scaling(const std::string& name) {
    std::string names;
    for (const auto& scaling : scalings) {
        if (name == scaling.name) return scaling.id;
        names += std::string(" ") + scaling.name;
    }
    throw std::runtime_error("no scaling " + name + "; there are" + names);
}

Quantization parse_quantization(const std::string& text) {
    const size_t colon = text.find(':');
    const Format& format = find_format(text.substr(0, colon));
    if (colon == std::string::npos) return {&format, format.plain() ? MXQ_SCALING_NONE : format.scalings[0]};
    const int32_t scaling = parse_scaling(text.substr(colon + 1));
    if (std::find(format.scalings.begin(), format.scalings.end(), scaling) == format.scalings.end())
        throw std::runtime_error(std::string(format.name) + " has no scaling " + text.substr(colon + 1));
    return {&format, scaling};
}

std::string scaling_text(int32_t scaling) { return scaling == MXQ_SCALING_NONE ? "none" : scaling_name(scaling); }

std::string text(const Quantization& quantization) {
    const Format& format = *quantization.format;
    if (format.plain() || quantization.scaling == format.scalings[0]) return format.name;
    return std::string(format.name) + ":" + scaling_name(quantization.scaling);
}
