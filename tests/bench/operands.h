// Tensors of random numbers in a backend's memory.
#pragma once

#include "backend.h"
#include "mxq_handles.hpp"

struct Shape {
    int64_t rows, cols;
    int64_t experts = 0;  // 0: 2-D
};

struct Operand {
    mxq_handles::Tensor tensor;
    std::vector<std::shared_ptr<void>> memory;
    double bytes = 0;  // of all its buffers

    mxq_tensor* get() const { return tensor.get(); }
};

struct Quantization {
    int32_t format = MXQ_FORMAT_MXFP8_E4M3;
    std::vector<int32_t> parts = {MXQ_PART_ROWWISE};
    int32_t scaling = MXQ_SCALING_1X32;
    bool swizzled = false;
};

// Normal random numbers (never zeros: they flatter tensor cores and caches alike).
Operand random_plain(Backend& backend, int32_t format, Shape shape);
Operand empty_plain(Backend& backend, int32_t format, Shape shape);
Operand empty_quantized(Backend& backend, const Quantization& quantization, Shape shape);
Operand random_quantized(Backend& backend, const Quantization& quantization, Shape shape);

// Ragged groups over `rows` rows, sizes between half and one and a half of the mean.
std::vector<int32_t> ragged_ends(int64_t rows, int groups);

// A (rows, cols) operand with groups of rows. Columnwise, its groups stand in the padded layout of
// mxq_tensor_set_groups.
Operand random_grouped(Backend& backend, int32_t part, Shape shape, const std::vector<int32_t>& ends,
                       std::shared_ptr<void> device_ends);
