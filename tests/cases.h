// Shapes and values for tests and benchmarks.
#ifndef MXQ_TESTS_CASES_H
#define MXQ_TESTS_CASES_H

#include "oracle.h"

#include <stdexcept>
#include <string>

namespace cases {

// The xorshift64* generator, which gives the same values on every machine.
class Random {
public:
    explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 0x2545F4914F6CDD1Du) {}
    uint32_t bits() {
        state_ ^= state_ >> 12, state_ ^= state_ << 25, state_ ^= state_ >> 27;
        return static_cast<uint32_t>(state_ * 0x2545F4914F6CDD1Du >> 32);
    }
    int64_t below(int64_t limit) {
        if (limit < 1) throw std::logic_error("no number is below " + std::to_string(limit));
        return bits() % limit;
    }
    float uniform() { return static_cast<float>(bits() >> 8) * 0x1p-23f - 1.0f; }  // [-1, 1)
    float normal() { return uniform() + uniform() + uniform() + uniform(); }       // a sum of four is close enough to normal

private:
    uint64_t state_;
};

// Sizes at and beside block boundaries: 0, 1, the neighbours of 32 and 128, and primes.
inline const int64_t awkward_sizes[] = {0, 1, 31, 32, 33, 67, 127, 128, 129, 257};

inline const int32_t plain_formats[] = {MXQ_FORMAT_F32, MXQ_FORMAT_F16, MXQ_FORMAT_BF16};
inline const int32_t formats[] = {MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_MXFP8_E5M2};
inline const int32_t scalings[] = {MXQ_SCALING_1X32, MXQ_SCALING_32X32};
inline const int32_t roundings[] = {MXQ_SCALE_ROUNDING_FLOOR, MXQ_SCALE_ROUNDING_CEIL, MXQ_SCALE_ROUNDING_EVEN,
                                    MXQ_SCALE_ROUNDING_RCEIL};
inline const int32_t policies[] = {MXQ_NONFINITE_PROPAGATE, MXQ_NONFINITE_SATURATE};

// bits: random bits; normal: close to a normal distribution; wide: normal values times 2^-140 to 2^129; specials: normal
// values times 100, of which one in three is replaced by one of special_bits.
enum class Values { bits, normal, wide, specials };
inline const Values all_values[] = {Values::bits, Values::normal, Values::wide, Values::specials};

// Returns the bits of every fp32 value at which a rule of the contract changes its result, with both signs.
const std::vector<uint32_t>& special_bits();

float value(Values kind, Random& random);

// Returns `count` values as bytes of a plain format. Values::bits fills that format with random bits.
oracle::Bytes plain_values(int32_t format, Values kind, size_t count, uint64_t seed);

oracle::Floats values(Values kind, size_t count, uint64_t seed);

// Turns a case number into choices: each choice among n takes the next digit of the number, in base n.
class Digits {
public:
    explicit Digits(int64_t number) : rest_(number) {}
    int64_t next(int64_t base) {
        int64_t digit = rest_ % base;
        rest_ /= base;
        return digit;
    }
    template <class T, size_t count>
    T pick(const T (&choices)[count]) {
        return choices[next(static_cast<int64_t>(count))];
    }
    bool flag() { return next(2) != 0; }

private:
    int64_t rest_;
};

}  // namespace cases

#endif
