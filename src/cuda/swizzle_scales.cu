// swizzle_scales: compact scales to swizzled ones and back, 1x32 and 32x32, one or two parts in one launch.
//
// A warp takes four neighbouring tiles of 128 lines x 4 scales. Lane r holds their scale words of lines r, r + 32, r + 64
// and r + 96, a 4 x 4 square:
//
//                      tile 0   tile 1   tile 2   tile 3
//     line r           word     word     word     word      16 bytes of a compact line
//     line r + 32      word     word     word     word
//     line r + 64      word     word     word     word
//     line r + 96      word     word     word     word
//                      16 bytes of a swizzled tile
//
// so both sides are 16-byte accesses, and a swizzled tile is 512 bytes in a row. Bound by the launch: a byte read and one
// written for 32 elements. Where 16 bytes are not aligned, words; where words are not, bytes.
#include "cuda/access.cuh"
#include "cuda/device.h"
#include "cuda/implementations.h"

namespace mxq::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kSide = 4;

struct Arguments {
    SwizzleProblem problem;
    int64_t tasks[2];  // warps of each part
    bool wide[2];
};

// The square of a lane: words[i][j] of line `line` + 32 i at scale column `column` + 4 j.
struct Square {
    int64_t matrix, line, column;
    int tiles;  // 1 to 4
    uint32_t words[kSide][kSide];

    __device__ __forceinline__ Square(const SwizzleProblem::Scales& part, int64_t task) {
        const int64_t across = ceil_div(part.in_layout.columns, kSwizzleColumns * kSide);
        const int64_t down = ceil_div(part.lines, kSwizzleRows), slab = task / across;
        matrix = part.matrices == 1 ? 0 : slab / down;
        line = (slab - matrix * down) * kSwizzleRows + threadIdx.x % 32;
        column = (task - slab * across) * kSwizzleColumns * kSide;
        tiles = int(min(ceil_div(part.in_layout.columns - column, kSwizzleColumns), int64_t(kSide)));
    }
};

__device__ __forceinline__ void load_compact(Square& s, const SwizzleProblem::Scales& part, bool wide) {
#pragma unroll
    for (int i = 0; i < kSide; i++) {
        const int64_t line = s.line + i * 32;
        const uint8_t* from = part.in + part.in_layout.offset(s.matrix, line, s.column);
        if (wide) {
            const uint4 v = line < part.lines ? *reinterpret_cast<const uint4*>(from) : uint4{};
            s.words[i][0] = v.x, s.words[i][1] = v.y, s.words[i][2] = v.z, s.words[i][3] = v.w;
        } else {
#pragma unroll
            for (int j = 0; j < kSide; j++) {
                const int64_t count = readable_scales(part.in_layout, part.lines, line, s.column + j * 4);
                s.words[i][j] = load_scale_word(from + j * 4, count);
            }
        }
    }
}

__device__ __forceinline__ void store_compact(const Square& s, const SwizzleProblem::Scales& part, bool wide) {
#pragma unroll
    for (int i = 0; i < kSide; i++) {
        const int64_t line = s.line + i * 32;
        uint8_t* to = part.out + part.out_layout.offset(s.matrix, line, s.column);
        if (wide) {
            if (stored_scales(part.out_layout, part.lines, line, s.column) > 0)
                *reinterpret_cast<uint4*>(to) = {s.words[i][0], s.words[i][1], s.words[i][2], s.words[i][3]};
        } else {
#pragma unroll
            for (int j = 0; j < kSide; j++) {
                const int64_t count = stored_scales(part.out_layout, part.lines, line, s.column + j * 4);
                store_scale_word(to + j * 4, s.words[i][j], count);
            }
        }
    }
}

__device__ __forceinline__ void load_swizzled(Square& s, const SwizzleProblem::Scales& part, bool wide) {
#pragma unroll
    for (int j = 0; j < kSide; j++) {
        if (j >= s.tiles) continue;
        const uint8_t* from = part.in + part.in_layout.offset(s.matrix, s.line, s.column + j * 4);
        if (wide) {
            const uint4 v = *reinterpret_cast<const uint4*>(from);
            s.words[0][j] = v.x, s.words[1][j] = v.y, s.words[2][j] = v.z, s.words[3][j] = v.w;
        } else {
#pragma unroll
            for (int i = 0; i < kSide; i++) s.words[i][j] = load_scale_word(from + i * 4, kSwizzleColumns);
        }
    }
}

__device__ __forceinline__ void store_swizzled(const Square& s, const SwizzleProblem::Scales& part, bool wide) {
#pragma unroll
    for (int j = 0; j < kSide; j++) {
        if (j >= s.tiles) continue;
        uint8_t* to = part.out + part.out_layout.offset(s.matrix, s.line, s.column + j * 4);
        if (wide) {
            *reinterpret_cast<uint4*>(to) = {s.words[0][j], s.words[1][j], s.words[2][j], s.words[3][j]};
        } else {
#pragma unroll
            for (int i = 0; i < kSide; i++) store_scale_word(to + i * 4, s.words[i][j], kSwizzleColumns);
        }
    }
}

template <bool to_swizzled>
__global__ void __launch_bounds__(kThreads) swizzle_scales_kernel(const __grid_constant__ Arguments a) {
    int64_t task = block_index() * (kThreads / 32) + threadIdx.x / 32;
    const int which = task < a.tasks[0] ? 0 : 1;
    if (which == 1) task -= a.tasks[0];
    if (task >= a.tasks[which]) return;
    const SwizzleProblem::Scales& part = a.problem.parts[which];
    Square square(part, task);
    if constexpr (to_swizzled) {
        load_compact(square, part, a.wide[which]);
        store_swizzled(square, part, a.wide[which]);
    } else {
        load_swizzled(square, part, a.wide[which]);
        store_compact(square, part, a.wide[which]);
    }
}

std::string declines(const Context& context, const SwizzleProblem&) { return needs_cuda(context); }

void run(const Context& context, const SwizzleProblem& problem, const Launch& call) {
    Arguments a{problem, {}, {}};
    for (int i = 0; i < problem.count; i++) {
        const SwizzleProblem::Scales& part = problem.parts[i];
        constexpr int64_t task_columns = kSwizzleColumns * kSide;
        a.tasks[i] = part.matrices * ceil_div(part.lines, kSwizzleRows) * ceil_div(part.in_layout.columns, task_columns);
        a.wide[i] = is_aligned(part.in, 16) && is_aligned(part.out, 16) && part.in_layout.columns % task_columns == 0;
    }
    const bool to_swizzled = problem.parts[0].out_layout.swizzled;
    launch(context, to_swizzled ? swizzle_scales_kernel<true> : swizzle_scales_kernel<false>, "swizzle_scales",
           grid_of(ceil_div(a.tasks[0] + a.tasks[1], kThreads / 32)), dim3(kThreads), 0, call.stream, a);
}

}  // namespace

const SwizzleImplementation swizzle_scales = {"swizzle_scales", declines, nullptr, run};

void load_swizzle_scales() {
    load_kernel(reinterpret_cast<const void*>(swizzle_scales_kernel<true>), 0);
    load_kernel(reinterpret_cast<const void*>(swizzle_scales_kernel<false>), 0);
}

}  // namespace mxq::cuda
