// A case: one verb with its operands, as a row of the report has it. It comes from options and can be written as options
// again.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "operands.h"

// Caches flushed in between; a graph over rotating operands; the host's own time; calls one after another, weights rotating.
enum class Mode { Turns, Graph, Host, Rotate };

struct Size {
    int64_t m, n, k;
};

struct Case {
    std::string verb;
    Mode mode;
    std::string name, shape_text;  // as the report shows it
    std::string command;           // its options: what reproduces the row

    Quantization from, to;  // of a product: A and B
    int32_t parts;          // of the quantized operand; of requantize's output
    int32_t from_parts;     // of requantize's input
    Quantization d;
    int32_t transpose_a, transpose_b;
    Shape shape;
    Size size;
    int groups;  // 0: none
    int32_t rowwise_alignment, columnwise_alignment;
    bool swizzled, per_expert, exact, bias, add;
    bool padded_groups;                // pad_groups and unpad_groups write starts and ends
    int32_t rounding;                  // of MX scales, MXQ_SCALE_ROUNDING_*
    std::vector<std::string> options;  // of quantize, requantize and amax
    std::string implementation;        // "": the best
    std::string peer;                  // none; of a product sgemm, bf16, cublaslt; of quantize experts

    // A grouped linear layer from tokens and weights that are not quantized: its output, and both gradients too.
    bool layer() const { return verb == "forward" || verb == "training"; }
    bool product() const { return verb == "gemm" || verb == "grouped_gemm" || layer(); }
    bool has_option(const char* name) const;
};

// Values of options by their names: "parts" -> {"rowwise", "both"}.
using Values = std::map<std::string, std::vector<std::string>>;

// The cases of every combination of the values; options that are not there have their defaults. Throws std::runtime_error
// for unknown values, and for options that none of the verbs has. A scaling that a format does not take makes no case.
std::vector<Case> expand(const Values& values, bool cuda);

bool has_option(const std::string& verb, const std::string& option);
// Whether the text is in what names the row: verb, case and shape.
bool has_text(const Case& c, const std::string& text);
bool is_case_option(const std::string& name);
bool is_flag(const std::string& name);  // whose value may be left out
std::vector<std::string> split(const std::string& text, char separator);
