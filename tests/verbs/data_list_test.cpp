// Plain experts that have an address each, with and without gaps between rows, give the bytes of the same experts in one piece.
// AddressSanitizer sees what lies behind the last row of each.
#include "../abi/says.h"
#include "../apart.h"
#include "../cases.h"
#include "product.h"

#include <algorithm>

using testing::Buffer;
using testing::Bytes;
using testing::ok;

namespace {

constexpr int32_t both_parts[] = {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE};

// Holds experts twice: in one piece, and each in memory of its own.
class Experts {
public:
    Experts(int32_t format, testing::Dims dims, int64_t gap, uint64_t seed)
        : dense(testing::make_tensor(format, dims)), listed(testing::make_tensor(format, dims)) {
        const int64_t element = oracle::plain_bytes(format), row = dims.cols * element, experts = *dims.experts;
        const Bytes values =
            cases::plain_values(format, cases::Values::normal, static_cast<size_t>(dims.shape().count()), seed);
        const auto add = [&](int64_t first, int64_t rows) {
            const Bytes some(values.begin() + first * row, values.begin() + (first + rows) * row);
            buffers_.push_back(std::make_unique<Buffer>(testing::cpu(), testing::spread_rows(some, rows, row, gap * element)));
            return buffers_.back().get();
        };
        for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(dense), static_cast<mxq_tensor*>(listed)})
            ok(mxq_tensor_set_row_stride(tensor, dims.cols + gap));
        const Buffer& all = *add(0, experts * dims.rows);
        ok(mxq_tensor_set_const_data(dense, all.data(), all.bytes()));
        for (int64_t e = experts; e-- > 0;) addresses_.push_back(add(e * dims.rows, dims.rows)->data());
        std::reverse(addresses_.begin(), addresses_.end());
        ok(mxq_tensor_set_data_list(listed, experts, addresses_.data(), buffers_.back()->bytes()));
    }

    testing::Tensor dense, listed;

private:
    std::vector<std::unique_ptr<Buffer>> buffers_;
    std::vector<const void*> addresses_;
};

// Returns all bytes of both parts that a verb makes of a plain tensor.
Bytes made(testing::Verb verb, testing::Query query, const mxq_tensor* in, const oracle::Spec& spec, testing::Dims dims) {
    testing::Device& device = testing::cpu();
    const auto out = testing::make_tensor(spec, dims, false);
    Bytes bytes;
    std::vector<std::unique_ptr<testing::OutputPart>> parts;
    for (const int32_t part : both_parts)
        parts.push_back(std::make_unique<testing::OutputPart>(device, out, spec, part, testing::is_nvfp4(spec)));
    testing::run(device, verb, query, nullptr, in, out);
    for (const auto& part : parts) {
        const Bytes more = part->bytes();
        bytes.insert(bytes.end(), more.begin(), more.end());
    }
    return bytes;
}

}  // namespace

TEST_CASE("data lists: quantize and amax, every format, and rows with gaps", "[cpu]") {
    int ran = 0;
    for (oracle::Spec spec : testing::all_formats())
        for (const int32_t format : cases::plain_formats)
            for (const int64_t gap : {0, 3}) {
                spec.per_matrix = testing::has_amax(spec) && ran % 2;
                const testing::Dims dims{3, 37, 132};
                const Experts in(format, dims, gap, static_cast<uint64_t>(ran));
                INFO(testing::describe(spec) << " of " << mxq_format_name(format) << ", gap " << gap);
                CHECK(testing::difference(made(mxq_quantize, mxq_quantize_query, in.listed, spec, dims),
                                          made(mxq_quantize, mxq_quantize_query, in.dense, spec, dims)) == "");
                if (testing::is_nvfp4(spec))
                    CHECK(testing::difference(made(mxq_amax, mxq_amax_query, in.listed, spec, dims),
                                              made(mxq_amax, mxq_amax_query, in.dense, spec, dims)) == "");
                ++ran;
            }
    CHECK(ran == 35 * 3 * 2);
}

TEST_CASE("data lists: convert, every pair of formats", "[cpu]") {
    testing::Device& device = testing::cpu();
    const testing::Dims dims{4, 19, 77};
    int ran = 0;
    for (const int32_t from : cases::plain_formats)
        for (const int32_t to : cases::plain_formats)
            for (const int64_t gap : {0, 5}) {
                const Experts in(from, dims, gap, static_cast<uint64_t>(ran));
                const auto converted = [&](const mxq_tensor* tensor) {
                    const auto out = testing::make_tensor(to, dims);
                    Buffer buffer(device, static_cast<size_t>(dims.shape().count() * oracle::plain_bytes(to)));
                    ok(mxq_tensor_set_data(out, buffer.data(), buffer.bytes()));
                    testing::run(device, mxq_convert, mxq_convert_query, nullptr, tensor, out);
                    return buffer.read();
                };
                INFO(mxq_format_name(from) << " to " << mxq_format_name(to) << ", gap " << gap);
                CHECK(testing::difference(converted(in.listed), converted(in.dense)) == "");
                ++ran;
            }
    CHECK(ran == 9 * 2);
}

TEST_CASE("data lists: grouped_gemm with plain weights, groups of few rows and of many", "[cpu]") {
    const int64_t m = 70, n = 45, k = 96;
    const testing::Dims of_a{std::nullopt, m, k}, of_b{5, n, k};
    const oracle::Ends ends = {1, 1, 12, 30, 70};
    const testing::DeviceEnds of_groups(testing::cpu(), ends);
    const oracle::Floats x = cases::values(cases::Values::normal, m * k, 7);
    int ran = 0;
    for (const oracle::Spec& spec : testing::all_formats())
        for (const int32_t format : cases::plain_formats)
            for (const int64_t gap : {0, 3}) {
                const oracle::Groups groups{ends};
                auto a = testing::make_tensor(spec, of_a, false);
                of_groups.set(a, groups);
                const testing::InputPart input(
                    testing::cpu(), a, spec, MXQ_PART_ROWWISE,
                    oracle::quantize_groups(spec, x, m, k, groups, MXQ_PART_ROWWISE, false).on(oracle::untouchable));
                const Experts b(format, of_b, gap, static_cast<uint64_t>(ran));
                const auto product = [&](const mxq_tensor* weights) {
                    const auto d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, m, n});
                    Buffer buffer(testing::cpu(), m * n * 4);
                    ok(mxq_tensor_set_data(d, buffer.data(), buffer.bytes()));
                    ok(mxq_grouped_gemm(testing::cpu().context, nullptr, a, weights, d, nullptr, 0, nullptr));
                    return buffer.read();
                };
                INFO(testing::describe(spec) << " and " << mxq_format_name(format) << ", gap " << gap);
                CHECK(testing::difference(product(b.listed), product(b.dense)) == "");
                ++ran;
            }
    CHECK(ran == 35 * 3 * 2);
}
