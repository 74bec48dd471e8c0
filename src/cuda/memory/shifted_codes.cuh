// Codes of eight bits to lines that begin anywhere, by the lanes of a warp that have neighbouring vectors: a lane stores the
// aligned eight bytes in which its codes begin, with the last codes of the lane before. What is left of them at both ends of
// the lanes' share of the line is stored byte by byte, by sixteen lanes at once:
//
//     codes        | 0 0 0 0 0 0 0 0 | 1 1 1 ..           | 2 2 2 ..      lanes
//     stored    head 0 0 0 ][ 0 0 0 0 0 1 1 1 ][ 1 1 1 1 1 2 2 2 ] end
//
// Bytes that were stored one at a time went to the L2 eight times for each of its sectors.
#pragma once
#include "cuda/memory/codes.cuh"
#include "cuda/memory/grid.cuh"

namespace mxq::cuda {

__device__ __forceinline__ uint64_t shuffle_up(uint64_t value, int lanes) {
    const uint32_t low = __shfl_up_sync(kAllLanes, uint32_t(value), 1, lanes);
    return uint64_t(__shfl_up_sync(kAllLanes, uint32_t(value >> 32), 1, lanes)) << 32 | low;
}

__device__ __forceinline__ uint64_t shuffle_from(uint64_t value, int lane, int lanes) {
    const uint32_t low = __shfl_sync(kAllLanes, uint32_t(value), lane, lanes);
    return uint64_t(__shfl_sync(kAllLanes, uint32_t(value >> 32), lane, lanes)) << 32 | low;
}

// Stores the first `bytes` codes of `lanes` lanes side by side, 16 or 32, to `to`. All lanes of the warp call it.
__device__ __forceinline__ void store_shifted_codes(const Codes<8>& codes, uint8_t* to, int bytes, int lanes) {
    const int lane = int(threadIdx.x) & (lanes - 1), before = int(reinterpret_cast<uintptr_t>(to) % 8);
    const uint64_t own = uint64_t(codes.words[1]) << 32 | codes.words[0];
    const uint64_t last = before == 0 ? 0 : own >> (64 - 8 * before);  // those that the lane behind stores
    const uint64_t window = own << 8 * before | shuffle_up(last, lanes);
    const int whole = (bytes + before) / 8;  // windows that are stored in full, or up to the head's end
    const bool has_head = before != 0 || whole == 0;
    if (lane < whole && (lane > 0 || !has_head)) *reinterpret_cast<uint64_t*>(to - before + lane * 8) = window;
    const uint64_t head = shuffle_from(window, 0, lanes);
    const uint64_t end = shuffle_from(whole == lanes && lane == lanes - 1 ? last : window, min(whole, lanes - 1), lanes);
    const int byte = lane % 8;
    const bool in_head = lane < 8;
    const bool stores = in_head ? has_head && byte >= before && byte < bytes + before
                                : lane < 16 && whole > 0 && byte < (bytes + before) % 8;
    if (stores) to[(in_head ? 0 : whole * 8) - before + byte] = uint8_t((in_head ? head : end) >> 8 * byte);
}

// Returns the last `shift` / 8 bytes of two words and the first of two more.
__device__ __forceinline__ uint2 window_of(uint2 before, uint2 own, int shift) {
    const bool far = shift >= 32;
    const uint32_t low = far ? before.x : before.y, middle = far ? before.y : own.x, high = far ? own.x : own.y;
    return {__funnelshift_l(low, middle, shift % 32), __funnelshift_l(middle, high, shift % 32)};
}

// Stores the codes of n vectors of each lane, those of all lanes side by side and then the next of all, from `to` of lane 0
// on.
template <int n>
__device__ __forceinline__ void store_whole_shifted_codes(const Codes<8> (&codes)[n], uint8_t* to) {
    const int lane = threadIdx.x % 32, before = int(reinterpret_cast<uintptr_t>(to) % 8), shift = 8 * before;
    uint64_t head = 0;
#pragma unroll
    for (int i = 0; i < n; i++) {
        const Codes<8>& sent = i > 0 && lane == 31 ? codes[max(i - 1, 0)] : codes[i];
        const uint2 last = {__shfl_sync(kAllLanes, sent.words[0], lane - 1),
                            __shfl_sync(kAllLanes, sent.words[1], lane - 1)};
        const uint2 window = window_of(last, {codes[i].words[0], codes[i].words[1]}, shift);
        if (i == 0) head = uint64_t(window.y) << 32 | window.x;
        if (i > 0 || lane > 0 || before == 0) *reinterpret_cast<uint2*>(to - before + (i * 32 + lane) * 8) = window;
    }
    if (before == 0) return;
    const uint64_t own = uint64_t(codes[n - 1].words[1]) << 32 | codes[n - 1].words[0];
    head = shuffle_from(head, 0, 32);
    const uint64_t end = shuffle_from(own >> (64 - shift), 31, 32);
    const int byte = lane % 8;
    if (lane < 8 ? byte >= before : lane < 16 && byte < before)
        to[(lane < 8 ? 0 : n * 256) - before + byte] = uint8_t((lane < 8 ? head : end) >> 8 * byte);
}

// Stores the first `bytes` of what a warp has put to shared memory, `most` at most, to any address: aligned eight bytes a
// lane, and what is left at both ends byte by byte. All lanes of the warp call it, behind a barrier.
template <int most>
__device__ __forceinline__ void store_shifted_bytes(const uint32_t* put, uint8_t* to, int bytes) {
    static_assert(most % 256 == 0);
    const int lane = threadIdx.x % 32, before = int(reinterpret_cast<uintptr_t>(to) % 8), bits = (-before & 3) * 8;
#pragma unroll
    for (int i = 0; i < most / 256; i++) {
        const int at = (i * 32 + lane) * 8 - before;
        if (at < 0 || at + 8 > bytes) continue;
        const uint32_t low = put[at / 4], middle = put[at / 4 + 1], high = put[(at + 7) / 4];
        *reinterpret_cast<uint2*>(to + at) = {__funnelshift_r(low, middle, bits), __funnelshift_r(middle, high, bits)};
    }
    const int head = min(-before & 7, bytes), end = head + (bytes - head) / 8 * 8;
    const int byte = lane < 8 ? lane : end + lane - 8;
    if (lane < 16 && byte < (lane < 8 ? head : bytes)) to[byte] = reinterpret_cast<const uint8_t*>(put)[byte];
}

}  // namespace mxq::cuda
