#include "check.h"

#include "bounds.h"
#include "broken.h"

namespace search {

using testing::Buffer;

namespace {

std::string status_text(mxq_status status) {
    return std::string(mxq_status_name(status)) +
           (status == MXQ_STATUS_OK ? "" : std::string(" (") + mxq_last_error() + ")");
}

// Returns "" if every buffer holds these bytes and nothing around it was written. `skipped` is not compared.
std::string compare(const Bound& bound, bool after, const std::string& skipped) {
    for (const auto& [name, buffer] : bound.buffers) {
        const Image& image = bound.image(name);
        const Bytes got = buffer->read();
        if (name == skipped) continue;
        if (auto text = testing::difference(got, after ? image.after : image.before); !text.empty())
            return name + ": " + text;
    }
    return "";
}

// Returns "" if the descriptor asks for the sizes that the oracle has.
std::string compare_sizes(const Bound& bound) {
    const auto differ = [](const std::string& name, uint64_t asked, uint64_t expected) {
        return asked == expected ? ""
                                 : name + " needs " + std::to_string(asked) + " bytes, expected " + std::to_string(expected);
    };
    for (size_t i = 0; i < bound.tensors.size(); ++i) {
        const TensorPlan& plan = bound.problem.tensors[i];
        for (int32_t part : both_parts) {
            uint64_t codes = 0, scales = 0, amax = 0;
            const std::string prefix = plan.name + (plan.side.plain() ? "" : std::string(".") + part_name(part));
            const std::string of_codes = prefix + (plan.side.plain() ? ".data" : ".codes");
            if (!bound.has(of_codes) && !bound.has(prefix + ".scales") && !bound.has(prefix + ".amax")) continue;
            if (plan.side.plain() && part == MXQ_PART_COLUMNWISE) continue;
            if (mxq_tensor_required_bytes(bound.tensors[i], part, &codes, &scales) != MXQ_STATUS_OK)
                return prefix + ": " + mxq_last_error();
            if (mxq_tensor_required_amax_bytes(bound.tensors[i], part, &amax) != MXQ_STATUS_OK)
                return prefix + ": " + mxq_last_error();
            const std::pair<std::string, uint64_t> sizes[] = {
                {of_codes, codes}, {prefix + ".scales", scales}, {prefix + ".amax", amax}, {prefix + ".decode_scale", amax}};
            for (const auto& [name, asked] : sizes)
                if (bound.has(name))
                    if (auto text = differ(name, asked, bound.image(name).before.size()); !text.empty()) return text;
        }
    }
    return "";
}

// ---- Products ----------------------------------------------------------------------------------------------------------

// Returns "" if D keeps the bound of every element, and holds what it must elsewhere.
std::string check_d(const Problem& problem, const Bytes& d, const oracle::Promise& promise) {
    const TensorPlan& plan = problem.tensors[2];
    const int64_t n = plan.dims.cols, element = oracle::plain_bytes(plan.side.format),
                  stride = (n + plan.side.gap) * element;
    Bytes rest = d;
    const Image& image = problem.images.at("d.data");
    for (const Piece& piece : problem.pieces) {
        oracle::Floats values;
        for (int64_t i = piece.first_row; n && i < piece.first_row + piece.rows; ++i) {
            const oracle::Floats row = oracle::load(plan.side.format, d.data() + i * stride, static_cast<size_t>(n));
            values.insert(values.end(), row.begin(), row.end());
            std::copy_n(image.after.begin() + i * stride, n * element, rest.begin() + i * stride);
        }
        if (auto text = check_piece(problem, piece, values, promise); !text.empty())
            return "rows of d from " + std::to_string(piece.first_row) + ", k " + std::to_string(piece.k) + ": " + text;
    }
    if (auto text = testing::difference(rest, image.after); !text.empty())
        return "d.data outside of what is computed: " + text;
    return "";
}

// ---- Calls that must succeed -------------------------------------------------------------------------------------------

// What one run left behind.
struct Outcome {
    std::string complaint;
    std::string implementation;  // "": the one that was asked for declined
    Bytes d;
};

// A query without memory must answer as one with it.
std::string ask_without_memory(const Bound& bound) {
    testing::Device& device = bound.device;
    Bound bare(device, bound.problem, "");
    for (auto& [name, pointer] : bare.pointers)
        if (name != "bias" && name != "seed_offset" && name.find("quantization_scale") == std::string::npos) pointer = {};
    if (bound.problem.call.groups && bound.problem.call.group_count() == 0) return "";  // NULL would clear them
    bare.point();
    const mxq_status status = bare.query(nullptr);
    return status == MXQ_STATUS_OK ? "" : "the query without memory: " + status_text(status);
}

Outcome run(Runner& runner, const Problem& problem, const std::string& implementation) {
    Outcome out;
    Bound bound(*runner.device, problem, implementation);
    testing::Plan plan;
    const mxq_status asked = bound.query(plan.out());
    const bool declined = !implementation.empty() && asked == MXQ_STATUS_UNSUPPORTED;
    if (asked != MXQ_STATUS_OK && !declined) {
        out.complaint = "the query: " + status_text(asked);
        return out;
    }
    if (declined) {
        const mxq_status status = bound.run(nullptr, 0);
        if (status != asked)
            out.complaint = "the query declines, the call: " + status_text(status);
        else
            out.complaint = compare(bound, false, "");
        return out;
    }
    out.implementation = mxq_plan_implementation(plan);
    const Buffer workspace(*runner.device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
    const mxq_status status = bound.run(workspace.bytes() ? workspace.data() : nullptr, workspace.bytes());
    if (status != MXQ_STATUS_OK) {
        out.complaint = "the query succeeds, the call: " + status_text(status);
        return out;
    }
    workspace.read();
    out.complaint = compare_sizes(bound);
    if (out.complaint.empty()) out.complaint = compare(bound, true, problem.call.is_product() ? "d.data" : "");
    if (out.complaint.empty() && implementation.empty()) out.complaint = ask_without_memory(bound);
    if ((mxq_plan_bound(plan) != MXQ_BOUND_NONE) != problem.call.is_product()) out.complaint = "the wrong class of bound";
    if (!problem.call.is_product() || !out.complaint.empty()) return out;
    out.d = bound.buffers.at("d.data")->read();
    out.complaint = check_d(problem, out.d, {out.implementation, mxq_plan_bound(plan)});
    return out;
}

// Returns the names of a verb's implementations, which the refusal of an unknown name lists.
std::vector<std::string> implementations(Runner& runner, const Problem& problem) {
    std::vector<std::string> out;
    const Bound bound(*runner.device, problem, "no such thing");
    if (bound.query(nullptr) != MXQ_STATUS_UNSUPPORTED)
        throw std::runtime_error("an unknown implementation was not refused");
    const std::string message = mxq_last_error(), before = "expected one of: ";
    const size_t first = message.find(before), last = message.find(';', first);
    if (first == std::string::npos || last == std::string::npos)
        throw std::runtime_error("no list of implementations in: " + message);
    std::string names = message.substr(first + before.size(), last - first - before.size());
    for (size_t at = 0, next; at < names.size(); at = next + 2) {
        next = std::min(names.find(", ", at), names.size());
        out.push_back(names.substr(at, next - at));
        if (next == names.size()) break;
    }
    return out;
}

std::string check_valid(const Problem& problem, std::vector<Runner>& runners, Counts& counts) {
    const Call& call = problem.call;
    Bytes d_of_cpu;
    for (Runner& runner : runners) {
        const auto say = [&](const Outcome& out) {
            return runner.name + ", " + (out.implementation.empty() ? "refused" : out.implementation) + ": " + out.complaint;
        };
        Outcome chosen = run(runner, problem, call.implementation);
        if (!chosen.complaint.empty()) return say(chosen);
        if (chosen.implementation.empty()) continue;
        ++counts.runs[call.verb + " " + chosen.implementation];
        if (runner.device->is_cpu()) {
            if (d_of_cpu.empty())
                d_of_cpu = chosen.d;
            else if (auto text = testing::difference(chosen.d, d_of_cpu); !text.empty())
                return runner.name + ": d differs from that of " + runners[0].name + ": " + text;
            continue;
        }
        if (!call.implementation.empty()) continue;
        for (const std::string& name : implementations(runner, problem)) {
            if (name == chosen.implementation) continue;
            const Outcome other = run(runner, problem, name);
            if (!other.complaint.empty()) return say(other) + ", asked for by its name " + name;
            if (!other.implementation.empty()) ++counts.runs[call.verb + " " + other.implementation];
        }
    }
    return "";
}

// ---- Calls that must be refused ----------------------------------------------------------------------------------------

std::string expect(const std::string& who, mxq_status got, mxq_status expected, const std::string& verb) {
    if (got != expected) return who + ": " + status_text(got) + ", expected " + mxq_status_name(expected);
    if (expected != MXQ_STATUS_OK && std::string(mxq_last_error()).find(verb) == std::string::npos)
        return who + ": the message does not name " + verb + ": " + mxq_last_error();
    return "";
}

// Ends that a device does not check may have any effect inside the buffers of the call, and none outside of them.
std::string check_unchecked_ends(Runner& runner, const Problem& problem) {
    const Bound bound(*runner.device, problem, problem.call.implementation);
    testing::Plan plan;
    mxq_status status = bound.query(plan.out());
    if (status == MXQ_STATUS_UNSUPPORTED && !problem.call.implementation.empty()) return "";
    if (status != MXQ_STATUS_OK) return "the query: " + status_text(status);
    const Buffer workspace(*runner.device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
    status = bound.run(workspace.bytes() ? workspace.data() : nullptr, workspace.bytes());
    if (status != MXQ_STATUS_OK) return "the call: " + status_text(status);
    workspace.read();
    for (const auto& [name, buffer] : bound.buffers) {
        const Bytes got = buffer->read();  // throws if a write was outside of it
        const Image& image = bound.image(name);
        if (!image.written && got != image.before) return name + " was written";
    }
    return "";
}

// Returns nothing where the call has no place to break the rule.
std::optional<std::string> check_broken_on(Runner& runner, const Problem& problem, const Rule& rule) {
    Bound bound(*runner.device, problem, "");
    testing::Plan plan;
    mxq_status status = bound.query(plan.out());
    if (status != MXQ_STATUS_OK) return "the query before it: " + status_text(status);
    const Buffer workspace(*runner.device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)) + 4096);
    if (!rule.apply(bound, problem.call.broken_at)) return std::nullopt;
    status = bound.query(nullptr);
    if (auto text = expect("the query", status, rule.query_refuses ? rule.status : MXQ_STATUS_OK, bound.verb_name());
        !text.empty())
        return text;
    status = bound.run(workspace.data(), workspace.bytes());
    if (auto text = expect("the call", status, rule.status, bound.verb_name()); !text.empty()) return text;
    if (auto text = compare(bound, false, ""); !text.empty()) return "a refused call has written: " + text;
    if (workspace.read() != Bytes(workspace.bytes(), testing::poison)) return "a refused call has written its workspace";
    return "";
}

std::optional<std::string> check_broken(const Problem& valid, std::vector<Runner>& runners, const Rule& rule) {
    const bool wrong_ends = rule.name == "ends";
    const Problem problem = wrong_ends ? with_wrong_ends(valid, valid.call.broken_at) : valid;
    for (Runner& runner : runners) {
        const auto text = wrong_ends && !runner.device->is_cpu() ? check_unchecked_ends(runner, problem)
                                                                 : check_broken_on(runner, problem, rule);
        if (!text) return std::nullopt;
        if (!text->empty()) return runner.name + ", rule \"" + rule.name + "\" broken, " + *text;
    }
    return "";
}

}  // namespace

std::string check_call(const Call& call, std::vector<Runner>& runners, Counts& counts) {
    try {
        const Problem problem = make_problem(call);
        ++counts.calls;
        if (!call.broken.empty() && rule_of(call.broken).suits(call))
            if (auto text = check_broken(problem, runners, rule_of(call.broken))) {
                ++counts.refused;
                return *text;
            }
        return check_valid(problem, runners, counts);
    } catch (const std::exception& error) {
        return error.what();
    }
}

}  // namespace search
