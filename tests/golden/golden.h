// Reads the golden vectors, and lists the names that they use for formats, scalings and options.
#ifndef MXQ_TESTS_GOLDEN_H
#define MXQ_TESTS_GOLDEN_H

#include "../../examples/common/safetensors.h"
#include "../oracle.h"
#include "../paths.h"

#include <string>

namespace golden {

inline const safetensors::File& file(const char* name) {
    static std::map<std::string, safetensors::File> files;
    return files.try_emplace(name, testing::data_dir() + "/golden/" + name + ".safetensors").first->second;
}

inline oracle::Bytes bytes(const safetensors::Tensor& tensor) { return {tensor.data, tensor.data + tensor.bytes}; }

inline int32_t plain_format(const safetensors::Tensor& tensor) {
    return tensor.dtype == "F32" ? MXQ_FORMAT_F32 : MXQ_FORMAT_BF16;
}

// Returns the shape of a vector that is 2-D, or 3-D with experts first.
inline oracle::Shape shape(const safetensors::Tensor& tensor) {
    const auto& s = tensor.shape;
    return s.size() == 3 ? oracle::Shape{s[0], s[1], s[2]} : oracle::Shape{1, s.at(0), s.at(1)};
}

struct Name {
    const char* text;
    int32_t value;
};
inline const Name formats[] = {{"e4m3", MXQ_FORMAT_MXFP8_E4M3}, {"e5m2", MXQ_FORMAT_MXFP8_E5M2}};  // in layout.safetensors
inline const Name mx_formats[] = {{"e4m3", MXQ_FORMAT_MXFP8_E4M3},
                                  {"e5m2", MXQ_FORMAT_MXFP8_E5M2},
                                  {"e3m2", MXQ_FORMAT_MXFP6_E3M2},
                                  {"e2m3", MXQ_FORMAT_MXFP6_E2M3},
                                  {"e2m1", MXQ_FORMAT_MXFP4}};
inline const Name fp8_formats[] = {{"e4m3", MXQ_FORMAT_FP8_E4M3}, {"e5m2", MXQ_FORMAT_FP8_E5M2}};
inline const Name nvfp4_scalings[] = {{"1x16", MXQ_SCALING_1X16}, {"16x16", MXQ_SCALING_16X16}};
inline const Name fp8_scalings[] = {{"tensor", MXQ_SCALING_TENSOR},
                                    {"row", MXQ_SCALING_ROW},
                                    {"1x128", MXQ_SCALING_1X128},
                                    {"128x128", MXQ_SCALING_128X128}};
inline const Name roundings[] = {{"floor", MXQ_SCALE_ROUNDING_FLOOR},
                                 {"ceil", MXQ_SCALE_ROUNDING_CEIL},
                                 {"even", MXQ_SCALE_ROUNDING_EVEN},
                                 {"rceil", MXQ_SCALE_ROUNDING_RCEIL}};

// The variants in the nvfp4 vectors: four-over-six with its error measure, and T.
struct FourOverSix {
    const char* text;
    int32_t value;
    float t;
};
inline const FourOverSix four_over_six[] = {{"plain", MXQ_FOUR_OVER_SIX_NONE, 448},
                                            {"map4_mae_448", MXQ_FOUR_OVER_SIX_MAE, 448},
                                            {"map4_mse_448", MXQ_FOUR_OVER_SIX_MSE, 448},
                                            {"map4_mae_256", MXQ_FOUR_OVER_SIX_MAE, 256},
                                            {"map4_mse_256", MXQ_FOUR_OVER_SIX_MSE, 256}};
inline const Name parts[] = {{"rowwise", MXQ_PART_ROWWISE}, {"columnwise", MXQ_PART_COLUMNWISE}};

}  // namespace golden

#endif
