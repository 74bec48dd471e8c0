// mxq_combine_backward: the bits of its rule, for all types, aligned and not.
#include "../abi/says.h"
#include "combine.h"

using testing::Buffer;
using testing::Bytes;
using testing::Choices;
using testing::DeviceRouting;
using testing::Draw;
using testing::ok;

namespace {

struct Case {
    int32_t d_out, in, d_in;  // MXQ_FORMAT_*; 0: not wanted
    int64_t cols, gap;
    size_t offset;  // elements
    bool weighted;
};

struct Matrix {
    Matrix(testing::Device& device, int32_t format, int64_t rows, int64_t cols, const Case& c, const Bytes& dense)
        : tensor(testing::make_tensor(format, {std::nullopt, rows, cols})),
          data(device, testing::spread_rows(dense, rows, cols * oracle::plain_bytes(format), c.gap * oracle::plain_bytes(format)),
               c.offset * static_cast<size_t>(oracle::plain_bytes(format))) {
        if (c.gap) ok(mxq_tensor_set_row_stride(tensor, cols + c.gap));
        ok(mxq_tensor_set_data(tensor, data.data(), data.bytes()));
    }
    testing::Tensor tensor;
    Buffer data;
};

Bytes poison_of(int64_t elements, int32_t format) {
    return Bytes(static_cast<size_t>(elements * oracle::plain_bytes(format)), testing::poison);
}

// Returns how what a device writes differs from the rule.
std::string check(testing::Device& device, Choices choices, const Case& c, uint64_t seed) {
    if (!c.weighted) choices.weights.clear();
    const DeviceRouting routing(device, choices);
    ok(routing.route());
    const auto routed = testing::expected_routing(choices);
    const int64_t rows = choices.rows(), tokens = choices.tokens, cols = c.cols;
    const int32_t in_format = c.in ? c.in : MXQ_FORMAT_F32, d_in_format = c.d_in ? c.d_in : MXQ_FORMAT_F32;
    const auto gradient = cases::plain_values(c.d_out, cases::Values::normal, tokens * cols, seed);
    const auto x = cases::plain_values(in_format, cases::Values::normal, rows * cols, seed + 1);
    const Matrix d_out(device, c.d_out, tokens, cols, c, gradient), in(device, in_format, rows, cols, c, x),
        d_in(device, d_in_format, rows, cols, c, poison_of(rows * cols, d_in_format)),
        d_weights(device, MXQ_FORMAT_F32, tokens, choices.choices, c, poison_of(rows, MXQ_FORMAT_F32));
    const auto given = [](bool wanted, const Matrix& matrix) { return wanted ? static_cast<mxq_tensor*>(matrix.tensor) : nullptr; };
    ok(mxq_combine_backward(device.context, nullptr, routing.handle, d_out.tensor, given(c.in != 0, in), given(c.d_in != 0, d_in),
                            given(c.in != 0, d_weights), nullptr, 0, nullptr));

    const auto g = oracle::load(c.d_out, gradient.data(), tokens * cols), values = oracle::load(in_format, x.data(), rows * cols);
    Bytes rows_written = poison_of(rows * cols, d_in_format);
    oracle::Floats weights;
    for (int64_t i = 0; i < rows; ++i) {
        const int64_t row = routed.choice_rows[static_cast<size_t>(i)], token = i / choices.choices;
        const float* const of_token = g.data() + token * cols;
        weights.push_back(row < 0 ? 0.0f : testing::sum_of_products(of_token, values.data() + row * cols, cols));
        if (row < 0) continue;
        oracle::Floats of_row;
        for (int64_t col = 0; col < cols; ++col)
            of_row.push_back(testing::times(c.weighted ? choices.weights[static_cast<size_t>(i)] : 1.0f, of_token[col]));
        const Bytes stored = oracle::store(d_in_format, of_row);
        std::copy(stored.begin(), stored.end(), rows_written.begin() + row * static_cast<int64_t>(stored.size()));
    }
    const auto compare = [&](const Matrix& matrix, int32_t format, int64_t matrix_rows, int64_t matrix_cols, const Bytes& expected) {
        return testing::difference(matrix.data.read(), testing::spread_rows(expected, matrix_rows, matrix_cols * oracle::plain_bytes(format),
                                                                            c.gap * oracle::plain_bytes(format)));
    };
    if (!c.d_in) rows_written = poison_of(rows * cols, d_in_format);
    if (const auto text = compare(d_in, d_in_format, rows, cols, rows_written); !text.empty()) return "d_in: " + text;
    const Bytes expected = c.in ? oracle::store(MXQ_FORMAT_F32, weights) : poison_of(rows, MXQ_FORMAT_F32);
    const auto text = compare(d_weights, MXQ_FORMAT_F32, tokens, choices.choices, expected);
    return text.empty() ? "" : "d_weights: " + text;
}

}  // namespace

MXQ_EACH_DEVICE("combine_backward: types, weights and alignments") {
    int ran = 0;
    for (const int32_t d_out : cases::plain_formats)
        for (const int32_t in : {0, MXQ_FORMAT_F32, MXQ_FORMAT_F16, MXQ_FORMAT_BF16})
            for (const int32_t d_in : {0, MXQ_FORMAT_F32, MXQ_FORMAT_F16, MXQ_FORMAT_BF16})
                for (const int64_t cols : {1, 7, 64, 255, 1032}) {
                    cases::Random random(static_cast<uint64_t>(ran) + 1);
                    const auto draw = static_cast<Draw>(random.below(4));
                    const auto choices = testing::draw_choices(1 + random.below(9), 1 + static_cast<int32_t>(random.below(5)), 8, draw, random.bits());
                    const Case c{d_out, in, d_in, cols, random.below(2) * 8, static_cast<size_t>(random.below(2)), random.below(3) > 0};
                    const auto text = check(device, choices, c, static_cast<uint64_t>(ran));
                    if (!text.empty()) FAIL(cols << " columns, case " << ran << ": " << text);
                    ++ran;
                }
    CHECK(ran == 3 * 4 * 4 * 5);
}

TEST_CASE("combine_backward: refusals", "[cpu]") {
    const auto choices = testing::draw_choices(4, 2, 8, Draw::uniform, 1);
    const DeviceRouting routing(testing::cpu(), choices);
    const auto matrix = [](int64_t rows, int64_t cols, int32_t format = MXQ_FORMAT_F32) { return testing::make_tensor(format, {std::nullopt, rows, cols}); };
    auto rows = matrix(8, 32), tokens = matrix(4, 32), other = matrix(8, 33), weights = matrix(4, 2), halves = matrix(4, 2, MXQ_FORMAT_BF16);
    const auto query = [&](mxq_tensor* d_out, mxq_tensor* in, mxq_tensor* d_in, mxq_tensor* d_weights) {
        return mxq_combine_backward_query(testing::any_context(), nullptr, routing.handle, d_out, in, d_in, d_weights, nullptr);
    };
    CHECK(query(tokens, rows, rows, weights) == MXQ_STATUS_OK);
    CHECK(query(tokens, nullptr, rows, nullptr) == MXQ_STATUS_OK);
    MXQ_REFUSED(query(rows, rows, rows, weights), MXQ_STATUS_SHAPE_MISMATCH, "d_out is 8 x 32", "4 rows");
    MXQ_REFUSED(query(tokens, tokens, nullptr, weights), MXQ_STATUS_SHAPE_MISMATCH, "in is 4 x 32", "8 rows");
    MXQ_REFUSED(query(tokens, rows, other, nullptr), MXQ_STATUS_SHAPE_MISMATCH, "d_in is 8 x 33", "32 columns");
    MXQ_REFUSED(query(tokens, nullptr, nullptr, weights), MXQ_STATUS_INVALID_ARGUMENT, "in is NULL");
    MXQ_REFUSED(query(tokens, rows, nullptr, halves), MXQ_STATUS_SHAPE_MISMATCH, "d_weights is bf16 4 x 2", "f32 4 x 2");
    MXQ_REFUSED(query(nullptr, rows, rows, weights), MXQ_STATUS_INVALID_ARGUMENT, "d_out is NULL");
    // Without groups no byte is asked for where these are padded, however many rows there are.
    const int32_t no_ends[1] = {};
    auto grouped = matrix(4, 2);
    ok(mxq_tensor_set_groups(grouped, no_ends, 0, MXQ_TYPE_INT32, 0));
    ok(mxq_tensor_set_group_alignment(grouped, 32, 0));
    MXQ_REFUSED(query(tokens, rows, nullptr, grouped), MXQ_STATUS_UNSUPPORTED, "d_weights has groups", "clear them");
}
