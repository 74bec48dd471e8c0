// Options and layouts that a format does not have are refused by name, and nothing is written.
#include "../formats.h"
#include "says.h"

using testing::Buffer;
using testing::ok;

namespace {

constexpr int32_t invalid = MXQ_STATUS_INVALID_ARGUMENT, unsupported = MXQ_STATUS_UNSUPPORTED;

// Returns the formats that the library names, whose numbers follow each other.
std::vector<int32_t> library_formats() {
    std::vector<int32_t> out;
    for (int32_t format = MXQ_FORMAT_F32; mxq_format_name(format); ++format) out.push_back(format);
    return out;
}

// A query of quantize from BF16 into a tensor of the given format, whose tensors and options a test then changes.
struct Query {
    Query(testing::Device& device, int32_t format, int32_t scaling, testing::Dims dims = {std::nullopt, 64, 96})
        : device(device), in(testing::make_tensor(MXQ_FORMAT_BF16, dims)), out(testing::make_tensor(format, dims)) {
        ok(mxq_tensor_set_scaling(out, scaling));
        ok(mxq_tensor_set_part(out, MXQ_PART_ROWWISE, nullptr, 0, nullptr, 0));
        ok(mxq_tensor_set_part(out, MXQ_PART_COLUMNWISE, nullptr, 0, nullptr, 0));
        ok(mxq_quantize_options_create(options.out()));
    }
    mxq_status operator()() { return mxq_quantize_query(device.context, options, in, out, nullptr); }

    testing::Device& device;
    testing::Tensor in, out;
    testing::QuantizeOptions options;
};

}  // namespace

MXQ_EACH_DEVICE("format refusals: options that mean nothing to a format") {
    const uint64_t* seed = reinterpret_cast<const uint64_t*>(64);
    struct Option {
        const char* name;
        std::function<void(mxq_quantize_options*)> set;
        bool mx, mxfp4, nvfp4, fp8;  // true for the formats that take the option; mx: all but MXFP4
    };
    const Option all[] = {
        {"a scale rounding", [](auto* o) { ok(mxq_quantize_options_set_scale_rounding(o, MXQ_SCALE_ROUNDING_FLOOR)); }, true, true, false, false},
        {"a non-finite policy", [](auto* o) { ok(mxq_quantize_options_set_nonfinite(o, MXQ_NONFINITE_SATURATE)); }, true, true, false, false},
        {"four-over-six", [](auto* o) { ok(mxq_quantize_options_set_four_over_six(o, MXQ_FOUR_OVER_SIX_MAE)); }, false, false, true, false},
        {"stochastic rounding", [&](auto* o) { ok(mxq_quantize_options_set_stochastic_rounding(o, seed, 16)); }, false, true, true, false},
        {"a given amax", [](auto* o) { ok(mxq_quantize_options_set_compute_amax(o, 0)); }, false, false, true, false},
        {"power-of-two scales", [](auto* o) { ok(mxq_quantize_options_set_power_of_two_scales(o, 1)); }, false, false, false, true},
        {"an amax epsilon", [](auto* o) { ok(mxq_quantize_options_set_amax_epsilon(o, 0.5f)); }, false, false, false, true},
        // Defaults that were set are refused alike.
        {"a scale rounding", [](auto* o) { ok(mxq_quantize_options_set_scale_rounding(o, MXQ_SCALE_ROUNDING_RCEIL)); }, true, true, false, false},
        {"a non-finite policy", [](auto* o) { ok(mxq_quantize_options_set_nonfinite(o, MXQ_NONFINITE_PROPAGATE)); }, true, true, false, false},
        {"a computed amax", [](auto* o) { ok(mxq_quantize_options_set_compute_amax(o, 1)); }, false, false, true, false},
    };
    int ran = 0;
    for (const Option& option : all)
        for (int32_t format : library_formats()) {
            int64_t quantized = 0;
            ok(mxq_format_property(format, MXQ_PROPERTY_QUANTIZED, &quantized));
            if (!quantized) continue;
            Query query(device, format, oracle::default_scaling(format));
            option.set(query.options);
            bool takes = oracle::is_fp8(format) ? option.fp8 : format == MXQ_FORMAT_NVFP4 ? option.nvfp4 : format == MXQ_FORMAT_MXFP4 ? option.mxfp4 : option.mx;
            CAPTURE(option.name, format);
            if (takes) CHECK(query() == MXQ_STATUS_OK);
            else MXQ_REFUSED(query(), invalid, option.name, mxq_format_name(format));
            // Verbs that have no such option refuse it for every format.
            Query back(device, format, oracle::default_scaling(format));
            MXQ_REFUSED(mxq_dequantize_query(device.context, query.options, back.out, back.in, nullptr), invalid, option.name, "dequantize does not have");
            ++ran;
        }
    CHECK(ran == 10 * 8);  // options, formats
}

MXQ_EACH_DEVICE("format refusals: an option at NONE, 0 or NULL is taken back, for every format and verb") {
    int ran = 0;
    for (int32_t format : library_formats()) {
        int64_t quantized = 0;
        ok(mxq_format_property(format, MXQ_PROPERTY_QUANTIZED, &quantized));
        if (!quantized) continue;
        Query query(device, format, oracle::default_scaling(format));
        ok(mxq_quantize_options_set_four_over_six(query.options, MXQ_FOUR_OVER_SIX_NONE));
        ok(mxq_quantize_options_set_undo_hadamard(query.options, 1));
        ok(mxq_quantize_options_set_stochastic_rounding(query.options, nullptr, 0));
        ok(mxq_quantize_options_set_power_of_two_scales(query.options, 0));
        ok(mxq_quantize_options_set_amax_epsilon(query.options, 0));
        ok(mxq_quantize_options_set_source_part(query.options, 0));
        CHECK(query() == MXQ_STATUS_OK);
        CHECK(mxq_dequantize_query(device.context, query.options, query.out, query.in, nullptr) == MXQ_STATUS_OK);
        ++ran;
    }
    CHECK(ran == 8);
}

MXQ_EACH_DEVICE("format refusals: options beside a scale that is given") {
    float scale = 1;
    Query fp8(device, MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR);
    ok(mxq_tensor_set_quantization_scale(fp8.out, &scale, 4));
    CHECK(fp8() == MXQ_STATUS_OK);
    ok(mxq_quantize_options_set_amax_epsilon(fp8.options, 0.5f));
    MXQ_REFUSED(fp8(), invalid, "an amax epsilon", "quantization scale", "one of them");
    ok(mxq_quantize_options_set_amax_epsilon(fp8.options, 0));
    ok(mxq_quantize_options_set_power_of_two_scales(fp8.options, 1));
    MXQ_REFUSED(fp8(), invalid, "power-of-two scales", "quantization scale", "one of them");
    ok(mxq_tensor_set_quantization_scale(fp8.out, nullptr, 0));
    CHECK(fp8() == MXQ_STATUS_OK);
}

MXQ_EACH_DEVICE("format refusals: scalings, alignments and shapes") {
    int tried = 0;
    for (int32_t format : library_formats())
        for (int32_t scaling = -1; scaling <= MXQ_SCALING_TENSOR + 1; ++scaling, ++tried) {
            auto tensor = testing::make_tensor(format, {std::nullopt, 32, 32});
            bool takes = false;
            for (const oracle::Spec& spec : testing::all_formats()) takes |= spec.format == format && spec.scaling == scaling;
            CAPTURE(format, scaling);
            if (takes) CHECK(mxq_tensor_set_scaling(tensor, scaling) == MXQ_STATUS_OK);
            else MXQ_REFUSED(mxq_tensor_set_scaling(tensor, scaling), invalid, mxq_format_name(format));
        }
    CHECK(tried == 11 * (MXQ_SCALING_TENSOR + 3));
    for (int32_t scaling : {MXQ_SCALING_TENSOR, MXQ_SCALING_ROW}) {
        Query query(device, MXQ_FORMAT_FP8_E4M3, scaling);  // sets the scaling
        MXQ_REFUSED(mxq_tensor_set_swizzled(query.out, 1), unsupported, "cannot have swizzled", "expected compact");
        CHECK(query() == MXQ_STATUS_OK);
    }
    Query unset(device, MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR);
    unset.out = testing::make_tensor(MXQ_FORMAT_FP8_E4M3, {std::nullopt, 64, 96});
    ok(mxq_tensor_set_swizzled(unset.out, 1));  // another scaling may follow
    MXQ_REFUSED(unset(), unsupported, "out with tensor scales cannot have swizzled ones", "expected compact");
    MXQ_REFUSED(mxq_tensor_required_bytes(unset.out, MXQ_PART_ROWWISE, nullptr, nullptr), unsupported, "swizzled");
    Query fp8(device, MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128);
    ok(mxq_tensor_set_swizzled(fp8.out, 1));
    CHECK(fp8() == MXQ_STATUS_OK);
    ok(testing::set_ends(fp8.out, nullptr, MXQ_TYPE_INT32, 3));
    MXQ_REFUSED(fp8(), unsupported, "out.columnwise has groups", "rows only");

    Query columnwise_32(device, MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X128);
    ok(testing::set_ends(columnwise_32.out, nullptr, MXQ_TYPE_INT32, 3));
    MXQ_REFUSED(mxq_tensor_set_group_alignment(columnwise_32.out, 1, 32), invalid, "columnwise group alignment 32", "multiple of 128",
                "mxq_tensor_set_group_alignment");
    CHECK(columnwise_32() == MXQ_STATUS_OK);  // the alignment is the default still
    for (int32_t bad : {0, -1, 3, 256}) {
        MXQ_REFUSED(mxq_tensor_set_group_alignment(columnwise_32.out, bad, 0), invalid, "rowwise", "power of two");
        if (bad) MXQ_REFUSED(mxq_tensor_set_group_alignment(columnwise_32.out, 1, bad), invalid, "columnwise", "power of two");
    }

    Query row(device, MXQ_FORMAT_MXFP4, MXQ_SCALING_ROW);
    CHECK(row() == MXQ_STATUS_OK);
    ok(testing::set_ends(row.out, nullptr, MXQ_TYPE_INT32, 3));
    MXQ_REFUSED(mxq_tensor_set_group_alignment(row.out, 1, 16), invalid, "columnwise group alignment 16", "multiple of 32", "no block of row",
                "mxq_tensor_set_group_alignment");
    Query row_hadamard(device, MXQ_FORMAT_MXFP4, MXQ_SCALING_ROW), row_random(device, MXQ_FORMAT_MXFP4, MXQ_SCALING_ROW);
    MXQ_REFUSED(mxq_tensor_set_hadamard(row_hadamard.out, MXQ_PART_ROWWISE, 1, 0xD7E8), invalid,
                "tensor has a Hadamard transform and row scales", "blocks of one line");
    CHECK(row_hadamard() == MXQ_STATUS_OK);
    ok(mxq_quantize_options_set_stochastic_rounding(row_random.options, reinterpret_cast<const uint64_t*>(64), 16));
    MXQ_REFUSED(row_random(), invalid, "stochastic rounding", "mxfp4 in blocks", "mxfp4 with row scales");
    Query both(device, MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16);
    const auto* const seed = reinterpret_cast<const uint64_t*>(64);
    ok(mxq_quantize_options_set_four_over_six(both.options, MXQ_FOUR_OVER_SIX_MSE));
    MXQ_REFUSED(mxq_quantize_options_set_stochastic_rounding(both.options, seed, 16), invalid,
                "stochastic rounding and four-over-six", "MXQ_FOUR_OVER_SIX_NONE");
    CHECK(mxq_quantize_options_set_stochastic_rounding(both.options, nullptr, 0) == MXQ_STATUS_OK);
    ok(mxq_quantize_options_set_four_over_six(both.options, MXQ_FOUR_OVER_SIX_NONE));
    ok(mxq_quantize_options_set_stochastic_rounding(both.options, seed, 16));
    MXQ_REFUSED(mxq_quantize_options_set_four_over_six(both.options, MXQ_FOUR_OVER_SIX_MAE), invalid,
                "stochastic rounding and four-over-six");
    CHECK(both() == MXQ_STATUS_OK);
}

MXQ_EACH_DEVICE("format refusals: values of setters") {
    auto nvfp4 = testing::make_tensor(MXQ_FORMAT_NVFP4, {std::nullopt, 32, 32}), mx = testing::make_tensor(MXQ_FORMAT_MXFP4, {std::nullopt, 32, 32}),
         fp8 = testing::make_tensor(MXQ_FORMAT_FP8_E4M3, {std::nullopt, 32, 32});
    float number = 1;
    MXQ_REFUSED(mxq_tensor_set_amax(mx, MXQ_PART_ROWWISE, &number, 4), invalid, "mxfp4", "nvfp4 or fp8");
    MXQ_REFUSED(mxq_tensor_set_amax(nvfp4, 3, &number, 4), invalid, "part is 3");
    MXQ_REFUSED(mxq_tensor_set_decode_scale(fp8, MXQ_PART_ROWWISE, &number, 4), invalid, "fp8_e4m3", "nvfp4");
    MXQ_REFUSED(mxq_tensor_set_scale_max(nvfp4, 300), invalid, "300", "448 or 256");
    MXQ_REFUSED(mxq_tensor_set_scale_max(fp8, 448), invalid, "nvfp4");
    MXQ_REFUSED(mxq_tensor_set_quantization_scale(nvfp4, &number, 4), invalid, "nvfp4", "fp8");
    MXQ_REFUSED(mxq_tensor_set_scope(mx, MXQ_SCOPE_EXPERT), invalid, "mxfp4");
    for (int32_t bad : {0, 3}) MXQ_REFUSED(mxq_tensor_set_scope(nvfp4, bad), invalid, "scope is " + std::to_string(bad));
    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    for (int32_t bad : {-1, 3}) MXQ_REFUSED(mxq_quantize_options_set_four_over_six(options, bad), invalid, "mode is " + std::to_string(bad));
    for (int32_t bad : {-1, 2}) {
        MXQ_REFUSED(mxq_quantize_options_set_compute_amax(options, bad), invalid, "compute is");
        MXQ_REFUSED(mxq_quantize_options_set_power_of_two_scales(options, bad), invalid, "power_of_two is");
    }
    for (float bad : {-1.0f, INFINITY, static_cast<float>(NAN)}) MXQ_REFUSED(mxq_quantize_options_set_amax_epsilon(options, bad), invalid, "epsilon");
    CHECK(device.context != nullptr);
}

MXQ_EACH_DEVICE("format refusals: what a call needs and does not have") {
    const testing::Dims dims{std::nullopt, 32, 64};
    auto in = testing::make_tensor(MXQ_FORMAT_F32, dims), out = testing::make_tensor(MXQ_FORMAT_NVFP4, dims);
    Buffer x(device, cases::plain_values(MXQ_FORMAT_F32, cases::Values::normal, 32 * 64, 1)), amax(device, 4), decode_scale(device, 4);
    testing::PartBuffers part(device, out, MXQ_PART_ROWWISE);
    ok(mxq_tensor_set_data(in, x.data(), x.bytes()));
    auto quantize = [&] { return mxq_quantize(device.context, nullptr, in, out, nullptr, 0, nullptr); };
    auto* numbers = reinterpret_cast<float*>(amax.data());
    MXQ_REFUSED(quantize(), MXQ_STATUS_MISSING_BUFFER, "out.rowwise.amax", "NULL", "4 bytes", "mxq_tensor_set_amax");
    ok(mxq_tensor_set_amax(out, MXQ_PART_ROWWISE, numbers, 3));
    MXQ_REFUSED(quantize(), MXQ_STATUS_BUFFER_TOO_SMALL, "out.rowwise.amax", "3 bytes", "4");
    ok(mxq_tensor_set_amax(out, MXQ_PART_ROWWISE, reinterpret_cast<float*>(static_cast<uint8_t*>(amax.data()) + 1), 4));
    MXQ_REFUSED(quantize(), MXQ_STATUS_MISALIGNED, "out.rowwise.amax", "multiple of 4");
    ok(mxq_tensor_set_amax(out, MXQ_PART_ROWWISE, numbers, 4));
    auto* const decode = reinterpret_cast<float*>(decode_scale.data());
    MXQ_REFUSED(mxq_tensor_set_decode_scale(out, MXQ_PART_ROWWISE, decode, 4), invalid,
                "tensor.rowwise has an amax and a decode scale", "mxq_tensor_set_amax");
    CHECK(mxq_tensor_set_decode_scale(out, MXQ_PART_COLUMNWISE, decode, 4) == MXQ_STATUS_OK);  // each part has its own
    ok(mxq_tensor_set_amax(out, MXQ_PART_ROWWISE, nullptr, 0));
    ok(mxq_tensor_set_decode_scale(out, MXQ_PART_ROWWISE, decode, 4));
    MXQ_REFUSED(mxq_tensor_set_amax(out, MXQ_PART_ROWWISE, numbers, 4), invalid, "an amax and a decode scale",
                "mxq_tensor_set_decode_scale");
    MXQ_REFUSED(quantize(), invalid, "decode scale", "expected an amax");
    CHECK(part.codes->untouched());

    auto mx = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, dims), row = testing::make_tensor(MXQ_FORMAT_FP8_E4M3, dims);
    MXQ_REFUSED(mxq_amax(device.context, nullptr, in, mx, nullptr, 0, nullptr), unsupported, "mxfp8_e4m3", "nvfp4");
    MXQ_REFUSED(mxq_amax(device.context, nullptr, in, row, nullptr, 0, nullptr), MXQ_STATUS_MISSING_BUFFER, "no place for an amax");
    ok(mxq_tensor_set_scaling(row, MXQ_SCALING_ROW));
    MXQ_REFUSED(mxq_amax(device.context, nullptr, in, row, nullptr, 0, nullptr), unsupported, "row scales");
    MXQ_REFUSED(mxq_tensor_set_quantization_scale(row, numbers, 4), invalid, "a quantization scale and row scales",
                "MXQ_SCALING_TENSOR");
    CHECK(mxq_tensor_set_quantization_scale(row, nullptr, 0) == MXQ_STATUS_OK);
    ok(mxq_tensor_set_scaling(row, MXQ_SCALING_TENSOR));
    ok(mxq_tensor_set_quantization_scale(row, numbers, 4));
    MXQ_REFUSED(mxq_tensor_set_scaling(row, MXQ_SCALING_1X128), invalid, "a quantization scale and 1x128 scales",
                "mxq_tensor_set_quantization_scale with NULL");

    MXQ_REFUSED(mxq_pad_groups(device.context, nullptr, in, in, nullptr, 0, nullptr), invalid, "in has no groups");
    auto padded = testing::make_tensor(MXQ_FORMAT_F32, dims), dense = testing::make_tensor(MXQ_FORMAT_F32, dims);
    ok(testing::set_ends(padded, nullptr, MXQ_TYPE_INT32, 2));
    ok(testing::set_ends(dense, nullptr, MXQ_TYPE_INT32, 2));
    ok(mxq_tensor_set_group_alignment(padded, 32, 0));
    CHECK(mxq_pad_groups_query(device.context, nullptr, dense, padded, nullptr) == MXQ_STATUS_OK);
    CHECK(mxq_unpad_groups_query(device.context, nullptr, padded, dense, nullptr) == MXQ_STATUS_OK);
    MXQ_REFUSED(mxq_pad_groups_query(device.context, nullptr, padded, dense, nullptr), invalid, "alignment 32 and out 1", "larger");
    MXQ_REFUSED(mxq_unpad_groups_query(device.context, nullptr, dense, padded, nullptr), invalid, "alignment 1 and out 32", "smaller");
    MXQ_REFUSED(mxq_requantize_query(device.context, nullptr, in, mx, nullptr), unsupported, "in is f32");
    MXQ_REFUSED(mxq_requantize_query(device.context, nullptr, mx, in, nullptr), unsupported, "out is f32");
}

MXQ_EACH_DEVICE("format refusals: pairs of a product with other blocks, but for FP8 beside block scales") {
    auto name = [](const oracle::Spec& spec) { return std::string(mxq_format_name(spec.format)); };
    int refused = 0, taken = 0;
    for (const oracle::Spec& a_spec : testing::all_formats())
        for (const oracle::Spec& b_spec : testing::all_formats()) {
            auto a = testing::make_tensor(a_spec, {std::nullopt, 32, 128}, false), b = testing::make_tensor(b_spec, {std::nullopt, 48, 128}, false);
            auto d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 32, 48});
            auto family = [](const oracle::Spec& s) { return oracle::is_mx(s.format) ? 32 : testing::is_nvfp4(s) ? 16 : oracle::tile_of(s.scaling).width == 128 ? 128 : 0; };
            mxq_status status = mxq_gemm_query(device.context, nullptr, a, b, d, nullptr);
            CAPTURE(name(a_spec), a_spec.scaling, name(b_spec), b_spec.scaling);
            const bool fp8_with_blocks = oracle::is_fp8(a_spec.format) && !oracle::is_fp8(b_spec.format);
            const bool takes = family(a_spec) == family(b_spec) || fp8_with_blocks;
            ++(takes ? taken : refused);
            if (takes) CHECK(status == MXQ_STATUS_OK);
            else CHECK(testing::refusal(status, unsupported, {name(a_spec), name(b_spec), "same block"}) == "");
        }
    CHECK(taken == 25 * 25 + 2 * 2 + 4 * 4 + 4 * 4 + 8 * 27);
    CHECK(refused == 35 * 35 - taken);
}

// Plain operands have no part that a transpose could miss, and tensor cores take the same ones in each.
MXQ_EACH_DEVICE("format refusals: plain operands in every transpose") {
    const testing::Dims dims{std::nullopt, 64, 64};
    int ran = 0;
    for (int32_t a : {MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T})
        for (int32_t b : {MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T})
            for (int32_t format : cases::plain_formats) {
                auto x = testing::make_tensor(format, dims), d = testing::make_tensor(MXQ_FORMAT_F32, dims);
                CAPTURE(a, b, format);
                const mxq_status status = mxq_gemm_query(device.context, testing::gemm_options(a, b), x, x, d, nullptr);
                if (device.is_cpu() || format != MXQ_FORMAT_F32) CHECK(status == MXQ_STATUS_OK);
                else CHECK(testing::refusal(status, unsupported, {"f32", "mxq_convert"}) == "");
                ++ran;
            }
    CHECK(ran == 12);
}

// The CPU multiplies plain operands of any type with all others; tensor cores BF16 with all that become BF16, and F16 with F16 or,
// as A, with what is quantized.
MXQ_EACH_DEVICE("format refusals: plain operands") {
    const testing::Dims dims{std::nullopt, 64, 64};
    auto d = testing::make_tensor(MXQ_FORMAT_F32, dims);
    int taken = 0, refused = 0;
    for (int32_t a_format : cases::plain_formats)
        for (int32_t b_format : {MXQ_FORMAT_F32, MXQ_FORMAT_F16, MXQ_FORMAT_BF16, MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_MXFP4, MXQ_FORMAT_NVFP4, MXQ_FORMAT_FP8_E4M3}) {
            auto a = testing::make_tensor(a_format, dims), b = testing::make_tensor(b_format, dims);
            const bool b_plain = b_format <= MXQ_FORMAT_BF16, f16 = a_format == MXQ_FORMAT_F16 && b_format == MXQ_FORMAT_F16;
            CAPTURE(a_format, b_format);
            for (bool swapped : {false, true}) {
                const bool takes = device.is_cpu() || f16 || (a_format == MXQ_FORMAT_BF16 && (!b_plain || b_format == MXQ_FORMAT_BF16)) ||
                                   (a_format == MXQ_FORMAT_F16 && !b_plain && !swapped);
                const mxq_status status = mxq_gemm_query(device.context, nullptr, swapped ? b : a, swapped ? a : b, d, nullptr);
                if (takes) CHECK(status == MXQ_STATUS_OK);
                else CHECK(testing::refusal(status, unsupported, {mxq_format_name(a_format), mxq_format_name(b_format), "mxq_convert"}) == "");
                ++(takes ? taken : refused);
            }
        }
    CHECK(taken == 2 * (device.is_cpu() ? 21 : 6) + (device.is_cpu() ? 0 : 4));
    CHECK(refused == 42 - taken);
}
