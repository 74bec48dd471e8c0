// The product on the CPU. D is cut into tiles; a tile belongs to one thread, which decodes its rows of A and its lines of B
// to fp32, kGemmDepth of the contraction at a time, and keeps the sums in scratch until D is written once:
//
//     scratch of a thread:   rows     tile rows    x kGemmDepth   (half of a usual L2)
//                            columns  tile columns x kGemmDepth
//                            sums     tile rows    x tile columns
//
// Nothing is shared, so threads meet only at the end. How D is cut does not touch the bits.
//
// Products of extreme lines (see gemm_kernels.h) may be rounded below fp32's normal range. Where that could show in D, in
// a sum that came out tiny, the sum is made again in double precision, where it has no rounding that matters.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "core/error.h"
#include "cpu/engine.h"
#include "cpu/gemm_kernels.h"
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
    int64_t tile_rows = 0, row_tiles = 0, first_tile = 0;
};

struct Tiling {
    std::vector<Product> products;
    int64_t rows, columns;  // of a full tile
    int64_t column_tiles, tiles;
};

OperandLines all_lines(const QuantizedPart& part) { return {part, 0, part.lines}; }

OperandLines matrix_of(const GemmOperand& operand, int64_t matrix) { return all_lines(part_of_matrix(operand, matrix)); }

// Returns the product of A's rows of a group and the group's matrix of B.
Product product_of_rows(const GemmProblem& problem, const GroupStart& a, int64_t rows, int64_t d_row) {
    return {all_lines(part_of_group(problem.a, a, rows)), matrix_of(problem.b, a.index), problem.k, d_row, a.index};
}

// Padding is zeros, but what a Hadamard transform, of sixteens, made of it belongs to the sum. Every alignment has room for
// it.
Product product_of_contraction(const GemmProblem& problem, const GroupStart& a, const GroupStart& b, int64_t rows) {
    const int64_t k = round_up(rows, kNvBlock);
    return {all_lines(part_of_group(problem.a, a, k)), all_lines(part_of_group(problem.b, b, k)), k, a.index * problem.m};
}

bool changes_d(const GemmProblem& problem, const Product& p) {
    return p.a.count > 0 && p.b.count > 0 && !problem.leaves_d(p.k);
}

// Returns the products that change D.
std::vector<Product> products_of(const GemmProblem& problem, const std::vector<Group>& groups) {
    std::vector<Product> products;
    const auto add = [&](const Product& p) {
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
    const int64_t bytes = find_format(d.format)->bits / 8;
    const std::vector<GroupStart> starts = group_starts(groups, {d.group_unit, 1});
    for (size_t g = 0; g < groups.size(); g++)
        for (int64_t row = starts[g].codes + groups[g].rows; row < starts[g + 1].codes; row++)
            std::memset(static_cast<char*>(d.data) + row * d.row_stride * bytes, 0, size_t(d.cols * bytes));
}

int64_t count_tiles(Tiling& tiling, int64_t n, int64_t multiple) {
    tiling.column_tiles = ceil_div(n, tiling.columns);
    tiling.tiles = 0;
    for (Product& p : tiling.products) {
        p.row_tiles = ceil_div(p.a.count, tiling.rows);
        p.tile_rows = round_up(ceil_div(p.a.count, p.row_tiles), multiple);
        p.first_tile = tiling.tiles;
        tiling.tiles += p.row_tiles * tiling.column_tiles;
    }
    return tiling.tiles;
}

// Cuts D into full tiles where there are enough for every thread, else into smaller ones.
Tiling cut(std::vector<Product> products, int64_t n, int64_t threads, const GemmKernels& kernels) {
    int64_t longest = 0;
    for (const Product& p : products) longest = std::max(longest, p.a.count);
    Tiling tiling{std::move(products), std::min(kTileRows, round_up(longest, kernels.rows)), 0, 0, 0};
    const int64_t column_tiles = ceil_div(n, kTileColumns);
    tiling.columns = round_up(ceil_div(n, column_tiles), kernels.columns);
    const int64_t enough = threads == 1 ? 1 : threads * kTilesPerThread;
    while (count_tiles(tiling, n, kernels.rows) < enough) {
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

// Memory of all threads, in one piece that is allocated before anything is written.
class Scratch {
public:
    Scratch(int64_t workers, int64_t rows, int64_t columns)
        : rows_(rows), columns_(columns),
          memory_(static_cast<char*>(::operator new(workers * bytes(), std::align_val_t(kLine)))) {}

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

// Returns how many significant bits values have: products of 24 and fewer are exact in fp32.
int significant_bits(const QuantizedPart& part) {
    constexpr int of_bf16 = 8, of_f16 = 11, of_fp32 = 24;
    if (part.element == Element::Bf16) return of_bf16;
    if (part.element == Element::F16) return of_f16;
    if (part.scale_type != ScaleType::E8M0) return of_fp32;
    return with_element(part.element, []<class E>(E) { return E::mantissa_bits + 1; });
}

// Rounds to fp32 before a rounding to 16 bits, which then is as if from the double: inexact values get an odd last bit.
float round_to_odd(double value) {
    const float nearest = float(value);
    if (double(nearest) == value) return nearest;
    const bool away = std::abs(double(nearest)) > std::abs(value);
    return bits_float((float_bits(nearest) - away) | 1);
}

class Run {
public:
    Run(const GemmProblem& problem, const GemmKernels& kernels, const Tiling& tiling, const Scratch& scratch)
        : problem_(problem), kernels_(kernels), tiling_(tiling), scratch_(scratch) {}

    void tile(int64_t index, int worker) const {
        const Product& p = *std::prev(std::upper_bound(tiling_.products.begin(), tiling_.products.end(), index,
                                                       [](int64_t i, const Product& q) { return i < q.first_tile; }));
        const int64_t row = (index - p.first_tile) % p.row_tiles * p.tile_rows;
        const int64_t column = (index - p.first_tile) / p.row_tiles * tiling_.columns;
        const OperandLines a = p.a.some(row, std::min(p.tile_rows, p.a.count - row));
        const OperandLines b = p.b.some(column, std::min(tiling_.columns, p.b.count - column));

        const GemmBlock block = scratch_.block(worker);
        uint8_t* extreme = scratch_.extreme(worker);
        if (multiply(a, b, p.k, block, extreme)) repair(a, b, p.k, block, extreme);
        write(block, a.count, b.count, p.d_row + row, column, p.group);
    }

private:
    // Fills the sums. Returns whether a line is extreme.
    bool multiply(const OperandLines& a, const OperandLines& b, int64_t k, GemmBlock block, uint8_t* extreme) const {
        block.row_count = round_up(a.count, kernels_.rows);
        block.column_count = round_up(b.count, kernels_.columns);
        std::fill_n(extreme, block.row_count + block.column_count, uint8_t(0));
        if (k == 0) std::fill_n(block.sums, block.row_count * block.stride, 0.0f);
        const bool exact = significant_bits(a.part) + significant_bits(b.part) <= 24;
        bool any = false;
        for (int64_t at = 0; at < k; at += kGemmDepth) {
            const int64_t depth = std::min(kGemmDepth, k - at);
            any |= kernels_.decode_rows(a, at, depth, block.rows, extreme);
            any |= kernels_.decode_columns(b, at, depth, block.columns, extreme + block.row_count);
            kernels_.multiply(block, depth, at == 0, exact && !any);
        }
        return any;
    }

    // Makes tiny sums of extreme lines again. At 2^-90 and above the bound's (K + 1) 2^-24 |a||b| covers the roundings at
    // 2^-150 of any K.
    void repair(const OperandLines& a, const OperandLines& b, int64_t k, const GemmBlock& block,
                const uint8_t* extreme) const {
        const uint8_t* extreme_columns = extreme + round_up(a.count, kernels_.rows);
        for (int64_t i = 0; i < a.count; i++)
            for (int64_t j = 0; j < b.count; j++) {
                float& sum = block.sums[i * block.stride + j];
                if ((extreme[i] || extreme_columns[j]) && std::abs(sum) < 0x1p-90f)
                    sum = sum_again(a.some(i, 1), b.some(j, 1), k, block);
            }
    }

    // Returns the sum of one line of A and one of B once more, in double. Uses the block's room for values.
    float sum_again(const OperandLines& a, const OperandLines& b, int64_t k, const GemmBlock& block) const {
        double sum = 0;
        for (int64_t at = 0; at < k; at += kGemmDepth) {
            const int64_t depth = std::min(kGemmDepth, k - at);
            uint8_t extreme;
            kernels_.decode_rows(a, at, depth, block.rows, &extreme);
            kernels_.decode_rows(b, at, depth, block.columns, &extreme);
            for (int64_t l = 0; l < depth; l++) sum += double(block.rows[l]) * double(block.columns[l]);
        }
        const bool rounded_next = problem_.d.format != MXQ_FORMAT_F32 && problem_.is_sum_alone();
        return rounded_next ? round_to_odd(sum) : float(sum);
    }

    void write(const GemmBlock& block, int64_t rows, int64_t columns, int64_t d_row, int64_t d_column, int64_t group) const {
        const PlainMatrix& d = problem_.d;
        const Finish finish{problem_.alpha, problem_.beta, d.format, problem_.bias.format};
        const char* bias = static_cast<const char*>(problem_.bias.values);
        if (bias) bias += (group * problem_.n + d_column) * bytes_of(problem_.bias.format);
        const int64_t element_bytes = bytes_of(d.format);
        for (int64_t i = 0; i < rows; i++) {
            char* const to = static_cast<char*>(d.data) + ((d_row + i) * d.row_stride + d_column) * element_bytes;
            kernels_.store(block.sums + i * block.stride, columns, finish, bias, to);
        }
    }

    static int64_t bytes_of(int32_t format) { return find_format(format)->bits / 8; }

    const GemmProblem& problem_;
    const GemmKernels& kernels_;
    const Tiling& tiling_;
    const Scratch& scratch_;
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
    const GemmKernels& kernels = context.cpu->gemm_kernels();
    ThreadPool& pool = context.cpu->pool();
    const int64_t threads = useful_threads(products, problem.n, pool.threads());
    const Tiling tiling = cut(std::move(products), problem.n, threads, kernels);
    const Scratch scratch(threads == 1 ? 1 : pool.threads(), tiling.rows, tiling.columns);
    const Run job(problem, kernels, tiling, scratch);
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
    .name = "cpu", .declines = declines, .run = run, .bound = bound, .reads = Addresses::Listed};

}  // namespace mxq::cpu
