// mxq_bench_rebase: the pass of cublaslt_rebase and cublaslt_grouped_rebase over one operand, against a device copy. It is
// no verb of its own, so this program links the insides.
//
//     mxq_bench_rebase [--shape RxC] [--case TEXT] [--json FILE]
//
//     A (N,T)            1x128      rowwise part of (R, C), or R rows in 8 groups
//     B (N,T)            128x128    rowwise part of (R, C)
//     A (T,N)            1x128      columnwise part of (R, C), or R rows in 8 groups, which the contraction runs along
//     B (N,N)            128x128    columnwise part of (R, C)
//
// The other operand of the product, 128 lines of MXFP8, is there to ask with and takes no pass here.
#include <cstdio>

#include "core/validate.h"
#include "cuda/cublaslt/cublaslt_rebase.h"
#include "report.h"

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

const char* const formats[] = {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp4"};

struct Arguments {
    Shape shape = {32768, 7168};
    std::string only, json;
};

Functions linked_functions() {
    Functions functions;
#define MXQ_BENCH_LINKED(name) functions.name = mxq_##name;
    MXQ_BENCH_FUNCTIONS(MXQ_BENCH_LINKED)
#undef MXQ_BENCH_LINKED
    return functions;
}

// The operand, and the product that asks for its pass: the other operand and D are sizes alone.
struct Product {
    std::shared_ptr<Groups> groups;
    Operand operand;
    Handle<mxq_tensor> tensor, other, d;
    Handle<mxq_gemm_options> options;
    std::shared_ptr<void> codes, scales;  // that the pass writes
};

Handle<mxq_tensor> sizes_alone(const Library& library, int32_t format, int64_t rows, int64_t cols, int64_t experts) {
    return experts ? library.make(library->tensor_destroy, library->tensor_create_3d, format, experts, rows, cols)
                   : library.make(library->tensor_destroy, library->tensor_create_2d, format, rows, cols);
}

void describe_other(const Library& library, Product& p, const Side& side, Shape shape) {
    const int64_t contracted = side.part() == row ? shape.cols : shape.rows, lines = shape.rows + shape.cols - contracted;
    const int64_t count = int64_t(p.groups->ends.size());
    const bool along_k = side.grouped && side.transposes_a;
    const int64_t rows = side.transposes_a ? contracted : kOther, cols = side.transposes_a ? kOther : contracted;
    p.other = sizes_alone(library, MXQ_FORMAT_MXFP8_E4M3, rows, cols, side.grouped && !along_k ? count : 0);
    if (along_k)
        library.check(
            library->tensor_set_groups(p.other.get(), p.groups->device_ends.get(), uint64_t(count) * sizeof p.groups->ends[0],
                                       MXQ_TYPE_INT32, int32_t(count)));
    const int64_t m = side.is_a ? lines : kOther, n = side.is_a ? kOther : lines;
    p.d = sizes_alone(library, MXQ_FORMAT_BF16, m, n, along_k ? count : 0);
}

std::unique_ptr<Product> product_of(Device& device, const Library& library, const Side& side, Description description) {
    const auto groups = std::make_shared<Groups>(ragged_groups(device, description.shape.rows, 8));
    description.parts = side.part();
    if (side.grouped) description.groups = groups.get();
    Operand operand = random_operand(device, library, description);
    auto tensor = operand.tensor(library);
    auto p = std::make_unique<Product>(Product{groups,
                                               std::move(operand),
                                               std::move(tensor),
                                               {nullptr, library->tensor_destroy},
                                               {nullptr, library->tensor_destroy},
                                               library.make(library->gemm_options_destroy, library->gemm_options_create),
                                               nullptr,
                                               nullptr});
    describe_other(library, *p, side, description.shape);
    library.check(library->gemm_options_set_transpose(p->options.get(),
                                                      side.transposes_a ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N,
                                                      side.transposes_b ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N));
    return p;
}

// The pass as the product would make it, and memory for what it writes.
mxq::cuda::RebaseCall pass_of(Device& device, const Library& library, const Side& side, Product& p) {
    const auto validate = side.grouped ? mxq::validate_grouped_gemm : mxq::validate_gemm;
    const mxq_tensor *a = side.is_a ? p.tensor.get() : p.other.get(), *b = side.is_a ? p.other.get() : p.tensor.get();
    const mxq::GemmProblem problem =
        validate(*library.context(), p.options.get(), a, b, p.d.get(), mxq::Check::Query);
    const mxq::cuda::RebasedProduct steps = mxq::cuda::rebased_product(problem, mxq::cuda::lt::kRebaseTarget);
    mxq::cuda::RebaseCall call = side.is_a ? steps.a : steps.b;
    p.codes = device.allocate(mxq::cuda::rebased_code_bytes(call.to));
    p.scales = device.allocate(mxq::cuda::rebased_scale_bytes(call.to));
    call.to.codes = static_cast<uint8_t*>(p.codes.get());
    call.to.scales = static_cast<uint8_t*>(p.scales.get());
    return call;
}

// Read and written, without any padding.
Work work_of(const mxq::cuda::RebaseCall& call, Shape shape) {
    const double codes = double(shape.rows) * double(shape.cols);
    return {.bytes_read = codes * (call.from.bits / 8.0 + 1.0 / 32),
            .bytes_written = codes * (1 + 4.0 / (128.0 * call.to.tile_lines))};
}

Row measure_pass(Device& device, const Library& library, const Side& side, const Description& description, Row result) {
    const auto product = product_of(device, library, side, description);
    const mxq::cuda::RebaseCall call = pass_of(device, library, side, *product);
    result.work = work_of(call, description.shape);
    const Mix mix = nearest_mix(result.work.bytes_read, result.work.bytes_written, 1);
    const auto us = device.times_us({[&] { device.copy(); }, [&] { device.stream_pass(mix); },
                                     [&] { mxq::cuda::rebase(*library.context(), call, device.stream()); }});
    result.copy_rate = copy_rate(device, us[0]);
    result.stream_rate = stream_rate(device, mix, us[1]);
    result.mix = text(mix);
    result.figures = {{.libmxq = library.name(), .implementation = "rebase", .us = us[2]}};
    return result;
}

void measure_all(Device& device, const Library& library, const Arguments& arguments, Report& report) {
    const std::string shape = std::to_string(arguments.shape.rows) + "x" + std::to_string(arguments.shape.cols);
    for (const char* format : formats)
        for (bool swizzled : {false, true})
            for (const Side& side : sides) {
                Row row;
                row.c.verb = "pass";
                row.c.name = std::string(format) + " " + side.name + (swizzled ? ", swizzled" : ", compact");
                row.c.shape_text = shape;
                row.c.command = "--shape " + shape + " --case '" + row.c.name + "'";
                if (row.c.name.find(arguments.only) == std::string::npos) continue;
                Description description = describe(parse_quantization(format), arguments.shape);
                description.swizzled = swizzled;
                report.add(measure_pass(device, library, side, description, row));
            }
}

Arguments parse(int argc, char** argv) {
    Arguments arguments;
    for (int i = 1; i < argc; i += 2) {
        const std::string option = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
        long long rows = 0, cols = 0;
        if (option == "--case" && !value.empty())
            arguments.only = value;
        else if (option == "--json" && !value.empty())
            arguments.json = value;
        else if (option == "--shape" && std::sscanf(value.c_str(), "%lldx%lld", &rows, &cols) == 2)
            arguments.shape = {rows, cols};
        else
            throw std::runtime_error("takes --shape RxC, --case TEXT and --json FILE, got " + option + " " + value);
    }
    return arguments;
}

int run(int argc, char** argv) {
    const Arguments arguments = parse(argc, argv);
    std::string command = "mxq_bench_rebase";
    for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
    const auto device = cuda_device(0, 0);
    std::vector<Library> libraries;
    libraries.emplace_back("linked", linked_functions(), MXQ_DEVICE_CUDA, 0);
    Report report("mxq_bench_rebase", command, device->machine(), measure_rates(*device), libraries);
    measure_all(*device, libraries[0], arguments, report);
    if (!arguments.json.empty()) report.write_json(arguments.json);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mxq_bench_rebase: %s\n", error.what());
        return 2;
    }
}
