// NVFP4 codes with E4M3 block scales and one fp32 amax, g. T is the largest block scale. The names on the right are those of
// the contract.
//
//     nvfp4_encode_scale(t, g), nvfp4_decode_scale(t, g)    S_enc, S_dec
//     nvfp4_scale(t, g, a)                                  S_blk of a block, without four-over-six
//     nvfp4_multiplier(t, g, scale)                         enc
//     quantize_nvfp4(spec, block, g, columnwise)            stores the codes of a block and returns its scale
//     decode_nvfp4(code, scale, decode_scale)               returns the value of a code
#ifndef MXQ_TESTS_ORACLE_NVFP4_H
#define MXQ_TESTS_ORACLE_NVFP4_H

#include "oracle_block.h"

namespace oracle {

inline bool says_nothing(float g) { return g == 0 || std::isinf(g); }

inline float nvfp4_encode_scale(float t, float g) { return says_nothing(g) ? 1 : min_number(divide(t * 6, g), flt_max); }
inline float nvfp4_decode_scale(float t, float g) { return says_nothing(g) ? 1 : multiply(g, divide(1, t * 6)); }

inline uint8_t nvfp4_scale(float t, float g, float a) {
    float sixth = multiply(nvfp4_encode_scale(t, g), divide(1, 6));
    return encode(e4m3, min_number(multiply(a, sixth), flt_max));
}

inline float nvfp4_multiplier(float t, float g, uint8_t scale) {
    float value = multiply(static_cast<float>(e4m3.decode(scale)), divide(1, nvfp4_encode_scale(t, g)));
    return min_number(divide(1, value), flt_max);
}

// Stores the codes of a block under a given scale.
inline void nvfp4_codes(const Spec& spec, const Block& block, float g, uint8_t scale) {
    float multiplier = nvfp4_multiplier(spec.nvfp4_t, g, scale);
    for (int64_t i = 0; i < block.count(); ++i) {
        float x = block.value(i);
        if (scale == 0) block.codes[block.at(i)] = !std::isnan(x) && std::signbit(x) ? 8 : 0;
        else block.put(e2m1, i, multiply(x, multiplier));
    }
}

// ---- Four-over-six -----------------------------------------------------------------------------------------------------

inline float nvfp4_error(const Spec& spec, float g, uint8_t scale, uint8_t code, float x) {
    float value = multiply(static_cast<float>(e2m1.decode(code)), static_cast<float>(e4m3.decode(scale)));
    float d = subtract(divide(multiply(value, g), 6 * spec.nvfp4_t), x);
    return spec.four_over_six == MXQ_FOUR_OVER_SIX_MAE ? std::fabs(d) : multiply(d, d);
}

// Returns the error of a block with its present codes. The errors of 16 elements in a row of the tensor are added in order,
// and the sums of the rows of a 16x16 tile as a tree. In a columnwise tile the rows of the tensor are columns of the block.
inline float nvfp4_block_error(const Spec& spec, const Block& block, float g, uint8_t scale, bool columnwise) {
    bool upright = columnwise && spec.scaling == MXQ_SCALING_16X16;
    int64_t rows = upright ? block.width : block.height, cols = upright ? block.height : block.width;
    float errors[16] = {};
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c) {
            int64_t at = upright ? c * block.stride + r : r * block.stride + c;
            errors[r] = add(errors[r], nvfp4_error(spec, g, scale, block.codes[at], block.x[at]));
        }
    for (int distance = 8; distance; distance /= 2)
        for (int r = 0; r < distance; ++r) errors[r] = add(errors[r], errors[r + distance]);
    return errors[0];
}

inline uint8_t nvfp4_better_scale(const Spec& spec, const Block& block, float g, bool columnwise) {
    float base = multiply(divide(block.amax(), 6), nvfp4_encode_scale(spec.nvfp4_t, g));
    uint8_t scale4 = encode(e4m3, multiply(base, 1.5f)), scale6 = encode(e4m3, base);
    nvfp4_codes(spec, block, g, scale4);
    float error4 = nvfp4_block_error(spec, block, g, scale4, columnwise);
    nvfp4_codes(spec, block, g, scale6);
    float error6 = nvfp4_block_error(spec, block, g, scale6, columnwise);
    return error4 < error6 ? scale4 : scale6;
}

// ------------------------------------------------------------------------------------------------------------------------

inline uint32_t quantize_nvfp4(const Spec& spec, const Block& block, float g, bool columnwise) {
    if (spec.four_over_six && spec.stochastic) throw std::logic_error("oracle: four-over-six is never stochastic");
    uint8_t scale = spec.four_over_six ? nvfp4_better_scale(spec, block, g, columnwise)
                                       : nvfp4_scale(spec.nvfp4_t, g, block.amax());
    nvfp4_codes(spec, block, g, scale);
    return scale;
}

inline float decode_nvfp4(uint8_t code, uint8_t scale, float decode_scale) {
    float value = multiply(static_cast<float>(e2m1.decode(code)), static_cast<float>(e4m3.decode(scale)));
    return multiply(value, decode_scale);
}

}  // namespace oracle

#endif
