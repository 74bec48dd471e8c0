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
#include <memory>
#include <new>
#include <vector>

#include "core/error.h"
#include "cpu/engine.h"
#include "cpu/gemm_kernels.h"
#include "cpu/implementations.h"
#include "numerics/e8m0.h"

namespace mxq::cpu {
namespace {

constexpr int64_t kTileRows = 192, kTileColumns = 480;  // multiples of every register tile
constexpr int64_t kTilesPerThread = 4;                  // for an even end
constexpr int64_t kThreadProducts = 1 << 20;            // multiply-adds that are worth waking a thread

// One product: D rows [d_row, d_row + m) = A B^T.
struct Product {
    OperandLines a, b;
    int64_t k, d_row;
    int64_t tile_rows = 0, row_tiles = 0, first_tile = 0;
};

struct Tiling {
    std::vector<Product> products;
    int64_t rows, columns;  // of a full tile
    int64_t column_tiles, tiles;
};

int64_t read_end(const Groups& groups, int64_t index) {
    return groups.type == MXQ_TYPE_INT32 ? static_cast<const int32_t*>(groups.ends)[index]
                                         : static_cast<const int64_t*>(groups.ends)[index];
}

void check_ends(const GemmProblem& problem) {
    int64_t before = 0;
    for (int64_t g = 0; g < problem.groups.count; g++) {
        const int64_t end = read_end(problem.groups, g);
        if (end < before)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "a.ends[%lld] is %lld, expected at least %lld (ends may not decrease)",
                 (long long)g, (long long)end, (long long)before);
        if (end > problem.group_rows)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "a.ends[%lld] is %lld, expected at most %lld (a's rows)", (long long)g,
                 (long long)end, (long long)problem.group_rows);
        before = end;
    }
}

OperandLines lines_of(const GemmOperand& operand, int64_t count) {
    return {operand.codes, operand.scales, operand.length, operand.layout, 0, count};
}

OperandLines matrix_of(const GemmOperand& operand, int64_t matrix, int64_t count) {
    OperandLines lines = lines_of(operand, count);
    lines.codes += matrix * operand.lines * operand.length;
    lines.scales += matrix * operand.layout.matrix_bytes;
    return lines;
}

OperandLines group_of_rows(const GemmOperand& operand, const GroupStart& start, int64_t count) {
    OperandLines lines = lines_of(operand, count);
    lines.codes += start.row * operand.length;
    lines.scales += group_of_rows_offset(operand.layout, start);
    return lines;
}

OperandLines group_of_contraction(const GemmOperand& operand, const GroupStart& start, int64_t k) {
    OperandLines lines = lines_of(operand, operand.lines);
    lines.codes += start.tiles * kMxBlock;
    lines.scales += group_of_contraction_offset(operand.layout, operand.lines, start);
    if (lines.layout.swizzled) lines.layout.columns = ceil_div(k, kMxBlock);
    return lines;
}

Product product_of_group(const GemmProblem& problem, int64_t g, const GroupStart& start, int64_t rows) {
    if (problem.grouping == Grouping::Rows)
        return {group_of_rows(problem.a, start, rows), matrix_of(problem.b, g, problem.n), problem.k, start.row};
    return {group_of_contraction(problem.a, start, rows), group_of_contraction(problem.b, start, rows), rows,
            g * problem.m};
}

// Those that change D.
std::vector<Product> products_of(const GemmProblem& problem) {
    std::vector<Product> products;
    const auto add = [&](const Product& p) {
        const bool nothing_to_add = problem.accumulate && p.k == 0;
        if (p.a.count > 0 && p.b.count > 0 && !nothing_to_add) products.push_back(p);
    };
    if (problem.grouping == Grouping::None) {
        add({matrix_of(problem.a, 0, problem.m), matrix_of(problem.b, 0, problem.n), problem.k, 0});
        return products;
    }
    check_ends(problem);
    products.reserve(problem.groups.count);
    GroupStart start{};
    for (int64_t g = 0; g < problem.groups.count; g++) {
        const int64_t rows = read_end(problem.groups, g) - start.row;
        add(product_of_group(problem, g, start, rows));
        start.skip(rows);
    }
    return products;
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

// Full tiles where there are enough for every thread, else smaller ones.
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

// How many threads the work is worth.
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

float decode_one(const OperandLines& lines, int32_t format, int64_t line, int64_t k) {
    const int64_t row = lines.first + line;
    const uint32_t code = lines.codes[row * lines.stride + k];
    const float scale = scale_value(lines.scales[lines.layout.offset(0, row, k / kMxBlock)]);
    return format == MXQ_FORMAT_MXFP8_E4M3 ? dequantize_element<E4M3>(code, scale) : dequantize_element<E5M2>(code, scale);
}

// To fp32 for a later rounding to 16 bits, which then rounds as if from the double: inexact values get an odd last bit.
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
        const OperandLines a = p.a.part(row, std::min(p.tile_rows, p.a.count - row));
        const OperandLines b = p.b.part(column, std::min(tiling_.columns, p.b.count - column));

        const GemmBlock block = scratch_.block(worker);
        uint8_t* extreme = scratch_.extreme(worker);
        if (multiply(a, b, p.k, block, extreme)) repair(a, b, p.k, block, extreme);
        write(block, a.count, b.count, p.d_row + row, column);
    }

private:
    // Fills the sums. Returns whether a line is extreme.
    bool multiply(const OperandLines& a, const OperandLines& b, int64_t k, GemmBlock block, uint8_t* extreme) const {
        block.row_count = round_up(a.count, kernels_.rows);
        block.column_count = round_up(b.count, kernels_.columns);
        std::fill_n(extreme, block.row_count + block.column_count, uint8_t(0));
        if (k == 0) std::fill_n(block.sums, block.row_count * block.stride, 0.0f);
        bool any = false;
        for (int64_t at = 0; at < k; at += kGemmDepth) {
            const int64_t depth = std::min(kGemmDepth, k - at);
            any |= decoder(problem_.a).rows(a, at, depth, block.rows, extreme);
            any |= decoder(problem_.b).columns(b, at, depth, block.columns, extreme + block.row_count);
            kernels_.multiply(block, depth, at == 0, !any);
        }
        return any;
    }

    const DecodeKernels& decoder(const GemmOperand& operand) const {
        return operand.format == MXQ_FORMAT_MXFP8_E4M3 ? kernels_.e4m3 : kernels_.e5m2;
    }

    // Makes tiny sums of extreme lines again. At 2^-90 and above the bound's (K + 1) 2^-24 |a||b| covers the roundings at
    // 2^-150 of any K.
    void repair(const OperandLines& a, const OperandLines& b, int64_t k, const GemmBlock& block,
                const uint8_t* extreme) const {
        const uint8_t* extreme_columns = extreme + round_up(a.count, kernels_.rows);
        for (int64_t i = 0; i < a.count; i++)
            for (int64_t j = 0; j < b.count; j++) {
                float& sum = block.sums[i * block.stride + j];
                if ((extreme[i] || extreme_columns[j]) && std::abs(sum) < 0x1p-90f) sum = sum_again(a, i, b, j, k);
            }
    }

    float sum_again(const OperandLines& a, int64_t i, const OperandLines& b, int64_t j, int64_t k) const {
        double sum = 0;
        for (int64_t l = 0; l < k; l++)
            sum += double(decode_one(a, problem_.a.format, i, l)) * double(decode_one(b, problem_.b.format, j, l));
        return problem_.d.format == MXQ_FORMAT_F32 ? float(sum) : round_to_odd(sum);
    }

    void write(const GemmBlock& block, int64_t rows, int64_t columns, int64_t d_row, int64_t d_column) const {
        const int64_t element_bytes = find_format(problem_.d.format)->bytes();
        for (int64_t i = 0; i < rows; i++) {
            const int64_t at = (d_row + i) * problem_.d.row_stride + d_column;
            kernels_.store(block.sums + i * block.stride, columns, problem_.d.format, problem_.accumulate,
                           static_cast<char*>(problem_.d.data) + at * element_bytes);
        }
    }

    const GemmProblem& problem_;
    const GemmKernels& kernels_;
    const Tiling& tiling_;
    const Scratch& scratch_;
};

std::string declines(const Context& context, const GemmProblem&) {
    return context.is_cpu() ? "" : "needs a CPU context, found a CUDA one";
}

void run(const Context& context, const GemmProblem& problem, const Launch&) {
    std::vector<Product> products = products_of(problem);
    if (products.empty()) return;
    const GemmKernels& kernels = context.cpu->gemm_kernels();
    ThreadPool& pool = context.cpu->pool();
    const int64_t threads = useful_threads(products, problem.n, pool.threads());
    const Tiling tiling = cut(std::move(products), problem.n, threads, kernels);
    const Scratch scratch(threads == 1 ? 1 : pool.threads(), tiling.rows, tiling.columns);
    const Run job(problem, kernels, tiling, scratch);
    if (threads > 1)
        pool.run(tiling.tiles, [&](int64_t tile, int worker) { job.tile(tile, worker); });
    else
        pool.run(1, [&](int64_t, int worker) {
            for (int64_t tile = 0; tile < tiling.tiles; tile++) job.tile(tile, worker);
        });
}

}  // namespace

const GemmImplementation gemm = {"cpu", declines, nullptr, run};

}  // namespace mxq::cpu
