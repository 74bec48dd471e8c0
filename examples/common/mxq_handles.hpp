// Owning C++ handles for the C API, and one exception for its errors, for the examples.
#pragma once

#include <mxq/mxq.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace mxq_handles {

template <auto Destroy>
struct Destroyer {
    template <class T>
    void operator()(T* handle) const {
        Destroy(handle);
    }
};

using Context = std::unique_ptr<mxq_context, Destroyer<mxq_context_destroy>>;
using ContextOptions = std::unique_ptr<mxq_context_options, Destroyer<mxq_context_options_destroy>>;
using Tensor = std::unique_ptr<mxq_tensor, Destroyer<mxq_tensor_destroy>>;
using QuantizeOptions = std::unique_ptr<mxq_quantize_options, Destroyer<mxq_quantize_options_destroy>>;
using GemmOptions = std::unique_ptr<mxq_gemm_options, Destroyer<mxq_gemm_options_destroy>>;
using Plan = std::unique_ptr<mxq_plan, Destroyer<mxq_plan_destroy>>;

struct Error : std::runtime_error {
    explicit Error(mxq_status status)
        : std::runtime_error(std::string(mxq_status_name(status)) + ": " + mxq_last_error()), status(status) {}
    mxq_status status;
};

inline void check(mxq_status status) {
    if (status != MXQ_STATUS_OK) throw Error(status);
}

// Returns the handle that a create function makes, as in make<Tensor>(mxq_tensor_create_2d, format, rows, cols). Throws
// Error.
template <class Handle, class Create, class... Arguments>
Handle make(Create create, Arguments... arguments) {
    typename Handle::pointer raw = nullptr;
    check(create(arguments..., &raw));
    return Handle(raw);
}

inline Tensor tensor(int32_t format, int64_t rows, int64_t cols) {
    return make<Tensor>(mxq_tensor_create_2d, format, rows, cols);
}
inline Tensor tensor(int32_t format, int64_t experts, int64_t rows, int64_t cols) {
    return make<Tensor>(mxq_tensor_create_3d, format, experts, rows, cols);
}

struct PartBytes {
    uint64_t codes = 0, scales = 0;
};
inline PartBytes required_bytes(const Tensor& tensor, int32_t part = MXQ_PART_ROWWISE) {
    PartBytes bytes;
    check(mxq_tensor_required_bytes(tensor.get(), part, &bytes.codes, &bytes.scales));
    return bytes;
}

}  // namespace mxq_handles
