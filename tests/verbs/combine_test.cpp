// mxq_combine: the bits of its rule, for every pair of types, with and without weights and a residual, aligned and not.
#include "../abi/says.h"
#include "combine.h"

#include <limits>

using testing::Buffer;
using testing::Bytes;
using testing::Choices;
using testing::DeviceRouting;
using testing::Draw;
using testing::ok;

namespace {

struct Case {
    int32_t in, out, residual;  // MXQ_FORMAT_*; a residual of 0: none
    int64_t cols, gap;          // elements between rows
    size_t offset;              // of data from an aligned address, in elements
    bool weighted;
};

// A matrix in memory of a device, with gaps between its rows.
struct Matrix {
    Matrix(testing::Device& device, int32_t format, int64_t rows, const Case& c, const Bytes& dense)
        : tensor(testing::make_tensor(format, {std::nullopt, rows, c.cols})),
          data(device, testing::spread_rows(dense, rows, c.cols * oracle::plain_bytes(format), c.gap * oracle::plain_bytes(format)),
               c.offset * static_cast<size_t>(oracle::plain_bytes(format))) {
        if (c.gap) ok(mxq_tensor_set_row_stride(tensor, c.cols + c.gap));
        ok(mxq_tensor_set_data(tensor, data.data(), data.bytes()));
    }
    testing::Tensor tensor;
    Buffer data;
};

// Returns how what a device writes differs from the rule.
std::string check(testing::Device& device, Choices choices, const Case& c, uint64_t seed) {
    if (!c.weighted) choices.weights.clear();
    const DeviceRouting routing(device, choices);
    ok(routing.route());
    const auto routed = testing::expected_routing(choices);
    const auto x = cases::plain_values(c.in, cases::Values::wide, choices.rows() * c.cols, seed);
    const int32_t residual_format = c.residual ? c.residual : c.in;
    const auto added = cases::plain_values(residual_format, cases::Values::wide, choices.tokens * c.cols, seed + 1);
    const Matrix in(device, c.in, choices.rows(), c, x), residual(device, residual_format, choices.tokens, c, added);
    const size_t out_bytes = static_cast<size_t>(choices.tokens * c.cols * oracle::plain_bytes(c.out));
    const Matrix out(device, c.out, choices.tokens, c, Bytes(out_bytes, testing::poison));
    ok(mxq_combine(device.context, nullptr, routing.handle, in.tensor, c.residual ? static_cast<mxq_tensor*>(residual.tensor) : nullptr,
                   out.tensor, nullptr, 0, nullptr));
    const auto sums = testing::combined(
        choices, routed.choice_rows, oracle::load(c.in, x.data(), choices.rows() * c.cols),
        c.residual ? oracle::load(residual_format, added.data(), choices.tokens * c.cols) : oracle::Floats{}, c.cols);
    return testing::difference(out.data.read(), testing::spread_rows(oracle::store(c.out, sums), choices.tokens,
                                                                     c.cols * oracle::plain_bytes(c.out), c.gap * oracle::plain_bytes(c.out)));
}

}  // namespace

MXQ_EACH_DEVICE("combine: types, weights, residuals and alignments") {
    int ran = 0;
    for (const int32_t in : cases::plain_formats)
        for (const int32_t out : cases::plain_formats)
            for (const int32_t residual : {0, MXQ_FORMAT_F32, MXQ_FORMAT_F16, MXQ_FORMAT_BF16})
                for (const int64_t cols : {1, 7, 64, 1024, 2056}) {
                    cases::Random random(static_cast<uint64_t>(ran) + 1);
                    const auto draw = static_cast<Draw>(random.below(4));
                    const auto choices = testing::draw_choices(1 + random.below(9), 1 + static_cast<int32_t>(random.below(9)), 16, draw, random.bits());
                    const Case c{in, out, residual, cols, random.below(2) * 8, static_cast<size_t>(random.below(2)), random.below(3) > 0};
                    const auto text = check(device, choices, c, static_cast<uint64_t>(ran));
                    if (!text.empty())
                        FAIL(mxq_format_name(in) << " to " << mxq_format_name(out) << ", " << cols << " columns, case " << ran << ": " << text);
                    ++ran;
                }
    CHECK(ran == 9 * 4 * 5);
}

MXQ_EACH_DEVICE("combine: no tokens, no columns, one choice, choices that are dropped") {
    for (const auto& [tokens, cols] : {std::pair<int64_t, int64_t>{0, 16}, {3, 0}, {5, 32}}) {
        Choices c = testing::draw_choices(tokens, 1, 4, Draw::uniform, 3);
        CHECK(check(device, c, {MXQ_FORMAT_BF16, MXQ_FORMAT_BF16, 0, cols, 0, 0, true}, 2) == "");
        c.ids.assign(c.ids.size(), -1);
        CHECK(check(device, c, {MXQ_FORMAT_BF16, MXQ_FORMAT_F32, 0, cols, 0, 0, true}, 2) == "");
        CHECK(check(device, c, {MXQ_FORMAT_BF16, MXQ_FORMAT_F32, MXQ_FORMAT_F16, cols, 0, 0, true}, 2) == "");
    }
}

// Values and weights of all kinds stay in their token.
MXQ_EACH_DEVICE("combine: NaN and Inf") {
    Choices c = testing::draw_choices(6, 3, 8, Draw::uniform, 11);
    c.weights[4] = std::numeric_limits<float>::quiet_NaN();
    c.weights[7] = std::numeric_limits<float>::infinity();
    c.weights[10] = 0.0f;
    const DeviceRouting routing(device, c);
    ok(routing.route());
    const auto routed = testing::expected_routing(c);
    constexpr int64_t cols = 40;
    oracle::Floats x(static_cast<size_t>(c.rows() * cols), 1.5f);
    x[static_cast<size_t>(routed.choice_rows[10]) * cols + 3] = std::numeric_limits<float>::infinity();
    const Case form{MXQ_FORMAT_F32, MXQ_FORMAT_F32, 0, cols, 0, 0, true};
    const Matrix in(device, MXQ_FORMAT_F32, c.rows(), form, oracle::store(MXQ_FORMAT_F32, x));
    const Matrix out(device, MXQ_FORMAT_F32, c.tokens, form, Bytes(static_cast<size_t>(c.tokens * cols * 4), testing::poison));
    ok(mxq_combine(device.context, nullptr, routing.handle, in.tensor, nullptr, out.tensor, nullptr, 0, nullptr));
    const auto sums = oracle::load(MXQ_FORMAT_F32, out.data.read().data(), c.tokens * cols);
    CHECK(testing::difference(out.data.read(),
                              oracle::store(MXQ_FORMAT_F32, testing::combined(c, routed.choice_rows, x, {}, cols))) == "");
    int nan = 0;
    for (size_t i = 0; i < sums.size(); ++i) nan += sums[i] != sums[i];
    CHECK(nan == cols + 1);  // the token of weight 4, and Inf times 0 of weight 10
}

TEST_CASE("combine: refusals", "[cpu]") {
    Choices c = testing::draw_choices(4, 2, 8, Draw::uniform, 1);
    const DeviceRouting routing(testing::cpu(), c);
    auto matrix = [](int64_t rows, int64_t cols, int32_t format = MXQ_FORMAT_F32) { return testing::make_tensor(format, {std::nullopt, rows, cols}); };
    auto in = matrix(8, 32), out = matrix(4, 32), other = matrix(4, 33);
    const auto query = [&](mxq_tensor* from, mxq_tensor* residual, mxq_tensor* to) {
        return mxq_combine_query(testing::any_context(), nullptr, routing.handle, from, residual, to, nullptr);
    };
    CHECK(query(in, nullptr, out) == MXQ_STATUS_OK);
    MXQ_REFUSED(query(out, nullptr, out), MXQ_STATUS_SHAPE_MISMATCH, "mxq_combine_query", "in is 4 x 32", "8 rows");
    MXQ_REFUSED(query(in, nullptr, in), MXQ_STATUS_SHAPE_MISMATCH, "out is 8 x 32", "4 rows");
    MXQ_REFUSED(query(in, nullptr, other), MXQ_STATUS_SHAPE_MISMATCH, "out is 4 x 33", "32 columns");
    MXQ_REFUSED(query(in, other, out), MXQ_STATUS_SHAPE_MISMATCH, "residual is 4 x 33");
    MXQ_REFUSED(query(matrix(8, 32, MXQ_FORMAT_MXFP4), nullptr, out), MXQ_STATUS_UNSUPPORTED, "in is mxfp4");
    MXQ_REFUSED(query(in, nullptr, nullptr), MXQ_STATUS_INVALID_ARGUMENT, "out is NULL");

    // Nothing was routed yet: the rows of choices are poison.
    oracle::Floats x(8 * 32, 1.0f);
    Buffer target(testing::cpu(), 4 * 32 * 4);
    ok(mxq_tensor_set_const_data(in, x.data(), x.size() * 4));
    ok(mxq_tensor_set_data(out, target.data(), target.bytes()));
    const auto combine = [&] { return mxq_combine(testing::cpu().context, nullptr, routing.handle, in, nullptr, out, nullptr, 0, nullptr); };
    MXQ_REFUSED(combine(), MXQ_STATUS_INVALID_ARGUMENT, "routing.choice_rows[0]", "call mxq_route");
    CHECK(target.untouched());
    ok(routing.route());
    CHECK(combine() == MXQ_STATUS_OK);
    ok(mxq_routing_set_memory(routing.handle, nullptr, 0));
    MXQ_REFUSED(combine(), MXQ_STATUS_MISSING_BUFFER, "routing.choice_rows is NULL", "mxq_route");

    const int32_t ends[8] = {8, 8, 8, 8, 8, 8, 8, 8}, row_tokens[8] = {};
    int32_t rows[8] = {0, 1, 2, 3, -1, 8, 6, 7};
    ok(mxq_routing_set_computed(routing.handle, ends, sizeof ends, row_tokens, sizeof row_tokens, rows, sizeof rows, nullptr,
                                0));
    MXQ_REFUSED(combine(), MXQ_STATUS_INVALID_ARGUMENT, "routing.choice_rows[5] is 8", "to 7", "call mxq_route");
    rows[5] = 7;
    CHECK(combine() == MXQ_STATUS_OK);
}
