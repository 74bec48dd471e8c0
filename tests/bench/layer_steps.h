// An expert layer on operands of its own: the one call, the verbs that make it up, and the backward verbs.
#pragma once

#include "operands.h"

struct LayerModel {
    const char* name;
    int64_t width, hidden;  // K, I
    int32_t experts, top;
    const char *rows, *weights;  // formats with their scalings
};

struct LayerWeights {
    Operand gate_up, down;
};
LayerWeights layer_weights(Device& device, const Library& library, const LayerModel& model);

// A call, and the bytes that it must move; 0: not counted, as of products.
struct LayerStep {
    std::string verb;
    Call call;
    double bytes = 0;
};

// Of each token, `choices` different ones of the experts; other ones for each seed.
std::vector<int32_t> random_ids(int64_t tokens, int32_t choices, int32_t experts, uint32_t seed);

// A routing with its ids, weights and memory.
class BenchRouting {
public:
    BenchRouting(Device& device, const Library& library, int64_t tokens, int32_t choices, int32_t experts, uint32_t seed);
    mxq_routing* get() const { return handle_.get(); }
    LayerStep route(Device& device, const Library& library) const;

private:
    Handle<mxq_routing> handle_;
    std::shared_ptr<void> ids_, weights_, memory_;
    uint64_t bytes_ = 0;
};

// Everything for one routing of some tokens. The device, the library and the weights must outlive it.
class LayerSteps {
public:
    LayerSteps(Device& device, const Library& library, const LayerModel& model, const LayerWeights& weights, int64_t tokens,
               uint32_t seed);
    const LayerStep& layer() const { return layer_; }
    const std::vector<LayerStep>& forward() const { return forward_; }
    const std::vector<LayerStep>& backward() const { return backward_; }

private:
    mxq_tensor* keep(Handle<mxq_tensor> tensor);
    mxq_tensor* tensor_of_rows(const Quantization& format, int64_t cols, int32_t parts = MXQ_PART_ROWWISE);
    double bytes_of_rows(const Quantization& format, int64_t cols, int32_t parts = MXQ_PART_ROWWISE) const;
    void make_forward(const LayerWeights& weights);
    void make_backward();
    void make_layer(const LayerWeights& weights);
    // Asks for the plan of a verb, and keeps its workspace. `verb` has the arguments between options and workspace.
    template <class Options, class Verb, class Query, class... Tensors>
    Call call_of(Verb verb, Query query, const Options* options, Tensors... tensors);

    Device& device_;
    const Library& library_;
    const LayerModel& model_;
    int64_t tokens_, rows_;
    Quantization row_format_, plain_;
    BenchRouting routing_;
    std::vector<Handle<mxq_tensor>> tensors_;
    std::vector<std::shared_ptr<void>> memory_;
    Operand x_, out_;
    mxq_tensor *x_tensor_, *out_tensor_, *hidden_ = nullptr, *products_ = nullptr;
    Handle<mxq_expert_layer_options> options_;
    LayerStep layer_;
    std::vector<LayerStep> forward_, backward_;
};
