#include "suites.h"

#include <algorithm>
#include <cstring>

namespace {

// Every format, as it comes and with its other scalings.
#define MXQ_BENCH_FORMATS                                                                                     \
    "mxfp8_e4m3,mxfp8_e5m2,mxfp8_e4m3:32x32,mxfp8_e4m3:1x128,mxfp8_e4m3:128x128,mxfp6_e2m3,mxfp6_e3m2,mxfp4," \
    "nvfp4,nvfp4:16x16,fp8_e4m3,fp8_e4m3:row,fp8_e4m3:1x128,fp8_e4m3:128x128"
// The products of a mixture of experts.
#define MXQ_BENCH_EXPERTS "32768x2048x7168,32768x8192x5120"
// The same weights with every format, and plain ones.
#define MXQ_BENCH_WEIGHTS MXQ_BENCH_FORMATS ",bf16,f16,f32"
// Products of few rows, and of many beside them.
#define MXQ_BENCH_ROWS \
    "1x4096x4096,2x4096x4096,4x4096x4096,8x4096x4096,16x4096x4096,32x4096x4096,64x4096x4096,1024x4096x4096"
// Shapes whose verbs take less than 50 us.
#define MXQ_BENCH_SMALL "1x7168,32x7168,128x7168,512x7168,2048x7168"

// Rows of 7168 elements, from a launch and its tail to far beyond the caches.
#define MXQ_BENCH_SHORT "128x7168,512x7168,2048x7168"
#define MXQ_BENCH_LONG "16384x7168,131072x7168"
#define MXQ_BENCH_CPU "128x7168,512x7168,2048x7168,4096x7168"

const SuiteLine lines[] = {
    // Every format through quantize, dequantize, requantize and amax; the scale layouts.
    {"formats", "", "--verb quantize --parts rowwise,columnwise,both --to " MXQ_BENCH_FORMATS},
    {"formats", "", "--verb quantize --parts rowwise,columnwise,both --to fp8_e4m3 --option delayed"},
    {"formats", "", "--verb dequantize --parts rowwise,columnwise --from " MXQ_BENCH_FORMATS},
    {"formats", "",
     "--verb quantize --parts rowwise,columnwise,both --to nvfp4"
     " --option compute_amax,stochastic,hadamard,four_over_six_mae,four_over_six_mse"},
    {"formats", "",
     "--verb quantize --parts rowwise,columnwise,both --to nvfp4:16x16 --option "
     "stochastic,four_over_six_mae,four_over_six_mse"},
    {"formats", "", "--verb requantize --from mxfp8_e4m3 --to mxfp8_e4m3 --parts columnwise"},
    {"formats", "", "--verb requantize --from mxfp8_e4m3 --from-part columnwise --to mxfp8_e4m3 --parts rowwise"},
    {"formats", "", "--verb requantize --from mxfp8_e4m3 --to mxfp8_e4m3:128x128,mxfp4 --parts rowwise"},
    {"formats", "", "--verb requantize --from nvfp4 --to mxfp8_e4m3 --parts columnwise"},
    {"formats", "", "--verb amax --from bf16 --to nvfp4"},
    {"formats", "", "--verb quantize --from f16,f32 --to mxfp8_e4m3 --parts rowwise"},
    {"formats", "", "--verb dequantize --from mxfp8_e4m3 --to f32 --parts rowwise"},
    {"formats", "", "--verb quantize --to mxfp8_e4m3 --parts rowwise,columnwise,both --swizzled"},
    {"formats", "", "--verb swizzle_scales,unswizzle_scales --from mxfp8_e4m3"},

    // Eight ragged groups: padded by a verb of its own, and in the same pass as quantize.
    {"groups", "cuda", "--verb pad_groups,unpad_groups --shape 16384x7168,131072x7168,512x7168,4099x7171"},
    {"groups", "cuda",
     "--verb quantize --groups 8 --parts rowwise,columnwise,both --swizzled no,yes"
     " --shape 16384x7168,131072x7168,512x7168,4099x7171"},
    {"groups", "cpu", "--verb pad_groups,unpad_groups --shape 16384x7168,4099x7171"},
    {"groups", "cpu",
     "--verb quantize --groups 8 --parts rowwise,columnwise,both --swizzled no,yes --shape 16384x7168,4099x7171"},

    // The conversions that training and serving call all day.
    {"users", "cuda",
     "--verb quantize --to mxfp8_e4m3,mxfp8_e4m3:32x32 --parts rowwise,columnwise,both --swizzled no,yes"
     " --groups 0,8,64,256 --shape " MXQ_BENCH_LONG},
    {"users", "cuda", "--verb quantize --to mxfp8_e4m3,mxfp8_e4m3:32x32 --parts columnwise,both --experts 8 --shape 7168x2048"},
    {"users", "cuda", "--verb quantize --to mxfp8_e4m3,mxfp8_e4m3:32x32 --parts columnwise,both --experts 64 --shape 8192x5120"},
    {"users", "cuda",
     "--verb quantize --to fp8_e4m3:1x128,fp8_e4m3:128x128,fp8_e4m3:row,fp8_e4m3,nvfp4,mxfp4 --parts rowwise,columnwise,both"},
    {"users", "cuda", "--verb quantize --to nvfp4 --option compute_amax --parts rowwise,columnwise,both"},
    {"users", "cuda",
     "--graph --verb quantize --to mxfp8_e4m3,mxfp8_e5m2,fp8_e4m3,fp8_e5m2,fp8_e4m3:row,fp8_e4m3:1x128,nvfp4,mxfp4 --parts rowwise"
     " --shape 1x7168,16x7168,128x7168"},
    {"users", "cuda", "--verb requantize --parts columnwise --groups 0,8,64"},
    {"users", "cuda", "--verb dequantize --from mxfp8_e4m3,nvfp4 --parts rowwise,columnwise --swizzled no,yes"},
    {"users", "cuda", "--verb pad_groups,unpad_groups --from bf16"},
    {"users", "cuda", "--verb swizzle_scales,unswizzle_scales --from mxfp8_e4m3"},

    // The tables of the pull requests that libmxq grew out of; torch_peers.py has torch's side.
    {"origins", "cuda",
     "--verb quantize --to mxfp8_e4m3,mxfp8_e4m3:32x32 --rounding floor,rceil --parts columnwise --swizzled --peer experts"
     " --experts 1,8,32 --shape 8192x5120,7168x2048"},
    {"origins", "cuda",
     "--verb quantize --to mxfp8_e4m3,mxfp8_e4m3:32x32 --rounding rceil --parts columnwise --swizzled --peer experts"
     " --experts 2,4,16,64 --shape 8192x5120"},
    {"origins", "cuda",
     "--verb pad_groups --alignment 32x0 --padded-groups --groups 1,4,8,16 --shape 16384x1536,16384x2048,16384x5120,16384x7168"},
    {"origins", "cuda",
     "--verb forward,training --b mxfp8_e4m3:32x32 --peer bf16 --groups 1,2,4,8 --size 16384x8192x5120,128000x2048x7168"},
    {"origins", "cuda", "--verb grouped_gemm,forward --b mxfp8_e4m3:32x32 --peer bf16 --groups 4,8 --size 16384x8192x5120,98304x8192x5120"},

    // Products: the three of a training step, then forward products of other formats.
    {"gemm", "cuda", "--verb gemm --transpose nt,nn,tn"},
    {"gemm", "cuda", "--verb grouped_gemm --transpose nt,nn --size " MXQ_BENCH_EXPERTS},
    {"gemm", "cuda", "--verb grouped_gemm --transpose tn --d f32 --size " MXQ_BENCH_EXPERTS},
    {"gemm", "cuda", "--verb grouped_gemm --transpose nt,nn --groups 4 --size 32768x2048x7168"},
    {"gemm", "cuda", "--verb grouped_gemm --transpose tn --d f32 --groups 4 --size 32768x2048x7168"},
    {"gemm", "cuda", "--verb gemm --transpose nt,nn,tn --exact"},
    {"gemm", "cuda", "--verb grouped_gemm --transpose nt,nn --exact --size " MXQ_BENCH_EXPERTS},
    {"gemm", "cuda", "--verb grouped_gemm --transpose tn --d f32 --exact --size " MXQ_BENCH_EXPERTS},
    {"gemm", "cuda", "--verb gemm --a mxfp8_e4m3 --b mxfp4"},
    {"gemm", "cuda", "--verb gemm --a bf16 --b mxfp4,mxfp8_e4m3,nvfp4,bf16"},
    {"gemm", "cuda", "--verb gemm --a mxfp4 --b mxfp4"},
    {"gemm", "cuda", "--verb gemm --a mxfp6_e2m3 --b mxfp6_e3m2"},
    {"gemm", "cuda", "--verb gemm --a nvfp4 --b nvfp4"},
    {"gemm", "cuda", "--verb gemm --a fp8_e4m3 --b fp8_e4m3"},
    {"gemm", "cuda", "--verb gemm --a fp8_e4m3:1x128 --b fp8_e4m3:128x128"},
    {"gemm", "cpu", "--verb gemm --transpose nt,nn,tn --peer sgemm"},
    {"gemm", "cpu", "--verb grouped_gemm --transpose nt,nn --groups 4 --size 2048x1024x1024 --peer sgemm"},
    {"gemm", "cpu", "--verb grouped_gemm --transpose tn --d f32 --groups 4 --size 2048x1024x1024 --peer sgemm"},
    {"gemm", "cpu", "--verb gemm --a mxfp8_e4m3 --b mxfp4 --peer sgemm"},
    {"gemm", "cpu", "--verb gemm --a bf16 --b mxfp4,mxfp8_e4m3,nvfp4,bf16 --peer sgemm"},
    {"gemm", "cpu", "--verb gemm --a nvfp4 --b nvfp4 --peer sgemm"},
    {"gemm", "cpu", "--verb gemm --a fp8_e4m3 --b fp8_e4m3 --peer sgemm"},
    {"gemm", "cpu", "--verb gemm --a fp8_e4m3:1x128 --b fp8_e4m3:128x128 --peer sgemm"},

    // Products as an engine asks for them for a token or a few: bound by reading the weights.
    {"few_rows", "cpu", "--rotate --verb gemm --a bf16 --b " MXQ_BENCH_WEIGHTS " --size " MXQ_BENCH_ROWS},
    {"few_rows", "cpu", "--rotate --verb gemm --a f16,f32,mxfp8_e4m3 --b mxfp4 --size 1x4096x4096,16x4096x4096"},
    {"few_rows", "cpu",
     "--rotate --verb grouped_gemm --groups 4 --a bf16 --b mxfp4,mxfp8_e4m3 --size 4x4096x4096,64x4096x4096"},

    // Rates of one to many rows, dense and as rows of 32 groups on average: no more rows should take them down.
    {"rows", "cpu",
     "--rotate --verb gemm --a bf16 --b mxfp4,nvfp4,mxfp8_e4m3,fp8_e4m3:128x128,bf16 --size 1x4096x4096,4x4096x4096,16x4096x4096,"
     "33x4096x4096,64x4096x4096,65x4096x4096,128x4096x4096,256x4096x4096,1024x4096x4096,4096x4096x4096"},
    {"rows", "cpu",
     "--rotate --verb grouped_gemm --groups 32 --a bf16 --b mxfp4,mxfp8_e4m3 --size 32x2880x2880,128x2880x2880,512x2880x2880,"
     "1024x2880x2880,2048x2880x2880,4096x2880x2880,16384x2880x2880"},

    // MX operands rebased to FP8, beside BF16 by the same cuBLASLt. Weights in 128x128 are kept so: no pass over them.
    {"rebase", "cuda",
     "--verb gemm --implementation cublaslt_rebase --peer bf16 --size " MXQ_BENCH_EXPERTS
     " --a mxfp8_e4m3 --b mxfp8_e4m3:128x128,mxfp8_e4m3,mxfp8_e5m2,mxfp6_e2m3,mxfp4"},
    {"rebase", "cuda",
     "--verb gemm --implementation cublaslt_rebase --peer bf16 --size " MXQ_BENCH_EXPERTS
     " --a mxfp8_e5m2 --b mxfp8_e4m3:128x128,mxfp8_e4m3"},
    {"rebase", "cuda",
     "--verb grouped_gemm --implementation cublaslt_grouped_rebase --peer bf16 --size " MXQ_BENCH_EXPERTS
     " --a mxfp8_e4m3 --b mxfp8_e4m3:128x128,mxfp8_e4m3,mxfp8_e5m2,mxfp6_e2m3,mxfp4"},
    {"rebase", "cuda",
     "--verb grouped_gemm --implementation cublaslt_grouped_rebase --peer bf16 --size " MXQ_BENCH_EXPERTS
     " --a mxfp8_e5m2 --b mxfp8_e4m3:128x128,mxfp8_e4m3"},

    // What cuBLASLt takes as it is, beside a bare call of the same cuBLASLt.
    {"cublaslt", "cuda",
     "--verb gemm --implementation cublaslt --peer cublaslt --size 8192x8192x8192," MXQ_BENCH_EXPERTS " --a bf16 --b bf16"},
    {"cublaslt", "cuda",
     "--verb gemm --implementation cublaslt --peer cublaslt --size 8192x8192x8192," MXQ_BENCH_EXPERTS
     " --a fp8_e4m3 --b fp8_e4m3"},
    {"cublaslt", "cuda",
     "--verb gemm --implementation cublaslt --peer cublaslt --size 8192x8192x8192," MXQ_BENCH_EXPERTS
     " --a fp8_e4m3:1x128 --b fp8_e4m3:128x128 --swizzled yes,no"},
    {"cublaslt", "cuda",
     "--verb grouped_gemm --implementation cublaslt_grouped --peer cublaslt --size " MXQ_BENCH_EXPERTS " --a bf16 --b bf16"},
    {"cublaslt", "cuda",
     "--verb grouped_gemm --implementation cublaslt_grouped --peer cublaslt --size " MXQ_BENCH_EXPERTS
     " --a fp8_e4m3 --b fp8_e4m3 --scope expert"},
    {"cublaslt", "cuda",
     "--verb grouped_gemm --implementation cublaslt_grouped --peer cublaslt --size " MXQ_BENCH_EXPERTS
     " --a fp8_e4m3:1x128 --b fp8_e4m3:128x128 --swizzled yes,no --alignment 4x0"},

    // Products that block-scaled tensor cores take as they are, or after a pass where scales are compact or codes have four
    // or six bits.
    {"block_scaled", "cuda",
     "--verb gemm --peer bf16 --size 8192x8192x8192," MXQ_BENCH_EXPERTS " --a mxfp8_e4m3 --b mxfp8_e4m3 --swizzled yes,no"},
    {"block_scaled", "cuda",
     "--verb gemm --peer bf16 --size 8192x8192x8192," MXQ_BENCH_EXPERTS " --a nvfp4 --b nvfp4 --swizzled yes,no"},
    {"block_scaled", "cuda",
     "--verb gemm --peer bf16 --size 8192x8192x8192 --a mxfp8_e4m3,mxfp4 --b mxfp4 --swizzled yes,no"},
    {"block_scaled", "cuda",
     "--verb grouped_gemm --peer bf16 --size " MXQ_BENCH_EXPERTS " --a mxfp8_e4m3 --b mxfp8_e4m3,mxfp4 --swizzled yes,no"},
    {"block_scaled", "cuda",
     "--verb grouped_gemm --peer bf16 --size " MXQ_BENCH_EXPERTS " --a nvfp4 --b nvfp4 --swizzled yes,no"},

    // What takes less than 50 us: replays over rotating operands.
    {"graph", "cuda", "--graph --verb quantize --to mxfp8_e4m3,nvfp4 --parts rowwise,both --shape " MXQ_BENCH_SMALL},
    {"graph", "cuda", "--graph --verb quantize --to fp8_e4m3:1x128,mxfp4 --parts rowwise --shape " MXQ_BENCH_SMALL},
    {"graph", "cuda",
     "--graph --verb quantize --to mxfp8_e4m3 --parts rowwise --swizzled --groups 8 --shape 32x7168,512x7168"},
    {"graph", "cuda", "--graph --verb dequantize --from mxfp8_e4m3,nvfp4 --shape " MXQ_BENCH_SMALL},
    {"graph", "cuda", "--graph --verb requantize --parts columnwise --shape " MXQ_BENCH_SMALL},
    {"graph", "cuda", "--graph --verb amax --shape " MXQ_BENCH_SMALL},
    {"graph", "cuda", "--graph --verb pad_groups,unpad_groups --shape 32x7168,512x7168"},
    {"graph", "cuda", "--graph --verb swizzle_scales,unswizzle_scales --shape 512x7168,16384x7168"},
    {"graph", "cuda",
     "--graph --verb gemm --a mxfp8_e4m3 --b mxfp8_e4m3,mxfp4 --size 1x7168x2048,16x7168x2048,128x7168x2048"},
    {"graph", "cuda",
     "--graph --verb gemm --a bf16 --b mxfp8_e4m3,mxfp4,nvfp4 --size 1x7168x2048,16x7168x2048,128x7168x2048"},
    {"graph", "cuda", "--graph --verb gemm --a bf16 --b bf16 --size 1x7168x2048,16x7168x2048,128x7168x2048"},
    {"graph", "cuda", "--graph --verb grouped_gemm --a mxfp8_e4m3,bf16 --b mxfp4 --size 64x2048x7168"},

    // Share of the copy against size: what takes less than 50 us by graph, the rest in turns.
    {"sizes", "cuda",
     "--graph --verb quantize --to mxfp8_e4m3 --parts rowwise,columnwise,both --swizzled no,yes --shape " MXQ_BENCH_SHORT},
    {"sizes", "cuda", "--graph --verb quantize,amax --to nvfp4 --shape " MXQ_BENCH_SHORT},
    {"sizes", "cuda", "--graph --verb dequantize --parts rowwise,columnwise --shape " MXQ_BENCH_SHORT},
    {"sizes", "cuda", "--graph --verb requantize,pad_groups --parts columnwise --shape " MXQ_BENCH_SHORT},
    {"sizes", "cuda",
     "--verb quantize --to mxfp8_e4m3 --parts rowwise,columnwise,both --swizzled no,yes --shape " MXQ_BENCH_LONG},
    {"sizes", "cuda", "--verb quantize,amax --to nvfp4 --shape " MXQ_BENCH_LONG},
    {"sizes", "cuda", "--verb dequantize --parts rowwise,columnwise --shape " MXQ_BENCH_LONG},
    {"sizes", "cuda", "--verb requantize,pad_groups --parts columnwise --shape " MXQ_BENCH_LONG},
    {"sizes", "cpu",
     "--verb quantize --to mxfp8_e4m3 --parts rowwise,columnwise,both --swizzled no,yes --shape " MXQ_BENCH_CPU},
    {"sizes", "cpu", "--verb quantize,amax --to nvfp4 --shape " MXQ_BENCH_CPU},
    {"sizes", "cpu", "--verb dequantize --parts rowwise,columnwise --shape " MXQ_BENCH_CPU},
    {"sizes", "cpu", "--verb requantize,pad_groups --parts columnwise --shape " MXQ_BENCH_CPU},

    // What a call costs the host.
    {"host", "",
     "--host --verb "
     "quantize,requantize,dequantize,amax,pad_groups,unpad_groups,swizzle_scales,unswizzle_scales,gemm,grouped_gemm"},
};

}  // namespace

std::span<const SuiteLine> suite_lines() { return lines; }

std::string suite_names() {
    std::string names;
    const char* last = "";
    for (const SuiteLine& line : lines) {
        if (std::strcmp(line.suite, last) != 0) names += std::string(line.suite) + " ";
        last = line.suite;
    }
    return names + layer_suite + " " + dispatch_suite + " all";
}

bool is_suite(const std::string& name) {
    return name == "all" || name == layer_suite || name == dispatch_suite ||
           std::any_of(std::begin(lines), std::end(lines), [&](const SuiteLine& line) { return name == line.suite; });
}
