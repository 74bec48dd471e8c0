// Tensors of torch as the library takes them, over torch's stable ABI, and where a call runs.
#ifndef MXQ_PYTHON_TORCH_CALLS_H
#define MXQ_PYTHON_TORCH_CALLS_H

#include <dlfcn.h>

#include <algorithm>
#include <set>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include "verbs.h"

namespace mxq_python {

using torch::stable::Tensor;
using Integers = std::vector<int64_t>;

// ---- Tensors -----------------------------------------------------------------------------------------------------------

inline Element element_of(int32_t dtype) {
    static const int32_t f32 = aoti_torch_dtype_float32(), f16 = aoti_torch_dtype_float16(),
                         bf16 = aoti_torch_dtype_bfloat16(), i32 = aoti_torch_dtype_int32(), i64 = aoti_torch_dtype_int64(),
                         boolean = aoti_torch_dtype_bool();
    if (dtype == f32) return Element::f32;
    if (dtype == f16) return Element::f16;
    if (dtype == bf16) return Element::bf16;
    if (dtype == i32) return Element::i32;
    if (dtype == i64) return Element::i64;
    return dtype != boolean && aoti_torch_dtype_element_size(dtype) == 1 ? Element::byte : Element::other;
}

inline int32_t dtype_of(mxq_format format) {
    switch (format) {
        case MXQ_FORMAT_F32: return aoti_torch_dtype_float32();
        case MXQ_FORMAT_F16: return aoti_torch_dtype_float16();
        case MXQ_FORMAT_BF16: return aoti_torch_dtype_bfloat16();
        default: refuse("dtype is another one, expected float32, float16 or bfloat16");
    }
}

inline View view_of(const Tensor& tensor) {
    View view;
    const int64_t dims = tensor.dim();
    if (dims > 3) refuse("a tensor has " + std::to_string(dims) + " dimensions, expected 2 or 3; reshape it");
    view.dims = static_cast<int>(dims);
    int64_t *sizes = nullptr, *strides = nullptr;
    int32_t dtype = 0;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor.get(), &sizes));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor.get(), &strides));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
    std::copy(sizes, sizes + dims, view.shape.begin());
    std::copy(strides, strides + dims, view.strides.begin());
    view.data = tensor.data_ptr();
    view.element = element_of(dtype);
    return view;
}

// The device that all tensors of a call are on.
struct Device {
    int32_t type = 0, ordinal = 0;
    bool cuda() const { return type == aoti_torch_device_type_cuda(); }
};

inline Device device_of(const Tensor& tensor) {
    Device device;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &device.type));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor.get(), &device.ordinal));
    return device;
}

inline std::string name_of(const Device& device) { return device.cuda() ? "cuda:" + std::to_string(device.ordinal) : "cpu"; }

inline View view_on(const Tensor& tensor, const Device& device, const char* what) {
    const Device found = device_of(tensor);
    if (found.type != device.type || found.ordinal != device.ordinal)
        refuse(std::string(what) + " is on " + name_of(found) + ", expected " + name_of(device) +
               ", where the rest is; copy it there");
    return view_of(tensor);
}

inline Tensor new_tensor_on(const Device& device, const Shape& shape, int32_t dtype) {
    std::array<int64_t, 3> strides{};
    int64_t step = 1;
    for (size_t i = shape.size(); i-- > 0; step *= std::max<int64_t>(shape[i], 1)) strides[i] = step;
    AtenTensorHandle made = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<int64_t>(shape.size()), shape.data(), strides.data(), dtype,
                                                    device.type, device.ordinal, &made));
    return Tensor(made);
}

// ---- Where a call runs -------------------------------------------------------------------------------------------------

// Holds a context that a `with mxq.Context` block of this thread has set for its device.
struct Entered {
    int32_t type = 0, ordinal = 0;
    mxq_context* context = nullptr;
};
inline thread_local std::vector<Entered> entered;

// The contexts of all blocks that have not ended. One that began on another thread may end here.
struct Blocks {
    std::mutex lock;
    std::multiset<mxq_context*> contexts;
    bool has(mxq_context* context) {
        const std::lock_guard<std::mutex> guard(lock);
        return contexts.count(context) != 0;
    }
};
inline Blocks& blocks() {
    static auto& made = *new Blocks;
    return made;
}

inline mxq_context* context_on(const Device& device) {
    const mxq_device type = device.cuda() ? MXQ_DEVICE_CUDA : MXQ_DEVICE_CPU;
    const int32_t ordinal = device.cuda() ? device.ordinal : 0;
    for (size_t i = entered.size(); i-- > 0;)
        if (entered[i].type == type && entered[i].ordinal == ordinal && blocks().has(entered[i].context))
            return entered[i].context;
    return context_of(type, ordinal);
}

// The current stream of torch. Its function is in a library that torch for CPUs lacks.
inline void* stream_on(const Device& device) {
    using Function = AOTITorchError (*)(int32_t, void**);
    static const Function current = [] {
        void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
        return library ? reinterpret_cast<Function>(dlsym(library, "aoti_torch_get_current_cuda_stream")) : nullptr;
    }();
    if (!device.cuda()) return nullptr;
    if (!current) refuse("torch has no CUDA here, expected libtorch_cuda.so in the process");
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(current(device.ordinal, &stream));
    return stream;
}

// Memory of torch that lives until the call was made: the allocator keeps it for the stream.
struct Allocate {
    const Device* device;
    std::vector<Tensor>* kept;
    void* operator()(uint64_t bytes) const {
        kept->push_back(new_tensor_on(*device, {static_cast<int64_t>(bytes) + 255}, aoti_torch_dtype_uint8()));
        const auto address = reinterpret_cast<uintptr_t>(kept->back().data_ptr());
        return reinterpret_cast<void*>((address + 255) / 256 * 256);
    }
};

struct Call {
    Device device;
    std::vector<Tensor> kept;
    explicit Call(const Tensor& like) : device(device_of(like)) {}
    Place<Allocate> place() { return {context_on(device), device.cuda(), stream_on(device), Allocate{&device, &kept}}; }
};

// Turns refusals into errors whose text begins with the name of the status: _torch_native.py makes mxq.Error of them.
template <class Body>
auto guarded(const Body& body) {
    try {
        return body();
    } catch (const mxq::error& error) {
        throw std::runtime_error(std::string(mxq_status_name(error.status())) + ": " + mxq_last_error());
    } catch (const refusal& error) {
        throw std::runtime_error(std::string("MXQ_STATUS_INVALID_ARGUMENT: ") + error.what());
    }
}

// The tensors of a call as arrays of one device, which is that of the first.
inline std::vector<View> views_of(const std::vector<Tensor>& tensors, const Device& device) {
    std::vector<View> views;
    views.reserve(tensors.size());
    for (const Tensor& tensor : tensors) views.push_back(view_on(tensor, device, "a tensor"));
    return views;
}

inline Tensor new_result(Call& call, const Shape& shape, mxq_format format, bool zero, mxq::tensor& described) {
    Tensor out = new_tensor_on(call.device, shape, dtype_of(format));
    if (zero) TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(out.get()));
    described = plain_operand(view_of(out), "out", Order::rows, true).tensor;
    return out;
}

}  // namespace mxq_python

#endif
