// Every format with every scaling that it takes, and tensors that are made from the oracle's specification (Spec) of one.
#ifndef MXQ_TESTS_FORMATS_H
#define MXQ_TESTS_FORMATS_H

#include "api.h"
#include "cases.h"
#include "oracle_groups.h"

namespace testing {

inline std::vector<int32_t> formats_of(oracle::Family family) {
    std::vector<int32_t> out;
    for (const oracle::QuantizedFormat& format : oracle::quantized_formats)
        if (format.family == family) out.push_back(format.id);
    return out;
}
inline const std::vector<int32_t> mx_formats = formats_of(oracle::Family::mx), fp8_formats = formats_of(oracle::Family::fp8);

inline oracle::Spec spec_of(int32_t format, int32_t scaling) {
    oracle::Spec spec;
    spec.format = format;
    spec.scaling = scaling;
    return spec;
}

// Returns every quantized format with every scaling that it takes: 5 x 5 of MX, 2 of NVFP4, 2 x 4 of FP8.
inline const std::vector<oracle::Spec>& all_formats() {
    static const std::vector<oracle::Spec> all = [] {
        std::vector<oracle::Spec> out;
        for (int32_t format : mx_formats)
            for (int32_t scaling : {MXQ_SCALING_1X32, MXQ_SCALING_32X32, MXQ_SCALING_1X128, MXQ_SCALING_128X128})
                out.push_back(spec_of(format, scaling));
        for (int32_t scaling : {MXQ_SCALING_1X16, MXQ_SCALING_16X16}) out.push_back(spec_of(MXQ_FORMAT_NVFP4, scaling));
        for (int32_t format : fp8_formats)
            for (int32_t scaling : {MXQ_SCALING_TENSOR, MXQ_SCALING_ROW, MXQ_SCALING_1X128, MXQ_SCALING_128X128})
                out.push_back(spec_of(format, scaling));
        for (int32_t format : mx_formats) out.push_back(spec_of(format, MXQ_SCALING_ROW));
        return out;
    }();
    return all;
}

inline bool is_nvfp4(const oracle::Spec& spec) { return spec.format == MXQ_FORMAT_NVFP4; }
inline bool is_e2m1(const oracle::Spec& spec) { return is_nvfp4(spec) || spec.format == MXQ_FORMAT_MXFP4; }
inline bool is_square(const oracle::Spec& spec) { return oracle::tile_of(spec.scaling).height > 1 && spec.scaling != MXQ_SCALING_TENSOR; }
// Return whether the format and scaling take stochastic rounding, or a Hadamard transform.
inline bool takes_stochastic(const oracle::Spec& spec) { return is_e2m1(spec) && spec.scaling != MXQ_SCALING_ROW; }
inline bool takes_hadamard(const oracle::Spec& spec) { return takes_stochastic(spec) && !is_square(spec); }
// Returns a format with each option that has kernels of its own.
inline std::vector<oracle::Spec> ways_of(const oracle::Spec& spec) {
    std::vector<oracle::Spec> ways{spec};
    if (!takes_stochastic(spec)) return ways;
    ways.push_back(spec);
    ways.back().stochastic = true;
    ways.back().seed = 7;
    if (is_nvfp4(spec)) ways.push_back(spec), ways.back().four_over_six = MXQ_FOUR_OVER_SIX_MSE;
    if (takes_hadamard(spec)) ways.push_back(spec), ways.back().hadamard = MXQ_PART_ROWWISE;
    return ways;
}

// Returns the least columnwise alignment of groups.
inline int64_t least_columnwise(const oracle::Spec& spec) {
    const int64_t width = oracle::tile_of(spec.scaling).width;
    return width != oracle::whole ? width : oracle::is_mx(spec.format) ? 32 : 16;
}
inline bool has_amax(const oracle::Spec& spec) { return is_nvfp4(spec) || oracle::is_fp8(spec.format); }
inline bool can_swizzle(const oracle::Spec& spec, bool grouped_columns = false) {
    if (!oracle::is_fp8(spec.format)) return true;
    return oracle::tile_of(spec.scaling).width == 128 && !grouped_columns;
}

// Draws the options that the format takes. A Hadamard transform is drawn only for contractions that are multiples of 16.
inline void draw_options(oracle::Spec& spec, cases::Random& random, int64_t rowwise_contraction, int64_t columnwise_contraction) {
    if (oracle::is_mx(spec.format)) {
        spec.rounding = cases::roundings[random.below(4)];
        spec.nonfinite = cases::policies[random.below(2)];
    }
    if (has_amax(spec)) spec.per_matrix = random.below(2);
    if (is_nvfp4(spec)) {
        spec.nvfp4_t = random.below(2) ? 448.0f : 256.0f;
        spec.four_over_six = static_cast<int32_t>(random.below(4) % 3);
    }
    if (oracle::is_fp8(spec.format)) {
        spec.power_of_two = random.below(2);
        spec.eps = random.below(3) ? 0 : 0.5f;
    }
    if (takes_stochastic(spec) && spec.four_over_six == MXQ_FOUR_OVER_SIX_NONE && random.below(3) == 0) {
        spec.stochastic = true;
        spec.seed = random.bits() * 0x100000001u;
        spec.offset = random.bits() * 0x300000005u;
    }
    if (takes_hadamard(spec) && random.below(3) == 0) {
        spec.hadamard = static_cast<int32_t>(random.below(4));
        if (rowwise_contraction % 16) spec.hadamard &= MXQ_PART_COLUMNWISE;
        if (columnwise_contraction % 16) spec.hadamard &= MXQ_PART_ROWWISE;
        spec.rowwise_mask = random.below(2) ? 0xD7E8 : random.bits() & 0xFFFF;
        spec.columnwise_mask = random.below(2) ? spec.rowwise_mask : random.bits() & 0xFFFF;
    }
}

inline std::string describe(const oracle::Spec& s) {
    char text[300];
    std::snprintf(text, sizeof text, "%s scaling %d%s%s%s%s%s%s, rounding %d, policy %d, T %g, 4/6 %d, eps %g, hadamard %d %04X %04X",
                  mxq_format_name(s.format), s.scaling, s.per_matrix ? ", per matrix" : "", s.power_of_two ? ", power of two" : "",
                  s.stochastic ? ", stochastic" : "", s.amax.empty() ? "" : ", amax given",
                  s.quantization_scale.empty() ? "" : ", scale given", "", s.rounding, s.nonfinite, static_cast<double>(s.nvfp4_t),
                  s.four_over_six, static_cast<double>(s.eps), s.hadamard, s.rowwise_mask,
                  s.columnwise_mask);
    return text;
}

// The ends of groups as an array of 32-bit or 64-bit integers in a device's memory.
class DeviceEnds {
public:
    DeviceEnds(Device& device, const oracle::Ends& ends, bool is_int64 = false) : type_(is_int64 ? MXQ_TYPE_INT64 : MXQ_TYPE_INT32) {
        Bytes bytes(std::max<size_t>(ends.size(), 1) * (is_int64 ? 8 : 4));
        for (size_t g = 0; g < ends.size(); ++g) {
            auto narrow = static_cast<int32_t>(ends[g]);
            std::memcpy(&bytes[g * (is_int64 ? 8 : 4)], is_int64 ? static_cast<const void*>(&ends[g]) : &narrow, is_int64 ? 8 : 4);
        }
        buffer_ = std::make_unique<Buffer>(device, bytes);
        count_ = static_cast<int32_t>(ends.size());
    }
    void set(mxq_tensor* tensor, const oracle::Groups& groups) const {
        ok(testing::set_ends(tensor, buffer_->data(), type_, count_));
        ok(mxq_tensor_set_group_alignment(tensor, static_cast<int32_t>(groups.rowwise), static_cast<int32_t>(groups.columnwise)));
    }

private:
    int32_t type_, count_ = 0;
    std::unique_ptr<Buffer> buffer_;
};

inline Tensor make_tensor(const oracle::Spec& spec, Dims dims, bool swizzled) {
    Tensor tensor = make_tensor(spec.format, dims);
    ok(mxq_tensor_set_scaling(tensor, spec.scaling));
    ok(mxq_tensor_set_swizzled(tensor, swizzled));
    if (has_amax(spec)) ok(mxq_tensor_set_scope(tensor, spec.per_matrix ? MXQ_SCOPE_EXPERT : MXQ_SCOPE_TENSOR));
    if (is_nvfp4(spec)) ok(mxq_tensor_set_scale_max(tensor, static_cast<int32_t>(spec.nvfp4_t)));
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (spec.transforms(part)) ok(mxq_tensor_set_hadamard(tensor, part, 1, static_cast<int32_t>(spec.mask(part))));
    return tensor;
}

// Gives declared parts the transforms of the specification and takes those of other parts away, which quantize refuses.
inline void transform_declared_parts(mxq_tensor* tensor, const oracle::Spec& spec) {
    if (!takes_hadamard(spec)) return;
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        int32_t declared = 0;
        ok(mxq_tensor_get_part(tensor, part, &declared, nullptr, nullptr, nullptr, nullptr, nullptr));
        const bool transforms = declared && spec.transforms(part);
        ok(mxq_tensor_set_hadamard(tensor, part, transforms, transforms ? static_cast<int32_t>(spec.mask(part)) : 0));
    }
}

// Quantize options with everything that a specification sets, and for NVFP4 whether the amax is given.
class Options {
public:
    Options(Device& device, const oracle::Spec& spec) {
        ok(mxq_quantize_options_create(options_.out()));
        if (oracle::is_mx(spec.format)) {
            ok(mxq_quantize_options_set_scale_rounding(options_, spec.rounding));
            ok(mxq_quantize_options_set_nonfinite(options_, spec.nonfinite));
        }
        ok(mxq_quantize_options_set_four_over_six(options_, spec.four_over_six));
        const bool delayed = !spec.quantization_scale.empty();  // means that no scale is made
        ok(mxq_quantize_options_set_power_of_two_scales(options_, spec.power_of_two && !delayed));
        ok(mxq_quantize_options_set_amax_epsilon(options_, delayed ? 0 : spec.eps));
        if (is_nvfp4(spec)) ok(mxq_quantize_options_set_compute_amax(options_, spec.amax.empty()));
        if (!spec.stochastic) return;
        Bytes numbers(16);
        std::memcpy(numbers.data(), &spec.seed, 8);
        std::memcpy(numbers.data() + 8, &spec.offset, 8);
        seed_offset_ = std::make_unique<Buffer>(device, numbers);
        ok(mxq_quantize_options_set_stochastic_rounding(options_, reinterpret_cast<const uint64_t*>(seed_offset_->data()), 16));
    }
    operator mxq_quantize_options*() const { return options_; }

private:
    QuantizeOptions options_;
    std::unique_ptr<Buffer> seed_offset_;
};

inline Bytes bytes_of(const oracle::Floats& values) {
    Bytes out(values.size() * 4);
    if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
    return out;
}

// Returns the byte offset to test scales at. Bytes may start anywhere, fp32 scales at a multiple of 4 bytes.
inline size_t scale_offset(const oracle::Spec& spec, size_t offset) { return offset * (oracle::is_fp8(spec.format) ? 4 : 3); }

// The codes, scales and amax of one part of an output tensor, filled with poison except for an amax that is given.
class OutputPart {
public:
    OutputPart(Device& device, mxq_tensor* tensor, const oracle::Spec& spec, int32_t part, bool with_amax, size_t offset = 0) {
        uint64_t code_bytes = 0, scale_bytes = 0, amax_bytes = 0;
        ok(mxq_tensor_required_bytes(tensor, part, &code_bytes, &scale_bytes));
        ok(mxq_tensor_required_amax_bytes(tensor, part, &amax_bytes));
        codes_ = std::make_unique<Buffer>(device, static_cast<size_t>(code_bytes), offset);
        scales_ = std::make_unique<Buffer>(device, static_cast<size_t>(scale_bytes), scale_offset(spec, offset));
        ok(mxq_tensor_set_part(tensor, part, codes_->data(), codes_->bytes(), scales_->data(), scales_->bytes()));
        transform_declared_parts(tensor, spec);
        if (!with_amax || !has_amax(spec)) return;
        amax_ = spec.amax.empty() ? std::make_unique<Buffer>(device, static_cast<size_t>(amax_bytes), offset * 4)
                                  : std::make_unique<Buffer>(device, bytes_of(spec.amax), offset * 4);
        ok(mxq_tensor_set_amax(tensor, part, reinterpret_cast<float*>(amax_->data()), amax_->bytes()));
    }
    // Returns "" if the expected bytes are written and all others are still poison, else a text that says what differs.
    std::string compare(const oracle::GroupedPart& expected, const oracle::Spec& spec) const {
        oracle::Part on = expected.on(poison);
        if (auto text = difference(scales_->read(), on.scales); !text.empty()) return "scales: " + text;
        if (auto text = difference(codes_->read(), on.codes); !text.empty()) return "codes: " + text;
        if (!amax_) return "";
        Bytes amax = bytes_of(on.amax);
        bool like_scales = oracle::is_fp8(spec.format) && spec.scaling != MXQ_SCALING_TENSOR;
        if (like_scales) amax = oracle::on_background(amax, expected.scales_written, poison);
        if (auto text = difference(amax_->read(), amax); !text.empty()) return "amax: " + text;
        return "";
    }
    // Returns the present codes, scales and amax, one after another.
    Bytes bytes() const {
        Bytes all = codes_->read();
        for (const Buffer* buffer : {scales_.get(), amax_.get()}) {
            if (!buffer) continue;
            const Bytes more = buffer->read();
            all.insert(all.end(), more.begin(), more.end());
        }
        return all;
    }

private:
    std::unique_ptr<Buffer> codes_, scales_, amax_;
};

inline oracle::GroupedPart all_written(oracle::Part part) {
    oracle::Bytes codes(part.codes.size(), 1), scales(part.scales.size(), 1);
    return {std::move(part), codes, scales};
}

// The codes, scales and amax (or decode scale) of one part of an input tensor.
class InputPart {
public:
    InputPart(Device& device, mxq_tensor* tensor, const oracle::Spec& spec, int32_t part, const oracle::Part& content,
              size_t offset = 0)
        : codes_(device, content.codes, offset), scales_(device, content.scales, scale_offset(spec, offset)) {
        ok(mxq_tensor_set_part(tensor, part, codes_.data(), codes_.bytes(), scales_.data(), scales_.bytes()));
        if (!is_nvfp4(spec)) return;
        bool decode_scale = !content.global_scale.empty();
        global_ = std::make_unique<Buffer>(device, bytes_of(decode_scale ? content.global_scale : content.amax), offset * 4);
        auto* numbers = reinterpret_cast<float*>(global_->data());
        ok(decode_scale ? mxq_tensor_set_decode_scale(tensor, part, numbers, global_->bytes())
                        : mxq_tensor_set_amax(tensor, part, numbers, global_->bytes()));
    }

private:
    Buffer codes_, scales_;
    std::unique_ptr<Buffer> global_;
};

// Returns the rows with a gap of 0xFF bytes behind each but the last, since a strided tensor ends with its last element.
// Such bytes are a NaN in every format, so that a read of the gap shows in the result.
inline Bytes spread_rows(const Bytes& dense, int64_t rows, int64_t row_bytes, int64_t gap_bytes) {
    Bytes out;
    for (int64_t i = 0; i < rows; ++i) {
        out.insert(out.end(), dense.begin() + i * row_bytes, dense.begin() + (i + 1) * row_bytes);
        if (i + 1 < rows) out.insert(out.end(), static_cast<size_t>(gap_bytes), 0xFF);
    }
    return out;
}

using Verb = mxq_status (*)(mxq_context*, const mxq_quantize_options*, const mxq_tensor*, const mxq_tensor*, void*, uint64_t, void*);
using Query = mxq_status (*)(mxq_context*, const mxq_quantize_options*, const mxq_tensor*, const mxq_tensor*, mxq_plan**);

// Runs a verb with as much workspace as its query asks for.
inline void run(Device& device, Verb verb, Query query, const mxq_quantize_options* options, const mxq_tensor* in,
                const mxq_tensor* out) {
    Plan plan;
    ok(query(device.context, options, in, out, plan.out()));
    Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
    ok(verb(device.context, options, in, out, workspace.bytes() ? workspace.data() : nullptr, workspace.bytes(), nullptr));
    workspace.read();  // throws if a write was outside the workspace
}

// Draws the ends of `count` groups, some of them empty. The last end may be less than `rows`.
inline oracle::Ends draw_ends(cases::Random& random, int64_t rows, int64_t count) {
    oracle::Ends ends;
    for (int64_t g = 0; g < count; ++g) ends.push_back(random.below(3) ? random.below(rows + 1) : ends.empty() ? 0 : ends.back());
    std::sort(ends.begin(), ends.end());
    if (count > 0 && random.below(2)) ends.back() = rows;
    return ends;
}

inline oracle::Groups draw_groups(cases::Random& random, const oracle::Spec& spec, int64_t rows, int64_t count) {
    oracle::Groups groups{draw_ends(random, rows, count)};
    const int64_t rowwise[] = {1, 1, 2, 16, 32, 128};
    groups.rowwise = rowwise[random.below(6)];
    groups.columnwise = random.below(2) ? 0 : std::min<int64_t>(128, least_columnwise(spec) << random.below(4));
    return groups;
}

}  // namespace testing

#endif
