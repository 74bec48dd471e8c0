// Computes the layer and its gradients with quantized operands, through mxq.hpp.
#pragma once

#include <mxq/mxq.hpp>

#include "memory.hpp"
#include "model.hpp"

struct Device {
    mxq::context context;
    std::unique_ptr<Memory> memory;
};

// How the weights or the activations are stored: MXQ_FORMAT_* and MXQ_SCALING_*. Activations may stay in BF16.
struct Storage {
    int32_t format, scaling;
};

struct Setting {
    Storage weights, activations;
    int32_t rounding;  // MXQ_SCALE_ROUNDING_*, of MX formats
    bool exact_products = false;  // only products whose sums alone are rounded; else the device's best ones
};

// Several calls of one verb: their total time, the implementation that the last one used, and of products whether all of them
// keep the bound of exact ones.
struct Calls {
    double ms = 0;
    std::string implementation;
    bool exact = true;
};

struct QuantizedRun {
    std::vector<double> up, output;  // bias included
    uint64_t weight_bytes = 0;       // codes and scales of both weights
    Calls weights;                   // quantize both weights: once per model
    Calls activations;               // quantize tokens and hidden activations: every step; no calls for BF16
    Calls products;                  // both grouped GEMMs: every step
};

// Runs the forward pass.
QuantizedRun run_layer(const Model& model, Device& device, const Setting& setting);

struct OneCall {
    std::vector<double> output;
    Calls layer;
};

// Runs the forward pass as one call of mxq_expert_layer. The setting must quantize activations.
OneCall run_one_call(const Model& model, Device& device, const Setting& setting);

struct GradientRun {
    std::vector<double> input, weight;  // (tokens, hidden), (experts, width, hidden)
    Calls quantize;                     // `down`, hidden activations, and the gradient of the output
    Calls products;                     // both grouped GEMMs
};

// Computes the gradients of `down` from the gradient of its output, for the given hidden activations. The setting must
// quantize activations.
GradientRun run_gradients(const Model& model, Device& device, const Setting& setting, const std::vector<double>& hidden);
