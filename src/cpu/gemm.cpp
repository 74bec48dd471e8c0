// The product on the CPU. D is cut into blocks; a block belongs to one thread, which decodes its rows of A and of B
// (gemm_kernels.h) and keeps the sums in scratch until D is written once. Nothing is shared, so threads meet only at the end.
//
// A product of few rows has blocks of its own: all of its rows times some rows of B (cpu/few_rows.h), in memory that the
// context keeps. The order of summation is the same, so that neither how D is cut nor how many rows there are touches the bits.
//
// Extreme rows of A and B (see gemm_kernels.h) are multiplied again by values, and rows of B that the fast way may not take
// by codes. Products may still be rounded below fp32's normal range. Where that could show in D, in a sum that came out tiny,
// the sum is made again in double precision, where it has no rounding that matters.
#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <vector>

#include "core/error.h"
#include "cpu/engine.h"
#include "cpu/few_rows.h"
#include "cpu/gemm_kernels.h"
#include "cpu/gemm_repair.h"
#include "core/group_view.h"
#include "core/groups.h"
#include "cpu/given_numbers.h"
#include "cpu/implementations.h"
#include "cpu/partition.h"

namespace mxq::cpu {
namespace {

constexpr int64_t kBlockRows = 264, kBlockSums = kBlockRows * 28 * kPanelColumns;
constexpr int64_t kBlockDepth = 4096;         // codes of a pass: a panel of B stays in L2
constexpr int64_t kTilesPerThread = 4;        // for an even end
constexpr int64_t kThreadProducts = 1 << 20;  // multiply-adds that are worth waking a thread

// One product: D rows [d_row, d_row + m) = A B^T.
struct Product {
    OperandLines a, b;
    int64_t k, d_row;
    int64_t group = 0;  // whose bias is added
    int64_t tile_rows = 0, tile_columns = 0, row_tiles = 0, first_tile = 0;

    bool has_few_rows = false;

    int64_t tiles() const { return row_tiles * ceil_div(b.count, tile_columns); }
};

struct Tiling {
    std::vector<Product> products;
    int64_t rows = kBlockRows, columns = kMostRowsOfBlock / kPanelColumns * kPanelColumns;  // of a full block
    int64_t tiles = 0;
};

OperandLines all_lines(const GemmOperand& part) { return {part, 0, part.lines}; }

OperandLines matrix_of(const GemmOperand& operand, int64_t matrix) { return all_lines(part_of_matrix(operand, matrix)); }

// Returns the product of A's rows of a group and the group's matrix of B.
Product product_of_rows(const GemmProblem& problem, const GroupStart& a, int64_t rows, int64_t d_row) {
    const GroupStart start = problem.a.codes ? a : GroupStart{a.index, 0, 0, 0};  // rows without codes may be at NULL
    return {all_lines(part_of_group(problem.a, start, rows)), matrix_of(problem.b, a.index), problem.k, d_row, a.index};
}

// Padding of codes is zeros, but what a Hadamard transform, of sixteens, made of it belongs to the sum. Every alignment has
// room for it. Padding between the rows of a plain operand, which has no transform, is never read.
Product product_of_contraction(const GemmProblem& problem, const GroupStart& a, const GroupStart& b, int64_t rows) {
    const int64_t k = reads_across(problem) ? rows : round_up(rows, kNvBlock);
    return {all_lines(contraction_of_group(problem.a, a, k)), all_lines(contraction_of_group(problem.b, b, k)), k,
            a.index * problem.m};
}

bool changes_d(const GemmProblem& problem, const Product& p) {
    return p.a.count > 0 && p.b.count > 0 && !problem.leaves_d(p.k);
}

// Returns the products that change D. `kernels`: those for few rows, NULL where there are none.
std::vector<Product> products_of(const GemmProblem& problem, const std::vector<Group>& groups, const FewRowsKernels* kernels) {
    std::vector<Product> products;
    const auto add = [&](Product p) {
        p.has_few_rows = kernels && FewRows::takes(p.a, p.b, p.k, *kernels);
        if (changes_d(problem, p)) products.push_back(p);
    };
    if (problem.grouping == Grouping::None) {
        add({matrix_of(problem.a, 0), matrix_of(problem.b, 0), problem.k, 0});
        return products;
    }
    const std::vector<GroupStart> a = group_starts(groups, problem.a.units), b = group_starts(groups, problem.b.units);
    const std::vector<GroupStart> d = group_starts(groups, {problem.d.group_unit, 1});
    products.reserve(groups.size());
    for (size_t g = 0; g < groups.size(); g++)
        add(problem.grouping == Grouping::Rows ? product_of_rows(problem, a[g], groups[g].rows, d[g].codes)
                                               : product_of_contraction(problem, a[g], b[g], groups[g].rows));
    return products;
}

// Zeroes the padding of groups in D; what adds to D leaves it.
void clear_padding(const GemmProblem& problem, const std::vector<Group>& groups) {
    const PlainMatrix& d = problem.d;
    if (problem.grouping != Grouping::Rows || problem.reads_d()) return;
    const std::vector<GroupStart> starts = group_starts(groups, {d.group_unit, 1});
    for (size_t g = 0; g < groups.size(); g++) clear_rows(d, starts[g].codes + groups[g].rows, starts[g + 1].codes);
}

// Cuts products of few rows into tiles of as many bytes of B each, where there are enough for every thread.
void cut_few_rows(std::vector<Product>& products, int64_t enough) {
    constexpr int64_t least = 32;  // lines for which it pays to prepare the rows of A
    int64_t lines = 0;
    for (const Product& p : products) lines += p.has_few_rows ? p.b.count : 0;
    const int64_t even = round_up(ceil_div(lines, enough), kFewColumns);
    for (Product& p : products)
        if (p.has_few_rows) {
            p.row_tiles = 1;
            p.tile_columns = std::min(std::max(even, least), FewRows::most_columns(p.a.count));
        }
}

int64_t count_tiles(Tiling& tiling) {
    tiling.tiles = 0;
    for (Product& p : tiling.products) {
        if (!p.has_few_rows) {
            p.row_tiles = ceil_div(p.a.count, p.b.part.across ? 2 * tiling.rows : tiling.rows);  // takes longer to decode
            p.tile_rows = round_up(ceil_div(p.a.count, p.row_tiles), kGroupRows);
            const int64_t most = std::min(tiling.columns, kBlockSums / p.tile_rows / kPanelColumns * kPanelColumns);
            p.tile_columns = round_up(ceil_div(p.b.count, ceil_div(p.b.count, most)), kPanelColumns);
        }
        p.first_tile = tiling.tiles;
        tiling.tiles += p.tiles();
    }
    return tiling.tiles;
}

// Cuts D into full blocks where there are enough for every thread, else into smaller ones.
Tiling cut(std::vector<Product> products, int64_t threads) {
    const int64_t enough = threads == 1 ? 1 : threads * kTilesPerThread;
    cut_few_rows(products, enough);
    Tiling tiling{std::move(products)};
    while (count_tiles(tiling) < enough) {
        if (tiling.columns >= tiling.rows && tiling.columns > kPanelColumns)
            tiling.columns = round_up(tiling.columns / 2, kPanelColumns);
        else if (tiling.rows > kGroupRows)
            tiling.rows = round_up(tiling.rows / 2, kGroupRows);
        else
            break;
    }
    return tiling;
}

// Returns how many threads the work is worth.
int64_t useful_threads(const std::vector<Product>& products, int64_t n, int64_t threads) {
    double work = 0;
    for (const Product& p : products) work += double(p.a.count) * double(n) * double(p.k);
    return std::clamp(int64_t(std::min(work / kThreadProducts, 1e6)), int64_t(1), threads);
}

// Memory of all threads for blocks, and for the sums and flags of those, allocated before anything is written.
class BlockScratch {
public:
    BlockScratch(int64_t workers, const Tiling& tiling) {
        for (const Product& p : tiling.products) {
            if (p.has_few_rows) continue;
            depth_ = std::max(depth_, std::min(kBlockDepth, round_up(p.k, kGemmDepth)));
            sums_ = std::max(sums_, p.tile_rows * p.tile_columns);
            floats_ = std::max(floats_, floats_of_block(p.tile_rows, p.tile_columns, p.k, kBlockDepth));
        }
        if (sums_ > 0) memory_.reset(static_cast<char*>(::operator new(size_t(workers * bytes()), std::align_val_t(kLine))));
    }

    GemmBlock block(int worker) const {
        char* const memory = memory_.get() + worker * bytes();
        float* const sums = reinterpret_cast<float*>(memory + round_up(floats_ * kFloat, kLine));
        uint8_t* const flags = reinterpret_cast<uint8_t*>(sums + sums_);
        GemmBlock block{};
        block.sums = sums, block.extreme = flags, block.nonzero = flags + kMostRowsOfBlock;
        block.again = flags + 2 * kMostRowsOfBlock;
        block.memory = reinterpret_cast<float*>(memory), block.depth = depth_;
        std::fill_n(flags, 3 * kMostRowsOfBlock, uint8_t(0));
        return block;
    }

private:
    static constexpr int64_t kLine = 64, kFloat = sizeof(float);
    struct Free {
        void operator()(char* memory) const { ::operator delete(memory, std::align_val_t(kLine)); }
    };

    int64_t bytes() const { return round_up((floats_ + sums_) * kFloat + 3 * kMostRowsOfBlock, kLine) + kLine; }

    int64_t depth_ = 0, sums_ = 0, floats_ = 0;
    std::unique_ptr<char, Free> memory_;
};

// Some rows of a block.
struct Indices {
    // Holds those below `count` that are chosen.
    template <class Choose>
    Indices(int64_t count, const Choose& choose) {
        for (int32_t i = 0; i < count; i++)
            if (choose(i)) index[this->count++] = i;
    }

    int32_t index[kMostRowsOfBlock];
    int64_t count = 0;
};

class Run {
public:
    Run(const GemmProblem& problem, const Engine& engine, const Tiling& tiling, int64_t workers, const FewRows& few_rows)
        : problem_(problem),
          kernels_(engine.gemm_kernels()),
          few_rows_(few_rows),
          tiling_(tiling),
          block_scratch_(workers, tiling),
          scratch_(engine.scratch()) {}

    void tile(int64_t index, int worker) const {
        const Product& p = *std::prev(std::upper_bound(tiling_.products.begin(), tiling_.products.end(), index,
                                                       [](int64_t i, const Product& q) { return i < q.first_tile; }));
        const int64_t row = p.has_few_rows ? 0 : (index - p.first_tile) % p.row_tiles * p.tile_rows;
        const int64_t column = (index - p.first_tile) / p.row_tiles * p.tile_columns;
        const OperandLines b = p.b.some(column, std::min(p.tile_columns, p.b.count - column));
        const OperandLines a = p.has_few_rows ? p.a : p.a.some(row, std::min(p.tile_rows, p.a.count - row));
        GemmBlock block = p.has_few_rows ? few_rows(p, b, worker) : block_scratch_.block(worker);
        block.a = &a, block.b = &b, block.k = p.k, block.stride = b.count;
        if (p.k == 0) std::fill_n(block.sums, a.count * block.stride, 0.0f);
        const int64_t most = p.has_few_rows ? kPanelColumns : b.count;
        const Indices all_columns(b.count, [](int32_t) { return true; });
        if (!p.has_few_rows) multiply(block, Indices(a.count, [](int32_t) { return true; }), all_columns, most, Way::fast);
        if (multiply_again(block, all_columns, most) && p.has_few_rows) few_rows_.forget(worker);
        repair(block);
        write(block.sums, block.stride, a.count, b.count, p.d_row + row, column, p.group);
    }

private:
    GemmBlock few_rows(const Product& p, const OperandLines& b, int worker) const {
        FewRowsScratch& scratch = *static_cast<FewRowsScratch*>(scratch_.of(worker));
        few_rows_.multiply(p.first_tile, p.a, b, p.k, worker, scratch);
        GemmBlock block{};
        block.sums = scratch.sums, block.extreme = scratch.extreme, block.nonzero = scratch.nonzero;
        block.again = scratch.again, block.memory = scratch.memory, block.depth = FewRowsScratch::depth;
        return block;
    }

    // Multiplies some rows, as many of B at a time as there is memory for.
    void multiply(GemmBlock block, const Indices& rows, const Indices& columns, int64_t most, Way way) const {
        block.rows = rows.index, block.row_count = rows.count;
        for (int64_t at = 0; rows.count > 0 && at < columns.count; at += most) {
            block.columns = columns.index + at, block.column_count = std::min(most, columns.count - at);
            kernels_.multiply(block, way);
        }
    }

    // Multiplies extreme rows of A, and rows of B that were not multiplied. Returns whether there were any.
    bool multiply_again(const GemmBlock& block, const Indices& all_columns, int64_t most) const {
        const Indices extreme(block.a->count, [&](int32_t i) { return block.extreme[i] != 0; });
        const Indices again(block.b->count, [&](int32_t j) { return block.again[j] != 0; });
        if (extreme.count + again.count == 0) return false;
        if (again.count > 0) {
            const auto is_safe = [&](int32_t j) { return kernels_.is_safe(block.b->some(j, 1), block.k); };
            const Indices rows(block.a->count, [&](int32_t i) { return !block.extreme[i]; });
            const Indices codes(block.b->count, [&](int32_t j) { return block.again[j] && is_safe(j); });
            multiply(block, rows, codes, most, Way::codes);
            const Indices values(block.b->count, [&](int32_t j) { return block.again[j] && !is_safe(j); });
            multiply(block, rows, values, most, Way::values);
        }
        multiply(block, extreme, all_columns, most, Way::values);
        return true;
    }

    // Returns whether the next thing that happens to a sum is a rounding to 16 bits.
    bool is_rounded_next() const { return problem_.d.format != MXQ_FORMAT_F32 && problem_.is_sum_alone(); }

    // Returns whether a row of B has a value out of the range in which products are exact. NVFP4's global scale and FP8's scale
    // of a K-major row, which multiply sums, count as 1.
    bool is_extreme(const OperandLines& line, int64_t k) const {
        const GemmOperand& part = line.part;
        const bool has_blocks = part.scale_type != ScaleType::None && !part.across;
        if (part.scale_type == ScaleType::E4M3 || (has_blocks && kernels_.is_safe(line, k))) return false;
        float values[kGemmDepth];
        bool is = false;
        for (int64_t at = 0; at < k; at += kGemmDepth) is |= kernels_.read(line, at, std::min(kGemmDepth, k - at), values);
        return is;
    }

    // Makes tiny sums of extreme rows again, and those that left fp32's range before B's scale of a row or matrix brought
    // them back. A row of zeros needs none, whatever it is multiplied with.
    void repair(const GemmBlock& block) const {
        enum : uint8_t { unknown, safe, extreme };
        const OperandLines &a = *block.a, &b = *block.b;
        const bool scaled_last = b.part.scale_type == ScaleType::E4M3 || b.part.scale_type == ScaleType::F32;
        std::fill_n(block.again, b.count, uint8_t(unknown));
        for (int64_t i = 0; i < a.count; i++) {
            if (!block.nonzero[i] || !has_tiny(block.sums + i * block.stride, b.count, scaled_last)) continue;
            for (int64_t j = 0; j < b.count; j++) {
                float& sum = block.sums[i * block.stride + j];
                if (!is_tiny(sum) && !(scaled_last && !std::isfinite(sum))) continue;
                uint8_t& line = block.again[j];
                if (line == unknown) line = is_extreme(b.some(j, 1), block.k) ? extreme : safe;
                if (block.extreme[i] || line == extreme)
                    sum = sum_again(kernels_, a.some(i, 1), b.some(j, 1), block.k, is_rounded_next());
            }
        }
    }

    void write(const float* sums, int64_t stride, int64_t rows, int64_t columns, int64_t d_row, int64_t d_column,
               int64_t group) const {
        const PlainMatrix& d = problem_.d;
        const Finish finish{problem_.alpha, problem_.beta, d.format, problem_.bias.format};
        const void* const bias = numbers_from(problem_.bias, group * problem_.n + d_column).values;
        for (int64_t i = 0; i < rows; i++)
            kernels_.store(sums + i * stride, columns, finish, bias, element_address(d, 0, d_row + i, d_column));
    }

    const GemmProblem& problem_;
    const GemmKernels& kernels_;
    const FewRows& few_rows_;
    const Tiling& tiling_;
    const BlockScratch block_scratch_;
    const Scratch scratch_;
};

Reason declines(const Context& context, const GemmProblem& p) {
    return context.is_cpu() ? needs_no_limit(p) : needs_cpu(context, p);
}

void run(const Context& context, const GemmProblem& problem, const Launch&) {
    std::vector<Group> groups;
    const GroupedRows grouped{problem.groups, problem.group_rows};
    if (problem.grouping != Grouping::None) groups = read_groups(grouped, "a");
    require_decodable(problem.a, grouped, "a");
    require_decodable(problem.b, problem.grouping == Grouping::Contraction ? grouped : GroupedRows{}, "b");
    const Engine& engine = *context.cpu;
    std::vector<Product> products = products_of(problem, groups, engine.few_rows_kernels());
    if (products.empty()) return clear_padding(problem, groups);
    ThreadPool& pool = engine.pool();
    const int64_t threads = useful_threads(products, problem.n, pool.threads());
    const Tiling tiling = cut(std::move(products), threads);
    const int64_t workers = threads == 1 ? 1 : pool.threads();
    const FewRows few_rows(engine.few_rows_kernels(), workers);
    const Run job(problem, engine, tiling, workers, few_rows);
    clear_padding(problem, groups);
    if (threads > 1)
        pool.run(tiling.tiles, [&](int64_t tile, int worker) { job.tile(tile, worker); });
    else
        pool.run(1, [&](int64_t, int worker) {
            for (int64_t tile = 0; tile < tiling.tiles; tile++) job.tile(tile, worker);
        });
}

int32_t bound(const Context&, const GemmProblem&) { return MXQ_BOUND_EXACT_PRODUCTS; }

}  // namespace

const GemmImplementation gemm = {
    .name = "cpu", .declines = declines, .run = run, .bound = bound, .reads = Addresses::Listed, .reads_across = true,
    .keeps_rows = keeps_all_rows};

}  // namespace mxq::cpu
