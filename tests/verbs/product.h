// Shared by the tests of gemm and grouped_gemm: operands, a D with gaps between its rows, and a call with its workspace.
#ifndef MXQ_TESTS_PRODUCT_H
#define MXQ_TESTS_PRODUCT_H

#include "../api.h"
#include "../cases.h"
#include "../oracle_product.h"

namespace testing {

struct Transposes {
    int32_t a, b;
};
inline constexpr Transposes all_transposes[] = {{MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T},
                                                {MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_N},
                                                {MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N},
                                                {MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_T}};

// The distribution of an operand's values.
enum class Spread {
    normal,     // quantized normal values
    raw,        // any finite code, scales over 60 powers of two
    nan,        // like raw, with some NaN codes and some scales of 255
    huge,       // scales up to 254, codes of magnitudes below 1
    tiny,       // scales from 0 on, so that values are subnormal
    nan_codes,  // like normal, with two NaN codes
    count
};

// An operand of a product: (rows, k) codes with compact scales, and the values that they decode to.
struct Operand {
    oracle::Part compact;
    oracle::Floats values;
};

inline Operand make_operand(const oracle::Spec& spec, int64_t rows, int64_t k, Spread spread, uint64_t seed) {
    Operand out;
    cases::Random random(seed);
    auto count = static_cast<size_t>(rows * k);
    if (spread == Spread::normal || spread == Spread::nan_codes) {
        out.compact = oracle::quantize_rowwise(spec, cases::values(cases::Values::normal, count, seed).data(), rows, k);
        if (spread == Spread::nan_codes)
            for (int i = 0; i < 2; ++i) out.compact.codes[static_cast<size_t>(random.below(rows * k))] = 0x7F;
    } else {
        bool e4m3 = spec.format == MXQ_FORMAT_MXFP8_E4M3;
        int64_t codes = spread == Spread::huge ? (e4m3 ? 0x38 : 0x3C) : e4m3 ? 0x7F : 0x7C;
        for (size_t i = 0; i < count; ++i)
            out.compact.codes.push_back(static_cast<uint8_t>(random.below(codes) | (random.bits() & 0x80)));
        auto scales = oracle::compact_scale_rows(spec.scaling, rows) * oracle::ceil_div(k, 32);
        int64_t first = spread == Spread::huge ? 195 : spread == Spread::tiny ? 0 : 97;
        for (int64_t i = 0; i < scales; ++i) out.compact.scales.push_back(static_cast<uint8_t>(first + random.below(60)));
        if (spread == Spread::nan && rows && k) {
            for (int i = 0; i < 2; ++i) out.compact.codes[static_cast<size_t>(random.below(rows * k))] = 0x7F;
            if (rows > 4) out.compact.scales[static_cast<size_t>(random.below(scales))] = 255;
        }
    }
    out.values = oracle::dequantize_rowwise(spec.format, spec.scaling, out.compact.codes.data(), out.compact.scales.data(), rows, k);
    return out;
}

// D on a device with gaps between its rows. Everything is poison at first, except values that are given.
class Output {
public:
    Output(Device& device, int32_t format, Dims dims, int64_t gap, const oracle::Floats* previous = nullptr, size_t offset = 0)
        : tensor(make_tensor(format, dims)), format_(format), dims_(dims), gap_(gap) {
        ok(mxq_tensor_set_row_stride(tensor, dims.cols + gap));
        uint64_t bytes = 0;
        ok(mxq_tensor_required_bytes(tensor, MXQ_PART_ROWWISE, &bytes, nullptr));
        image_ = Bytes(static_cast<size_t>(bytes), poison);
        if (previous) place(oracle::store(format, *previous));
        buffer_ = std::make_unique<Buffer>(device, image_, offset * static_cast<size_t>(oracle::plain_bytes(format)));
        ok(mxq_tensor_set_data(tensor, buffer_->data(), buffer_->bytes()));
    }

    // Returns D's values without gaps. Throws if a gap was written, or a row that is false in `written`; NULL: all are true.
    oracle::Floats values(const std::vector<bool>* written = nullptr) const {
        Bytes now = buffer_->read(), dense;
        auto shape = dims_.shape();
        auto row = static_cast<size_t>(shape.cols * oracle::plain_bytes(format_)), stride = row + gap_bytes();
        for (size_t i = 0; i < static_cast<size_t>(shape.experts * shape.rows); ++i) {
            bool is_written = !written || (*written)[i];
            size_t rows_end = i * stride + row, gap_end = std::min(now.size(), (i + 1) * stride);
            for (size_t at = is_written ? rows_end : i * stride; at < gap_end; ++at)
                if (now[at] != image_[at]) throw std::runtime_error("row " + std::to_string(i) + ": a byte was written that is not D's");
            dense.insert(dense.end(), now.begin() + static_cast<std::ptrdiff_t>(i * stride),
                         now.begin() + static_cast<std::ptrdiff_t>(rows_end));
        }
        return oracle::load(format_, dense.data(), shape.count());
    }
    Bytes bytes() const { return buffer_->read(); }
    void* data() const { return buffer_->data(); }
    uint64_t size() const { return buffer_->bytes(); }

    Tensor tensor;

private:
    size_t gap_bytes() const { return static_cast<size_t>(gap_ * oracle::plain_bytes(format_)); }
    void place(const Bytes& dense) {
        auto shape = dims_.shape();
        auto row = static_cast<size_t>(shape.cols * oracle::plain_bytes(format_));
        for (size_t i = 0; row && i < static_cast<size_t>(shape.experts * shape.rows); ++i)
            std::memcpy(&image_[i * (row + gap_bytes())], &dense[i * row], row);
    }

    int32_t format_;
    Dims dims_;
    int64_t gap_;
    Bytes image_;
    std::unique_ptr<Buffer> buffer_;
};

using ProductVerb = decltype(&mxq_gemm);
using ProductQuery = decltype(&mxq_gemm_query);

// Queries a product, and runs it with the workspace that the plan asks for. Returns the implementation's name and its class of bound.
inline oracle::Promise run_product(Device& device, ProductVerb verb, ProductQuery query, mxq_gemm_options* options, mxq_tensor* a,
                               mxq_tensor* b, mxq_tensor* d) {
    Plan plan;
    ok(query(device.context, options, a, b, d, plan.out()));
    Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
    ok(verb(device.context, options, a, b, d, workspace.bytes() ? workspace.data() : nullptr, workspace.bytes(), nullptr));
    workspace.read();
    return {mxq_plan_implementation(plan), mxq_plan_bound(plan)};
}

// Returns the names of the product implementations that every device of this kind has.
inline std::vector<std::string> product_implementations(const Device& device) {
    return {device.is_cpu() ? "cpu" : "mma_bf16"};
}

}  // namespace testing

#endif
