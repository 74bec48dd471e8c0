#include "check.h"

#include "bounds.h"
#include "broken.h"

#include <sstream>

namespace search {

namespace {

std::string status_text(mxq_status status) {
    return std::string(mxq_status_name(status)) +
           (status == MXQ_STATUS_OK ? "" : std::string(" (") + mxq_last_error() + ")");
}

// Returns "" if what read() brought back is as it was before the call or must be after it. `skipped` is not compared.
std::string compare(const Bound& bound, bool after, const std::string& skipped) {
    for (const auto& [name, image] : bound.problem.images) {
        const std::span<const uint8_t> got = bound.content(name);
        const Bytes& expected = after ? image.after : image.before;
        if (name == skipped || std::equal(got.begin(), got.end(), expected.begin(), expected.end())) continue;
        return name + ": " + testing::difference({got.begin(), got.end()}, expected);
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
            if (!testing::has_amax(plan.spec) && amax != 0) return differ(prefix + ".amax", amax, 0);
            if (plan.side.listed) {  // the sizes of one expert
                const bool plain = plan.side.plain();
                const int64_t of_code = (plain ? data_lying(plan) : code_lying(plan, part)).expert_bytes(),
                              of_scale = plain ? 0 : scale_lying(plan, part).expert_bytes();
                if (auto text = differ(of_codes, codes, static_cast<uint64_t>(of_code)); !text.empty()) return text;
                if (auto text = differ(prefix + ".scales", scales, static_cast<uint64_t>(of_scale)); !text.empty())
                    return text;
                continue;
            }
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
std::string check_d(const Problem& problem, std::span<const uint8_t> d, const oracle::Promise& promise) {
    const TensorPlan& plan = problem.tensors[2];
    const int64_t n = plan.dims.cols, element = oracle::plain_bytes(plan.side.format),
                  stride = (n + plan.side.gap) * element;
    Bytes rest(d.begin(), d.end());
    const Image& image = problem.images.at("d.data");
    oracle::Floats values;
    for (const Piece& piece : problem.pieces) {
        values.clear();
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

// A query without memory must answer as one with it.
std::string ask_without_memory(Runner& runner, const Problem& problem) {
    if (problem.call.groups && problem.call.group_count() == 0) return "";  // NULL would clear them
    Bound bare(runner, problem, "");
    bare.forget_memory();
    const mxq_status status = bare.query(nullptr);
    return status == MXQ_STATUS_OK ? "" : "the query without memory: " + status_text(status);
}

// Returns "" if the implementation of a plan does what the contract says.
std::string run_planned(Bound& bound, const mxq_plan* plan) {
    const Problem& problem = bound.problem;
    const bool is_product = problem.call.is_product();
    if ((mxq_plan_bound(plan) != MXQ_BOUND_NONE) != is_product) return "the wrong class of bound";
    bound.add_workspace(mxq_plan_workspace_bytes(plan));
    bound.fill();
    if (const mxq_status status = bound.run(); status != MXQ_STATUS_OK)
        return "the query succeeds, the call: " + status_text(status);
    bound.read();
    if (auto text = compare(bound, true, is_product ? "d.data" : ""); !text.empty()) return text;
    if (!is_product) return "";
    return check_d(problem, bound.content("d.data"), {mxq_plan_implementation(plan), mxq_plan_bound(plan)});
}

// Returns "" if calls by the names of implementations that declined are refused too, and write nothing.
std::string run_declined(Bound& bound, const std::vector<std::string>& names) {
    if (names.empty()) return "";
    bound.add_workspace(0);
    bound.fill();
    for (const std::string& name : names) {
        bound.ask_for(name);
        if (const mxq_status status = bound.run(); status != MXQ_STATUS_UNSUPPORTED)
            return "the query for " + name + " declines, the call: " + status_text(status);
    }
    bound.read();
    if (auto text = compare(bound, false, ""); !text.empty()) return "an implementation that declined has written: " + text;
    return "";
}

// Returns the names of a verb's implementations. The API lists them nowhere but in the refusal of an unknown name, so if its
// words change, the search must stop rather than go on with none.
std::vector<std::string> implementations(Runner& runner, const Problem& problem) {
    const Bound bound(runner, problem, "no such thing");
    if (bound.query(nullptr) != MXQ_STATUS_UNSUPPORTED)
        throw std::runtime_error("an unknown implementation was not refused");
    const std::string message = mxq_last_error(), before = "expected one of: ";
    const size_t first = message.find(before), last = message.find(';', first);
    std::vector<std::string> out;
    if (first != std::string::npos && last != std::string::npos) {
        std::istringstream names(message.substr(first + before.size(), last - first - before.size()));
        for (std::string name; std::getline(names >> std::ws, name, ',');) out.push_back(name);
    }
    if (out.empty()) throw std::runtime_error("no list of implementations in: " + message);
    return out;
}

// Returns the same, from a list that is asked for once for each verb.
const std::vector<std::string>& known_implementations(Runner& runner, const Problem& problem) {
    auto& known = runner.implementations[problem.call.verb];
    if (known.empty()) known = implementations(runner, problem);
    return known;
}

// Returns whether a product has operands that a device does not multiply: plain ones, since tensor cores take BF16 beside all that
// becomes BF16, and F16 with F16 or, as A, beside quantized numbers; rows of weights across the contraction under fp32 scales
// that are no factors of sums.
bool is_of_cpu_alone(const Call& call) {
    if (!call.is_product()) return false;
    const bool of_lines = call.second.scaling == MXQ_SCALING_ROW || call.second.scaling == MXQ_SCALING_1X128;
    if (call.reads_b_by_rows() && oracle::is_fp8(call.second.format) && of_lines) return true;
    const auto is_other = [](const Side& side) { return side.plain() && side.format != MXQ_FORMAT_BF16; };
    const bool takes_f16 = call.second.format == MXQ_FORMAT_F16 || !call.second.plain();
    return (is_other(call.first) || is_other(call.second)) && !(call.first.format == MXQ_FORMAT_F16 && takes_f16);
}

bool has_operands_apart(const Call& call) { return call.first.is_apart() || call.second.is_apart(); }

// Returns "" if a product of such operands is refused, in words that say what converts them, or what else nobody takes here.
std::string check_refused_operands(Runner& runner, const Problem& problem) {
    const mxq_status status = Bound(runner, problem, "").query(nullptr);
    if (status != MXQ_STATUS_UNSUPPORTED) return "operands that only the CPU multiplies: " + status_text(status);
    const std::string message = mxq_last_error();
    if (problem.call.same_rows && message.find("row_invariant") != std::string::npos) {
        Problem free_rows = problem;  // whose refusal says the rest
        free_rows.call.same_rows = false;
        return check_refused_operands(runner, free_rows);
    }
    for (const char* remedy : {"mxq_convert", "quantize a columnwise part", "mxq_tensor_set_strides", "mxq_tensor_set_part_list",
                               "mxq_tensor_set_data_list"})
        if (message.find(remedy) != std::string::npos) return "";
    return "no remedy in the message: " + message;
}

// Returns "" if a call whose operands lie apart, which no implementation of a device takes, is refused in words that say so.
std::string check_refused_apart(Runner& runner, const Problem& problem) {
    const mxq_status status = Bound(runner, problem, "").query(nullptr);
    if (status != MXQ_STATUS_UNSUPPORTED) return "operands that lie apart: " + status_text(status);
    const bool says = std::string(mxq_last_error()).find("mxq_tensor_set_") != std::string::npos;
    return says ? "" : std::string("no setter in the message: ") + mxq_last_error();
}

// Returns "" if a CPU refuses a limit of multiprocessors. It is taken back then.
std::string check_refused_limit(Bound& bound, int64_t sm_count) {
    bound.set_limit(sm_count);
    const mxq_status status = bound.query(nullptr);
    const std::string message = mxq_last_error();
    bound.set_limit(0);
    if (status != MXQ_STATUS_UNSUPPORTED) return "a limit of multiprocessors on a CPU: " + status_text(status);
    const bool says = message.find("mxq_gemm_options_set_sm_count") != std::string::npos;
    return says ? "" : "no mxq_gemm_options_set_sm_count in the message: " + message;
}

// Returns whether an implementation adds up the same numbers in the same order on any number of multiprocessors.
bool sums_alike(const std::string& implementation) {
    return implementation == "wgmma_fp8_sm90";
}

// Returns "" if D, which a call with a limit of multiprocessors left, has the same bits without it.
std::string compare_without_limit(Bound& bound, const std::string& implementation) {
    const std::span<const uint8_t> d = bound.content("d.data");
    const Bytes limited(d.begin(), d.end());
    bound.set_limit(0);
    bound.ask_for(implementation);
    testing::Plan plan;
    if (const mxq_status status = bound.query(plan.out()); status != MXQ_STATUS_OK)
        return "the query without a limit: " + status_text(status);
    std::string text = run_planned(bound, plan);
    if (text.empty()) {
        const std::span<const uint8_t> all = bound.content("d.data");
        text = testing::difference(limited, {all.begin(), all.end()});
    }
    bound.set_limit(bound.problem.call.sm_count);
    return text.empty() ? "" : "without a limit of multiprocessors: " + text;
}

// Returns whether nobody takes a call because of its limit of multiprocessors, as the message says.
bool is_refused_for_limit(const Call& call) {
    return call.sm_count != 0 && std::string(mxq_last_error()).find("mxq_gemm_options_set_sm_count") != std::string::npos;
}

// Returns whether nobody on this device promises invariant rows of the call, as the message says.
bool is_refused_for_rows(const Call& call) {
    return call.same_rows && std::string(mxq_last_error()).find("cannot promise the same bits for a row") != std::string::npos;
}

std::string about(const std::string& implementation, const std::string& text) { return implementation + ": " + text; }

// Runs a valid call on one runner by the implementation that it asks for, or by the best one and on CUDA by every other.
std::string check_on(Runner& runner, const Problem& problem, Counts& counts, Bytes& d_of_cpu) {
    const Call& call = problem.call;
    if (!runner.device->is_cpu() && is_of_cpu_alone(call)) return check_refused_operands(runner, problem);
    if (!runner.device->is_cpu() && has_operands_apart(call)) return check_refused_apart(runner, problem);
    Bound bound(runner, problem, call.implementation);
    if (auto text = compare_sizes(bound); !text.empty()) return text;
    if (runner.device->is_cpu() && call.sm_count)
        if (auto text = check_refused_limit(bound, call.sm_count); !text.empty()) return text;
    if (!runner.device->is_cpu() && bound.query(nullptr) == MXQ_STATUS_UNSUPPORTED &&
        (is_refused_for_limit(call) || is_refused_for_rows(call)))
        return "";
    if (auto text = ask_without_memory(runner, problem); !text.empty()) return text;

    std::vector<std::string> names = {call.implementation}, declined;
    while (!names.empty()) {
        const std::string name = names.back();
        names.pop_back();
        bound.ask_for(name);
        testing::Plan plan;
        const mxq_status asked = bound.query(plan.out());
        if (asked == MXQ_STATUS_UNSUPPORTED && !name.empty()) {
            declined.push_back(name);
            continue;
        }
        if (asked != MXQ_STATUS_OK) return "the query: " + status_text(asked);
        const std::string implementation = mxq_plan_implementation(plan);
        if (!name.empty() && implementation != name) return about(implementation, "it answers for " + name);
        if (auto text = run_planned(bound, plan); !text.empty()) return about(implementation, text);
        if (call.sm_count && !runner.device->is_cpu() && (call.same_rows || sums_alike(implementation)))
            if (auto text = compare_without_limit(bound, implementation); !text.empty()) return about(implementation, text);
        ++counts.runs[call.verb + " " + implementation];
        if (!name.empty() || runner.device->is_cpu()) continue;
        for (const std::string& other : known_implementations(runner, problem))
            if (other != implementation) names.push_back(other);
    }
    if (runner.device->is_cpu() && call.is_product() && declined.empty()) {
        const std::span<const uint8_t> d = bound.content("d.data");
        if (d_of_cpu.empty())
            d_of_cpu.assign(d.begin(), d.end());
        else if (auto text = testing::difference({d.begin(), d.end()}, d_of_cpu); !text.empty())
            return "d differs from that of another instruction set: " + text;
    }
    return run_declined(bound, declined);
}

std::string check_valid(const Problem& problem, std::vector<Runner>& runners, Counts& counts) {
    Bytes d_of_cpu;
    for (Runner& runner : runners) {
        if (!runner.takes(problem.call)) continue;
        if (auto text = check_on(runner, problem, counts, d_of_cpu); !text.empty()) return runner.name + ": " + text;
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

// Memory that a device does not check may have any effect inside the buffers of the call, and none outside of them.
std::string check_unchecked(Runner& runner, const Problem& problem) {
    Bound bound(runner, problem, problem.call.implementation);
    testing::Plan plan;
    mxq_status status = bound.query(plan.out());
    if (status == MXQ_STATUS_UNSUPPORTED && !problem.call.implementation.empty()) return "";
    if (status != MXQ_STATUS_OK) return "the query: " + status_text(status);
    bound.add_workspace(mxq_plan_workspace_bytes(plan));
    bound.fill();
    status = bound.run();
    if (status != MXQ_STATUS_OK) return "the call: " + status_text(status);
    bound.read();  // throws if a write was outside of the buffers
    for (const auto& [name, image] : problem.images) {
        const std::span<const uint8_t> got = bound.content(name);
        if (!image.written && !std::equal(got.begin(), got.end(), image.before.begin(), image.before.end()))
            return name + " was written";
    }
    return "";
}

// Returns nothing where the call has no place to break the rule.
std::optional<std::string> check_broken_on(Runner& runner, const Problem& problem, const Rule& rule) {
    Bound bound(runner, problem, "");
    testing::Plan plan;
    mxq_status status = bound.query(plan.out());
    if (status != MXQ_STATUS_OK) return "the query before it: " + status_text(status);
    // The workspace has spare bytes, so that the call breaks this rule and not that of its size.
    bound.add_workspace(mxq_plan_workspace_bytes(plan) + spare_workspace);
    if (!rule.apply(bound, problem.call.broken_at)) return std::nullopt;
    bound.fill();
    status = bound.query(nullptr);
    if (auto text = expect("the query", status, rule.query_refuses ? rule.status : MXQ_STATUS_OK, bound.verb_name());
        !text.empty())
        return text;
    if (auto text = expect("the call", bound.run(), rule.status, bound.verb_name()); !text.empty()) return text;
    bound.read();
    if (auto text = compare(bound, false, ""); !text.empty()) return "a refused call has written: " + text;
    if (!bound.workspace_is_poison()) return "a refused call has written its workspace";
    return "";
}

// Memory that a CPU refuses and for which a device has an answer.
std::string check_answer(Runner& runner, const Problem& problem) {
    Counts ignored;
    Bytes none;
    return check_on(runner, problem, ignored, none);
}

std::optional<std::string> check_broken(const Problem& valid, std::vector<Runner>& runners, const Rule& rule) {
    const std::optional<Problem> changed = rule.change ? rule.change(valid, valid.call.broken_at) : std::nullopt;
    if (rule.change && !changed) return std::nullopt;
    const Problem& problem = changed ? *changed : valid;
    for (Runner& runner : runners) {
        if (!runner.takes(problem.call)) continue;
        if (!runner.device->is_cpu() && (is_of_cpu_alone(problem.call) || has_operands_apart(problem.call)))
            return std::nullopt;
        const bool unchecked = changed && !runner.device->is_cpu();
        const auto text = unchecked
                              ? (rule.device_answers ? check_answer(runner, problem) : check_unchecked(runner, problem))
                              : check_broken_on(runner, problem, rule);
        if (!text) return std::nullopt;
        if (!text->empty()) return runner.name + ", rule \"" + rule.name + "\" broken, " + *text;
    }
    return "";
}

}  // namespace

bool may_take(const Call& call, std::vector<Runner>& runners) {
    const Problem outline = make_outline(call);
    for (Runner& runner : runners) {
        Bound bound(runner, outline, call.implementation);
        if (!call.is_routed()) bound.invent_memory();  // whose arrays have exact sizes
        if (bound.query(nullptr) == MXQ_STATUS_OK) return true;
    }
    return false;
}

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
