// Codes of A that are moved to the references of 128 on their way from shared memory to the tensor cores, for products with
// few columns: a pass would write them once more, and read them again.
//
//     shared    a step, 128 codes of each row as they are stored, and a word of each row: its four blocks' scales
//     loaded    32 codes of a warp's rows, four of a row in a register of a lane (ldmatrix), a block ahead
//     moved     times 2^(scale of the block - reference of the 128), as E4M3, for two blocks in turns
//     products  64 x 96 with A in registers, left and right, 32 codes each
//
//     block     s,0          s,1          s,2          s,3          s+1,0
//     products  L    R       L    R       L    R       L    R       L         R
//     threads   move s,1     move s,2     move s,3     move s+1,0   add L     add R
//
// Eight registers hold what is moved, since products of 32 codes take four at a time.
#pragma once
#include "cuda/sm90/fp8_consumers.cuh"
#include "numerics/rebase.h"

namespace mxq::cuda::sm90 {

constexpr int kStepBlocks = int(kBlock128 / kMxBlock);
constexpr uint32_t kF16Bias = 15;

// Codes of 32 of a warp's 16 rows, as multiply_e4m3_lines takes them.
using RowCodes = uint32_t[4];

// Holds, for a thread's two rows and four blocks, 2^(scale of a block - reference of the 128): the upper byte of an F16
// number, from 2^-11 to 1.
struct MovingWords {
    uint32_t upper, lower;

    __device__ __forceinline__ static uint32_t powers(uint32_t word, uint32_t largest) {
        return (word + (kF16Bias - largest) * 0x01010101u) << 2;
    }
    // Leaves the references of both rows in one register, since those are short.
    __device__ __forceinline__ MovingWords(const uint2& words, uint32_t& references) {
        const uint32_t of_upper = largest_byte(words.x), of_lower = largest_byte(words.y);
        upper = powers(words.x, of_upper), lower = powers(words.y, of_lower);
        references = of_upper | of_lower << 16;
    }
    // Moves a block's codes.
    __device__ __forceinline__ void move(int block, const RowCodes& from, RowCodes& to) const {
        const uint32_t select = 0x0404u | uint32_t(block) << 4 | uint32_t(block) << 12;
        const RebaseFactor of_upper{permute_bytes(upper, 0, select)}, of_lower{permute_bytes(lower, 0, select)};
#pragma unroll
        for (int i = 0; i < 4; i++) to[i] = multiply_codes<E4M3, false>(from[i], i % 2 ? of_lower : of_upper);
    }
};

// Returns the factors of both rows.
__device__ __forceinline__ float2 factors_of(uint32_t references) {
    return {bits_float(references << 23), bits_float((references & 0xFFFF0000u) << 7)};
}

// Brings a block's codes of a warp's rows to registers.
__device__ __forceinline__ void load_rows(const Stage& stage, int block, RowCodes& to) {
    const uint32_t thread = read_thread(), lane = thread % 32, warp = thread / 32 - 4;
    const uint32_t row = uint32_t(__cvta_generic_to_shared(stage.a)) + (warp * kWarpRows + lane % 16) * kStepBytes;
    const uint32_t first = row + ((lane / 16 ^ lane % 8) * 16);  // under the 128-byte swizzle
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(first ^ uint32_t(block) * kProductBytes));
}

__device__ __forceinline__ void multiply_moved(float (&part)[kSums], const RowCodes& codes, TileDescriptor b, int block) {
    if (block == 0)
        begin_products(part);
    else
        order_products();
    multiply_e4m3_lines(part, codes, b.along(block * kProductBytes), block > 0);
    commit_products();
}

template <class A, class B, Columns columns, bool moves_a>
template <Adding adding>
__device__ __forceinline__ void Consumer<A, B, columns, moves_a>::multiply_moving_step(int stage) {
    const StageTiles tiles(shared.stages[stage], warpgroup);
    uint32_t references;
    const MovingWords words(row_words(stage), references);
    float left[kSums], right[kSums];
    RowCodes codes;
#pragma unroll
    for (int block = 0; block < kStepBlocks; block++) {
        load_rows(shared.stages[stage], block, codes);
        words.move(block, codes, codes);
        multiply_moved(left, codes, tiles.left, block);
        multiply_moved(right, codes, tiles.right, block);
        wait_products_before<0>();
    }
    wait_products<0>(left);
    add<adding>(stage, 0, left, factors_of(references));
    wait_products<0>(right);
    add_last<adding>(stage, right, factors_of(references));
}

template <class A, class B, Columns columns, bool moves_a>
__device__ __forceinline__ void Consumer<A, B, columns, moves_a>::multiply_moving_round() {
    float left[kSums], right[kSums];
    RowCodes codes[2], loaded;
    uint32_t before = 0, now, next = 0;  // references
    wait_for(0);
    MovingWords words(row_words(0), now);
    load_rows(shared.stages[0], 0, loaded);
    words.move(0, loaded, codes[0]);
    load_rows(shared.stages[0], 1, loaded);
#pragma unroll
    for (int stage = 0; stage < kStages; stage++) {
        const StageTiles tiles(shared.stages[stage], warpgroup);
        const bool is_last = stage + 1 == kStages;
#pragma unroll
        for (int block = 0; block < kStepBlocks; block++) {
            multiply_moved(left, codes[block % 2], tiles.left, block);
            if (block == 0 && stage > 0) {
                wait_products<1>(right);
                add_last<Adding::Rows>(stage - 1, right, factors_of(before));
            }
            multiply_moved(right, codes[block % 2], tiles.right, block);
            if (is_last && block == kStepBlocks - 1) break;
            wait_products_before<2>();  // those that the codes of a block before belong to are complete
            words.move((block + 1) % kStepBlocks, loaded, codes[(block + 1) % 2]);
            if (block < kStepBlocks - 2) {
                load_rows(shared.stages[stage], block + 2, loaded);
            } else if (!is_last) {
                if (block == kStepBlocks - 2) {
                    wait_for(stage + 1);
                    words = MovingWords(row_words(stage + 1), next);
                }
                load_rows(shared.stages[stage + 1], block + 2 - kStepBlocks, loaded);
            }
        }
        wait_products<1>(left);
        add<Adding::Rows>(stage, 0, left, factors_of(now));
        before = now, now = next;
    }
    wait_products<0>(right);
    add_last<Adding::Rows>(kStages - 1, right, factors_of(before));
}

}  // namespace mxq::cuda::sm90
