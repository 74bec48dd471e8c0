// Rows by index: each verb that takes them gives the bytes that it gives for a copy of these rows.
#include "../abi/says.h"
#include "routing.h"

using testing::Buffer;
using testing::Bytes;
using testing::Dims;
using testing::ok;

namespace {

constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT, unsupported = MXQ_STATUS_UNSUPPORTED;
constexpr int64_t source_rows = 37;

// Indices of rows, some of them -1, and the rows that they name.
struct Rows {
    Rows(int64_t rows, int64_t cols, int32_t format, uint64_t seed) : cols(cols), format(format) {
        cases::Random random(seed);
        source = cases::plain_values(format, cases::Values::normal, source_rows * cols, seed);
        const auto row_bytes = static_cast<size_t>(cols * oracle::plain_bytes(format));
        for (int64_t i = 0; i < rows; ++i) {
            indices.push_back(random.below(8) ? random.below(source_rows) : -1);
            const size_t first = static_cast<size_t>(std::max<int64_t>(indices.back(), 0)) * row_bytes;
            if (indices.back() < 0) gathered.insert(gathered.end(), row_bytes, 0);
            else gathered.insert(gathered.end(), source.begin() + static_cast<std::ptrdiff_t>(first), source.begin() + static_cast<std::ptrdiff_t>(first + row_bytes));
        }
    }
    int64_t cols;
    int32_t format;
    std::vector<int64_t> indices;
    Bytes source, gathered;
};

// A tensor of these rows in memory of a device: by index, or copied.
struct Input {
    Input(testing::Device& device, const Rows& rows, bool by_index, int32_t type, int64_t gap, size_t offset)
        : tensor(testing::make_tensor(rows.format, {std::nullopt, static_cast<int64_t>(rows.indices.size()), rows.cols})),
          indices(device, type == MXQ_TYPE_INT32 ? testing::integer_bytes<int32_t>(rows.indices) : testing::integer_bytes<int64_t>(rows.indices)) {
        const int64_t element = oracle::plain_bytes(rows.format);
        const int64_t stored = by_index ? source_rows : static_cast<int64_t>(rows.indices.size());
        data = std::make_unique<Buffer>(device, testing::spread_rows(by_index ? rows.source : rows.gathered, stored, rows.cols * element, gap * element),
                                        offset * static_cast<size_t>(element));
        if (gap) ok(mxq_tensor_set_row_stride(tensor, rows.cols + gap));
        if (by_index) ok(mxq_tensor_set_row_indices(tensor, indices.data(), indices.bytes(), type, source_rows));
        ok(mxq_tensor_set_const_data(tensor, data->data(), data->bytes()));
    }
    testing::Tensor tensor;
    Buffer indices;
    std::unique_ptr<Buffer> data;
};

// How the rows of a case are stored.
struct Form {
    int32_t type;
    int64_t gap;
    size_t offset;
};
Form draw_form(uint64_t seed) {
    cases::Random random(seed);
    return {random.below(2) ? MXQ_TYPE_INT32 : MXQ_TYPE_INT64, random.below(3) * 4, static_cast<size_t>(random.below(2))};
}

// Returns what quantize writes of the rows.
Bytes quantized(testing::Device& device, const oracle::Spec& spec, const Rows& rows, bool by_index, const Form& form,
                int32_t parts, const oracle::Ends* ends) {
    const Input in(device, rows, by_index, form.type, form.gap, form.offset);
    const Dims dims{std::nullopt, static_cast<int64_t>(rows.indices.size()), rows.cols};
    auto out = testing::make_tensor(spec, dims, false);
    std::unique_ptr<testing::DeviceEnds> of_groups;
    if (ends) of_groups = std::make_unique<testing::DeviceEnds>(device, *ends), of_groups->set(out, {*ends, rows.cols % 32 ? 32 : 1});
    std::vector<std::unique_ptr<testing::OutputPart>> written;
    for (const int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (parts & part) written.push_back(std::make_unique<testing::OutputPart>(device, out, spec, part, testing::is_nvfp4(spec)));
    const testing::Options options(device, spec);
    testing::run(device, mxq_quantize, mxq_quantize_query, options, in.tensor, out);
    Bytes all;
    for (const auto& part : written) {
        const Bytes bytes = part->bytes();
        all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
}

}  // namespace

MXQ_EACH_DEVICE("rows by index: quantize to every format, with and without groups") {
    int ran = 0;
    for (const oracle::Spec& spec : testing::all_formats())
        for (const int32_t parts : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE, MXQ_PART_BOTH})
            for (const int64_t cols : {100, 256})
                for (const bool grouped : {false, true}) {
                    const auto seed = static_cast<uint64_t>(ran) + 1;
                    const Rows rows(150, cols, cases::plain_formats[ran % 3], seed);
                    const oracle::Ends ends{40, 40, 127, 140};
                    const Form form = draw_form(seed);
                    const auto text = testing::difference(quantized(device, spec, rows, true, form, parts, grouped ? &ends : nullptr),
                                                          quantized(device, spec, rows, false, form, parts, grouped ? &ends : nullptr));
                    if (!text.empty()) FAIL(testing::describe(spec) << ", parts " << parts << ", " << cols << " columns: " << text);
                    ++ran;
                }
    CHECK(ran == static_cast<int>(testing::all_formats().size()) * 3 * 2 * 2);
}

MXQ_EACH_DEVICE("rows by index: convert, amax and pad_groups") {
    int ran = 0;
    for (const int32_t format : cases::plain_formats)
        for (const int64_t rows : {0, 1, 90})
            for (const int64_t cols : {0, 1, 33, 512}) {
                const Rows given(rows, cols, format, static_cast<uint64_t>(ran) + 3);
                const Form form = draw_form(static_cast<uint64_t>(ran));
                const Dims dims{std::nullopt, rows, cols};
                Bytes of[2];
                for (const bool by_index : {false, true}) {
                    const Input in(device, given, by_index, form.type, rows && cols ? form.gap : 0, form.offset);
                    auto out = testing::make_tensor(MXQ_FORMAT_F32, dims), padded = testing::make_tensor(format, dims),
                         amaxes = testing::make_tensor(MXQ_FORMAT_NVFP4, dims);
                    Buffer target(device, static_cast<size_t>(rows * cols * 4)), amax(device, 4);
                    ok(mxq_tensor_set_data(out, target.data(), target.bytes()));
                    testing::run(device, mxq_convert, mxq_convert_query, nullptr, in.tensor, out);
                    ok(mxq_tensor_set_amax(amaxes, MXQ_PART_ROWWISE, static_cast<float*>(amax.data()), 4));
                    testing::run(device, mxq_amax, mxq_amax_query, nullptr, in.tensor, amaxes);
                    const oracle::Ends ends{rows / 3, rows / 3, rows};
                    const testing::DeviceEnds of_groups(device, ends);
                    of_groups.set(in.tensor, {ends, 1});
                    of_groups.set(padded, {ends, 16});
                    uint64_t bytes = 0;
                    ok(mxq_tensor_required_bytes(padded, MXQ_PART_ROWWISE, &bytes, nullptr));
                    Buffer moved(device, static_cast<size_t>(bytes));
                    ok(mxq_tensor_set_data(padded, moved.data(), moved.bytes()));
                    testing::run(device, mxq_pad_groups, mxq_pad_groups_query, nullptr, in.tensor, padded);
                    for (const Buffer* buffer : {&target, &amax, &moved}) {
                        const Bytes more = buffer->read();
                        of[by_index].insert(of[by_index].end(), more.begin(), more.end());
                    }
                }
                if (const auto text = testing::difference(of[1], of[0]); !text.empty())
                    FAIL(mxq_format_name(format) << " " << rows << "x" << cols << ": " << text);
                ++ran;
            }
    CHECK(ran == 3 * 3 * 4);
}

// Products of rows by index have the bits of products of copied rows: both operands, and groups.
MXQ_EACH_DEVICE("rows by index: products") {
    constexpr int64_t m = 64, n = 48, k = 128;
    const Rows a_rows(m, k, MXQ_FORMAT_BF16, 5), b_rows(n, k, MXQ_FORMAT_BF16, 6);
    const auto weights = cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, 2 * n * k, 7);
    const Buffer experts_data(device, weights);
    auto experts = testing::make_tensor(MXQ_FORMAT_BF16, {2, n, k});
    ok(mxq_tensor_set_const_data(experts, experts_data.data(), experts_data.bytes()));
    const oracle::Ends ends{20, m};
    const testing::DeviceEnds of_groups(device, ends);
    int ran = 0;
    for (const bool grouped : {false, true}) {
        Bytes of[2];
        for (const bool by_index : {false, true}) {
            const Input a(device, a_rows, by_index, MXQ_TYPE_INT32, 0, 0), b(device, b_rows, by_index, MXQ_TYPE_INT64, 0, 0);
            auto d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, m, n});
            Buffer target(device, m * n * 4);
            ok(mxq_tensor_set_data(d, target.data(), target.bytes()));
            if (grouped) of_groups.set(a.tensor, {ends, 1});
            const mxq_tensor* second = grouped ? static_cast<mxq_tensor*>(experts) : static_cast<mxq_tensor*>(b.tensor);
            testing::Plan plan;
            ok((grouped ? mxq_grouped_gemm_query : mxq_gemm_query)(device.context, nullptr, a.tensor, second, d, plan.out()));
            const bool says = std::string(mxq_plan_reason(plan)).find("gathers rows by index first") != std::string::npos;
            CHECK((says == by_index || device.is_cpu()));
            Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
            CHECK((workspace.bytes() == 0 || !device.is_cpu()));
            ok((grouped ? mxq_grouped_gemm : mxq_gemm)(device.context, nullptr, a.tensor, second, d, workspace.bytes() ? workspace.data() : nullptr,
                                                       workspace.bytes(), nullptr));
            workspace.read();
            of[by_index] = target.read();
        }
        CHECK(testing::difference(of[1], of[0]) == "");
        ++ran;
    }
    CHECK(ran == 2);
}

// Few rows by index with weights of 4 bits, as a step of decoding has them.
MXQ_EACH_DEVICE("rows by index: few rows with MXFP4 weights, in groups and without") {
    constexpr int64_t n = 96, k = 256;
    const oracle::Spec spec = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32);
    int ran = 0;
    for (const bool grouped : {false, true})
        for (const int64_t m : {1, 4, 8}) {
            const Rows rows(m, k, MXQ_FORMAT_BF16, static_cast<uint64_t>(ran) + 21);
            const Dims dims{grouped ? std::optional<int64_t>(3) : std::nullopt, n, k};
            const auto values = cases::values(cases::Values::normal, dims.shape().count(), 5);
            auto weights = testing::make_tensor(spec, dims, false);
            const testing::InputPart part(device, weights, spec, MXQ_PART_ROWWISE, oracle::quantize(spec, values, dims.shape(), MXQ_PART_ROWWISE, false));
            const oracle::Ends ends{m / 2, m / 2, m};
            const testing::DeviceEnds of_groups(device, ends);
            Bytes of[2];
            for (const bool by_index : {false, true}) {
                const Input a(device, rows, by_index, MXQ_TYPE_INT32, 0, 0);
                if (grouped) of_groups.set(a.tensor, {ends, 1});
                auto d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, m, n});
                Buffer target(device, static_cast<size_t>(m * n * 4));
                ok(mxq_tensor_set_data(d, target.data(), target.bytes()));
                testing::Plan plan;
                ok((grouped ? mxq_grouped_gemm_query : mxq_gemm_query)(device.context, nullptr, a.tensor, weights, d, plan.out()));
                Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
                ok((grouped ? mxq_grouped_gemm : mxq_gemm)(device.context, nullptr, a.tensor, weights, d, workspace.bytes() ? workspace.data() : nullptr,
                                                           workspace.bytes(), nullptr));
                workspace.read();
                of[by_index] = target.read();
            }
            CHECK(testing::difference(of[1], of[0]) == "");
            ++ran;
        }
    CHECK(ran == 6);
}

// The rows of a routing: tokens go to the rows of their experts.
MXQ_EACH_DEVICE("rows by index: of a routing") {
    const auto choices = testing::draw_choices(29, 3, 8, testing::Draw::with_dropped, 4);
    const testing::DeviceRouting routing(device, choices);
    ok(routing.route());
    const auto routed = testing::expected_routing(choices);
    constexpr int64_t cols = 64;
    const auto x = cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, 29 * cols, 9);
    const Buffer data(device, x);
    const Dims dims{std::nullopt, choices.rows(), cols};
    auto in = testing::make_tensor(MXQ_FORMAT_BF16, dims), out = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, dims);
    ok(mxq_tensor_set_routing_rows(in, routing.handle));
    ok(mxq_tensor_set_routing_groups(out, routing.handle));
    uint64_t bytes = 0;
    ok(mxq_tensor_required_bytes(in, MXQ_PART_ROWWISE, &bytes, nullptr));
    CHECK(bytes == x.size());
    ok(mxq_tensor_set_const_data(in, data.data(), data.bytes()));
    const oracle::Spec spec = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32);
    const testing::OutputPart part(device, out, spec, MXQ_PART_ROWWISE, false);
    testing::run(device, mxq_quantize, mxq_quantize_query, nullptr, in, out);

    oracle::Floats rows;
    const auto values = oracle::load(MXQ_FORMAT_BF16, x.data(), 29 * cols);
    for (const int32_t token : routed.row_tokens)
        for (int64_t col = 0; col < cols; ++col) rows.push_back(token < 0 ? 0.0f : values[static_cast<size_t>(token * cols + col)]);
    const oracle::Ends ends(routed.ends.begin(), routed.ends.end());
    CHECK(part.compare(oracle::quantize_groups(spec, rows, choices.rows(), cols, {ends}, MXQ_PART_ROWWISE, false), spec) == "");
}

TEST_CASE("rows by index: refusals", "[cpu]") {
    auto x = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 4, 32}), out = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 4, 32}),
         q = testing::make_tensor(MXQ_FORMAT_MXFP4, {std::nullopt, 4, 32}), experts = testing::make_tensor(MXQ_FORMAT_F32, {2, 4, 32});
    int32_t indices[] = {0, 2, -1, 1};
    const auto set = [&](mxq_tensor* t, uint64_t bytes, int32_t type, int64_t source) { return mxq_tensor_set_row_indices(t, indices, bytes, type, source); };
    MXQ_REFUSED(set(q, 16, MXQ_TYPE_INT32, 3), invalid, "tensor is mxfp4", "before they are quantized");
    MXQ_REFUSED(set(experts, 16, MXQ_TYPE_INT32, 3), invalid, "3 dimensions");
    MXQ_REFUSED(set(x, 12, MXQ_TYPE_INT32, 3), invalid, "bytes is 12", "exactly 16", "4 rows");
    MXQ_REFUSED(set(x, 16, MXQ_TYPE_INT64, 3), invalid, "exactly 32");
    MXQ_REFUSED(set(x, 16, 0, 3), invalid, "type is 0");
    MXQ_REFUSED(set(x, 16, MXQ_TYPE_INT32, -1), invalid, "source_rows is -1");
    MXQ_REFUSED(mxq_tensor_set_row_indices(x, nullptr, 16, MXQ_TYPE_INT32, 3), invalid, "indices is NULL with 16 bytes");
    int32_t type = -1;
    ok(mxq_tensor_get_row_indices(x, nullptr, nullptr, &type, nullptr));
    CHECK(type == 0);
    ok(set(x, 16, MXQ_TYPE_INT32, 3));
    const void* found = nullptr;
    uint64_t bytes = 0;
    int64_t source = 0;
    ok(mxq_tensor_get_row_indices(x, &found, &bytes, &type, &source));
    CHECK((found == indices && bytes == 16 && type == MXQ_TYPE_INT32 && source == 3));

    Bytes data(3 * 64, 0);
    Buffer target(testing::cpu(), 4 * 32 * 4);
    ok(mxq_tensor_set_data(x, data.data(), 3 * 64 - 1));
    ok(mxq_tensor_set_data(out, target.data(), target.bytes()));
    const auto convert = [&](mxq_tensor* from, mxq_tensor* to) { return mxq_convert(testing::cpu().context, nullptr, from, to, nullptr, 0, nullptr); };
    MXQ_REFUSED(convert(x, out), MXQ_STATUS_BUFFER_TOO_SMALL, "in.data holds 191 bytes", "192");
    ok(mxq_tensor_set_data(x, data.data(), 3 * 64));
    for (const int32_t bad : {-2, 3, INT32_MIN, INT32_MAX}) {
        indices[3] = bad;
        MXQ_REFUSED(convert(x, out), invalid, "in.row_indices[3] is " + std::to_string(bad), "-1", "to 2");
        CHECK(target.untouched());
    }
    indices[3] = 1;
    CHECK(convert(x, out) == MXQ_STATUS_OK);
    MXQ_REFUSED(convert(out, x), unsupported, "out has rows by index", "mxq_convert gathers them");
    auto grouped = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, 4, 32});
    int32_t ends[] = {4};
    for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(x), static_cast<mxq_tensor*>(grouped)}) ok(mxq_tensor_set_groups(tensor, ends, 4, MXQ_TYPE_INT32, 1));
    ok(mxq_tensor_set_group_alignment(x, 16, 0));
    MXQ_REFUSED(mxq_quantize_query(testing::any_context(), nullptr, x, grouped, nullptr), invalid, "rows by index and groups padded to multiples of 16");
    char text[64];
    mxq_tensor_describe(x, text, sizeof text);
    CHECK(std::string(text) == "bf16 4 x 32 by index of 3 in 1 groups");
    ok(mxq_tensor_set_row_indices(x, nullptr, 0, 0, 0));
    ok(mxq_tensor_get_row_indices(x, &found, &bytes, &type, &source));
    CHECK((!found && bytes == 0 && type == 0 && source == 0));
    testing::RoutingHandle routing;
    ok(mxq_routing_create(3, 2, 4, routing.out()));
    MXQ_REFUSED(mxq_tensor_set_routing_rows(x, routing), MXQ_STATUS_SHAPE_MISMATCH, "tensor is 4 x 32", "6 rows");
    MXQ_REFUSED(mxq_tensor_set_routing_groups(q, routing), MXQ_STATUS_SHAPE_MISMATCH, "6 rows");
    MXQ_REFUSED(mxq_tensor_set_routing_rows(q, routing), invalid, "tensor is mxfp4");
}
