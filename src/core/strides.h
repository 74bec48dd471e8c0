// Strides of the K-major rows and experts of a quantized part: which ones are valid, and which bytes are gaps.
#pragma once
#include "core/buffers.h"
#include "core/tensor.h"

namespace mxq {

// Refuses strides of a part, and a list of experts, that the tensor cannot have as it is.
void require_strides(const mxq_tensor& t, int32_t part, const char* name);

// Does so for both parts of the tensor that a setter changes.
void require_strides(const mxq_tensor& t);

Addresses addresses_of(const Part& part);

// Return the rows of a part's codes and scales, or of one expert's where experts are listed.
Buffers::Rows rows_of_codes(const mxq_tensor& t, const Part& part, const Storage& s);
Buffers::Rows rows_of_scales(const mxq_tensor& t, const Part& part, const Storage& s);

}  // namespace mxq
