// The warps of wgmma_fp8_sm90 that multiply nothing, and where all its warps meet:
//
//     slots    scout -> everybody     two of them: tiles, found one ahead
//     ring     loaders -> consumers   four stages of codes, by the copy engine
//     words    loader  -> consumers   two rounds of four steps: of rows as a box where they lie so, else by 4-byte copies
//
// A stage is full when the boxes of both blocks of the cluster are there. It is free when the consumers of both blocks have
// left it, since each block loads for the other. Words of a round have a barrier of their own.
//
// Where groups lie along the contraction and no pass moved them, the last step of a group has codes of the next one behind its
// own. The warp that loads words makes them zero as soon as they have landed, and then says that the stage is full.
#pragma once
#include "cuda/memory/async_copy.cuh"
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/fp8_tiles.cuh"
#include "cuda/sm90/ring.cuh"
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90 {

// Names the scales that a step's sums are multiplied by in the main loop, in addition to one factor for a row and a column of D:
//
//     Marked        of rows references of MX; of columns references too, in steps with marks
//     MarkedAlone   of rows fp32 scales; of columns references of MX, in steps with marks
//     Pieces        of both fp32 scales; 64 neighbouring columns share one (128x128)
//     Each          of both fp32 scales, one for each column (1x128)
//     None          of rows alone
enum class Columns { Marked, MarkedAlone, Pieces, Each, None };
MXQ_HD constexpr bool has_marks(Columns columns) { return columns == Columns::Marked || columns == Columns::MarkedAlone; }

using StageRing = Ring<kStages>;

// Loads the lines of one side of a step, of which there are two halves. Of what the cluster shares, a block loads the half
// with its number, for both blocks; of the rest both halves, for itself. `done` waits for the bytes.
template <int lines, class At>
__device__ __forceinline__ void load_lines(uint8_t* to, const CUtensorMap& map, bool shared, Barrier& done, const At& at) {
    constexpr int half = lines / 2;
    arrive_expecting(done, lines * kStepBytes);
    if (shared) {
        const int32_t rank = int32_t(blockIdx.x % kCluster);
        load_tile_to((1u << kCluster) - 1, to + rank * half * kStepBytes, map, at(rank * half).values, done);
    } else {
        load_tile(to, map, at(0).values, done);
        load_tile(to + half * kStepBytes, map, at(half).values, done);
    }
}

// Returns the step of the tile behind whose codes there are others; below 0: there is none.
__device__ __forceinline__ int32_t cut_step(const ProductTile& tile) { return tile.cut > 0 ? tile.steps - 1 : -1; }

// Returns the barrier for a step's codes.
__device__ __forceinline__ Barrier& barrier_of_codes(ProductShared& shared, int stage, bool cut) {
    return cut ? shared.landed[stage] : shared.full[stage];
}

// Makes the codes of a step from this one on zero, in all lines. All lanes of a warp call it, each for every 32nd line. Whole
// pieces of 16 codes are not read first, since the consumers may wait for this warp.
template <int lines>
__device__ __forceinline__ void clear_behind(uint8_t* step, int32_t codes) {
    constexpr int pieces = kStepBytes / 16;
    const int cut_piece = codes / 16, kept = codes % 16;
    const auto mask = [&](int word) { return kept >= 4 * word + 4 ? ~0u : kept <= 4 * word ? 0 : (1u << 8 * (kept % 4)) - 1; };
    const uint4 masks{mask(0), mask(1), mask(2), mask(3)};
#pragma unroll 1
    for (int line = int(threadIdx.x % 32); line < lines; line += 32) {
        const auto at = [&](int piece) -> uint4& {
            return *reinterpret_cast<uint4*>(step + line * kStepBytes + (piece ^ line % 8) * 16);
        };
        const uint4 value = at(cut_piece);
#pragma unroll 1
        for (int piece = cut_piece + 1; piece < pieces; piece++) at(piece) = {};
        at(cut_piece) = {value.x & masks.x, value.y & masks.y, value.z & masks.z, value.w & masks.w};
    }
}

template <int rank>
struct Coordinates {
    int32_t values[rank];
};

// Copies words of a tile to shared memory, `pitch` words apart there: `count` of them, of every `spread`th line. Lane l has
// number l, l + 32, ...
template <int count, int pitch = 1, int spread = 1>
struct LaneWords {
    static constexpr int of_lane = (count + 31) / 32;
    const uint32_t* first;
    int64_t step_stride;
    uint32_t offsets[of_lane];

    // `line`: the tile's first; it has `lines` that exist, at least one wherever words are loaded.
    __device__ __forceinline__ LaneWords(const SideView& side, int64_t start, int64_t line, int32_t lines)
        : first(side.words + start + (line >> side.lines_log2) * side.word_stride), step_stride(side.step_stride) {
#pragma unroll
        for (int i = 0; i < of_lane; i++) {
            const int64_t own = line + min((int(threadIdx.x % 32) + 32 * i) * spread, lines - 1);
            offsets[i] = uint32_t((own >> side.lines_log2) - (line >> side.lines_log2)) * uint32_t(side.word_stride);
        }
    }
    __device__ __forceinline__ void load(int32_t step, uint32_t* to) const {
        const uint32_t* const at = first + step * step_stride;
#pragma unroll
        for (int i = 0; i < of_lane; i++) {
            const int word = int(threadIdx.x % 32) + 32 * i;
            if (word < count) copy_word(to + word * pitch, at + offsets[i]);
        }
    }
};
using ColumnWords = LaneWords<kTileColumns>;
using PieceWords = LaneWords<kTileColumns / kPieceColumns, 1, kPieceColumns>;

// Calls `take` with the tile of each slot, in turn, as it is ready, and gives the slot back. All of so many lanes of a warp
// call it.
template <int lanes, class Take>
__device__ __forceinline__ void each_tile(ProductShared& shared, const Take& take) {
    Ring<kTileSlots> slots;
#pragma unroll 1
    for (;; slots.next()) {
        wait(shared.tile_full[slots.at()], slots.parity());
        TileSlot& slot = shared.tiles[slots.at()];
        const int32_t steps = lanes == 32 ? uniform(slot.tile.steps) : slot.tile.steps;
        if (steps < 0) return;
        take(slot, steps);
        slots.recompute();
        if constexpr (lanes == 32) __syncwarp();
        if (lanes == 1 || read_thread() % 32 == 0) arrive(shared.tile_free[slots.at()]);
    }
}

// Finds tiles, one warp. A barrier counts as complete before its first phase, so that slots are free at first.
__device__ __forceinline__ void scout(const ProductArguments& args, ProductShared& shared) {
    int32_t steps = 0;
    uint32_t index = blockIdx.x / kCluster;
    for (uint32_t number = 0; steps >= 0; number++) {
        const uint32_t slot = number % kTileSlots;
        wait(shared.tile_free[slot], (number / kTileSlots + 1) % 2);
        scout_tile(args, index, shared.tiles[slot]);
        __syncwarp();
        steps = shared.tiles[slot].tile.steps;
        if (threadIdx.x % 32 == 0) arrive(shared.tile_full[slot]);
    }
}

// Calls `load` with each step of each tile and its stage, once it is free. A barrier counts as complete before its first
// phase, so that stages are free at first. A tile takes whole rounds through the ring, so that the consumers' addresses are
// constants; stages that fill up the last round have nothing in them.
template <int lanes, class Load>
__device__ __forceinline__ void each_step(ProductShared& shared, const Load& load) {
    StageRing ring;
    each_tile<lanes>(shared, [&](const TileSlot& slot, int32_t steps) {
        const auto load_step = load(slot);
#pragma unroll 1
        for (int32_t step = 0; step < steps || ring.at() != 0; step++, ring.next()) {
            wait(shared.free[ring.at()], ring.parity() ^ 1);
            if (step < steps)
                load_step(step, ring);
            else
                arrive(shared.full[ring.at()]);
        }
    });
}

// Loads codes of A, one thread.
__device__ __forceinline__ void load_a(const ProductArguments& args, ProductShared& shared) {
    each_step<1>(shared, [&](const TileSlot& slot) {
        const ProductTile& tile = slot.tile;
        return [&, code = tile.a_code, line = tile.a_line, shares = tile.shares_a,
                cut_step = cut_step(tile)](int32_t step, const StageRing& ring) {
            const int stage = int(ring.at());
            Barrier& done = barrier_of_codes(shared, stage, step == cut_step);
            load_lines<kTileRows>(shared.stages[stage].a, args.a_map, shares, done, [&](int32_t at) {
                return Coordinates<2>{code + step * kStepBytes, line + at};
            });
        };
    });
}

// Loads codes of B, one thread.
__device__ __forceinline__ void load_b(const ProductArguments& args, ProductShared& shared) {
    each_step<1>(shared, [&](const TileSlot& slot) {
        const ProductTile& tile = slot.tile;
        return [&, code = tile.b_code, line = tile.b_line, matrix = tile.b_matrix, shares = !tile.shares_a,
                cut_step = cut_step(tile)](int32_t step, const StageRing& ring) {
            const int stage = int(ring.at());
            Barrier& done = barrier_of_codes(shared, stage, step == cut_step);
            load_lines<kTileColumns>(shared.stages[stage].b, args.b_map, shares, done, [&](int32_t at) {
                return Coordinates<3>{code + step * kStepBytes, line + at, matrix};
            });
        };
    });
}

// Sets the words of all rounds to those of a side that has none.
template <Columns columns>
__device__ __forceinline__ void clear_words(ProductShared& shared) {
    const uint32_t of_row = columns == Columns::Marked ? kNoReferences : float_bits(1.0f);
    const uint32_t of_column = has_marks(columns) ? kNoReferences : float_bits(1.0f);
    const int lane = int(threadIdx.x % 32);
    for (int round = 0; round < kWordRounds; round++) {
        for (int row = lane; row < kTileRows; row += 32)
            *reinterpret_cast<uint4*>(shared.row_words[round].of_row[row]) = {of_row, of_row, of_row, of_row};
        for (StageWords& stage : shared.column_words[round])
            for (int column = lane; column < kTileColumns; column += 32) stage.of_column[column] = of_column;
    }
    publish_shared_writes();
    __syncwarp();
}

// Loads the words of a tile's rows and columns, those of a round at once. All lanes of a warp call it.
template <Columns columns>
struct TileWords {
    using OfColumns = std::conditional_t<columns == Columns::Pieces, PieceWords, ColumnWords>;
    const ProductArguments& args;
    LaneWords<kTileRows, kStages> of_rows;
    OfColumns of_columns;
    int32_t line, first;  // of the box
    bool has_columns;

    __device__ __forceinline__ TileWords(const ProductArguments& args, const TileSlot& slot)
        : args(args),
          of_rows(args.a, slot.words.a, slot.words.a_line, slot.tile.rows),
          of_columns(args.b, slot.words.b, slot.words.b_line, slot.tile.columns),
          line(slot.words.a_line),
          first(int32_t(slot.words.a)),
          has_columns(args.b.words && slot.tile.columns > 0 && (!has_marks(columns) || slot.any_marked)) {}
    // `step`: the first of the round; it has `steps` of the tile's.
    __device__ __forceinline__ void load(ProductShared& shared, int32_t step, int32_t steps, uint32_t round) const {
        RoundWords& rows = shared.row_words[round];
        if (args.a.boxed && threadIdx.x % 32 == 0) {
            expect(shared.words_full, sizeof(rows));
            const int32_t at[] = {(first + step) * int32_t(sizeof(uint32_t)), line};
            load_tile(&rows, args.a_words, at, shared.words_full);
        }
#pragma unroll 1
        for (int stage = 0; stage < min(steps, kStages); stage++) {
            const int32_t word = (step + stage) >> args.word_steps_log2;
            if (args.a.words && !args.a.boxed) of_rows.load(word, rows.of_row[0] + stage);
            if (has_columns) of_columns.load(word, shared.column_words[round][stage].of_column);
        }
        arrive_after_copies(shared.words_full);
    }
};

// Loads words, one warp, a round at a time; each lane arrives when its own are there. In a step that is cut it arrives in place
// of the loaders of codes, when those are there.
template <Columns columns>
__device__ __forceinline__ void load_words(const ProductArguments& args, ProductShared& shared) {
    clear_words<columns>(shared);
    uint32_t round = 0, landed = 0;  // landed: a bit for each stage, the parity of the next cut step's codes
    each_tile<32>(shared, [&](const TileSlot& slot, int32_t steps) {
        const TileWords<columns> words(args, slot);
        const int32_t cut = cut_step(slot.tile);
#pragma unroll 1
        for (int32_t step = 0; step < steps; step += kStages, round ^= 1) {
            wait(shared.free[0], round ^ 1);
            words.load(shared, step, steps - step, round);
        }
        if (cut < 0) return;
        const int stage = cut % kStages;
        wait(shared.landed[stage], landed >> stage & 1);
        landed ^= 1u << stage;
        clear_behind<kTileRows + kTileColumns>(shared.stages[stage].a, slot.tile.cut);
        publish_shared_writes();
        __syncwarp();
        if (threadIdx.x % 32 < 2) arrive(shared.full[stage]);
    });
}

}  // namespace mxq::cuda::sm90
