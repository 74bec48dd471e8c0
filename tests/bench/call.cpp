#include "call.h"

#include "layer.h"

namespace {

struct Descriptions {
    Description first, second;
    std::optional<Description> d;
};

void add_groups(Description& description, const Case& c, const Groups* groups) {
    description.groups = groups;
    if (!groups) return;
    description.rowwise_alignment = c.rowwise_alignment;
    description.columnwise_alignment = description.plain() ? 0 : c.columnwise_alignment;
}

Description quantized(const Case& c, const Quantization& quantization, const Shape& shape, int32_t parts) {
    Description description = describe(quantization, shape);
    if (description.plain()) return description;
    description.parts = parts;
    description.swizzled = c.swizzled;
    description.per_expert = c.per_expert;
    return description;
}

Descriptions describe_conversion(const Case& c, const Groups* groups) {
    const bool pads = c.verb == "pad_groups" || c.verb == "unpad_groups";
    const bool swizzles = c.verb == "swizzle_scales" || c.verb == "unswizzle_scales";
    const Quantization& to = pads || swizzles ? c.from : c.to;
    Description in = quantized(c, c.from, c.shape, c.from_parts), out = quantized(c, to, c.shape, c.parts);
    if (!in.plain() || pads) add_groups(in, c, groups);
    if (!out.plain() || pads) add_groups(out, c, groups);
    if (pads) {
        Description& unpadded = c.verb == "pad_groups" ? in : out;
        unpadded.rowwise_alignment = 1, unpadded.columnwise_alignment = 0;
    }
    if (swizzles) {
        (c.verb == "swizzle_scales" ? out : in).swizzled = true;
        out.with_codes = false;
    }
    out.padded_groups = c.padded_groups;
    out.delayed = c.has_option("delayed");
    out.hadamard = c.has_option("hadamard");
    out.with_amax = c.verb == "amax";
    return {in, out, {}};
}

// The part whose contraction is the product's.
int32_t part_of(bool along_rows) { return along_rows ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE; }

// As stored: (m, k) or (k, m) for A, (k, n) or (n, k) for B. Grouped sizes are as for the forward pass: m tokens, k wide, to
// n; the weight gradient contracts the tokens.
Descriptions describe_product(const Case& c, const Groups* groups) {
    const bool a_t = c.transpose_a == MXQ_TRANSPOSE_T, b_t = c.transpose_b == MXQ_TRANSPOSE_T;
    const auto [m, n, k] = c.size;
    const int64_t experts = c.groups;
    Shape a = a_t && !groups ? Shape{k, m} : Shape{m, k}, b = b_t ? Shape{n, k, experts} : Shape{k, n, experts}, d = {m, n};
    if (groups && a_t) b = {m, n}, d = {k, n, experts};
    Descriptions out = {quantized(c, c.from, a, part_of(a_t)), quantized(c, c.to, b, part_of(!b_t)), describe(c.d, d)};
    add_groups(out.first, c, groups);
    if (a_t)
        add_groups(out.second, c, groups);
    else if (c.rowwise_alignment > 1)
        add_groups(*out.d, c, groups);
    return out;
}

Descriptions describe_case(const Case& c, const Groups* groups) {
    return c.product() ? describe_product(c, groups) : describe_conversion(c, groups);
}

using Verb = decltype(&mxq_quantize);
using Query = decltype(&mxq_quantize_query);

std::pair<Verb, Query> conversion(const Library& library, const std::string& name) {
    if (name == "quantize") return {library->quantize, library->quantize_query};
    if (name == "requantize") return {library->requantize, library->requantize_query};
    if (name == "dequantize") return {library->dequantize, library->dequantize_query};
    if (name == "amax") return {library->amax, library->amax_query};
    if (name == "pad_groups") return {library->pad_groups, library->pad_groups_query};
    if (name == "unpad_groups") return {library->unpad_groups, library->unpad_groups_query};
    if (name == "swizzle_scales") return {library->swizzle_scales, library->swizzle_scales_query};
    return {library->unswizzle_scales, library->unswizzle_scales_query};
}

bool makes_nvfp4(const Case& c) {
    return (c.verb == "quantize" || c.verb == "requantize") && c.to.format->id == MXQ_FORMAT_NVFP4;
}

Handle<mxq_quantize_options> quantize_options(const Library& library, const Case& c, const Operands& operands) {
    auto options = library.make(library->quantize_options_destroy, library->quantize_options_create);
    const auto set = [&](auto function, auto... values) { library.check(function(options.get(), values...)); };
    if (c.has_option("stochastic"))
        library.check(library->quantize_options_set_stochastic_rounding(
            options.get(), static_cast<uint64_t*>(operands.seed_offset.get()), 2 * sizeof(uint64_t)));
    if (c.has_option("four_over_six_mae")) set(library->quantize_options_set_four_over_six, MXQ_FOUR_OVER_SIX_MAE);
    if (c.has_option("four_over_six_mse")) set(library->quantize_options_set_four_over_six, MXQ_FOUR_OVER_SIX_MSE);
    if (c.rounding != MXQ_SCALE_ROUNDING_RCEIL) set(library->quantize_options_set_scale_rounding, c.rounding);
    if (makes_nvfp4(c)) set(library->quantize_options_set_compute_amax, c.has_option("compute_amax"));
    if (!c.implementation.empty()) set(library->quantize_options_set_implementation, c.implementation.c_str());
    return options;
}

Handle<mxq_gemm_options> gemm_options(const Library& library, const Case& c, const Operands& operands) {
    auto options = library.make(library->gemm_options_destroy, library->gemm_options_create);
    library.check(library->gemm_options_set_transpose(options.get(), c.transpose_a, c.transpose_b));
    if (c.exact) library.check(library->gemm_options_set_exact_products(options.get(), 1));
    if (c.add) library.check(library->gemm_options_set_beta(options.get(), 1));
    if (operands.bias)
        library.check(library->gemm_options_set_bias(options.get(), c.d.format->id, operands.bias->data(),
                                                     operands.bias->data_bytes()));
    if (!c.implementation.empty())
        library.check(library->gemm_options_set_implementation(options.get(), c.implementation.c_str()));
    return options;
}

// A verb and its query as functions of what changes between them: ask(plan), run(workspace, its bytes).
template <class Ask, class Run>
Prepared prepare_with(Device& device, const Library& library, const Ask& ask, const Run& run) {
    const auto plan = library.make(library->plan_destroy, ask);
    const uint64_t bytes = library->plan_workspace_bytes(plan.get());
    const auto workspace = device.allocate(bytes);
    const Call call = [&library, run, workspace, bytes] { library.check(run(workspace.get(), bytes)); };
    const Call query_and_call = [&library, ask, call] {
        library.make(library->plan_destroy, ask);
        call();
    };
    return {library->plan_implementation(plan.get()), library->plan_reason(plan.get()), call, query_and_call};
}

// Reads of the input, all counted: 2 where a maximum over more than a tile comes before the codes.
int reads_of(const Case& c) {
    if (c.verb != "quantize" && c.verb != "requantize") return 1;
    if (c.has_option("compute_amax")) return 2;
    if (c.to.scaling == MXQ_SCALING_ROW) return 2;
    return c.to.scaling == MXQ_SCALING_TENSOR && !c.has_option("delayed") ? 2 : 1;
}

}  // namespace

Operands Operands::make(Device& device, const Library& library, const Case& c) {
    std::shared_ptr<Groups> groups;
    const int64_t rows = c.product() ? c.size.m : c.shape.rows;
    if (c.groups > 0) groups = std::make_shared<Groups>(ragged_groups(device, rows, c.groups));
    const Descriptions of = describe_case(c, groups.get());
    Operands out{groups,
                 random_operand(device, library, of.first),
                 c.product() ? random_operand(device, library, of.second) : Operand(device, library, of.second),
                 {},
                 {},
                 nullptr,
                 {}};
    if (of.d) out.d.emplace(device, library, *of.d);
    for (const Case& other : layer_calls(c)) out.others.push_back({other, make(device, library, other)});
    if (c.bias) out.bias = random_operand(device, library, describe(c.d, {std::max(c.groups, 1), c.size.n}));
    if (c.has_option("stochastic")) {
        const uint64_t seed_offset[] = {1234, 5678};
        out.seed_offset = device.allocate(sizeof seed_offset);
        device.upload(out.seed_offset.get(), seed_offset, sizeof seed_offset);
    }
    return out;
}

Operands Operands::with_second(Operand other) const {
    Operands out = *this;
    out.second = std::move(other);
    return out;
}

Work work_of(const Library& library, const Case& c, const Operands& operands) {
    const Description &first = operands.first.description(), &second = operands.second.description();
    Work work;
    if (c.product()) {
        work.bytes_read = bytes_read(library, first).all() + bytes_read(library, second).all();
        work.bytes_written = bytes_written(library, operands.d->description()).all();
        work.bytes_touched = work.bytes();
        if (c.add) work.bytes_read += work.bytes_written;
        work.operations = 2.0 * double(c.size.m) * double(c.size.n) * double(c.size.k);
        for (const LayerCall& other : operands.others) {
            const Work more = work_of(library, other.c, other.operands);
            work.bytes_read += more.bytes_read, work.bytes_written += more.bytes_written;
            work.bytes_touched += more.bytes_touched, work.operations += more.operations;
        }
        return work;
    }
    const Bytes in = bytes_read(library, first), out = bytes_written(library, second);
    const double bytes_in = second.with_codes ? in.all() : in.scales;
    work.bytes_read = reads_of(c) * bytes_in;
    work.bytes_written = c.verb == "amax" ? 0 : out.all();
    work.bytes_touched = bytes_in + work.bytes_written;
    work.streams_written = second.has(MXQ_PART_ROWWISE) && second.has(MXQ_PART_COLUMNWISE) ? 2 : 1;
    return work;
}

namespace {

Prepared prepare_one(Device& device, const Library& library, const Case& c, const Operands& operands) {
    using Tensor = std::shared_ptr<mxq_tensor>;
    const Tensor first = operands.first.tensor(library), second = operands.second.tensor(library);
    mxq_context* const context = library.context();
    void* const stream = device.stream();
    if (c.product()) {
        const Tensor d = operands.d->tensor(library);
        const std::shared_ptr<mxq_gemm_options> options = gemm_options(library, c, operands);
        const bool grouped = c.verb != "gemm";
        const auto query = grouped ? library->grouped_gemm_query : library->gemm_query;
        const auto verb = grouped ? library->grouped_gemm : library->gemm;
        return prepare_with(
            device, library,
            [=](mxq_plan** plan) { return query(context, options.get(), first.get(), second.get(), d.get(), plan); },
            [=](void* workspace, uint64_t bytes) {
                return verb(context, options.get(), first.get(), second.get(), d.get(), workspace, bytes, stream);
            });
    }
    const std::shared_ptr<mxq_quantize_options> options = quantize_options(library, c, operands);
    const auto [verb, query] = conversion(library, c.verb);
    return prepare_with(
        device, library,
        [=, query = query](mxq_plan** plan) { return query(context, options.get(), first.get(), second.get(), plan); },
        [=, verb = verb](void* workspace, uint64_t bytes) {
            return verb(context, options.get(), first.get(), second.get(), workspace, bytes, stream);
        });
}

}  // namespace

Prepared prepare(Device& device, const Library& library, const Case& c, const Operands& operands) {
    Prepared out = prepare_one(device, library, c, operands);
    for (const LayerCall& other : operands.others) {
        const Prepared next = prepare(device, library, other.c, other.operands);
        out.call = [before = out.call, call = next.call] { before(), call(); };
        out.query_and_call = [before = out.query_and_call, call = next.query_and_call] { before(), call(); };
    }
    return out;
}
