// Coverage for libFuzzer from GCC's trace-pc: a table of counters by the address of each edge's end. GCC has none of the tables that
// libFuzzer knows. This file is compiled without coverage and sanitizers.
#include <cstddef>
#include <cstdint>

extern "C" {

void __sanitizer_cov_8bit_counters_init(uint8_t* begin, uint8_t* end);

namespace {
constexpr size_t counter_count = size_t{1} << 16;
uint8_t counters[counter_count];
}  // namespace

void __sanitizer_cov_trace_pc() {
    const auto at = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
    ++counters[(at ^ at >> 16) % counter_count];
}

// GCC calls these at comparisons of floating-point numbers, of which libFuzzer learns nothing.
void __sanitizer_cov_trace_cmpf(float, float) {}
void __sanitizer_cov_trace_cmpd(double, double) {}

}  // extern "C"

namespace {
[[maybe_unused]] const bool is_known = [] {
    __sanitizer_cov_8bit_counters_init(counters, counters + counter_count);
    return true;
}();
}  // namespace
