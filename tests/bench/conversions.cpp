// Quantize, dequantize and swizzle against a plain copy on the same device and threads.
#include "operands.h"
#include "verbs.h"

using namespace mxq_handles;

namespace {

std::vector<Shape> shapes(const Arguments& arguments) {
    if (arguments.rows > 0 && arguments.cols > 0) return {{arguments.rows, arguments.cols}};
    if (arguments.device == "cpu") return {{16384, 7168}, {4099, 7171}};
    return {{16384, 7168}, {131072, 7168}, {512, 7168}, {4099, 7171}};
}

std::string text(Shape shape) { return std::to_string(shape.rows) + "x" + std::to_string(shape.cols); }

void measure(Backend& backend, Report& report, Measurement m, double bytes, const std::function<void()>& call) {
    if (!report.wants(m.name)) return;
    const auto ms = backend.median_ms({[&] { backend.copy(); }, call});
    m.ms = ms[1];
    m.rate = bytes / ms[1] * 1e-6;
    m.unit = "GB/s";
    m.peer = backend.stream() ? "device copy" : "memcpy";
    m.peer_rate = backend.copy_bytes() / ms[0] * 1e-6;
    m.ratio = m.rate / m.peer_rate;
    report.add(m);
}

// Every verb with one input and one output has this shape, and so has its query.
using Verb = mxq_status (*)(mxq_context*, const mxq_quantize_options*, const mxq_tensor*, const mxq_tensor*, void*,
                            uint64_t, void*);
using Query = mxq_status (*)(mxq_context*, const mxq_quantize_options*, const mxq_tensor*, const mxq_tensor*,
                             mxq_plan**);

void measure_verb(Backend& backend, Report& report, Measurement m, double bytes, Verb verb, Query query,
                  const Operand& in, const Operand& out, const mxq_quantize_options* options = nullptr) {
    Plan plan = make<Plan>(query, backend.context(), options, in.get(), out.get());
    const uint64_t workspace_bytes = mxq_plan_workspace_bytes(plan.get());
    auto workspace = backend.allocate(workspace_bytes);
    m.implementation = mxq_plan_implementation(plan.get());
    measure(backend, report, m, bytes, [&] {
        check(
            verb(backend.context(), options, in.get(), out.get(), workspace.get(), workspace_bytes, backend.stream()));
    });
}

// Every format, as it comes and with its other scalings.
struct Format {
    const char* name;
    Quantization to;
    int reads = 1;  // of the input, all counted: 2 where an amax must be known first
};

const Format formats[] = {
    {"MXFP8 E4M3", {.format = MXQ_FORMAT_MXFP8_E4M3}},
    {"MXFP8 E5M2", {.format = MXQ_FORMAT_MXFP8_E5M2}},
    {"MXFP8 E4M3 32x32", {.format = MXQ_FORMAT_MXFP8_E4M3, .scaling = MXQ_SCALING_32X32}},
    {"MXFP8 E4M3 1x128", {.format = MXQ_FORMAT_MXFP8_E4M3, .scaling = MXQ_SCALING_1X128}},
    {"MXFP8 E4M3 128x128", {.format = MXQ_FORMAT_MXFP8_E4M3, .scaling = MXQ_SCALING_128X128}},
    {"MXFP6 E2M3", {.format = MXQ_FORMAT_MXFP6_E2M3}},
    {"MXFP6 E3M2", {.format = MXQ_FORMAT_MXFP6_E3M2}},
    {"MXFP4", {.format = MXQ_FORMAT_MXFP4}},
    {"NVFP4 1x16", {.format = MXQ_FORMAT_NVFP4}},
    {"NVFP4 16x16", {.format = MXQ_FORMAT_NVFP4, .scaling = MXQ_SCALING_16X16}},
    {"FP8 E4M3 tensor, delayed", {.format = MXQ_FORMAT_FP8_E4M3, .delayed = true}},
    {"FP8 E4M3 tensor, current", {.format = MXQ_FORMAT_FP8_E4M3}, 2},
    {"FP8 E4M3 row", {.format = MXQ_FORMAT_FP8_E4M3, .scaling = MXQ_SCALING_ROW}, 2},
    {"FP8 E4M3 1x128", {.format = MXQ_FORMAT_FP8_E4M3, .scaling = MXQ_SCALING_1X128}},
    {"FP8 E4M3 128x128", {.format = MXQ_FORMAT_FP8_E4M3, .scaling = MXQ_SCALING_128X128}},
};

struct Parts {
    const char* name;
    std::vector<int32_t> parts;
};
const Parts all_parts[] = {{"rowwise", {MXQ_PART_ROWWISE}},
                           {"columnwise", {MXQ_PART_COLUMNWISE}},
                           {"both", {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}}};

// NVFP4's and MXFP4's slow options.
void bench_options(Backend& backend, Report& report, const Operand& in, Shape shape) {
    const struct {
        const char* name;
        int32_t scaling;
        bool stochastic = false, hadamard = false;
        int32_t four_over_six = MXQ_FOUR_OVER_SIX_NONE;
    } choices[] = {
        {"stochastic", MXQ_SCALING_1X16, true},
        {"Hadamard", MXQ_SCALING_1X16, false, true},
        {"4/6 MAE", MXQ_SCALING_1X16, false, false, MXQ_FOUR_OVER_SIX_MAE},
        {"4/6 MSE", MXQ_SCALING_1X16, false, false, MXQ_FOUR_OVER_SIX_MSE},
        {"16x16 stochastic", MXQ_SCALING_16X16, true},
        {"16x16 4/6 MAE", MXQ_SCALING_16X16, false, false, MXQ_FOUR_OVER_SIX_MAE},
        {"16x16 4/6 MSE", MXQ_SCALING_16X16, false, false, MXQ_FOUR_OVER_SIX_MSE},
    };
    const uint64_t seed_offset[] = {1234, 5678};
    auto numbers = backend.allocate(sizeof seed_offset);
    backend.upload(numbers.get(), seed_offset, sizeof seed_offset);
    for (const Parts& parts : all_parts)
        for (const auto& choice : choices) {
            auto options = make<QuantizeOptions>(mxq_quantize_options_create);
            if (choice.stochastic)
                check(mxq_quantize_options_set_stochastic_rounding(options.get(), static_cast<uint64_t*>(numbers.get())));
            if (choice.hadamard)
                check(mxq_quantize_options_set_hadamard(options.get(), MXQ_PART_ROWWISE | MXQ_PART_COLUMNWISE, 0xD7E8));
            if (choice.four_over_six) check(mxq_quantize_options_set_four_over_six(options.get(), choice.four_over_six));
            const Operand out = empty_quantized(
                backend, {.format = MXQ_FORMAT_NVFP4, .parts = parts.parts, .scaling = choice.scaling}, shape);
            measure_verb(backend, report, {"quantize", std::string("NVFP4 ") + choice.name + " " + parts.name, text(shape)},
                         in.bytes + out.bytes, mxq_quantize, mxq_quantize_query, in, out, options.get());
        }
}

void bench_requantize(Backend& backend, Report& report, Shape shape) {
    const struct {
        const char* name;
        Quantization from, to;
    } cases[] = {
        {"MXFP8 1x32 to columnwise", {}, {.parts = {MXQ_PART_COLUMNWISE}}},
        {"MXFP8 columnwise to rowwise", {.parts = {MXQ_PART_COLUMNWISE}}, {}},
        {"MXFP8 1x32 to 128x128", {}, {.scaling = MXQ_SCALING_128X128}},
        {"MXFP8 to MXFP4", {}, {.format = MXQ_FORMAT_MXFP4}},
        {"NVFP4 to MXFP8 columnwise", {.format = MXQ_FORMAT_NVFP4}, {.parts = {MXQ_PART_COLUMNWISE}}},
    };
    for (const auto& c : cases) {
        const Operand in = random_quantized(backend, c.from, shape);
        const Operand out = empty_quantized(backend, c.to, shape);
        measure_verb(backend, report, {"requantize", c.name, text(shape)}, in.bytes + out.bytes, mxq_requantize,
                     mxq_requantize_query, in, out);
    }
}

}  // namespace

void bench_quantize(Backend& backend, const Arguments& arguments, Report& report) {
    constexpr int32_t row = MXQ_PART_ROWWISE, column = MXQ_PART_COLUMNWISE;
    constexpr int32_t e4m3 = MXQ_FORMAT_MXFP8_E4M3, e5m2 = MXQ_FORMAT_MXFP8_E5M2;
    constexpr int32_t line = MXQ_SCALING_1X32, tile = MXQ_SCALING_32X32;
    const struct {
        const char* name;
        int32_t from;
        Quantization to;
    } cases[] = {
        {"BF16 to E4M3 rowwise", MXQ_FORMAT_BF16, {e4m3, {row}, line, false}},
        {"BF16 to E4M3 rowwise, swizzled", MXQ_FORMAT_BF16, {e4m3, {row}, line, true}},
        {"BF16 to E4M3 columnwise", MXQ_FORMAT_BF16, {e4m3, {column}, line, false}},
        {"BF16 to E4M3 columnwise, swizzled", MXQ_FORMAT_BF16, {e4m3, {column}, line, true}},
        {"BF16 to E4M3 both", MXQ_FORMAT_BF16, {e4m3, {row, column}, line, false}},
        {"BF16 to E4M3 both, swizzled", MXQ_FORMAT_BF16, {e4m3, {row, column}, line, true}},
        {"BF16 to E4M3 rowwise, 32x32", MXQ_FORMAT_BF16, {e4m3, {row}, tile, false}},
        {"BF16 to E4M3 both, 32x32", MXQ_FORMAT_BF16, {e4m3, {row, column}, tile, false}},
        {"BF16 to E5M2 rowwise", MXQ_FORMAT_BF16, {e5m2, {row}, line, false}},
        {"F16 to E4M3 rowwise", MXQ_FORMAT_F16, {e4m3, {row}, line, false}},
        {"F32 to E4M3 rowwise", MXQ_FORMAT_F32, {e4m3, {row}, line, false}},
    };
    for (Shape shape : shapes(arguments)) {
        Operand in;
        int32_t format = 0;
        for (const auto& c : cases) {
            if (c.from != format) in = Operand(), in = random_plain(backend, format = c.from, shape);
            const Operand out = empty_quantized(backend, c.to, shape);
            measure_verb(backend, report, {"quantize", c.name, text(shape)}, in.bytes + out.bytes, mxq_quantize,
                         mxq_quantize_query, in, out);
        }
    }
}

void bench_dequantize(Backend& backend, const Arguments& arguments, Report& report) {
    const struct {
        const char* name;
        int32_t part, to;
    } cases[] = {
        {"E4M3 rowwise to BF16", MXQ_PART_ROWWISE, MXQ_FORMAT_BF16},
        {"E4M3 rowwise to F32", MXQ_PART_ROWWISE, MXQ_FORMAT_F32},
        {"E4M3 columnwise to BF16", MXQ_PART_COLUMNWISE, MXQ_FORMAT_BF16},
    };
    for (Shape shape : shapes(arguments)) {
        for (const auto& c : cases) {
            const Operand in = random_quantized(backend, {.parts = {c.part}}, shape);
            const Operand out = empty_plain(backend, c.to, shape);
            measure_verb(backend, report, {"dequantize", c.name, text(shape)}, in.bytes + out.bytes, mxq_dequantize,
                         mxq_dequantize_query, in, out);
        }
    }
}

void bench_swizzle(Backend& backend, const Arguments& arguments, Report& report) {
    for (Shape shape : shapes(arguments)) {
        const Operand compact = random_quantized(backend, {}, shape);
        const Operand swizzled = random_quantized(backend, {.swizzled = true}, shape);
        const double codes = double(shape.rows) * double(shape.cols);  // neither read nor written
        const double bytes = compact.bytes + swizzled.bytes - 2 * codes;
        measure_verb(backend, report, {"swizzle", "scales rowwise", text(shape)}, bytes, mxq_swizzle_scales,
                     mxq_swizzle_scales_query, compact, swizzled);
        measure_verb(backend, report, {"unswizzle", "scales rowwise", text(shape)}, bytes, mxq_unswizzle_scales,
                     mxq_unswizzle_scales_query, swizzled, compact);
    }
}

// Every format through quantize, dequantize, requantize and amax.
void bench_formats(Backend& backend, const Arguments& arguments, Report& report) {
    const Shape shape = shapes(arguments)[0];
    const Operand in = random_plain(backend, MXQ_FORMAT_BF16, shape), back = empty_plain(backend, MXQ_FORMAT_BF16, shape);
    for (const Format& format : formats)
        for (const Parts& parts : all_parts) {
            Quantization to = format.to;
            to.parts = parts.parts;
            const std::string name = std::string(format.name) + " " + parts.name;
            const Operand out = empty_quantized(backend, to, shape);
            measure_verb(backend, report, {"quantize", name, text(shape)}, format.reads * in.bytes + out.bytes,
                         mxq_quantize, mxq_quantize_query, in, out);
            if (parts.parts.size() > 1) continue;
            const Operand from = random_quantized(backend, to, shape);
            measure_verb(backend, report, {"dequantize", name, text(shape)}, from.bytes + back.bytes, mxq_dequantize,
                         mxq_dequantize_query, from, back);
        }
    bench_options(backend, report, in, shape);
    bench_requantize(backend, report, shape);
    const Operand amax = empty_quantized(backend, {.format = MXQ_FORMAT_NVFP4}, shape);
    measure_verb(backend, report, {"amax", "BF16", text(shape)}, in.bytes, mxq_amax, mxq_amax_query, in, amax);
}

// Eight ragged groups: padded by a verb of its own, and in the same pass as quantize.
void bench_groups(Backend& backend, const Arguments& arguments, Report& report) {
    for (Shape shape : shapes(arguments)) {
        const auto ends = ragged_ends(shape.rows, 8);
        auto device_ends = backend.allocate(ends.size() * sizeof ends[0]);
        backend.upload(device_ends.get(), ends.data(), ends.size() * sizeof ends[0]);
        const Operand in = random_plain(backend, MXQ_FORMAT_BF16, shape);
        set_groups(in, ends, device_ends);
        const Operand padded = empty_grouped(backend, MXQ_FORMAT_BF16, shape, ends, device_ends, 128);
        measure_verb(backend, report, {"pad_groups", "BF16, 8 groups to 128", text(shape)}, 2 * in.bytes, mxq_pad_groups,
                     mxq_pad_groups_query, in, padded);
        measure_verb(backend, report, {"unpad", "BF16, 8 groups from 128", text(shape)}, 2 * in.bytes, mxq_unpad_groups,
                     mxq_unpad_groups_query, padded, in);
        for (const Parts& parts : all_parts)
            for (bool swizzled : {false, true}) {
                const Operand out =
                    random_grouped(backend, {.parts = parts.parts, .swizzled = swizzled}, shape, ends, device_ends);
                const std::string name = std::string("BF16 to E4M3, 8 groups, ") + parts.name + (swizzled ? ", swizzled" : "");
                measure_verb(backend, report, {"quantize", name, text(shape)}, in.bytes + out.bytes, mxq_quantize,
                             mxq_quantize_query, in, out);
            }
    }
}
