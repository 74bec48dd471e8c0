// The bytes of one input, read from the front as choices. Behind the last byte everything is 0.
#ifndef MXQ_TESTS_FUZZ_INPUT_H
#define MXQ_TESTS_FUZZ_INPUT_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace fuzz {

class Input {
public:
    Input(const uint8_t* bytes, size_t count) : next_(bytes), end_(bytes + count) {}

    uint8_t byte() { return next_ == end_ ? 0 : *next_++; }
    // Returns 0 to count - 1.
    int32_t below(int32_t count) { return byte() % count; }
    // Returns true for one value of the next byte in `count`, but not for 0.
    bool seldom(int32_t count) { return byte() % count == count - 1; }

    // Returns any number of 64 bits.
    int64_t raw() {
        uint64_t value = 0;
        for (int i = 0; i < 8; ++i) value = value << 8 | byte();
        return static_cast<int64_t>(value);
    }
    // Returns a number that overflows something, or a small one.
    int64_t wild() {
        constexpr int64_t edges[] = {0,
                                     1,
                                     -1,
                                     2,
                                     31,
                                     32,
                                     127,
                                     128,
                                     4096,
                                     4097,
                                     65535,
                                     INT32_MAX,
                                     INT32_MAX - 1,
                                     INT32_MIN,
                                     int64_t{1} << 32,
                                     int64_t{1} << 47,
                                     int64_t{1} << 48,
                                     (int64_t{1} << 48) + 1,
                                     int64_t{1} << 62,
                                     INT64_MAX,
                                     INT64_MIN,
                                     INT64_MAX - 255};
        const uint8_t first = byte();
        if (first < 128) return first;
        if (first < 250) return edges[first % (sizeof edges / sizeof *edges)];
        return raw();
    }
    int32_t wild32() { return static_cast<int32_t>(wild()); }
    float wild_float() {
        const auto bits = static_cast<uint32_t>(raw());
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
    // Returns what is left, at most this many bytes.
    std::string text(size_t longest) {
        std::string all;
        for (size_t count = byte() % (longest + 1); count > 0 && next_ != end_; --count) all += static_cast<char>(*next_++);
        return all;
    }

private:
    const uint8_t *next_, *end_;
};

}  // namespace fuzz

#endif
