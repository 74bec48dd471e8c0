// What kind of weights an operand is to the exact kernels of this folder, and the rule that decodes them.
#pragma once
#include "core/problem.h"
#include "cuda/sm90/weights.cuh"

namespace mxq::cuda::sm90 {

inline bool is_block_scaled(const GemmOperand& operand) {
    return operand.scale_type == ScaleType::E8M0 || operand.scale_type == ScaleType::E4M3;
}

inline bool has_line_scales(const GemmOperand& operand) {
    return operand.scale_type == ScaleType::F32 && operand.layout.block == MXQ_MAX_DIM;
}

struct WeightRule {
    Weights kind;
    Bf16DecodeRule rule;
    uint32_t missing;  // 2^(127 - bias of the codes) as BF16, in both halves
};

template <class E>
WeightRule weight_rule_of(Weights kind) {
    return {kind, kind == Weights::Nvfp4 ? bf16_decode_rule_nvfp4() : bf16_decode_rule<E>(), bf16_power_pair(127 - E::bias)};
}

inline WeightRule weight_rule(const GemmOperand& b) {
    switch (b.element) {
        case Element::E4M3: return weight_rule_of<E4M3>(Weights::Bits8);
        case Element::E5M2: return weight_rule_of<E5M2>(Weights::Bits8);
        case Element::E2M3: return weight_rule_of<E2M3>(Weights::Bits6);
        case Element::E3M2: return weight_rule_of<E3M2>(Weights::Bits6);
        default: return weight_rule_of<E2M1>(b.scale_type == ScaleType::E4M3 ? Weights::Nvfp4 : Weights::Bits4);
    }
}

}  // namespace mxq::cuda::sm90
