// Operands of products in any format, drawn at random, and what their bound is. Shared by the tests of gemm and grouped_gemm that
// run every format.
#ifndef MXQ_TESTS_GEMM_OPERANDS_H
#define MXQ_TESTS_GEMM_OPERANDS_H

#include "../formats.h"
#include "product.h"

namespace products {

inline const oracle::Spec plain = testing::spec_of(MXQ_FORMAT_BF16, MXQ_SCALING_NONE);

inline bool is_plain(const oracle::Spec& spec) { return spec.format <= MXQ_FORMAT_BF16; }

inline oracle::Spec plain_spec(int32_t format) { return testing::spec_of(format, MXQ_SCALING_NONE); }

inline oracle::Spec draw(const oracle::Spec& base, cases::Random& random) {
    oracle::Spec spec = base;
    if (is_plain(spec)) return spec;
    if (testing::has_amax(spec)) spec.per_matrix = random.below(2);
    if (testing::is_nvfp4(spec)) spec.nvfp4_t = random.below(2) ? 448.0f : 256.0f;
    return spec;
}

// Draws normal values, sometimes with outliers, sometimes of a magnitude far from 1, sometimes with a few NaNs.
inline oracle::Floats draw_values(cases::Random& random, size_t count) {
    const int64_t kind = random.below(6);
    const int shift = kind == 1 ? static_cast<int>(random.below(80)) - 60 : 0;
    oracle::Floats x(count);
    for (float& value : x) {
        value = std::ldexp(random.normal(), shift);
        if (kind == 2 && random.below(50) == 0) value *= 1000;
        if (kind == 3 && random.below(400) == 0) value = NAN;
    }
    return x;
}

// An operand: its tensor, its buffers, and the values that it decodes to.
struct Operand {
    testing::Tensor tensor;
    std::unique_ptr<testing::InputPart> part;
    std::unique_ptr<testing::Buffer> data;
    oracle::Floats lines;  // values, (matrices, outer, k); of a grouped operand, see make_grouped
};

// Returns the numbers in a plain format, within its range, since a bound wants no infinity.
inline oracle::Bytes stored_numbers(int32_t format, oracle::Floats x) {
    if (format == MXQ_FORMAT_F16)
        for (float& value : x)
            if (std::fabs(value) > 65504) value = std::copysign(65504.0f, value);
    return oracle::store(format, x);
}

inline Operand make_plain(testing::Device& device, int32_t format, const oracle::Floats& x, testing::Dims dims, size_t offset) {
    Operand out;
    oracle::Bytes bytes = stored_numbers(format, x);
    out.tensor = testing::make_tensor(format, dims);
    out.lines = oracle::load(format, bytes.data(), x.size());
    out.data = std::make_unique<testing::Buffer>(device, bytes, offset * static_cast<size_t>(oracle::plain_bytes(format)));
    testing::ok(mxq_tensor_set_data(out.tensor, out.data->data(), out.data->bytes()));
    return out;
}

// Returns each (rows, cols) matrix as (cols, rows).
inline oracle::Floats each_transposed(const oracle::Floats& x, oracle::Shape shape) {
    oracle::Floats out;
    for (int64_t e = 0; e < shape.experts; ++e) {
        const oracle::Floats one = oracle::transposed(x.data() + e * shape.rows * shape.cols, shape.rows, shape.cols);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

// Makes an operand of `outer` lines of k codes. If `transposed`, the tensor is (k, outer) and its columnwise part is used, or its
// rows where it is plain.
inline Operand make_operand(testing::Device& device, const oracle::Spec& spec, std::optional<int64_t> matrices, int64_t outer, int64_t k,
                            bool transposed, bool swizzled, cases::Random& random, size_t offset) {
    testing::Dims dims = transposed ? testing::Dims{matrices, k, outer} : testing::Dims{matrices, outer, k};
    oracle::Floats x = draw_values(random, dims.shape().count());
    if (is_plain(spec)) {
        Operand out = make_plain(device, spec.format, x, dims, offset);
        if (transposed) out.lines = each_transposed(out.lines, dims.shape());
        return out;
    }
    int32_t part = transposed ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE;
    oracle::Part stored = oracle::quantize(spec, x, dims.shape(), part, swizzled);
    Operand out;
    out.tensor = testing::make_tensor(spec, dims, swizzled);
    out.lines = oracle::lines(spec, stored, dims.shape(), part, swizzled);
    out.part = std::make_unique<testing::InputPart>(device, out.tensor, spec, part, stored, offset);
    return out;
}

inline bool is_exact(const oracle::Spec& spec) { return is_plain(spec) || oracle::is_mx(spec.format); }

// Says of two operands what their bound depends on.
struct Kinds {
    Kinds(const oracle::Spec& a, const oracle::Spec& b)
        : f16(a.format == MXQ_FORMAT_F16 && b.format == MXQ_FORMAT_F16),
          exact(is_exact(a) && is_exact(b) && (f16 || a.format != MXQ_FORMAT_F16)) {}
    bool f16, exact;
};

inline std::string check(const oracle::Promise& promise, Kinds kinds, const std::vector<oracle::Element>& expected, const oracle::Floats& d,
                         int32_t format, int64_t k, bool accumulate) {
    double factor = oracle::bound_factor(promise, k, kinds.exact);
    if (factor < 0) return "no class of bound from " + promise.implementation;
    if (d.size() != expected.size()) return "the test lost elements";
    if (kinds.f16) return oracle::check_product(oracle::of_f16(expected, promise.implementation), d, format, factor + accumulate);
    return oracle::check_product(expected, d, format, factor + accumulate);
}

inline bool draw_swizzled(const oracle::Spec& spec, cases::Random& random, bool grouped_columns = false) {
    return !is_plain(spec) && random.below(2) && testing::can_swizzle(spec, grouped_columns);
}

inline std::string text(const oracle::Spec& a, const oracle::Spec& b) {
    const auto one = [](const oracle::Spec& spec) { return is_plain(spec) ? mxq_format_name(spec.format) : testing::describe(spec); };
    return one(a) + " x " + one(b);
}

}  // namespace products

#endif
