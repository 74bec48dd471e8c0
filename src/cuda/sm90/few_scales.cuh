// Block scales of lines from memory to the warps of weights_few.cuh, which load them themselves: by four words of a line at
// once, so that one read of 32 bytes serves four lanes. Where a warp copied them to shared memory for all, a loop that
// multiplied nothing took 84 us, 118 with NVFP4, and without scales 68 and 70 (H200, 2026-11-30, 64 rows, 32 groups,
// (5760,2880)).
//
//     lane       4 r        4 r + 1    4 r + 2    4 r + 3      have lines r and r + 8, and each a quarter of every 128 codes
//     loads      block 0    block 1    block 2    block 3      of 128 codes, of the next four
//     then       block b from lane 4 r + b, and of it the scales of the lane's quarter
#pragma once
#include "cuda/sm90/line_scales.cuh"
#include "cuda/sm90/weights_tiles.cuh"

namespace mxq::cuda::sm90::weights {

constexpr int32_t kScaleRound = 4;  // blocks of 128 codes

template <Weights kind>
struct FewScales {
    static constexpr int kWords = kScaleWords<kind>;  // of a line in a block, of four scales each
    const uint8_t* next;                              // of the first line, the words that the lane loads next
    int32_t to_second;                                // bytes from there to those of the second line
    uint32_t shifts;                                  // bits of the words before the first scale, 8 for either line
    int32_t left;                                     // scales from there to the end of the line
    uint32_t loaded[2][kWords + 1];
    uint32_t words[2][kWords];  // of the round

    // Begins with block `first`. `line` of the tile is the first of the lane's lines.
    __device__ __forceinline__ void begin(const Arguments& args, const Tile& tile, uint32_t line, int32_t first) {
        const GemmProblem& p = args.problem;
        const uint32_t block = uint32_t(first) + read_thread() % 4;
        const uint8_t* const from = matrix_scales(p.b, tile.group) + scale_in_line(p.b.layout, block * kBlockNumbers);
        const uint32_t at = scales_of_line(p, tile, line), second = scales_of_line(p, tile, line + 8);
        const uint32_t before = uint32_t(reinterpret_cast<uintptr_t>(from));
        shifts = (before + at) % 4 * 8 | (before + second) % 4 * 8 << 8;
        next = from + at - (before + at) % 4;
        to_second = int32_t(second - at) + int32_t((before + at) % 4) - int32_t((before + second) % 4);
        left = args.has_blocks ? int32_t(p.b.layout.columns) - int32_t(block) * 4 * kWords : -4;  // -4: none is read
        load(args);
    }
    // Loads what nobody looks at before the next round. Scales that do not exist are not read.
    __device__ __forceinline__ void load(const Arguments& args) {
        const int32_t step = args.problem.b.layout.swizzled ? kSwizzleBytes : 4;
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int i = 0; i <= kWords; i++) {
                if (i == kWords && !args.shifted) continue;
                const int32_t before = int32_t(shifts >> (8 * l + 3) & 3);
                if (4 * i < before + left)
                    loaded[l][i] = __ldg(reinterpret_cast<const uint32_t*>(next + l * to_second + i * step));
            }
        next += kScaleRound * kWords * step;
        left -= kScaleRound * kWords * 4;
    }
    // Takes the round that was loaded, and loads the next. Scales of blocks that do not exist become those of finite
    // numbers, since the codes there are zeros. Returns whether one factor might not serve some of the warp's scales.
    __device__ __forceinline__ bool next_round(const Arguments& args) {
        constexpr uint32_t none = kind == Weights::Nvfp4 ? 0 : 0x7F7F7F7Fu;
        const int32_t exist = left + kScaleRound * kWords * 4;
        uint32_t marks = 0;
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int i = 0; i < kWords; i++) {
                uint32_t four = loaded[l][i];
                if (args.shifted) four = __funnelshift_r(four, loaded[l][i + 1], shifts >> 8 * l);
                const uint32_t mask = first_bytes(max(min(exist - 4 * i, 4), 0));
                four = (four & mask) | (none & ~mask);
                words[l][i] = four;
                marks |= kind == Weights::Nvfp4 ? (four & 0x7F7F7F7Fu) + (0x80u - E4M3::nan_code) * 0x01010101u : four;
            }
        load(args);
        return __any_sync(kAllLanes, (marks & 0x80808080u) != 0);
    }
    // Takes the scales of a block of the round from the lane that has them.
    __device__ __forceinline__ void take(uint32_t block, Fragment<kind>& to) const {
        const uint32_t lane = read_thread() % 32, q = lane % 4, from = (lane & ~3u) | block;
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const uint32_t first = __shfl_sync(kAllLanes, words[l][0], from);
            if constexpr (kind == Weights::Nvfp4) {
                const uint32_t second = __shfl_sync(kAllLanes, words[l][1], from), two = q < 2 ? first : second;
#pragma unroll
                for (int i = 0; i < 2; i++) to.scales[l][i] = permute_bytes(two, 0, 0x4440 | (q % 2 * 2 + i));
            } else {
                to.scales[l][0] = permute_bytes(first, 0, 0x4440 | q);
            }
        }
    }
};

}  // namespace mxq::cuda::sm90::weights
