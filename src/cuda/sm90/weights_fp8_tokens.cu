// A thread takes 32 codes of a row, and their scale. A warp has 1024 codes of one row.
#include "cuda/sm90/weights_fp8_tokens.h"

#include "cuda/launch.h"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/operand.cuh"
#include "dispatch/prepared.h"

namespace mxq::cuda::sm90::weights {
namespace {

constexpr int kThreadCodes = 32, kLines = 8;  // rows of a thread block
constexpr int kBoxCodes = kBlock128, kStepCodes = 2 * kBoxCodes;

struct Arguments {
    GemmOperand from;
    Fp8Tokens to;
    TokenScales scales;
    bool folded;
    bool wide;  // rows are read by 16 bytes
};

// Holds 32 codes of a row; those past its end are zero.
struct Codes {
    uint32_t words[8];

    __device__ __forceinline__ void load(const Arguments& args, const uint8_t* row, int64_t first) {
        const int64_t left = args.from.length - first;
        if (args.wide && left >= kThreadCodes) {
            const uint4 low = *reinterpret_cast<const uint4*>(row + first);
            const uint4 high = *reinterpret_cast<const uint4*>(row + first + 16);
            words[0] = low.x, words[1] = low.y, words[2] = low.z, words[3] = low.w;
            words[4] = high.x, words[5] = high.y, words[6] = high.z, words[7] = high.w;
            return;
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            words[i] = 0;
#pragma unroll
            for (int b = 0; b < 4; b++)
                if (4 * i + b < left) words[i] |= uint32_t(row[first + 4 * i + b]) << 8 * b;
        }
    }
    // Stores them for sums of 32 products: the even codes of eights, then the odd ones.
    __device__ __forceinline__ void store_block(uint8_t* to) const {
        uint32_t even[4], odd[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            even[c] = permute_bytes(words[2 * c], words[2 * c + 1], 0x6420);
            odd[c] = permute_bytes(words[2 * c], words[2 * c + 1], 0x7531);
        }
        *reinterpret_cast<uint4*>(to) = {even[0], even[1], even[2], even[3]};
        *reinterpret_cast<uint4*>(to + 16) = {odd[0], odd[1], odd[2], odd[3]};
    }
    // Stores them as quarter q of the 128 that `to` holds: fours to each of eight sixteens.
    __device__ __forceinline__ void store_quarter(uint8_t* to, uint32_t q) const {
#pragma unroll
        for (int i = 0; i < 8; i++) reinterpret_cast<uint32_t*>(to)[4 * i + q] = words[i];
    }
};

// Writes the scale of the codes from `first` on.
__device__ __forceinline__ void store_scale(const Arguments& args, int64_t line, int64_t first) {
    const ScaleLayout& layout = args.from.layout;
    const int64_t from = line * layout.line_stride + first / layout.block * layout.column_stride;
    const bool exists = first < args.from.length;
    float* const of_row = args.to.scales + (first / kBoxCodes * args.to.lines + line) * floats_of(args.scales);
    if (args.scales == TokenScales::Of32)
        of_row[first % kBoxCodes / kThreadCodes] = exists ? scale_value(args.from.scales[from]) : 1.0f;
    else if (first % kBoxCodes == 0)
        *of_row = !exists ? 1.0f
                          : multiply_rn(reinterpret_cast<const float*>(args.from.scales)[from], args.folded ? kTokenLift : 1);
}

__global__ void __launch_bounds__(32 * kLines) arrange_fp8_tokens_kernel(const __grid_constant__ Arguments args) {
    start_next_kernel();
    const int64_t line = int64_t(row_of_blocks()) * kLines + threadIdx.x / 32;
    const int64_t first = (int64_t(blockIdx.x) * 32 + threadIdx.x % 32) * kThreadCodes;
    if (line >= args.to.lines || first >= args.to.line_bytes) return;
    Codes codes;
    codes.load(args, args.from.codes + line * args.from.line_bytes, first);
    uint8_t* const row = args.to.codes + line * args.to.line_bytes;
    if (args.folded)
        codes.store_quarter(row + first / kBoxCodes * kBoxCodes, first % kBoxCodes / kThreadCodes);
    else
        codes.store_block(row + first);
    if (args.scales != TokenScales::None) store_scale(args, line, first);
}

int64_t code_bytes(const GemmOperand& from) {
    return round_up(from.lines * round_up(from.length, int64_t(kStepCodes)), int64_t(kWorkspaceAlignment));
}

}  // namespace

Fp8Tokens fp8_tokens(const GemmOperand& from, void* to) {
    auto* const codes = static_cast<uint8_t*>(to);
    return {codes, reinterpret_cast<float*>(codes + code_bytes(from)), from.lines,
            round_up(from.length, int64_t(kStepCodes))};
}

uint64_t fp8_token_bytes(const GemmOperand& from) {
    const int64_t boxes = round_up(from.length, int64_t(kStepCodes)) / kBoxCodes, floats = floats_of(token_scales_of(from));
    const int64_t scale_bytes = boxes * from.lines * floats * int64_t(sizeof(float));
    return uint64_t(code_bytes(from) + round_up(scale_bytes, int64_t(kWorkspaceAlignment)));
}

void arrange_fp8_tokens(const Context& context, const GemmOperand& from, const Fp8Tokens& to, bool folded, void* stream) {
    const bool wide = from.line_bytes % 16 == 0 && is_aligned(from.codes, 16);
    const Arguments args{from, to, token_scales_of(from), folded, wide};
    const dim3 grid = grid_of_rows(ceil_div(to.line_bytes, int64_t(32 * kThreadCodes)), ceil_div(to.lines, int64_t(kLines)));
    launch(context, arrange_fp8_tokens_kernel, "weights_fp8_sm90's pass", grid, dim3(32 * kLines), 0, stream, args);
}

void load_arrange_fp8_tokens() {
    load_kernel(arrange_fp8_tokens_kernel);
    prefer_shared_memory(reinterpret_cast<const void*>(arrange_fp8_tokens_kernel));
}

}  // namespace mxq::cuda::sm90::weights
