// One call of the library as a line of text: its verb, tensors, groups, options and values. Two programs that read the same
// line make the same call.
//
//     verb=quantize in=bf16:gap=3 out=mxfp8_e4m3:32x32:both:groups=1/32 shape=70x64 groups=3x10,0,5 values=ties:17
//
// A tensor is format[:scaling][:swizzled][:columnwise|:both][:groups=rowwise/columnwise alignment][:gap=elements]
// [:indexed=rows][:hadamard=part/rowwise mask/columnwise mask][:apart=gaps behind each line and each expert of codes/.../of
// scales][:listed][:memory]. `shape` is rows x cols or experts x rows x cols; of a product it is m x n x k. `groups` lists
// the rows of each group, 3x10 being three groups of ten. Whatever a line leaves out has the default that Call gives it.
//
// The verbs of the layer read `in` and, where they have one, `d` (the residual of combine, the gradient of the result for
// activate_backward and combine_backward), and write `out`. The shape of activate is that of its result, without the gates;
// of route it is tokens x choices x experts, of combine tokens x choices x columns.
#ifndef MXQ_TESTS_SEARCH_CALL_H
#define MXQ_TESTS_SEARCH_CALL_H

#include "../formats.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace search {

struct Side {
    int32_t format = MXQ_FORMAT_F32, scaling = MXQ_SCALING_NONE;
    bool swizzled = false;
    int32_t parts = MXQ_PART_ROWWISE;  // that are declared
    bool grouped = false;
    int64_t rowwise = 1, columnwise = 0;  // alignments of its groups
    int64_t gap = 0;                      // elements between the rows of a plain tensor
    int64_t indexed = 0;                  // 0: rows as they lie; else by index, among one row more for each above 1
    int32_t hadamard = 0;                 // parts that are transformed
    int32_t rowwise_mask = 0xD7E8, columnwise_mask = 0xD7E8;
    // Gaps of parts that are read: bytes behind each line and expert of codes, scales behind each line and expert of scales.
    int64_t code_line = 0, code_expert = 0, scale_line = 0, scale_expert = 0;
    bool listed = false;  // experts have an address each
    bool memory = false;  // mxq_tensor_set_memory lays out its buffers in one block

    bool plain() const { return format <= MXQ_FORMAT_BF16; }
    bool transforms(int32_t part) const { return (hadamard & part) != 0; }
    bool has_gaps() const { return code_line || code_expert || scale_line || scale_expert; }
    bool is_apart() const { return listed || has_gaps(); }
    // The part that a verb other than a product reads.
    int32_t read_part() const { return parts & MXQ_PART_ROWWISE ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE; }
    bool operator==(const Side&) const = default;
};

struct GroupRun {
    int64_t count = 1, rows = 0;
    bool operator==(const GroupRun&) const = default;
};
using GroupRuns = std::vector<GroupRun>;

// Names the values of an operand; draw_values and raw_part (values.h) say what each kind is.
struct Values {
    std::string kind = "normal";
    uint64_t seed = 1;
    std::vector<int64_t> keep = {};  // first and last row, first and last column, ends excluded: others are zero; empty: all

    bool operator==(const Values&) const = default;
};

struct Call {
    std::string verb = "quantize";
    Side first, second, d;  // in and out, or a, b and d
    std::vector<int64_t> shape = {1, 1};
    std::optional<GroupRuns> groups = {};
    int32_t ends_type = MXQ_TYPE_INT32;
    bool host_ends = false;  // grouped_gemm: A also has its ends on the host
    bool starts = false;     // pad_groups: the padded starts and ends are wanted
    bool own_ends = false;   // on a CPU all tensors but the first have equal ends in other memory
    bool cover = false;      // the tensors with groups say that these cover all rows
    bool read_only = false;  // operands are set as memory that may only be read
    Values values = {}, second_values = {};
    std::map<std::string, int64_t> offsets = {};  // elements from a multiple of 256 bytes to each buffer

    int32_t rounding = 0, nonfinite = 0, four_over_six = 0;  // 0: not set
    bool keep_hadamard = false;  // dequantize does not undo the transform
    int32_t source = 0;          // dequantize and requantize: the part that is read; 0: not set
    bool stochastic = false;
    bool compute_amax = false;  // NVFP4; FP8: the amax is written
    bool own_amax = false;      // NVFP4: both parts are given an amax, and not the same
    bool given_scale = false;   // FP8 TENSOR: the quantization scale is given
    bool power_of_two = false;
    float epsilon = 0;
    bool per_expert = false;
    bool t256 = false;          // NVFP4: the largest block scale is 256
    bool decode_scale = false;  // NVFP4 that is read: a decode scale in place of the amax

    int32_t transpose_a = MXQ_TRANSPOSE_N, transpose_b = MXQ_TRANSPOSE_T;
    float alpha = 1, beta = 0;
    bool accumulate = false, exact = false;
    bool same_rows = false;  // rows must be invariant
    int32_t bias = 0;      // its format; 0: none
    int64_t sm_count = 0;  // multiprocessors that a device may take, which a CPU refuses; 0: not set

    int32_t activation = 0, gate_layout = 0;  // 0: not set
    float clamp_alpha = 1.702f, clamp_limit = 7, clamp_addend = 1;
    int32_t row_weights = 0;                               // of activate: their format; 0: none
    bool bias_gradient = false;                            // of activate_backward: wanted
    bool weight_gradient = false;                          // of activate_backward and combine_backward: wanted
    bool row_gradient = true;                              // of combine_backward: out is wanted
    bool residual = false;                                 // of combine: d is given
    std::string ids = "uniform";                           // how experts are chosen: draw_choices (layer.cpp) lists the ways
    int32_t id_type = MXQ_TYPE_INT32, choice_weights = 0;  // 0: no weights
    int64_t first_expert = 0, local_experts = 0;           // of this rank; 0 and 0: all
    bool counts_dropped = false;                           // of route: ids out of range are counted
    bool computed = false;                                 // combine: the arrays of the routing are set one by one

    std::string implementation = "";  // "": every one that takes the call
    std::string broken = "";          // the rule that the call breaks (broken.h); "": none
    int64_t broken_at = 0;            // which of the places where it can be broken

    // Returns whether the call is as large as those that are kept for the edges of a GPU's kernels.
    bool is_large() const {
        int64_t size = 1;
        for (int64_t length : shape) size *= length;
        return size > (is_product() ? int64_t{1} << 28 : int64_t{1} << 20);
    }
    bool is_product() const { return verb == "gemm" || verb == "grouped_gemm"; }
    bool is_activation() const { return verb == "activate" || verb == "activate_backward"; }
    bool is_routed() const { return verb == "route" || verb == "combine" || verb == "combine_backward"; }
    bool is_layer() const { return is_activation() || is_routed(); }
    bool reads_d() const { return verb == "activate_backward" || verb == "combine_backward" || (verb == "combine" && residual); }
    // Returns whether a quantized `out` is made of numbers, by the options of quantize.
    bool quantizes() const { return verb == "quantize" || verb == "requantize" || is_activation(); }
    // Returns whether the product reads the rowwise part of B for want of a columnwise one.
    bool reads_b_by_rows() const {
        const bool both_as_they_are = transpose_a == MXQ_TRANSPOSE_N && transpose_b == MXQ_TRANSPOSE_N;
        return is_product() && both_as_they_are && !second.plain() && !(second.parts & MXQ_PART_COLUMNWISE);
    }
    bool contracts_groups() const { return verb == "grouped_gemm" && transpose_a == MXQ_TRANSPOSE_T; }
    std::optional<int64_t> experts() const {
        return !is_product() && !is_routed() && shape.size() == 3 ? std::optional(shape[0]) : std::nullopt;
    }
    int64_t m() const { return shape[0]; }
    int64_t n() const { return shape[1]; }
    int64_t k() const { return shape[2]; }
    // The rows that groups divide.
    int64_t rows() const {
        if (is_routed()) return m() * n();
        return is_product() ? (contracts_groups() ? k() : m()) : shape[shape.size() - 2];
    }
    int64_t cols() const { return shape.back(); }
    testing::Dims dims() const { return {experts(), rows(), cols()}; }
    int64_t group_count() const;
    // The part of the first tensor that dequantize and requantize read.
    int32_t source_part() const { return source ? source : first.read_part(); }
    // The ends of the groups, at most rows().
    oracle::Ends ends() const;
};

std::string text_of(const Call& call);

// Reads a line that text_of wrote. Throws std::runtime_error for any other.
Call parse_call(const std::string& line);

// Changes a drawn or shrunk call into one that the contract allows, if `broken` does not break it.
void repair(Call& call);

// Repairs what the verbs of the layer add to a call, and takes it from all other calls.
void repair_layer(Call& call);

}  // namespace search

#endif
