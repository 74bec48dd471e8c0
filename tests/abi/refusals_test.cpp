// quantize, dequantize, swizzle_scales and unswizzle_scales refuse each bad input with its status and message and write
// nothing; the context still works.
#include "../cases.h"
#include "says.h"

#include <functional>

using testing::Buffer;
using testing::ok;

namespace {

// A valid call of quantize (both parts) and of dequantize, which each case makes invalid in one place.
struct Fixture {
    explicit Fixture(testing::Device& device)
        : device(device),
          plain(testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 40, 70})),
          quantized(testing::make_quantized({}, {std::nullopt, 40, 70}, false)),
          x(device, cases::plain_values(MXQ_FORMAT_F32, cases::Values::normal, 40 * 70, 1)),
          rowwise(device, quantized, MXQ_PART_ROWWISE),
          columnwise(device, quantized, MXQ_PART_COLUMNWISE) {
        ok(mxq_tensor_set_data(plain, x.data(), x.bytes()));
        ok(mxq_quantize_options_create(options.out()));
    }
    mxq_status quantize(void* stream = nullptr) {
        return mxq_quantize(device.context, options, plain, quantized, nullptr, 0, stream);
    }
    mxq_status query() {
        testing::Plan plan;
        return mxq_quantize_query(device.context, options, plain, quantized, plan.out());
    }
    bool untouched() const {
        return rowwise.codes->untouched() && rowwise.scales->untouched() && columnwise.codes->untouched() && columnwise.scales->untouched();
    }

    testing::Device& device;
    testing::Tensor plain, quantized;
    Buffer x;
    testing::PartBuffers rowwise, columnwise;
    testing::QuantizeOptions options;
};

struct Refusal {
    mxq_status status;
    std::vector<std::string> words;
    bool query_refuses;  // true: a query refuses it too
    std::function<void(Fixture&)> spoil;
};

uint8_t* byte(void* pointer) { return static_cast<uint8_t*>(pointer); }

const std::vector<Refusal>& quantize_refusals() {
    using F = Fixture;
    static const std::vector<Refusal> all = {
        {MXQ_STATUS_UNSUPPORTED, {"in is", "mxfp8_e4m3", "expected f32"}, true,
         [](F& f) { f.plain = testing::make_quantized({}, {std::nullopt, 40, 70}, false); }},
        {MXQ_STATUS_UNSUPPORTED, {"out is f32", "expected a quantized format"}, true,
         [](F& f) { f.quantized = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 40, 70}); }},
        {MXQ_STATUS_SHAPE_MISMATCH, {"out is 40 x 71", "40 x 70"}, true,
         [](F& f) { f.quantized = testing::make_quantized({}, {std::nullopt, 40, 71}, false); }},
        {MXQ_STATUS_SHAPE_MISMATCH, {"out is 1 x 40 x 70", "40 x 70"}, true,
         [](F& f) { f.quantized = testing::make_quantized({}, {1, 40, 70}, false); }},
        {MXQ_STATUS_SHAPE_MISMATCH, {"out has other groups than in", "same"}, true,
         [](F& f) { ok(testing::set_ends(f.plain, f.x.data(), MXQ_TYPE_INT32, 1)); }},
        {MXQ_STATUS_UNSUPPORTED, {"no such thing", "expected one of"}, true,
         [](F& f) { ok(mxq_quantize_options_set_implementation(f.options, "no such thing")); }},
        {MXQ_STATUS_MISSING_BUFFER, {"out declares no part", "mxq_tensor_set_part"}, false,
         [](F& f) {
             ok(mxq_tensor_clear_part(f.quantized, MXQ_PART_ROWWISE));
             ok(mxq_tensor_clear_part(f.quantized, MXQ_PART_COLUMNWISE));
         }},
        {MXQ_STATUS_MISSING_BUFFER, {"in.data", "NULL", "11200", "mxq_tensor_set_data"}, false,
         [](F& f) { ok(mxq_tensor_set_data(f.plain, nullptr, 0)); }},
        {MXQ_STATUS_MISSING_BUFFER, {"out.rowwise.codes", "NULL", "2800", "mxq_tensor_set_part"}, false,
         [](F& f) { ok(mxq_tensor_set_part(f.quantized, MXQ_PART_ROWWISE, nullptr, 0, f.rowwise.scales->data(), 120)); }},
        {MXQ_STATUS_MISSING_BUFFER, {"out.columnwise.scales", "NULL", "140", "mxq_tensor_set_part"}, false,
         [](F& f) { ok(mxq_tensor_set_part(f.quantized, MXQ_PART_COLUMNWISE, f.columnwise.codes->data(), 2800, nullptr, 0)); }},
        {MXQ_STATUS_BUFFER_TOO_SMALL, {"in.data", "11199", "11200", "mxq_tensor_required_bytes"}, true,
         [](F& f) { ok(mxq_tensor_set_data(f.plain, f.x.data(), 11199)); }},
        {MXQ_STATUS_BUFFER_TOO_SMALL, {"out.rowwise.codes", "2799", "2800", "mxq_tensor_required_bytes"}, true,
         [](F& f) { ok(mxq_tensor_set_part(f.quantized, MXQ_PART_ROWWISE, f.rowwise.codes->data(), 2799, f.rowwise.scales->data(), 120)); }},
        {MXQ_STATUS_BUFFER_TOO_SMALL, {"out.rowwise.scales", "119", "120", "mxq_tensor_required_bytes"}, true,
         [](F& f) { ok(mxq_tensor_set_part(f.quantized, MXQ_PART_ROWWISE, f.rowwise.codes->data(), 2800, f.rowwise.scales->data(), 119)); }},
        {MXQ_STATUS_BUFFER_TOO_SMALL, {"out.columnwise.scales", "139", "140"}, true,
         [](F& f) { ok(mxq_tensor_set_part(f.quantized, MXQ_PART_COLUMNWISE, f.columnwise.codes->data(), 2800, f.columnwise.scales->data(), 139)); }},
        {MXQ_STATUS_BUFFER_TOO_SMALL, {"out.rowwise.scales", "120", "512"}, true,  // swizzled scales need more bytes
         [](F& f) { ok(mxq_tensor_set_swizzled(f.quantized, 1)); }},
        {MXQ_STATUS_BUFFER_TOO_SMALL, {"in.data", "11200", std::to_string((39 * 71 + 70) * 4)}, true,  // a row stride needs more
         [](F& f) { ok(mxq_tensor_set_row_stride(f.plain, 71)); }},
        {MXQ_STATUS_MISALIGNED, {"in.data", "multiple of 4"}, true,
         [](F& f) { ok(mxq_tensor_set_data(f.plain, byte(f.x.data()) + 2, 11200)); }},
        {MXQ_STATUS_INVALID_ARGUMENT, {"overlaps", "out.rowwise.codes", "in.data"}, true,
         [](F& f) { ok(mxq_tensor_set_part(f.quantized, MXQ_PART_ROWWISE, byte(f.x.data()) + 11199, 2800, f.rowwise.scales->data(), 120)); }},
        {MXQ_STATUS_INVALID_ARGUMENT, {"overlaps", "out.columnwise.scales", "out.rowwise.scales"}, true,
         [](F& f) { ok(mxq_tensor_set_part(f.quantized, MXQ_PART_COLUMNWISE, f.columnwise.codes->data(), 2800, f.rowwise.scales->data(), 140)); }},
        {MXQ_STATUS_INVALID_ARGUMENT, {"in.data", "address space"}, true,
         // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing is read there.
         [](F& f) { ok(mxq_tensor_set_data(f.plain, reinterpret_cast<void*>(UINTPTR_MAX - 15), 11200)); }},
        {MXQ_STATUS_INVALID_ARGUMENT, {"in is 8193 x 1", "row stride", "2^63", "smaller"}, true,
         [](F& f) {
             f.plain = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 8193, 1});
             f.quantized = testing::make_quantized({}, {std::nullopt, 8193, 1}, false);
             f.rowwise.set(f.quantized, MXQ_PART_ROWWISE);
             ok(mxq_tensor_set_data(f.plain, f.x.data(), UINT64_MAX));
             ok(mxq_tensor_set_row_stride(f.plain, int64_t(1) << 48));
         }},
    };
    return all;
}

std::string refusal(mxq_status got, const Refusal& r, const char* function) {
    if (auto text = testing::refusal(got, r.status, {function}); !text.empty()) return text;
    for (const std::string& word : r.words)
        if (auto text = testing::refusal(got, r.status, {word}); !text.empty()) return text;
    return "";
}

}  // namespace

MXQ_EACH_DEVICE("refusals: quantize and its query") {
    int ran = 0;
    for (const Refusal& r : quantize_refusals()) {
        Fixture f(device);
        r.spoil(f);
        CAPTURE(r.words[0], r.words[1 % r.words.size()]);
        CHECK(refusal(f.quantize(), r, "mxq_quantize: ") == "");
        if (r.query_refuses) CHECK(refusal(f.query(), r, "mxq_quantize_query: ") == "");
        else CHECK(f.query() == MXQ_STATUS_OK);
        CHECK(f.untouched());
        ++ran;

        Fixture good(device);
        CHECK(good.quantize() == MXQ_STATUS_OK);
        CHECK(!good.rowwise.codes->untouched());
    }
    CHECK(ran == 21);
}

MXQ_EACH_DEVICE("refusals: NULL handles and streams") {
    Fixture f(device);
    auto* context = device.context;
    constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT;
    MXQ_REFUSED(mxq_quantize(nullptr, nullptr, f.plain, f.quantized, nullptr, 0, nullptr), invalid, "context is NULL", "mxq_context_create");
    MXQ_REFUSED(mxq_quantize(context, nullptr, nullptr, f.quantized, nullptr, 0, nullptr), invalid, "in is NULL");
    MXQ_REFUSED(mxq_quantize(context, nullptr, f.plain, nullptr, nullptr, 0, nullptr), invalid, "out is NULL");
    MXQ_REFUSED(mxq_dequantize(nullptr, nullptr, f.quantized, f.plain, nullptr, 0, nullptr), invalid, "context is NULL");
    MXQ_REFUSED(mxq_dequantize(context, nullptr, nullptr, f.plain, nullptr, 0, nullptr), invalid, "in is NULL");
    MXQ_REFUSED(mxq_dequantize(context, nullptr, f.quantized, nullptr, nullptr, 0, nullptr), invalid, "out is NULL");
    MXQ_REFUSED(mxq_swizzle_scales(nullptr, nullptr, f.quantized, f.quantized, nullptr, 0, nullptr), invalid, "context is NULL");
    MXQ_REFUSED(mxq_swizzle_scales(context, nullptr, nullptr, f.quantized, nullptr, 0, nullptr), invalid, "in is NULL");
    MXQ_REFUSED(mxq_unswizzle_scales(context, nullptr, f.quantized, nullptr, nullptr, 0, nullptr), invalid, "out is NULL");
    for (auto query : {mxq_quantize_query, mxq_dequantize_query, mxq_swizzle_scales_query, mxq_unswizzle_scales_query}) {
        auto* plan = reinterpret_cast<mxq_plan*>(16);
        MXQ_REFUSED(query(nullptr, nullptr, f.plain, f.quantized, &plan), invalid, "context is NULL", "_query");
        CHECK(plan == nullptr);
        MXQ_REFUSED(query(context, nullptr, nullptr, f.quantized, nullptr), invalid, "in is NULL");
    }
    if (device.is_cpu()) {
        for (auto verb : {mxq_quantize, mxq_dequantize, mxq_swizzle_scales, mxq_unswizzle_scales})
            MXQ_REFUSED(verb(context, nullptr, f.plain, f.quantized, nullptr, 0, f.x.data()), invalid, "stream", "CPU");
    }
    CHECK(f.untouched());
    CHECK(f.quantize() == MXQ_STATUS_OK);
}

MXQ_EACH_DEVICE("refusals: dequantize") {
    Fixture f(device);
    auto* context = device.context;
    auto run = [&](mxq_tensor* in, mxq_tensor* out) { return mxq_dequantize(context, nullptr, in, out, nullptr, 0, nullptr); };
    ok(f.quantize());
    Buffer back(device, 40 * 70 * 4);
    ok(mxq_tensor_set_data(f.plain, back.data(), back.bytes()));
    MXQ_REFUSED(run(f.plain, f.plain), MXQ_STATUS_UNSUPPORTED, "in is f32", "expected a quantized format");
    MXQ_REFUSED(run(f.quantized, f.quantized), MXQ_STATUS_UNSUPPORTED, "out is mxfp8_e4m3", "expected f32");
    auto other = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 70, 40});
    MXQ_REFUSED(run(f.quantized, other), MXQ_STATUS_SHAPE_MISMATCH, "out is 70 x 40", "40 x 70");
    ok(mxq_tensor_set_data(f.plain, back.data(), 3));
    MXQ_REFUSED(run(f.quantized, f.plain), MXQ_STATUS_BUFFER_TOO_SMALL, "out.data", "3 bytes", "11200");
    auto far_rows = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 8193, 1});
    ok(mxq_tensor_set_row_stride(far_rows, int64_t(1) << 48));
    MXQ_REFUSED(mxq_tensor_required_bytes(far_rows, MXQ_PART_ROWWISE, nullptr, nullptr), MXQ_STATUS_INVALID_ARGUMENT, "row stride", "2^63", "smaller");
    MXQ_REFUSED(mxq_dequantize_query(context, nullptr, testing::make_quantized({}, {std::nullopt, 8193, 1}, false), far_rows, nullptr),
                MXQ_STATUS_INVALID_ARGUMENT, "out is 8193 x 1", "row stride", "2^63", "smaller");
    ok(mxq_tensor_set_data(f.plain, back.data(), back.bytes()));

    ok(mxq_quantize_options_set_scale_rounding(f.options, MXQ_SCALE_ROUNDING_FLOOR));
    MXQ_REFUSED(mxq_dequantize(context, f.options, f.quantized, f.plain, nullptr, 0, nullptr), MXQ_STATUS_INVALID_ARGUMENT, "scale rounding", "dequantize does not have");
    testing::QuantizeOptions policy;
    ok(mxq_quantize_options_create(policy.out()));
    ok(mxq_quantize_options_set_nonfinite(policy, MXQ_NONFINITE_SATURATE));
    MXQ_REFUSED(mxq_dequantize(context, policy, f.quantized, f.plain, nullptr, 0, nullptr), MXQ_STATUS_INVALID_ARGUMENT, "non-finite policy", "dequantize does not have");

    ok(testing::set_ends(f.plain, f.x.data(), MXQ_TYPE_INT64, 2));
    MXQ_REFUSED(run(f.quantized, f.plain), MXQ_STATUS_SHAPE_MISMATCH, "out has other groups than in");
    ok(testing::set_ends(f.plain, nullptr, 0, 0));
    auto none = testing::make_quantized({}, {std::nullopt, 40, 70}, false);
    MXQ_REFUSED(run(none, f.plain), MXQ_STATUS_MISSING_BUFFER, "in declares no part");
    CHECK(back.untouched());
    CHECK(run(f.quantized, f.plain) == MXQ_STATUS_OK);
    CHECK(!back.untouched());
}

MXQ_EACH_DEVICE("refusals: swizzle and unswizzle") {
    const testing::Dims dims{std::nullopt, 40, 70};
    auto compact = testing::make_quantized({}, dims, false), swizzled = testing::make_quantized({}, dims, true);
    Buffer from(device, 120), to(device, 512);
    ok(mxq_tensor_set_part(compact, MXQ_PART_ROWWISE, nullptr, 0, from.data(), from.bytes()));
    ok(mxq_tensor_set_part(swizzled, MXQ_PART_ROWWISE, nullptr, 0, to.data(), to.bytes()));
    auto swizzle = [&](mxq_tensor* in, mxq_tensor* out) { return mxq_swizzle_scales(device.context, nullptr, in, out, nullptr, 0, nullptr); };
    auto unswizzle = [&](mxq_tensor* in, mxq_tensor* out) { return mxq_unswizzle_scales(device.context, nullptr, in, out, nullptr, 0, nullptr); };

    MXQ_REFUSED(swizzle(swizzled, compact), MXQ_STATUS_INVALID_ARGUMENT, "compact to swizzled", "mxq_tensor_set_swizzled");
    MXQ_REFUSED(swizzle(compact, compact), MXQ_STATUS_INVALID_ARGUMENT, "compact to swizzled");
    MXQ_REFUSED(unswizzle(compact, swizzled), MXQ_STATUS_INVALID_ARGUMENT, "swizzled to compact");
    auto plain = testing::make_tensor(MXQ_FORMAT_F32, dims);
    MXQ_REFUSED(swizzle(plain, swizzled), MXQ_STATUS_UNSUPPORTED, "in is f32");
    MXQ_REFUSED(unswizzle(swizzled, plain), MXQ_STATUS_UNSUPPORTED, "out is f32");
    oracle::Spec e5m2{MXQ_FORMAT_MXFP8_E5M2}, tiles{MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_32X32};
    auto other_format = testing::make_quantized(e5m2, dims, true), other_scaling = testing::make_quantized(tiles, dims, true),
         other_shape = testing::make_quantized({}, {std::nullopt, 40, 71}, true), undeclared = testing::make_quantized({}, dims, true);
    MXQ_REFUSED(swizzle(compact, other_format), MXQ_STATUS_SHAPE_MISMATCH, "mxfp8_e5m2", "mxfp8_e4m3");
    MXQ_REFUSED(swizzle(compact, other_scaling), MXQ_STATUS_SHAPE_MISMATCH, "scaling");
    MXQ_REFUSED(swizzle(compact, other_shape), MXQ_STATUS_SHAPE_MISMATCH, "40 x 71");
    MXQ_REFUSED(swizzle(compact, undeclared), MXQ_STATUS_MISSING_BUFFER, "rowwise part", "only one");
    ok(mxq_tensor_set_part(swizzled, MXQ_PART_ROWWISE, nullptr, 0, to.data(), 511));
    MXQ_REFUSED(swizzle(compact, swizzled), MXQ_STATUS_BUFFER_TOO_SMALL, "out.rowwise.scales", "511", "512", "mxq_tensor_required_bytes");
    ok(mxq_tensor_set_part(swizzled, MXQ_PART_ROWWISE, nullptr, 0, from.data(), 512));
    MXQ_REFUSED(swizzle(compact, swizzled), MXQ_STATUS_INVALID_ARGUMENT, "overlaps");
    ok(mxq_tensor_set_part(swizzled, MXQ_PART_ROWWISE, nullptr, 0, to.data(), 512));
    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    ok(mxq_quantize_options_set_scale_rounding(options, MXQ_SCALE_ROUNDING_CEIL));
    for (auto verb : {mxq_swizzle_scales, mxq_unswizzle_scales})
        MXQ_REFUSED(verb(device.context, options, compact, swizzled, nullptr, 0, nullptr), MXQ_STATUS_INVALID_ARGUMENT, "scale rounding");

    // In a query, a tensor that declares no part takes the parts of the other tensor.
    auto columnwise = testing::make_quantized({}, dims, true), bare = testing::make_quantized({}, dims, false);
    ok(mxq_tensor_set_part(columnwise, MXQ_PART_COLUMNWISE, nullptr, 0, nullptr, 0));
    CHECK(mxq_swizzle_scales_query(device.context, nullptr, bare, columnwise, nullptr) == MXQ_STATUS_OK);
    CHECK(mxq_unswizzle_scales_query(device.context, nullptr, columnwise, bare, nullptr) == MXQ_STATUS_OK);
    CHECK(mxq_swizzle_scales_query(device.context, nullptr, bare, undeclared, nullptr) == MXQ_STATUS_OK);
    MXQ_REFUSED(mxq_swizzle_scales_query(device.context, nullptr, compact, columnwise, nullptr), MXQ_STATUS_MISSING_BUFFER, "only one");

    CHECK(to.untouched());
    CHECK(from.untouched());
    CHECK(swizzle(compact, swizzled) == MXQ_STATUS_OK);
    CHECK(!to.untouched());
}

// Queries need no memory, and return the name of an implementation that a call can then ask for.
MXQ_EACH_DEVICE("queries: sizes alone are enough, and the name can be asked for") {
    Fixture f(device);
    ok(mxq_tensor_set_data(f.plain, nullptr, 0));
    ok(mxq_tensor_clear_part(f.quantized, MXQ_PART_ROWWISE));
    ok(mxq_tensor_set_part(f.quantized, MXQ_PART_COLUMNWISE, nullptr, 0, nullptr, 0));
    testing::Plan quantize, dequantize;
    ok(mxq_quantize_query(device.context, nullptr, f.plain, f.quantized, quantize.out()));
    ok(mxq_dequantize_query(device.context, nullptr, f.quantized, f.plain, dequantize.out()));
    CHECK(std::string(mxq_plan_implementation(quantize)) != "");
    CHECK(std::string(mxq_plan_implementation(dequantize)) != "");
    ok(mxq_quantize_query(device.context, nullptr, f.plain, f.quantized, nullptr));

    ok(mxq_quantize_options_set_implementation(f.options, mxq_plan_implementation(quantize)));
    ok(mxq_tensor_set_data(f.plain, f.x.data(), f.x.bytes()));
    f.columnwise.set(f.quantized, MXQ_PART_COLUMNWISE);
    CHECK(f.quantize() == MXQ_STATUS_OK);
    ok(mxq_quantize_options_set_implementation(f.options, ""));
    CHECK(f.quantize() == MXQ_STATUS_OK);
}
