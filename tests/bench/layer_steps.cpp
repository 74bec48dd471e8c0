#include "layer_steps.h"

#include <algorithm>
#include <random>

namespace {

constexpr double kElement = 2;  // bytes of a plain number here

Operand random_plain(Device& device, const Library& library, int64_t rows, int64_t cols) {
    return random_operand(device, library, {.format = MXQ_FORMAT_BF16, .shape = {rows, cols}});
}

}  // namespace

LayerWeights layer_weights(Device& device, const Library& library, const LayerModel& model) {
    const Quantization format = parse_quantization(model.weights);
    return {random_operand(device, library, describe(format, {2 * model.hidden, model.width, model.experts})),
            random_operand(device, library, describe(format, {model.width, model.hidden, model.experts}))};
}

std::vector<int32_t> random_ids(int64_t tokens, int32_t choices, int32_t experts, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<int32_t> ids, left(static_cast<size_t>(experts));
    for (int32_t e = 0; e < experts; ++e) left[size_t(e)] = e;
    for (int64_t token = 0; token < tokens; ++token)
        for (int32_t j = 0; j < choices; ++j) {
            std::swap(left[size_t(j)], left[size_t(j) + random() % size_t(experts - j)]);
            ids.push_back(left[size_t(j)]);
        }
    return ids;
}

BenchRouting::BenchRouting(Device& device, const Library& library, int64_t tokens, int32_t choices, int32_t experts,
                           uint32_t seed)
    : handle_(library.make(library->routing_destroy, library->routing_create, tokens, choices, experts)) {
    const std::vector<int32_t> ids = random_ids(tokens, choices, experts, seed);
    const std::vector<float> weights(ids.size(), 1.0f / float(choices));
    bytes_ = ids.size() * sizeof(int32_t);
    ids_ = device.allocate(bytes_), weights_ = device.allocate(bytes_);
    device.upload(ids_.get(), ids.data(), bytes_);
    device.upload(weights_.get(), weights.data(), bytes_);
    library.check(library->routing_set_ids(get(), ids_.get(), bytes_, MXQ_TYPE_INT32));
    library.check(library->routing_set_weights(get(), MXQ_FORMAT_F32, weights_.get(), bytes_));
    uint64_t bytes = 0;
    library.check(library->routing_required_bytes(get(), &bytes));
    memory_ = device.allocate(bytes);
    library.check(library->routing_set_memory(get(), memory_.get(), bytes));
}

LayerStep BenchRouting::route(Device& device, const Library& library) const {
    void* const stream = device.stream();
    return {"route", [this, &library, stream] {
                library.check(library->route(library.context(), nullptr, get(), nullptr, 0, stream));
            }};
}

LayerSteps::LayerSteps(Device& device, const Library& library, const LayerModel& model, const LayerWeights& weights,
                       int64_t tokens, uint32_t seed)
    : device_(device),
      library_(library),
      model_(model),
      tokens_(tokens),
      rows_(tokens * model.top),
      row_format_(parse_quantization(model.rows)),
      plain_(parse_quantization("bf16")),
      routing_(device, library, tokens, model.top, model.experts, seed),
      x_(random_plain(device, library, tokens, model.width)),
      out_(random_plain(device, library, tokens, model.width)),
      x_tensor_(keep(x_.tensor(library))),
      out_tensor_(keep(out_.tensor(library))),
      options_(library.make(library->expert_layer_options_destroy, library->expert_layer_options_create)) {
    routing_.route(device, library).call();
    make_forward(weights);
    make_backward();
    make_layer(weights);
}

mxq_tensor* LayerSteps::keep(Handle<mxq_tensor> tensor) { return tensors_.emplace_back(std::move(tensor)).get(); }

// Returns a matrix of rows of the experts, with memory of its own.
mxq_tensor* LayerSteps::tensor_of_rows(const Quantization& format, int64_t cols, int32_t parts) {
    mxq_tensor* const tensor =
        keep(library_.make(library_->tensor_destroy, library_->tensor_create_2d, format.format->id, rows_, cols));
    if (!format.format->plain()) library_.check(library_->tensor_set_scaling(tensor, format.scaling));
    library_.check(library_->tensor_set_routing_groups(tensor, routing_.get()));
    uint64_t bytes = 0;
    library_.check(library_->tensor_total_bytes(tensor, parts, &bytes));
    library_.check(library_->tensor_set_memory(tensor, parts, memory_.emplace_back(device_.allocate(bytes)).get(), bytes));
    return tensor;
}

double LayerSteps::bytes_of_rows(const Quantization& format, int64_t cols, int32_t parts) const {
    Description description = describe(format, {rows_, cols});
    description.parts = parts;
    return bytes_read(library_, description).all();
}

template <class Options, class Verb, class Query, class... Tensors>
Call LayerSteps::call_of(Verb verb, Query query, const Options* options, Tensors... tensors) {
    const auto plan = library_.make(library_->plan_destroy, query, library_.context(), options, tensors...);
    const uint64_t bytes = library_->plan_workspace_bytes(plan.get());
    void* const workspace = memory_.emplace_back(device_.allocate(std::max<uint64_t>(bytes, 1))).get();
    void* const stream = device_.stream();
    return [this, verb, options, tensors..., workspace, bytes, stream] {
        library_.check(verb(library_.context(), options, tensors..., workspace, bytes, stream));
    };
}

void LayerSteps::make_forward(const LayerWeights& weights) {
    mxq_tensor* const gate_up = keep(weights.gate_up.tensor(library_));
    mxq_tensor* const down = keep(weights.down.tensor(library_));
    mxq_tensor* entering = keep(
        library_.make(library_->tensor_destroy, library_->tensor_create_2d, int32_t(MXQ_FORMAT_BF16), rows_, model_.width));
    library_.check(library_->tensor_set_routing_rows(entering, routing_.get()));
    library_.check(library_->tensor_set_data(entering, x_.data(), x_.data_bytes()));
    const mxq_quantize_options* const none = nullptr;
    const mxq_gemm_options* const products = nullptr;
    const mxq_activate_options* const activation = nullptr;
    hidden_ = tensor_of_rows(plain_, 2 * model_.hidden), products_ = tensor_of_rows(plain_, model_.width);
    mxq_tensor* const activated = tensor_of_rows(row_format_, model_.hidden);
    forward_.push_back(routing_.route(device_, library_));
    if (!row_format_.format->plain()) {
        mxq_tensor* const quantized = tensor_of_rows(row_format_, model_.width);
        forward_.push_back({"quantize", call_of(library_->quantize, library_->quantize_query, none, entering, quantized),
                            bytes_of_rows(plain_, model_.width) + bytes_of_rows(row_format_, model_.width)});
        entering = quantized;
    }
    forward_.push_back(
        {"product", call_of(library_->grouped_gemm, library_->grouped_gemm_query, products, entering, gate_up, hidden_)});
    forward_.push_back({"activate", call_of(library_->activate, library_->activate_query, activation, hidden_, activated),
                        bytes_of_rows(plain_, 2 * model_.hidden) + bytes_of_rows(row_format_, model_.hidden)});
    forward_.push_back(
        {"product", call_of(library_->grouped_gemm, library_->grouped_gemm_query, products, activated, down, products_)});
    forward_.push_back({"combine",
                        call_of(library_->combine, library_->combine_query, none, routing_.get(), products_,
                                static_cast<mxq_tensor*>(nullptr), out_tensor_),
                        kElement * double((rows_ + tokens_) * model_.width)});
}

void LayerSteps::make_backward() {
    mxq_tensor* const of_products = tensor_of_rows(plain_, model_.width);
    mxq_tensor* const of_activated = tensor_of_rows(plain_, model_.hidden);
    // The gradient enters two products, so that MXFP8 has both of its parts.
    const bool mxfp8 = row_format_.format->id == MXQ_FORMAT_MXFP8_E4M3;
    const Quantization& format = mxfp8 ? row_format_ : plain_;
    const int32_t parts = mxfp8 ? MXQ_PART_BOTH : MXQ_PART_ROWWISE;
    mxq_tensor* const of_hidden = tensor_of_rows(format, 2 * model_.hidden, parts);
    mxq_tensor* const of_weights = keep(library_.make(library_->tensor_destroy, library_->tensor_create_2d,
                                                      int32_t(MXQ_FORMAT_F32), tokens_, int64_t(model_.top)));
    const uint64_t bytes = uint64_t(rows_) * sizeof(float);
    library_.check(library_->tensor_set_data(of_weights, memory_.emplace_back(device_.allocate(bytes)).get(), bytes));
    const mxq_quantize_options* const none = nullptr;
    const mxq_activate_options* const activation = nullptr;
    backward_.push_back({"combine_backward",
                         call_of(library_->combine_backward, library_->combine_backward_query, none, routing_.get(),
                                 x_tensor_, products_, of_products, of_weights),
                         kElement * double((tokens_ + 2 * rows_) * model_.width)});
    backward_.push_back({"activate_backward",
                         call_of(library_->activate_backward, library_->activate_backward_query, activation, of_activated,
                                 hidden_, of_hidden),
                         kElement * double(3 * rows_ * model_.hidden) + bytes_of_rows(format, 2 * model_.hidden, parts)});
}

void LayerSteps::make_layer(const LayerWeights& weights) {
    if (!row_format_.format->plain())
        library_.check(
            library_->expert_layer_options_set_row_format(options_.get(), row_format_.format->id, row_format_.scaling));
    const mxq_expert_layer_options* const options = options_.get();
    layer_ = {"expert_layer",
              call_of(library_->expert_layer, library_->expert_layer_query, options, x_tensor_, routing_.get(),
                      keep(weights.gate_up.tensor(library_)), keep(weights.down.tensor(library_)), out_tensor_)};
}
