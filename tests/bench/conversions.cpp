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
                  const Operand& in, const Operand& out) {
    Plan plan = make<Plan>(query, backend.context(), nullptr, in.get(), out.get());
    const uint64_t workspace_bytes = mxq_plan_workspace_bytes(plan.get());
    auto workspace = backend.allocate(workspace_bytes);
    m.implementation = mxq_plan_implementation(plan.get());
    measure(backend, report, m, bytes, [&] {
        check(
            verb(backend.context(), nullptr, in.get(), out.get(), workspace.get(), workspace_bytes, backend.stream()));
    });
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
