// Fills memory of a device with lines that repeat, and counts bytes of lines that do not.
#ifndef MXQ_TESTS_LARGE_REPEATED_H
#define MXQ_TESTS_LARGE_REPEATED_H

#include <cstdint>

namespace testing {

// Many lines of `length` bytes, each of which repeats the first `period` bytes of its own.
struct Repetition {
    uint64_t lines, length, period;
};

// Both take addresses of device memory, and end with the work done. They throw what CUDA says.
// Writes lines of `to`, each from its line of `period` bytes in `from`.
void repeat(uint8_t* to, const uint8_t* from, const Repetition& repetition);
// Returns how many bytes of `lines` differ from those that repeat() would write.
uint64_t count_differences(const uint8_t* lines, const uint8_t* from, const Repetition& repetition);

}  // namespace testing

#endif
