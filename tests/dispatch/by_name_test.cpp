// Every implementation of every verb, asked for by its name, on every device: what it writes is what the CPU writes, and
// none is left out but for want of the device. A plan names a class of bound where it is a product's, and none where it is
// not.
#include "problems.h"

#include "dispatch/choice.h"

using problems::Bytes, problems::Problem, problems::Problems, problems::Scene;

namespace {

bool is_of_device(const std::string& reason) {
    for (const char* word : {"CUDA context", "CPU context", "without CUDA", "sm_", "compute capability", "needs cuBLASLt",
                             "needs a cuBLASLt", "needs libcublasLt"})
        if (reason.find(word) != std::string::npos) return true;
    return false;
}

struct Tried {
    int64_t ran = 0, declined = 0;
    bool lacks_device = false;  // declined something for want of the device
};

// Tries each problem with each implementation. One set-up of a problem serves all queries; each run has its own.
std::vector<Tried> try_all(testing::Device& device, const std::vector<Problem>& problems,
                           const std::vector<std::string>& names) {
    std::vector<Tried> tried(names.size());
    for (const Problem& problem : problems) {
        Scene asked(device);
        problem.set_up(asked);
        std::optional<Bytes> by_cpu;
        for (size_t i = 0; i < names.size(); ++i) {
            if (const auto reason = reason_to_decline(asked, problem, names[i])) {
                ++tried[i].declined;
                tried[i].lacks_device |= is_of_device(*reason);
                continue;
            }
            if (!by_cpu) by_cpu = result(testing::cpu(), problem, "cpu");
            const std::string text = testing::difference(result(device, problem, names[i]), *by_cpu);
            if (!text.empty()) FAIL(names[i] << ", " << problem.text << ": " << text);
            ++tried[i].ran;
        }
    }
    return tried;
}

// Tries all implementations of the verbs that have problems here. Returns how many verbs these are.
int try_verbs(testing::Device& device, const Problems& all) {
    int verbs = 0;
    for (const mxq::VerbNames& verb : mxq::verb_table()) {
        const auto problems = all.find(verb.verb);
        if (problems == all.end()) continue;
        ++verbs;
        const std::vector<std::string>& names = verb.implementations;
        const std::vector<Tried> tried = try_all(device, problems->second, names);
        int ran = 0;
        for (size_t i = 0; i < names.size(); ++i) {
            INFO(verb.verb << ":" << names[i]);
            CHECK(tried[i].ran + tried[i].declined == static_cast<int64_t>(problems->second.size()));
            CHECK((tried[i].ran > 0 || tried[i].lacks_device));
            ran += tried[i].ran > 0;
        }
        INFO(verb.verb);
        CHECK((device.is_cpu() ? ran == 1 : ran >= 1));
    }
    return verbs;
}

constexpr int other_verbs = 10;

}  // namespace

// Every implementation that can run here runs by its name, and writes what the CPU writes. A case for each verb that takes
// long, so that shards share them.
MXQ_EACH_DEVICE("dispatch: every implementation of quantize by its name") {
    CHECK(try_verbs(device, problems::of_quantize()) == 1);
}
MXQ_EACH_DEVICE("dispatch: every implementation of requantize by its name") {
    CHECK(try_verbs(device, problems::of_requantize()) == 1);
}
MXQ_EACH_DEVICE("dispatch: every implementation of the other conversions by its name") {
    CHECK(try_verbs(device, problems::of_other_conversions()) == other_verbs);
}
MXQ_EACH_DEVICE("dispatch: every implementation of activate and its gradient by its name") {
    CHECK(try_verbs(device, problems::of_activations()) == 2);
}
MXQ_EACH_DEVICE("dispatch: every implementation of gemm by its name") { CHECK(try_verbs(device, problems::of_gemm()) == 1); }
MXQ_EACH_DEVICE("dispatch: every implementation of grouped_gemm by its name") {
    CHECK(try_verbs(device, problems::of_grouped_gemm()) == 1);
}

TEST_CASE("dispatch: no verb is left out of the cases by name") { CHECK(mxq::verb_table().size() == 6 + other_verbs); }
