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
inline const std::vector<uint32_t>& special_bits() {
    static const std::vector<uint32_t> all = [] {
        std::vector<uint32_t> out;
        for (uint32_t magnitude :
             {0x00000000u, 0x00000001u, 0x00000002u, 0x00010000u, 0x003FFFFFu, 0x00400000u, 0x00400001u, 0x007FFFFFu,
              0x00800000u, 0x00800001u, 0x047FFFFFu, 0x04800000u, 0x07FFFFFFu, 0x08000000u, 0x33800000u, 0x387FC000u,
              0x38800000u, 0x3F7FFFFFu, 0x3F800000u, 0x3F800001u, 0x40600001u, 0x43DFFFFFu, 0x43E00000u, 0x43E00001u,
              0x43E80000u, 0x43F00000u, 0x43FFFFFFu, 0x44000000u, 0x47600000u, 0x477FE000u, 0x477FF000u, 0x47800000u,
              0x7E800000u, 0x7EFFFFFFu, 0x7F000000u, 0x7F6FFFFFu, 0x7F700000u, 0x7F7F0000u, 0x7F7F8000u, 0x7F7FFFFFu,
              0x7F800000u, 0x7F800001u, 0x7FA00000u, 0x7FC00000u, 0x7FFFFFFFu})
            for (uint32_t sign : {0u, 0x80000000u}) out.push_back(magnitude | sign);
        return out;
    }();
    return all;
}

inline float value(Values kind, Random& random) {
    const auto& specials = special_bits();
    switch (kind) {
        case Values::bits: return oracle::float_of(random.bits());
        case Values::normal: return random.normal();
        case Values::wide: return std::ldexp(random.normal(), static_cast<int>(random.below(270)) - 140);
        case Values::specials:
            return random.below(3) ? random.normal() * 100
                                   : oracle::float_of(specials[static_cast<size_t>(random.below(static_cast<int64_t>(specials.size())))]);
    }
    return 0;
}

// Returns `count` values as bytes of a plain format. Values::bits fills that format with random bits.
inline oracle::Bytes plain_values(int32_t format, Values kind, size_t count, uint64_t seed) {
    Random random(seed);
    oracle::Bytes out(count * static_cast<size_t>(oracle::plain_bytes(format)));
    for (size_t i = 0; i < count; ++i) {
        uint32_t bits = random.bits();
        if (kind != Values::bits) bits = oracle::bits_of(value(kind, random));
        if (format == MXQ_FORMAT_F32) {
            std::memcpy(&out[i * 4], &bits, 4);
        } else {
            auto half = static_cast<uint16_t>(bits >> 16);
            if (kind != Values::bits)
                half = format == MXQ_FORMAT_F16 ? oracle::to_f16(oracle::float_of(bits)) : oracle::to_bf16(oracle::float_of(bits));
            std::memcpy(&out[i * 2], &half, 2);
        }
    }
    return out;
}

inline oracle::Floats values(Values kind, size_t count, uint64_t seed) {
    return oracle::load(MXQ_FORMAT_F32, plain_values(MXQ_FORMAT_F32, kind, count, seed).data(), count);
}

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
