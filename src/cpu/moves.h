// Moves bytes between L1 and the output, and transposes tiles of bytes. Part of kernels.cpp.
#pragma once
#include <cstring>

#include "core/problem.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mxq::cpu {
namespace {

// A tile of codes that is transposed has kTileRows rows and kTile columns of the plain tensor. It has more rows than
// columns, so that a K-major row of columnwise codes gets a longer chunk.
constexpr int64_t kTile = 128;
constexpr int64_t kTileRows = 256;

// The columns of a row that are worked on together.
constexpr int64_t kPatchCols = 1024;

// The values that quantize holds: kRowPatch of one row or of a few short ones, kPatch of 16 or 32 rows where columns are seen
// together, which then are at most kBandCols.
constexpr int64_t kRowPatch = 1024;
constexpr int64_t kPatch = 8192;
constexpr int64_t kBandCols = kPatch / kNvBlock;

MXQ_HD int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Prefetches bytes of the next row. The hardware's prefetcher sees no stream in rows that lie far apart.
MXQ_HD void prefetch(const void* from, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i, 0, 2);
}

// Copies a K-major row from L1 to the output. With `stream` whole cache lines are written past the caches; a part of a cache
// line is not, because that costs more than it saves.
inline void store_line(void* to, const void* from, int64_t bytes, [[maybe_unused]] bool stream) {
#if defined(__AVX__)
    if (stream) {
        auto* target = static_cast<char*>(to);
        auto* source = static_cast<const char*>(from);
        const int64_t head = least(bytes, int64_t(-reinterpret_cast<uintptr_t>(to) & 63));
        memcpy(target, source, size_t(head));
        int64_t i = head;
        for (; i + 64 <= bytes; i += 64)
            for (int64_t j = i; j < i + 64; j += 32)
                _mm256_stream_si256(reinterpret_cast<__m256i*>(target + j),
                                    _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + j)));
        memcpy(target + i, source + i, size_t(bytes - i));
        return;
    }
#endif
    memcpy(to, from, size_t(bytes));
}

// Orders streamed stores before those that tell another thread that a work item is done.
void finish_stores() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

#if defined(__F16C__)
typedef uint16_t Words __attribute__((vector_size(32)));
typedef uint32_t Bits __attribute__((vector_size(32)));
typedef float Floats __attribute__((vector_size(32)));

template <class V>
MXQ_HD V read(const void* from) {
    V vector;
    memcpy(&vector, from, sizeof vector);
    return vector;
}

MXQ_HD Floats all(float value) { return value - Floats{}; }

// even_of returns elements 0, 2, .. 14 of sixteen, odd_of elements 1, 3, .. 15.
MXQ_HD Floats even_of(const float* from) {
    return __builtin_shufflevector(read<Floats>(from), read<Floats>(from + 8), 0, 2, 4, 6, 8, 10, 12, 14);
}
MXQ_HD Floats odd_of(const float* from) {
    return __builtin_shufflevector(read<Floats>(from), read<Floats>(from + 8), 1, 3, 5, 7, 9, 11, 13, 15);
}
#endif

typedef uint8_t Bytes16 __attribute__((vector_size(16)));

// Transposes 16 x 16 bytes by four perfect shuffles of the rows.
MXQ_HD void transpose_16(const uint8_t* from, int64_t from_pitch, uint8_t* to, int64_t to_pitch) {
    Bytes16 rows[2][16];
    for (int i = 0; i < 16; i++) memcpy(&rows[0][i], from + i * from_pitch, 16);
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < 8; i++) {
            const Bytes16 a = rows[stage % 2][i], b = rows[stage % 2][i + 8];
            rows[1 - stage % 2][2 * i] =
                __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            rows[1 - stage % 2][2 * i + 1] =
                __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
    for (int i = 0; i < 16; i++) memcpy(to + i * to_pitch, &rows[0][i], 16);
}

// Transposes the first rows x cols of a tile, each rounded up to a multiple of 16.
template <int64_t height, int64_t width>
void transpose_tile(const uint8_t (&from)[height][width], int64_t rows, int64_t cols, uint8_t (&to)[width][height]) {
    for (int64_t row = 0; row < rows; row += 16)
        for (int64_t col = 0; col < cols; col += 16) transpose_16(&from[row][col], width, &to[col][row], height);
}

// Packs the codes of columns in a tile of `rows` rows, before it is transposed: byte r of a packed column takes the place of
// row r. The rows after these, up to a multiple of 16, must be 0. Returns how many rows there are then.
template <int bits, int64_t height, int64_t width>
int64_t pack_columns(uint8_t (&tile)[height][width], int64_t rows) {
    constexpr int codes = bits == 4 ? 2 : 4, bytes = codes * bits / 8;  // of a group
    const int64_t groups = (rows + codes - 1) / codes;
    for (int64_t group = 0; group < groups; group++)
        for (int64_t col = 0; col < width; col += 16) {
            Bytes16 of[codes], packed[bytes];
            for (int i = 0; i < codes; i++) memcpy(&of[i], &tile[group * codes + i][col], 16);
            for (int i = 0; i < bytes; i++) {  // a byte has the upper bits of code i and the lower ones of the next
                const int low = i * (8 - bits);
                packed[i] = of[i] >> low | of[i + 1] << (bits - low);
            }
            for (int i = 0; i < bytes; i++) memcpy(&tile[group * bytes + i][col], &packed[i], 16);
        }
    return groups * bytes;
}

}  // namespace
}  // namespace mxq::cpu
