// Runs verbs on a device and keeps all the bytes that they write, for tests that compare devices or settings with each
// other.
#ifndef MXQ_TESTS_VERB_BYTES_H
#define MXQ_TESTS_VERB_BYTES_H

#include "../formats.h"
#include "product.h"

namespace testing {

// Runs verbs on one device and appends to `all` what each call writes.
class VerbBytes {
public:
    explicit VerbBytes(Device& device) : device_(device) {}

    void quantize(const oracle::Spec& spec, int32_t input, Dims dims, const Bytes& x) {
        auto in = make_tensor(input, dims), out = make_tensor(spec, dims, false);
        Buffer data(device_, x);
        ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
        OutputPart row(device_, out, spec, MXQ_PART_ROWWISE, true), column(device_, out, spec, MXQ_PART_COLUMNWISE, true);
        run(device_, mxq_quantize, mxq_quantize_query, Options(device_, spec, out), in, out);
        add(row.bytes()), add(column.bytes());
    }
    void dequantize(const oracle::Spec& spec, int32_t part, const oracle::Part& stored, int32_t output, Dims dims) {
        auto in = make_tensor(spec, dims, false), out = make_tensor(output, dims);
        InputPart input(device_, in, spec, part, stored);
        Buffer data(device_, dims.shape().count() * static_cast<size_t>(oracle::plain_bytes(output)));
        ok(mxq_tensor_set_data(out, data.data(), data.bytes()));
        run(device_, mxq_dequantize, mxq_dequantize_query, nullptr, in, out);
        add(data.read());
    }
    void requantize(const oracle::Spec& from, const oracle::Part& stored, const oracle::Spec& to, Dims dims) {
        auto in = make_tensor(from, dims, false), out = make_tensor(to, dims, false);
        InputPart input(device_, in, from, MXQ_PART_ROWWISE, stored);
        OutputPart row(device_, out, to, MXQ_PART_ROWWISE, true), column(device_, out, to, MXQ_PART_COLUMNWISE, true);
        run(device_, mxq_requantize, mxq_requantize_query, Options(device_, to, out), in, out);
        add(row.bytes()), add(column.bytes());
    }
    // `format`: of D, (m, n).
    void multiply(const oracle::Spec& a_spec, const oracle::Part& a, const oracle::Spec& b_spec, const oracle::Part& b,
                  int64_t m, int64_t n, int64_t k, int32_t format = MXQ_FORMAT_F32) {
        auto x = make_tensor(a_spec, {std::nullopt, m, k}, false), y = make_tensor(b_spec, {std::nullopt, n, k}, false);
        InputPart x_part(device_, x, a_spec, MXQ_PART_ROWWISE, a), y_part(device_, y, b_spec, MXQ_PART_ROWWISE, b);
        Output d(device_, format, {std::nullopt, m, n}, 0);
        run_product(device_, mxq_gemm, mxq_gemm_query, nullptr, x, y, d.tensor);
        add(d.bytes());
    }

    Bytes all;

private:
    void add(const Bytes& bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); }
    Device& device_;
};

inline constexpr int32_t both_parts[] = {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE};

// Returns a part of arbitrary codes, also those of NaN and Inf, under scales of which most are of ordinary size. Lines are
// whole bytes.
inline oracle::Part any_codes(const oracle::Spec& spec, Dims dims, int32_t part, uint64_t seed) {
    cases::Random random(seed);
    oracle::Part out = oracle::quantize(spec, oracle::Floats(dims.shape().count(), 0.0f), dims.shape(), part, false);
    for (uint8_t& byte : out.codes) byte = static_cast<uint8_t>(random.bits());
    const auto element = static_cast<size_t>(oracle::scale_bytes(spec.format));
    for (size_t i = 0; i < out.scales.size(); i += element) {
        const float number = random.normal();
        const uint32_t scale = random.below(8) == 0          ? random.bits()
                               : oracle::is_fp8(spec.format) ? oracle::bits_of(number)
                                                             : 100 + random.bits() % 60;
        std::memcpy(&out.scales[i], &scale, element);
    }
    for (float& a : out.amax) a = 1 + std::fabs(random.normal());
    return out;
}

}  // namespace testing

#endif
