// Owning handles of the C API, and the text of its last error.
#pragma once
#include <mxq/mxq.h>

#include <memory>
#include <string>

namespace tools {

template <auto destroy>
struct Destroy {
    template <class T>
    void operator()(T* handle) const {
        destroy(handle);
    }
};

using Context = std::unique_ptr<mxq_context, Destroy<mxq_context_destroy>>;
using Tensor = std::unique_ptr<mxq_tensor, Destroy<mxq_tensor_destroy>>;
using GemmOptions = std::unique_ptr<mxq_gemm_options, Destroy<mxq_gemm_options_destroy>>;
using Plan = std::unique_ptr<mxq_plan, Destroy<mxq_plan_destroy>>;

// Returns the last error message without the name of the function, with which it starts.
inline std::string last_reason() {
    const std::string message = mxq_last_error();
    const size_t end = message.find(": ");
    return end == message.npos ? message : message.substr(end + 2);
}

}  // namespace tools
