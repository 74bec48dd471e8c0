// A warp takes 256 numbers of a K-major row, a lane eight of them: 16 bytes of F16, which become 16 bytes of high parts and
// 16 of low ones. A thread block takes eight rows.
//
//     lane 0 | lane 1 | ... | lane 31      numbers of a row       ->  the same offsets in two matrices
//
// Bytes a number: 2 read, 4 written.
#include "cuda/widen/split_f16.h"

#include "cuda/launch.h"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/grid.cuh"
#include "numerics/split_f16.h"

namespace mxq::cuda {
namespace {

constexpr int kLaneNumbers = Vector<F16>::count, kWarpNumbers = 32 * kLaneNumbers, kLines = 8;  // rows of a block

struct Arguments {
    const uint8_t* numbers;
    uint8_t* parts;
    int64_t lines, length, line_bytes;
    int64_t part_line_bytes, part_bytes;  // of the high parts, behind which the low ones lie
    bool wide;                            // numbers are read by eights
};

__device__ __forceinline__ uint4 parts_of(const Vector<F16>& numbers, bool high) {
    const auto& words = numbers.words;
    return {parts_of_pair(words[0], high), parts_of_pair(words[1], high), parts_of_pair(words[2], high),
            parts_of_pair(words[3], high)};
}

__global__ void __launch_bounds__(32 * kLines) split_f16_kernel(const __grid_constant__ Arguments args) {
    start_next_kernel();
    const int64_t line = int64_t(row_of_blocks()) * kLines + threadIdx.x / 32;
    const int64_t first = int64_t(blockIdx.x) * kWarpNumbers + threadIdx.x % 32 * kLaneNumbers, left = args.length - first;
    if (line >= args.lines || left <= 0) return;
    const F16* const from = reinterpret_cast<const F16*>(args.numbers + line * args.line_bytes) + first;
    const Vector<F16> numbers =
        args.wide ? load_vector_wide(from, true) : load_vector_narrow(from, int(min(left, int64_t(kLaneNumbers))));
    uint8_t* const to = args.parts + line * args.part_line_bytes + first * 2;
    *reinterpret_cast<uint4*>(to) = parts_of(numbers, true);
    *reinterpret_cast<uint4*>(to + args.part_bytes) = parts_of(numbers, false);
}

}  // namespace

GemmOperand split(const GemmOperand& from, void* to) {
    GemmOperand parts = from;
    parts.codes = static_cast<uint8_t*>(to);
    parts.matrices = 2;
    parts.line_bytes = 2 * round_up(from.length, int64_t(kLaneNumbers));
    parts.matrix_bytes = parts.lines * parts.line_bytes;
    parts.element = Element::Bf16, parts.format = MXQ_FORMAT_BF16;
    return parts;
}

void split_f16(const Context& context, const GemmOperand& from, const GemmOperand& parts, void* stream) {
    const bool wide = from.length % kLaneNumbers == 0 && from.line_bytes % 16 == 0 && is_aligned(from.codes, 16);
    const Arguments args{from.codes,      parts.codes,        from.lines, from.length, from.line_bytes,
                         parts.line_bytes, parts.matrix_bytes, wide};
    const dim3 grid = grid_of_rows(ceil_div(args.length, int64_t(kWarpNumbers)), ceil_div(args.lines, int64_t(kLines)));
    launch(context, split_f16_kernel, "the pass that splits F16 numbers", grid, dim3(32 * kLines), 0, stream, args);
}

void load_split_f16() { load_kernel(split_f16_kernel); }

}  // namespace mxq::cuda
