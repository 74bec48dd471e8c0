// The warps of wgmma_bf16_sm90 that decode and multiply:
//
//     shared    codes of a line     | 16 codes, an instruction's  | 16 | 16 | 16 |     a thread gives its lines' codes 2 q,
//                                   | 8          | 8            |                    2 q + 1 of either 8, q being lane % 4
//     registers BF16, decoded 32 codes at a time, while the tensor cores multiply those before with the tokens
//
// Each warpgroup has half of the tile's lines, 64 or 2 x 64, and all of its tokens. What one waits for, the other's products
// hide.
#pragma once
#include "cuda/sm90/bf16_producers.cuh"
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90::bf16 {

constexpr int kBatch = 2, kBatches = kStepCodes / 16 / kBatch;  // instructions whose codes are decoded together

// ---- Codes from shared memory: those that a thread gives to two instructions, a word each ------------------------------------

// Eight codes are a word: this thread's two are byte q of it. Its low nibbles go to the low halves, its high ones to the high
// halves, where move_pair_of_word finds them.
__device__ __forceinline__ void load_4_bits(const uint8_t* codes, uint32_t line, int batch, uint32_t (&to)[kBatch]) {
    const uint4 words = *reinterpret_cast<const uint4*>(codes + line * (kStepCodes / 2) + batch * 16);
    const uint32_t both = 0x11 * (threadIdx.x % 4) + 0x40;  // byte q of either
    const uint32_t all = permute_bytes(permute_bytes(words.x, words.y, both), permute_bytes(words.z, words.w, both), 0x5410);
    to[0] = permute_bytes(all, all >> 4, 0x5410);
    to[1] = permute_bytes(all, all >> 4, 0x7632);
}

// Sixteen codes are 12 bytes, and a thread's two of either eight 12 bits.
__device__ __forceinline__ void load_6_bits(const uint8_t* codes, uint32_t line, int batch, uint32_t (&to)[kBatch]) {
    const uint32_t q = threadIdx.x % 4, shift = q == 3 ? 4 : 12 * q, shift_high = (16 + 12 * q) % 32;
    const auto apart = [](uint32_t two) { return (two & 0x3F) | (two & 0xFC0) << 10; };
#pragma unroll
    for (int i = 0; i < kBatch; i++) {
        const uint32_t* const words =
            reinterpret_cast<const uint32_t*>(codes + line * (kStepCodes / 8 * 6) + (batch * kBatch + i) * 12);
        const uint32_t low = __funnelshift_r(q == 3 ? words[1] : words[0], words[1], shift);
        const uint32_t high = __funnelshift_r(q < 2 ? words[1] : words[2], words[2], shift_high);
        to[i] = apart(low) | apart(high) << 8;
    }
}

// Sixteen codes are the 16 bytes that a swizzle of 64-byte lines moves as one.
__device__ __forceinline__ void load_8_bits(const uint8_t* codes, uint32_t line, int batch, uint32_t (&to)[kBatch]) {
#pragma unroll
    for (int i = 0; i < kBatch; i++) {
        const uint8_t* const of =
            codes + line * kStepCodes + ((batch * kBatch + i) ^ (line / 2 % 4)) * 16 + threadIdx.x % 4 * 2;
        const uint32_t low = *reinterpret_cast<const uint16_t*>(of), high = *reinterpret_cast<const uint16_t*>(of + 8);
        to[i] = permute_bytes(low, high, 0x5140);
    }
}

template <Weights kind>
__device__ __forceinline__ void load_codes(const uint8_t* codes, uint32_t line, int batch, uint32_t (&to)[kBatch]) {
    if constexpr (kind == Weights::Bits8)
        load_8_bits(codes, line, batch, to);
    else if constexpr (kind == Weights::Bits6)
        load_6_bits(codes, line, batch, to);
    else
        load_4_bits(codes, line, batch, to);
}

// Moves four codes, as loaded, to where BF16 has them: those of the lower eight are even, those of the higher odd.
template <Weights kind>
__device__ __forceinline__ EvenOddBf16 move_loaded(const Bf16DecodeRule& rule, uint32_t codes) {
    if constexpr (kind == Weights::Bits8) return move_codes_to_bf16(rule, codes);
    if constexpr (kind == Weights::Bits6) return move_codes_to_bf16(rule, codes + 3 * (codes & 0x20202020u));
    return {move_pair_of_word(codes, 0), move_pair_of_word(codes, 2)};
}

// ---- Products ------------------------------------------------------------------------------------------------------------

template <Weights kind, int tokens>
struct Consumer {
    static constexpr int fragments = tile_lines<tokens> / 128, sums_of_thread = tokens / 2;
    static constexpr int turns = kBatches * fragments;
    using Step = Stage<kind, tokens>;
    const Arguments& args;
    uint32_t line;  // of the tile, the thread's first
    float sums[fragments][sums_of_thread];

    // Decodes what a thread gives to the instructions of a turn: 32 codes of two lines.
    __device__ __forceinline__ void decode(const Step& step, int turn, uint32_t (&to)[kBatch][4]) const {
        const int batch = turn / fragments, fragment = turn % fragments;
        uint32_t codes[2][kBatch];
#pragma unroll
        for (int l = 0; l < 2; l++) load_codes<kind>(step.codes, line + 64 * fragment + 8 * l, batch, codes[l]);
        if constexpr (kind == Weights::Nvfp4)
            decode_nvfp4(step, fragment, batch, codes, to);
        else
            decode_mx(step, fragment, batch, codes, to);
    }
    __device__ __forceinline__ void decode_nvfp4(const Step& step, int fragment, int batch, const uint32_t (&codes)[2][kBatch],
                                                 uint32_t (&to)[kBatch][4]) const {
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const uint2& scales = step.scales[line + 64 * fragment + 8 * l];
            const uint32_t factors = batch == 0 ? scales.x : scales.y;
#pragma unroll
            for (int i = 0; i < kBatch; i++)
                put(scale_four<kind>(args.rule, move_loaded<kind>(args.rule, codes[l][i]),
                                     permute_bytes(factors, 0, i == 0 ? 0x1010 : 0x3232)),
                    l, to[i]);
        }
    }
    __device__ __forceinline__ void decode_mx(const Step& step, int fragment, int batch, const uint32_t (&codes)[2][kBatch],
                                              uint32_t (&to)[kBatch][4]) const {
        uint32_t scales[2];
        bool special = false;
#pragma unroll
        for (int l = 0; l < 2; l++) {
            scales[l] = step.scales[line + 64 * fragment + 8 * l] >> 8 * batch & 0xFF;
            special |= needs_two_factors<kind>(args.rule, scales[l]);
            if constexpr (kind == Weights::Bits8)
#pragma unroll
                for (uint32_t four : codes[l]) special |= (mark_special_codes(args.rule, four) & kSpecialMarks) != 0;
        }
        special = __any_sync(kAllLanes, special);
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int i = 0; i < kBatch; i++) {
                const EvenOddBf16 moved = move_loaded<kind>(args.rule, codes[l][i]);
                put(special ? scale_any_four<kind>(args.rule, args.missing, moved, codes[l][i], scales[l])
                            : scale_four<kind>(args.rule, moved, scale_factor<kind>(args.rule, scales[l])),
                    l, to[i]);
            }
    }
    static __device__ __forceinline__ void put(const EvenOddBf16& pairs, int l, uint32_t (&to)[4]) {
        to[l] = pairs.even, to[2 + l] = pairs.odd;
    }
    // Multiplies a step, whose first turn is decoded, and decodes the first of the next one, if there is one, meanwhile. No
    // product is on its way at the end, since the compiler follows accumulators through straight code alone.
    __device__ __forceinline__ void multiply_step(const Step& step, uint32_t (&operands)[2][kBatch][4],
                                                  const auto& decode_next) {
        const TileDescriptor described = describe_tile(step.tokens);
#pragma unroll
        for (int turn = 0; turn < turns; turn++) {
            const int batch = turn / fragments, fragment = turn % fragments;
            begin_products(sums[fragment]);
#pragma unroll
            for (int i = 0; i < kBatch; i++)
                multiply_bf16_lines(sums[fragment], operands[turn % 2][i],
                                    described.along((batch * kBatch + i) * kProductBytes));
            commit_products();
            wait_products<1>(sums[fragment]);  // those whose operands are overwritten next
            if (turn + 1 < turns) decode(step, turn + 1, operands[(turn + 1) % 2]);
            else decode_next();
        }
#pragma unroll
        for (auto& of_fragment : sums) wait_products<0>(of_fragment);
    }
    // Multiplies all steps of a tile, and gives the stages back.
    __device__ __forceinline__ void multiply_tile(Shared<kind, tokens>& shared, Ring<kStages>& ring, int32_t steps) {
#pragma unroll
        for (auto& of_fragment : sums)
#pragma unroll
            for (float& sum : of_fragment) sum = 0;
        uint32_t operands[2][kBatch][4];
        wait(shared.full[ring.at()], ring.parity());
        decode(shared.stages[ring.at()], 0, operands[0]);
#pragma unroll 1
        for (int32_t step = 0; step < steps; step++) {
            const uint32_t stage = ring.at();
            ring.next();
            multiply_step(shared.stages[stage], operands, [&] {
                if (step + 1 == steps) return;
                wait(shared.full[ring.at()], ring.parity());
                decode(shared.stages[ring.at()], 0, operands[0]);
            });
            __syncwarp();
            if (threadIdx.x % 32 == 0) arrive(shared.free[stage]);
        }
    }
};

}  // namespace mxq::cuda::sm90::bf16
