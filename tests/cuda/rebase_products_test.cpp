// Products of MX operands through wgmma_fp8_sm90, cublaslt_rebase and cublaslt_grouped_rebase, by name where there is such a
// chip and library: the bound for every element, and how close D comes to the exact product on several kinds of data.
// Block-scaled tensor cores run the same cases by name too. Elsewhere the device's best implementation does.
#include "../machine.h"
#include "../verbs/product.h"

#include <cmath>
#include <span>

using testing::ok;

namespace {

// Who makes the products of a test.
struct Way {
    const char* implementation;  // NULL: the device's best, or what block-scaled tensor cores need
    bool guarded;                // its bound holds for any data
    bool block_scaled = false, block_scaled_groups = false;

    const char* of(const oracle::Spec& a, const oracle::Spec& b, bool swizzled, int64_t k) const {
        return block_scaled ? testing::block_scaled(a, b, swizzled, k) : implementation;
    }
    // `k` is that of groups of rows; along the contraction it is any number of whole blocks.
    const char* of_groups(const oracle::Spec& a, const oracle::Spec& b, bool swizzled, int64_t k) const {
        return block_scaled_groups ? testing::block_scaled_groups(a, b, swizzled, k) : implementation;
    }
};

// `least` is the library's first version with which `by_library` takes the cases.
std::vector<Way> ways(const testing::Device& device, const char* by_library, int least) {
    const testing::Machine machine(device);
    if (!machine.is_hopper()) return {{nullptr, false, machine.has_blackwell(), machine.groups_on_blackwell()}};
    std::vector<Way> all{{"wgmma_fp8_sm90", true}};
    if (machine.version >= least) all.push_back({by_library, false});
    return all;
}

// ---- Data ------------------------------------------------------------------------------------------------------------

enum class Data { Normal, HeavyTailed, OutlierChannels, FarOutliers };
constexpr Data all_data[] = {Data::Normal, Data::HeavyTailed, Data::OutlierChannels, Data::FarOutliers};

// Returns how many kinds of data a way keeps close to the exact product, from the first on. Outliers of 30000 times the
// rest, at different places of both operands, leave little of the rest without a guard.
int kinds(const Way& way) { return way.guarded ? 4 : 3; }

class Numbers {
public:
    explicit Numbers(uint64_t seed) : random_(seed) {}
    double open() { return (random_.bits() + 0.5) * 0x1p-32; }  // (0, 1)
    double normal() { return std::sqrt(-2 * std::log(open())) * std::cos(6.283185307179586 * open()); }
    double student() { return normal() / std::sqrt(-std::log(open())); }  // of two degrees of freedom
    bool one_in(int64_t n) { return random_.below(n) == 0; }

private:
    cases::Random random_;
};

// (lines, k); channels are positions along k.
oracle::Floats make_data(Data data, int64_t lines, int64_t k, uint64_t seed) {
    Numbers numbers(seed);
    std::vector<double> channels(static_cast<size_t>(k), 1.0);
    if (data == Data::OutlierChannels)
        for (double& channel : channels) channel = numbers.one_in(100) ? 1000 : 1;
    if (data == Data::FarOutliers)
        for (double& channel : channels) channel = numbers.one_in(300) ? 30000 : 1;
    oracle::Floats out;
    for (int64_t i = 0; i < lines * k; ++i)
        out.push_back(static_cast<float>((data == Data::HeavyTailed ? numbers.student() : numbers.normal()) *
                                         channels[static_cast<size_t>(i % k)]));
    return out;
}

// ---- Operands --------------------------------------------------------------------------------------------------------

// (matrices, outer, k) values and what each may lose; of a grouped operand, those of its groups one after another.
struct Operand {
    testing::Tensor tensor;
    std::unique_ptr<testing::InputPart> part;
    oracle::Floats values, errors, guarded;
};

void append(oracle::Floats& to, const oracle::Floats& from) { to.insert(to.end(), from.begin(), from.end()); }

// `transposed`: the tensor is (k, outer) and its columnwise part is used.
Operand make_operand(testing::Device& device, const oracle::Spec& spec, Data data, std::optional<int64_t> matrices,
                     int64_t outer, int64_t k, bool transposed, bool swizzled, int64_t tile_lines, bool is_b,
                     uint64_t seed) {
    const testing::Dims dims{matrices, transposed ? k : outer, transposed ? outer : k};
    const int32_t part = transposed ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE;
    oracle::Floats x;
    for (int64_t e = 0; e < matrices.value_or(1); ++e) {
        const oracle::Floats lines = make_data(data, outer, k, seed + static_cast<uint64_t>(e));
        append(x, transposed ? oracle::transposed(lines.data(), outer, k) : lines);
    }
    const oracle::Part stored = oracle::quantize(spec, x, dims.shape(), part, swizzled);
    Operand out;
    out.tensor = testing::make_tensor(spec, dims, swizzled);
    out.part = std::make_unique<testing::InputPart>(device, out.tensor, spec, part, stored);
    out.values = oracle::lines(spec, stored, dims.shape(), part, swizzled);
    for (int64_t e = 0; e < matrices.value_or(1); ++e) {
        const auto first = out.values.begin() + e * outer * k;
        const oracle::Floats values(first, first + outer * k);
        const auto placement = oracle::placement_of(spec, e, outer, k, swizzled);
        append(out.errors, oracle::rebase_errors(spec, stored.scales, placement, values, outer, k, tile_lines));
        append(out.guarded, oracle::guarded_errors(spec, stored.scales, placement, values, outer, k, is_b));
    }
    return out;
}

// A grouped (rows, cols) tensor. Rowwise a group has (its rows, cols), columnwise (cols, its rows).
Operand make_grouped(testing::Device& device, const oracle::Spec& spec, Data data, int64_t rows, int64_t cols,
                     const oracle::Groups& groups, int32_t part, bool swizzled, const testing::DeviceEnds& ends, bool is_b,
                     uint64_t seed) {
    const bool columnwise = part == MXQ_PART_COLUMNWISE;
    oracle::Floats x = make_data(data, columnwise ? cols : rows, columnwise ? rows : cols, seed);
    if (columnwise) x = oracle::transposed(x.data(), cols, rows);
    const oracle::Part stored = oracle::quantize_groups(spec, x, rows, cols, groups, part, swizzled).on(oracle::untouchable);
    Operand out;
    out.tensor = testing::make_tensor(spec, {std::nullopt, rows, cols}, swizzled);
    out.part = std::make_unique<testing::InputPart>(device, out.tensor, spec, part, stored);
    ends.set(out.tensor, groups);
    const oracle::Floats decoded = oracle::dequantize_groups(spec, stored, rows, cols, groups, part, swizzled);
    const oracle::GroupLayout layout(spec, rows, cols, groups, part, swizzled);
    for (size_t g = 0; g < groups.ends.size(); ++g) {
        const int64_t count = oracle::group_rows(groups.ends, g);
        const float* const first = decoded.data() + (groups.ends[g] - count) * cols;
        oracle::Floats values(first, first + count * cols);
        if (columnwise) values = oracle::transposed(first, count, cols);
        const int64_t lines = columnwise ? cols : count, k = columnwise ? count : cols;
        append(out.values, values);
        append(out.errors, oracle::rebase_errors(spec, stored.scales, layout.placement(g), values, lines, k, 1));
        append(out.guarded, oracle::guarded_errors(spec, stored.scales, layout.placement(g), values, lines, k, is_b));
    }
    return out;
}

// ---- Checks ----------------------------------------------------------------------------------------------------------

// How far D is from the exact products, over all that is added.
struct Noise {
    double signal = 0, error = 0;
    void add(const std::vector<oracle::Element>& elements, const oracle::Floats& d) {
        for (size_t i = 0; i < elements.size(); ++i) {
            signal += elements[i].value * elements[i].value;
            error += (d[i] - elements[i].value) * (d[i] - elements[i].value);
        }
    }
    double decibels() const { return error == 0 ? 1000 : 10 * std::log10(signal / error); }
};

// A product of operands from number `at_a` and `at_b` of their values on.
struct Matrices {
    const Operand &a, &b;
    int64_t at_a, at_b, m, n, k;
};

std::string check(const oracle::Promise& promise, const Matrices& at, const oracle::Floats& d, int32_t format, Noise& noise,
                  const float* previous = nullptr) {
    const float *const a = at.a.values.data() + at.at_a, *const b = at.b.values.data() + at.at_b;
    auto sums = oracle::product(a, at.k, b, at.k, at.m, at.n, at.k, previous);
    const bool guarded = promise.bound == MXQ_BOUND_REBASED_GUARDED;
    if (guarded || promise.bound == MXQ_BOUND_REBASED)
        oracle::add_rebase_errors(sums, a, (guarded ? at.a.guarded : at.a.errors).data() + at.at_a, b,
                                  (guarded ? at.b.guarded : at.b.errors).data() + at.at_b, at.m, at.n, at.k);
    noise.add(sums, d);
    sums.resize(d.size());  // padding is +0
    return oracle::check_product(sums, d, format, oracle::bound_factor(promise, at.k) + (previous != nullptr));
}

oracle::Spec blocks_of_32(int32_t format) { return testing::spec_of(format, MXQ_SCALING_1X32); }

const std::pair<int32_t, int32_t> pairs[] = {
    {MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_MXFP8_E4M3}, {MXQ_FORMAT_MXFP8_E5M2, MXQ_FORMAT_MXFP8_E4M3},
    {MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_MXFP8_E5M2}, {MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_MXFP4},
    {MXQ_FORMAT_MXFP6_E2M3, MXQ_FORMAT_MXFP6_E3M2}, {MXQ_FORMAT_MXFP4, MXQ_FORMAT_MXFP8_E5M2},
};
const int32_t scalings[] = {MXQ_SCALING_1X32, MXQ_SCALING_32X32, MXQ_SCALING_1X128, MXQ_SCALING_128X128, MXQ_SCALING_ROW};

}  // namespace

MXQ_CUDA_DEVICE("rebase products: the bound and the distance to the exact product") {
    for (const Way& way : ways(device, "cublaslt_rebase", 120900)) {
        const int64_t sizes[][3] = {{128, 128, 1024}, {66, 80, 608}};  // the second: rows and blocks that are not whole
        int ran = 0;
        for (Data data : std::span(all_data).first(static_cast<size_t>(kinds(way))))
            for (const auto& [a_format, b_format] : pairs)
                for (const auto& [m, n, k] : sizes)
                    for (int which = 0; which < 3; ++which) {  // (N,T), (N,N), (T,N)
                        const bool transpose_a = which == 2, transpose_b = which == 0, swizzled = ran % 2;
                        const auto seed = static_cast<uint64_t>(ran) * 10 + 1;
                        const Operand a = make_operand(device, blocks_of_32(a_format), data, std::nullopt, m, k, transpose_a,
                                                       swizzled, 1, false, seed);
                        const Data b_data = data == Data::OutlierChannels ? Data::Normal : data;
                        const Operand b = make_operand(device, blocks_of_32(b_format), b_data, std::nullopt, n, k,
                                                       !transpose_b, swizzled, transpose_a ? 1 : 128, true, seed + 1);
                        testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 4);
                        const char* const name = way.of(blocks_of_32(a_format), blocks_of_32(b_format), swizzled, k);
                        auto options = testing::gemm_options(transpose_a ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                                                             transpose_b ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N, 0, name);
                        const auto promise =
                            testing::run_product(device, mxq_gemm, mxq_gemm_query, options, a.tensor, b.tensor, d.tensor);
                        Noise noise;
                        INFO("data " << static_cast<int>(data) << ", formats " << a_format << " " << b_format << ", " << m
                                     << "x" << n << "x" << k << ", case " << which << ", by " << promise.implementation);
                        CHECK(check(promise, {a, b, 0, 0, m, n, k}, d.values(), MXQ_FORMAT_F32, noise) == "");
                        CHECK(noise.decibels() >= 65);
                        ++ran;
                    }
        CHECK(ran == kinds(way) * 6 * 2 * 3);
    }
}

MXQ_CUDA_DEVICE("rebase products: many rows beside few columns") {
    for (const Way& way : ways(device, "cublaslt_rebase", 120900)) {
        const int64_t m = 4100,
                      sizes[][2] = {{24, 352}, {8, 544}, {200, 160}};  // N, K: the second has a whole round of steps
        int ran = 0;
        for (Data data : std::span(all_data).first(static_cast<size_t>(kinds(way))))
            for (int32_t b_format : {MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_MXFP4})
                for (const auto& [n, k] : sizes) {
                    const bool swizzled = ran % 2;
                    const auto seed = static_cast<uint64_t>(ran) * 10 + 1;
                    const oracle::Spec of_a = blocks_of_32(MXQ_FORMAT_MXFP8_E4M3), of_b = blocks_of_32(b_format);
                    const Operand a = make_operand(device, of_a, data, std::nullopt, m, k, false, swizzled, 1, false, seed);
                    const Data b_data = data == Data::OutlierChannels ? Data::Normal : data;
                    const Operand b =
                        make_operand(device, of_b, b_data, std::nullopt, n, k, false, swizzled, 128, true, seed + 1);
                    testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 4);
                    auto options =
                        testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, way.of(of_a, of_b, swizzled, k));
                    const auto promise =
                        testing::run_product(device, mxq_gemm, mxq_gemm_query, options, a.tensor, b.tensor, d.tensor);
                    Noise noise;
                    INFO("data " << static_cast<int>(data) << ", format of b " << b_format << ", " << m << "x" << n << "x"
                                 << k << ", by " << promise.implementation);
                    CHECK(check(promise, {a, b, 0, 0, m, n, k}, d.values(), MXQ_FORMAT_F32, noise) == "");
                    CHECK(noise.decibels() >= 65);
                    ++ran;
                }
        CHECK(ran == kinds(way) * 2 * 3);
    }
}

MXQ_CUDA_DEVICE("rebase products: coarser scales, 16-bit D, accumulation") {
    for (const Way& way : ways(device, "cublaslt_rebase", 120900)) {
        const int64_t m = 132, n = 144, k = 512;
        int ran = 0;
        for (int32_t a_scaling : scalings)
            for (int32_t b_scaling : scalings)
                for (bool in_tiles : {false, true}) {
                    // Compact ROW scales are not for every implementation.
                    const bool swizzled = in_tiles || a_scaling == MXQ_SCALING_ROW || b_scaling == MXQ_SCALING_ROW;
                    const int32_t format = cases::plain_formats[ran % 3];
                    const bool accumulate = format == MXQ_FORMAT_F32;
                    const auto seed = static_cast<uint64_t>(ran) * 10 + 1;
                    const Operand a = make_operand(device, testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, a_scaling),
                                                   Data::HeavyTailed, std::nullopt, m, k, false, swizzled, 1, false, seed);
                    const int64_t tile_lines = b_scaling == MXQ_SCALING_1X128 || b_scaling == MXQ_SCALING_ROW ? 1 : 128;
                    const Operand b = make_operand(device, testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, b_scaling), Data::Normal,
                                                   std::nullopt, n, k, false, swizzled, tile_lines, true, seed + 1);
                    const auto previous = make_data(Data::Normal, m, n, seed + 2);
                    testing::Output d(device, format, {std::nullopt, m, n}, 16, accumulate ? &previous : nullptr);
                    const oracle::Spec mxfp8 = blocks_of_32(MXQ_FORMAT_MXFP8_E4M3);
                    auto options = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, accumulate,
                                                         way.of(mxfp8, mxfp8, swizzled, k));
                    const auto promise =
                        testing::run_product(device, mxq_gemm, mxq_gemm_query, options, a.tensor, b.tensor, d.tensor);
                    Noise noise;
                    INFO("scalings " << a_scaling << " " << b_scaling << ", swizzled " << swizzled << ", D " << format
                                     << ", by " << promise.implementation);
                    CHECK(check(promise, {a, b, 0, 0, m, n, k}, d.values(), format, noise,
                                accumulate ? previous.data() : nullptr) == "");
                    ++ran;
                }
        CHECK(ran == 50);
    }
}

namespace {

const oracle::Ends all_ends[] = {{100, 100, 129, 256, 256, 511},
                                 {0, 512},
                                 {1, 2, 3, 4, 300, 301, 302, 440, 512},
                                 {17},
                                 {1, 4, 9, 136, 265, 265, 400}};  // 1, 3, 5, 127, 129, 0, 135 rows

}  // namespace

MXQ_CUDA_DEVICE("rebase products: groups of rows") {
    for (const Way& way : ways(device, "cublaslt_grouped_rebase", 130700)) {
        const int64_t rows = 512, n = 64;
        int ran = 0;
        for (const auto& [a_format, b_format] : pairs)
            for (const oracle::Ends& ends_of_groups : all_ends)
                for (int which = 0; which < 4; ++which) {
                    const bool transpose_b = which % 2 == 0, swizzled = which >= 2;
                    const auto seed = static_cast<uint64_t>(ran) * 10 + 1;
                    const int32_t a_scaling = scalings[ran % 4];
                    const int64_t k = ran % 3 ? 512 : 272, count = static_cast<int64_t>(ends_of_groups.size());
                    const int64_t unit = ran % 5 == 0 ? 1 : int64_t{1} << (ran % 5);  // D's; 1: it has no groups
                    const oracle::Groups groups{ends_of_groups, int64_t{1} << (ran / 4 % 4)};
                    testing::DeviceEnds ends(device, groups.ends, ran % 2);
                    const Operand a = make_grouped(device, testing::spec_of(a_format, a_scaling), all_data[ran % kinds(way)],
                                                   rows, k, groups, MXQ_PART_ROWWISE, swizzled, ends, false, seed);
                    const Operand b = make_operand(device, blocks_of_32(b_format), Data::Normal, count, n, k, !transpose_b,
                                                   swizzled, 128, true, seed + 1);
                    const int64_t d_rows = unit > 1 ? oracle::padded_bound(rows, count, unit) : rows;
                    const bool accumulate = ran % 7 < 2;
                    const auto previous = make_data(Data::Normal, d_rows, n, seed + 2);
                    testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, d_rows, n}, 0,
                                      accumulate ? &previous : nullptr);
                    testing::Tensor grouped_d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, rows, n});
                    ok(mxq_tensor_set_data(grouped_d, d.data(), d.size()));
                    if (unit > 1) ends.set(grouped_d, {{}, unit});
                    const char* const name = way.of_groups(blocks_of_32(a_format), blocks_of_32(b_format), swizzled, k);
                    auto options = testing::gemm_options(MXQ_TRANSPOSE_N, transpose_b ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                                                         accumulate, name);
                    const auto promise = testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query, options,
                                                              a.tensor, b.tensor, grouped_d);
                    const auto starts = oracle::padded_starts(groups.ends, unit);
                    const std::vector<bool> written = oracle::written_rows(groups.ends, starts, d_rows, accumulate);
                    const oracle::Floats values = d.values(&written);
                    Noise noise;
                    INFO("formats " << a_format << " " << b_format << ", scaling " << a_scaling << ", " << count
                                    << " groups, k " << k << ", D by " << unit << ", case " << which << ", accumulate "
                                    << accumulate << ", by " << promise.implementation);
                    for (size_t g = 0; g < groups.ends.size(); ++g) {
                        const int64_t m = oracle::group_rows(groups.ends, g), first = (groups.ends[g] - m) * k;
                        const int64_t of_b = static_cast<int64_t>(g) * n * k;
                        const oracle::Floats one(values.begin() + starts[g] * n, values.begin() + oracle::written_end(groups.ends, starts, g, accumulate) * n);
                        CHECK(check(promise, {a, b, first, of_b, m, n, k}, one, MXQ_FORMAT_F32, noise,
                                    accumulate ? previous.data() + starts[g] * n : nullptr) == "");
                    }
                    CHECK(noise.decibels() >= 65);
                    ++ran;
                }
        CHECK(ran == 6 * 5 * 4);
    }
}

MXQ_CUDA_DEVICE("rebase products: groups along the contraction") {
    for (const Way& way : ways(device, "cublaslt_grouped_rebase", 130700)) {
        const int64_t m = 132, n = 96, rows = 512;
        int ran = 0;
        for (const auto& [a_format, b_format] : pairs)
            for (const oracle::Ends& ends_of_groups : all_ends)
                for (bool swizzled : {false, true}) {
                    const auto seed = static_cast<uint64_t>(ran) * 10 + 1;
                    const int32_t scaling = scalings[ran % 4];
                    const bool wide = scaling == MXQ_SCALING_1X128 || scaling == MXQ_SCALING_128X128, accumulate = ran % 2;
                    const int64_t count = static_cast<int64_t>(ends_of_groups.size());
                    const int64_t unit = wide ? 128 : int64_t{32} << (ran % 3);
                    const oracle::Groups a_groups{ends_of_groups, 1, unit};
                    const oracle::Groups b_groups{ends_of_groups};
                    testing::DeviceEnds ends(device, ends_of_groups, ran % 2);
                    const Operand a = make_grouped(device, testing::spec_of(a_format, scaling), all_data[ran % kinds(way)],
                                                   rows, m, a_groups, MXQ_PART_COLUMNWISE, swizzled, ends, false, seed);
                    const Operand b = make_grouped(device, blocks_of_32(b_format), Data::Normal, rows, n, b_groups,
                                                   MXQ_PART_COLUMNWISE, swizzled, ends, true, seed + 1);
                    const auto previous = make_data(Data::Normal, count * m, n, seed + 2);
                    testing::Output d(device, MXQ_FORMAT_F32, {count, m, n}, 0, accumulate ? &previous : nullptr);
                    // Block-scaled tensor cores need both operands padded alike.
                    const char* const name =
                        way.block_scaled_groups && unit != 32
                            ? nullptr
                            : way.of_groups(blocks_of_32(a_format), blocks_of_32(b_format), swizzled, 32);
                    auto options = testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N, accumulate, name);
                    const auto promise = testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query, options,
                                                              a.tensor, b.tensor, d.tensor);
                    const oracle::Floats values = d.values();
                    Noise noise;
                    INFO("formats " << a_format << " " << b_format << ", scaling " << scaling << ", " << count
                                    << " groups, accumulate " << accumulate << ", by " << promise.implementation);
                    for (size_t g = 0; g < ends_of_groups.size(); ++g) {
                        const int64_t k = oracle::group_rows(ends_of_groups, g), first = ends_of_groups[g] - k;
                        const int64_t at = static_cast<int64_t>(g) * m * n;
                        const oracle::Floats one(values.begin() + at, values.begin() + at + m * n);
                        CHECK(check(promise, {a, b, first * m, first * n, m, n, k}, one, MXQ_FORMAT_F32, noise,
                                    accumulate ? previous.data() + at : nullptr) == "");
                    }
                    CHECK(noise.decibels() >= 65);
                    ++ran;
                }
        CHECK(ran == 6 * 5 * 2);
    }
}

MXQ_CUDA_DEVICE("rebase products: exact products are asked for") {
    for (const Way& way : ways(device, "cublaslt_rebase", 120900)) {
        if (!way.implementation) MXQ_SKIP("no chip and library that rebase");
        const auto spec = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32);
        const Operand a = make_operand(device, spec, Data::Normal, std::nullopt, 128, 256, false, true, 1, false, 1);
        const Operand b = make_operand(device, spec, Data::Normal, std::nullopt, 128, 256, false, true, 128, true, 2);
        testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, 128, 128}, 0);
        auto options = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, way.implementation);
        const auto by_way = testing::run_product(device, mxq_gemm, mxq_gemm_query, options, a.tensor, b.tensor, d.tensor);
        CHECK(by_way.implementation == way.implementation);
        auto exact = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T);
        ok(mxq_gemm_options_set_exact_products(exact, 1));
        const auto by_exact = testing::run_product(device, mxq_gemm, mxq_gemm_query, exact, a.tensor, b.tensor, d.tensor);
        CHECK(by_exact.implementation == (testing::Machine(device).is_hopper() ? "splitk_sm90" : "mma_bf16"));
        ok(mxq_gemm_options_set_exact_products(options, 1));
        testing::Plan plan;
        CHECK(mxq_gemm_query(device.context, options, a.tensor, b.tensor, d.tensor, plan.out()) == MXQ_STATUS_UNSUPPORTED);
        CHECK(std::string(mxq_last_error()).find("found exact products asked for") != std::string::npos);
    }
}
