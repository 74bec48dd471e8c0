// The verbs as operators of torch, over its stable ABI: torch.ops.mxq_native. _torch_native.py writes what they take.
//
// One binary serves every torch from 2.10 on. It loads libmxq from its own folder, or uses the one that the process has loaded.
#include <dlfcn.h>

#include <algorithm>
#include <set>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include "layer.h"

namespace {

using namespace mxq_python;
using torch::stable::Tensor;
using Integers = std::vector<int64_t>;

// ---- Tensors -----------------------------------------------------------------------------------------------------------

Element element_of(int32_t dtype) {
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

int32_t dtype_of(mxq_format format) {
    switch (format) {
        case MXQ_FORMAT_F32: return aoti_torch_dtype_float32();
        case MXQ_FORMAT_F16: return aoti_torch_dtype_float16();
        case MXQ_FORMAT_BF16: return aoti_torch_dtype_bfloat16();
        default: refuse("dtype is another one, expected float32, float16 or bfloat16");
    }
}

View view_of(const Tensor& tensor) {
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

Device device_of(const Tensor& tensor) {
    Device device;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &device.type));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor.get(), &device.ordinal));
    return device;
}

std::string name_of(const Device& device) { return device.cuda() ? "cuda:" + std::to_string(device.ordinal) : "cpu"; }

View view_on(const Tensor& tensor, const Device& device, const char* what) {
    const Device found = device_of(tensor);
    if (found.type != device.type || found.ordinal != device.ordinal)
        refuse(std::string(what) + " is on " + name_of(found) + ", expected " + name_of(device) +
               ", where the rest is; copy it there");
    return view_of(tensor);
}

Tensor new_tensor_on(const Device& device, const Shape& shape, int32_t dtype) {
    Shape strides(shape.size());
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
thread_local std::vector<Entered> entered;

// The contexts of all blocks that have not ended. One that began on another thread may end here.
struct Blocks {
    std::mutex lock;
    std::multiset<mxq_context*> contexts;
    bool has(mxq_context* context) {
        const std::lock_guard<std::mutex> guard(lock);
        return contexts.count(context) != 0;
    }
};
Blocks& blocks() {
    static auto& made = *new Blocks;
    return made;
}

mxq_context* context_on(const Device& device) {
    const mxq_device type = device.cuda() ? MXQ_DEVICE_CUDA : MXQ_DEVICE_CPU;
    const int32_t ordinal = device.cuda() ? device.ordinal : 0;
    for (size_t i = entered.size(); i-- > 0;)
        if (entered[i].type == type && entered[i].ordinal == ordinal && blocks().has(entered[i].context))
            return entered[i].context;
    return context_of(type, ordinal);
}

// The current stream of torch. Its function is in a library that torch for CPUs lacks.
void* stream_on(const Device& device) {
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
std::vector<View> views_of(const std::vector<Tensor>& tensors, const Device& device) {
    std::vector<View> views;
    views.reserve(tensors.size());
    for (const Tensor& tensor : tensors) views.push_back(view_on(tensor, device, "a tensor"));
    return views;
}

Tensor new_result(Call& call, const Shape& shape, mxq_format format, bool zero, mxq::tensor& described) {
    Tensor out = new_tensor_on(call.device, shape, dtype_of(format));
    if (zero) TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(out.get()));
    described = plain_operand(view_of(out), "out", Order::rows, true).tensor;
    return out;
}

// ---- Shapes of parts, as _shapes.py has them ---------------------------------------------------------------------------

int64_t code_bits(mxq_format format) {
    switch (format) {
        case MXQ_FORMAT_MXFP6_E2M3:
        case MXQ_FORMAT_MXFP6_E3M2: return 6;
        case MXQ_FORMAT_MXFP4:
        case MXQ_FORMAT_NVFP4: return 4;
        default: return 8;
    }
}

// The numbers that share a scale along a line, and down the lines where they are a tile.
int64_t block_of(mxq_scaling scaling) {
    switch (scaling) {
        case MXQ_SCALING_1X16:
        case MXQ_SCALING_16X16: return 16;
        case MXQ_SCALING_1X128:
        case MXQ_SCALING_128X128: return 128;
        default: return 32;
    }
}

struct PartShape {
    Shape codes, scales;
    int64_t amaxes = 0;
};

Shape scale_shape(const mxq::tensor& of, const Spec& spec, const Shape& codes, bool grouped, int64_t count) {
    const mxq_scaling scaling = of.get_scaling();
    const bool tile = scaling == MXQ_SCALING_32X32 || scaling == MXQ_SCALING_128X128;
    const bool flat = spec.swizzled || (grouped && tile);
    Shape shape(codes.begin(), codes.end() - 2);
    const int64_t experts = shape.empty() ? 1 : shape[0], lines = codes[codes.size() - 2];
    if (scaling == MXQ_SCALING_TENSOR) return {count};
    if (flat || scaling == MXQ_SCALING_ROW) {
        shape.push_back(experts ? count / experts : flat ? 0 : lines);
        return shape;
    }
    const int64_t block = block_of(scaling), width = codes.back() * 8 / code_bits(spec.format);
    shape.push_back(tile ? (lines + block - 1) / block : lines);
    shape.push_back((width + block - 1) / block);
    return shape;
}

PartShape part_shape(const mxq::tensor& of, const Spec& spec, const View& x, mxq_part part, const Groups* groups) {
    int64_t rows = x.size(2);
    if (groups) {
        const mxq::group_alignment both = of.get_group_alignment();
        const int64_t alignment = part == MXQ_PART_ROWWISE ? both.rowwise : both.columnwise;
        rows = (rows + (alignment - 1) * std::min<int64_t>(groups->ends.count(), rows)) / alignment * alignment;
    }
    const int64_t lines = part == MXQ_PART_ROWWISE ? rows : x.size(1), length = part == MXQ_PART_ROWWISE ? x.size(1) : rows;
    PartShape out;
    if (x.dims == 3) out.codes.push_back(x.shape[0]);
    out.codes.insert(out.codes.end(), {lines, (length * code_bits(spec.format) + 7) / 8});
    const auto scales = static_cast<int64_t>(of.required_bytes(part).scales);
    out.scales = scale_shape(of, spec, out.codes, groups != nullptr, scales / (spec.is_fp8() ? 4 : 1));
    if (spec.format == MXQ_FORMAT_NVFP4) out.amaxes = static_cast<int64_t>(of.required_amax_bytes(part)) / 4;
    return out;
}

// New memory for the parts of a described tensor, which is told of it: of each codes, scales and, of NVFP4, amaxes.
std::vector<Tensor> new_parts(const Device& device, mxq::tensor& of, const Spec& spec, const View& x, int64_t parts,
                              const Groups* groups) {
    std::vector<Tensor> out;
    for (const mxq_part part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        if (!(parts & part)) continue;
        const PartShape shape = part_shape(of, spec, x, part, groups);
        const Tensor codes = new_tensor_on(device, shape.codes, aoti_torch_dtype_uint8());
        const Tensor scales =
            new_tensor_on(device, shape.scales, spec.is_fp8() ? aoti_torch_dtype_float32() : aoti_torch_dtype_uint8());
        set_part(of, spec, part, view_of(codes), view_of(scales), true);
        out.insert(out.end(), {codes, scales});
        if (!shape.amaxes) continue;
        out.push_back(new_tensor_on(device, {shape.amaxes}, aoti_torch_dtype_float32()));
        set_number(of, part, 1, view_of(out.back()));
    }
    return out;
}

// ---- Operators ---------------------------------------------------------------------------------------------------------

// word: that of the result, with the way that scales are rounded.
std::vector<Tensor> quantize_tensor(Tensor x, int64_t word, std::optional<Tensor> ends) {
    return guarded([&] {
        Call call(x);
        Word given(word);
        mxq::quantize_options options;
        if (given.rounding) options.set_scale_rounding(given.rounding);
        if (ends) given.groups.ends = view_on(*ends, call.device, "groups.ends");
        const View view = view_of(x);
        const Operand source = plain_operand(view, "x", Order::rows);
        const Groups* groups = ends ? &given.groups : nullptr;
        mxq::tensor target = given.spec.describe(view.shape.data(), view.dims, groups);
        std::vector<Tensor> out = new_parts(call.device, target, given.spec, view, given.parts, groups);
        quantize(call.place(), options, source.tensor, target);
        return out;
    });
}

// How a result is made: its type, what is there, and the options of a product.
struct Head {
    mxq_format dtype;
    bool has_ends, cover_rows, has_bias, exact, row_invariant;
    int32_t sm_count;
    explicit Head(int64_t word) {
        Fields fields(word);
        dtype = fields.take(2);
        has_ends = fields.flag();
        cover_rows = fields.flag();
        has_bias = fields.flag();
        exact = fields.flag();
        row_invariant = fields.flag();
        sm_count = fields.take(16);
    }
};

// words: the head, then the operand. tensors: those of the operand, then the ends of its groups.
Tensor dequantize_tensor(std::vector<Tensor> tensors, Integers words) {
    return guarded([&] {
        if (tensors.empty()) refuse("mxq_native::dequantize got no tensors, expected those of a quantized tensor");
        Call call(tensors[0]);
        const std::vector<View> views = views_of(tensors, call.device);
        Reader<std::vector<View>> from(views, words.data(), words.size());
        const Head head(from.word());
        const Operand source = next_operand(from, "q", Order::rows, head.has_ends ? &views.back() : nullptr);
        mxq::tensor target;
        const Tensor out = new_result(call, source.shape, head.dtype, head.has_ends && !head.cover_rows, target);
        dequantize(call.place(), source.tensor, target);
        return out;
    });
}

// words: the head, then the operands a and b. tensors: those of a, of b, the bias, the ends of the groups of a.
Tensor multiply_tensors(bool grouped, const std::vector<Tensor>& tensors, const Integers& words, double alpha) {
    return guarded([&] {
        if (tensors.empty()) refuse("a product got no tensors, expected those of two operands");
        Call call(tensors[0]);
        const std::vector<View> views = views_of(tensors, call.device);
        Reader<std::vector<View>> from(views, words.data(), words.size());
        const Head head(from.word());
        const View* ends = head.has_ends ? &views.back() : nullptr;
        Operand a = next_operand(from, "a", Order::a, ends);
        const Operand b = next_operand(from, "b", Order::b, nullptr);
        if (ends && !a.tensor.get_groups().count) Groups{*ends, head.cover_rows}.set(a.tensor);
        const int64_t groups = ends ? ends->count() : 0;
        const Shape shape = product_shape(a, b, grouped ? groups : 0);
        Product how{grouped, head.exact, head.row_invariant, head.sm_count, static_cast<float>(alpha), {}};
        if (head.has_bias) {
            how.bias = from.array();
            check_bias(*how.bias, groups ? Shape{groups, shape.back()} : Shape{shape.back()});
        }
        mxq::tensor target;
        const Tensor out = new_result(call, shape, head.dtype, grouped && !a.transposed && !head.cover_rows, target);
        multiply(call.place(), how, a, b, target);
        return out;
    });
}

Tensor matmul(std::vector<Tensor> tensors, Integers words, double alpha) {
    return multiply_tensors(false, tensors, words, alpha);
}

Tensor grouped_matmul(std::vector<Tensor> tensors, Integers words, double alpha) {
    return multiply_tensors(true, tensors, words, alpha);
}

// words: as run_layer says. clamp: three numbers, or none.
Tensor run_expert_layer(std::vector<Tensor> tensors, Integers words, std::vector<double> clamp) {
    return guarded([&] {
        if (tensors.size() < 4) refuse("mxq_native::expert_layer got too few tensors, expected x, ids, gate_up and down");
        Call call(tensors[0]);
        const std::vector<View> views = views_of(tensors, call.device);
        Reader<std::vector<View>> from(views, words.data(), words.size());
        const std::vector<float> numbers(clamp.begin(), clamp.end());
        mxq::tensor described;
        const Tensor out = new_result(call, Shape(views[0].shape.begin(), views[0].shape.begin() + views[0].dims),
                                      plain_format(views[0], "x"), false, described);
        run_layer(call.place(), from, numbers.data(), numbers.size(), view_of(out));
        return out;
    });
}

}  // namespace

// Say that a `with` block of a context begins on this thread, and that one ends.
extern "C" __attribute__((visibility("default"))) void mxq_torch_enter(int32_t type, int32_t ordinal, mxq_context* context) {
    const std::lock_guard<std::mutex> guard(blocks().lock);
    blocks().contexts.insert(context);
    entered.push_back({type, ordinal, context});
}
extern "C" __attribute__((visibility("default"))) void mxq_torch_exit(mxq_context* context) {
    const std::lock_guard<std::mutex> guard(blocks().lock);
    auto& contexts = blocks().contexts;
    if (const auto found = contexts.find(context); found != contexts.end()) contexts.erase(found);
    const auto last =
        std::find_if(entered.rbegin(), entered.rend(), [&](const Entered& each) { return each.context == context; });
    if (last != entered.rend()) entered.erase(std::next(last).base());
}

STABLE_TORCH_LIBRARY(mxq_native, m) {
    m.def("quantize(Tensor x, int word, Tensor? ends) -> Tensor[]");
    m.def("dequantize(Tensor[] tensors, SymInt[] words) -> Tensor");
    m.def("matmul(Tensor[] tensors, SymInt[] words, float alpha) -> Tensor");
    m.def("grouped_matmul(Tensor[] tensors, SymInt[] words, float alpha) -> Tensor");
    m.def("expert_layer(Tensor[] tensors, SymInt[] words, float[] clamp) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(mxq_native, CPU, m) {
    m.impl("quantize", TORCH_BOX(&quantize_tensor));
    m.impl("dequantize", TORCH_BOX(&dequantize_tensor));
    m.impl("matmul", TORCH_BOX(&matmul));
    m.impl("grouped_matmul", TORCH_BOX(&grouped_matmul));
    m.impl("expert_layer", TORCH_BOX(&run_expert_layer));
}

STABLE_TORCH_LIBRARY_IMPL(mxq_native, CUDA, m) {
    m.impl("quantize", TORCH_BOX(&quantize_tensor));
    m.impl("dequantize", TORCH_BOX(&dequantize_tensor));
    m.impl("matmul", TORCH_BOX(&matmul));
    m.impl("grouped_matmul", TORCH_BOX(&grouped_matmul));
    m.impl("expert_layer", TORCH_BOX(&run_expert_layer));
}
