// The layer with quantized operands, through the C API.
#pragma once

#include "../common/mxq_handles.hpp"
#include "memory.hpp"
#include "model.hpp"

struct Device {
    mxq_handles::Context context;
    std::unique_ptr<Memory> memory;
};

struct Setting {
    int32_t format;          // MXQ_FORMAT_MXFP8_*
    int32_t rounding;        // MXQ_SCALE_ROUNDING_*
    int32_t weight_scaling;  // MXQ_SCALING_*; tokens are always 1x32
};

struct QuantizedRun {
    std::vector<double> up, output;  // bias included
    uint64_t weight_bytes = 0;       // codes and scales of both weights
    double weight_ms = 0;            // quantize both weights: once per model
    double activation_ms = 0;        // quantize tokens and hidden activations: every step
    double product_ms = 0;           // both grouped GEMMs: every step
    std::string quantize_implementation, gemm_implementation;
};

QuantizedRun run_layer(const Model& model, Device& device, const Setting& setting);
