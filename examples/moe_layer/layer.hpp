// The layer and its gradients with quantized operands, through the C API.
#pragma once

#include "../common/mxq_handles.hpp"
#include "memory.hpp"
#include "model.hpp"

struct Device {
    mxq_handles::Context context;
    std::unique_ptr<Memory> memory;
};

// How one side is stored: MXQ_FORMAT_* and MXQ_SCALING_*. Activations may stay in BF16.
struct Storage {
    int32_t format, scaling;
};

// Exact but for the rounding of sums; or of MX operands that were rebased to FP8, where a device and library do that.
enum class Products { Exact, Rebased };

struct Setting {
    Storage weights, activations;
    int32_t rounding;  // MXQ_SCALE_ROUNDING_*, of MX formats
    Products products = Products::Exact;
};

// Calls of one verb: the time of all together, and the implementation of the last.
struct Calls {
    double ms = 0;
    std::string implementation;
};

struct QuantizedRun {
    std::vector<double> up, output;  // bias included
    uint64_t weight_bytes = 0;       // codes and scales of both weights
    Calls weights;                   // quantize both weights: once per model
    Calls activations;               // quantize tokens and hidden activations: every step; none for BF16
    Calls products;                  // both grouped GEMMs: every step
};

// Both throw mxq_handles::Error with MXQ_STATUS_UNSUPPORTED where nothing takes the products.
QuantizedRun run_layer(const Model& model, Device& device, const Setting& setting);

struct GradientRun {
    std::vector<double> input, weight;  // (tokens, hidden), (experts, width, hidden)
    Calls quantize;                     // `down`, hidden activations, and the gradient of the output
    Calls products;                     // both grouped GEMMs
};

// The gradients of `down` from that of its output, for these hidden activations. For settings that quantize activations.
GradientRun run_gradients(const Model& model, Device& device, const Setting& setting, const std::vector<double>& hidden);
