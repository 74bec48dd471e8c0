// Block scales of lines of weights: from memory to shared memory by words of four, and from there to the factors of codes.
//
//     step         128 codes of a line, whose scales are one 4-byte word, or two with NVFP4
//     128 lines    their words lie in shared memory as in a tile of swizzled scales, which the copy engine brings as it is
//     unaligned    scales of a line that begin at any byte of a word: one more word is copied, and the reader shifts them
#pragma once
#include "cuda/memory/operand.cuh"
#include "cuda/memory/weights.cuh"
#include "cuda/sm90/bf16_tiles.cuh"
#include "dispatch/reason.h"

namespace mxq::cuda::sm90 {

constexpr int kScaledCodes = 128, kScaledLines = bf16::kTileLines;  // of a step, where nothing else is said

// Words of a line's scales in a step.
template <Weights kind, int codes = kScaledCodes>
constexpr int kScaleWords = codes / kScaledCodes * (kind == Weights::Nvfp4 ? 2 : 1);

// Holds the scales of a step, and a word more of each line, see copy_shifted_scales.
template <Weights kind, int codes = kScaledCodes>
using ScalesOfLines = uint32_t[kScaleWords<kind, codes> + 1][kScaledLines];

// Returns the offset of a line's word among those of 128 lines, and from there to that of line 8 further on.
constexpr uint32_t kWordsOfEightLines = 32;
__host__ __device__ constexpr uint32_t word_of_line(uint32_t line) { return line % 32 * 4 + line / 32; }

// Returns the line whose words a lane copies as number `i` of its own. Neighbouring lanes write neighbouring words.
template <int lines>
__device__ __forceinline__ uint32_t line_to_copy(int i) {
    constexpr uint32_t row = (lines < kScaledLines ? lines : kScaledLines) / 32;  // words that are neighbours
    const uint32_t word = read_thread() % 32 + uint32_t(i) % row * 32;
    return uint32_t(i) / row * kScaledLines + word / row + word % row * 32;
}

// Holds the offsets of the scales of the lines that a lane copies, from the word with the first scale of the matrix.
template <int lines = kScaledLines>
struct ScalePlaces {
    static constexpr int kCount = lines / 32;
    const uint8_t* of_matrix;
    uint32_t of_line[kCount];
};

// Copies the scales of a step, words of four, whose first lie at multiples of 4 bytes. Lines behind the last count as the
// last, since nobody stores their sums; words behind the last of a line stay as they are, if this may be a `last` step.
template <Weights kind, bool last, int codes = kScaledCodes, int lines>
__device__ __forceinline__ void copy_scales(const GemmProblem& p, const ScalePlaces<lines>& places, int32_t step,
                                            ScalesOfLines<kind, codes>* to) {
    constexpr int words = kScaleWords<kind, codes>, codes_of_word = codes / words;
    const uint8_t* from = places.of_matrix + scale_in_line(p.b.layout, uint32_t(step * codes));
#pragma unroll
    for (int word = 0; word < words; word++, from += p.b.layout.swizzled ? kSwizzleBytes : 4) {
        if (last && step * codes + word * codes_of_word >= p.k) return;
#pragma unroll
        for (int i = 0; i < places.kCount; i++)
            copy_word(&to[i / 4][word][word_of_line(line_to_copy<lines>(i) % kScaledLines)],
                      reinterpret_cast<const uint32_t*>(from + places.of_line[i]));
    }
}

// Copies the words of a step's unaligned scales: one more than aligned ones take. With `last`, the last step leaves out a
// word that has none of its scales. The reader shifts the scales.
template <Weights kind, bool last, int codes = kScaledCodes, int lines>
__device__ __forceinline__ void copy_shifted_scales(const GemmProblem& p, const ScalePlaces<lines>& places, int32_t step,
                                                    ScalesOfLines<kind, codes>* to) {
    constexpr int32_t words = kScaleWords<kind, codes>, of_step = 4 * words;
    const int32_t first = step * of_step, left = int32_t(p.b.layout.columns) - first;
    const uint8_t* const from = places.of_matrix + first;
    const auto of_line = [&](int i) {
        uint32_t at = places.of_line[i];
        keep(at);  // so that what is computed of it takes no register over the loop
        return at;
    };
    const auto copy = [&](int i, int word) {
        copy_word(&to[i / 4][word][word_of_line(line_to_copy<lines>(i) % kScaledLines)],
                  reinterpret_cast<const uint32_t*>(from + (of_line(i) & ~3u)) + word);
    };
#pragma unroll
    for (int i = 0; i < places.kCount && (!last || left > of_step); i++)
#pragma unroll
        for (int word = 0; word <= words; word++) copy(i, word);
    if constexpr (last)
#pragma unroll
        for (int i = 0; i < places.kCount && left <= of_step; i++)
#pragma unroll
            for (int word = 0; word <= words; word++)
                if (4 * word < int32_t(of_line(i) % 4) + left) copy(i, word);
}

// Returns where the scales of a line of the tile begin, counted from those of the matrix.
__device__ __forceinline__ uint32_t scales_of_line(const GemmProblem& p, const bf16::Tile& tile, uint32_t line) {
    return uint32_t(scale_line(p.b.layout, min(uint32_t(tile.line) + line, uint32_t(p.n) - 1)));
}

template <int lines = kScaledLines>
__device__ __forceinline__ ScalePlaces<lines> find_scales(const GemmProblem& p, const bf16::Tile& tile) {
    const uint8_t* const of_matrix = matrix_scales(p.b, tile.group);
    const uint32_t before = uint32_t(reinterpret_cast<uintptr_t>(of_matrix)) % 4;
    ScalePlaces<lines> places{of_matrix - before, {}};
#pragma unroll
    for (int i = 0; i < places.kCount; i++)
        places.of_line[i] = before + scales_of_line(p, tile, line_to_copy<lines>(i));
    return places;
}

// Says where the words with the scales of a line's last step begin, and at which byte of these the scales end.
struct LastScales {
    const uint8_t* from;
    int32_t end;
};

__device__ __forceinline__ LastScales last_scales(const GemmProblem& p, const bf16::Tile& tile, bool shifted, uint32_t line,
                                                  uint32_t code, int32_t left) {
    const uint8_t* const of_line = matrix_scales(p.b, tile.group) + scales_of_line(p, tile, line);
    const int32_t before = shifted ? int32_t(reinterpret_cast<uintptr_t>(of_line) % 4) : 0;
    return {of_line + scale_in_line(p.b.layout, code) - before, before + left};
}

// Copies the scales of the last step of a tile, of which some blocks may not exist, and waits for them. Theirs become those
// of finite numbers, since the codes there are zeros; or with `repeats` the last that exists. Computes each address anew,
// since registers are short.
template <Weights kind, int lines, int codes = kScaledCodes, bool repeats = false>
__device__ __forceinline__ void copy_last_scales(const GemmProblem& p, const bf16::Tile& tile, bool shifted, int32_t step,
                                                 ScalesOfLines<kind, codes>* to) {
    constexpr int32_t words = kScaleWords<kind, codes>;
    const int32_t left = int32_t(p.b.layout.columns) - step * 4 * words;
#pragma unroll 1
    for (uint32_t line = read_thread() % 32; line < lines; line += 32) {
        const LastScales of_line = last_scales(p, tile, shifted, line, uint32_t(step * codes), left);
        const int32_t step_of_words = p.b.layout.swizzled ? kSwizzleBytes : 4;
#pragma unroll 1
        for (int32_t word = 0; word < words + shifted && 4 * word < of_line.end; word++)
            copy_word(&to[line / kScaledLines][word][word_of_line(line % kScaledLines)],
                      reinterpret_cast<const uint32_t*>(of_line.from + word * step_of_words));
    }
    wait_for_copies();
    if (left >= 4 * words) return;
#pragma unroll 1
    for (uint32_t line = read_thread() % 32; line < lines; line += 32) {
        auto& scales = to[line / kScaledLines];
        const int32_t end = last_scales(p, tile, shifted, line, 0, left).end, at = (end - 1) / 4;
        const uint32_t of_line = word_of_line(line % kScaledLines);
        const uint32_t last = scales[at][of_line] >> (end - 1) % 4 * 8 & 0xFF;
        const uint32_t none = (repeats ? last : kind == Weights::Nvfp4 ? 0 : 0x7F) * 0x01010101u;
#pragma unroll 1
        for (int32_t word = at; word < words + shifted; word++) {
            const uint32_t exist = first_bytes(max(min(end - 4 * word, 4), 0));
            scales[word][of_line] = (scales[word][of_line] & exist) | (none & ~exist);
        }
    }
}

// Returns how far into their words the scales of a thread's lines, `line` of the tile and 8 further, begin: 8 bits each.
__device__ __forceinline__ uint32_t shifts_of_lines(const GemmProblem& p, const bf16::Tile& tile, uint32_t line) {
    uint32_t shifts = 0;
#pragma unroll
    for (int l = 0; l < 2; l++) {
        const uint32_t at =
            uint32_t(reinterpret_cast<uintptr_t>(matrix_scales(p.b, tile.group))) + scales_of_line(p, tile, line + 8 * l);
        shifts |= at % 4 * 8 << 8 * l;
    }
    return shifts;
}

// Holds the scales of a thread's two lines in a step.
template <Weights kind>
struct StepScales {
    static constexpr int kCodes = kind == Weights::Nvfp4 ? kNvBlock : kMxBlock;  // of a scale
    uint32_t words[2][kScaleWords<kind>];

    // Scales of blocks that do not exist become those of finite numbers, since the codes there are zeros. `shifts`: by how
    // many bits the scales of either line begin behind the first bit of their words, 8 bits each.
    __device__ __forceinline__ void load(const ScalesOfLines<kind>& from, uint32_t word, bool exist, int32_t blocks,
                                         bool shifted, uint32_t shifts) {
        constexpr uint32_t none = kind == Weights::Nvfp4 ? 0 : 0x7F7F7F7Fu;
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int i = 0; i < kScaleWords<kind>; i++) words[l][i] = exist ? from[i][word + l * kWordsOfEightLines] : none;
        if (shifted) {
#pragma unroll
            for (int l = 0; l < 2; l++)
#pragma unroll
                for (int i = 0; i < kScaleWords<kind>; i++)
                    words[l][i] =
                        __funnelshift_r(words[l][i], from[i + 1][word + l * kWordsOfEightLines], shifts >> 8 * l);
        }
        if (blocks >= 4 * kScaleWords<kind>) return;
#pragma unroll
        for (int i = 0; i < kScaleWords<kind>; i++) {
            const uint32_t mask = first_bytes(max(min(blocks - 4 * i, 4), 0));
#pragma unroll
            for (int l = 0; l < 2; l++) words[l][i] = (words[l][i] & mask) | (none & ~mask);
        }
    }
    // Returns whether one factor might not serve some of them: those of 2 and more, where it always serves others.
    __device__ __forceinline__ bool any_special() const {
        uint32_t marks = 0;
#pragma unroll
        for (int l = 0; l < 2; l++)
            for (uint32_t word : words[l])
                marks |= kind == Weights::Nvfp4 ? (word & 0x7F7F7F7Fu) + (0x80u - E4M3::nan_code) * 0x01010101u : word;
        return marks & 0x80808080u;
    }
    // Returns the scale of the codes from `code` of the step on.
    __device__ __forceinline__ uint32_t of(int l, int code) const {
        const int block = code / kCodes;
        return permute_bytes(words[l][block / 4], 0, 0x4440 | block % 4);
    }
};

// ---- On the host ---------------------------------------------------------------------------------------------------------

// Returns why scales cannot be copied by 4-byte words. Compact scales of a line may be unaligned, but no word may reach past
// the tensor's memory. Offsets of scales in a matrix have 32 bits.
inline Reason needs_words_of_scales(const GemmOperand& b) {
    if (!is_block_scaled(b)) return {};
    const int64_t last_row = (b.lines - 1) / b.layout.tile_rows;
    const int64_t bytes = b.layout.swizzled ? (last_row / kSwizzleRows + 1) * b.layout.tile_row_scales()
                                            : last_row * b.layout.line_stride + b.layout.columns;
    if (bytes >= int64_t(1) << 32)
        return [bytes] {
            return format_text("needs less than 2^32 bytes of b's scales a matrix, found %lld", (long long)bytes);
        };
    if (b.layout.has_adjacent_fours() && reinterpret_cast<uintptr_t>(b.scales) % 4 == 0 &&
        (b.layout.swizzled || bytes % 4 == 0))
        return {};
    return [at = b.scales, block = b.layout.block] {
        return format_text(
            "needs b's scales swizzled or one for each block of a line, in whole words at a multiple of 4 bytes, found one "
            "for "
            "%d codes, the first at %p",
            block, static_cast<const void*>(at));
    };
}

// Returns whether the copy engine can bring swizzled scales to a stage.
inline bool has_tiles_of_scales(const GemmOperand& b) {
    return is_block_scaled(b) && b.layout.swizzled && reinterpret_cast<uintptr_t>(b.scales) % 16 == 0 &&
           b.layout.matrix_scales % 16 == 0;
}

inline bool has_shifted_scales(const GemmOperand& b) {
    return is_block_scaled(b) && !b.layout.swizzled && b.layout.line_stride % 4 != 0;
}

}  // namespace mxq::cuda::sm90
