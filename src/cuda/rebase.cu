// rebase: MX codes under scales of 32 to FP8 codes under fp32 scales of 1x128 or 128x128, for products on FP8 tensor cores.
//
// A block of threads takes a tile of 128 lines by 128 codes, of groups one or two, one after another and far apart, so that
// what all blocks take at a time is next to each other. Where there are groups one warp finds the block's; where the tile lies
// all threads find by themselves, since waiting for one that does took 37% of a warp's time. Then each warp works alone on its
// 16 lines of every tile, from memory to registers and back, a lane holding 16 codes of each of four lines:
//
//     lanes 0..7 of a warp     128 codes of a line, 16 bytes each in and out      } four lines a warp at once, and four such
//     lanes 8..15, ...         of the next line                                   } accesses in flight before the first use
//     lanes 0..15              the four scale bytes of a line each -> their largest, its fp32 scale -> by shuffles to its codes
//
// For scales of 128x128 alone the warps meet at a tile's maximum.
//
// Bytes an element: 0.53 to 1.03 read, 1.03 written (1.00 for 128x128). 8 to 10 operations an element in the loop (machine code for
// sm_90a; E5M2 has a second way), of 14 that the SMs issue while memory moves one of eight bits: bound by memory.
#include "cuda/device.h"
#include "cuda/rebase.h"
#include "cuda/tile_places.cuh"
#include "cuda/types.cuh"
#include "numerics/packing.h"

namespace mxq::cuda {
namespace {

struct Arguments {
    RebaseCall call;
    uint32_t down, across;  // tiles of a matrix; of slabs, `down` is their number
    uint32_t steps;         // blocks across: of groups, tiles from one of a block to its next
    GroupSumUnits units;
    RebaseGrid grid;
};

// ---- Codes -----------------------------------------------------------------------------------------------------------

// Sixteen codes as they are stored.
template <int bits>
struct Piece {
    uint32_t words[bits / 2];
};

template <int bits>
__device__ __forceinline__ Piece<bits> load_whole(const uint8_t* from) {
    Piece<bits> piece;
    if constexpr (bits == 8) {
        const uint4 v = __ldcs(reinterpret_cast<const uint4*>(from));
        piece.words[0] = v.x, piece.words[1] = v.y, piece.words[2] = v.z, piece.words[3] = v.w;
    } else if constexpr (bits == 4) {
        const uint2 v = __ldcs(reinterpret_cast<const uint2*>(from));
        piece.words[0] = v.x, piece.words[1] = v.y;
    } else {
#pragma unroll
        for (int i = 0; i < 3; i++) piece.words[i] = reinterpret_cast<const uint32_t*>(from)[i];
    }
    return piece;
}

// `count` codes, the others zero.
template <int bits>
__device__ __forceinline__ Piece<bits> load_some(const uint8_t* from, int count) {
    Piece<bits> piece{};
    const int bytes = (count * bits + 7) / 8;
#pragma unroll
    for (int i = 0; i < 2 * bits; i++)
        if (i < bytes) piece.words[i / 4] |= uint32_t(from[i]) << (i % 4 * 8);
    return piece;
}

// Of a thread's four lines, from the first one's on; what does not exist is zero. `lines` and `count`: how many lines of the
// tile, from the thread's first on, and how many of its codes there are.
template <class E, bool wide>
__device__ __forceinline__ void load_codes(const uint8_t* from, int64_t line_bytes, int lines, int count,
                                           Piece<E::bits> (&pieces)[kRebaseShares]) {
#pragma unroll
    for (int i = 0; i < kRebaseShares; i++, from += kShareLines * line_bytes) {
        pieces[i] = {};
        if (i * kShareLines >= lines || count <= 0) continue;
        if constexpr (wide) pieces[i] = load_whole<E::bits>(from);
        else pieces[i] = load_some<E::bits>(from, min(count, kRebaseCodes));
    }
}

// A thread's codes of a line.
template <class E>
__device__ __forceinline__ uint4 move_piece(const Piece<E::bits>& piece, uint32_t scale, uint32_t largest) {
    const RebaseFactors factors = rebase_factors<E>(scale, largest);
    uint32_t codes[4];
    if constexpr (E::bits == 4) {
        rebase_e2m1(piece.words, scale, factors, codes);
    } else {
        unpack_16<E::bits>(piece.words, codes);
        if constexpr (E::bits == 6)
#pragma unroll
            for (uint32_t& word : codes) word = six_bits_to_e4m3<E>(word);
        rebase_16<E>(codes, factors);
    }
    return {codes[0], codes[1], codes[2], codes[3]};
}

// `words` and `largest` are of the lane's line of scales.
template <class E>
__device__ __forceinline__ void store_codes(uint8_t* to, int64_t line_bytes, int lines,
                                            const Piece<E::bits> (&pieces)[kRebaseShares], uint32_t words, uint32_t largest) {
    const uint32_t block = threadIdx.x % 8 / 2, lane = threadIdx.x % 32 / 8;
#pragma unroll
    for (int i = 0; i < kRebaseShares; i++, to += kShareLines * line_bytes) {
        const uint32_t scale = __byte_perm(__shfl_sync(kAllLanes, words, lane + i * kShareLines), 0, 0x4440 | block);
        const uint32_t of_line = __shfl_sync(kAllLanes, largest, lane + i * kShareLines);
        const uint4 codes = move_piece<E>(pieces[i], scale, of_line);
        if (i * kShareLines < lines) *reinterpret_cast<uint4*>(to) = codes;
    }
}

// ---- Tiles -----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t row_index() { return blockIdx.z * gridDim.y + blockIdx.y; }

// The expert, or the group of a slab, and the tile of it below or beside which the block's tiles are. False: there is none. A
// slab is 128 rows of a group, or 128 codes along the contraction. All threads of the block call it.
template <bool grouped>
__device__ __forceinline__ bool find_scope(const Arguments& args, uint32_t row, uint32_t first, TileGroup& group,
                                           RebaseScope& scope, uint32_t& place) {
    if constexpr (!grouped) {
        const uint32_t matrix = args.call.from.matrices == 1 ? 0 : row / args.down;
        scope = {matrix, 0, {}, {}};
        place = row - matrix * args.down;
        return matrix < args.call.from.matrices && place < args.down;
    }
    if (row >= args.down || first >= args.steps) return false;  // of a grid that is larger than the work
    if (threadIdx.x < 32) find_slab(args.call.grouped, args.units, row, group);
    __syncthreads();
    scope = {0, group.rows, {group.index, 0, group.starts[kSourceCodes], group.starts[kSourceScales]},
             {group.index, 0, group.starts[kRowwiseCodes], group.starts[kRowwiseScales]}};
    place = row - group.first_slab;
    return group.index >= 0;
}

// A tile's largest scale, from its lines'. All threads of the block call it.
__device__ __forceinline__ uint32_t largest_of_tile(uint32_t largest, uint32_t (&of_warps)[kRebaseThreads / 32]) {
    const uint32_t of_warp = __reduce_max_sync(kAllLanes, largest);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = of_warp;
    __syncthreads();
    uint32_t of_tile = 0;
#pragma unroll
    for (const uint32_t other : of_warps) of_tile = max(of_tile, other);
    return of_tile;
}

__device__ __forceinline__ void store_scales(const Arguments& args, const RebaseTile& tile, int64_t code, uint32_t largest) {
    float* const to = reinterpret_cast<float*>(args.call.to.scales) + tile.to_scales;
    const int line = rebase_scale_line(threadIdx.x);
    if (args.call.to.layout.tile_rows > 1) {
        if (int(threadIdx.x) <= zeros_behind(args.call, code)) to[threadIdx.x] = threadIdx.x == 0 ? scale_value(largest) : 0.0f;
    } else if (threadIdx.x % 32 < kWarpLines && line < tile.to_lines) {
        to[line] = line < tile.lines ? scale_value(largest) : 0.0f;
    }
}

// Blocks that share an SM. Codes of less than eight bits leave registers for one more; below sm_89 they are converted in software,
// which takes more.
template <int bits>
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
constexpr int kSmBlocks = 4;
#else
constexpr int kSmBlocks = bits < 8 ? 6 : 5;
#endif

// Two kernels: what groups need before their first tile would cost matrices up to 5 points of a copy.
template <class E, bool wide, bool grouped>
__global__ void __launch_bounds__(kRebaseThreads, kSmBlocks<E::bits>) rebase_kernel(const __grid_constant__ Arguments args) {
    __shared__ TileGroup group;
    __shared__ uint32_t of_warps[2][kRebaseThreads / 32];  // one is read while the next is written
    // Blocks that follow each other take what is next to each other in lines of codes, at every step.
    const bool down = grouped && args.call.grouping == Grouping::Contraction;
    const uint32_t first = down ? row_index() : blockIdx.x;
    RebaseScope scope;
    uint32_t place;
    if (!find_scope<grouped>(args, down ? blockIdx.x : row_index(), first, group, scope, place)) return;
    const GemmOperand &from = args.call.from, &to = args.call.to;
    const int line = rebase_line(threadIdx.x, 0), code = rebase_code(threadIdx.x), scale_line = rebase_scale_line(threadIdx.x);
    const bool moves = !args.call.keeps_codes, share = to.layout.tile_rows > 1;
    const int64_t line_scales = scales_of_line(from.layout, uint32_t(scale_line));
    const int64_t line_codes = line * from.line_bytes + code / 8 * E::bits, to_line_codes = line * to.line_bytes + code;
    int parity = 0;
#pragma unroll 1
    for (uint32_t index = first; index < args.across; index += grouped ? args.steps : args.across, parity ^= 1) {
        const RebaseTile tile = grouped ? tile_of_group(args.call, args.grid, scope, down ? index : place, down ? place : index)
                                        : tile_of_matrix(args.call, args.grid, scope.matrix, place, index);
        Piece<E::bits> pieces[kRebaseShares];  // first, since scales are waited for one by one
        if (moves)
            load_codes<E, wide>(from.codes + tile.codes + line_codes, from.line_bytes, tile.lines - line, tile.length - code,
                                pieces);
        uint32_t words = 0;
        if (scale_line < tile.lines)
            words = rebase_scale_word(from.layout, from.scales + tile.scales + line_scales, tile.scaled);
        uint32_t largest = rebase_line_scale<E>(args.call, words);
        if (share) largest = largest_of_tile(largest, of_warps[parity]);
        store_scales(args, tile, int64_t(index) * kRebaseTile, largest);
        if (moves)
            store_codes<E>(to.codes + tile.to_codes + to_line_codes, to.line_bytes, tile.to_lines - line, pieces, words, largest);
    }
}

// A grid of at least `rows` rows of `across` blocks.
dim3 grid_of_rows(int64_t across, int64_t rows) {
    constexpr int64_t most = 65535;
    const int64_t y = min(rows, most);
    return dim3(uint32_t(across), uint32_t(y), uint32_t(ceil_div(rows, y)));
}

// Whether lines are whole pieces of 16 codes, where they can be read at once.
bool is_wide_source(const GemmOperand& from) {
    const int64_t piece = 2 * from.bits;
    return is_aligned(from.codes, piece & -piece) && from.line_bytes % piece == 0;
}

// Groups are searched for once in so many tiles: two, where that is faster. Small operands are spread over more blocks.
int64_t tiles_of_block(const RebaseCall& call, int64_t tiles) {
    constexpr int64_t kManyTiles = 2048;
    const bool by_lines = call.grouping == Grouping::Rows || call.from.layout.swizzled;  // scale words are read at once
    return tiles < kManyTiles || (call.from.bits == 8 && by_lines) ? 1 : 2;
}

Arguments arguments_of(const RebaseCall& call, int64_t tiles) {
    int64_t down = ceil_div(call.to.lines, kRebaseTile), across = call.to.layout.columns;
    if (call.grouping == Grouping::Contraction) across = down;
    if (call.grouping != Grouping::None) down = slabs_bound(call.grouped);
    if (call.grouping == Grouping::None) tiles = 1;
    else if (tiles == 0) tiles = tiles_of_block(call, down * across);
    Arguments args{call, uint32_t(down), uint32_t(across), uint32_t(ceil_div(across, tiles)), {}, rebase_grid(call)};
    for (uint32_t& unit : args.units.at) unit = 1;
    args.units.at[kSourceCodes] = uint32_t(call.from.units.codes);
    args.units.at[kSourceScales] = uint32_t(call.from.units.scales);
    args.units.at[kRowwiseCodes] = uint32_t(call.to.units.codes);
    args.units.at[kRowwiseScales] = uint32_t(call.to.units.scales);
    return args;
}

}  // namespace

void rebase(const Context& context, const RebaseCall& call, void* stream, int32_t tiles) {
    const Arguments args = arguments_of(call, tiles);
    const int64_t rows = int64_t(args.down) * call.from.matrices;
    if (args.steps * rows == 0) return;
    const dim3 grid = call.grouping == Grouping::Contraction ? grid_of_rows(rows, args.steps) : grid_of_rows(args.steps, rows);
    const auto start = [&](auto kernel) { launch(context, kernel, "rebase", grid, dim3(kRebaseThreads), 0, stream, args); };
    const bool wide = is_wide_source(call.from);
    with_element(call.from.element, [&]<class E>(E) {
        if (call.grouping == Grouping::None) start(wide ? rebase_kernel<E, true, false> : rebase_kernel<E, false, false>);
        else start(wide ? rebase_kernel<E, true, true> : rebase_kernel<E, false, true>);
    });
}

void load_rebase() {
    const auto load = [](auto... kernels) { (load_kernel(reinterpret_cast<const void*>(kernels), 0), ...); };
    for (const Element element : kElements)
        with_element(element, [&]<class E>(E) {
            load(rebase_kernel<E, true, false>, rebase_kernel<E, false, false>, rebase_kernel<E, true, true>,
                 rebase_kernel<E, false, true>);
        });
}

}  // namespace mxq::cuda
