// The warps of skinny_sm90 at work: weights are loaded some steps ahead, decoded and multiplied with the tokens of a stage.
//
//     step s     load s + ahead | decode s, 16 codes of two lines at a time | multiply
//
// Up to 16 tokens each warp multiplies by itself (mma.sync), so that no warp waits for another. More tokens are multiplied by
// the four warps of a warpgroup together (wgmma), while each decodes what comes next.
#pragma once
#include "cuda/mma_bf16/instructions.cuh"
#include "cuda/sm90/beside.cuh"
#include "cuda/sm90/skinny_tiles.cuh"
#include "cuda/sm90/skinny_weights.cuh"
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90::skinny {

// Returns where a thread's weights lie. Lines behind the last count as the last; nobody stores their sums.
__device__ __forceinline__ WeightReader weight_reader(const Arguments& args, const Tile& tile) {
    const GemmOperand& b = args.problem.b;
    const uint32_t thread = threadIdx.x, lane = thread % 32;
    WeightReader reader{};
    reader.code = tile.first_chunk * kChunkCodes + lane % 4 * kLaneCodes;
    reader.end = min(uint32_t(args.problem.k), (tile.first_chunk + tile.chunks) * kChunkCodes);
#pragma unroll
    for (int l = 0; l < 2; l++) {
        const uint32_t line = min(tile.line + thread / 32 * 16 + lane / 4 + 8 * l, uint32_t(args.problem.n) - 1);
        reader.codes[l] = tile.b.codes + line * b.line_bytes + reader.code / 8 * b.bits;
        reader.scales[l] = tile.b.scales + scale_line(tile.b.layout, line) + scale_in_line(tile.b.layout, reader.code);
    }
    reader.scale_step = int32_t(scale_in_line(tile.b.layout, kChunkCodes));
    return reader;
}

// Steps that are loaded ahead: as many as there are registers for, since the time goes to waiting for them.
template <Weights kind, int columns>
constexpr int kAhead = kind == Weights::Bits8                           ? (columns > kFewTokens ? 1 : 2)
                       : kind == Weights::Bits6                         ? 2
                       : kind == Weights::Bits4&& columns <= kFewTokens ? 4
                                                                        : 3;

// Multiplies the block's share for up to `columns` tokens.
template <Weights kind, int columns>
struct Consumer {
    static constexpr int sums_of_thread = columns / 2;
    const Arguments& args;
    const Tile& tile;
    Shared& shared;
    WeightReader reader;
    float sums[sums_of_thread];

    __device__ __forceinline__ void load(uint32_t chunk, Fragment<kind>& to) const {
        load_fragment<kind>(reader, chunk, args.scaled, to);
    }
    // Decodes what a thread gives to one instruction.
    __device__ __forceinline__ void decode_16(const Fragment<kind>& fragment, int four, const uint32_t (&factors)[2][2],
                                              bool special, uint32_t (&to)[4]) const {
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const int half = kind == Weights::Nvfp4 ? four / 4 : 0;
            const uint32_t codes = four_codes<kind>(fragment, l, four);
            const EvenOddBf16 pairs =
                special ? decode_any_four<kind>(args.rule, args.missing, codes, four, fragment.scales[l][half])
                        : decode_four<kind>(args.rule, codes, four, factors[l][half]);
            to[l] = pairs.even, to[2 + l] = pairs.odd;
        }
    }
    __device__ __forceinline__ void multiply_chunk(const Fragment<kind>& fragment, uint32_t chunk) {
        uint32_t factors[2][2];
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int i = 0; i < (kind == Weights::Nvfp4 ? 2 : 1); i++)
                factors[l][i] = scale_factor<kind>(args.rule, fragment.scales[l][i]);
        const bool special = __any_sync(kAllLanes, is_special<kind>(args.rule, fragment));
        const uint32_t stage = chunk % kStages;
        wait(shared.full[stage], chunk / kStages % 2);
        if constexpr (columns <= kFewTokens)
            multiply_by_warps(fragment, stage, factors, special);
        else
            multiply_by_warpgroups(fragment, stage, factors, special);
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(shared.free[stage]);
    }
    // Each warp multiplies by itself: nobody waits for the others of its warpgroup.
    __device__ __forceinline__ void multiply_by_warps(const Fragment<kind>& fragment, uint32_t stage,
                                                      const uint32_t (&factors)[2][2], bool special) {
        const uint8_t* const tokens = shared.tokens[stage] + threadIdx.x % 32 * 16;
#pragma unroll
        for (int two = 0; two < kSteps / 2; two++) {
            uint32_t first[4], second[4];
            decode_16(fragment, 2 * two, factors, special, first);
            decode_16(fragment, 2 * two + 1, factors, special, second);
#pragma unroll
            for (int eight = 0; eight < columns / kTokenRows; eight++) {
                const uint4 of = *reinterpret_cast<const uint4*>(tokens + eight * kTokenRowsBytes + two * 2 * kCoreBytes);
                auto& own = reinterpret_cast<float(&)[4]>(sums[4 * eight]);
                multiply_add_bf16(own, first, of.x, of.y);
                multiply_add_bf16(own, second, of.z, of.w);
            }
        }
    }
    __device__ __forceinline__ void multiply_by_warpgroups(const Fragment<kind>& fragment, uint32_t stage,
                                                           const uint32_t (&factors)[2][2], bool special) {
        uint32_t operands[2][kBatch][4];  // decoded while those before are multiplied
#pragma unroll
        for (int batch = 0; batch < kSteps / kBatch; batch++) {
            auto& own = operands[batch % 2];
#pragma unroll
            for (int i = 0; i < kBatch; i++) decode_16(fragment, batch * kBatch + i, factors, special, own[i]);
            begin_products(sums);
#pragma unroll
            for (int i = 0; i < kBatch; i++)
                multiply_bf16_lines(
                    sums, own[i], describe_cores(shared.tokens[stage] + (batch * kBatch + i) * kCoreBytes, kTokenRowsBytes));
            commit_products();
            wait_products<1>(sums);
        }
        wait_products<0>(sums);
    }
    __device__ __forceinline__ void multiply_share() {
        Fragment<kind> ahead[kAhead<kind, columns>];
#pragma unroll
        for (float& sum : sums) sum = 0;
#pragma unroll
        for (int i = 0; i < kAhead<kind, columns>; i++) load(i, ahead[i]);
        if (threadIdx.x == 0) {
            wait_for_previous_kernel();  // which writes the tokens; weights are there already
#pragma unroll 1
            for (uint32_t chunk = 0; chunk + 1 < kStages; chunk++) load_tokens(tile, shared, chunk);
        }
        __syncwarp();
#pragma unroll 1
        for (uint32_t first = 0; first < tile.chunks; first += kAhead<kind, columns>)
#pragma unroll
            for (int i = 0; i < kAhead<kind, columns>; i++) {
                if (first + i >= tile.chunks) break;
                const Fragment<kind> fragment = ahead[i];
                load(first + i + kAhead<kind, columns>, ahead[i]);
                if (threadIdx.x == 0) load_tokens(tile, shared, first + i + kStages - 1);
                __syncwarp();
                multiply_chunk(fragment, first + i);
            }
    }
    // Leaves the sums in shared memory, token by token.
    __device__ __forceinline__ void store_sums() {
        const uint32_t lane = threadIdx.x % 32, line = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < sums_of_thread; i++)
            shared.sums[8 * (i / 4) + lane % 4 * 2 + i % 2][line + i % 4 / 2 * 8] = sums[i];
    }
};

}  // namespace mxq::cuda::sm90::skinny
