// The parts of every verb's validation: requirements on tensors, and the views of them that kernels receive.
#pragma once
#include <string>

#include "core/buffers.h"
#include "core/error.h"
#include "core/problem.h"
#include "core/routing.h"
#include "core/validate.h"

namespace mxq {

using Access = Buffers::Access;

std::string shape_text(const mxq_tensor& t);

// Returns what the log and mxq_tensor_describe call a tensor: "mxfp8_e4m3 64 x 32 in 4 groups 1x32 rowwise swizzled",
// with its strides and lists of experts.
std::string tensor_text(const mxq_tensor& t);
const char* part_name(int32_t part);

const mxq_tensor& require(const mxq_tensor* tensor, const char* name);
const mxq_routing& require_routing(const mxq_routing* routing);

// Returns the options of a call, or the defaults for NULL.
template <class Options>
const Options& options_or_default(const Options* given) {
    static const Options defaults;
    if (given) require_alive(given, "options");
    return given ? *given : defaults;
}
void require_plain(const mxq_tensor& t, const char* name, const char* remedy = "create it with another format");
void require_quantized(const mxq_tensor& t, const char* name, const char* remedy = "quantize it first");

// Refuses in and out that are swapped: `quantizes` where in must be plain and out quantized, else the other way round.
void require_order(const mxq_tensor& in, const mxq_tensor& out, bool quantizes);
void require_same_shape(const mxq_tensor& in, const mxq_tensor& out);
void require_no_groups(const mxq_tensor& t, const char* name, const char* remedy);

// Requires the same groups on both tensors, or none; a plain tensor may leave out those of the other. Returns the groups and
// adds their ends to the buffers of the call.
GroupedRows require_groups_alike(const mxq_tensor& in, const char* in_name, const mxq_tensor& out, const char* out_name,
                                 Buffers& buffers);
void require_groups(const mxq_tensor& t, const char* name, Buffers& buffers);

// Requires the same type, count and array of ends; on a CPU context, ends that are equal. Those of a are in the buffers.
void require_same_groups(const mxq_tensor& a, const char* a_name, const mxq_tensor& b, const char* b_name, Buffers& buffers);

// Returns the problem of a call that quantizes to `out`, without its input.
QuantizeProblem output_problem(const mxq_quantize_options& options, const mxq_tensor& out, Buffers& buffers, Check check);

// Refuses every option that says how codes and scales are made.
void refuse_making(const mxq_quantize_options& options, const char* verb);

// Refuses the option in verbs that read no quantized tensor.
void refuse_source_part(const mxq_quantize_options& options, const char* verb);

// Refuses every option but an implementation, for verbs that have no other.
void refuse_options(const mxq_quantize_options* options, const char* verb);

// Refuses swizzled scales of ROW and TENSOR.
void require_scale_layout(const mxq_tensor& t, const char* name);

// Refuses scale layouts that do not exist for the part's scaling, and strides and Hadamard transforms that its shape does not
// have.
void require_storage(const mxq_tensor& t, int32_t part, const char* name);

bool declares_none(const mxq_tensor& t);

// Returns whether the call uses the part: if it is declared, or as the rowwise part in a query of a tensor that declares
// none.
bool uses_part(const mxq_tensor& t, int32_t part, Check check);
void require_any_part(const mxq_tensor& t, const char* name, Check check);

// Refuses strides of a part that the call writes: only what is read may have them.
void require_without_strides(const mxq_tensor& t, int32_t part, const char* name);

// Requires a part to write. A verb refuses strides of the part that its query assumes before it misses the part.
void require_any_written_part(const mxq_tensor& t, const char* name, Check check);

// Describes a Hadamard transform, or that there is none, for messages.
std::string hadamard_text(bool transformed, uint32_t mask);
// Requires the same Hadamard transform, or none, of a part of both tensors.
void require_hadamard_alike(const mxq_tensor& in, const mxq_tensor& out, int32_t part);

PlainMatrix plain_view(const mxq_tensor& t, const char* name, Buffers& buffers, Access access);

// Returns the rows by index of a plain tensor that is read, or none; `plain_view` refuses tensors that have them. The view is
// that of the stored rows, but counts the rows by index. On a CPU context, refuses numbers out of range.
PlainMatrix indexed_view(const mxq_tensor& t, const char* name, Buffers& buffers, RowIndices& by_index);

enum class Touches { CodesAndScales, Scales };
QuantizedPart part_view(const mxq_tensor& t, int32_t part, const char* name, Buffers& buffers, Access access,
                        Touches touches = Touches::CodesAndScales);

// Returns numbers of the options, rows x cols of them, and adds them to the buffers of the call. Empty where none are set.
PlainArray numbers_view(const Numbers& given, int64_t rows, int64_t cols, const char* name, const char* setter,
                        Buffers& buffers, Access access = Access::Read);

// Adds the part's amax to the buffers of the call. A tensor of 0 experts may leave it out.
void add_amax(const mxq_tensor& t, int32_t part, const char* name, Buffers& buffers, Access access,
              const char* setter = "mxq_tensor_set_amax");

// Refuses numbers of which there is one for each group or expert where the scope says one for the tensor.
void require_scope(const mxq_tensor& t, const std::string& name, const Buffer& buffer);

// Adds what decoding an NVFP4 part needs besides codes and scales: its amax or its decode scale. Other formats need nothing.
void add_global_scale(const mxq_tensor& t, int32_t part, const char* name, Buffers& buffers);

}  // namespace mxq
