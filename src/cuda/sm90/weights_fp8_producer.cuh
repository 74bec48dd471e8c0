// The warp of weights_fp8_sm90 that loads tokens and their scales; weights_producer.cuh has the others.
#pragma once
#include "cuda/sm90/weights_fp8_tiles.cuh"
#include "cuda/sm90/weights_producer.cuh"

namespace mxq::cuda::sm90::weights {

// How many arrivals the stages of a block wait for: two threads that load boxes, and the lanes that copy scales.
template <class Block>
constexpr uint32_t kStageArrivals = 2 + 32 + (Block::kTokenScales == TokenScales::None ? 0 : 32);

// Copies four words, at multiples of 16 bytes, from global to shared memory behind the thread's back.
__device__ __forceinline__ void copy_four_words(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "l"(from)
                 : "memory");
}

// Copies the scales of 128 codes, rows from `first` on. Rows behind the last count as the last, since nobody stores their sums.
template <class Block>
__device__ __forceinline__ void copy_token_scales(const Fp8Arguments& args, int32_t box, int32_t first, float* to) {
    constexpr int floats = floats_of(Block::kTokenScales);
    const float* const of_box = args.token_scales + int64_t(box) * args.token_lines * floats;
#pragma unroll
    for (int token = read_thread() % 32; token < Block::kTokens; token += 32) {
        const float* const from = of_box + int64_t(min(uint32_t(first + token), args.token_lines - 1)) * floats;
        if (floats == 4)
            copy_four_words(to + token * floats, from);
        else
            copy_word(reinterpret_cast<uint32_t*>(to + token), reinterpret_cast<const uint32_t*>(from));
    }
}

template <class Block>
__device__ __forceinline__ void load_fp8_tokens(const Fp8Arguments& args, Block& shared) {
    constexpr int of_box = fp8_rows_of_box(Block::kTokens);
    wait_for_previous_kernel();
    int32_t token, rows;
    each_step(
        args, shared, [&](const Tile& tile) { token = tile.token, rows = (tile.rows + of_box - 1) / of_box * of_box; },
        [&](uint32_t at, int32_t step) {
            if (elect_lane()) {
                arrive_expecting(shared.full[at], uint32_t(Block::kBoxes * rows * kBlockNumbers));
#pragma unroll
                for (int box = 0; box < Block::kBoxes; box++)
                    for (int32_t row = 0; row < rows; row += of_box)
                        load_tile(shared.stages[at].boxes[box] + row * kBlockNumbers, args.tokens,
                                  {step * Block::kBlock + box * kBlockNumbers, token + row, 0}, shared.full[at]);
            }
            __syncwarp();
            if constexpr (Block::kTokenScales != TokenScales::None) {
#pragma unroll
                for (int box = 0; box < Block::kBoxes; box++)
                    copy_token_scales<Block>(args, step * Block::kBoxes + box, token, shared.token_scales[at][box]);
                arrive_after_copies(shared.full[at]);
            }
        });
}

}  // namespace mxq::cuda::sm90::weights
