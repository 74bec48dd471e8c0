#include "product.h"

using namespace mxq_handles;

std::string text(const Size& size) {
    std::string out = std::to_string(size.m) + "," + std::to_string(size.n) + "," + std::to_string(size.k);
    return size.groups ? out + "," + std::to_string(size.groups) : out;
}

namespace {

Operand random_operand(Backend& backend, const Quantization& quantization, Shape shape) {
    return quantization.format == MXQ_FORMAT_BF16 ? random_plain(backend, MXQ_FORMAT_BF16, shape)
                                                  : random_quantized(backend, quantization, shape);
}

}  // namespace

Operands forward_operands(Backend& backend, const Quantization& x, const Quantization& w, const Size& size) {
    if (size.groups == 0)
        return {random_operand(backend, x, {size.m, size.k}), random_operand(backend, w, {size.n, size.k}),
                empty_plain(backend, MXQ_FORMAT_BF16, {size.m, size.n})};
    const auto ends = ragged_ends(size.m, size.groups);
    auto device_ends = backend.allocate(ends.size() * sizeof ends[0]);
    backend.upload(device_ends.get(), ends.data(), ends.size() * sizeof ends[0]);
    return {random_grouped(backend, x, {size.m, size.k}, ends, device_ends),
            random_operand(backend, w, {size.n, size.k, size.groups}),
            empty_grouped(backend, MXQ_FORMAT_BF16, {size.m, size.n}, ends, device_ends, x.group_alignment)};
}

Product::Product(Backend& backend, const Operands& operands, bool grouped, const ProductOptions& options)
    : backend_(backend), operands_(operands), grouped_(grouped), options_(make<GemmOptions>(mxq_gemm_options_create)) {
    check(mxq_gemm_options_set_transpose(options_.get(), options.transpose_a, options.transpose_b));
    check(mxq_gemm_options_set_implementation(options_.get(), options.implementation));
    plan_ = make<Plan>(grouped ? mxq_grouped_gemm_query : mxq_gemm_query, backend.context(), options_.get(), operands.a.get(),
                       operands.b.get(), operands.d.get());
    workspace_ = backend.allocate(mxq_plan_workspace_bytes(plan_.get()));
}

void Product::enqueue() const {
    const auto verb = grouped_ ? mxq_grouped_gemm : mxq_gemm;
    check(verb(backend_.context(), options_.get(), operands_.a.get(), operands_.b.get(), operands_.d.get(), workspace_.get(),
               mxq_plan_workspace_bytes(plan_.get()), backend_.stream()));
}

void measure_product(Backend& backend, Report& report, const std::string& name, const Size& size, const Product& product,
                     const Peer& peer) {
    std::vector<std::function<void()>> calls = {[&] { product.enqueue(); }};
    if (peer.enqueue) calls.push_back(peer.enqueue);
    const auto ms = backend.median_ms(calls);
    const bool on_cpu = backend.stream() == nullptr;
    const double operations = 2.0 * double(size.m) * double(size.n) * double(size.k), scale = on_cpu ? 1e-6 : 1e-9;
    Measurement m{product.grouped() ? "grouped" : "gemm", name, text(size), product.implementation(), ms[0]};
    m.rate = operations / ms[0] * scale;
    m.unit = on_cpu ? "GFLOP/s" : "TFLOP/s";
    if (peer.enqueue) {
        m.peer = peer.name;
        m.peer_rate = operations / ms[1] * scale;
        m.ratio = m.rate / m.peer_rate;
    }
    report.add(m);
}

bool needs_cuda(Backend& backend, Report& report, const char* verb) {
    if (backend.stream()) return false;
    report.note(std::string(verb) + ": left out, needs --device cuda");
    return true;
}

void with_reason(Report& report, const std::string& name, const Size& size, const std::function<void()>& row) {
    const auto note = [&](const std::exception& why) {
        report.note(name + ", " + text(size) + ": left out, " + why.what());
    };
    try {
        row();
    } catch (const LeftOut& reason) {
        note(reason);
    } catch (const Error& error) {
        if (error.status != MXQ_STATUS_UNSUPPORTED) throw;
        note(error);
    }
}

std::vector<Size> expert_sizes(const Arguments& arguments) {
    std::vector<Size> sizes = {{32768, 2048, 7168}, {32768, 8192, 5120}};
    if (arguments.m > 0) sizes = {{arguments.m, arguments.n, arguments.k}};
    std::vector<Size> out;
    for (Size size : sizes)
        for (int groups : {0, 8}) out.push_back({size.m, size.n, size.k, groups});
    return out;
}
