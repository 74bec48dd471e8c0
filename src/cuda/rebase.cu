// rebase: MX codes under scales of 32 to FP8 codes under fp32 scales of 1x128 or 128x128, for products on FP8 tensor cores.
//
// A block of threads takes 128 lines by 128 codes, of groups of rows or along the contraction a few such tiles, since it finds
// its group but once. Codes go from memory to registers and back, a lane holding 16 of each of four lines:
//
//     lanes 0..7 of a warp     128 codes of a line, 16 bytes each in and out      } four lines a warp at once, and four such
//     lanes 8..15, ...         of the next line                                   } accesses in flight before the first use
//
// Scales go ahead of them. Threads 0..127 read the four bytes of a line each; their largest is the line's fp32 scale, or a
// maximum over the block that of the tile. The bytes and the maxima meet the codes in shared memory.
//
// Bytes an element: 0.53 to 1.03 read, 1.03 written (1.00 for 128x128). About 7 operations an element, of 14 that the SMs issue
// while memory moves one of eight bits: bound by memory.
#include "cuda/device.h"
#include "cuda/rebase.h"
#include "cuda/tile_places.cuh"
#include "cuda/types.cuh"
#include "numerics/packing.h"

namespace mxq::cuda {
namespace {

constexpr int kGroupTiles = 4;  // that a block takes of a slab of a group

struct Arguments {
    RebaseCall call;
    int64_t down, across;  // tiles of a matrix; of slabs, `down` is their number
    GroupSumUnits units;
};

// Of a tile, in shared memory.
struct RebaseScales {
    uint32_t words[kRebaseTile];    // the scale bytes of each line
    uint32_t largest[kRebaseTile];  // 1x128: of each line; 128x128: of the lines of each of four warps
};

__device__ __forceinline__ uint32_t scale_of_tile(const RebaseScales& scales) {
    const uint32_t* const of_warps = scales.largest;
    return max(max(of_warps[0], of_warps[1]), max(of_warps[2], of_warps[3]));
}

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

// What does not exist is zero.
template <class E, bool wide>
__device__ __forceinline__ void load_codes(const Arguments& args, const RebaseCodes& at,
                                           Piece<E::bits> (&pieces)[kRebaseShares]) {
    const int64_t step = kShareLines * args.call.from.line_bytes;
    const int line = rebase_line(threadIdx.x, 0), code = rebase_code(threadIdx.x);
    const uint8_t* from = at.from + line * args.call.from.line_bytes + code / 8 * E::bits;
    const int count = min(at.length - code, kRebaseCodes), lines = count > 0 ? at.lines - line : 0;
#pragma unroll
    for (int i = 0; i < kRebaseShares; i++, from += step) {
        pieces[i] = {};
        if (i * kShareLines >= lines) continue;
        if constexpr (wide) pieces[i] = load_whole<E::bits>(from);
        else pieces[i] = load_some<E::bits>(from, count);
    }
}

// A byte each, as rebase_codes wants them.
template <class E>
__device__ __forceinline__ void unpack_piece(const Piece<E::bits>& piece, uint32_t (&codes)[4]) {
    if constexpr (E::bits == 4) {
#pragma unroll
        for (int i = 0; i < 4; i++) codes[i] = e2m1_to_e4m3(piece.words[i / 2] >> (i % 2 * 16));
    } else {
        unpack_16<E::bits>(piece.words, codes);
        if constexpr (E::bits == 6)
#pragma unroll
            for (uint32_t& word : codes) word = six_bits_to_e4m3<E>(word);
    }
}

template <class E>
__device__ __forceinline__ void store_codes(const Arguments& args, const RebaseCodes& at,
                                            const Piece<E::bits> (&pieces)[kRebaseShares], const RebaseScales& scales) {
    const int code = rebase_code(threadIdx.x);
    const bool share = args.call.to.layout.tile_rows > 1;
    const uint32_t of_tile = share ? scale_of_tile(scales) : 0;
    uint8_t* to = at.to + rebase_line(threadIdx.x, 0) * args.call.to.line_bytes + code;
#pragma unroll
    for (int i = 0; i < kRebaseShares; i++, to += kShareLines * args.call.to.line_bytes) {
        const int line = rebase_line(threadIdx.x, i);
        if (line >= at.to_lines) continue;
        const uint32_t scale = scales.words[line] >> (code / kMxBlock * 8) & 0xFF;
        const RebaseFactors factors = rebase_factors<E>(scale, share ? of_tile : scales.largest[line]);
        uint32_t codes[4];
        unpack_piece<E>(pieces[i], codes);
#pragma unroll
        for (uint32_t& word : codes) word = rebase_codes<E>(word, factors);
        *reinterpret_cast<uint4*>(to) = {codes[0], codes[1], codes[2], codes[3]};
    }
}

// ---- Tiles -----------------------------------------------------------------------------------------------------------

// By the first four warps.
template <class E>
__device__ __forceinline__ void put_scales(const Arguments& args, uint32_t word, RebaseScales& scales) {
    if (threadIdx.x >= kRebaseTile) return;
    scales.words[threadIdx.x] = word;
    const uint32_t largest = rebase_line_scale<E>(args.call, word);
    const bool share = args.call.to.layout.tile_rows > 1;
    const uint32_t of_warp = share ? __reduce_max_sync(kAllLanes, largest) : largest;
    if (!share) scales.largest[threadIdx.x] = largest;
    else if (threadIdx.x % 32 == 0) scales.largest[threadIdx.x / 32] = of_warp;
}

__device__ __forceinline__ void store_scales(const Arguments& args, const RebaseScope& scope, int64_t line, int64_t code,
                                             const RebaseScales& scales) {
    const int i = threadIdx.x;
    if (args.call.to.layout.tile_rows > 1) {
        if (i <= zeros_behind(args.call, code))
            rebased_scale_at(args.call, scope, line, code)[i] = i == 0 ? scale_value(scale_of_tile(scales)) : 0.0f;
    } else if (i < kRebaseTile && line + i < written_lines(args.call, scope)) {
        const bool exists = line + i < lines_of_scope(args.call, scope);
        rebased_scale_at(args.call, scope, line, code)[i] = exists ? scale_value(scales.largest[i]) : 0.0f;
    }
}

template <class E, bool wide>
__device__ __forceinline__ void rebase_tile(const Arguments& args, const RebaseScope& scope, int64_t line, int64_t code,
                                            RebaseScales& scales) {
    const bool moves = !args.call.keeps_codes;
    uint32_t word = 0;
    if (threadIdx.x < kRebaseTile) word = rebase_scale_word(args.call, scope, line + threadIdx.x, code);
    const RebaseCodes at = rebase_codes_at(args.call, scope, line, code);
    Piece<E::bits> pieces[kRebaseShares];
    if (moves) load_codes<E, wide>(args, at, pieces);
    put_scales<E>(args, word, scales);
    __syncthreads();
    if (moves) store_codes<E>(args, at, pieces, scales);
    store_scales(args, scope, line, code, scales);
}

// A grid of at least `rows` rows of `across` blocks, and a block's row.
dim3 grid_of_rows(int64_t across, int64_t rows) {
    constexpr int64_t most = 65535;
    const int64_t y = min(rows, most);
    return dim3(uint32_t(across), uint32_t(y), uint32_t(ceil_div(rows, y)));
}

__device__ __forceinline__ int64_t row_index() { return int64_t(blockIdx.z) * gridDim.y + blockIdx.y; }

// Blocks that share an SM where there are no groups. Below sm_89 codes are converted in software, which takes more registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
constexpr int kSmBlocks = 4;
#else
constexpr int kSmBlocks = 5;
#endif

template <class E, bool wide>
__global__ void __launch_bounds__(kRebaseThreads, kSmBlocks) rebase_kernel(const __grid_constant__ Arguments args) {
    __shared__ RebaseScales scales;
    __builtin_assume(args.call.grouping == Grouping::None);
    const int64_t row = row_index(), matrices = args.call.from.matrices, matrix = matrices == 1 ? 0 : row / args.down;
    if (row >= args.down * matrices) return;
    const int64_t line = (row - matrix * args.down) * kRebaseTile, code = int64_t(blockIdx.x) * kRebaseTile;
    rebase_tile<E, wide>(args, {matrix, 0, {}, {}}, line, code, scales);
}

// A few tiles of a slab: 128 rows of a group, or 128 codes of one along the contraction.
template <class E, bool wide>
__global__ void __launch_bounds__(kRebaseThreads, kSmBlocks - 1) rebase_groups_kernel(const __grid_constant__ Arguments args) {
    __shared__ RebaseScales scales[2];  // one is read while the next is written
    __shared__ TileGroup found;
    __shared__ RebaseScope scope;
    const int64_t slab = row_index();
    if (slab >= args.down) return;
    if (threadIdx.x < 32) find_slab(args.call.grouped, args.units, uint32_t(slab), found);
    __syncthreads();
    if (found.index < 0) return;
    if (threadIdx.x == 0)
        scope = {0, found.rows, {found.index, 0, found.starts[kSourceCodes], found.starts[kSourceScales]},
                 {found.index, 0, found.starts[kRowwiseCodes], found.starts[kRowwiseScales]}};
    __syncthreads();
    const int64_t first = int64_t(blockIdx.x) * kGroupTiles, in_group = (slab - found.first_slab) * kRebaseTile;
    const int tiles = int(min(args.across - first, int64_t(kGroupTiles)));
    const bool down = args.call.grouping == Grouping::Contraction;
#pragma unroll 1
    for (int t = 0; t < tiles; t++) {
        const int64_t along = (first + t) * kRebaseTile;
        rebase_tile<E, wide>(args, scope, down ? along : in_group, down ? in_group : along, scales[t % 2]);
    }
}

// Whether lines are whole pieces of 16 codes, where they can be read at once.
bool is_wide_source(const GemmOperand& from) {
    const int64_t piece = 2 * from.bits;
    return is_aligned(from.codes, piece & -piece) && from.line_bytes % piece == 0;
}

Arguments arguments_of(const RebaseCall& call) {
    Arguments args{call, ceil_div(call.to.lines, kRebaseTile), call.to.layout.columns, {}};
    if (call.grouping == Grouping::Contraction) args.across = args.down;
    if (call.grouping != Grouping::None) args.down = slabs_bound(call.grouped);
    for (uint32_t& unit : args.units.at) unit = 1;
    args.units.at[kSourceCodes] = uint32_t(call.from.units.codes);
    args.units.at[kSourceScales] = uint32_t(call.from.units.scales);
    args.units.at[kRowwiseCodes] = uint32_t(call.to.units.codes);
    args.units.at[kRowwiseScales] = uint32_t(call.to.units.scales);
    return args;
}

}  // namespace

void rebase(const Context& context, const RebaseCall& call, void* stream) {
    const Arguments args = arguments_of(call);
    const bool grouped = call.grouping != Grouping::None, wide = is_wide_source(call.from);
    const int64_t across = grouped ? ceil_div(args.across, int64_t(kGroupTiles)) : args.across;
    const int64_t rows = grouped ? args.down : args.down * call.from.matrices;
    if (across * rows == 0) return;
    const auto start = [&](auto kernel) {
        launch(context, kernel, "rebase", grid_of_rows(across, rows), dim3(kRebaseThreads), 0, stream, args);
    };
    with_element(call.from.element, [&]<class E>(E) {
        if (grouped) start(wide ? rebase_groups_kernel<E, true> : rebase_groups_kernel<E, false>);
        else start(wide ? rebase_kernel<E, true> : rebase_kernel<E, false>);
    });
}

void load_rebase() {
    const auto load = [](auto... kernels) { (load_kernel(reinterpret_cast<const void*>(kernels), 0), ...); };
    for (const Element element : kElements)
        with_element(element, [&]<class E>(E) {
            load(rebase_kernel<E, true>, rebase_kernel<E, false>);
            load(rebase_groups_kernel<E, true>, rebase_groups_kernel<E, false>);
        });
}

}  // namespace mxq::cuda
