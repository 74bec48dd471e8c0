// The product on the CPU. D is cut into tiles; a tile belongs to one thread, which decodes its rows of A and its rows of B
// to fp32, kGemmDepth of the contraction at a time, and keeps the sums in scratch until D is written once:
//
//     scratch of a thread:   rows     tile rows    x kGemmDepth   (half of a usual L2)
//                            columns  tile columns x kGemmDepth
//                            sums     tile rows    x tile columns
//
// Nothing is shared, so threads meet only at the end. How D is cut does not touch the bits.
//
// A product of few rows has tiles of its own: all of its rows times some rows of B (cpu/few_rows.h), in memory that the
// context keeps. Many products of more rows are cut into such products (FewRows::rows_of_cut). Their order of summation is
// another one. So the choice depends on the operands alone, not on threads or the instruction set.
//
// Products of extreme K-major rows (see gemm_kernels.h) may be rounded below fp32's normal range. Where that could show in
// D, in a sum that came out tiny, the sum is made again in double precision, where it has no rounding that matters.
#include <algorithm>
#include <cmath>
#include <cstring>
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

namespace mxq::cpu {
namespace {

constexpr int64_t kTileRows = 192, kTileColumns = 480;  // multiples of every register tile
constexpr int64_t kTilesPerThread = 4;                  // for an even end
constexpr int64_t kThreadProducts = 1 << 20;            // multiply-adds that are worth waking a thread

// One product: D rows [d_row, d_row + m) = A B^T.
struct Product {
    OperandLines a, b;
    int64_t k, d_row;
    int64_t group = 0;  // whose bias is added
    int64_t tile_rows = 0, tile_columns = 0, row_tiles = 0, first_tile = 0;

    bool has_few_rows() const { return a.count <= kFewRows && !a.part.across && !b.part.across; }
    int64_t tiles() const { return row_tiles * ceil_div(b.count, tile_columns); }
};

struct Tiling {
    std::vector<Product> products;
    int64_t rows = 0, columns = 0;  // of a full tile of products with more than few rows; 0: there are none
    int64_t tiles = 0;
};

OperandLines all_lines(const GemmOperand& part) { return {part, 0, part.lines}; }

OperandLines matrix_of(const GemmOperand& operand, int64_t matrix) { return all_lines(part_of_matrix(operand, matrix)); }

// Returns the product of A's rows of a group and the group's matrix of B.
Product product_of_rows(const GemmProblem& problem, const GroupStart& a, int64_t rows, int64_t d_row) {
    return {all_lines(part_of_group(problem.a, a, rows)), matrix_of(problem.b, a.index), problem.k, d_row, a.index};
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

// Adds a product, cut into products of few rows where those take less time.
void add_cut(const Product& p, std::vector<Product>& products) {
    const int64_t rows = FewRows::rows_of_cut(p.a, p.b, p.k);
    for (int64_t row = 0; row < p.a.count; row += rows) {
        Product some = p;
        some.a = p.a.some(row, std::min(rows, p.a.count - row));
        some.d_row += row;
        products.push_back(some);
    }
}

// Returns the products that change D.
std::vector<Product> products_of(const GemmProblem& problem, const std::vector<Group>& groups) {
    std::vector<Product> products;
    const auto add = [&](const Product& p) {
        if (!changes_d(problem, p)) return;
        problem.grouping == Grouping::Contraction ? products.push_back(p) : add_cut(p, products);
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
    const int64_t bytes = find_format(d.format)->bits / 8;
    const std::vector<GroupStart> starts = group_starts(groups, {d.group_unit, 1});
    for (size_t g = 0; g < groups.size(); g++)
        for (int64_t row = starts[g].codes + groups[g].rows; row < starts[g + 1].codes; row++)
            std::memset(static_cast<char*>(d.data) + row * d.row_stride * bytes, 0, size_t(d.cols * bytes));
}

// Cuts products of few rows into tiles of as many bytes of B each, where there are enough for every thread.
void cut_few_rows(std::vector<Product>& products, int64_t enough) {
    constexpr int64_t least = 32;  // lines for which it pays to prepare the rows of A
    int64_t lines = 0;
    for (const Product& p : products) lines += p.has_few_rows() ? p.b.count : 0;
    const int64_t even = round_up(ceil_div(lines, enough), kFewColumns);
    for (Product& p : products)
        if (p.has_few_rows()) {
            p.row_tiles = 1;
            p.tile_columns = std::min(std::max(even, least), FewRows::most_columns(p.a.count));
        }
}

int64_t count_tiles(Tiling& tiling, int64_t multiple) {
    tiling.tiles = 0;
    for (Product& p : tiling.products) {
        if (!p.has_few_rows()) {
            p.row_tiles = ceil_div(p.a.count, tiling.rows);
            p.tile_rows = round_up(ceil_div(p.a.count, p.row_tiles), multiple);
            p.tile_columns = tiling.columns;
        }
        p.first_tile = tiling.tiles;
        tiling.tiles += p.tiles();
    }
    return tiling.tiles;
}

// Cuts D into full tiles where there are enough for every thread, else into smaller ones.
Tiling cut(std::vector<Product> products, int64_t n, int64_t threads, const GemmKernels& kernels) {
    int64_t longest = 0;
    for (const Product& p : products)
        if (!p.has_few_rows()) longest = std::max(longest, p.a.count);
    const int64_t enough = threads == 1 ? 1 : threads * kTilesPerThread;
    cut_few_rows(products, enough);
    Tiling tiling{std::move(products)};
    if (longest > 0) {
        tiling.rows = std::min(kTileRows, round_up(longest, kernels.rows));
        tiling.columns = round_up(ceil_div(n, ceil_div(n, kTileColumns)), kernels.columns);
    }
    while (count_tiles(tiling, kernels.rows) < enough) {
        if (tiling.columns >= tiling.rows && tiling.columns > kernels.columns)
            tiling.columns = round_up(tiling.columns / 2, kernels.columns);
        else if (tiling.rows > kernels.rows)
            tiling.rows = round_up(tiling.rows / 2, kernels.rows);
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

// Memory of all threads, in one block that is allocated before anything is written.
class TileScratch {
public:
    TileScratch(int64_t workers, int64_t rows, int64_t columns)
        : rows_(rows),
          columns_(columns),
          memory_(static_cast<char*>(::operator new(workers* bytes(), std::align_val_t(kLine)))) {}

    GemmBlock block(int worker) const {
        float* sums = reinterpret_cast<float*>(memory_.get() + worker * bytes());
        float* rows = sums + rows_ * columns_;
        return {rows, rows + rows_ * kGemmDepth, sums, 0, 0, columns_};
    }
    uint8_t* extreme(int worker) const {
        return reinterpret_cast<uint8_t*>(memory_.get() + (worker + 1) * bytes() - flag_bytes());
    }

private:
    static constexpr int64_t kLine = 64;
    struct Free {
        void operator()(char* memory) const { ::operator delete(memory, std::align_val_t(kLine)); }
    };

    int64_t flag_bytes() const { return round_up(rows_ + columns_, kLine); }
    int64_t bytes() const {
        const int64_t floats = rows_ * columns_ + (rows_ + columns_) * kGemmDepth;
        return round_up(floats * int64_t(sizeof(float)), kLine) + flag_bytes();
    }

    int64_t rows_, columns_;
    std::unique_ptr<char, Free> memory_;
};

class Run {
public:
    Run(const GemmProblem& problem, const Engine& engine, const Tiling& tiling, int64_t workers, const FewRows& few_rows)
        : problem_(problem),
          kernels_(engine.gemm_kernels()),
          few_rows_(few_rows),
          tiling_(tiling),
          tile_scratch_(tiling.rows ? workers : 0, tiling.rows, tiling.columns),
          scratch_(engine.scratch()) {}

    void tile(int64_t index, int worker) const {
        const Product& p = *std::prev(std::upper_bound(tiling_.products.begin(), tiling_.products.end(), index,
                                                       [](int64_t i, const Product& q) { return i < q.first_tile; }));
        const int64_t row = (index - p.first_tile) % p.row_tiles * p.tile_rows;
        const int64_t column = (index - p.first_tile) / p.row_tiles * p.tile_columns;
        const OperandLines b = p.b.some(column, std::min(p.tile_columns, p.b.count - column));
        if (p.has_few_rows()) return few_rows(p, b, column, worker);
        const OperandLines a = p.a.some(row, std::min(p.tile_rows, p.a.count - row));

        const GemmBlock block = tile_scratch_.block(worker);
        uint8_t* extreme = tile_scratch_.extreme(worker);
        if (multiply(a, b, p.k, block, extreme)) repair(a, b, p.k, block, extreme);
        write(block.sums, block.stride, a.count, b.count, p.d_row + row, column, p.group);
    }

private:
    void few_rows(const Product& p, const OperandLines& b, int64_t column, int worker) const {
        FewRowsScratch& scratch = *static_cast<FewRowsScratch*>(scratch_.of(worker));
        few_rows_.multiply(p.first_tile, p.a, b, p.k, is_rounded_next(), worker, scratch);
        write(scratch.sums, b.count, p.a.count, b.count, p.d_row, column, p.group);
    }

    // Returns whether the next thing that happens to a sum is a rounding to 16 bits.
    bool is_rounded_next() const { return problem_.d.format != MXQ_FORMAT_F32 && problem_.is_sum_alone(); }

    // Fills the sums. Returns whether a K-major row is extreme.
    bool multiply(const OperandLines& a, const OperandLines& b, int64_t k, GemmBlock block, uint8_t* extreme) const {
        block.row_count = round_up(a.count, kernels_.rows);
        block.column_count = round_up(b.count, kernels_.columns);
        std::fill_n(extreme, block.row_count + block.column_count, uint8_t(0));
        if (k == 0) std::fill_n(block.sums, block.row_count * block.stride, 0.0f);
        const bool exact = are_exact(a.part, b.part);
        bool any = false;
        for (int64_t at = 0; at < k; at += kGemmDepth) {
            const int64_t depth = std::min(kGemmDepth, k - at);
            any |= kernels_.decode_rows(a, at, depth, block.rows, extreme);
            any |= kernels_.decode_columns(b, at, depth, block.columns, extreme + block.row_count);
            kernels_.multiply(block, depth, at == 0, exact && !any);
        }
        return any;
    }

    // Makes tiny sums of extreme K-major rows again.
    void repair(const OperandLines& a, const OperandLines& b, int64_t k, const GemmBlock& block,
                const uint8_t* extreme) const {
        const uint8_t* extreme_columns = extreme + round_up(a.count, kernels_.rows);
        for (int64_t i = 0; i < a.count; i++)
            for (int64_t j = 0; j < b.count; j++) {
                float& sum = block.sums[i * block.stride + j];
                if ((extreme[i] || extreme_columns[j]) && is_tiny(sum))
                    sum = sum_again(kernels_, a.some(i, 1), b.some(j, 1), k, is_rounded_next(), block.rows);
            }
    }

    void write(const float* sums, int64_t stride, int64_t rows, int64_t columns, int64_t d_row, int64_t d_column,
               int64_t group) const {
        const PlainMatrix& d = problem_.d;
        const Finish finish{problem_.alpha, problem_.beta, d.format, problem_.bias.format};
        const char* bias = static_cast<const char*>(problem_.bias.values);
        if (bias) bias += (group * problem_.n + d_column) * bytes_of(problem_.bias.format);
        const int64_t element_bytes = bytes_of(d.format);
        for (int64_t i = 0; i < rows; i++) {
            char* const to = static_cast<char*>(d.data) + ((d_row + i) * d.row_stride + d_column) * element_bytes;
            kernels_.store(sums + i * stride, columns, finish, bias, to);
        }
    }

    static int64_t bytes_of(int32_t format) { return find_format(format)->bits / 8; }

    const GemmProblem& problem_;
    const GemmKernels& kernels_;
    const FewRows& few_rows_;
    const Tiling& tiling_;
    const TileScratch tile_scratch_;
    const Scratch scratch_;
};

Reason declines(const Context& context, const GemmProblem& p) {
    if (!context.is_cpu()) return "needs a CPU context, found a CUDA one";
    return needs_no_limit(p);
}

void run(const Context& context, const GemmProblem& problem, const Launch&) {
    std::vector<Group> groups;
    const GroupedRows grouped{problem.groups, problem.group_rows};
    if (problem.grouping != Grouping::None) groups = read_groups(grouped, "a");
    require_decodable(problem.a, grouped, "a");
    require_decodable(problem.b, problem.grouping == Grouping::Contraction ? grouped : GroupedRows{}, "b");
    std::vector<Product> products = products_of(problem, groups);
    if (products.empty()) return clear_padding(problem, groups);
    const Engine& engine = *context.cpu;
    ThreadPool& pool = engine.pool();
    const int64_t threads = useful_threads(products, problem.n, pool.threads());
    const Tiling tiling = cut(std::move(products), problem.n, threads, engine.gemm_kernels());
    const int64_t workers = threads == 1 ? 1 : pool.threads();
    const FewRows few_rows(engine.few_rows_kernels(), engine.gemm_kernels(), workers);
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
    .name = "cpu", .declines = declines, .run = run, .bound = bound, .reads = Addresses::Listed, .reads_across = true};

}  // namespace mxq::cpu
