// mxq_bench measures the public interface.
#include "verbs.h"

const char* program_name() { return "mxq_bench"; }

std::span<const Verb> verbs() {
    static const Verb list[] = {{"quantize", bench_quantize}, {"dequantize", bench_dequantize}, {"swizzle", bench_swizzle},
                                {"formats", bench_formats},   {"groups", bench_groups},         {"gemm", bench_gemm},
                                {"rebase", bench_rebase},     {"cublaslt", bench_cublaslt}};
    return list;
}
