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

// ---- Codes from shared memory: those that a thread gives to two instructions, of one line ------------------------------------

// Eight 4-bit codes are a word: this thread's two are byte q of it.
template <Weights kind>
struct Codes {
    uint4 words;

    __device__ __forceinline__ void load(const uint8_t* codes, uint32_t line, int batch) {
        words = *reinterpret_cast<const uint4*>(codes + line * (kStepCodes / 2) + batch * 16);
    }
    // Low nibbles go to the low halves, high ones to the high halves, where move_pair_of_word finds them.
    __device__ __forceinline__ void bring(uint32_t (&to)[kBatch]) const {
        const uint32_t both = 0x11 * (threadIdx.x % 4) + 0x40;  // byte q of either
        const uint32_t all =
            permute_bytes(permute_bytes(words.x, words.y, both), permute_bytes(words.z, words.w, both), 0x5410);
        to[0] = permute_bytes(all, all >> 4, 0x5410);
        to[1] = permute_bytes(all, all >> 4, 0x7632);
    }
    static __device__ __forceinline__ EvenOddBf16 move(const Bf16DecodeRule&, uint32_t codes) {
        return {move_pair_of_word(codes, 0), move_pair_of_word(codes, 2)};
    }
    __device__ __forceinline__ bool any_special(const Bf16DecodeRule&) const { return false; }
};

// Sixteen 6-bit codes are 12 bytes, and a thread's two of either eight 12 bits.
template <>
struct Codes<Weights::Bits6> {
    uint32_t words[kBatch][3];

    __device__ __forceinline__ void load(const uint8_t* codes, uint32_t line, int batch) {
#pragma unroll
        for (int i = 0; i < kBatch; i++)
#pragma unroll
            for (int w = 0; w < 3; w++)
                words[i][w] = *reinterpret_cast<const uint32_t*>(codes + line * (kStepCodes / 8 * 6) +
                                                                 (batch * kBatch + i) * 12 + w * 4);
    }
    __device__ __forceinline__ void bring(uint32_t (&to)[kBatch]) const {
        const uint32_t q = threadIdx.x % 4, shift = q == 3 ? 4 : 12 * q, shift_high = (16 + 12 * q) % 32;
        const auto apart = [](uint32_t two) { return (two & 0x3F) | (two & 0xFC0) << 10; };
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
            const uint32_t low = __funnelshift_r(q == 3 ? words[i][1] : words[i][0], words[i][1], shift);
            const uint32_t high = __funnelshift_r(q < 2 ? words[i][1] : words[i][2], words[i][2], shift_high);
            to[i] = apart(low) | apart(high) << 8;
        }
    }
    static __device__ __forceinline__ EvenOddBf16 move(const Bf16DecodeRule& rule, uint32_t codes) {
        return move_codes_to_bf16(rule, codes + 3 * (codes & 0x20202020u));
    }
    __device__ __forceinline__ bool any_special(const Bf16DecodeRule&) const { return false; }
};

// Sixteen 8-bit codes are the 16 bytes that a swizzle of 64-byte lines moves as one.
template <>
struct Codes<Weights::Bits8> {
    uint32_t words[kBatch];

    __device__ __forceinline__ void load(const uint8_t* codes, uint32_t line, int batch) {
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
            const uint8_t* const of =
                codes + line * kStepCodes + ((batch * kBatch + i) ^ (line / 2 % 4)) * 16 + threadIdx.x % 4 * 2;
            words[i] = permute_bytes(*reinterpret_cast<const uint16_t*>(of), *reinterpret_cast<const uint16_t*>(of + 8), 0x5140);
        }
    }
    __device__ __forceinline__ void bring(uint32_t (&to)[kBatch]) const {
#pragma unroll
        for (int i = 0; i < kBatch; i++) to[i] = words[i];
    }
    static __device__ __forceinline__ EvenOddBf16 move(const Bf16DecodeRule& rule, uint32_t codes) {
        return move_codes_to_bf16(rule, codes);
    }
    __device__ __forceinline__ bool any_special(const Bf16DecodeRule& rule) const {
        uint32_t marks = 0;
#pragma unroll
        for (uint32_t four : words) marks |= mark_special_codes(rule, four);
        return (marks & kSpecialMarks) != 0;
    }
};

// ---- Products ------------------------------------------------------------------------------------------------------------

// Holds what a thread loads for a turn, 32 codes of two lines: codes, and the scale of each line, or of NVFP4 two.
template <Weights kind>
struct Turn {
    Codes<kind> codes[2];
    uint32_t scales[2];
};

template <Weights kind, int tokens>
struct Consumer {
    static constexpr int fragments = tile_lines<tokens> / 128, sums_of_thread = tokens / 2;
    static constexpr int turns = kBatches * fragments;
    using Step = Stage<kind, tokens>;
    const Arguments& args;
    Shared<kind, tokens>& shared;
    uint32_t line;  // of the tile, the thread's first
    Ring<kStages> ring;
    float sums[fragments][sums_of_thread];

    // Loads a turn of a stage that is full.
    __device__ __forceinline__ void load(uint32_t stage, int turn, Turn<kind>& to) const {
        const int batch = turn / fragments, fragment = turn % fragments;
        const Step& step = shared.stages[stage];
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const uint32_t own = line + 64 * fragment + 8 * l;
            const uint8_t* const scales = step.scales + own * Step::scale_bytes;
            to.codes[l].load(step.codes, own, batch);
            if constexpr (kind == Weights::Nvfp4)
                to.scales[l] = reinterpret_cast<const uint32_t*>(scales)[batch];
            else
                to.scales[l] = kind == Weights::Bits8 && !args.scales ? 127 : scales[batch];
        }
    }
    // Decodes a turn to what the thread gives to its instructions.
    __device__ __forceinline__ void decode(const Turn<kind>& turn, uint32_t (&to)[kBatch][4]) const {
        const Bf16DecodeRule& rule = args.rule;
        bool special = false;
        if constexpr (kind != Weights::Nvfp4)
#pragma unroll
            for (int l = 0; l < 2; l++)
                special |= needs_two_factors<kind>(rule, turn.scales[l]) || turn.codes[l].any_special(rule);
        special = kind != Weights::Nvfp4 && __any_sync(kAllLanes, special);
#pragma unroll
        for (int l = 0; l < 2; l++) {
            uint32_t codes[kBatch];
            turn.codes[l].bring(codes);
#pragma unroll
            for (int i = 0; i < kBatch; i++) {
                const EvenOddBf16 moved = Codes<kind>::move(rule, codes[i]);
                EvenOddBf16 pairs;
                if constexpr (kind == Weights::Nvfp4)
                    pairs = scale_four<kind>(rule, moved, permute_bytes(turn.scales[l], 0, i == 0 ? 0x1010 : 0x3232));
                else if (special)
                    pairs = scale_any_four<kind>(rule, args.missing, moved, codes[i], turn.scales[l]);
                else
                    pairs = scale_four<kind>(rule, moved, scale_factor<kind>(rule, turn.scales[l]));
                to[i][l] = pairs.even, to[i][2 + l] = pairs.odd;
            }
        }
    }
    // Multiplies a step. Its first turn is decoded and its second loaded; in the end those of the next step are, if there is one.
    // No product is on its way then, since the compiler follows accumulators through straight code alone.
    __device__ __forceinline__ void multiply_step(uint32_t stage, bool last, Turn<kind> (&loaded)[2],
                                                  uint32_t (&operands)[2][kBatch][4]) {
        const TileDescriptor described = describe_tile(shared.stages[stage].tokens);
#pragma unroll
        for (int turn = 0; turn < turns; turn++) {
            const int batch = turn / fragments, fragment = turn % fragments;
            begin_products(sums[fragment]);
#pragma unroll
            for (int i = 0; i < kBatch; i++)
                multiply_bf16_lines(sums[fragment], operands[turn % 2][i],
                                    described.along((batch * kBatch + i) * kProductBytes));
            commit_products();
            if (turn + 2 < turns) {
                load(stage, turn + 2, loaded[turn % 2]);
            } else if (!last) {
                if (turn + 2 == turns) wait(shared.full[ring.at()], ring.parity());
                load(ring.at(), turn + 2 - turns, loaded[turn % 2]);
            }
            wait_products<1>(sums[fragment]);  // those whose operands are overwritten next
            if (turn + 1 < turns || !last) decode(loaded[(turn + 1) % 2], operands[(turn + 1) % 2]);
        }
#pragma unroll
        for (auto& of_fragment : sums) wait_products<0>(of_fragment);
    }
    // Multiplies all steps of a tile, and gives the stages back.
    __device__ __forceinline__ void multiply_tile(int32_t steps) {
#pragma unroll
        for (auto& of_fragment : sums)
#pragma unroll
            for (float& sum : of_fragment) sum = 0;
        Turn<kind> loaded[2];
        uint32_t operands[2][kBatch][4];
        wait(shared.full[ring.at()], ring.parity());
        load(ring.at(), 0, loaded[0]);
        load(ring.at(), 1, loaded[1]);
        decode(loaded[0], operands[0]);
#pragma unroll 1
        for (int32_t step = 0; step < steps; step++) {
            const uint32_t stage = ring.at();
            ring.next();
            multiply_step(stage, step + 1 == steps, loaded, operands);
            __syncwarp();
            if (threadIdx.x % 32 == 0) arrive(shared.free[stage]);
        }
    }
};

}  // namespace mxq::cuda::sm90::bf16
