// Products that go through cuBLASLt on a chip that is here, by name, against the oracle: every kind of scales, their layouts,
// transposes, ragged and empty groups, padding, and shapes that the library does not take. Where there is no such library or
// chip, the device's best implementation runs the same cases, mma_bf16 those of MX and NVFP4.
#include "../machine.h"
#include "../verbs/product.h"

using testing::Buffer;
using testing::Machine;
using testing::ok;

namespace {

const oracle::Spec bf16 = testing::spec_of(MXQ_FORMAT_BF16, MXQ_SCALING_NONE);

oracle::Spec fp8(int32_t scaling, int32_t format = MXQ_FORMAT_FP8_E4M3) { return testing::spec_of(format, scaling); }
bool is_plain(const oracle::Spec& spec) { return spec.format == MXQ_FORMAT_BF16; }
bool is_wide(const oracle::Spec& spec) { return spec.scaling == MXQ_SCALING_1X128 || spec.scaling == MXQ_SCALING_128X128; }
bool is_nvfp4(const oracle::Spec& spec) { return spec.format == MXQ_FORMAT_NVFP4; }
bool is_mx(const oracle::Spec& spec) {
    const auto& formats = testing::mx_formats;
    return std::find(std::begin(formats), std::end(formats), spec.format) != std::end(formats);
}
bool is_block_scaled(const oracle::Spec& spec) { return is_mx(spec) || is_nvfp4(spec); }
bool is_tensor(const oracle::Spec& spec) { return spec.scaling == MXQ_SCALING_TENSOR; }

using Pair = std::pair<oracle::Spec, oracle::Spec>;

// Returns the implementation that must take a product on this machine; NULL: any. `n` is that of D, `k` of the contraction.
const char* expected(const Machine& machine, const Pair& pair, int64_t n, int64_t k, int32_t d_format, bool swizzled) {
    const int64_t d_row = n * (d_format == MXQ_FORMAT_F32 ? 4 : 2);
    if (!is_plain(pair.first) && d_row % 16 != 0) return "mma_bf16";
    if (!is_block_scaled(pair.first)) {
        const bool everywhere = is_plain(pair.first) || is_tensor(pair.first);
        if (machine.is_hopper() && machine.version >= 120900) return "cublaslt";
        return everywhere && machine.has_blackwell() ? "cublaslt" : nullptr;
    }
    if (!machine.has_blackwell() || (is_nvfp4(pair.first) && k % 32 != 0)) return "mma_bf16";
    return testing::block_scaled(pair.first, pair.second, swizzled, k);
}

// Returns the same of groups whose ends the device alone has; `k` is that of groups of rows, whose rows of D are whole 16
// bytes.
const char* expected_of_groups(const Machine& machine, const Pair& pair, int64_t k, bool swizzled) {
    if (!is_block_scaled(pair.first)) {
        if (machine.is_hopper() && machine.version >= (is_wide(pair.first) ? 131000 : 130700)) return "cublaslt_grouped";
        return !is_wide(pair.first) && machine.groups_on_blackwell() ? "cublaslt_grouped" : nullptr;
    }
    if (!machine.groups_on_blackwell()) return machine.capability >= 100 ? nullptr : "mma_bf16";
    return testing::block_scaled_groups(pair.first, pair.second, swizzled, k);
}

struct Operand {
    testing::Tensor tensor;
    std::unique_ptr<testing::InputPart> part;
    std::unique_ptr<Buffer> data;
    oracle::Floats lines;
};

oracle::Floats normal_values(cases::Random& random, size_t count) {
    oracle::Floats x(count);
    for (float& value : x) value = random.normal();
    return x;
}

// `transposed`: the tensor is (k, outer) and its columnwise part is used.
Operand make_operand(testing::Device& device, const oracle::Spec& spec, std::optional<int64_t> matrices, int64_t outer,
                     int64_t k, bool transposed, bool swizzled, cases::Random& random) {
    const testing::Dims dims{matrices, transposed ? k : outer, transposed ? outer : k};
    const oracle::Floats x = normal_values(random, dims.shape().count());
    Operand out;
    if (is_plain(spec)) {
        const oracle::Bytes bytes = oracle::store(MXQ_FORMAT_BF16, x);
        out.tensor = testing::make_tensor(MXQ_FORMAT_BF16, dims);
        out.lines = oracle::load(MXQ_FORMAT_BF16, bytes.data(), x.size());
        out.data = std::make_unique<Buffer>(device, bytes);
        ok(mxq_tensor_set_data(out.tensor, out.data->data(), out.data->bytes()));
        return out;
    }
    const int32_t part = transposed ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE;
    const oracle::Part stored = oracle::quantize(spec, x, dims.shape(), part, swizzled);
    out.tensor = testing::make_tensor(spec, dims, swizzled);
    out.lines = oracle::lines(spec, stored, dims.shape(), part, swizzled);
    out.part = std::make_unique<testing::InputPart>(device, out.tensor, spec, part, stored);
    return out;
}

// A grouped (rows, cols) tensor; `lines` is what its rows decode to, without padding.
Operand make_grouped(testing::Device& device, const oracle::Spec& spec, int64_t rows, int64_t cols,
                     const oracle::Groups& groups, int32_t part, bool swizzled, const testing::DeviceEnds& ends,
                     cases::Random& random) {
    const oracle::Floats x = normal_values(random, static_cast<size_t>(rows * cols));
    const testing::Dims dims{std::nullopt, rows, cols};
    Operand out;
    if (is_plain(spec)) {
        const oracle::Bytes bytes = oracle::store(MXQ_FORMAT_BF16, x);
        const auto padded = oracle::pad_rows(bytes, cols * 2, rows, groups.ends, groups.rowwise);
        out.tensor = testing::make_tensor(MXQ_FORMAT_BF16, dims);
        out.lines = oracle::load(MXQ_FORMAT_BF16, bytes.data(), x.size());
        out.data = std::make_unique<Buffer>(device, oracle::on_background(padded.bytes, padded.written, oracle::untouchable));
        ok(mxq_tensor_set_data(out.tensor, out.data->data(), out.data->bytes()));
    } else {
        const oracle::Part stored =
            oracle::quantize_groups(spec, x, rows, cols, groups, part, swizzled).on(oracle::untouchable);
        out.tensor = testing::make_tensor(spec, dims, swizzled);
        out.lines = oracle::dequantize_groups(spec, stored, rows, cols, groups, part, swizzled);
        out.part = std::make_unique<testing::InputPart>(device, out.tensor, spec, part, stored);
    }
    ends.set(out.tensor, groups);
    return out;
}

std::string check(const oracle::Promise& promise, const oracle::Spec& a, const std::vector<oracle::Element>& wanted,
                  const oracle::Floats& d, int32_t format, int64_t k, bool accumulate) {
    return oracle::check_product(wanted, d, format, oracle::bound_factor(promise, k, is_plain(a)) + accumulate);
}

std::string text(const Pair& pair) {
    const auto one = [](const oracle::Spec& spec) { return is_plain(spec) ? "bf16" : testing::describe(spec); };
    return one(pair.first) + " x " + one(pair.second);
}

oracle::Spec mx(int32_t format, int32_t scaling = MXQ_SCALING_1X32) { return testing::spec_of(format, scaling); }
const oracle::Spec mxfp8 = mx(MXQ_FORMAT_MXFP8_E4M3), mxfp4 = mx(MXQ_FORMAT_MXFP4), nvfp4 = mx(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16);

const Pair dense_pairs[] = {
    {bf16, bf16},
    {fp8(MXQ_SCALING_TENSOR), fp8(MXQ_SCALING_TENSOR)},
    {fp8(MXQ_SCALING_TENSOR, MXQ_FORMAT_FP8_E5M2), fp8(MXQ_SCALING_TENSOR)},
    {fp8(MXQ_SCALING_ROW), fp8(MXQ_SCALING_ROW)},
    {fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_128X128)},
    {fp8(MXQ_SCALING_128X128), fp8(MXQ_SCALING_1X128)},
    {fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_1X128)},
    {mxfp8, mxfp8},
    {mx(MXQ_FORMAT_MXFP8_E5M2), mx(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_32X32)},
    {mx(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X128), mx(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_128X128)},
    {nvfp4, nvfp4},
    {nvfp4, mx(MXQ_FORMAT_NVFP4, MXQ_SCALING_16X16)},
    {mxfp4, mxfp4},
    {mxfp8, mxfp4},
    {mx(MXQ_FORMAT_MXFP6_E2M3), mx(MXQ_FORMAT_MXFP6_E3M2)},
};

// Each of the lists below is divided among three test cases, so that shards share it.
constexpr int kParts = 3;

void check_products(testing::Device& device, int part) {
    // The last one's rows of a 16-bit D are no whole 16 bytes.
    const int64_t sizes[][3] = {{128, 192, 512}, {36, 64, 400}, {132, 128, 288}, {8, 144, 1040}, {4, 16, 128}, {32, 68, 256}};
    const Machine machine(device);
    int listed = 0;
    for (const Pair& pair : dense_pairs)
        for (const auto& [m, n, k] : sizes)
            for (int which = 0; which < 6; ++which) {  // (N,T), (N,N), (T,N), with compact and with swizzled scales
                const bool transpose_a = which % 3 == 2, transpose_b = which % 3 == 0;
                const bool swizzled = which >= 3;
                if ((is_plain(pair.first) && which > 0) || (swizzled && !is_wide(pair.first) && !is_block_scaled(pair.first))) continue;
                const int index = listed++;
                if (index % kParts != part) continue;
                cases::Random random(static_cast<uint64_t>(index) + 1);
                const int32_t format =
                    is_plain(pair.first) && index % 3 == 1 ? MXQ_FORMAT_BF16 : cases::plain_formats[index % 3];
                const bool accumulate = format == MXQ_FORMAT_F32 && index % 2;
                const char* const wanted_name = expected(machine, pair, n, k, format, swizzled);
                Operand a = make_operand(device, pair.first, std::nullopt, m, k, transpose_a, swizzled, random);
                Operand b = make_operand(device, pair.second, std::nullopt, n, k, !transpose_b, swizzled, random);
                const auto previous = normal_values(random, static_cast<size_t>(m * n));
                testing::Output d(device, format, {std::nullopt, m, n}, 16, accumulate ? &previous : nullptr);
                auto options = testing::gemm_options(transpose_a ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                                                     transpose_b ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N, accumulate, wanted_name);
                const auto promise =
                    testing::run_product(device, mxq_gemm, mxq_gemm_query, options, a.tensor, b.tensor, d.tensor);
                const auto sums =
                    oracle::product(a.lines.data(), k, b.lines.data(), k, m, n, k, accumulate ? previous.data() : nullptr);
                INFO(text(pair) << ", " << m << "x" << n << "x" << k << ", case " << which << ", D " << format << ", by "
                                << promise.implementation);
                CHECK(check(promise, pair.first, sums, d.values(), format, k, accumulate) == "");
            }
    CHECK(listed == 6 * (1 + 3 * 3 + 11 * 6));
}

}  // namespace

MXQ_CUDA_DEVICE("cublaslt products: every kind of scales and transpose, 1 of 3") { check_products(device, 0); }
MXQ_CUDA_DEVICE("cublaslt products: every kind of scales and transpose, 2 of 3") { check_products(device, 1); }
MXQ_CUDA_DEVICE("cublaslt products: every kind of scales and transpose, 3 of 3") { check_products(device, 2); }

namespace {

struct RowGroups {
    Pair pair;
    bool per_group;
    int64_t a_alignment, d_alignment;  // 0: D has no groups
};

const RowGroups row_groups[] = {
    {{bf16, bf16}, false, 1, 0},
    {{bf16, bf16}, false, 16, 8},
    {{fp8(MXQ_SCALING_TENSOR), fp8(MXQ_SCALING_TENSOR)}, false, 1, 0},
    {{fp8(MXQ_SCALING_TENSOR), fp8(MXQ_SCALING_TENSOR)}, true, 1, 32},
    {{fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_128X128)}, false, 1, 0},
    {{fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_128X128)}, false, 4, 4},
    {{fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_128X128)}, false, 128, 16},
    {{fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_1X128)}, false, 1, 32},
    {{fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_1X128)}, false, 8, 2},
    {{mxfp8, mxfp8}, false, 1, 0},
    {{mx(MXQ_FORMAT_MXFP8_E5M2), mxfp8}, false, 16, 8},
    {{mxfp8, mx(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_32X32)}, false, 1, 32},
    {{nvfp4, nvfp4}, false, 1, 0},
    {{nvfp4, nvfp4}, true, 32, 32},
    {{mxfp8, mxfp4}, false, 1, 0},
    {{mxfp4, mxfp4}, false, 128, 16},
};

// Groups of 0 to 4 rows.
oracle::Ends many_ends(int64_t count) {
    oracle::Ends ends;
    for (int64_t g = 0; g < count; ++g) ends.push_back((ends.empty() ? 0 : ends.back()) + g * 7 % 5);
    return ends;
}

const oracle::Ends all_ends[] = {{100, 100, 129, 256, 256, 511}, {0, 512}, {1, 2, 3, 4, 300, 301, 302, 440, 512}, {17},
                                 {1, 4, 9, 136, 265, 265, 400},  // 1, 3, 5, 127, 129, 0, 135 rows
                                 many_ends(256)};                // 510 rows

void check_groups_of_rows(testing::Device& device, int part) {
    const Machine machine(device);
    const int64_t rows = 512, n = 64;
    int listed = 0;
    for (const RowGroups& c : row_groups)
        for (const oracle::Ends& ends_of_groups : all_ends)
            for (int which = 0; which < 4; ++which) {
                const bool transpose_b = which % 2 == 0, swizzled = which >= 2;
                const bool blocks = is_block_scaled(c.pair.first);
                if ((is_plain(c.pair.first) && !transpose_b) || (swizzled && !is_wide(c.pair.first) && !blocks)) continue;
                const int index = listed++;
                if (index % kParts != part) continue;
                cases::Random random(static_cast<uint64_t>(index) + 1);
                oracle::Spec a_spec = c.pair.first, b_spec = c.pair.second;
                a_spec.per_matrix = b_spec.per_matrix = c.per_group;
                const int64_t k = index % 2 == 0 ? 512
                                  : blocks       ? 288
                                                 : 272,
                              count = static_cast<int64_t>(ends_of_groups.size());
                const char* const wanted_name = expected_of_groups(machine, c.pair, k, swizzled);
                const int32_t format = index % 3 ? MXQ_FORMAT_BF16 : MXQ_FORMAT_F32;
                const bool accumulate = index % 6 == 3;
                const oracle::Groups groups{ends_of_groups, c.a_alignment};
                testing::DeviceEnds ends(device, groups.ends, index % 2);
                Operand a = make_grouped(device, a_spec, rows, k, groups, MXQ_PART_ROWWISE, swizzled, ends, random);
                Operand b = make_operand(device, b_spec, count, n, k, !transpose_b, swizzled, random);
                const int64_t unit = c.d_alignment ? c.d_alignment : 1;
                const int64_t d_rows = c.d_alignment ? oracle::padded_bound(rows, count, unit) : rows;
                const auto previous = normal_values(random, static_cast<size_t>(d_rows * n));
                testing::Output d(device, format, {std::nullopt, d_rows, n}, 0, accumulate ? &previous : nullptr);
                testing::Tensor grouped_d = testing::make_tensor(format, {std::nullopt, rows, n});
                ok(mxq_tensor_set_data(grouped_d, d.data(), d.size()));
                if (c.d_alignment) ends.set(grouped_d, {{}, unit});
                auto options = testing::gemm_options(MXQ_TRANSPOSE_N, transpose_b ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                                                     accumulate, wanted_name);
                const auto promise = testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query, options, a.tensor,
                                                       b.tensor, grouped_d);

                const auto starts = oracle::padded_starts(groups.ends, unit);
                const std::vector<bool> written = oracle::written_rows(groups.ends, starts, d_rows, accumulate);
                const oracle::Floats values = d.values(&written);
                INFO(text(c.pair) << ", " << count << " groups, k " << k << ", alignments " << c.a_alignment << " "
                                  << c.d_alignment << ", case " << which << ", accumulate " << accumulate << ", by " << promise.implementation);
                for (size_t g = 0; g < groups.ends.size(); ++g) {
                    const int64_t m = oracle::group_rows(groups.ends, g), first = groups.ends[g] - m;
                    const float* const weights = b.lines.data() + static_cast<int64_t>(g) * n * k;
                    auto sums = oracle::product(a.lines.data() + first * k, k, weights, k, m, n, k,
                                                accumulate ? previous.data() + starts[g] * n : nullptr);
                    sums.resize(static_cast<size_t>((oracle::written_end(groups.ends, starts, g, accumulate) - starts[g]) * n));  // padding is +0
                    const oracle::Floats one(values.begin() + starts[g] * n, values.begin() + oracle::written_end(groups.ends, starts, g, accumulate) * n);
                    CHECK(check(promise, a_spec, sums, one, format, k, accumulate) == "");
                }
            }
    CHECK(listed == 6 * (2 + 2 * 2 + 12 * 4));
}

}  // namespace

MXQ_CUDA_DEVICE("cublaslt products: groups of rows, 1 of 3") { check_groups_of_rows(device, 0); }
MXQ_CUDA_DEVICE("cublaslt products: groups of rows, 2 of 3") { check_groups_of_rows(device, 1); }
MXQ_CUDA_DEVICE("cublaslt products: groups of rows, 3 of 3") { check_groups_of_rows(device, 2); }

namespace {

void check_groups_along_the_contraction(testing::Device& device, int part) {
    const Machine machine(device);
    const int64_t m = 132, n = 96, rows = 512;
    const oracle::Spec kinds[] = {fp8(MXQ_SCALING_TENSOR), fp8(MXQ_SCALING_TENSOR), fp8(MXQ_SCALING_1X128), mxfp8, mxfp8,
                                  nvfp4, nvfp4, mxfp4};
    int listed = 0;
    for (int kind = 0; kind < 8; ++kind)
        for (const oracle::Ends& ends_of_groups : all_ends)
            for (bool accumulate : {false, true}) {
                const int index = listed++;
                if (index % kParts != part) continue;
                cases::Random random(static_cast<uint64_t>(index) + 1);
                oracle::Spec spec = kinds[kind];
                spec.per_matrix = kind == 1 || is_nvfp4(spec);
                const bool swizzled = is_block_scaled(spec) && kind % 2 == 0;
                const char* const wanted_name = expected_of_groups(machine, {spec, spec}, 32, swizzled);
                const int64_t count = static_cast<int64_t>(ends_of_groups.size());
                // FP4 codes are whole 16 bytes from 32 on.
                const oracle::Groups groups = is_nvfp4(spec) ? oracle::Groups{ends_of_groups, 1, 32} : oracle::Groups{ends_of_groups};
                testing::DeviceEnds ends(device, groups.ends, index % 2);
                Operand a = make_grouped(device, spec, rows, m, groups, MXQ_PART_COLUMNWISE, swizzled, ends, random);
                Operand b = make_grouped(device, spec, rows, n, groups, MXQ_PART_COLUMNWISE, swizzled, ends, random);
                const auto previous = normal_values(random, static_cast<size_t>(count * m * n));
                testing::Output d(device, MXQ_FORMAT_F32, {count, m, n}, 0, accumulate ? &previous : nullptr);
                auto options = testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N, accumulate, wanted_name);
                const auto promise = testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query, options, a.tensor,
                                                       b.tensor, d.tensor);
                const oracle::Floats values = d.values();
                INFO("kind " << kind << ", " << count << " groups, accumulate " << accumulate << ", by " << promise.implementation);
                for (size_t g = 0; g < groups.ends.size(); ++g) {
                    const int64_t k = oracle::group_rows(groups.ends, g), first = groups.ends[g] - k;
                    const int64_t at = static_cast<int64_t>(g) * m * n;
                    const auto a_lines = oracle::transposed(a.lines.data() + first * m, k, m);
                    const auto b_lines = oracle::transposed(b.lines.data() + first * n, k, n);
                    const auto sums = oracle::product(a_lines.data(), k, b_lines.data(), k, m, n, k,
                                                      accumulate ? previous.data() + at : nullptr);
                    const oracle::Floats one(values.begin() + at, values.begin() + at + m * n);
                    CHECK(check(promise, spec, sums, one, MXQ_FORMAT_F32, k, accumulate) == "");
                }
            }
    CHECK(listed == 8 * 6 * 2);
}

}  // namespace

MXQ_CUDA_DEVICE("cublaslt products: groups along the contraction, 1 of 3") { check_groups_along_the_contraction(device, 0); }
MXQ_CUDA_DEVICE("cublaslt products: groups along the contraction, 2 of 3") { check_groups_along_the_contraction(device, 1); }
MXQ_CUDA_DEVICE("cublaslt products: groups along the contraction, 3 of 3") { check_groups_along_the_contraction(device, 2); }
