// mxq_gemm and mxq_grouped_gemm keep the bound with every alpha, beta, bias and type of D, and with the ends of groups on the
// host.
#include <cstdio>
#include <thread>

#include "../machine.h"
#include "product.h"

using testing::Buffer;
using testing::ok;

namespace {

const oracle::Spec bf16 = testing::spec_of(MXQ_FORMAT_BF16, MXQ_SCALING_NONE);

bool is_plain(const oracle::Spec& spec) { return spec.format == MXQ_FORMAT_BF16; }
bool is_exact(const oracle::Spec& spec) { return is_plain(spec) || oracle::is_mx(spec.format); }

struct Pair {
    oracle::Spec a, b;
};

// One pair for each way in which implementations scale: exact products, scales of blocks, of rows, of tensors and of 128.
const Pair pairs[] = {
    {testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32), testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32)},
    {bf16, bf16},
    {bf16, testing::spec_of(MXQ_FORMAT_MXFP8_E5M2, MXQ_SCALING_32X32)},
    {testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16), testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16)},
    {testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR), testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR)},
    {testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_ROW), bf16},
    {testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128), testing::spec_of(MXQ_FORMAT_FP8_E5M2, MXQ_SCALING_128X128)},
};

// The formats of a bias; 0: no bias.
const int32_t biases[] = {0, MXQ_FORMAT_F32, MXQ_FORMAT_F16, MXQ_FORMAT_BF16};
const float alphas[] = {1, 0.3f, -3e5f, 0, 1e-40f}, betas[] = {0, 1, -0.7f, 1e4f};

struct Operand {
    testing::Tensor tensor;
    std::unique_ptr<testing::InputPart> part;
    std::unique_ptr<Buffer> data;
    oracle::Floats lines;
};

// Draws normal values; with `tiny`, values whose products are subnormal.
oracle::Floats draw_values(cases::Random& random, size_t count, bool tiny) {
    oracle::Floats x(count);
    for (float& value : x) value = random.normal() * (tiny ? 0x1p-70f : 1.0f);
    return x;
}

Operand make_operand(testing::Device& device, const oracle::Spec& spec, std::optional<int64_t> matrices, int64_t outer, int64_t k,
                     cases::Random& random, bool tiny = false) {
    const testing::Dims dims{matrices, outer, k};
    const oracle::Floats x = draw_values(random, dims.shape().count(), tiny);
    Operand out;
    if (is_plain(spec)) {
        const oracle::Bytes bytes = oracle::store(MXQ_FORMAT_BF16, x);
        out.tensor = testing::make_tensor(MXQ_FORMAT_BF16, dims);
        out.lines = oracle::load(MXQ_FORMAT_BF16, bytes.data(), x.size());
        out.data = std::make_unique<Buffer>(device, bytes);
        ok(mxq_tensor_set_data(out.tensor, out.data->data(), out.data->bytes()));
        return out;
    }
    const oracle::Part stored = oracle::quantize(spec, x, dims.shape(), MXQ_PART_ROWWISE, false);
    out.tensor = testing::make_tensor(spec, dims, false);
    out.lines = oracle::lines(spec, stored, dims.shape(), MXQ_PART_ROWWISE, false);
    out.part = std::make_unique<testing::InputPart>(device, out.tensor, spec, MXQ_PART_ROWWISE, stored);
    return out;
}

// Makes a grouped operand. Its `lines` are the values of its rows, (rows, cols) without padding.
Operand make_grouped(testing::Device& device, const oracle::Spec& spec, int64_t rows, int64_t cols, const oracle::Groups& groups,
                     int32_t part, const testing::DeviceEnds& ends, cases::Random& random) {
    const oracle::Floats x = draw_values(random, static_cast<size_t>(rows * cols), false);
    Operand out;
    if (is_plain(spec)) {
        const oracle::Bytes bytes = oracle::store(MXQ_FORMAT_BF16, x);
        const auto padded = oracle::pad_rows(bytes, cols * 2, rows, groups.ends, groups.rowwise);
        out.tensor = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, rows, cols});
        out.lines = oracle::load(MXQ_FORMAT_BF16, bytes.data(), x.size());
        out.data = std::make_unique<Buffer>(device, oracle::on_background(padded.bytes, padded.written, oracle::untouchable));
        ok(mxq_tensor_set_data(out.tensor, out.data->data(), out.data->bytes()));
    } else {
        const oracle::Part stored = oracle::quantize_groups(spec, x, rows, cols, groups, part, false).on(oracle::untouchable);
        out.tensor = testing::make_tensor(spec, {std::nullopt, rows, cols}, false);
        out.lines = oracle::dequantize_groups(spec, stored, rows, cols, groups, part, false);
        out.part = std::make_unique<testing::InputPart>(device, out.tensor, spec, part, stored);
    }
    ends.set(out.tensor, groups);
    return out;
}

// The options of one case, and the memory of its bias.
class Options {
public:
    Options(testing::Device& device, oracle::More more, int32_t bias_format, size_t bias_count, cases::Random& random,
            testing::Transposes transposes = {MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T}, const char* implementation = nullptr)
        : handle(testing::exact_gemm_options(transposes.a, transposes.b, 0, implementation)), more(more), bias(bias_count, 0.0f) {
        ok(mxq_gemm_options_set_alpha(handle, more.alpha));
        ok(mxq_gemm_options_set_beta(handle, more.beta));
        if (bias_format == 0) return;
        const oracle::Bytes bytes = oracle::store(bias_format, draw_values(random, bias_count, false));
        bias = oracle::load(bias_format, bytes.data(), bias_count);
        buffer_ = std::make_unique<Buffer>(device, bytes, static_cast<size_t>(oracle::plain_bytes(bias_format)));
        ok(mxq_gemm_options_set_bias(handle, bias_format, buffer_->data(), buffer_->bytes()));
    }

    testing::GemmOptions handle;
    oracle::More more;
    oracle::Floats bias;  // zeros without one

private:
    std::unique_ptr<Buffer> buffer_;
};

// Draws what D holds before the product, rounded to D's type. If beta is 0 these are NaNs, since D must not be read.
oracle::Floats draw_previous(cases::Random& random, int32_t format, size_t count, float beta) {
    oracle::Floats x = draw_values(random, count, false);
    if (beta == 0) std::fill(x.begin(), x.end(), NAN);
    return oracle::load(format, oracle::store(format, x).data(), count);
}

std::vector<oracle::Element> finished(std::vector<oracle::Element> sums, const Options& options, const float* previous, const float* bias,
                                      int64_t n) {
    for (size_t i = 0; i < sums.size(); ++i)
        sums[i] = oracle::with_more(sums[i], options.more, previous[i], bias[i % static_cast<size_t>(n)]);
    return sums;
}

std::string check(const oracle::Promise& promise, const Pair& pair, const std::vector<oracle::Element>& wanted, const oracle::Floats& d, int32_t format,
                  int64_t k, const oracle::More& more) {
    if (wanted.size() != d.size()) return "the test lost elements";
    const bool exact = is_exact(pair.a) && is_exact(pair.b);
    return oracle::check_product(wanted, d, format, oracle::bound_factor(promise, k, exact) + oracle::more_of(more));
}

std::string text(const Pair& pair, const oracle::More& more, int32_t bias, int32_t d_format, const std::string& name) {
    char numbers[120];
    std::snprintf(numbers, sizeof numbers, ", alpha %g, beta %g, bias %d, D %d, by ", double(more.alpha), double(more.beta), bias, d_format);
    const auto one = [](const oracle::Spec& spec) { return is_plain(spec) ? "bf16" : testing::describe(spec); };
    return one(pair.a) + " x " + one(pair.b) + numbers + name;
}

// One of 5 alphas x 4 betas x 4 biases x 3 types of D.
struct Drawn {
    oracle::More more;
    int32_t bias, d_format;
};
constexpr int64_t drawn_count = 5 * 4 * 4 * 3;

Drawn draw(int64_t number) {
    cases::Digits digits(number);
    Drawn out;
    out.more.alpha = digits.pick(alphas);
    out.more.beta = digits.pick(betas);
    out.bias = digits.pick(biases);
    out.more.bias = out.bias != 0;
    out.d_format = digits.pick(cases::plain_formats);
    return out;
}

// Draws the number of D's columns: mostly less than a tile has, sometimes more.
int64_t draw_columns(cases::Random& random) { return 1 + random.below(70) + (random.below(12) ? 0 : 500); }

// Returns whether the device has a cuBLASLt that takes the cases of this file.
bool has_cublaslt(const testing::Device& device) {
    const testing::Machine machine(device);
    return (machine.is_hopper() && machine.version >= 130000) || machine.has_blackwell();
}

// Operands with compact scales, and the implementation that hands them to cuBLASLt.
struct Taken {
    Pair pair;
    const char* implementation;
};

// Returns those that every chip with such a library takes, and on Blackwell the ones that block-scaled tensor cores take.
std::vector<Taken> taken(const testing::Device& device) {
    const auto fp8 = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR),
               nvfp4 = testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16),
               mxfp8 = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32),
               mxfp4 = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32);
    std::vector<Taken> all{{{bf16, bf16}, "cublaslt"}, {{fp8, fp8}, "cublaslt"}};
    if (!testing::Machine(device).has_blackwell()) return all;
    for (const Pair& pair : {Pair{mxfp8, mxfp8}, Pair{mxfp8, mxfp4}, Pair{nvfp4, nvfp4}})
        all.push_back({pair, "cublaslt_swizzle"});
    return all;
}

}  // namespace

MXQ_EACH_DEVICE("gemm options: the bound with every alpha, beta and bias") {
    const int64_t depths[] = {200, 0, 1, 64, 129};
    const std::string portable = testing::product_implementations(device)[0];
    int64_t ran = 0;
    for (const Pair& pair : pairs)
        for (int64_t number = 0; number < drawn_count; ++number) {
            cases::Random random(static_cast<uint64_t>(ran) + 1);
            const Drawn c = draw(number);
            const int64_t m = 1 + random.below(140), n = draw_columns(random), k = depths[random.below(5)];
            Operand a = make_operand(device, pair.a, std::nullopt, m, k, random, ran % 7 == 0);
            Operand b = make_operand(device, pair.b, std::nullopt, n, k, random, ran % 7 == 0);
            Options options(device, c.more, c.bias, static_cast<size_t>(n), random, {MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T}, portable.c_str());
            const oracle::Floats previous = draw_previous(random, c.d_format, static_cast<size_t>(m * n), c.more.beta);
            testing::Output d(device, c.d_format, {std::nullopt, m, n}, random.below(2) * 8, &previous, static_cast<size_t>(random.below(2)));
            const auto promise = testing::run_product(device, mxq_gemm, mxq_gemm_query, options.handle, a.tensor, b.tensor, d.tensor);
            const auto wanted = finished(oracle::product(a.lines.data(), k, b.lines.data(), k, m, n, k), options, previous.data(), options.bias.data(), n);
            ++ran;
            if (auto complaint = check(promise, pair, wanted, d.values(), c.d_format, k, c.more); !complaint.empty())
                FAIL(text(pair, c.more, c.bias, c.d_format, promise.implementation) << ", " << m << "x" << n << "x" << k << ": " << complaint);
        }
    CHECK(ran == 7 * drawn_count);
}

// With a contraction of 1 each sum is one exact product, so that the order of the roundings fixes every bit of D.
MXQ_EACH_DEVICE("gemm options: alpha, beta and bias are rounded one after another") {
    const Pair pair{bf16, bf16};
    int64_t ran = 0, differs = 0;
    for (const std::string& name : testing::product_implementations(device))
        for (int64_t number = 0; number < drawn_count; ++number) {
            cases::Random random(static_cast<uint64_t>(number) + 77);
            const Drawn c = draw(number);
            const int64_t m = 33, n = 21;
            Operand a = make_operand(device, bf16, std::nullopt, m, 1, random), b = make_operand(device, bf16, std::nullopt, n, 1, random);
            Options options(device, c.more, c.bias, n, random, {MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T}, name.c_str());
            const oracle::Floats previous = draw_previous(random, c.d_format, m * n, c.more.beta);
            testing::Output d(device, c.d_format, {std::nullopt, m, n}, 0, &previous);
            testing::run_product(device, mxq_gemm, mxq_gemm_query, options.handle, a.tensor, b.tensor, d.tensor);
            oracle::Floats wanted(m * n);
            for (size_t i = 0; i < wanted.size(); ++i) {
                const float product = a.lines[i / n] * b.lines[i % n];
                volatile float value = c.more.alpha * product;
                if (c.more.beta != 0) {
                    volatile float before = c.more.beta * previous[i];
                    value = value + before;
                }
                if (c.bias) value = value + options.bias[i % n];
                wanted[i] = value;
                const double all = double(c.more.alpha) * product + double(c.more.beta) * (c.more.beta != 0 ? previous[i] : 0) + options.bias[i % n];
                differs += static_cast<float>(all) != wanted[i];
            }
            INFO(text(pair, c.more, c.bias, c.d_format, name));
            CHECK(testing::difference(d.bytes(), oracle::store(c.d_format, wanted)) == "");
            ++ran;
        }
    CHECK(ran == drawn_count);
    CHECK(differs > 1000);  // a single rounding at the end would give other bits
}

MXQ_EACH_DEVICE("grouped gemm options: the bound with every alpha, beta and bias, groups of rows") {
    int64_t ran = 0;
    for (const Pair& pair : pairs)
        for (int64_t number = 0; number < drawn_count; number += 5) {
            cases::Random random(static_cast<uint64_t>(ran) + 1000);
            const Drawn c = draw(number + ran % 5);
            const int64_t count = 1 + random.below(5), rows = 1 + random.below(200), k = 1 + random.below(130), n = draw_columns(random);
            const oracle::Groups groups = testing::draw_groups(random, is_plain(pair.a) ? oracle::Spec{} : pair.a, rows, count);
            testing::DeviceEnds ends(device, groups.ends);
            Operand a = make_grouped(device, pair.a, rows, k, groups, MXQ_PART_ROWWISE, ends, random);
            Operand b = make_operand(device, pair.b, count, n, k, random);
            Options options(device, c.more, c.bias, static_cast<size_t>(count * n), random);
            const int64_t alignment = random.below(2) ? 1 : 16, d_rows = oracle::padded_bound(rows, count, alignment);
            const oracle::Floats previous = draw_previous(random, c.d_format, static_cast<size_t>(d_rows * n), c.more.beta);
            testing::Output d(device, c.d_format, {std::nullopt, d_rows, n}, 0, &previous);
            testing::Tensor grouped_d = testing::make_tensor(c.d_format, {std::nullopt, rows, n});
            ok(mxq_tensor_set_data(grouped_d, d.data(), d.size()));
            if (alignment > 1) ends.set(grouped_d, {{}, alignment});
            const auto promise = testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query, options.handle, a.tensor, b.tensor, grouped_d);

            std::vector<bool> written(static_cast<size_t>(d_rows), false);
            const auto starts = oracle::padded_starts(groups.ends, alignment);
            std::vector<oracle::Element> wanted;
            for (size_t g = 0; g < groups.ends.size(); ++g) {
                const int64_t m = oracle::group_rows(groups.ends, g), first = groups.ends[g] - m, at = static_cast<int64_t>(g) * n;
                const auto one = finished(oracle::product(a.lines.data() + first * k, k, b.lines.data() + at * k, k, m, n, k), options,
                                          previous.data() + starts[g] * n, options.bias.data() + at, n);
                wanted.insert(wanted.end(), one.begin(), one.end());
                const int64_t padding = c.more.beta != 0 ? 0 : starts[g + 1] - starts[g] - m;  // padding rows that become +0
                wanted.insert(wanted.end(), static_cast<size_t>(padding * n), oracle::Element{});
                std::fill(written.begin() + starts[g], written.begin() + starts[g] + m + padding, true);
            }
            const oracle::Floats all = d.values(&written);
            oracle::Floats values;
            for (size_t i = 0; i < written.size(); ++i)
                if (written[i]) values.insert(values.end(), all.begin() + static_cast<int64_t>(i) * n, all.begin() + static_cast<int64_t>(i + 1) * n);
            ++ran;
            if (auto complaint = check(promise, pair, wanted, values, c.d_format, k, c.more); !complaint.empty())
                FAIL(text(pair, c.more, c.bias, c.d_format, promise.implementation) << ", " << count << " groups, " << rows << " rows, alignment " << alignment << ": " << complaint);
        }
    CHECK(ran == 7 * drawn_count / 5);
}

// A group without rows contributes no product: its D becomes beta D.
MXQ_EACH_DEVICE("grouped gemm options: the bound with every alpha and beta, groups along the contraction") {
    int64_t ran = 0, empty = 0;
    for (const Pair& pair : pairs) {
        if (is_plain(pair.a) || is_plain(pair.b)) continue;
        for (int64_t number = 0; number < drawn_count; ++number) {
            const Drawn c = draw(number);
            if (c.bias != 0) continue;
            cases::Random random(static_cast<uint64_t>(ran) + 2000);
            const int64_t count = 1 + random.below(5), rows = 1 + random.below(200), m = 1 + random.below(70), n = 1 + random.below(70);
            oracle::Groups groups{testing::draw_ends(random, rows, count)};
            testing::DeviceEnds ends(device, groups.ends);
            Operand a = make_grouped(device, pair.a, rows, m, groups, MXQ_PART_COLUMNWISE, ends, random);
            Operand b = make_grouped(device, pair.b, rows, n, groups, MXQ_PART_COLUMNWISE, ends, random);
            Options options(device, c.more, 0, static_cast<size_t>(n), random, {MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N});
            const oracle::Floats previous = draw_previous(random, c.d_format, static_cast<size_t>(count * m * n), c.more.beta);
            testing::Output d(device, c.d_format, {count, m, n}, 0, &previous);
            const auto promise = testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query, options.handle, a.tensor, b.tensor, d.tensor);
            const oracle::Floats values = d.values();
            for (size_t g = 0; g < groups.ends.size(); ++g) {
                const int64_t k = oracle::group_rows(groups.ends, g), first = groups.ends[g] - k, at = static_cast<int64_t>(g) * m * n;
                const auto a_lines = oracle::transposed(a.lines.data() + first * m, k, m), b_lines = oracle::transposed(b.lines.data() + first * n, k, n);
                const auto wanted = finished(oracle::product(a_lines.data(), k, b_lines.data(), k, m, n, k), options, previous.data() + at,
                                             options.bias.data(), n);
                const oracle::Floats one(values.begin() + at, values.begin() + at + m * n);
                empty += k == 0;
                if (auto complaint = check(promise, pair, wanted, one, c.d_format, k, c.more); !complaint.empty())
                    FAIL(text(pair, c.more, 0, c.d_format, promise.implementation) << ", group " << g << " of " << k << " rows: " << complaint);
            }
            ++ran;
        }
    }
    CHECK(ran == 4 * drawn_count / 4);
    CHECK(empty > 50);
}

// cuBLASLt is asked for by name. Otherwise another implementation would take the cases that it declines, and nothing would
// show.
TEST_CASE("gemm options: cuBLASLt takes alpha, beta and a bias", "[cuda]") {
    if (!testing::cuda() || !has_cublaslt(*testing::cuda()))
        MXQ_SKIP("no cuBLASLt 13 on compute capability 9.0, or 13.3 from 10.0 on");
    testing::Device& device = *testing::cuda();
    const std::vector<Taken> all = taken(device);
    const int64_t m = 64, n = 96, k = 256;
    int64_t ran = 0;
    for (const auto& [pair, implementation] : all)
        for (int64_t number = 0; number < drawn_count; ++number) {
            Drawn c = draw(number);
            if (c.more.alpha == 1e-40f) c.more.alpha = 1e-20f;  // keeps results in the normal range
            const int32_t bias = is_plain(pair.a) ? c.d_format : c.d_format == MXQ_FORMAT_F16 ? MXQ_FORMAT_F16 : MXQ_FORMAT_BF16;
            if ((c.bias != 0 && c.bias != bias) || (is_plain(pair.a) && c.d_format == MXQ_FORMAT_F16)) continue;
            if (c.more.beta != 0 && c.d_format != MXQ_FORMAT_F32) continue;
            cases::Random random(static_cast<uint64_t>(ran) + 5);
            Operand a = make_operand(device, pair.a, std::nullopt, m, k, random), b = make_operand(device, pair.b, std::nullopt, n, k, random);
            Options options(device, c.more, 0, n, random, {MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T}, implementation);
            const oracle::Bytes bias_bytes = oracle::store(bias, draw_values(random, n, false));
            const Buffer bias_data(device, bias_bytes);
            if (c.bias != 0) {
                options.bias = oracle::load(bias, bias_bytes.data(), n);
                ok(mxq_gemm_options_set_bias(options.handle, bias, bias_data.data(), bias_data.bytes()));
            }
            const oracle::Floats previous = draw_previous(random, c.d_format, m * n, c.more.beta);
            testing::Output d(device, c.d_format, {std::nullopt, m, n}, 0, &previous);
            INFO(text(pair, c.more, c.bias, c.d_format, implementation));
            const auto promise = testing::run_product(device, mxq_gemm, mxq_gemm_query, options.handle, a.tensor, b.tensor, d.tensor);
            CHECK(promise.implementation == implementation);
            const auto wanted = finished(oracle::product(a.lines.data(), k, b.lines.data(), k, m, n, k), options, previous.data(), options.bias.data(), n);
            CHECK(check(promise, pair, wanted, d.values(), c.d_format, k, c.more) == "");
            ++ran;
        }
    CHECK(ran == (20 + 5) * 2 + (20 + 5 + 5) * 2 * (std::ssize(all) - 1));
}

// A copy of the ends on the host changes no result. On CUDA it lets cuBLASLt take the product.
MXQ_EACH_DEVICE("grouped gemm options: ends on the host") {
    const int64_t rows = 96, k = 64, n = 32;
    const std::vector<int64_t> ends{32, 32, 80};
    int64_t ran = 0;
    for (const bool is_int64 : {false, true})
        for (const bool by_name : {false, true}) {
            cases::Random random(9);
            testing::DeviceEnds on_device(device, ends, is_int64);
            const std::vector<int32_t> narrow(ends.begin(), ends.end());
            Operand a = make_grouped(device, bf16, rows, k, {ends}, MXQ_PART_ROWWISE, on_device, random);
            Operand b = make_operand(device, bf16, 3, n, k, random);
            ok(mxq_tensor_set_host_ends(a.tensor, is_int64 ? static_cast<const void*>(ends.data()) : narrow.data(),
                                        ends.size() * (is_int64 ? 8u : 4u)));
            const bool takes = by_name && has_cublaslt(device);
            const bool has_bias = by_name;  // one bias for each group
            Options options(device, {0.5f, 1, has_bias}, 0, 3 * n, random, {MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T}, takes ? "cublaslt" : nullptr);
            const oracle::Bytes bias_bytes = oracle::store(MXQ_FORMAT_F32, draw_values(random, 3 * n, false));
            const Buffer bias(device, bias_bytes);
            if (has_bias) {
                options.bias = oracle::load(MXQ_FORMAT_F32, bias_bytes.data(), 3 * n);
                ok(mxq_gemm_options_set_bias(options.handle, MXQ_FORMAT_F32, bias.data(), bias.bytes()));
            }
            const oracle::Floats previous = draw_previous(random, MXQ_FORMAT_F32, rows * n, 1);
            testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, rows, n}, 0, &previous);
            const auto promise = testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query, options.handle, a.tensor, b.tensor, d.tensor);
            if (takes) CHECK(promise.implementation == "cublaslt");
            std::vector<bool> written(static_cast<size_t>(rows), false);
            std::fill(written.begin(), written.begin() + 80, true);
            const oracle::Floats values = d.values(&written);
            for (size_t g = 0; g < 3; ++g) {
                const int64_t m = oracle::group_rows(ends, g), first = ends[g] - m, at = static_cast<int64_t>(g) * n;
                const auto wanted = finished(oracle::product(a.lines.data() + first * k, k, b.lines.data() + at * k, k, m, n, k), options,
                                             previous.data() + first * n, options.bias.data() + at, n);
                const oracle::Floats one(values.begin() + first * n, values.begin() + ends[g] * n);
                CHECK(check(promise, {bf16, bf16}, wanted, one, MXQ_FORMAT_F32, k, options.more) == "");
            }
            ++ran;
        }
    CHECK(ran == 4);
}

// A limit on multiprocessors changes no bit; who cannot keep to it declines by name.
TEST_CASE("gemm options: a number of multiprocessors", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    testing::Device& device = *testing::cuda();
    if (std::string(mxq_context_description(device.context)).find("sm_90") == std::string::npos) MXQ_SKIP("no compute capability 9.0");
    const auto mx = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32);
    const int64_t sizes[][3] = {{4100, 24, 416}, {1000, 700, 384}};  // the first: few columns, beside which no pass moves codes
    cases::Random random(17);
    for (const auto& [m, n, k] : sizes) {
        Operand a = make_operand(device, mx, std::nullopt, m, k, random), b = make_operand(device, mx, std::nullopt, n, k, random);
        oracle::Floats all;
        for (int32_t count : {0, 2, 3, 20, 131, 1024}) {
            Options options(device, {}, 0, 0, random);
            ok(mxq_gemm_options_set_exact_products(options.handle, 0));
            ok(mxq_gemm_options_set_implementation(options.handle, "wgmma_fp8_sm90"));
            ok(mxq_gemm_options_set_sm_count(options.handle, count));
            testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0, nullptr);
            testing::run_product(device, mxq_gemm, mxq_gemm_query, options.handle, a.tensor, b.tensor, d.tensor);
            if (count == 0) all = d.values();
            else CHECK(d.values() == all);
        }
    }
    const auto [m, n, k] = sizes[1];
    Operand a = make_operand(device, mx, std::nullopt, m, k, random), b = make_operand(device, mx, std::nullopt, n, k, random);
    testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0, nullptr);
    const auto refuse = [&](int32_t count, const char* name, const std::string& reason) {
        Options options(device, {}, 0, 0, random);
        ok(mxq_gemm_options_set_exact_products(options.handle, 0));
        ok(mxq_gemm_options_set_implementation(options.handle, name));
        ok(mxq_gemm_options_set_sm_count(options.handle, count));
        CHECK(mxq_gemm_query(device.context, options.handle, a.tensor, b.tensor, d.tensor, nullptr) == MXQ_STATUS_UNSUPPORTED);
        INFO(mxq_last_error());
        CHECK(std::string(mxq_last_error()).find(reason) != std::string::npos);
    };
    refuse(1, "wgmma_fp8_sm90", "needs two multiprocessors, found a limit of one");
    refuse(8, "mma_bf16", "cannot keep to 8 multiprocessors");
    refuse(8, "cublaslt_rebase", "cannot keep to 8 multiprocessors");
}

// The driver's functions, which the runtime does not call, need its context in the thread that calls them.
TEST_CASE("gemm options: kernels of sm_90 in a thread that has not used CUDA", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    testing::Device& device = *testing::cuda();
    if (std::string(mxq_context_description(device.context)).find("sm_90") == std::string::npos) MXQ_SKIP("no compute capability 9.0");
    const auto mxfp4 = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32), mxfp8 = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32);
    const struct {
        const char* name;
        const oracle::Spec &a, &b;
    } rows[] = {{"weights_sm90", mxfp8, mxfp4}, {"splitk_sm90", mxfp8, mxfp4}, {"wgmma_bf16_sm90", mxfp8, mxfp4}, {"wgmma_fp8_sm90", mxfp8, mxfp8}};
    for (const auto& row : rows) {
        INFO(row.name);
        cases::Random random(29);
        const int64_t m = 24, n = 300, k = 384;
        Operand a = make_operand(device, row.a, std::nullopt, m, k, random), b = make_operand(device, row.b, std::nullopt, n, k, random);
        Options options(device, {}, 0, 0, random);
        ok(mxq_gemm_options_set_exact_products(options.handle, 0));
        ok(mxq_gemm_options_set_implementation(options.handle, row.name));
        testing::Output here(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0, nullptr), there(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0, nullptr);
        testing::run_product(device, mxq_gemm, mxq_gemm_query, options.handle, a.tensor, b.tensor, here.tensor);
        testing::Plan plan;
        ok(mxq_gemm_query(device.context, options.handle, a.tensor, b.tensor, there.tensor, plan.out()));
        Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
        mxq_status status = MXQ_STATUS_INTERNAL_ERROR;
        std::string message;
        std::thread([&] {
            status = mxq_gemm(device.context, options.handle, a.tensor, b.tensor, there.tensor, workspace.bytes() ? workspace.data() : nullptr, workspace.bytes(), nullptr);
            message = mxq_last_error();
        }).join();
        INFO(message);
        CHECK(status == MXQ_STATUS_OK);
        workspace.read();  // waits for the device
        CHECK(there.values() == here.values());
    }
}
