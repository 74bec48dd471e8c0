// The verbs of the layer: routings, activations, weighted sums of rows, and their gradients.
#include "../verbs/activation.h"
#include "problem.h"
#include "values.h"

namespace search {

using testing::poison;

namespace {

constexpr int32_t experts_of_sums = 8;  // of the routing of combine, whose shape has columns in their place

oracle::ActivationSpec activation_of(const Call& call) {
    oracle::ActivationSpec spec;
    if (call.activation) spec.kind = call.activation;
    if (call.gate_layout) spec.layout = call.gate_layout;
    spec.alpha = call.clamp_alpha, spec.limit = call.clamp_limit, spec.addend = call.clamp_addend;
    return spec;
}

testing::Dims wide_dims(const Call& call) { return {call.experts(), call.rows(), activation_of(call).columns(call.cols())}; }

std::vector<TensorPlan> tensors_of_sums(const Call& call) {
    const std::optional<int64_t> none;
    const testing::Dims of_rows{none, call.rows(), call.cols()}, of_tokens{none, call.m(), call.cols()};
    const auto plan = [&](const char* name, const Side& side, testing::Dims dims) {
        return TensorPlan{name, side, spec_of(call, side, false), dims};
    };
    std::vector<TensorPlan> out;
    if (call.verb == "combine") {
        out = {plan("in", call.first, of_rows), plan("out", call.second, of_tokens)};
        if (call.residual) out.insert(out.begin() + 1, plan("residual", call.d, of_tokens));
        return out;
    }
    out.push_back(plan("d_out", call.d, of_tokens));
    if (call.weight_gradient) out.push_back(plan("in", call.first, of_rows));
    if (call.row_gradient) out.push_back(plan("d_in", call.second, of_rows));
    Side of_weights;
    of_weights.gap = call.second.gap;
    if (call.weight_gradient) out.push_back(plan("d_weights", of_weights, {none, call.m(), call.n()}));
    return out;
}

const TensorPlan* plan_of(const Problem& problem, const std::string& name) {
    for (const TensorPlan& plan : problem.tensors)
        if (plan.name == name) return &plan;
    return nullptr;
}

// ---- Activations -------------------------------------------------------------------------------------------------------

activation::Case case_of(const Call& call) {
    activation::Case c;
    c.activation = activation_of(call);
    c.input = call.first.format;
    c.bias = call.bias, c.weights = call.row_weights;
    c.dims = call.dims();
    c.grouped = call.groups.has_value();
    c.groups.ends = call.ends();
    return c;
}

// Adds numbers that options point to.
void add_numbers(Problem& problem, const char* name, const Bytes& bytes, int32_t format) {
    if (format) problem.images[name] = read_image(bytes, oracle::plain_bytes(format));
}

// Draws what is read, and adds it.
activation::Inputs add_inputs(Problem& problem, activation::Case& c) {
    const Call& call = problem.call;
    activation::Inputs inputs(c, cases::Values::normal, call.values.seed + 3);
    const TensorPlan &in = *plan_of(problem, "in"), &out = *plan_of(problem, "out");
    inputs.in = draw_plain(call.values, out.spec, in.side.format, in.dims.shape());
    add_plain(problem, in, inputs.in);
    add_numbers(problem, "bias", inputs.bias, c.bias);
    add_numbers(problem, "row_weights", inputs.weights, c.weights);
    if (const TensorPlan* gradient = plan_of(problem, "gradient")) {
        c.gradient = gradient->side.format;
        inputs.gradient = draw_plain(call.second_values, {}, c.gradient, gradient->dims.shape());
        add_plain(problem, *gradient, inputs.gradient);
    }
    return inputs;
}

void add_output(Problem& problem, const oracle::Floats& values) {
    const TensorPlan& out = *plan_of(problem, "out");
    if (out.side.plain())
        add_plain_output(problem, out, oracle::store(out.side.format, values));
    else
        add_quantized_output(problem, out, values);
}

void add_activation(Problem& problem) {
    const Call& call = problem.call;
    activation::Case c = case_of(call);
    const activation::Inputs inputs = add_inputs(problem, c);
    if (call.verb == "activate") return add_output(problem, activation::values_of(c, inputs));
    const activation::Gradients all = activation::gradients_of(c, inputs);
    add_output(problem, all.values);
    if (call.bias_gradient) problem.images["bias_gradient"] = written_image(oracle::store(MXQ_FORMAT_F32, all.bias), 4);
    if (!call.weight_gradient) return;
    Bytes of_rows = oracle::store(MXQ_FORMAT_F32, all.weights);
    for (int64_t row = 0; row < c.rows(); ++row)
        if (c.bias_of(row) < 0) std::fill_n(of_rows.begin() + 4 * row, 4, poison);  // which is in no group
    problem.images["row_weight_gradient"] = written_image(of_rows, 4);
}

// ---- Routings ----------------------------------------------------------------------------------------------------------

// Draws the expert of each choice:
//
//     uniform   any of them
//     one       the last one for all
//     few       three of them, so that most have no token
//     dropped   one choice in four is dropped
//     none      all choices are dropped
//     sorted    in order, as rows of experts are
int64_t draw_id(const std::string& kind, int64_t choice, int64_t rows, int64_t experts, cases::Random& random) {
    const int64_t id = random.below(experts);
    if (kind == "one") return experts - 1;
    if (kind == "few") return id % 3 * (experts / 3);
    if (kind == "dropped") return random.below(4) ? id : -1;
    if (kind == "none") return -1;
    if (kind == "sorted") return choice * experts / rows;
    return id;
}

// Returns weights of choices as their format holds them; a few are infinite, NaN, or zeros.
oracle::Floats draw_weights(const Call& call, int64_t count, cases::Random& random) {
    const float odd[] = {0.0f, -0.0f, INFINITY, oracle::float_of(0x7FFFFFFF), 1.0f, 0x1p-149f};
    oracle::Floats out;
    for (int64_t i = 0; i < count; ++i) out.push_back(random.below(12) ? random.uniform() : odd[random.below(6)]);
    const Bytes stored = oracle::store(call.choice_weights, out);
    return oracle::load(call.choice_weights, stored.data(), static_cast<size_t>(count));
}

testing::Choices draw_choices(const Call& call) {
    cases::Random random(call.values.seed + 23);
    testing::Choices c{call.m(), static_cast<int32_t>(call.n()), experts_of_sums, {}, {}};
    if (call.verb == "route") c.experts = static_cast<int32_t>(call.k());
    c.first = static_cast<int32_t>(call.first_expert), c.count = static_cast<int32_t>(call.local_experts);
    for (int64_t i = 0; i < c.rows(); ++i) c.ids.push_back(draw_id(call.ids, i, c.rows(), c.experts, random));
    if (call.choice_weights) c.weights = draw_weights(call, c.rows(), random);
    return c;
}

// Where the arrays of a routing lie in its memory, by its getters.
struct Arrays {
    uint64_t bytes = 0;
    size_t ends = 0, row_tokens = 0, choice_rows = 0, row_weights = 0;
};

Arrays arrays_of(const testing::Choices& c) {
    testing::RoutingHandle handle;
    testing::ok(mxq_routing_create(c.tokens, c.choices, c.experts, handle.out()));
    if (c.count) testing::ok(mxq_routing_set_local_experts(handle, c.first, c.count));
    Arrays out;
    testing::ok(mxq_routing_required_bytes(handle, &out.bytes));
    constexpr uintptr_t somewhere = uintptr_t{1} << 45;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that nothing has and nobody reads.
    testing::ok(mxq_routing_set_memory(handle, reinterpret_cast<void*>(somewhere), out.bytes));
    const int32_t *ends = nullptr, *row_tokens = nullptr, *choice_rows = nullptr;
    const float* row_weights = nullptr;
    uint64_t bytes[4] = {};
    testing::ok(mxq_routing_get_ends(handle, &ends, &bytes[0]));
    testing::ok(mxq_routing_get_row_tokens(handle, &row_tokens, &bytes[1]));
    testing::ok(mxq_routing_get_choice_rows(handle, &choice_rows, &bytes[2]));
    testing::ok(mxq_routing_get_row_weights(handle, &row_weights, &bytes[3]));
    const auto rows = static_cast<uint64_t>(c.rows());
    if (bytes[0] != 4 * static_cast<uint64_t>(c.local()) || bytes[1] != 4 * rows || bytes[2] != 4 * rows ||
        bytes[3] != 4 * rows)
        throw std::runtime_error("the arrays of a routing have other sizes than its experts and rows");
    const auto at = [&](const void* array) { return array ? reinterpret_cast<uintptr_t>(array) - somewhere : 0; };
    out.ends = at(ends), out.row_tokens = at(row_tokens), out.choice_rows = at(choice_rows),
    out.row_weights = at(row_weights);
    return out;
}

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
    Bytes out(values.size() * sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
    return out;
}

// Returns the memory with all arrays of a routing; what is in none of them is `fill`.
Bytes memory_of(const testing::Choices& c, const testing::Routed& routed, uint8_t fill) {
    const Arrays arrays = arrays_of(c);
    Bytes out(static_cast<size_t>(arrays.bytes), fill);
    const auto put = [&](size_t at, const Bytes& bytes) {
        std::copy(bytes.begin(), bytes.end(), out.begin() + static_cast<std::ptrdiff_t>(at));
    };
    put(arrays.ends, bytes_of(routed.ends));
    put(arrays.row_tokens, bytes_of(routed.row_tokens));
    put(arrays.choice_rows, bytes_of(routed.choice_rows));
    if (!c.weights.empty()) put(arrays.row_weights, bytes_of(routed.row_weights));
    return out;
}

void add_ids(Problem& problem) {
    const Call& call = problem.call;
    const testing::Choices& c = problem.choices;
    const int64_t element = call.id_type == MXQ_TYPE_INT32 ? 4 : 8;
    problem.images["routing.ids"] = read_image(testing::DeviceRouting::ids_of(c, call.id_type), element);
    if (call.choice_weights)
        problem.images["routing.weights"] =
            read_image(oracle::store(call.choice_weights, c.weights), oracle::plain_bytes(call.choice_weights));
}

void add_route(Problem& problem) {
    add_ids(problem);
    const testing::Routed routed = testing::expected_routing(problem.choices);
    problem.images["routing.memory"] = written_image(memory_of(problem.choices, routed, poison), 256);
    if (problem.call.counts_dropped)
        problem.images["routing.dropped"] = written_image(bytes_of(std::vector<int32_t>{routed.dropped}), 4);
}

// Adds the arrays of a routing that is read, in its memory or one by one. Of those only the rows of choices are used.
void add_routed(Problem& problem, const testing::Routed& routed) {
    add_ids(problem);
    problem.images.at("routing.ids").used = false;
    if (problem.images.count("routing.weights") && problem.call.verb == "combine_backward" && !problem.call.row_gradient)
        problem.images.at("routing.weights").used = false;
    if (!problem.call.computed) {
        problem.images["routing.memory"] = read_image(memory_of(problem.choices, routed, oracle::untouchable), 256);
        problem.images["routing.memory"].used = false;
        return;
    }
    problem.images["routing.ends"] = read_image(bytes_of(routed.ends), 4);
    problem.images["routing.row_tokens"] = read_image(bytes_of(routed.row_tokens), 4);
    problem.images["routing.choice_rows"] = read_image(bytes_of(routed.choice_rows), 4);
    for (const char* unused : {"routing.ends", "routing.row_tokens"}) problem.images.at(unused).used = false;
}

// ---- Sums of rows ------------------------------------------------------------------------------------------------------

// Adds a plain tensor that is read and returns its values.
oracle::Floats add_operand(Problem& problem, const TensorPlan& plan, const Values& values) {
    const Bytes dense = draw_plain(values, {}, plan.side.format, plan.dims.shape());
    add_plain(problem, plan, dense);
    return oracle::load(plan.side.format, dense.data(), plan.dims.shape().count());
}

void add_combine(Problem& problem, const testing::Routed& routed) {
    const Call& call = problem.call;
    const oracle::Floats x = add_operand(problem, *plan_of(problem, "in"), call.values);
    oracle::Floats residual;
    if (const TensorPlan* plan = plan_of(problem, "residual")) residual = add_operand(problem, *plan, call.second_values);
    const TensorPlan& out = *plan_of(problem, "out");
    const oracle::Floats sums = testing::combined(problem.choices, routed.choice_rows, x, residual, call.cols());
    add_plain_output(problem, out, oracle::store(out.side.format, sums));
}

// Adds the rows that choices have; the others keep what they are.
void add_row_gradients(Problem& problem, const TensorPlan& plan, const std::vector<int32_t>& choice_rows,
                       const oracle::Floats& d) {
    const testing::Choices& c = problem.choices;
    const int64_t cols = problem.call.cols(), row_bytes = cols * oracle::plain_bytes(plan.side.format);
    Bytes rows(static_cast<size_t>(c.rows() * row_bytes), poison);
    for (int64_t i = 0; i < c.rows(); ++i) {
        const int64_t row = choice_rows[static_cast<size_t>(i)];
        if (row < 0) continue;
        oracle::Floats values;
        for (int64_t col = 0; col < cols; ++col)
            values.push_back(testing::times(c.weights.empty() ? 1.0f : c.weights[static_cast<size_t>(i)],
                                            d[static_cast<size_t>(i / c.choices * cols + col)]));
        const Bytes stored = oracle::store(plan.side.format, values);
        std::copy(stored.begin(), stored.end(), rows.begin() + row * row_bytes);
    }
    problem.images[plan.name + ".data"] =
        written_image(with_gaps(plan, rows, Bytes(rows.size(), 1), poison), oracle::plain_bytes(plan.side.format));
}

void add_combine_backward(Problem& problem, const testing::Routed& routed) {
    const Call& call = problem.call;
    const int64_t cols = call.cols();
    const oracle::Floats d = add_operand(problem, *plan_of(problem, "d_out"), call.second_values);
    if (const TensorPlan* plan = plan_of(problem, "d_in")) add_row_gradients(problem, *plan, routed.choice_rows, d);
    const TensorPlan* const of_weights = plan_of(problem, "d_weights");
    if (!of_weights) return;
    const oracle::Floats x = add_operand(problem, *plan_of(problem, "in"), call.values);
    oracle::Floats sums;
    for (int64_t i = 0; i < problem.choices.rows(); ++i) {
        const int64_t row = routed.choice_rows[static_cast<size_t>(i)];
        sums.push_back(
            row < 0 ? 0.0f
                    : testing::sum_of_products(d.data() + i / problem.choices.choices * cols, x.data() + row * cols, cols));
    }
    add_plain_output(problem, *of_weights, oracle::store(MXQ_FORMAT_F32, sums));
}

void add_sums(Problem& problem) {
    const testing::Routed routed = testing::expected_routing(problem.choices);
    add_routed(problem, routed);
    problem.call.verb == "combine" ? add_combine(problem, routed) : add_combine_backward(problem, routed);
}

int64_t wrong_number(int64_t at, int64_t end) {
    const int64_t wrong[] = {end, -2, INT32_MAX, INT32_MIN};
    return wrong[at % 4];
}

}  // namespace

std::vector<TensorPlan> layer_tensors(const Call& call) {
    if (call.verb == "route") return {};
    if (call.is_routed()) return tensors_of_sums(call);
    const testing::Dims of_result = call.dims(), wide = wide_dims(call);
    const TensorPlan in{"in", call.first, spec_of(call, call.first, false), wide};
    const oracle::Spec target = spec_of(call, call.second, true);
    if (call.verb == "activate") return {in, {"out", call.second, target, of_result}};
    return {{"gradient", call.d, spec_of(call, call.d, false), of_result}, in, {"out", call.second, target, wide}};
}

void add_layer(Problem& problem) {
    if (problem.call.is_activation()) return add_activation(problem);
    problem.choices = draw_choices(problem.call);
    problem.call.verb == "route" ? add_route(problem) : add_sums(problem);
}

std::optional<Problem> with_wrong_id(const Problem& problem, int64_t at) {
    if (problem.choices.ids.empty()) return std::nullopt;
    Problem out = problem;
    out.choices.ids[static_cast<size_t>(at / 4) % out.choices.ids.size()] = wrong_number(at, out.choices.experts);
    add_route(out);
    return out;
}

std::optional<Problem> with_wrong_choice_row(const Problem& problem, int64_t at) {
    const auto found = problem.images.find("routing.choice_rows");
    if (found == problem.images.end() || found->second.before.empty()) return std::nullopt;
    Problem out = problem;
    Image& image = out.images.at("routing.choice_rows");
    const auto value = static_cast<int32_t>(wrong_number(at, problem.choices.rows()));
    std::memcpy(&image.before[static_cast<size_t>(at / 4) % (image.before.size() / 4) * 4], &value, 4);
    image.after = image.before;
    return out;
}

}  // namespace search
