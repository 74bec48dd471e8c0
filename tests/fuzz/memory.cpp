#include "memory.h"

#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#define MXQ_FUZZ_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MXQ_FUZZ_ASAN 1
#endif
#endif
#ifdef MXQ_FUZZ_ASAN
#include <sanitizer/asan_interface.h>
#define MXQ_FUZZ_FORBID(address, bytes) ASAN_POISON_MEMORY_REGION(address, bytes)
#define MXQ_FUZZ_ALLOW(address, bytes) ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#else
#define MXQ_FUZZ_FORBID(address, bytes) (void)(address), (void)(bytes)
#define MXQ_FUZZ_ALLOW(address, bytes) (void)(address), (void)(bytes)
#endif

namespace fuzz {

namespace {

constexpr uint64_t arena_bytes = 1 << 20, gap = 64;
constexpr uint8_t gap_byte = 0xA5;
alignas(256) uint8_t arena[arena_bytes];
alignas(256) uint8_t before[arena_bytes];

}  // namespace

[[noreturn]] void fail(const char* what, const std::string& details) {
    std::fprintf(stderr, "FAIL  %s: %s\n", what, details.c_str());
    std::abort();
}

void Memory::clear() {
    MXQ_FUZZ_ALLOW(arena, used_ + gap);
    std::memset(arena, gap_byte, gap);
    buffers_.clear();
    used_ = gap;
}

Buffer Memory::take(uint64_t bytes, bool may_be_written, uint64_t alignment, uint64_t offset, uint32_t seed) {
    const uint64_t first = (used_ + alignment - 1) / alignment * alignment + offset;
    if (bytes > arena_bytes / 4 || first + bytes + 2 * gap > arena_bytes) return {};
    std::memset(arena + used_, gap_byte, first - used_);
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (uint64_t i = 0; i < bytes; ++i) {
        if (i % 8 == 0) state = (state ^ state >> 29) * 0xBF58476D1CE4E5B9u + seed;
        arena[first + i] = seed == 0 ? 0 : static_cast<uint8_t>(state >> i % 8 * 8);
    }
    used_ = first + bytes + gap;
    std::memset(arena + first + bytes, gap_byte, gap);
    buffers_.push_back({arena + first, bytes, may_be_written});
    return buffers_.back();
}

void Memory::seal() {
    std::memcpy(before, arena, used_);
    uint8_t* end = arena;
    for (const Buffer& buffer : buffers_) {
        MXQ_FUZZ_FORBID(end, static_cast<size_t>(buffer.address - end));
        end = buffer.address + buffer.bytes;
    }
    MXQ_FUZZ_FORBID(end, static_cast<size_t>(arena + used_ - end));
}

void Memory::restore() {
    for (const Buffer& buffer : buffers_) std::memcpy(buffer.address, before + (buffer.address - arena), buffer.bytes);
}

namespace {

// A gap is compared byte by byte, so that AddressSanitizer lets it be read.
#if defined(__clang__)
__attribute__((no_sanitize("address")))
#elif defined(__GNUC__)
__attribute__((no_sanitize_address))
#endif
bool gap_is_whole(const uint8_t* first, const uint8_t* end) {
    for (const volatile uint8_t* byte = first; byte != end; ++byte)
        if (*byte != gap_byte) return false;
    return true;
}

bool same(const Buffer& buffer) { return std::memcmp(buffer.address, before + (buffer.address - arena), buffer.bytes) == 0; }

}  // namespace

bool Memory::kept() const {
    const uint8_t* end = arena;
    for (const Buffer& buffer : buffers_) {
        if (!gap_is_whole(end, buffer.address) || (!buffer.may_be_written && !same(buffer))) return false;
        end = buffer.address + buffer.bytes;
    }
    return gap_is_whole(end, arena + used_);
}

bool Memory::unchanged() const {
    for (const Buffer& buffer : buffers_)
        if (!same(buffer)) return false;
    return kept();
}

std::vector<uint8_t> Memory::content() const {
    std::vector<uint8_t> all;
    for (const Buffer& buffer : buffers_) all.insert(all.end(), buffer.address, buffer.address + buffer.bytes);
    return all;
}

}  // namespace fuzz
