#include "targets.h"

namespace fuzz {

std::span<const Target> targets() {
    static constexpr Target all[] = {
        {"quantize", quantize},
        {"requantize", requantize},
        {"dequantize", dequantize},
        {"amax", amax},
        {"convert", convert},
        {"groups", groups},
        {"scales", scales},
        {"gemm", gemm},
        {"grouped_gemm", grouped_gemm},
        {"activate", activate},
        {"activate_backward", activate_backward},
        {"route", route},
        {"combine", combine},
        {"expert_layer", expert_layer},
        {"descriptors", descriptors},
        {"environment", environment},
    };
    return all;
}

}  // namespace fuzz
