// mxq_quantize gives the oracle's bytes for every format, scaling, option and layout.
#include "../formats.h"

#include <array>

using testing::Buffer;
using testing::ok;

namespace {

struct Case {
    oracle::Spec spec;
    int32_t input = MXQ_FORMAT_F32;
    testing::Dims dims{std::nullopt, 0, 0};
    int64_t row_gap = 0;
    bool rowwise = true, columnwise = false, swizzled = false, record_amax = false;
    bool grouped = false, int64_ends = false;
    oracle::Groups groups;
    int64_t in_alignment = 0;  // of the groups that are set on `in`; 0: none are set
    size_t offset = 0;

    std::string describe() const {
        char text[300];
        std::snprintf(text, sizeof text, "; from %s, experts %d, %dx%d, parts %d%d, %s, gap %d, offset %d, %d groups, alignments %d %d in %d",
                      mxq_format_name(input), static_cast<int>(dims.experts.value_or(-1)), static_cast<int>(dims.rows),
                      static_cast<int>(dims.cols), rowwise, columnwise, swizzled ? "swizzled" : "compact", static_cast<int>(row_gap),
                      static_cast<int>(offset), grouped ? static_cast<int>(groups.count()) : -1, static_cast<int>(groups.rowwise),
                      static_cast<int>(groups.columnwise), static_cast<int>(in_alignment));
        return testing::describe(spec) + text;
    }
};

oracle::GroupedPart expected(const Case& c, const oracle::Spec& spec, const oracle::Floats& x, int32_t part) {
    if (c.grouped) return oracle::quantize_groups(spec, x, c.dims.rows, c.dims.cols, c.groups, part, c.swizzled);
    oracle::GroupedPart out = testing::all_written(oracle::quantize(spec, x, c.dims.shape(), part, c.swizzled));
    const bool no_elements = x.empty();  // then no scales are written, except that of a whole tensor
    if (no_elements && spec.scaling != MXQ_SCALING_TENSOR) out.scales_written.assign(out.scales_written.size(), 0);
    return out;
}

// Returns "" if the device writes the oracle's bytes, else a text that says what differs.
std::string compare(testing::Device& device, const Case& c, const oracle::Bytes& dense) {
    oracle::Shape shape = c.dims.shape();
    int64_t element = oracle::plain_bytes(c.input), row_bytes = shape.cols * element, rows = shape.experts * shape.rows;
    auto in = testing::make_tensor(c.input, c.dims);
    auto out = testing::make_tensor(c.spec, c.dims, c.swizzled);
    oracle::Bytes stored = dense;
    std::unique_ptr<testing::DeviceEnds> ends;
    if (c.grouped) {
        ends = std::make_unique<testing::DeviceEnds>(device, c.groups.ends, c.int64_ends);
        ends->set(out, c.groups);
        if (c.in_alignment) {
            ends->set(in, {{}, c.in_alignment});
            oracle::Written padded = oracle::pad_rows(dense, row_bytes, shape.rows, c.groups.ends, c.in_alignment);
            stored = padded.bytes, rows = row_bytes ? static_cast<int64_t>(stored.size()) / row_bytes : 0;
        }
    }
    Buffer data(device, testing::spread_rows(stored, rows, row_bytes, c.row_gap * element), c.offset * static_cast<size_t>(element));
    ok(mxq_tensor_set_row_stride(in, shape.cols + c.row_gap));
    ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
    std::unique_ptr<Buffer> scale;
    if (!c.spec.quantization_scale.empty()) {
        scale = std::make_unique<Buffer>(device, testing::bytes_of(c.spec.quantization_scale));
        ok(mxq_tensor_set_quantization_scale(out, reinterpret_cast<float*>(scale->data()), scale->bytes()));
    }

    bool with_amax = testing::is_nvfp4(c.spec) || c.record_amax;
    std::vector<std::pair<int32_t, testing::OutputPart>> parts;
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (part == MXQ_PART_ROWWISE ? c.rowwise : c.columnwise)
            parts.emplace_back(part, testing::OutputPart(device, out, c.spec, part, with_amax, c.offset));
    testing::run(device, mxq_quantize, mxq_quantize_query, testing::Options(device, c.spec), in, out);

    oracle::Floats x = oracle::load(c.input, dense.data(), shape.count());
    for (auto& [part, buffers] : parts)
        if (auto text = buffers.compare(expected(c, c.spec, x, part), c.spec); !text.empty())
            return std::string(part == MXQ_PART_ROWWISE ? "rowwise " : "columnwise ") + text;
    return "";
}

void draw_layout(Case& c, cases::Random& random) {
    int64_t parts = 1 + random.below(3);
    c.rowwise = parts & 1, c.columnwise = parts & 2;
    c.input = cases::plain_formats[random.below(3)];
    c.swizzled = random.below(2) && testing::can_swizzle(c.spec, c.grouped && c.columnwise);
    c.row_gap = random.below(2) ? 3 : 0;
    c.offset = static_cast<size_t>(random.below(2));
    c.record_amax = random.below(2);
}

// Draws amaxes or scales as a caller may pass them: mostly ordinary, else 0, Inf or of an extreme size.
oracle::Floats draw_numbers(cases::Random& random, int64_t count) {
    oracle::Floats out;
    const float odd[] = {0.0f, 1.0f, 0x1p-149f, 3.0e38f, INFINITY, 0x1p-100f, 448.0f, 0x1p100f};
    for (int64_t i = 0; i < count; ++i) out.push_back(random.below(3) ? std::fabs(random.normal()) * 10 + 0.1f : odd[random.below(8)]);
    return out;
}

void draw_given(Case& c, cases::Random& random) {
    int64_t matrices = c.grouped ? c.groups.count() : c.dims.shape().experts, count = c.spec.per_matrix ? matrices : 1;
    if (testing::is_nvfp4(c.spec) && count > 0 && random.below(2)) c.spec.amax = draw_numbers(random, count);
    if (c.spec.scaling == MXQ_SCALING_TENSOR && count > 0 && random.below(2)) c.spec.quantization_scale = draw_numbers(random, count);
    for (float& scale : c.spec.quantization_scale)  // which a CPU refuses
        if (std::isinf(scale) || std::isinf(1 / scale)) scale = 1;
}

}  // namespace

MXQ_EACH_DEVICE("quantize formats: the oracle's bytes for awkward shapes and all options") {
    int64_t ran = 0;
    for (const oracle::Spec& spec : testing::all_formats())
        for (int64_t rows : cases::awkward_sizes)
            for (int64_t cols : cases::awkward_sizes) {
                cases::Random random(static_cast<uint64_t>(ran) + 1);
                Case c;
                c.spec = spec;
                int64_t experts = rows * cols < 20000 ? random.below(3) : 0;  // stands for a 2-D tensor, 1 or 3 experts
                c.dims = {experts ? std::optional(2 * experts - 1) : std::nullopt, rows, cols};
                draw_layout(c, random);
                testing::draw_options(c.spec, random, cols, rows);
                draw_given(c, random);
                auto dense = cases::plain_values(c.input, cases::all_values[ran % 4], c.dims.shape().count(), static_cast<uint64_t>(ran));
                ++ran;
                if (auto text = compare(device, c, dense); !text.empty()) FAIL(c.describe() << ": " << text);
            }
    CHECK(ran == 35 * 100);
}

// Sizes that are multiples of 16, as vector loads and Hadamard transforms of both parts need. Few awkward sizes are.
MXQ_EACH_DEVICE("quantize formats: the oracle's bytes for even shapes and all options") {
    const int64_t sizes[] = {16, 48, 64, 160, 384};
    int64_t ran = 0;
    for (const oracle::Spec& spec : testing::all_formats())
        for (int64_t rows : sizes)
            for (int64_t cols : sizes) {
                cases::Random random(static_cast<uint64_t>(ran) + 7000);
                Case c;
                c.spec = spec;
                c.dims = {std::nullopt, rows, cols};
                draw_layout(c, random);
                c.row_gap = 0, c.offset = 0;
                testing::draw_options(c.spec, random, cols, rows);
                draw_given(c, random);
                auto dense = cases::plain_values(c.input, cases::all_values[ran % 3 + 1], c.dims.shape().count(), static_cast<uint64_t>(ran));
                ++ran;
                if (auto text = compare(device, c, dense); !text.empty()) FAIL(c.describe() << ": " << text);
            }
    CHECK(ran == 35 * 25);
}

// Passes up to 64 experts to each verb in one call, with whole tiles and with ragged ones.
MXQ_EACH_DEVICE("quantize formats: up to 64 experts") {
    int64_t ran = 0;
    for (const oracle::Spec& spec : testing::all_formats())
        for (auto [experts, rows, cols] : {std::array<int64_t, 3>{64, 64, 32}, {32, 33, 31}, {8, 128, 128}}) {
            cases::Random random(static_cast<uint64_t>(ran) + 9000);
            Case c;
            c.spec = spec;
            c.dims = {experts, rows, cols};
            draw_layout(c, random);
            if (rows % 16 == 0) c.row_gap = 0, c.offset = 0;
            testing::draw_options(c.spec, random, cols, rows);
            draw_given(c, random);
            auto dense = cases::plain_values(c.input, cases::Values::normal, c.dims.shape().count(), static_cast<uint64_t>(ran));
            ++ran;
            if (auto text = compare(device, c, dense); !text.empty()) FAIL(c.describe() << ": " << text);
        }
    CHECK(ran == 35 * 3);
}

MXQ_EACH_DEVICE("quantize formats: groups are padded as the contract says, and nothing else is written") {
    const int64_t counts[] = {0, 1, 2, 5, 9, 40};
    const int64_t widths[] = {1, 31, 32, 64, 131, 160, 256};
    int64_t ran = 0;
    for (const oracle::Spec& spec : testing::all_formats())
        for (int64_t count : counts)
            for (int64_t cols : widths) {
                cases::Random random(static_cast<uint64_t>(ran) + 99);
                Case c;
                c.spec = spec;
                c.grouped = true;
                c.dims = {std::nullopt, 1 + random.below(300), cols};
                c.groups = testing::draw_groups(random, spec, c.dims.rows, count);
                c.int64_ends = random.below(2);
                const int64_t in_alignments[] = {0, 0, 1, 16, 128};
                c.in_alignment = in_alignments[random.below(5)];
                draw_layout(c, random);
                testing::draw_options(c.spec, random, cols, 16);
                draw_given(c, random);
                auto dense = cases::plain_values(c.input, cases::all_values[1 + ran % 3], c.dims.shape().count(), static_cast<uint64_t>(ran));
                ++ran;
                if (auto text = compare(device, c, dense); !text.empty()) FAIL(c.describe() << ": " << text);
            }
    CHECK(ran == 35 * 6 * 7);
}

// Covers more groups than a thread block has threads, most of them empty, and groups of one row each.
MXQ_EACH_DEVICE("quantize formats: thousands of groups") {
    int ran = 0;
    for (int64_t count : {300, 4096})
        for (int32_t format : {MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_NVFP4})
            for (bool swizzled : {false, true}) {
                cases::Random random(static_cast<uint64_t>(ran));
                Case c;
                c.spec = testing::spec_of(format, oracle::default_scaling(format));
                c.grouped = true, c.rowwise = c.columnwise = true, c.swizzled = swizzled;
                c.dims = {std::nullopt, ran % 2 ? 700 : count, 33};
                c.groups = testing::draw_groups(random, c.spec, c.dims.rows, count);
                if (ran % 2 == 0)
                    for (int64_t g = 0; g < count; ++g) c.groups.ends[static_cast<size_t>(g)] = g + 1;
                auto dense = cases::plain_values(c.input, cases::Values::normal, c.dims.shape().count(), static_cast<uint64_t>(ran));
                ++ran;
                if (auto text = compare(device, c, dense); !text.empty()) FAIL(c.describe() << ": " << text);
            }
    CHECK(ran == 8);
}

MXQ_EACH_DEVICE("quantize formats: long rows and columns") {
    const std::pair<int64_t, int64_t> sizes[] = {{3, 4133}, {4133, 3}, {300, 1030}, {1, 70001}};
    int ran = 0;
    for (const oracle::Spec& spec : testing::all_formats()) {
        auto [rows, cols] = sizes[ran % 4];
        cases::Random random(static_cast<uint64_t>(ran) + 500);
        Case c;
        c.spec = spec;
        c.dims = {std::nullopt, rows, cols};
        draw_layout(c, random);
        testing::draw_options(c.spec, random, cols, rows);
        c.rowwise = c.columnwise = true;
        auto dense = cases::plain_values(c.input, cases::Values::wide, c.dims.shape().count(), static_cast<uint64_t>(ran));
        ++ran;
        if (auto text = compare(device, c, dense); !text.empty()) FAIL(c.describe() << ": " << text);
    }
    CHECK(ran == 35);
}
