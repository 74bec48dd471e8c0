// What every verb's check is made of: requirements on one tensor, and its views for kernels.
#pragma once
#include <string>

#include "core/buffers.h"
#include "core/error.h"
#include "core/problem.h"
#include "core/validate.h"

namespace mxq {

using Access = Buffers::Access;

std::string shape_text(const mxq_tensor& t);
const char* part_name(int32_t part);

const mxq_tensor& require(const mxq_tensor* tensor, const char* name);
void require_plain(const mxq_tensor& t, const char* name);
void require_quantized(const mxq_tensor& t, const char* name);
void require_same_shape(const mxq_tensor& in, const mxq_tensor& out);
void require_no_groups(const mxq_tensor& t, const char* name, const char* remedy);

// Both have the groups of the call, or neither has any. Returns them; their ends are a buffer of the call.
GroupedRows require_groups_alike(const mxq_tensor& in, const char* in_name, const mxq_tensor& out, const char* out_name,
                                 Buffers& buffers);
void require_groups(const mxq_tensor& t, const char* name, Buffers& buffers);
void require_same_groups(const mxq_tensor& a, const char* a_name, const mxq_tensor& b, const char* b_name);

// For verbs that take an implementation alone.
void refuse_options(const mxq_quantize_options* options, const char* verb);

// A part's layout is one that the contract has.
void require_storage(const mxq_tensor& t, int32_t which, const char* name);

bool declares_none(const mxq_tensor& t);

// Whether the call uses this part: a declared one, or in a query of a tensor that declares none, rowwise.
bool uses_part(const mxq_tensor& t, int32_t which, Check check);
void require_any_part(const mxq_tensor& t, const char* name, Check check);

PlainMatrix plain_view(const mxq_tensor& t, const char* name, Buffers& buffers, Access access);

enum class Touches { CodesAndScales, Scales };
QuantizedPart part_view(const mxq_tensor& t, int32_t which, const char* name, Buffers& buffers, Access access,
                        Touches touches = Touches::CodesAndScales);

// The part's amax becomes a buffer of the call.
void add_amax(const mxq_tensor& t, int32_t which, const char* name, Buffers& buffers, Access access);

// What decoding an NVFP4 part needs beside codes and scales: its amax or its decode scale.
void add_global_scale(const mxq_tensor& t, int32_t which, const char* name, Buffers& buffers);

}  // namespace mxq
