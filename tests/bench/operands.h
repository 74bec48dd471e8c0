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
    void *codes = nullptr, *scales = nullptr;  // of the part added last, or of a plain tensor

    mxq_tensor* get() const { return tensor.get(); }
};

struct Quantization {
    int32_t format = MXQ_FORMAT_MXFP8_E4M3;
    std::vector<int32_t> parts = {MXQ_PART_ROWWISE};
    int32_t scaling = MXQ_SCALING_NONE;  // the format's own
    bool swizzled = false;
    bool delayed = false;  // FP8 with TENSOR scales: the scale is given
    bool per_expert = false;      // FP8 with TENSOR scales: one for each expert or group
    int32_t group_alignment = 1;  // of rows, rowwise
};

// Normal random numbers (never zeros: they flatter tensor cores and caches alike).
Operand random_plain(Backend& backend, int32_t format, Shape shape);
Operand empty_plain(Backend& backend, int32_t format, Shape shape);
// NVFP4 has its amax: that of the random numbers, or more.
Operand empty_quantized(Backend& backend, const Quantization& quantization, Shape shape);
Operand random_quantized(Backend& backend, const Quantization& quantization, Shape shape);

// Ragged groups over `rows` rows, sizes between half and one and a half of the mean, and none a multiple of 4 where `rows` is
// one. Always the same.
std::vector<int32_t> ragged_ends(int64_t rows, int groups);

// Makes it a tensor with groups of rows.
void set_groups(const Operand& operand, const std::vector<int32_t>& ends, const std::shared_ptr<void>& device_ends);

// A plain tensor with groups of rows.
Operand empty_grouped(Backend& backend, int32_t format, Shape shape, const std::vector<int32_t>& ends,
                      const std::shared_ptr<void>& device_ends, int32_t alignment);

// A (rows, cols) operand with groups of rows, plain where the format is.
Operand random_grouped(Backend& backend, const Quantization& quantization, Shape shape, const std::vector<int32_t>& ends,
                       const std::shared_ptr<void>& device_ends);
