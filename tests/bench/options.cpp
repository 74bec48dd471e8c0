#include "options.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>

#include "suites.h"

namespace {

constexpr const char* text_of_usage = R"(mxq_bench: the times of libmxq's verbs, beside what the device can do.

    mxq_bench --device cuda --suite formats
    mxq_bench --verb quantize --to mxfp8_e4m3:32x32,nvfp4 --parts rowwise,both --shape 4096x7168
    mxq_bench --device cuda --verb gemm --a mxfp8_e4m3 --b mxfp8_e4m3:128x128 --size 8192x8192x8192 --peer bf16

A row is one verb on one set of operands. Lists, separated by commas, make every combination. tests/bench/README.md says how
times are taken, which bytes count, and what a share is of.

Which rows
  --suite LIST            SUITES; options of cases below replace
                          those of the suite, and --verb keeps its rows of these verbs
  --verb LIST             quantize requantize dequantize amax pad_groups unpad_groups swizzle_scales unswizzle_scales gemm
                          grouped_gemm; and a grouped linear layer with all that it quantizes: forward (the output), training
                          (both gradients too)
  --case TEXT             of these rows, those whose verb, case and shape have TEXT in them
Operands of conversions   (a FORMAT is a name such as bf16, or with a scaling: mxfp8_e4m3:128x128)
  --from, --to LIST       FORMATs
  --parts LIST            rowwise columnwise both: of the quantized operand
  --from-part LIST        rowwise columnwise: what requantize reads
  --shape LIST            ROWSxCOLUMNS
  --experts LIST          as many such matrices; 0: one of two dimensions
  --option LIST           none stochastic hadamard four_over_six_mae four_over_six_mse compute_amax delayed; joined by +
  --rounding LIST         floor ceil even rceil: of MX scales
  --padded-groups         pad_groups and unpad_groups write where groups start and end
Operands of products
  --a, --b, --d LIST      FORMATs
  --transpose LIST        nt nn tn tt
  --size LIST             MxNxK; of grouped products as for the forward pass: M tokens, K wide, to N
  --exact                 exact products alone
  --bias                  a bias of D's format is added, for each group one
  --add                   the product is added to D (a beta of 1)
  --peer NAME             in turns with it: sgemm (OpenBLAS, CPU), bf16 (cuBLASLt, or else the library), cublaslt (a bare
                          call); of quantize: experts (a call for each)
Of both
  --scaling LIST          of quantized operands whose FORMAT has none
  --swizzled              scales swizzled; no (default), yes or both as a list
  --scope LIST            tensor (default) expert: one scale or amax for each expert or group
  --groups LIST           ragged groups of rows; 0: none
  --alignment LIST        of the groups, ROWWISExCOLUMNWISE; columnwise 0: the format's own
  --implementation NAME   this one or none
How times are taken       (default: in turns with copy and streams, caches flushed in between)
  --graph                 a graph is replayed over operands that rotate through more than the L2: for less than 50 us
  --host                  the host's time for a call, and with its query
  --rotate                products on the CPU: calls follow one another, and B rotates through as much as the copy reads
The run
  --device cpu|cuda       cpu by default
  --threads N             of the CPU; 0 (default): one per core
  --library FILE          the libmxq.so to measure, in place of this build's; several take turns, and the first is what the
                          last is compared with
  --json FILE             writes the report
  --check FILE            compares with an earlier report; exit code 1 if a row's rate fell by more than --tolerance PERCENT (5)
  --repeats N             of which the median is taken
  --count N, --seed N     of the suite dispatch: how many problems (100), and which
  --copied MIB            of the copy and the streams
  --print-commands        the command of each row, after it
)";

int64_t whole(const std::string& option, const std::string& value, int64_t least) {
    int64_t number = 0;
    const char* end = value.data() + value.size();
    const auto [stopped, error] = std::from_chars(value.data(), end, number);
    if (error != std::errc() || stopped != end || number < least)
        throw std::runtime_error("--" + option + " takes a number from " + std::to_string(least) + ", got " + value);
    return number;
}

// A single size may be written with commas: 8192,8192,8192.
std::vector<std::string> values_of(const std::string& option, std::string value) {
    const bool joined = option == "size" || option == "shape" || option == "alignment";
    if (joined && value.find('x') == std::string::npos) std::replace(value.begin(), value.end(), ',', 'x');
    std::vector<std::string> values = split(value, ',');
    if (values.empty()) throw std::runtime_error("--" + option + " needs a value");
    return values;
}

void set_of_run(Settings& s, const std::string& option, const std::string& value) {
    if (option == "suite")
        s.suites = values_of(option, value);
    else if (option == "case")
        s.only = value;
    else if (option == "device")
        s.device = value;
    else if (option == "threads")
        s.threads = int(whole(option, value, 0));
    else if (option == "library")
        s.libraries.push_back(value);
    else if (option == "json")
        s.json = value;
    else if (option == "check")
        s.check = value;
    else if (option == "tolerance")
        s.tolerance = double(whole(option, value, 0));
    else if (option == "repeats")
        s.repeats = int(whole(option, value, 1));
    else if (option == "count")
        s.count = int(whole(option, value, 1));
    else if (option == "seed")
        s.seed = uint32_t(whole(option, value, 0));
    else if (option == "copied")
        s.copied = size_t(whole(option, value, 1)) << 20;
    else
        throw std::runtime_error("no option --" + option + "; --help has them all");
}

Settings parse(const std::vector<std::string>& arguments) {
    Settings s;
    for (size_t i = 0; i < arguments.size(); ++i) {
        const std::string& argument = arguments[i];
        if (argument.rfind("--", 0) != 0) throw std::runtime_error("expected an option, got " + argument);
        const std::string option = argument.substr(2);
        const bool valued = i + 1 < arguments.size() && arguments[i + 1].rfind("--", 0) != 0;
        if (option == "help")
            s.help = true;
        else if (option == "print-commands")
            s.print_commands = true;
        else if (is_flag(option))
            s.values[option] = values_of(option, valued ? arguments[++i] : "yes");
        else if (!valued)
            throw std::runtime_error(argument + " needs a value, or is unknown");
        else if (is_case_option(option))
            s.values[option] = values_of(option, arguments[i + 1]), ++i;
        else
            set_of_run(s, option, arguments[++i]);
    }
    return s;
}

// The suite line's values with those of the command line in their place; verbs are those that both have.
std::vector<Case> cases_of_line(const SuiteLine& line, const Values& given, bool cuda) {
    Values values = parse(split(line.options, ' ')).values;
    if (const auto wanted = given.find("verb"); wanted != given.end())
        std::erase_if(values["verb"], [&](const std::string& verb) {
            return std::find(wanted->second.begin(), wanted->second.end(), verb) == wanted->second.end();
        });
    std::vector<Case> cases;
    for (const std::string& verb : values["verb"]) {
        Values of_verb = values;
        of_verb["verb"] = {verb};
        for (const auto& [option, list] : given)
            if (option != "verb" && has_option(verb, option)) of_verb[option] = list;
        for (Case& c : expand(of_verb, cuda)) cases.push_back(std::move(c));
    }
    return cases;
}

bool has_suite(const Settings& s, const char* name) { return std::count(s.suites.begin(), s.suites.end(), name) > 0; }

// Refuses what the suite has no use for, and sets what the options leave open.
void complete_dispatch(Settings& s) {
    if (!s.values.empty())
        throw std::runtime_error("the suite dispatch draws its own operands, got --" + s.values.begin()->first);
    if (!s.check.empty()) throw std::runtime_error("the suite dispatch compares with no report, got --check");
    if (s.libraries.size() > 1) throw std::runtime_error("the suite dispatch measures one library, got several");
    if (s.count == 0) s.count = 100;
    if (s.repeats == 0) s.repeats = 7;
    if (s.copied == 0) s.copied = size_t(1) << 20;  // it copies nothing
}

}  // namespace

std::string Settings::program() const {
    return "mxq_bench --device " + device + (cuda() ? "" : " --threads " + std::to_string(threads));
}

Settings parse_settings(const std::vector<std::string>& arguments) {
    Settings s = parse(arguments);
    if (s.help) return s;
    if (s.device != "cpu" && s.device != "cuda") throw std::runtime_error("--device takes cpu or cuda, got " + s.device);
    for (const std::string& suite : s.suites)
        if (!is_suite(suite)) throw std::runtime_error("no suite " + suite + "; there are " + suite_names());
    for (const char* alone : {layer_suite, dispatch_suite})
        if (s.suites.size() > 1 && has_suite(s, alone))
            throw std::runtime_error(std::string("the suite ") + alone + " stands alone, got others beside it");
    if (has_suite(s, dispatch_suite))
        complete_dispatch(s);
    else if (s.count > 0 || s.seed)
        throw std::runtime_error("--count and --seed are of the suite dispatch");
    if (s.suites.empty() && !s.values.count("verb")) throw std::runtime_error("needs --suite or --verb; --help tells more");
    return s;
}

std::vector<Case> cases_of(const Settings& s) {
    std::vector<Case> all;
    if (s.suites.empty()) all = expand(s.values, s.cuda());
    for (const SuiteLine& line : suite_lines()) {
        const bool wanted = std::any_of(s.suites.begin(), s.suites.end(),
                                        [&](const std::string& suite) { return suite == "all" || suite == line.suite; });
        if (!wanted || (*line.device && s.device != line.device)) continue;
        for (Case& c : cases_of_line(line, s.values, s.cuda())) all.push_back(std::move(c));
    }
    std::set<std::string> seen;
    std::erase_if(all, [&](const Case& c) { return !has_text(c, s.only) || !seen.insert(c.command).second; });
    return all;
}

std::string usage() {
    std::string text = text_of_usage;
    return text.replace(text.find("SUITES"), 6, suite_names());
}
