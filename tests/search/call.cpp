#include "call.h"

#include <functional>
#include <sstream>
#include <stdexcept>

namespace search {

int64_t Call::group_count() const {
    int64_t count = 0;
    if (groups)
        for (const GroupRun& run : *groups) count += run.count;
    return count;
}

oracle::Ends Call::ends() const {
    oracle::Ends ends;
    int64_t end = 0;
    if (groups)
        for (const GroupRun& run : *groups)
            for (int64_t i = 0; i < run.count; ++i) ends.push_back(end = std::min(end + run.rows, rows()));
    return ends;
}

namespace {

[[noreturn]] void refuse(const std::string& text, const std::string& expected) {
    throw std::runtime_error("\"" + text + "\": expected " + expected);
}

std::vector<std::string> split(const std::string& text, char at) {
    std::vector<std::string> out;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, at);) out.push_back(part);
    return out;
}

template <class List, class Print>
std::string joined(const List& list, const char* between, Print print) {
    std::string out;
    for (const auto& one : list) {
        if (!out.empty()) out += between;
        out += print(one);
    }
    return out;
}

// ---- Names -----------------------------------------------------------------------------------------------------------

using Names = std::vector<std::pair<std::string, int32_t>>;

const Names formats = [] {
    Names out;
    for (int32_t format = MXQ_FORMAT_F32; format <= MXQ_FORMAT_FP8_E5M2; ++format)
        out.emplace_back(mxq_format_name(format), format);
    return out;
}();
const Names scalings = {{"none", MXQ_SCALING_NONE},   {"1x32", MXQ_SCALING_1X32},       {"32x32", MXQ_SCALING_32X32},
                        {"1x128", MXQ_SCALING_1X128}, {"128x128", MXQ_SCALING_128X128}, {"1x16", MXQ_SCALING_1X16},
                        {"16x16", MXQ_SCALING_16X16}, {"row", MXQ_SCALING_ROW},         {"tensor", MXQ_SCALING_TENSOR}};
const Names parts = {
    {"rowwise", MXQ_PART_ROWWISE}, {"columnwise", MXQ_PART_COLUMNWISE}, {"both", MXQ_PART_ROWWISE | MXQ_PART_COLUMNWISE}};
const Names roundings = {{"floor", MXQ_SCALE_ROUNDING_FLOOR},
                         {"ceil", MXQ_SCALE_ROUNDING_CEIL},
                         {"even", MXQ_SCALE_ROUNDING_EVEN},
                         {"rceil", MXQ_SCALE_ROUNDING_RCEIL}};
const Names policies = {{"propagate", MXQ_NONFINITE_PROPAGATE}, {"saturate", MXQ_NONFINITE_SATURATE}};
const Names modes = {{"mae", MXQ_FOUR_OVER_SIX_MAE}, {"mse", MXQ_FOUR_OVER_SIX_MSE}};
const Names transposes = {{"n", MXQ_TRANSPOSE_N}, {"t", MXQ_TRANSPOSE_T}};
const Names activations = {{"swiglu", MXQ_ACTIVATION_SWIGLU},
                           {"geglu_erf", MXQ_ACTIVATION_GEGLU_ERF},
                           {"geglu_tanh", MXQ_ACTIVATION_GEGLU_TANH},
                           {"swiglu_clamped", MXQ_ACTIVATION_SWIGLU_CLAMPED},
                           {"silu", MXQ_ACTIVATION_SILU},
                           {"gelu_erf", MXQ_ACTIVATION_GELU_ERF},
                           {"gelu_tanh", MXQ_ACTIVATION_GELU_TANH},
                           {"squared_relu", MXQ_ACTIVATION_SQUARED_RELU}};
const Names gate_layouts = {{"gate_up", MXQ_GATE_LAYOUT_GATE_UP},
                            {"up_gate", MXQ_GATE_LAYOUT_UP_GATE},
                            {"interleaved_gate_up", MXQ_GATE_LAYOUT_INTERLEAVED_GATE_UP},
                            {"interleaved_up_gate", MXQ_GATE_LAYOUT_INTERLEAVED_UP_GATE}};
const Names integer_types = {{"int32", MXQ_TYPE_INT32}, {"int64", MXQ_TYPE_INT64}};

const std::string* name_in(const Names& names, int32_t value) {
    for (const auto& [name, number] : names)
        if (number == value) return &name;
    return nullptr;
}
const int32_t* value_in(const Names& names, const std::string& text) {
    for (const auto& [name, number] : names)
        if (name == text) return &number;
    return nullptr;
}

// ---- Values as text and back -----------------------------------------------------------------------------------------

std::string print(bool value) { return value ? "1" : "0"; }
std::string print(int64_t value) { return std::to_string(value); }
std::string print(const std::string& value) { return value; }
std::string print(float value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));
    return text;
}
std::string print(const std::vector<int64_t>& sizes) {
    return joined(sizes, "x", [](int64_t size) { return std::to_string(size); });
}
std::string print(const std::optional<GroupRuns>& groups) {
    if (!groups) return "";
    if (groups->empty()) return "empty";
    return joined(*groups, ",", [](const GroupRun& run) {
        std::string out = std::to_string(run.rows);
        if (run.count != 1) out.insert(0, std::to_string(run.count) + "x");
        return out;
    });
}
std::string print(const Values& values) {
    std::string out = values.kind;
    out.append(":").append(std::to_string(values.seed));
    if (!values.keep.empty())
        out.append(":").append(joined(values.keep, ",", [](int64_t at) { return std::to_string(at); }));
    return out;
}
std::string print(const std::map<std::string, int64_t>& offsets) {
    return joined(offsets, ",", [](const auto& offset) {
        std::string out = offset.first;
        return out.append(":").append(std::to_string(offset.second));
    });
}
std::string print(const Side& side) {
    std::string out = *name_in(formats, side.format);
    if (!side.plain()) out += ":" + *name_in(scalings, side.scaling);
    if (side.swizzled) out += ":swizzled";
    if (side.parts != MXQ_PART_ROWWISE) out += ":" + *name_in(parts, side.parts);
    if (side.grouped) out += ":groups=" + std::to_string(side.rowwise) + "/" + std::to_string(side.columnwise);
    if (side.gap) out += ":gap=" + std::to_string(side.gap);
    if (side.indexed) out += ":indexed=" + std::to_string(side.indexed);
    if (side.hadamard)
        out += ":hadamard=" + *name_in(parts, side.hadamard) + "/" + std::to_string(side.rowwise_mask) + "/" +
               std::to_string(side.columnwise_mask);
    if (side.has_gaps())
        out += ":apart=" + joined(std::vector<int64_t>{side.code_line, side.code_expert, side.scale_line, side.scale_expert},
                                  "/", [](int64_t gap) { return std::to_string(gap); });
    if (side.listed) out += ":listed";
    if (side.memory) out += ":memory";
    return out;
}

void read(const std::string& text, int64_t& value) {
    size_t used = 0;
    try {
        value = std::stoll(text, &used);
    } catch (const std::exception&) {
    }
    if (used != text.size() || text.empty()) refuse(text, "an integer");
}
void read(const std::string& text, int32_t& value) {
    int64_t wide = 0;
    read(text, wide);
    value = static_cast<int32_t>(wide);
}
void read(const std::string& text, bool& value) {
    if (text != "0" && text != "1") refuse(text, "0 or 1");
    value = text == "1";
}
void read(const std::string& text, std::string& value) { value = text; }
void read(const std::string& text, float& value) {
    char* end = nullptr;
    value = std::strtof(text.c_str(), &end);
    if (text.empty() || *end) refuse(text, "a number");
}
void read(const std::string& text, std::vector<int64_t>& sizes) {
    sizes.clear();
    for (const std::string& part : split(text, 'x')) read(part, sizes.emplace_back());
    if (sizes.size() < 2 || sizes.size() > 3) refuse(text, "two or three sizes");
}
void read(const std::string& text, std::optional<GroupRuns>& groups) {
    groups.emplace();
    if (text == "empty") return;
    for (const std::string& part : split(text, ',')) {
        const size_t times = part.find('x');
        GroupRun run;
        if (times != std::string::npos) read(part.substr(0, times), run.count);
        read(times == std::string::npos ? part : part.substr(times + 1), run.rows);
        groups->push_back(run);
    }
}
void read(const std::string& text, Values& values) {
    const auto fields = split(text, ':');
    if (fields.size() < 2 || fields.size() > 3)
        refuse(text, "kind:seed or kind:seed:first row,last row,first column,last column");
    values.kind = fields[0];
    values.seed = std::stoull(fields[1]);
    values.keep.clear();
    if (fields.size() == 3)
        for (const std::string& at : split(fields[2], ',')) read(at, values.keep.emplace_back());
    if (!values.keep.empty() && values.keep.size() != 4) refuse(text, "four numbers after the second colon");
}
void read(const std::string& text, std::map<std::string, int64_t>& offsets) {
    offsets.clear();
    for (const std::string& part : split(text, ',')) {
        const auto fields = split(part, ':');
        if (fields.size() != 2) refuse(part, "buffer:elements");
        read(fields[1], offsets[fields[0]]);
    }
}
void read_hadamard(const std::string& text, Side& side) {
    const auto fields = split(text, '/');
    const int32_t* transformed = fields.size() == 3 ? value_in(parts, fields[0]) : nullptr;
    if (!transformed) refuse(text, "a part and two masks");
    side.hadamard = *transformed;
    read(fields[1], side.rowwise_mask);
    read(fields[2], side.columnwise_mask);
}
void read_apart(const std::string& text, Side& side) {
    const auto fields = split(text, '/');
    if (fields.size() != 4) refuse(text, "four gaps");
    read(fields[0], side.code_line);
    read(fields[1], side.code_expert);
    read(fields[2], side.scale_line);
    read(fields[3], side.scale_expert);
}
void read(const std::string& text, Side& side) {
    side = {};
    const auto fields = split(text, ':');
    const int32_t* format = fields.empty() ? nullptr : value_in(formats, fields[0]);
    if (!format) refuse(text, "a format's name first");
    side.format = *format;
    if (!side.plain()) side.scaling = oracle::default_scaling(side.format);
    for (size_t i = 1; i < fields.size(); ++i) {
        const std::string& field = fields[i];
        if (const int32_t* scaling = value_in(scalings, field))
            side.scaling = *scaling;
        else if (const int32_t* part = value_in(parts, field))
            side.parts = *part;
        else if (field == "swizzled")
            side.swizzled = true;
        else if (field == "listed")
            side.listed = true;
        else if (field == "memory")
            side.memory = true;
        else if (field.rfind("apart=", 0) == 0)
            read_apart(field.substr(6), side);
        else if (field.rfind("gap=", 0) == 0)
            read(field.substr(4), side.gap);
        else if (field.rfind("indexed=", 0) == 0)
            read(field.substr(8), side.indexed);
        else if (field.rfind("hadamard=", 0) == 0)
            read_hadamard(field.substr(9), side);
        else if (const size_t slash = field.find('/'); field.rfind("groups=", 0) == 0 && slash != std::string::npos) {
            side.grouped = true;
            read(field.substr(7, slash - 7), side.rowwise);
            read(field.substr(slash + 1), side.columnwise);
        } else
            refuse(
                field,
                "a scaling, swizzled, a part, groups=A/B, gap=N, indexed=N, hadamard=PART/MASK/MASK, apart=N/N/N/N, listed or memory");
    }
}

// ---- The fields of a line --------------------------------------------------------------------------------------------

struct Field {
    std::string name;
    std::function<std::string(const Call&)> get;
    std::function<void(Call&, const std::string&)> set;
};

template <class T>
Field field(const char* name, T Call::*member) {
    return {name, [=](const Call& call) { return print(call.*member); },
            [=](Call& call, const std::string& text) { read(text, call.*member); }};
}
Field field(const char* name, int32_t Call::*member, const Names& names) {
    return {name,
            [=](const Call& call) {
                const std::string* known = name_in(names, call.*member);
                return known ? *known : "";
            },
            [=](Call& call, const std::string& text) {
                const int32_t* known = value_in(names, text);
                if (!known) refuse(text, "one of " + joined(names, ", ", [](const auto& name) { return name.first; }));
                call.*member = *known;
            }};
}

const std::vector<Field>& fields() {
    static const std::vector<Field> all = {
        field("verb", &Call::verb),
        field("in", &Call::first),
        field("a", &Call::first),
        field("out", &Call::second),
        field("b", &Call::second),
        field("d", &Call::d),
        field("shape", &Call::shape),
        field("groups", &Call::groups),
        field("ends", &Call::ends_type, integer_types),
        field("host_ends", &Call::host_ends),
        field("starts", &Call::starts),
        field("own_ends", &Call::own_ends),
        field("cover", &Call::cover),
        field("read_only", &Call::read_only),
        field("values", &Call::values),
        field("b_values", &Call::second_values),
        field("rounding", &Call::rounding, roundings),
        field("nonfinite", &Call::nonfinite, policies),
        field("four_over_six", &Call::four_over_six, modes),
        field("keep_hadamard", &Call::keep_hadamard),
        field("source", &Call::source, parts),
        field("stochastic", &Call::stochastic),
        field("compute_amax", &Call::compute_amax),
        field("own_amax", &Call::own_amax),
        field("given_scale", &Call::given_scale),
        field("power_of_two", &Call::power_of_two),
        field("epsilon", &Call::epsilon),
        field("per_expert", &Call::per_expert),
        field("t256", &Call::t256),
        field("decode_scale", &Call::decode_scale),
        field("transpose_a", &Call::transpose_a, transposes),
        field("transpose_b", &Call::transpose_b, transposes),
        field("alpha", &Call::alpha),
        field("beta", &Call::beta),
        field("accumulate", &Call::accumulate),
        field("exact", &Call::exact),
        field("same_rows", &Call::same_rows),
        field("bias", &Call::bias, formats),
        field("sm_count", &Call::sm_count),
        field("activation", &Call::activation, activations),
        field("gate_layout", &Call::gate_layout, gate_layouts),
        field("clamp_alpha", &Call::clamp_alpha),
        field("clamp_limit", &Call::clamp_limit),
        field("clamp_addend", &Call::clamp_addend),
        field("row_weights", &Call::row_weights, formats),
        field("bias_gradient", &Call::bias_gradient),
        field("weight_gradient", &Call::weight_gradient),
        field("row_gradient", &Call::row_gradient),
        field("residual", &Call::residual),
        field("ids", &Call::ids),
        field("id_type", &Call::id_type, integer_types),
        field("choice_weights", &Call::choice_weights, formats),
        field("first_expert", &Call::first_expert),
        field("local_experts", &Call::local_experts),
        field("counts_dropped", &Call::counts_dropped),
        field("computed", &Call::computed),
        field("offsets", &Call::offsets),
        field("implementation", &Call::implementation),
        field("broken", &Call::broken),
        field("broken_at", &Call::broken_at),
    };
    return all;
}

// Returns whether a call of this verb has the field: the tensors of products have other names.
bool belongs(const Field& field, const Call& call) {
    if (field.name == "in" || field.name == "out") return !call.is_product();
    if (field.name == "d") return call.is_product() || call.reads_d();
    if (field.name == "a" || field.name == "b") return call.is_product();
    return true;
}

bool always(const Field& field) {
    for (const char* name : {"verb", "in", "out", "a", "b", "d", "shape"})
        if (field.name == name) return true;
    return false;
}

}  // namespace

std::string text_of(const Call& call) {
    static const Call plain;
    std::string out;
    for (const Field& field : fields()) {
        const std::string value = field.get(call);
        if (!belongs(field, call) || (!always(field) && value == field.get(plain))) continue;
        if (!out.empty()) out += ' ';
        out.append(field.name).append("=").append(value);
    }
    return out;
}

Call parse_call(const std::string& line) {
    Call call;
    for (const std::string& word : split(line, ' ')) {
        if (word.empty()) continue;
        const size_t equals = word.find('=');
        bool known = false;
        for (const Field& field : fields()) {
            if (equals == std::string::npos || field.name != word.substr(0, equals)) continue;
            field.set(call, word.substr(equals + 1));
            known = true;
            break;
        }
        if (!known) refuse(word, "field=value with the fields that call.h lists");
    }
    if (call.is_product() && call.shape.size() != 3) refuse(line, "a shape of m x n x k");
    if (call.is_routed() && call.shape.size() != 3)
        refuse(line, "a shape of three numbers: tokens, choices and experts or columns");
    return call;
}

}  // namespace search
