// gemm and grouped_gemm refuse each bad input with its status and message and leave D as it was; the context still works.
#include "../oracle_groups.h"
#include "../verbs/product.h"
#include "says.h"

using testing::Buffer;
using testing::ok;

namespace {

const int64_t m = 40, n = 50, k = 70;

// A valid product (N,T) of tensors without groups.
struct Dense {
    explicit Dense(testing::Device& device)
        : device(device),
          a(testing::make_quantized({}, {std::nullopt, m, k}, false)),
          b(testing::make_quantized({}, {std::nullopt, n, k}, false)),
          a_part(device, a, MXQ_PART_ROWWISE, testing::make_operand({}, m, k, testing::Spread::normal, 1).compact),
          b_part(device, b, MXQ_PART_ROWWISE, testing::make_operand({}, n, k, testing::Spread::normal, 2).compact),
          d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0) {}
    mxq_status run(mxq_tensor* a, mxq_tensor* b, mxq_tensor* d, mxq_gemm_options* options = nullptr) {
        return mxq_gemm(device.context, options, a, b, d, nullptr, 0, nullptr);
    }
    bool untouched() const { return d.bytes() == testing::Bytes(m * n * 4, testing::poison); }

    testing::Device& device;
    testing::Tensor a, b;
    testing::PartBuffers a_part, b_part;
    testing::Output d;
};

// A valid grouped product (N,T) of two groups of 15 and 25 rows.
struct Grouped {
    explicit Grouped(testing::Device& device, const std::vector<int32_t>& ends_values = {15, 40})
        : device(device),
          groups(static_cast<int32_t>(ends_values.size())),
          a(testing::make_quantized({}, {std::nullopt, m, k}, false)),
          b(testing::make_quantized({}, {groups, n, k}, false)),
          ends(device, bytes(ends_values)),
          a_part(device, a, MXQ_PART_ROWWISE, testing::make_operand({}, m, k, testing::Spread::normal, 1).compact),
          b_part(device, b, MXQ_PART_ROWWISE, testing::make_operand({}, groups * n, k, testing::Spread::normal, 2).compact),
          d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0) {
        ok(testing::set_ends(a, ends.data(), MXQ_TYPE_INT32, groups));
    }
    static testing::Bytes bytes(const std::vector<int32_t>& ends) {
        auto* first = reinterpret_cast<const uint8_t*>(ends.data());
        return {first, first + 4 * ends.size()};
    }
    mxq_status run(mxq_tensor* a, mxq_tensor* b, mxq_tensor* d, mxq_gemm_options* options = nullptr) {
        return mxq_grouped_gemm(device.context, options, a, b, d, nullptr, 0, nullptr);
    }
    bool untouched() const { return d.bytes() == testing::Bytes(m * n * 4, testing::poison); }

    testing::Device& device;
    int32_t groups;
    testing::Tensor a, b;
    Buffer ends;
    testing::PartBuffers a_part, b_part;
    testing::Output d;
};

}  // namespace

MXQ_EACH_DEVICE("refusals: gemm") {
    Dense f(device);
    auto shaped = [](int64_t rows, int64_t cols) { return testing::make_quantized({}, {std::nullopt, rows, cols}, false); };
    auto f32 = [](testing::Dims dims) { return testing::make_tensor(MXQ_FORMAT_F32, dims); };

    MXQ_REFUSED(mxq_gemm(nullptr, nullptr, f.a, f.b, f.d.tensor, nullptr, 0, nullptr), MXQ_STATUS_INVALID_ARGUMENT, "context is NULL");
    MXQ_REFUSED(f.run(nullptr, f.b, f.d.tensor), MXQ_STATUS_INVALID_ARGUMENT, "a is NULL");
    MXQ_REFUSED(f.run(f.a, nullptr, f.d.tensor), MXQ_STATUS_INVALID_ARGUMENT, "b is NULL");
    MXQ_REFUSED(f.run(f.a, f.b, nullptr), MXQ_STATUS_INVALID_ARGUMENT, "d is NULL");
    if (device.is_cpu())
        MXQ_REFUSED(mxq_gemm(device.context, nullptr, f.a, f.b, f.d.tensor, nullptr, 0, &f), MXQ_STATUS_INVALID_ARGUMENT, "stream");

    MXQ_REFUSED(f.run(f.a, f.b, f.a), MXQ_STATUS_UNSUPPORTED, "d is mxfp8_e4m3", "expected f32");
    MXQ_REFUSED(f.run(shaped(m, k + 1), f.b, f.d.tensor), MXQ_STATUS_SHAPE_MISMATCH, "71", "70", "transposes");
    MXQ_REFUSED(f.run(shaped(m + 1, k), f.b, f.d.tensor), MXQ_STATUS_SHAPE_MISMATCH, "d is 40 x 50", "41 x 50");
    MXQ_REFUSED(f.run(f.a, f.b, f32({std::nullopt, n, m})), MXQ_STATUS_SHAPE_MISMATCH, "d is 50 x 40", "40 x 50");
    auto experts = testing::make_quantized({}, {1, n, k}, false);
    MXQ_REFUSED(f.run(f.a, experts, f.d.tensor), MXQ_STATUS_SHAPE_MISMATCH, "b is 1 x 50 x 70", "2 dimensions", "grouped_gemm");
    MXQ_REFUSED(f.run(f.a, f.b, f32({1, m, n})), MXQ_STATUS_SHAPE_MISMATCH, "d is 1 x 40 x 50", "2 dimensions");

    auto transposed = testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_T);
    auto transpose_of_a = shaped(k, m);  // has the right shape for (T,T), but no columnwise part
    ok(mxq_tensor_set_part(transpose_of_a, MXQ_PART_ROWWISE, f.a_part.codes->data(), f.a_part.codes->bytes(), f.a_part.scales->data(), f.a_part.scales->bytes()));
    MXQ_REFUSED(f.run(transpose_of_a, f.b, f.d.tensor, transposed), MXQ_STATUS_MISSING_BUFFER, "a declares no columnwise part", "transpose");
    MXQ_REFUSED(f.run(shaped(m, k), f.b, f.d.tensor), MXQ_STATUS_MISSING_BUFFER, "a declares no rowwise part");

    auto short_codes = shaped(m, k), short_scales = shaped(m, k), overlapping = f32({std::nullopt, m, n}), misaligned = f32({std::nullopt, m, n});
    ok(mxq_tensor_set_part(short_codes, MXQ_PART_ROWWISE, f.a_part.codes->data(), 2799, f.a_part.scales->data(), 120));
    MXQ_REFUSED(f.run(short_codes, f.b, f.d.tensor), MXQ_STATUS_BUFFER_TOO_SMALL, "a.rowwise.codes", "2799", "2800", "mxq_tensor_required_bytes");
    ok(mxq_tensor_set_part(short_scales, MXQ_PART_ROWWISE, f.a_part.codes->data(), 2800, f.a_part.scales->data(), 119));
    MXQ_REFUSED(f.run(short_scales, f.b, f.d.tensor), MXQ_STATUS_BUFFER_TOO_SMALL, "a.rowwise.scales", "119", "120");
    ok(mxq_tensor_set_data(overlapping, f.a_part.codes->data(), m * n * 4));
    MXQ_REFUSED(f.run(f.a, f.b, overlapping), MXQ_STATUS_INVALID_ARGUMENT, "d.data", "overlaps");
    ok(mxq_tensor_set_data(misaligned, static_cast<uint8_t*>(f.a_part.codes->data()) + 1, m * n * 4));
    MXQ_REFUSED(f.run(f.a, f.b, misaligned), MXQ_STATUS_MISALIGNED, "d.data", "multiple of 4");

    auto far_rows = f32({std::nullopt, 8193, 1});
    ok(mxq_tensor_set_row_stride(far_rows, int64_t(1) << 48));
    MXQ_REFUSED(mxq_gemm_query(device.context, nullptr, shaped(8193, k), shaped(1, k), far_rows, nullptr), MXQ_STATUS_INVALID_ARGUMENT,
                "d is 8193 x 1", "row stride", "2^63", "smaller");

    auto accumulate = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 1);
    auto bf16 = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, m, n});
    MXQ_REFUSED(f.run(f.a, f.b, bf16, accumulate), MXQ_STATUS_INVALID_ARGUMENT, "d is bf16", "accumulate", "f32");
    auto unknown = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, "no such thing");
    MXQ_REFUSED(f.run(f.a, f.b, f.d.tensor, unknown), MXQ_STATUS_UNSUPPORTED, "no such thing", device.is_cpu() ? "one of: cpu;" : "mma_bf16");
    auto other_device = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, device.is_cpu() ? "mma_bf16" : "cpu");
    MXQ_REFUSED(f.run(f.a, f.b, f.d.tensor, other_device), MXQ_STATUS_UNSUPPORTED, device.is_cpu() ? "mma_bf16" : "cpu");
    ok(testing::set_ends(f.a, f.b_part.codes->data(), MXQ_TYPE_INT32, 1));
    MXQ_REFUSED(f.run(f.a, f.b, f.d.tensor), MXQ_STATUS_UNSUPPORTED, "a has groups", "grouped_gemm");
    ok(testing::set_ends(f.a, nullptr, 0, 0));

    CHECK(f.untouched());
    testing::Plan plan;
    MXQ_REFUSED(mxq_gemm_query(device.context, nullptr, f.a, f.b, f.b, plan.out()), MXQ_STATUS_UNSUPPORTED, "mxq_gemm_query", "d is mxfp8_e4m3");
    CHECK(testing::run_product(device, mxq_gemm, mxq_gemm_query, nullptr, f.a, f.b, f.d.tensor).implementation == testing::product_implementations(device)[0]);
    CHECK(!f.untouched());
}

// Weights of which the rowwise part alone is declared are read by it in (N,N), and nothing else is.
MXQ_EACH_DEVICE("refusals: weights that are quantized along their rows alone") {
    Dense f(device);
    const auto input_gradient = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_N);
    auto a = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, m, n}), d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, m, k});
    CHECK(mxq_gemm_query(device.context, input_gradient, a, f.b, d, nullptr) == MXQ_STATUS_OK);

    auto fp4 = testing::make_tensor(MXQ_FORMAT_MXFP4, {std::nullopt, n, 64});
    auto wide_d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, m, 64});
    ok(mxq_tensor_set_part(fp4, MXQ_PART_ROWWISE, f.b_part.codes->data(), n * 32, f.b_part.scales->data(), n * 2));
    CHECK(mxq_gemm_query(device.context, input_gradient, a, fp4, wide_d, nullptr) == MXQ_STATUS_OK);
    ok(mxq_tensor_set_hadamard(fp4, MXQ_PART_ROWWISE, 1, 0x1234));
    MXQ_REFUSED(mxq_gemm_query(device.context, input_gradient, a, fp4, wide_d, nullptr), MXQ_STATUS_INVALID_ARGUMENT,
                "b declares no columnwise part", "b.rowwise has a Hadamard transform with the mask 0x1234", "quantize a columnwise part");

    auto x = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, n, m}), of_x = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, m, k});
    MXQ_REFUSED(mxq_gemm_query(device.context, testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N), x, f.b, of_x, nullptr),
                MXQ_STATUS_MISSING_BUFFER, "b declares no columnwise part");
    MXQ_REFUSED(mxq_gemm_query(device.context, input_gradient, f.a, testing::make_tensor(MXQ_FORMAT_NVFP4, {std::nullopt, k, n}), f.d.tensor, nullptr),
                MXQ_STATUS_UNSUPPORTED, "a is mxfp8_e4m3 with blocks of 32", "b is nvfp4 with blocks of 16", "or fp8 for a");
    CHECK(f.untouched());
}

MXQ_EACH_DEVICE("refusals: alpha, beta, bias") {
    Dense f(device);
    Buffer numbers(device, n * 4);
    auto with = [&](int32_t format, const void* bias, uint64_t bytes) {
        auto options = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T);
        ok(mxq_gemm_options_set_bias(options, format, bias, bytes));
        return options;
    };
    auto* start = static_cast<uint8_t*>(numbers.data());
    MXQ_REFUSED(f.run(f.a, f.b, f.d.tensor, with(MXQ_FORMAT_F32, nullptr, 0)), MXQ_STATUS_MISSING_BUFFER, "options.bias is NULL", "200",
                "mxq_gemm_options_set_bias");
    CHECK(mxq_gemm_query(device.context, with(MXQ_FORMAT_F32, nullptr, 0), f.a, f.b, f.d.tensor, nullptr) == MXQ_STATUS_OK);
    MXQ_REFUSED(f.run(f.a, f.b, f.d.tensor, with(MXQ_FORMAT_F32, start, 199)), MXQ_STATUS_BUFFER_TOO_SMALL, "options.bias holds 199 bytes", "200", "1 x 50", "f32");
    MXQ_REFUSED(f.run(f.a, f.b, f.d.tensor, with(MXQ_FORMAT_BF16, start + 1, 100)), MXQ_STATUS_MISALIGNED, "options.bias", "multiple of 2");
    MXQ_REFUSED(f.run(f.a, f.b, f.d.tensor, with(MXQ_FORMAT_F32, f.d.data(), n * 4)), MXQ_STATUS_INVALID_ARGUMENT, "d.data", "overlaps", "options.bias");

    auto twice = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 1);
    MXQ_REFUSED(mxq_gemm_options_set_beta(twice, 0.5f), MXQ_STATUS_INVALID_ARGUMENT, "accumulate and a beta of 0.5",
                "with 0 first");
    float beta = -1;
    ok(mxq_gemm_options_get_beta(twice, &beta));
    CHECK(beta == 0);
    CHECK(mxq_gemm_options_set_beta(twice, 0) == MXQ_STATUS_OK);
    ok(mxq_gemm_options_set_accumulate(twice, 0));
    ok(mxq_gemm_options_set_beta(twice, 0.5f));
    MXQ_REFUSED(mxq_gemm_options_set_accumulate(twice, 1), MXQ_STATUS_INVALID_ARGUMENT, "accumulate and a beta of 0.5");
    CHECK(mxq_gemm_options_set_accumulate(twice, 0) == MXQ_STATUS_OK);
    for (float bad : {INFINITY, -INFINITY, NAN}) {
        MXQ_REFUSED(mxq_gemm_options_set_alpha(twice, bad), MXQ_STATUS_INVALID_ARGUMENT, "alpha is", "finite");
        MXQ_REFUSED(mxq_gemm_options_set_beta(twice, bad), MXQ_STATUS_INVALID_ARGUMENT, "beta is", "finite");
    }
    for (int32_t bad : {-1, 0, 4, 11, 12})
        MXQ_REFUSED(mxq_gemm_options_set_bias(twice, bad, start, n * 4), MXQ_STATUS_INVALID_ARGUMENT, "format is " + std::to_string(bad), "BF16 (3)");
    MXQ_REFUSED(mxq_gemm_options_set_bias(twice, MXQ_FORMAT_NVFP4, nullptr, 0), MXQ_STATUS_INVALID_ARGUMENT, "format is 9");
    for (int32_t format : {MXQ_FORMAT_F32, 0})
        MXQ_REFUSED(mxq_gemm_options_set_bias(twice, format, nullptr, 256), MXQ_STATUS_INVALID_ARGUMENT,
                    "bias is NULL with 256 bytes", "was it allocated?");
    for (int32_t bad : {-1, 2}) MXQ_REFUSED(mxq_gemm_options_set_exact_products(twice, bad), MXQ_STATUS_INVALID_ARGUMENT, "exact", std::to_string(bad));
    for (int32_t bad : {-1, 2}) MXQ_REFUSED(mxq_gemm_options_set_row_invariant(twice, bad), MXQ_STATUS_INVALID_ARGUMENT, "row_invariant", std::to_string(bad));
    for (int32_t bad : {-1, 1025}) MXQ_REFUSED(mxq_gemm_options_set_sm_count(twice, bad), MXQ_STATUS_INVALID_ARGUMENT, "count is " + std::to_string(bad), "1 to 1024");
    CHECK(f.untouched());
    CHECK(numbers.untouched());

    ok(mxq_gemm_options_set_beta(twice, 0));
    ok(mxq_gemm_options_set_exact_products(twice, 1));
    if (device.is_cpu()) {
        ok(mxq_gemm_options_set_sm_count(twice, 8));
        MXQ_REFUSED(f.run(f.a, f.b, f.d.tensor, twice), MXQ_STATUS_UNSUPPORTED, "cannot keep to 8 multiprocessors");
        ok(mxq_gemm_options_set_sm_count(twice, 0));
    }
    ok(mxq_gemm_options_set_bias(twice, MXQ_FORMAT_F32, start, 3));
    ok(mxq_gemm_options_set_bias(twice, 0, nullptr, 0));  // clears the bias
    CHECK(testing::run_product(device, mxq_gemm, mxq_gemm_query, twice, f.a, f.b, f.d.tensor).implementation == testing::product_implementations(device)[0]);
    CHECK(!f.untouched());
}

MXQ_EACH_DEVICE("refusals: a bias of groups, ends on the host") {
    Grouped f(device);
    Buffer numbers(device, 2 * n * 4);
    auto options = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T);
    ok(mxq_gemm_options_set_bias(options, MXQ_FORMAT_F32, numbers.data(), n * 4));
    MXQ_REFUSED(f.run(f.a, f.b, f.d.tensor, options), MXQ_STATUS_BUFFER_TOO_SMALL, "options.bias holds 200 bytes", "400", "2 x 50");
    ok(mxq_gemm_options_set_bias(options, MXQ_FORMAT_F32, numbers.data(), 2 * n * 4));
    CHECK(mxq_grouped_gemm_query(device.context, options, f.a, f.b, f.d.tensor, nullptr) == MXQ_STATUS_OK);

    auto x = testing::make_quantized({}, {std::nullopt, m, k}, false), y = testing::make_quantized({}, {std::nullopt, m, n}, false);
    ok(testing::set_ends(x, nullptr, MXQ_TYPE_INT32, 2));
    ok(testing::set_ends(y, nullptr, MXQ_TYPE_INT32, 2));
    auto d = testing::make_tensor(MXQ_FORMAT_F32, {2, k, n});
    ok(mxq_gemm_options_set_transpose(options, MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N));
    MXQ_REFUSED(mxq_grouped_gemm_query(device.context, options, x, y, d, nullptr), MXQ_STATUS_UNSUPPORTED, "options has a bias", "contraction",
                "mxq_gemm_options_set_bias");
    ok(mxq_gemm_options_set_bias(options, 0, nullptr, 0));
    CHECK(mxq_grouped_gemm_query(device.context, options, x, y, d, nullptr) == MXQ_STATUS_OK);

    MXQ_REFUSED(mxq_tensor_set_host_ends(f.b, numbers.data(), 8), MXQ_STATUS_INVALID_ARGUMENT, "tensor has no groups", "mxq_tensor_set_groups first");
    CHECK(mxq_tensor_set_host_ends(f.b, nullptr, 0) == MXQ_STATUS_OK);
    int ran = 0;
    for (const auto& [ends, word] : std::vector<std::pair<std::vector<int32_t>, std::string>>{
             {{15, 14}, "a.host_ends[1] is 14, expected 15"}, {{-1, 40}, "a.host_ends[0] is -1, expected 0"}, {{15, 41}, "a.host_ends[1] is 41, expected 15"}}) {
        ok(mxq_tensor_set_host_ends(f.a, ends.data(), 8));
        MXQ_REFUSED(f.run(f.a, f.b, f.d.tensor), MXQ_STATUS_INVALID_ARGUMENT, word, "to 40");
        MXQ_REFUSED(mxq_grouped_gemm_query(device.context, nullptr, f.a, f.b, f.d.tensor, nullptr), MXQ_STATUS_INVALID_ARGUMENT, word);
        ++ran;
    }
    CHECK(ran == 3);
    const std::vector<int32_t> words{0, 0, 15, 0, 40, 0};  // read as 64-bit ends from the second word on
    ok(testing::set_ends(f.a, f.ends.data(), MXQ_TYPE_INT64, 1));
    ok(mxq_tensor_set_host_ends(f.a, reinterpret_cast<const uint8_t*>(words.data()) + 4, 8));
    MXQ_REFUSED(mxq_grouped_gemm_query(device.context, nullptr, f.a, testing::make_quantized({}, {1, n, k}, false), f.d.tensor, nullptr),
                MXQ_STATUS_MISALIGNED, "a.host_ends", "multiple of 8");
    ok(testing::set_ends(f.a, f.ends.data(), MXQ_TYPE_INT32, 2));
    const int32_t bad[] = {41, 41};
    ok(mxq_tensor_set_host_ends(f.a, bad, sizeof bad));
    ok(testing::set_ends(f.a, f.ends.data(), MXQ_TYPE_INT32, 2));  // clears the ends on the host
    CHECK(f.untouched());
    CHECK(testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query, nullptr, f.a, f.b, f.d.tensor).implementation == testing::product_implementations(device)[0]);
    CHECK(!f.untouched());
}

MXQ_EACH_DEVICE("refusals: grouped_gemm") {
    Grouped f(device);
    auto f32 = [](testing::Dims dims) { return testing::make_tensor(MXQ_FORMAT_F32, dims); };
    auto quantized = [](testing::Dims dims) { return testing::make_quantized({}, dims, false); };

    MXQ_REFUSED(mxq_grouped_gemm(nullptr, nullptr, f.a, f.b, f.d.tensor, nullptr, 0, nullptr), MXQ_STATUS_INVALID_ARGUMENT, "context is NULL");
    MXQ_REFUSED(f.run(nullptr, f.b, f.d.tensor), MXQ_STATUS_INVALID_ARGUMENT, "a is NULL");
    MXQ_REFUSED(f.run(quantized({std::nullopt, m, k}), f.b, f.d.tensor), MXQ_STATUS_INVALID_ARGUMENT, "a has no groups", "mxq_tensor_set_groups");
    MXQ_REFUSED(f.run(f.a, quantized({3, n, k}), f.d.tensor), MXQ_STATUS_SHAPE_MISMATCH, "b is 3 x 50 x 70", "2 groups");
    MXQ_REFUSED(f.run(f.a, quantized({std::nullopt, n, k}), f.d.tensor), MXQ_STATUS_SHAPE_MISMATCH, "b is 50 x 70", "3 dimensions");
    MXQ_REFUSED(f.run(f.a, f.b, f32({2, m, n})), MXQ_STATUS_SHAPE_MISMATCH, "d is 2 x 40 x 50");
    MXQ_REFUSED(f.run(f.a, quantized({2, n, k + 1}), f.d.tensor), MXQ_STATUS_SHAPE_MISMATCH, "70", "71");
    MXQ_REFUSED(f.run(f.a, f.b, f32({std::nullopt, m, n + 1})), MXQ_STATUS_SHAPE_MISMATCH, "d is 40 x 51", "40 x 50");
    ok(testing::set_ends(f.a, nullptr, MXQ_TYPE_INT32, 2));
    MXQ_REFUSED(f.run(f.a, f.b, f.d.tensor), MXQ_STATUS_MISSING_BUFFER, "a.ends", "NULL", "mxq_tensor_set_groups");
    ok(testing::set_ends(f.a, static_cast<uint8_t*>(f.ends.data()) + 1, MXQ_TYPE_INT32, 2));
    MXQ_REFUSED(f.run(f.a, f.b, f.d.tensor), MXQ_STATUS_MISALIGNED, "a.ends", "multiple of 4");
    ok(testing::set_ends(f.a, f.ends.data(), MXQ_TYPE_INT32, 2));

    // (T,N) needs the same groups on a and b, and a matrix of D for each of them.
    auto contraction = testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N), both = testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_T);
    auto y = quantized({std::nullopt, m, n}), d = f32({2, k, n});
    MXQ_REFUSED(f.run(f.a, y, d, both), MXQ_STATUS_UNSUPPORTED, "(T,T)", "(T,N)");
    MXQ_REFUSED(f.run(f.a, y, d, contraction), MXQ_STATUS_INVALID_ARGUMENT, "b has no groups");
    ok(testing::set_ends(y, f.ends.data(), MXQ_TYPE_INT32, 1));
    MXQ_REFUSED(f.run(f.a, y, d, contraction), MXQ_STATUS_SHAPE_MISMATCH, "b has other groups than a");
    ok(testing::set_ends(y, f.ends.data(), MXQ_TYPE_INT32, 2));
    MXQ_REFUSED(f.run(f.a, y, f32({3, k, n}), contraction), MXQ_STATUS_SHAPE_MISMATCH, "d is 3 x 70 x 50", "2 groups");
    MXQ_REFUSED(f.run(f.a, y, d, contraction), MXQ_STATUS_MISSING_BUFFER, "a declares no columnwise part");

    CHECK(f.untouched());
    CHECK(testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query, nullptr, f.a, f.b, f.d.tensor).implementation == testing::product_implementations(device)[0]);
    CHECK(!f.untouched());
}

TEST_CASE("refusals: a D of more tiles than a CUDA grid has blocks", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device, or a build without CUDA");
    const int64_t cols = int64_t(1) << 17;  // with 2^31 - 1 rows D has 2^24 x 2^10 tiles of 128 x 128
    auto query = [&](int64_t rows) {
        auto a = testing::make_quantized({}, {std::nullopt, rows, 1}, false), b = testing::make_quantized({}, {std::nullopt, cols, 1}, false);
        return mxq_gemm_query(testing::cuda()->context, nullptr, a, b, testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, rows, cols}), nullptr);
    };
    MXQ_REFUSED(query(MXQ_MAX_DIM), MXQ_STATUS_UNSUPPORTED, "mma_bf16", "at most 2^31 - 1 tiles", "17179869184");
    CHECK(query(int64_t(1) << 27) == MXQ_STATUS_OK);
}

TEST_CASE("refusals: ends that are out of order on a CPU context", "[cpu]") {
    int ran = 0;
    for (const auto& [ends, word] : std::vector<std::pair<std::vector<int32_t>, std::string>>{{{15, 14}, "14"}, {{-1, 40}, "-1"}, {{15, 41}, "41"}, {{0, 20, 19}, "19"}}) {
        Grouped f(testing::cpu(), ends);
        MXQ_REFUSED(f.run(f.a, f.b, f.d.tensor), MXQ_STATUS_INVALID_ARGUMENT, "ends", word);
        CHECK(f.untouched());
        ++ran;
    }
    CHECK(ran == 4);
    Grouped good(testing::cpu());
    CHECK(good.run(good.a, good.b, good.d.tensor) == MXQ_STATUS_OK);
}

// On CUDA the host never reads the ends: whatever they are, no byte outside D is written and no CUDA error follows.
TEST_CASE("grouped_gemm: ends that are out of order on a CUDA context touch nothing outside", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device, or a build without CUDA");
    int ran = 0;
    for (const auto& ends : std::vector<std::vector<int32_t>>{{15, 14}, {-1, 40}, {15, 1000000}, {INT32_MAX, INT32_MIN}, {40, -40, 80}, {-5, -4}}) {
        Grouped f(*testing::cuda(), ends);
        testing::run_product(*testing::cuda(), mxq_grouped_gemm, mxq_grouped_gemm_query, nullptr, f.a, f.b, f.d.tensor);
        f.d.bytes();  // throws if a canary was overwritten
        ++ran;
    }
    CHECK(ran == 6);
}
