// The memory of one call: buffers of exactly the bytes that were asked for, with gaps that nothing may touch. A copy tells
// what a call has changed. AddressSanitizer also finds reads of the gaps.
#ifndef MXQ_TESTS_FUZZ_MEMORY_H
#define MXQ_TESTS_FUZZ_MEMORY_H

#include "input.h"

#include <vector>

namespace fuzz {

// Ends the process with the reason, which a fuzzer keeps with the input.
[[noreturn]] void fail(const char* what, const std::string& details = "");
inline void require(bool holds, const char* what, const std::string& details = "") {
    if (!holds) fail(what, details);
}

struct Buffer {
    uint8_t* address = nullptr;
    uint64_t bytes = 0;
    bool may_be_written = false;
};

class Memory {
public:
    // Forgets all buffers.
    void clear();
    // Returns a buffer at a multiple of `alignment` plus `offset` bytes; NULL with 0 bytes where it does not fit. Its bytes
    // are numbers from a seed.
    Buffer take(uint64_t bytes, bool may_be_written, uint64_t alignment = 16, uint64_t offset = 0, uint32_t seed = 1);

    // Copies everything and forbids the gaps, from here until clear().
    void seal();
    // Puts everything back as it was when it was sealed.
    void restore();
    bool unchanged() const;
    // Returns whether the gaps and the buffers that may not be written are as they were.
    bool kept() const;
    std::vector<uint8_t> content() const;

    bool empty() const { return buffers_.empty(); }
    // Returns a buffer that was taken before, which from now on may be written if the new use writes.
    Buffer share(size_t number, bool may_be_written) {
        Buffer& buffer = buffers_[number % buffers_.size()];
        buffer.may_be_written |= may_be_written;
        return buffer;
    }

private:
    std::vector<Buffer> buffers_;
    uint64_t used_ = 0;
};

}  // namespace fuzz

#endif
