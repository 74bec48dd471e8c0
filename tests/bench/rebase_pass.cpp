// mxq_bench_rebase: the pass of cublaslt_rebase and cublaslt_grouped_rebase over one operand, against a device copy. It is no
// verb of its own, so this program links the insides.
//
//     A (N,T)            1x128      rowwise part of (R, C), or R rows in 8 groups
//     B (N,T)            128x128    rowwise part of (R, C)
//     A (T,N)            1x128      columnwise part of (R, C), or R rows in 8 groups, which the contraction runs along
//     B (N,N)            128x128    columnwise part of (R, C)
//
// The other operand of the product, 128 lines of MXFP8, is there to ask with and takes no pass here.
#include "core/validate.h"
#include "cuda/cublaslt/cublaslt_rebase.h"
#include "operands.h"
#include "verbs.h"

using namespace mxq_handles;

const char* program_name() { return "mxq_bench_rebase"; }

namespace {

constexpr int32_t row = MXQ_PART_ROWWISE, column = MXQ_PART_COLUMNWISE;
constexpr int64_t kOther = 128;

struct Side {
    const char* name;
    bool is_a, transposes_a, transposes_b, grouped;
    int32_t part() const { return is_a ? (transposes_a ? column : row) : (transposes_b ? row : column); }
};

const Side sides[] = {
    {"1x128 rowwise", true, false, true, false},       {"1x128 columnwise", true, true, false, false},
    {"128x128 rowwise", false, false, true, false},    {"128x128 columnwise", false, false, false, false},
    {"1x128 groups of rows", true, false, true, true}, {"1x128 groups along k", true, true, false, true},
};

const struct {
    const char* name;
    int32_t format;
} formats[] = {{"E4M3", MXQ_FORMAT_MXFP8_E4M3},
               {"E5M2", MXQ_FORMAT_MXFP8_E5M2},
               {"E2M3", MXQ_FORMAT_MXFP6_E2M3},
               {"MXFP4", MXQ_FORMAT_MXFP4}};

struct Product {
    Operand operand, other;
    Tensor d;
    GemmOptions options;
};

// The other operand and D: sizes alone.
void describe_other(Product& p, const Side& side, Shape shape, const std::vector<int32_t>& ends,
                    const std::shared_ptr<void>& device_ends) {
    const int64_t contracted = side.part() == row ? shape.cols : shape.rows, lines = shape.rows + shape.cols - contracted;
    const bool by_rows = side.grouped && !side.transposes_a, by_codes = side.grouped && side.transposes_a;
    const int64_t rows = side.transposes_a ? contracted : kOther, cols = side.transposes_a ? kOther : contracted;
    const int64_t groups = int64_t(ends.size());
    p.other.tensor = by_rows ? tensor(MXQ_FORMAT_MXFP8_E4M3, groups, rows, cols) : tensor(MXQ_FORMAT_MXFP8_E4M3, rows, cols);
    if (by_codes) set_groups(p.other, ends, device_ends);
    const int64_t m = side.is_a ? lines : kOther, n = side.is_a ? kOther : lines;
    p.d = by_codes ? tensor(MXQ_FORMAT_BF16, groups, m, n) : tensor(MXQ_FORMAT_BF16, m, n);
}

Product product_of(Backend& backend, const Side& side, int32_t format, bool swizzled, Shape shape) {
    const Quantization quantization = {.format = format, .parts = {side.part()}, .swizzled = swizzled};
    const auto ends = ragged_ends(shape.rows, 8);
    auto device_ends = backend.allocate(ends.size() * sizeof ends[0]);
    backend.upload(device_ends.get(), ends.data(), ends.size() * sizeof ends[0]);
    Product p;
    p.operand = side.grouped ? random_grouped(backend, quantization, shape, ends, device_ends)
                             : random_quantized(backend, quantization, shape);
    describe_other(p, side, shape, ends, device_ends);
    p.options = make<GemmOptions>(mxq_gemm_options_create);
    check(mxq_gemm_options_set_transpose(p.options.get(), side.transposes_a ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                                         side.transposes_b ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N));
    return p;
}

// The pass as the product would make it, and memory for what it writes.
mxq::cuda::RebaseCall pass_of(Backend& backend, const Side& side, Product& p) {
    const auto validate = side.grouped ? mxq::validate_grouped_gemm : mxq::validate_gemm;
    const Operand &a = side.is_a ? p.operand : p.other, &b = side.is_a ? p.other : p.operand;
    const mxq::GemmProblem problem = validate(p.options.get(), a.get(), b.get(), p.d.get(), mxq::Check::Query);
    const mxq::cuda::RebasedProduct steps = mxq::cuda::rebased_product(problem, mxq::cuda::lt::kRebaseTarget);
    mxq::cuda::RebaseCall call = side.is_a ? steps.a : steps.b;
    p.operand.memory.push_back(backend.allocate(mxq::cuda::rebased_code_bytes(call.to)));
    call.to.codes = static_cast<uint8_t*>(p.operand.memory.back().get());
    p.operand.memory.push_back(backend.allocate(mxq::cuda::rebased_scale_bytes(call.to)));
    call.to.scales = static_cast<uint8_t*>(p.operand.memory.back().get());
    return call;
}

// Read and written, without any padding.
double bytes_of(const mxq::cuda::RebaseCall& call, Shape shape) {
    const double codes = double(shape.rows) * double(shape.cols);
    return codes * (call.from.bits / 8.0 + 1.0 / 32 + 1 + 4.0 / (128.0 * call.to.tile_lines));
}

void measure_pass(Backend& backend, Report& report, const std::string& name, const Side& side, int32_t format, bool swizzled,
                  Shape shape) {
    Product p = product_of(backend, side, format, swizzled, shape);
    const mxq::cuda::RebaseCall call = pass_of(backend, side, p);
    const auto ms = backend.median_ms({[&] { backend.copy(); },
                                       [&] { mxq::cuda::rebase(*backend.context(), call, backend.stream()); }});
    Measurement m{"pass", name, std::to_string(shape.rows) + "x" + std::to_string(shape.cols), "rebase", ms[1]};
    m.rate = bytes_of(call, shape) / ms[1] * 1e-6;
    m.unit = "GB/s";
    m.peer = "device copy";
    m.peer_rate = backend.copy_bytes() / ms[0] * 1e-6;
    m.ratio = m.rate / m.peer_rate;
    report.add(m);
}

void bench_pass(Backend& backend, const Arguments& arguments, Report& report) {
    if (!backend.stream()) return report.note("pass: left out, needs --device cuda");
    const Shape shape = arguments.rows > 0 ? Shape{arguments.rows, arguments.cols} : Shape{32768, 7168};
    for (const auto& format : formats)
        for (bool swizzled : {false, true})
            for (const Side& side : sides) {
                const std::string name = std::string(format.name) + " " + side.name + (swizzled ? ", swizzled" : "");
                if (report.wants(name)) measure_pass(backend, report, name, side, format.format, swizzled, shape);
            }
}

}  // namespace

std::span<const Verb> verbs() {
    static const Verb list[] = {{"pass", bench_pass}};
    return list;
}
