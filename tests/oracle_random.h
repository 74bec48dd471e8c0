// Philox, stochastic rounding to E2M1, and the random Hadamard transform.
//
//     philox(counter, key)                 returns 4 words of Philox4x32-10
//     Origin                               where a matrix starts in the operand, which its random bytes depend on
//     random_chunk, random_bytes           return the bytes r of the contract
//     stochastic_code                      returns the E2M1 code of a scaled value
//     hadamard_16, hadamard_lines          transform values in place
//     undo_hadamard_16, undo_hadamard_lines
#ifndef MXQ_TESTS_ORACLE_RANDOM_H
#define MXQ_TESTS_ORACLE_RANDOM_H

#include "oracle_layout.h"

#include <array>

namespace oracle {

using Words = std::array<uint32_t, 4>;

inline Words philox(Words counter, std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
        counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
                   static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
        key[0] += 0x9E3779B9, key[1] += 0xBB67AE85;
    }
    return counter;
}

// Where a matrix of lines starts in the operand: its line 0 is stored row `row`, from element `position` of that row on.
struct Origin {
    int32_t part = MXQ_PART_ROWWISE;
    int64_t row = 0, position = 0;
};

// Returns the 16 random bytes of a chunk, which is 16 elements of a row.
inline std::array<uint8_t, 16> random_chunk(const Spec& spec, int32_t part, int64_t row, int64_t chunk) {
    uint32_t columnwise = part == MXQ_PART_COLUMNWISE ? 0x80000000u : 0;
    Words words = philox({static_cast<uint32_t>(chunk), static_cast<uint32_t>(row) | columnwise,
                          static_cast<uint32_t>(spec.offset), static_cast<uint32_t>(spec.offset >> 32)},
                         {static_cast<uint32_t>(spec.seed), static_cast<uint32_t>(spec.seed >> 32)});
    std::array<uint8_t, 16> bytes;
    for (size_t i = 0; i < 16; ++i) bytes[i] = static_cast<uint8_t>(words[i / 4] >> 8 * (i % 4));
    return bytes;
}

inline Bytes random_bytes(const Spec& spec, int64_t rows, int64_t cols, Origin origin) {
    Bytes out;
    for (int64_t i = 0; i < rows; ++i) {
        std::array<uint8_t, 16> chunk{};
        for (int64_t j = 0; j < cols; ++j) {
            int64_t position = origin.position + j;
            if (j == 0 || position % 16 == 0) chunk = random_chunk(spec, origin.part, origin.row + i, position / 16);
            out.push_back(chunk[static_cast<size_t>(position % 16)]);
        }
    }
    return out;
}

// Returns the E2M1 code of a scaled value under the random byte r.
inline uint8_t stochastic_code(float value, uint8_t r) {
    const auto& values = e2m1.finite;
    auto last = static_cast<uint32_t>(values.size() - 1);
    if (std::isnan(value)) return static_cast<uint8_t>(last);
    double v = std::min(std::fabs(static_cast<double>(value)), values.back());
    uint32_t code = last;
    if (v < values.back()) {
        code = static_cast<uint32_t>(std::upper_bound(values.begin(), values.end(), v) - values.begin()) - 1;
        double p = (v - values[code]) / (values[code + 1] - values[code]);
        if (256 * p > r + 0.5) ++code;
    }
    return static_cast<uint8_t>(code | (std::signbit(value) ? 8u : 0u));
}

inline void hadamard_16(float* x, uint32_t mask) {
    for (int i = 0; i < 16; ++i)
        if (mask >> i & 1) x[i] = -x[i];
    for (int distance = 1; distance < 16; distance *= 2)
        for (int i = 0; i < 16; ++i) {
            if (i & distance) continue;
            float u = x[i], v = x[i + distance];
            x[i] = add(u, v);
            x[i + distance] = subtract(u, v);
        }
    for (int i = 0; i < 16; ++i) x[i] = multiply(x[i], 0.25f);
}

inline void hadamard_lines(Floats& lines, int64_t cols, uint32_t mask) {
    if (cols % 16) throw std::logic_error("oracle: the transform needs a contraction that is a multiple of 16");
    for (size_t at = 0; at < lines.size(); at += 16) hadamard_16(&lines[at], mask);
}

// Undoes the transform of 16 values: the same butterflies, then a quarter, then the signs.
inline void undo_hadamard_16(float* x, uint32_t mask) {
    for (int distance : {1, 2, 4, 8})
        for (int first = 0; first < 16; first += 2 * distance)
            for (int i = first; i < first + distance; ++i) {
                float u = x[i], v = x[i + distance];
                x[i] = add(u, v);
                x[i + distance] = subtract(u, v);
            }
    for (int i = 0; i < 16; ++i) {
        float value = multiply(x[i], 0.25f);
        x[i] = mask >> i & 1 ? -value : value;
    }
}

inline void undo_hadamard_lines(Floats& lines, uint32_t mask) {
    if (lines.size() % 16) throw std::logic_error("oracle: the transform needs a contraction that is a multiple of 16");
    for (size_t at = 0; at < lines.size(); at += 16) undo_hadamard_16(&lines[at], mask);
}

}  // namespace oracle

#endif
