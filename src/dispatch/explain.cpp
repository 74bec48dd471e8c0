#include "dispatch/explain.h"

#include "core/error.h"
#include "core/groups.h"
#include "core/views.h"

namespace mxq {
namespace {

// "CUDA 0" of "CUDA 0, NVIDIA H200, sm_90".
std::string device_of(const Context& context) { return context.description.substr(0, context.description.find(',')); }

// Returns ", 3 rows in no group", or "" where there are none or their number is not known.
std::string ungrouped_text(const GroupedRows& readable) {
    if (!readable.set()) return "";
    const int64_t count = readable.groups.count,
                  rows = readable.rows - (count == 0 ? 0 : read_end(readable.groups, count - 1));
    if (rows <= 0 || rows > readable.rows) return "";  // an end out of order is refused by what runs
    int64_t sum = 0;
    for (int64_t g = 0; g < count; g++) sum += read_end(readable.groups, g);
    return format_text(", %lld %s in no group%s", (long long)rows, rows == 1 ? "row" : "rows",
                       count > 1 && sum == readable.rows ? " (the ends add up to the rows, as sizes would)" : "");
}

}  // namespace

Wanted wanted(const Context& context, const char* verb, std::string_view of_options) {
    if (!of_options.empty()) return {of_options, "options.implementation"};
    const auto forced = context.forced.find(std::string_view(verb));
    if (forced != context.forced.end()) return {forced->second, "MXQ_IMPL"};
    return {};
}

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
    return text;
}

std::string text_of(std::span<const Decline> declined) {
    std::string text;
    for (size_t i = 0; i < declined.size(); i++) {
        text += declined[i].name;
        const std::string reason = declined[i].reason.text();
        const bool shares_reason = i + 1 < declined.size() && declined[i + 1].reason.text() == reason;
        if (shares_reason) text += ", ";
        else text += ": " + reason + (i + 1 < declined.size() ? "; " : "");
    }
    return text;
}

std::string reason_of(const Wanted& wanted, std::span<const Decline> declined) {
    return wanted.name.empty() ? text_of(declined) : std::string("asked for by ") + wanted.by;
}

void refuse_declined(const Wanted& wanted, std::span<const Decline> declined) {
    if (wanted.name.empty())
        throw Error(MXQ_STATUS_UNSUPPORTED,
                    "no implementation takes this (" + text_of(declined) + "); change what they name");
    throw Error(MXQ_STATUS_UNSUPPORTED, std::string(wanted.by) + " asks for an implementation that does not take this (" +
                                            text_of(declined) + "); change what it names, or leave " + wanted.by + " unset");
}

void refuse_name(const Wanted& wanted, const std::string& names) {
    throw Error(MXQ_STATUS_UNSUPPORTED, std::string(wanted.by) + " is \"" + std::string(wanted.name) +
                                            "\", expected one of: " + names + "; or leave it unset");
}

// A product's part follows from the transpose, and the other way round.
std::string detail_of(const GemmProblem& p) {
    const bool a_transposed = p.a.columnwise || p.a.across, b_transposed = !(p.b.columnwise || p.b.across);
    return std::string(a_transposed ? " (T," : " (N,") + (b_transposed ? "T)" : "N)");
}

std::string detail_of(const RouteProblem& p) {
    return format_text(" of %lld tokens to %d of %d experts each", (long long)p.tokens, p.choices, p.experts);
}

std::string note_of(const GemmProblem& p) {
    if (!p.b.across || p.b.scale_type == ScaleType::None) return "";
    return "reads b.rowwise transposed, since b declares no columnwise part";
}

std::string with_note(const std::string& reason, const std::string& note) {
    return reason + (reason.empty() || note.empty() ? "" : "; ") + note;
}

GroupedRows readable_groups(const Context& context, const GemmProblem& p) {
    if (p.grouping == Grouping::None || (!context.is_cpu() && !p.host_ends)) return {};
    GroupedRows readable{p.groups, p.group_rows};
    if (!context.is_cpu()) readable.groups.ends = p.host_ends;
    return readable;
}

std::string detail_of(const ActivateProblem& p) {
    constexpr const char* names[] = {"", "swiglu", "geglu_erf", "geglu_tanh", "swiglu_clamped", "silu", "gelu_erf", "gelu_tanh", "squared_relu"};
    const Source& source = p.quantize.source;
    const Activation kind = source.is_gradient() ? source.gradient.from.kind : source.activated.kind;
    return std::string(" ") + names[int32_t(kind)];
}

std::string line_of(const Context& context, const std::string& verb, const Tensors& tensors, const char* implementation,
                    const std::string& reason, const GroupedRows& readable) {
    std::string line = device_of(context) + ": " + verb;
    for (const mxq_tensor* tensor : tensors)
        if (tensor) line += ", " + tensor_text(*tensor);
    return line + ungrouped_text(readable) + ": " + implementation + (reason.empty() ? "" : " (" + reason + ")");
}

std::string line_of(const Context& context, const char* verb, const Decline& decline) {
    return device_of(context) + ": " + verb + ", declined by " + decline.name + ": " + decline.reason.text();
}

}  // namespace mxq
