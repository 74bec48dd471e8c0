// Decodes the codes of a unit to fp32 numbers in registers, in the order of few_rows_order.h. Part of few_rows_kernels.cpp.
#pragma once
#include "cpu/decode_lines.h"
#if defined(__AVX512F__)
#include "cpu/few_rows_codes_avx512.h"
#else
#include "cpu/few_rows_codes_avx2.h"
#endif

namespace mxq::cpu {
namespace {

// Decodes units of codes of E, part by part, or as pairs of BF16.
template <class E>
struct UnitDecoder {
    using Element = E;

    template <class Use>
    MXQ_HD static void decode(const uint8_t* codes, int64_t part, const Use& use) {
        decode_unit<E>(codes, part, use);
    }
#if defined(__AVX512BF16__)
    template <class Use>
    MXQ_HD static void decode_words(const uint8_t* codes, const Use& use) {
        decode_pairs<E>(codes, use);
    }
#endif
};

}  // namespace
}  // namespace mxq::cpu
