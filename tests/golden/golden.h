// Reading the golden vectors.
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

// 2-D, or 3-D with experts first.
inline oracle::Shape shape(const safetensors::Tensor& tensor) {
    const auto& s = tensor.shape;
    return s.size() == 3 ? oracle::Shape{s[0], s[1], s[2]} : oracle::Shape{1, s.at(0), s.at(1)};
}

struct Name {
    const char* text;
    int32_t value;
};
inline const Name formats[] = {{"e4m3", MXQ_FORMAT_MXFP8_E4M3}, {"e5m2", MXQ_FORMAT_MXFP8_E5M2}};
inline const Name roundings[] = {{"floor", MXQ_SCALE_ROUNDING_FLOOR},
                                 {"ceil", MXQ_SCALE_ROUNDING_CEIL},
                                 {"even", MXQ_SCALE_ROUNDING_EVEN},
                                 {"rceil", MXQ_SCALE_ROUNDING_RCEIL}};
inline const Name parts[] = {{"rowwise", MXQ_PART_ROWWISE}, {"columnwise", MXQ_PART_COLUMNWISE}};

}  // namespace golden

#endif
