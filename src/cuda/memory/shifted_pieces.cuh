// How rows of 16-bit elements that begin anywhere are read 16 bytes at a time: as the aligned pieces that they lie in, of
// which two neighbours have the eight elements of a vector between them. Where a piece lies is counted in bytes from the
// row's first element on.
//
//     row              e0 e1 e2 e3 e4 e5 | e6 e7 e8 ..  e13 | e14 ..
//     pieces    [ ?  ?  e0 e1 e2 e3 e4 e5 ][ e6 ..      e13 ][ e14 ..
//     vectors          [ e0 ..             e7 ][ e8 ..
#pragma once
#include "cuda/memory/async_copy.cuh"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/grid.cuh"

#include <type_traits>

namespace mxq::cuda {

// Returns how many bytes of a piece lie before one of its elements.
__device__ __forceinline__ int bytes_before(const void* element) { return int(reinterpret_cast<uintptr_t>(element) % 16); }

// Returns how many rows at either end of a tensor have pieces that may reach out of it: of rows shorter than a piece eight.
__device__ __forceinline__ int rows_beside_end(int64_t stride) { return stride < 8 ? 8 : 1; }

// A row of a tile, with so many bytes. What lies next to it in its tensor may be read. `is_first`, `is_last`: nothing may be
// read before the row, behind it.
struct ShiftedRow {
    const uint8_t* first;
    int bytes;
    bool is_first, is_last;

    __device__ __forceinline__ bool may_read(int piece) const {
        return (piece >= 0 || !is_first) && (piece + 16 <= bytes || !is_last);
    }
};

// Returns the row's elements in a piece, zeros for what else the piece has. Out of line, since few pieces are read like
// this.
__device__ __noinline__ inline uint4 load_cut_piece(const uint8_t* first, int bytes, int piece) {
    uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int at = piece + 2 * i;
        if (at >= 0 && at < bytes) words[i / 2] |= uint32_t(*reinterpret_cast<const uint16_t*>(first + at)) << (i % 2 * 16);
    }
    return {words[0], words[1], words[2], words[3]};
}

// Starts to copy piece `index` of a row to shared memory; zeros where the tile has no such row.
__device__ __forceinline__ void start_piece(uint4* to, const ShiftedRow& row, int index, bool exists) {
    const int piece = index * 16 - bytes_before(row.first);
    if (exists && piece >= row.bytes) return;  // nothing of the row is there
    if (!exists || row.may_read(piece))
        copy_piece(to, row.first + piece, exists);
    else
        *to = load_cut_piece(row.first, row.bytes, piece);
}

// Returns eight elements of two neighbouring pieces, without the first bytes of them.
template <class T>
__device__ __forceinline__ Vector<T> vector_of_pieces(const uint4& low, const uint4& high, int bytes_before) {
    static_assert(sizeof(T) == 2);
    uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (bytes_before & 8)
#pragma unroll
        for (int i = 0; i < 6; i++) words[i] = words[i + 2];
    if (bytes_before & 4)
#pragma unroll
        for (int i = 0; i < 5; i++) words[i] = words[i + 1];
    Vector<T> vector;
#pragma unroll
    for (int i = 0; i < 4; i++) vector.words[i] = __funnelshift_r(words[i], words[i + 1], bytes_before % 4 * 8);
    return vector;
}

// Zeroes the elements of a vector from `valid` on.
template <class T>
__device__ __forceinline__ void keep_first(Vector<T>& vector, int valid) {
#pragma unroll
    for (int i = 0; i < 4; i++) vector.words[i] &= valid > 2 * i + 1 ? ~0u : valid > 2 * i ? 0xFFFFu : 0;
}

// Returns the vector (16 bytes, four words) of two pieces whose first `word` words lie before it, and `bits` more.
template <class Sixteen, int word>
__device__ __forceinline__ Sixteen shift_pieces(const uint4& low, const uint4& high, int bits) {
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    Sixteen vector;
#pragma unroll
    for (int w = 0; w < 4; w++) vector.words[w] = __funnelshift_r(words[word + w], words[word + w + 1], bits);
    return vector;
}

// Makes vectors of two pieces each, of which so many bytes lie before the vector. Words are not selected but named, by a
// branch that is cheap where the lanes of a warp take it together.
template <class Sixteen, int n>
__device__ __forceinline__ void vectors_of_pieces(const uint4 (&pieces)[n][2], int before, Sixteen (&vectors)[n]) {
    const int bits = before % 4 * 8;
    const auto make_all = [&](auto word) {
#pragma unroll
        for (int i = 0; i < n; i++)
            vectors[i] = shift_pieces<Sixteen, decltype(word)::value>(pieces[i][0], pieces[i][1], bits);
    };
    switch (before / 4) {
        case 0: return make_all(std::integral_constant<int, 0>{});
        case 1: return make_all(std::integral_constant<int, 1>{});
        case 2: return make_all(std::integral_constant<int, 2>{});
        default: return make_all(std::integral_constant<int, 3>{});
    }
}

// Loads whole vectors that all begin so many bytes behind an aligned piece, as a warp has them in the middle of rows.
template <class T, int n, class Accesses>
__device__ __forceinline__ void load_whole_shifted_vectors(Vector<T> (&vectors)[n], const T* from, int64_t stride,
                                                           const Accesses& accesses, int before) {
    uint4 pieces[n][2];
#pragma unroll
    for (int i = 0; i < n; i++) {
        const auto* const piece = reinterpret_cast<const uint4*>(
            reinterpret_cast<const uint8_t*>(from + accesses.offset(i, stride)) - before);
        pieces[i][0] = piece[0], pieces[i][1] = piece[1];
    }
    vectors_of_pieces(pieces, before, vectors);
}

// Loads vectors of rows between `from` and `end`, all of which may be read. Accesses are as in memory/elements.cuh.
template <class T, int n, class Accesses>
__device__ __forceinline__ void load_shifted_vectors(Vector<T> (&vectors)[n], const T* from, int64_t stride,
                                                     const Accesses& accesses, const T* end) {
    const auto address = [&](int i) { return reinterpret_cast<const uint8_t*>(from + accesses.offset(i, stride)); };
    const int before = bytes_before(address(0));
    const auto may_read = [&](const uint8_t* piece, int bytes) {
        return piece >= reinterpret_cast<const uint8_t*>(from) && piece + bytes <= reinterpret_cast<const uint8_t*>(end);
    };
    bool whole = true;
#pragma unroll
    for (int i = 0; i < n; i++)
        whole = whole && accesses.valid(i) == Vector<T>::count && bytes_before(address(i)) == before &&
                may_read(address(i) - before, 32);
    if (__all_sync(kAllLanes, whole)) return load_whole_shifted_vectors(vectors, from, stride, accesses, before);
#pragma unroll
    for (int i = 0; i < n; i++) {
        vectors[i] = {};
        const int valid = accesses.valid(i), bytes = valid * int(sizeof(T)), shift = bytes_before(address(i));
        if (valid <= 0) continue;
        uint4 pieces[2] = {};
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const uint8_t* const piece = address(i) - shift + k * 16;
            if (k == 1 && bytes <= 16 - shift) continue;
            pieces[k] = may_read(piece, 16) ? *reinterpret_cast<const uint4*>(piece)
                                            : load_cut_piece(address(i), bytes, k * 16 - shift);
        }
        vectors[i] = vector_of_pieces<T>(pieces[0], pieces[1], shift);
        keep_first(vectors[i], valid);
    }
}

}  // namespace mxq::cuda
