// Strides of the lines and experts of a quantized part: which of them can be, and which bytes lie between them.
#pragma once
#include "core/buffers.h"
#include "core/tensor.h"

namespace mxq {

// Refuses strides of codes and a list of experts that the tensor cannot have, whatever its scaling is.
void require_code_strides(const mxq_tensor& t, int32_t part, const char* name);

// Refuses strides of scales that the scaling, the layout or the scope cannot have.
void require_scale_strides(const mxq_tensor& t, int32_t part, const char* name);

// Refuses strides and lists that contradict what else was set, in either order. Scales are those of the default scaling as
// long as none was set, so that theirs are looked at when one is, or by a verb.
void require_chosen_strides(const mxq_tensor& t);

Addresses addresses_of(const Part& part);

// Return the rows of a part's codes and scales, or of one expert's where experts are listed.
Buffers::Rows rows_of_codes(const mxq_tensor& t, const Part& part, const Storage& s);
Buffers::Rows rows_of_scales(const mxq_tensor& t, const Part& part, const Storage& s);

}  // namespace mxq
