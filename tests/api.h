// Owning handles of the C API, and the few calls that most tests make.
#ifndef MXQ_TESTS_API_H
#define MXQ_TESTS_API_H

#include "device.h"
#include "oracle.h"

#include <optional>
#include <utility>

namespace testing {

// Throws where a call failed that a test expects to succeed.
inline void ok(mxq_status status) {
    if (status != MXQ_STATUS_OK) throw std::runtime_error(std::string(mxq_status_name(status)) + ": " + mxq_last_error());
}

template <class T, void (*destroy)(T*)>
class Handle {
public:
    Handle() = default;
    explicit Handle(T* handle) : handle_(handle) {}
    Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Handle& operator=(Handle&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Handle() { destroy(handle_); }
    operator T*() const { return handle_; }
    T** out() { return &handle_; }

private:
    T* handle_ = nullptr;
};

using Context = Handle<mxq_context, mxq_context_destroy>;
using Tensor = Handle<mxq_tensor, mxq_tensor_destroy>;
using Plan = Handle<mxq_plan, mxq_plan_destroy>;
using QuantizeOptions = Handle<mxq_quantize_options, mxq_quantize_options_destroy>;
using GemmOptions = Handle<mxq_gemm_options, mxq_gemm_options_destroy>;

inline Context cpu_context(int32_t threads) {
    Handle<mxq_context_options, mxq_context_options_destroy> options;
    Context context;
    ok(mxq_context_options_create(options.out()));
    ok(mxq_context_options_set_threads(options, threads));
    ok(mxq_context_create(MXQ_DEVICE_CPU, 0, options, context.out()));
    return context;
}

// Returns a context for calls that read no memory.
inline mxq_context* any_context() {
    static const Context context = cpu_context(1);
    return context;
}

// A shape with or without experts, for which the API has two create functions.
struct Dims {
    std::optional<int64_t> experts;
    int64_t rows, cols;
    oracle::Shape shape() const { return {experts.value_or(1), rows, cols}; }
};

inline Tensor make_tensor(int32_t format, Dims dims) {
    Tensor tensor;
    ok(dims.experts ? mxq_tensor_create_3d(format, *dims.experts, dims.rows, dims.cols, tensor.out())
                    : mxq_tensor_create_2d(format, dims.rows, dims.cols, tensor.out()));
    return tensor;
}

inline Tensor make_quantized(oracle::Spec spec, Dims dims, bool swizzled) {
    Tensor tensor = make_tensor(spec.format, dims);
    ok(mxq_tensor_set_scaling(tensor, spec.scaling));
    ok(mxq_tensor_set_swizzled(tensor, swizzled));
    return tensor;
}

inline QuantizeOptions quantize_options(oracle::Spec spec) {
    QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    ok(mxq_quantize_options_set_scale_rounding(options, spec.rounding));
    ok(mxq_quantize_options_set_nonfinite(options, spec.nonfinite));
    return options;
}

inline GemmOptions gemm_options(int32_t a, int32_t b, int32_t accumulate = 0, const char* implementation = nullptr) {
    GemmOptions options;
    ok(mxq_gemm_options_create(options.out()));
    ok(mxq_gemm_options_set_transpose(options, a, b));
    ok(mxq_gemm_options_set_accumulate(options, accumulate));
    ok(mxq_gemm_options_set_implementation(options, implementation));
    return options;
}

// Returns options that also ask for exact products, for bounds that allow errors of sums only. Implementations that move
// scales into the codes have tests of their own.
inline GemmOptions exact_gemm_options(int32_t a, int32_t b, int32_t accumulate, const char* implementation = nullptr) {
    GemmOptions options = gemm_options(a, b, accumulate, implementation);
    ok(mxq_gemm_options_set_exact_products(options, 1));
    return options;
}

// Sets groups whose ends have as many bytes as their type and count say.
inline mxq_status set_ends(mxq_tensor* tensor, const void* ends, int32_t type, int32_t count) {
    const uint64_t bytes = (type == MXQ_TYPE_INT64 ? 8u : 4u) * static_cast<uint64_t>(std::max(count, 0));
    return mxq_tensor_set_groups(tensor, ends, bytes, type, count);
}

// The codes and scales of one part in a device's memory, either of the size that the tensor requires or with given content.
class PartBuffers {
public:
    PartBuffers(Device& device, mxq_tensor* tensor, int32_t part, size_t offset = 0) {
        uint64_t code_bytes = 0, scale_bytes = 0;
        ok(mxq_tensor_required_bytes(tensor, part, &code_bytes, &scale_bytes));
        codes = std::make_unique<Buffer>(device, static_cast<size_t>(code_bytes), offset);
        scales = std::make_unique<Buffer>(device, static_cast<size_t>(scale_bytes), offset * 3);
        set(tensor, part);
    }
    PartBuffers(Device& device, mxq_tensor* tensor, int32_t part, const oracle::Part& content, size_t offset = 0)
        : codes(std::make_unique<Buffer>(device, content.codes, offset)),
          scales(std::make_unique<Buffer>(device, content.scales, offset * 3)) {
        set(tensor, part);
    }
    void set(mxq_tensor* tensor, int32_t part) const {
        ok(mxq_tensor_set_part(tensor, part, codes->data(), codes->bytes(), scales->data(), scales->bytes()));
    }

    std::unique_ptr<Buffer> codes, scales;
};

// Returns a text that says how many bytes of two arrays differ and which is the first, or "" if none do.
inline std::string difference(const Bytes& got, const Bytes& expected) {
    if (got.size() != expected.size())
        return std::to_string(got.size()) + " bytes, expected " + std::to_string(expected.size());
    size_t count = 0, first = 0;
    for (size_t i = got.size(); i-- > 0;)
        if (got[i] != expected[i]) ++count, first = i;
    if (count == 0) return "";
    char text[120];
    std::snprintf(text, sizeof text, "%zu of %zu bytes differ, first byte %zu: %02X, expected %02X", count, got.size(), first,
                  got[first], expected[first]);
    return text;
}

}  // namespace testing

#endif
