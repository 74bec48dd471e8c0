// Parts with strides, and with an address for each expert, give the bytes of the same part in one piece. What lies between
// lines is 0xFF, a NaN in every format, and AddressSanitizer sees what lies behind the last line.
#include "../abi/says.h"
#include "../apart.h"
#include "../cases.h"
#include "product.h"

using testing::Bytes;
using testing::Distances;
using testing::Lines;
using testing::ok;

namespace {

// Ways to lie apart: gaps between the lines and the experts of codes and scales, experts that alternate line by line, a list
// of them, a list of experts whose lines lie apart.
enum class Way { lines, experts, both, alternating, list, list_of_lines };
constexpr Way ways[] = {Way::lines, Way::experts, Way::both, Way::alternating, Way::list, Way::list_of_lines};

bool is_list(Way way) { return way == Way::list || way == Way::list_of_lines; }

Distances distances(const Lines& of, Way way, int64_t unit, bool has_lines) {
    const int64_t line = has_lines ? of.width + 3 * unit : 0, matrix = of.lines * (line ? line : of.width) + 5 * unit;
    switch (way) {
        case Way::lines:
        case Way::list_of_lines: return {line, 0};
        case Way::experts: return {0, of.dense() + 5 * unit};
        case Way::both: return {line, matrix};
        case Way::alternating: return has_lines ? Distances{of.matrices * of.width, of.width} : Distances{};
        case Way::list: return {};
    }
    return {};
}

// Holds the memory of one part of a tensor that lies apart.
class ApartPart {
public:
    ApartPart(mxq_tensor* tensor, const oracle::Spec& spec, const testing::Dims& dims, int32_t part, bool swizzled,
              const oracle::Part& stored, Way way) {
        const Lines codes = testing::code_lines(spec, dims.shape(), part),
                    scales = testing::scale_lines(spec, dims.shape(), part, swizzled);
        const bool has_lines = !swizzled && spec.scaling != MXQ_SCALING_TENSOR;
        const Distances of_codes = distances(codes, way, 1, true),
                        of_scales = distances(scales, way, oracle::scale_bytes(spec.format), has_lines);
        if (is_list(way)) {
            ok(mxq_tensor_set_strides(tensor, part, of_codes.line, 0, of_scales.line, 0));
            list(tensor, part, stored, codes, scales, of_codes, of_scales);
        } else {
            ok(mxq_tensor_set_strides(tensor, part, of_codes.line, of_codes.matrix, of_scales.line, of_scales.matrix));
            codes_.push_back(add(testing::move_apart(stored.codes, codes, of_codes, 0xFF)));
            scales_.push_back(add(testing::move_apart(stored.scales, scales, of_scales, 0xFF)));
            ok(mxq_tensor_set_const_part(tensor, part, codes_[0], buffers_[0]->bytes(), scales_[0], buffers_[1]->bytes()));
        }
        if (!testing::is_nvfp4(spec)) return;
        amax_ = stored.amax;
        ok(mxq_tensor_set_amax(tensor, part, amax_.data(), amax_.size() * 4));
    }

private:
    void list(mxq_tensor* tensor, int32_t part, const oracle::Part& stored, Lines codes, Lines scales, Distances of_codes,
              Distances of_scales) {
        const int64_t experts = codes.matrices;
        codes.matrices = scales.matrices = 1;
        for (int64_t e = 0; e < experts; ++e) {
            const auto expert = [&](const Bytes& all, const Lines& of) {
                return Bytes(all.begin() + e * of.dense(), all.begin() + (e + 1) * of.dense());
            };
            codes_.push_back(add(testing::move_apart(expert(stored.codes, codes), codes, of_codes, 0xFF)));
            scales_.push_back(add(testing::move_apart(expert(stored.scales, scales), scales, of_scales, 0xFF)));
        }
        ok(mxq_tensor_set_part_list(tensor, part, experts, codes_.data(),
                                    static_cast<uint64_t>(testing::span_of(codes, of_codes)), scales_.data(),
                                    static_cast<uint64_t>(testing::span_of(scales, of_scales))));
    }
    const void* add(const Bytes& bytes) {
        buffers_.push_back(std::make_unique<testing::Buffer>(testing::cpu(), bytes));
        return buffers_.back()->data();
    }

    std::vector<std::unique_ptr<testing::Buffer>> buffers_;
    std::vector<const void*> codes_, scales_;
    oracle::Floats amax_;
};

// Every format and scaling, with a scale for each expert where one would stand for all.
std::vector<oracle::Spec> specs() {
    std::vector<oracle::Spec> out;
    for (oracle::Spec spec : testing::all_formats()) {
        spec.per_matrix = testing::has_amax(spec);
        out.push_back(spec);
    }
    return out;
}

testing::Tensor tensor_of(const oracle::Spec& spec, const testing::Dims& dims, bool swizzled) {
    return testing::make_tensor(spec, dims, swizzled);
}

oracle::Part stored_part(const oracle::Spec& spec, const testing::Dims& dims, int32_t part, bool swizzled, uint64_t seed) {
    const oracle::Floats x = cases::values(cases::Values::normal, dims.shape().count(), seed);
    return oracle::quantize(spec, x, dims.shape(), part, swizzled);
}

bool has_layout(const oracle::Spec& spec, bool swizzled) { return !swizzled || testing::can_swizzle(spec, false); }

// An F32 output of a verb.
struct Output {
    explicit Output(const testing::Dims& dims)
        : buffer(testing::cpu(), dims.shape().count() * 4), tensor(testing::make_tensor(MXQ_FORMAT_F32, dims)) {
        ok(mxq_tensor_set_data(tensor, buffer.data(), buffer.bytes()));
    }
    testing::Buffer buffer;
    testing::Tensor tensor;
};

}  // namespace

TEST_CASE("apart: dequantize and requantize, every format, layout and part", "[cpu]") {
    testing::Device& device = testing::cpu();
    const testing::Dims dims{3, 37, 132};
    const oracle::Spec target;
    int ran = 0;
    for (const oracle::Spec& spec : specs())
        for (const bool swizzled : {false, true})
            for (const int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
                if (!has_layout(spec, swizzled)) continue;
                const oracle::Part stored = stored_part(spec, dims, part, swizzled, static_cast<uint64_t>(ran));
                auto dense = tensor_of(spec, dims, swizzled), to = testing::make_tensor(target, dims, false);
                testing::InputPart input(device, dense, spec, part, stored);
                Output expected(dims), got(dims);
                testing::OutputPart again(device, to, target, MXQ_PART_COLUMNWISE, false);
                testing::run(device, mxq_dequantize, mxq_dequantize_query, nullptr, dense, expected.tensor);
                testing::run(device, mxq_requantize, mxq_requantize_query, nullptr, dense, to);
                const Bytes bytes = expected.buffer.read(), requantized = again.bytes();
                for (const Way way : ways) {
                    INFO(testing::describe(spec) << ", swizzled " << swizzled << ", part " << part << ", way " << int(way));
                    auto apart = tensor_of(spec, dims, swizzled);
                    const ApartPart memory(apart, spec, dims, part, swizzled, stored, way);
                    testing::run(device, mxq_dequantize, mxq_dequantize_query, nullptr, apart, got.tensor);
                    CHECK(testing::difference(got.buffer.read(), bytes) == "");
                    testing::run(device, mxq_requantize, mxq_requantize_query, nullptr, apart, to);
                    CHECK(testing::difference(again.bytes(), requantized) == "");
                    ++ran;
                }
            }
    CHECK(ran == 6 * 2 * 66);
}

TEST_CASE("apart: each expert of a list has its own codes and scales", "[cpu]") {
    const testing::Dims dims{3, 2, 32};
    const oracle::Spec spec = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32);
    oracle::Part stored = stored_part(spec, dims, MXQ_PART_ROWWISE, false, 1);
    for (size_t i = 0; i < stored.scales.size(); ++i) stored.scales[i] = static_cast<uint8_t>(120 + i);
    auto dense = tensor_of(spec, dims, false), listed = tensor_of(spec, dims, false);
    const testing::InputPart input(testing::cpu(), dense, spec, MXQ_PART_ROWWISE, stored);
    const ApartPart memory(listed, spec, dims, MXQ_PART_ROWWISE, false, stored, Way::list);
    Output expected(dims), got(dims);
    testing::run(testing::cpu(), mxq_dequantize, mxq_dequantize_query, nullptr, dense, expected.tensor);
    testing::run(testing::cpu(), mxq_dequantize, mxq_dequantize_query, nullptr, listed, got.tensor);
    CHECK(testing::difference(got.buffer.read(), expected.buffer.read()) == "");
}

TEST_CASE("apart: gemm, both operands as pieces of larger matrices, every format and transpose", "[cpu]") {
    const int64_t m = 45, n = 51, k = 160;
    int ran = 0;
    for (const oracle::Spec& spec : specs())
        for (const auto& [transpose_a, transpose_b] : testing::all_transposes) {
            const bool a_t = transpose_a == MXQ_TRANSPOSE_T, b_t = transpose_b == MXQ_TRANSPOSE_T;
            const testing::Dims of_a{std::nullopt, a_t ? k : m, a_t ? m : k}, of_b{std::nullopt, b_t ? n : k, b_t ? k : n};
            const int32_t part_a = a_t ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE,
                          part_b = b_t ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE;
            const bool layout = ran % 2 && has_layout(spec, true);
            const oracle::Part stored_a = stored_part(spec, of_a, part_a, layout, 1),
                               stored_b = stored_part(spec, of_b, part_b, layout, 2);
            auto a = tensor_of(spec, of_a, layout), b = tensor_of(spec, of_b, layout),
                 apart_a = tensor_of(spec, of_a, layout), apart_b = tensor_of(spec, of_b, layout);
            const testing::InputPart input_a(testing::cpu(), a, spec, part_a, stored_a),
                input_b(testing::cpu(), b, spec, part_b, stored_b);
            const ApartPart memory_a(apart_a, spec, of_a, part_a, layout, stored_a, Way::lines),
                memory_b(apart_b, spec, of_b, part_b, layout, stored_b, Way::lines);
            const Output expected({std::nullopt, m, n}), got({std::nullopt, m, n});
            auto options = testing::gemm_options(transpose_a, transpose_b);
            mxq_context* const context = testing::cpu().context;
            ok(mxq_gemm(context, options, a, b, expected.tensor, nullptr, 0, nullptr));
            ok(mxq_gemm(context, options, apart_a, apart_b, got.tensor, nullptr, 0, nullptr));
            INFO(testing::describe(spec) << ", swizzled " << layout << ", transposes " << a_t << b_t);
            CHECK(testing::difference(got.buffer.read(), expected.buffer.read()) == "");
            ++ran;
        }
    CHECK(ran == 35 * 4);
}

TEST_CASE("apart: grouped_gemm, experts of b everywhere, every format and both cases", "[cpu]") {
    const int64_t m = 40, n = 35, k = 96, experts = 3;
    const oracle::Ends ends = {11, 11, 40};
    const testing::DeviceEnds of_groups(testing::cpu(), ends);
    int ran = 0;
    for (const oracle::Spec& spec : specs())
        for (const int32_t transpose : {MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N}) {
            const bool b_t = transpose == MXQ_TRANSPOSE_T, layout = ran % 4 > 1 && has_layout(spec, true);
            const testing::Dims of_a{std::nullopt, m, k}, of_b{experts, b_t ? n : k, b_t ? k : n};
            const int32_t part = b_t ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE;
            const oracle::Groups groups{ends};
            const oracle::Floats x = cases::values(cases::Values::normal, of_a.shape().count(), 7);
            const oracle::Part stored_a = oracle::quantize_groups(spec, x, m, k, groups, MXQ_PART_ROWWISE, false)
                                              .on(oracle::untouchable),
                               stored = stored_part(spec, of_b, part, layout, 3);
            auto a = tensor_of(spec, of_a, false), b = tensor_of(spec, of_b, layout);
            of_groups.set(a, groups);
            const testing::InputPart input_a(testing::cpu(), a, spec, MXQ_PART_ROWWISE, stored_a),
                input_b(testing::cpu(), b, spec, part, stored);
            const Output expected({std::nullopt, m, n}), got({std::nullopt, m, n});
            auto options = testing::gemm_options(MXQ_TRANSPOSE_N, transpose);
            mxq_context* const context = testing::cpu().context;
            ok(mxq_grouped_gemm(context, options, a, b, expected.tensor, nullptr, 0, nullptr));
            for (const Way way : ways) {
                auto apart = tensor_of(spec, of_b, layout);
                const ApartPart memory(apart, spec, of_b, part, layout, stored, way);
                ok(mxq_grouped_gemm(context, options, a, apart, got.tensor, nullptr, 0, nullptr));
                INFO(testing::describe(spec) << ", swizzled " << layout << ", transposed " << b_t << ", way " << int(way));
                CHECK(testing::difference(got.buffer.read(), expected.buffer.read()) == "");
                ++ran;
            }
        }
    CHECK(ran == 35 * 2 * 6);
}

TEST_CASE("apart: scales of a piece are swizzled and back, and experts of scales with them", "[cpu]") {
    testing::Device& device = testing::cpu();
    const testing::Dims dims{3, 140, 160};
    int ran = 0;
    for (const oracle::Spec& spec : specs())
        for (const bool to_swizzled : {true, false})
            for (const Way way : {Way::lines, Way::experts, Way::both, Way::alternating}) {
                if (!has_layout(spec, true)) continue;
                const oracle::Part stored = stored_part(spec, dims, MXQ_PART_ROWWISE, !to_swizzled, 5);
                auto dense = tensor_of(spec, dims, !to_swizzled), apart = tensor_of(spec, dims, !to_swizzled),
                     to = tensor_of(spec, dims, to_swizzled);
                const testing::InputPart input(device, dense, spec, MXQ_PART_ROWWISE, stored);
                const ApartPart memory(apart, spec, dims, MXQ_PART_ROWWISE, !to_swizzled, stored, way);
                const testing::OutputPart out(device, to, spec, MXQ_PART_ROWWISE, false);
                const auto verb = to_swizzled ? mxq_swizzle_scales : mxq_unswizzle_scales;
                ok(verb(device.context, nullptr, dense, to, nullptr, 0, nullptr));
                const Bytes expected = out.bytes();
                const testing::OutputPart again(device, to, spec, MXQ_PART_ROWWISE, false);
                ok(verb(device.context, nullptr, apart, to, nullptr, 0, nullptr));
                INFO(testing::describe(spec) << ", to swizzled " << to_swizzled << ", way " << int(way));
                CHECK(testing::difference(again.bytes(), expected) == "");
                ++ran;
            }
    CHECK(ran == 31 * 2 * 4);
}
