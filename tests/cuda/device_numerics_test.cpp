// Conversions on the device against those on the host: device_numerics.cu.
#include "../device.h"
#include "device_numerics.h"

namespace {

void check_outcomes(const std::vector<testing::NumericsOutcome>& outcomes) {
    uint64_t ran = 0;
    for (const auto& outcome : outcomes) {
        INFO(outcome.name << ": the first wrong case is " << outcome.first_wrong);
        CHECK(outcome.wrong == 0);
        ran += outcome.ran;
    }
    CHECK(outcomes.size() == 49);
    CHECK(ran == 88'431'106);
}

}  // namespace

TEST_CASE("device numerics: conversions have the host's bits, as kernels do them", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    check_outcomes(testing::device_numerics());
}

TEST_CASE("device numerics: so have what stands around Blackwell's instructions and the toolkit's conversions", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    check_outcomes(testing::device_numerics_of_toolkit());
}
