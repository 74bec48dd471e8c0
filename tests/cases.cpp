#include "cases.h"

namespace cases {

const std::vector<uint32_t>& special_bits() {
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

float value(Values kind, Random& random) {
    const auto& specials = special_bits();
    switch (kind) {
        case Values::bits: return oracle::float_of(random.bits());
        case Values::normal: return random.normal();
        case Values::wide: return std::ldexp(random.normal(), static_cast<int>(random.below(270)) - 140);
        case Values::specials:
            return random.below(3) ? random.normal() * 100
                                   : oracle::float_of(
                                         specials[static_cast<size_t>(random.below(static_cast<int64_t>(specials.size())))]);
    }
    return 0;
}

oracle::Bytes plain_values(int32_t format, Values kind, size_t count, uint64_t seed) {
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
                half = format == MXQ_FORMAT_F16 ? oracle::to_f16(oracle::float_of(bits))
                                                : oracle::to_bf16(oracle::float_of(bits));
            std::memcpy(&out[i * 2], &half, 2);
        }
    }
    return out;
}

oracle::Floats values(Values kind, size_t count, uint64_t seed) {
    return oracle::load(MXQ_FORMAT_F32, plain_values(MXQ_FORMAT_F32, kind, count, seed).data(), count);
}

}  // namespace cases
