// The layer with quantized operands, through the C API.
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

struct Setting {
    Storage weights, activations;
    int32_t rounding;  // MXQ_SCALE_ROUNDING_*, of MX formats
};

struct QuantizedRun {
    std::vector<double> up, output;  // bias included
    uint64_t weight_bytes = 0;       // codes and scales of both weights
    double weight_ms = 0;            // quantize both weights: once per model
    double activation_ms = 0;        // quantize tokens and hidden activations: every step; 0 for BF16
    double product_ms = 0;           // both grouped GEMMs: every step
    std::string quantize_implementation, gemm_implementation;
};

QuantizedRun run_layer(const Model& model, Device& device, const Setting& setting);
