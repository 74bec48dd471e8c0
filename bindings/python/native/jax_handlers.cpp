// The verbs as handlers of XLA's foreign functions. jax.py writes what they take: arrays, integers and numbers.
//
// Each handler has a symbol for the CPU and one for CUDA, mxq_jax_quantize_cpu and mxq_jax_quantize_cuda, over one body.
#include <dlfcn.h>
#include <xla/ffi/api/ffi.h>

#include <cstdlib>
#include <cstring>

#include "layer.h"

namespace {

using namespace mxq_python;
namespace ffi = xla::ffi;
using Integers = ffi::Span<const int64_t>;
using Numbers = ffi::Span<const float>;
using Views = std::vector<View>;

Element element_of(ffi::DataType type) {
    switch (type) {
        case ffi::DataType::F32: return Element::f32;
        case ffi::DataType::F16: return Element::f16;
        case ffi::DataType::BF16: return Element::bf16;
        case ffi::DataType::S32: return Element::i32;
        case ffi::DataType::S64: return Element::i64;
        case ffi::DataType::U8:
        case ffi::DataType::S8: return Element::byte;
        default: return Element::other;
    }
}

View view_of(const ffi::AnyBuffer& buffer) {
    View view;
    const auto sizes = buffer.dimensions();
    if (sizes.size() > 3)
        refuse("an array has " + std::to_string(sizes.size()) + " dimensions, expected 2 or 3; reshape it");
    view.dims = static_cast<int>(sizes.size());
    view.data = buffer.untyped_data();
    view.element = element_of(buffer.element_type());
    int64_t step = 1;
    for (int i = view.dims - 1; i >= 0; i--) {
        view.shape[i] = sizes[i];
        view.strides[i] = step;
        step *= sizes[i];
    }
    return view;
}

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};

// Memory that lives until the handler returns: of XLA on a device, of the C library on the CPU.
struct Allocate {
    ffi::ScratchAllocator* scratch;
    std::vector<std::unique_ptr<void, Free>>* host;
    void* operator()(uint64_t bytes) const {
        const uint64_t most = bytes + 255;  // XLA aligns scratch memory to 64 bytes at most
        std::optional<void*> memory;
        if (scratch)
            memory = scratch->Allocate(most);
        else
            memory = host->emplace_back(std::malloc(most)).get();
        if (!memory || !*memory) throw mxq::error(MXQ_STATUS_OUT_OF_MEMORY, "there is no memory for what a call needs");
        return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(*memory) + 255) / 256 * 256);
    }
};

// Copies on the device, by the driver, which a process with CUDA arrays has loaded.
void copy_on_cuda(void* to, const void* from, uint64_t bytes, void* stream) {
    using Function = int (*)(uintptr_t, uintptr_t, size_t, void*);
    static const auto copy = [] {
        void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
        return driver ? reinterpret_cast<Function>(dlsym(driver, "cuMemcpyDtoDAsync_v2")) : nullptr;
    }();
    if (!copy || copy(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), bytes, stream) != 0)
        throw mxq::error(MXQ_STATUS_CUDA_ERROR, "the driver did not copy the arrays of a routing");
}
using On = Place<Allocate>;

// Holds the arguments of a handler. Its body reads the inputs in their order, and writes the outputs.
struct Call {
    const On& on;
    Views in, out;
    Integers words;
    Numbers numbers;
    Reader<Views> from{in, words.begin(), words.size()};
    size_t written = 0;

    View next_out() {
        if (written == out.size()) refuse("a handler of mxq has too few results, expected those that mxq.jax asks for");
        return out[written++];
    }
    mxq::tensor plain_out() { return plain_operand(next_out(), "a result", Order::rows, true).tensor; }
    // The target of codes: the parts of the word, in the results.
    mxq::tensor quantized_out(const Word& word, const int64_t* shape, int dims, const Groups* groups) {
        mxq::tensor target = word.spec.describe(shape, dims, groups);
        for (const mxq_part part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
            if (!(word.parts & part)) continue;
            const View codes = next_out(), scales = next_out();
            set_part(target, word.spec, part, codes, scales, true);
            if (word.spec.format == MXQ_FORMAT_NVFP4) set_number(target, part, 1, next_out());
        }
        return target;
    }
};

// Rows of x by index, with the groups of the experts: (choices, columns) of (tokens, columns).
Operand token_rows(const View& x, const View& rows, const View& ends) {
    Operand out = plain_operand(x, "x", Order::rows);
    const std::array<int64_t, 2> shape{rows.count(), x.size(1)};
    out.tensor = new_tensor(plain_format(x, "x"), shape.data(), 2);
    Groups{ends}.set(out.tensor);
    out.tensor.set_row_indices(rows.data, rows.bytes(), end_type(rows, "rows"), x.shape[0]);
    out.tensor.set_const_data(x.address(), x.bytes());
    out.shape = {shape[0], shape[1]};
    return out;
}

// Integers: flags, the word. Arrays: x, the rows by index, the ends.
void quantize_body(Call& call) {
    const int64_t flags = call.from.word();
    Word word(call.from.word());
    const View x = call.from.array();
    const View rows = flags & has_rows ? call.from.array() : View{};
    if (flags & has_ends) word.groups.ends = call.from.array();
    const Groups* groups = flags & has_ends ? &word.groups : nullptr;
    const Operand source = flags & has_rows ? token_rows(x, rows, word.groups.ends) : plain_operand(x, "x", Order::rows);
    quantize(call.on, options_of(word), source.tensor,
             call.quantized_out(word, source.shape.data(), static_cast<int>(source.shape.size()), groups));
}

// Integers: flags, the operand. Arrays: those of the operand, the ends.
void dequantize_body(Call& call) {
    const int64_t flags = call.from.word();
    const View* ends = flags & has_ends ? &call.in.back() : nullptr;
    const Operand source = next_operand(call.from, "q", Order::rows, ends);
    dequantize(call.on, source.tensor, call.plain_out());
}

// Integers: flags, the operands. Arrays: those of a, of b, the bias, the rows by index, the ends.
void multiply_body(Call& call) {
    const int64_t flags = call.from.word();
    const View* ends = flags & has_ends ? &call.in.back() : nullptr;
    const Groups groups{ends ? *ends : View{}, (flags & covers_rows) != 0};
    Operand a = next_operand(call.from, "a", Order::a, ends);
    Operand b = next_operand(call.from, "b", Order::b, a.transposed ? ends : nullptr);
    if (flags & has_rows) a = token_rows(call.in[0], call.in[call.in.size() - 2], *ends);
    for (Operand* operand : {&a, &b})
        if (ends && !operand->tensor.get_groups().count && (operand == &a || a.transposed)) groups.set(operand->tensor);
    Product how{(flags & grouped) != 0, (flags & exact) != 0, (flags & invariant) != 0, 0, call.numbers[0], {}};
    if (flags & has_bias) {
        how.bias = call.from.array();
        const int64_t columns = b.shape.back();
        check_bias(*how.bias, ends ? Shape{ends->count(), columns} : Shape{columns});
    }
    multiply(call.on, how, a, b, call.plain_out());
}

// Integers: flags, experts. Arrays: ids, weights. The result is the memory of a routing as int32.
void route_body(Call& call) {
    const int64_t flags = call.from.word();
    const auto experts = static_cast<int32_t>(call.from.word());
    const View ids = call.from.array();
    mxq::routing routing =
        routing_of(ids, flags & has_weights ? std::optional<View>(call.from.array()) : std::nullopt, experts);
    const View out = call.next_out();
    const bool aligned = reinterpret_cast<uintptr_t>(out.data) % 256 == 0;
    void* memory = aligned ? out.data : call.on.allocate(out.bytes());  // arrays of XLA lie at multiples of 64
    routing.set_memory(memory, out.bytes());
    route(call.on, routing);
    if (aligned) return;
    call.on.cuda ? copy_on_cuda(out.data, memory, out.bytes(), call.on.stream)
                 : (void)std::memcpy(out.data, memory, out.bytes());
}

// A routing around arrays that are there: ends, rows of tokens, rows of choices, weights of choices.
mxq::routing next_routing(Call& call, int64_t flags) {
    const View ends = call.from.array(), rows = call.from.array(), choices = call.from.array();
    mxq::routing routing(choices.shape[0], static_cast<int32_t>(choices.shape[1]), static_cast<int32_t>(ends.count()));
    const auto array = [](const View& view) {
        return mxq::memory_of<const int32_t>{static_cast<const int32_t*>(view.address()), view.bytes()};
    };
    routing.set_computed({array(ends), array(rows), array(choices), {}});
    if (flags & has_weights) {
        const View weights = call.from.array();
        routing.set_weights(plain_format(weights, "weights"), weights.address(), weights.bytes());
    }
    return routing;
}

// Integers: flags. Arrays: the routing, the rows.
void combine_body(Call& call) {
    const mxq::routing routing = next_routing(call, call.from.word());
    const Operand rows = plain_operand(call.from.array(), "rows", Order::rows);
    combine(call.on, routing, rows.tensor, call.plain_out());
}

// Integers: flags. Arrays: the routing, the gradient, the rows that were summed. Results: of the rows, and of the weights
// where there are rows.
void combine_backward_body(Call& call) {
    const int64_t flags = call.from.word();
    const mxq::routing routing = next_routing(call, flags);
    const Operand gradient = plain_operand(call.from.array(), "gradient", Order::rows);
    const mxq::tensor in = flags & has_rows ? plain_operand(call.from.array(), "rows", Order::rows).tensor : mxq::tensor();
    const mxq::tensor of_rows = call.plain_out();
    combine_backward(call.on, routing, gradient.tensor, in, of_rows, flags & has_rows ? call.plain_out() : mxq::tensor());
}

// The result of an activation, which the word says how to quantize, or plain where it is 0.
mxq::tensor activated_out(Call& call, mxq::activate_options& options, int64_t integer, const Shape& shape,
                          const View& ends) {
    if (!integer) return call.plain_out();
    Word word(integer);
    word.groups.ends = ends;
    const mxq::quantize_options rounding = options_of(word);
    if (rounding) options.set_quantize_options(rounding);
    return call.quantized_out(word, shape.data(), 2, &word.groups);
}

// Integers: flags, activation, gate layout, the word, columns of the result. Arrays: x, the ends.
void activate_body(Call& call) {
    call.from.word();
    mxq::activate_options options = next_activation(call.from, call.numbers.begin(), call.numbers.size());
    const int64_t word = call.from.word(), columns = call.from.word();
    Operand x = plain_operand(call.from.array(), "x", Order::rows);
    const View ends = call.from.array();
    Groups{ends}.set(x.tensor);
    const mxq::tensor out = activated_out(call, options, word, {x.shape[0], columns}, ends);
    activate(call.on, options, x.tensor, out);
}

// Integers: flags, activation, gate layout, the word. Arrays: the gradient, x, the ends. Results: of x, and of the bias
// where the flags say so.
void activate_backward_body(Call& call) {
    const int64_t flags = call.from.word();
    mxq::activate_options options = next_activation(call.from, call.numbers.begin(), call.numbers.size());
    const int64_t word = call.from.word();
    const Operand gradient = plain_operand(call.from.array(), "gradient", Order::rows);
    Operand x = plain_operand(call.from.array(), "x", Order::rows);
    const View ends = call.from.array();
    Groups{ends}.set(x.tensor);
    const mxq::tensor out = activated_out(call, options, word, x.shape, ends);
    if (flags & has_bias) {
        const View bias = call.next_out();
        options.set_bias_gradient(static_cast<float*>(bias.address()), bias.bytes());
    }
    activate_backward(call.on, options, gradient.tensor, x.tensor, out);
}

// As run_layer says.
void expert_layer_body(Call& call) {
    run_layer(call.on, call.from, call.numbers.begin(), call.numbers.size(), call.next_out());
}

// ---- Handlers ----------------------------------------------------------------------------------------------------------

ffi::Error handled(void (*body)(Call&), const On& on, const ffi::RemainingArgs& args, const ffi::RemainingRets& rets,
                   Integers words, Numbers numbers) {
    Views in, out;
    for (size_t i = 0; i < args.size(); i++) in.push_back(view_of(args.get<ffi::AnyBuffer>(i).value()));
    for (size_t i = 0; i < rets.size(); i++) out.push_back(view_of(*rets.get<ffi::AnyBuffer>(i).value()));
    Call call{on, std::move(in), std::move(out), words, numbers};
    body(call);
    return ffi::Error::Success();
}

// Refusals become errors of XLA with the library's message.
template <class Body>
ffi::Error guarded(const Body& body) {
    try {
        return body();
    } catch (const std::exception& error) {
        return ffi::Error::InvalidArgument(error.what());
    }
}

template <void (*Body)(Call&)>
ffi::Error on_cpu(ffi::RemainingArgs args, ffi::RemainingRets rets, Integers words, Numbers numbers) {
    return guarded([&] {
        std::vector<std::unique_ptr<void, Free>> memory;
        const On on{context_of(MXQ_DEVICE_CPU, 0), false, nullptr, {nullptr, &memory}};
        return handled(Body, on, args, rets, words, numbers);
    });
}

template <void (*Body)(Call&)>
ffi::Error on_cuda(void* stream, int32_t ordinal, ffi::ScratchAllocator scratch, ffi::RemainingArgs args,
                   ffi::RemainingRets rets, Integers words, Numbers numbers) {
    return guarded([&] {
        const On on{context_of(MXQ_DEVICE_CUDA, ordinal), true, stream, {&scratch, nullptr}};
        return handled(Body, on, args, rets, words, numbers);
    });
}

auto cpu_binding() {
    return ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<Integers>("words").Attr<Numbers>("numbers");
}
auto cuda_binding() {
    return ffi::Ffi::Bind()
        .Ctx<ffi::PlatformStream<void*>>()
        .Ctx<ffi::DeviceOrdinal>()
        .Ctx<ffi::ScratchAllocator>()
        .RemainingArgs()
        .RemainingRets()
        .Attr<Integers>("words")
        .Attr<Numbers>("numbers");
}

}  // namespace

#define MXQ_JAX_HANDLERS(verb)                                                               \
    XLA_FFI_DEFINE_HANDLER_SYMBOL(mxq_jax_##verb##_cpu, on_cpu<verb##_body>, cpu_binding()); \
    XLA_FFI_DEFINE_HANDLER_SYMBOL(mxq_jax_##verb##_cuda, on_cuda<verb##_body>, cuda_binding())

#pragma GCC visibility push(default)
MXQ_JAX_HANDLERS(quantize);
MXQ_JAX_HANDLERS(dequantize);
MXQ_JAX_HANDLERS(multiply);
MXQ_JAX_HANDLERS(route);
MXQ_JAX_HANDLERS(combine);
MXQ_JAX_HANDLERS(combine_backward);
MXQ_JAX_HANDLERS(activate);
MXQ_JAX_HANDLERS(activate_backward);
MXQ_JAX_HANDLERS(expert_layer);
#pragma GCC visibility pop
