#include "case.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <stdexcept>

namespace {

const char* const conversion_tail = " parts swizzled scope shape experts groups alignment implementation";
const char* const product_options = "a b d transpose swizzled scope size exact bias add implementation peer rotate";
const char* const layer_options = "a b d scope size exact implementation peer groups";

struct VerbRow {
    const char* name;
    std::string options;  // that it has, in the order that a command shows
    const char *from, *to;
};

const VerbRow verb_rows[] = {
    {"quantize", std::string("from to option rounding peer") + conversion_tail, "bf16", "mxfp8_e4m3"},
    {"requantize", std::string("from from-part to option rounding") + conversion_tail, "mxfp8_e4m3", "mxfp8_e4m3"},
    {"dequantize", std::string("from to") + conversion_tail, "mxfp8_e4m3", "bf16"},
    {"amax", std::string("from to option") + conversion_tail, "bf16", "nvfp4"},
    {"pad_groups", std::string("from padded-groups") + conversion_tail, "bf16", ""},
    {"unpad_groups", std::string("from padded-groups") + conversion_tail, "bf16", ""},
    {"swizzle_scales", "from parts scope shape experts groups alignment implementation", "mxfp8_e4m3", ""},
    {"unswizzle_scales", "from parts scope shape experts groups alignment implementation", "mxfp8_e4m3", ""},
    {"gemm", product_options, "", ""},
    {"grouped_gemm", std::string(product_options) + " groups alignment", "", ""},
    {"forward", layer_options, "", ""},
    {"training", layer_options, "", ""},
};

const std::vector<std::string> everywhere = {"graph", "host"};
// Written into every command, so that it means the same when a default changes.
const std::vector<std::string> always_written = {"from", "to", "a", "b", "transpose", "parts", "shape", "size"};

const VerbRow& find_verb(const std::string& name) {
    std::string names;
    for (const VerbRow& verb : verb_rows) {
        if (name == verb.name) return verb;
        names += std::string(" ") + verb.name;
    }
    throw std::runtime_error("no verb " + name + "; there are" + names);
}

bool contains(const std::vector<std::string>& list, const std::string& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
}

std::vector<std::string> options_of(const VerbRow& verb) {
    std::vector<std::string> names = split(verb.options, ' ');
    names.insert(names.end(), everywhere.begin(), everywhere.end());
    return names;
}

using Choice = std::map<std::string, std::string>;

std::string default_of(const VerbRow& verb, const std::string& option, const Choice& choice, bool cuda) {
    const std::string name = verb.name;
    const bool moves_groups = name == "pad_groups" || name == "unpad_groups";
    const bool grouped = name == "grouped_gemm" || name == "forward" || name == "training";
    const auto mode = choice.find("host");
    const bool host = mode != choice.end() && mode->second == "yes";
    if (option == "from") return verb.from;
    if (option == "to") return verb.to;
    if (option == "a" || option == "b") return "mxfp8_e4m3";
    if (option == "d") return "bf16";
    if (option == "transpose") return "nt";
    if (option == "parts") return name == "requantize" ? "columnwise" : "rowwise";
    if (option == "from-part") return "rowwise";
    if (option == "shape") return host ? "32x128" : "16384x7168";
    if (option == "size")
        return host ? "32x128x128" : !cuda ? "1024x1024x1024" : grouped ? "32768x2048x7168" : "8192x8192x8192";
    if (option == "groups") return moves_groups || grouped ? "8" : "0";
    if (option == "alignment") return moves_groups ? "128x128" : "1x0";
    if (option == "experts") return "0";
    if (option == "scope") return "tensor";
    if (option == "option" || option == "peer") return "none";
    if (option == "rounding") return "rceil";
    if (option == "implementation") return "";
    return "no";
}

std::vector<int64_t> numbers(const std::string& option, const std::string& text, size_t count) {
    std::vector<int64_t> out;
    bool all_numbers = true;
    for (const std::string& item : split(text, 'x')) {
        const char* end = item.data() + item.size();
        const auto [stopped, error] = std::from_chars(item.data(), end, out.emplace_back());
        all_numbers &= error == std::errc() && stopped == end && out.back() >= 0;
    }
    if (!all_numbers) throw std::runtime_error("--" + option + " takes numbers joined by x, got " + text);
    if (out.size() != count)
        throw std::runtime_error("--" + option + " takes " + std::to_string(count) + " numbers, got " + text);
    return out;
}

// The value's place among the names.
int choose(const std::string& option, const std::string& value, const std::vector<std::string>& names) {
    std::string all;
    for (size_t i = 0; i < names.size(); ++i) {
        if (value == names[i]) return int(i);
        all += " " + names[i];
    }
    throw std::runtime_error("--" + option + " takes" + all + ", got " + value);
}

// MXQ_SCALE_ROUNDING_* from 1 on.
const std::vector<std::string> rounding_names = {"floor", "ceil", "even", "rceil"};

std::string part_name(int32_t parts) { return split("rowwise columnwise both", ' ')[size_t(parts) - 1]; }

std::string name_of(const Case& c) {
    std::string out;
    const std::string from = text(c.from), parts = c.product() ? "" : part_name(c.parts);
    if (c.verb == "quantize")
        out = from + " to " + text(c.to) + " " + parts;
    else if (c.verb == "requantize")
        out = from + " " + part_name(c.from_parts) + " to " + text(c.to) + " " + parts;
    else if (c.verb == "dequantize")
        out = from + " " + parts + " to " + text(c.to);
    else if (c.verb == "amax")
        out = from + " for " + text(c.to) + " " + parts;
    else if (c.product())
        out = (c.layer() ? ""
                         : std::string(c.transpose_a == MXQ_TRANSPOSE_T ? "t" : "n") +
                               (c.transpose_b == MXQ_TRANSPOSE_T ? "t " : "n ")) +
              from + " x " + text(c.to) + " to " + text(c.d);
    else
        out = c.from.format->plain() ? from : from + " " + parts;
    for (const std::string& option : c.options) out += ", " + option;
    if (c.swizzled) out += ", swizzled";
    if (c.rounding != MXQ_SCALE_ROUNDING_RCEIL) out += ", " + rounding_names[size_t(c.rounding) - 1];
    if (c.padded_groups) out += ", starts and ends";
    if (c.per_expert) out += ", a scale a group";
    if (c.exact) out += ", exact";
    if (c.bias) out += ", bias";
    if (c.add) out += ", added";
    if (c.groups > 0 && (c.rowwise_alignment != 1 || c.columnwise_alignment != 0))
        out += ", groups of " + std::to_string(c.rowwise_alignment) + "x" + std::to_string(c.columnwise_alignment);
    if (c.mode != Mode::Turns) out += c.mode == Mode::Graph ? ", graph" : c.mode == Mode::Host ? ", host" : ", rotating";
    return out;
}

void read_common(Case& c, const Choice& choice) {
    const auto value = [&](const char* option) {
        const auto found = choice.find(option);
        return found == choice.end() ? std::string() : found->second;
    };
    const auto yes = [&](const char* option) {
        return !value(option).empty() && choose(option, value(option), {"no", "yes"}) == 1;
    };
    if (yes("graph") + yes("host") + yes("rotate") > 1)
        throw std::runtime_error("--graph, --host and --rotate are ways to take one time: choose one");
    c.mode = yes("graph") ? Mode::Graph : yes("host") ? Mode::Host : yes("rotate") ? Mode::Rotate : Mode::Turns;
    c.swizzled = yes("swizzled"), c.exact = yes("exact"), c.bias = yes("bias"), c.add = yes("add");
    c.padded_groups = yes("padded-groups");
    c.rounding =
        value("rounding").empty() ? MXQ_SCALE_ROUNDING_RCEIL : choose("rounding", value("rounding"), rounding_names) + 1;
    c.peer = value("peer").empty() ? "none" : value("peer");
    if (c.peer != "none" && c.mode != Mode::Turns)
        throw std::runtime_error("a --peer is measured in turns: no --graph, --host or --rotate");
    c.per_expert = choose("scope", value("scope"), {"tensor", "expert"}) == 1;
    c.implementation = value("implementation");
    c.groups = value("groups").empty() ? 0 : int(numbers("groups", value("groups"), 1)[0]);
    const auto alignment =
        value("alignment").empty() ? std::vector<int64_t>{1, 0} : numbers("alignment", value("alignment"), 2);
    c.rowwise_alignment = int32_t(alignment[0]), c.columnwise_alignment = int32_t(alignment[1]);
}

void read_product(Case& c, const Choice& choice) {
    const int transpose = c.layer() ? 1 : choose("transpose", choice.at("transpose"), {"nn", "nt", "tn", "tt"});
    c.transpose_a = transpose & 2 ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N;
    c.transpose_b = transpose & 1 ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N;
    c.from = parse_quantization(choice.at("a"));
    c.to = parse_quantization(choice.at("b"));
    c.d = parse_quantization(choice.at("d"));
    choose("peer", c.peer,
           c.layer() ? std::vector<std::string>{"none", "bf16"}
                     : std::vector<std::string>{"none", "sgemm", "bf16", "cublaslt"});
    if ((c.bias || c.add) && (c.peer == "sgemm" || c.peer == "cublaslt"))
        throw std::runtime_error("--peer " + c.peer + " has no bias and adds to nothing");
    const auto size = numbers("size", choice.at("size"), 3);
    c.size = {size[0], size[1], size[2]};
    c.shape_text = choice.at("size");
}

void read_conversion(Case& c, const Choice& choice) {
    const std::vector<std::string> parts = {"rowwise", "columnwise", "both"};
    const std::vector<std::string> names = {
        "none", "stochastic", "hadamard", "four_over_six_mae", "four_over_six_mse", "compute_amax", "delayed"};
    c.parts = choose("parts", choice.at("parts"), parts) + 1;
    c.from_parts =
        choice.count("from-part") ? choose("from-part", choice.at("from-part"), {"rowwise", "columnwise"}) + 1 : c.parts;
    c.from = parse_quantization(choice.at("from"));
    if (choice.count("to")) c.to = parse_quantization(choice.at("to"));
    const auto shape = numbers("shape", choice.at("shape"), 2);
    c.shape = {shape[0], shape[1], numbers("experts", choice.at("experts"), 1)[0]};
    c.shape_text = (c.shape.experts ? choice.at("experts") + "x" : "") + choice.at("shape");
    if (choice.count("option") && choice.at("option") != "none") c.options = split(choice.at("option"), '+');
    for (const std::string& option : c.options) choose("option", option, names);
    choose("peer", c.peer, {"none", "experts"});
    if (c.peer != "none" && c.shape.experts == 0)
        throw std::runtime_error("--peer experts is a call for each expert: it needs --experts");
    if (c.verb == "dequantize" && c.parts == 3)
        throw std::runtime_error("dequantize reads one part: --parts rowwise or columnwise");
}

// The choice as a case's one command has it: formats without the scaling that is theirs anyway, plain ones without parts.
Choice canonical(const VerbRow& verb, Choice choice) {
    for (const char* operand : {"from", "to", "a", "b", "d"})
        if (const auto found = choice.find(operand); found != choice.end())
            found->second = text(parse_quantization(found->second));
    if (!*verb.to && choice.count("from") && parse_quantization(choice.at("from")).format->plain())
        choice["parts"] = "rowwise";
    return choice;
}

Case make_case(const VerbRow& verb, const Choice& given, bool cuda) {
    const Choice choice = canonical(verb, given);
    Case c{};
    c.verb = verb.name;
    read_common(c, choice);
    if (c.product())
        read_product(c, choice);
    else
        read_conversion(c, choice);
    if (c.groups > 0) c.shape_text += ", " + std::to_string(c.groups) + " groups";
    c.name = name_of(c);
    c.command = "--verb " + c.verb;
    for (const std::string& option : options_of(verb)) {
        const std::string& value = choice.at(option);
        const bool differs = value != default_of(verb, option, choice, cuda);
        if (is_flag(option) ? value == "yes" : differs || contains(always_written, option))
            c.command += " --" + option + (is_flag(option) ? "" : " " + value);
    }
    return c;
}

// Gives the operands without a scaling this one. False where a format does not take it.
bool set_scaling(Choice& choice, const std::string& scaling) {
    parse_scaling(scaling);
    for (const char* operand : {"from", "to", "a", "b"}) {
        const auto found = choice.find(operand);
        if (found == choice.end() || found->second.find(':') != std::string::npos) continue;
        if (parse_quantization(found->second).format->plain()) continue;
        try {
            found->second = text(parse_quantization(found->second + ":" + scaling));
        } catch (const std::runtime_error&) {
            return false;
        }
    }
    return true;
}

// Every combination of the values, the last option's changing fastest.
std::vector<Choice> combinations(const VerbRow& verb, const Values& values, bool cuda) {
    std::vector<Choice> all = {{}};
    std::vector<std::string> names = everywhere;  // first: defaults depend on them
    for (const std::string& option : split(verb.options, ' ')) names.push_back(option);
    for (const std::string& option : names) {
        const auto given = values.find(option);
        std::vector<Choice> next;
        for (const Choice& choice : all) {
            for (const std::string& value :
                 given != values.end() ? given->second : std::vector<std::string>{default_of(verb, option, choice, cuda)}) {
                next.push_back(choice);
                next.back()[option] = value;
            }
        }
        all = std::move(next);
    }
    return all;
}

void check_options(const Values& values, const std::vector<std::string>& verbs) {
    for (const auto& [option, unused] : values) {
        if (option == "verb") continue;
        const bool used = std::any_of(verbs.begin(), verbs.end(),
                                      [&name = option](const std::string& verb) { return has_option(verb, name); });
        if (!used) throw std::runtime_error("--" + option + " means nothing to the verb");
    }
}

}  // namespace

bool Case::has_option(const char* name) const { return contains(options, name); }

std::vector<Case> expand(const Values& values, bool cuda) {
    const std::vector<std::string>& verbs = values.at("verb");
    check_options(values, verbs);
    const auto scalings = values.find("scaling");
    std::vector<Case> cases;
    for (const std::string& name : verbs) {
        const VerbRow& verb = find_verb(name);
        for (const Choice& choice : combinations(verb, values, cuda)) {
            for (const std::string& scaling : scalings != values.end() ? scalings->second : std::vector<std::string>{""}) {
                Choice with_scaling = choice;
                if (!scaling.empty() && !set_scaling(with_scaling, scaling)) continue;
                cases.push_back(make_case(verb, with_scaling, cuda));
            }
        }
    }
    return cases;
}

bool has_option(const std::string& verb, const std::string& option) {
    return option == "scaling" || contains(options_of(find_verb(verb)), option);
}

bool has_text(const Case& c, const std::string& text) {
    return (c.verb + " " + c.name + " " + c.shape_text).find(text) != std::string::npos;
}

bool is_case_option(const std::string& name) {
    if (name == "verb" || name == "scaling") return true;
    return std::any_of(std::begin(verb_rows), std::end(verb_rows),
                       [&](const VerbRow& verb) { return contains(options_of(verb), name); });
}

bool is_flag(const std::string& name) {
    return contains({"swizzled", "exact", "bias", "add", "padded-groups", "graph", "host", "rotate"}, name);
}

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> out;
    std::istringstream in(text);
    for (std::string item; std::getline(in, item, separator);)
        if (!item.empty()) out.push_back(item);
    return out;
}
