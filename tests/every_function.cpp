#include "every_function.h"

#include "paths.h"

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>

namespace testing {

namespace {

constexpr int64_t rows = 64, cols = 64, experts = 2;
constexpr mxq_part row = MXQ_PART_ROWWISE;
constexpr const char* long_name = "a name that is too long to stand inside a string object, so that it is allocated";

// Where getters put what they give.
struct Answers {
    int32_t i[4];
    int64_t n[4];
    uint64_t bytes[4];
    float x[4];
    void* memory[2];
    const void* data[2];
    const void* const* lists[2];
    const char* text;
    const uint64_t* seed;
    float* sums;
    const float* factors;
    int32_t* numbers;
    const int32_t* indices;
    mxq_parallel_for parallel_for;
};
thread_local Answers k;

void in_turn(void*, int32_t count, mxq_task task, void* data) {
    for (int32_t i = 0; i < count; ++i) task(data, i);
}

// Calls create, and destroy where it succeeded.
template <class T, class Create, class End>
std::function<mxq_status()> made(Create create, End destroy) {
    return [=] {
        T* handle = nullptr;
        const mxq_status status = create(&handle);
        destroy(handle);
        return status;
    };
}

template <class T>
std::shared_ptr<T> object(mxq_status (*create)(T**), void (*destroy)(T*)) {
    T* handle = nullptr;
    ok(create(&handle));
    return {handle, destroy};
}

}  // namespace

// A function that returns a status, or another value.
#define CALL(name, ...)           \
    add(#name, [=, this] {        \
        (void)this;               \
        return name(__VA_ARGS__); \
    })
#define VALUE(name, ...)                     \
    add(#name, [=, this] {                   \
        (void)this, (void)name(__VA_ARGS__); \
        return MXQ_STATUS_OK;                \
    })

Allocator host_allocator() {
    constexpr auto alignment = std::align_val_t(256);
    return {[](size_t bytes) { return ::operator new(bytes, alignment); },
            [](void* memory) { ::operator delete(memory, alignment); }};
}

// Memory begins at a multiple of 256, and a gap of 512 bytes follows.
template <class T>
T* EveryFunction::memory_of(size_t count, T value) {
    const size_t bytes = count * sizeof(T) + 512;
    void* const memory = allocator_.allocate(bytes);
    blocks_.push_back({{memory, allocator_.release}, bytes});
    std::memset(memory, 0, bytes);
    T* const first = static_cast<T*>(memory);
    std::fill(first, first + count, value);
    return first;
}

Bytes EveryFunction::memory() const {
    Bytes all;
    for (const Block& block : blocks_) {
        const auto* const first = static_cast<const uint8_t*>(block.memory.get());
        all.insert(all.end(), first, first + block.bytes);
    }
    return all;
}

mxq_tensor* EveryFunction::tensor(int32_t format, Dims dims, mxq_part parts) {
    mxq_tensor* const made = tensors_.emplace_back(make_tensor(format, dims));
    uint64_t bytes = 0;
    ok(mxq_tensor_total_bytes(made, parts, &bytes));
    ok(mxq_tensor_set_memory(made, parts, memory_of<uint8_t>(bytes, 0x3C), bytes));
    return made;
}

mxq_routing* EveryFunction::make_routing() {
    mxq_routing* const made = [&] {
        mxq_routing* handle = nullptr;
        ok(mxq_routing_create(rows, 2, experts, &handle));
        routings_.emplace_back(handle);
        return handle;
    }();
    int32_t* const ids = memory_of<int32_t>(2 * rows, 0);
    for (int64_t i = 0; i < 2 * rows; ++i) ids[i] = static_cast<int32_t>(i % experts);
    ok(mxq_routing_set_ids(made, ids, 8 * rows, MXQ_TYPE_INT32));
    ok(mxq_routing_set_weights(made, MXQ_FORMAT_F32, memory_of<float>(2 * rows, 0.5f), 8 * rows));
    uint64_t bytes = 0;
    ok(mxq_routing_required_bytes(made, &bytes));
    ok(mxq_routing_set_memory(made, memory_of<uint8_t>(bytes), bytes));
    return made;
}

std::vector<std::string> EveryFunction::declared() {
    std::ifstream file(header_path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::regex declaration("MXQ_API [a-z0-9_ ]*[ *]*(mxq_[a-z0-9_]+)\\(");
    std::set<std::string> names;
    for (auto at = std::sregex_iterator(text.begin(), text.end(), declaration); at != std::sregex_iterator(); ++at)
        names.insert((*at)[1]);
    return {names.begin(), names.end()};
}

EveryFunction::EveryFunction(mxq_context* context, Allocator allocator) : context_(context), allocator_(allocator) {
    add_verbs();
    add_creators();
    add_questions();
    add_context_options();
    add_tensor_setters();
    add_tensor_memory();
    add_tensor_getters();
    add_quantize_options();
    add_gemm_options();
    add_activate_options();
    add_layer_options();
    add_routing();
}

template <class Run, class Query, class Options, class... Arguments>
void EveryFunction::verb(const char* name, Run run, Query query, Options options, Arguments... arguments) {
    mxq_context* const context = context_;
    const auto ask = [=](mxq_plan** plan) { return query(context, options, arguments..., plan); };
    Plan plan;
    ok(ask(plan.out()));
    const uint64_t bytes = mxq_plan_workspace_bytes(plan);
    void* const workspace = bytes ? memory_of<uint8_t>(bytes) : nullptr;
    add(name, [=] { return run(context, options, arguments..., workspace, bytes, nullptr); });
    functions_.back().is_verb = true;
    functions_.push_back({std::string(name) + "_query", made<mxq_plan>(ask, mxq_plan_destroy)});
}

#define VERB(name, options, ...) verb(#name, name, name##_query, options, __VA_ARGS__)

void EveryFunction::add_verbs() {
    const Dims dims{std::nullopt, rows, cols}, half{std::nullopt, rows, cols / 2}, stack{experts, rows, cols};
    constexpr auto* none = static_cast<const mxq_quantize_options*>(nullptr);
    constexpr int32_t f32 = MXQ_FORMAT_F32, bf16 = MXQ_FORMAT_BF16, mxfp8 = MXQ_FORMAT_MXFP8_E4M3;
    mxq_tensor *x = tensor(f32, dims), *y = tensor(f32, dims), *narrow = tensor(bf16, dims), *d = tensor(f32, dims);
    mxq_tensor *q = tensor(mxfp8, dims, MXQ_PART_BOTH), *again = tensor(mxfp8, dims, MXQ_PART_BOTH);
    mxq_tensor *nvfp4 = tensor(MXQ_FORMAT_NVFP4, dims), *swizzled = tensors_.emplace_back(make_tensor(mxfp8, dims));
    ok(mxq_tensor_set_swizzled(swizzled, 1));
    uint64_t bytes = 0;
    ok(mxq_tensor_total_bytes(swizzled, MXQ_PART_BOTH, &bytes));
    ok(mxq_tensor_set_memory(swizzled, MXQ_PART_BOTH, memory_of<uint8_t>(bytes), bytes));
    VERB(mxq_quantize, none, x, q);
    VERB(mxq_requantize, none, q, again);
    VERB(mxq_amax, none, x, nvfp4);
    VERB(mxq_dequantize, none, q, y);
    VERB(mxq_convert, none, x, narrow);
    VERB(mxq_swizzle_scales, none, q, swizzled);
    VERB(mxq_unswizzle_scales, none, swizzled, again);
    VERB(mxq_gemm, static_cast<const mxq_gemm_options*>(nullptr), q, q, d);

    // Groups: their tensors get memory once their sizes are known.
    int32_t* const ends = memory_of<int32_t>(experts);
    ends[0] = 30, ends[1] = rows;
    const auto grouped = [&](int32_t format, int32_t alignment) {
        mxq_tensor* const made = tensors_.emplace_back(make_tensor(format, dims));
        ok(set_ends(made, ends, MXQ_TYPE_INT32, experts));
        ok(mxq_tensor_set_group_alignment(made, alignment, 0));
        uint64_t all = 0;
        ok(mxq_tensor_total_bytes(made, row, &all));
        ok(mxq_tensor_set_memory(made, row, memory_of<uint8_t>(all, 0x3C), all));
        return made;
    };
    mxq_tensor *in = grouped(mxfp8, 1), *padded = grouped(mxfp8, 32), *unpadded = grouped(mxfp8, 1),
               *of_groups = tensor(f32, dims);
    VERB(mxq_pad_groups, none, in, padded);
    VERB(mxq_unpad_groups, none, padded, unpadded);
    VERB(mxq_grouped_gemm, static_cast<const mxq_gemm_options*>(nullptr), in, tensor(mxfp8, stack), of_groups);

    mxq_tensor* activated = tensor(f32, half);
    constexpr auto* defaults = static_cast<const mxq_activate_options*>(nullptr);
    VERB(mxq_activate, defaults, x, activated);
    VERB(mxq_activate_backward, defaults, activated, x, tensor(f32, dims));

    mxq_routing* routing = make_routing();
    const Dims chosen{std::nullopt, 2 * rows, cols};
    mxq_tensor *of_rows = tensor(bf16, chosen), *sums = tensor(f32, dims);
    VERB(mxq_route, none, routing);
    VERB(mxq_combine, none, routing, of_rows, static_cast<mxq_tensor*>(nullptr), sums);
    VERB(mxq_combine_backward, none, routing, sums, of_rows, tensor(bf16, chosen), tensor(f32, {std::nullopt, rows, 2}));
    VERB(mxq_expert_layer, static_cast<const mxq_expert_layer_options*>(nullptr), narrow, routing,
         tensor(bf16, {experts, 2 * rows, cols}), tensor(bf16, {experts, cols, rows}), tensor(f32, dims));
    // The second half of functions() begins with a plan.
    auto plan = std::shared_ptr<mxq_plan>(
        [&] {
            mxq_plan* handle = nullptr;
            ok(mxq_gemm_query(context_, nullptr, q, q, d, &handle));
            return handle;
        }(),
        mxq_plan_destroy);
    VALUE(mxq_plan_implementation, plan.get());
    VALUE(mxq_plan_reason, plan.get());
    VALUE(mxq_plan_workspace_bytes, plan.get());
    VALUE(mxq_plan_bound, plan.get());
}

void EveryFunction::add_creators() {
    const auto create_2d = [](mxq_tensor** out) { return mxq_tensor_create_2d(MXQ_FORMAT_F32, 3, 3, out); };
    const auto create_3d = [](mxq_tensor** out) { return mxq_tensor_create_3d(MXQ_FORMAT_NVFP4, 2, 3, 3, out); };
    const auto routing = [](mxq_routing** out) { return mxq_routing_create(3, 2, 4, out); };
    const auto options = object(mxq_context_options_create, mxq_context_options_destroy);
    ok(mxq_context_options_set_threads(options.get(), 2));
    const auto create = [options](mxq_context** out) { return mxq_context_create(MXQ_DEVICE_CPU, 0, options.get(), out); };
    add("mxq_tensor_create_2d", made<mxq_tensor>(create_2d, mxq_tensor_destroy));
    add("mxq_tensor_create_3d", made<mxq_tensor>(create_3d, mxq_tensor_destroy));
    add("mxq_routing_create", made<mxq_routing>(routing, mxq_routing_destroy));
    add("mxq_context_create", made<mxq_context>(create, mxq_context_destroy));
    add("mxq_context_options_create", made<mxq_context_options>(mxq_context_options_create, mxq_context_options_destroy));
    add("mxq_quantize_options_create",
        made<mxq_quantize_options>(mxq_quantize_options_create, mxq_quantize_options_destroy));
    add("mxq_gemm_options_create", made<mxq_gemm_options>(mxq_gemm_options_create, mxq_gemm_options_destroy));
    add("mxq_activate_options_create",
        made<mxq_activate_options>(mxq_activate_options_create, mxq_activate_options_destroy));
    add("mxq_expert_layer_options_create",
        made<mxq_expert_layer_options>(mxq_expert_layer_options_create, mxq_expert_layer_options_destroy));
    // Each is called above with a handle, too.
    VALUE(mxq_tensor_destroy, nullptr);
    VALUE(mxq_routing_destroy, nullptr);
    VALUE(mxq_context_destroy, nullptr);
    VALUE(mxq_context_options_destroy, nullptr);
    VALUE(mxq_quantize_options_destroy, nullptr);
    VALUE(mxq_gemm_options_destroy, nullptr);
    VALUE(mxq_activate_options_destroy, nullptr);
    VALUE(mxq_expert_layer_options_destroy, nullptr);
    VALUE(mxq_plan_destroy, nullptr);
}

void EveryFunction::add_questions() {
    VALUE(mxq_version);
    VALUE(mxq_version_string);
    VALUE(mxq_build_string);
    VALUE(mxq_status_name, MXQ_STATUS_OK);
    VALUE(mxq_last_error);
    CALL(mxq_constant, "MXQ_FORMAT_BF16", k.n);
    VALUE(mxq_constant_name, 0);
    CALL(mxq_set_log_callback, nullptr, MXQ_LOG_OFF, nullptr);
    VALUE(mxq_format_name, MXQ_FORMAT_BF16);
    CALL(mxq_format_property, MXQ_FORMAT_BF16, MXQ_PROPERTY_BLOCK, k.n);
    VALUE(mxq_context_description, context_);
    VALUE(mxq_context_cublaslt, context_);
}

void EveryFunction::add_context_options() {
    const auto o = object(mxq_context_options_create, mxq_context_options_destroy);
    CALL(mxq_context_options_set_threads, o.get(), 2);
    CALL(mxq_context_options_set_own_threads, o.get(), 0);
    CALL(mxq_context_options_set_parallel_for, o.get(), in_turn, nullptr);
    CALL(mxq_context_options_set_cublaslt_path, o.get(), long_name);
    CALL(mxq_context_options_get_threads, o.get(), k.i);
    CALL(mxq_context_options_get_own_threads, o.get(), k.i);
    CALL(mxq_context_options_get_parallel_for, o.get(), &k.parallel_for, k.memory);
    CALL(mxq_context_options_get_cublaslt_path, o.get(), &k.text);
}

void EveryFunction::add_tensor_setters() {
    const Dims dims{std::nullopt, rows, cols};
    mxq_tensor *plain = tensor(MXQ_FORMAT_F32, dims), *part = tensor(MXQ_FORMAT_MXFP8_E4M3, dims),
               *fp8 = tensor(MXQ_FORMAT_FP8_E4M3, dims), *nvfp4 = tensor(MXQ_FORMAT_NVFP4, dims),
               *grouped = tensors_.emplace_back(make_tensor(MXQ_FORMAT_MXFP8_E4M3, dims)),
               *routed = tensors_.emplace_back(make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 2 * rows, cols})),
               *pairs = tensors_.emplace_back(make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 2 * rows, cols}));
    int32_t* const ends = memory_of<int32_t>(2, static_cast<int32_t>(rows));
    float* const factors = memory_of<float>(4, 1.0f);
    mxq_routing* const routing = make_routing();
    CALL(mxq_tensor_set_scaling, part, MXQ_SCALING_1X32);
    CALL(mxq_tensor_set_swizzled, part, 0);
    CALL(mxq_tensor_set_row_stride, plain, cols);
    CALL(mxq_tensor_set_strides, part, row, 0, 0, 0, 0);
    CALL(mxq_tensor_set_groups, grouped, ends, 8, MXQ_TYPE_INT32, 2);
    CALL(mxq_tensor_set_groups_cover_rows, grouped, 1);
    CALL(mxq_tensor_set_host_ends, grouped, ends, 8);
    CALL(mxq_tensor_set_group_alignment, grouped, 32, 32);
    CALL(mxq_tensor_set_padded_groups, grouped, row, ends, 8, nullptr, 0);
    CALL(mxq_tensor_set_amax, nvfp4, row, factors, 4);
    CALL(mxq_tensor_set_amax, nvfp4, row, nullptr, 0);
    CALL(mxq_tensor_set_decode_scale, nvfp4, row, factors, 4);
    CALL(mxq_tensor_set_decode_scale, nvfp4, row, nullptr, 0);  // else the next round's amax is refused
    CALL(mxq_tensor_set_scale_max, nvfp4, 256);
    CALL(mxq_tensor_set_hadamard, nvfp4, row, 1, 0xD7E8);
    CALL(mxq_tensor_set_quantization_scale, fp8, factors, 4);
    CALL(mxq_tensor_set_scope, fp8, MXQ_SCOPE_TENSOR);
    CALL(mxq_tensor_set_row_indices, plain, nullptr, 0, 0, 0);
    CALL(mxq_tensor_set_routing_rows, routed, routing);
    CALL(mxq_tensor_set_routing_groups, pairs, routing);
}

void EveryFunction::add_tensor_memory() {
    const Dims dims{std::nullopt, rows, cols}, stack{experts, rows, cols};
    mxq_tensor *plain = tensor(MXQ_FORMAT_F32, dims), *part = tensor(MXQ_FORMAT_MXFP8_E4M3, dims),
               *many = tensor(MXQ_FORMAT_MXFP8_E4M3, stack), *listed = tensor(MXQ_FORMAT_F32, stack);
    constexpr uint64_t bytes = rows * cols * 4;
    uint8_t* const memory = memory_of<uint8_t>(bytes);
    const void** const list = memory_of<const void*>(experts, memory);
    CALL(mxq_tensor_set_data, plain, memory, bytes);
    CALL(mxq_tensor_set_const_data, plain, memory, bytes);
    CALL(mxq_tensor_set_data_list, listed, experts, list, bytes);
    CALL(mxq_tensor_set_part, part, row, memory, rows * cols, memory + rows * cols, rows * cols / 32);
    CALL(mxq_tensor_set_const_part, part, row, memory, rows * cols, memory + rows * cols, rows * cols / 32);
    CALL(mxq_tensor_set_part_list, many, row, experts, list, bytes, list, bytes);
    CALL(mxq_tensor_set_memory, part, row, memory, bytes);
    CALL(mxq_tensor_total_bytes, part, row, k.bytes);
    CALL(mxq_tensor_required_bytes, part, row, k.bytes, k.bytes + 1);
    CALL(mxq_tensor_required_amax_bytes, part, row, k.bytes);
    CALL(mxq_tensor_clear_part, part, row);
}

void EveryFunction::add_tensor_getters() {
    const Dims dims{std::nullopt, rows, cols};
    mxq_tensor *plain = tensor(MXQ_FORMAT_F32, dims), *part = tensor(MXQ_FORMAT_NVFP4, dims);
    CALL(mxq_tensor_get_format, plain, k.i);
    CALL(mxq_tensor_get_shape, plain, k.i, k.n, k.n + 1, k.n + 2);
    CALL(mxq_tensor_get_scaling, part, k.i);
    CALL(mxq_tensor_get_swizzled, part, k.i);
    CALL(mxq_tensor_get_row_stride, plain, k.n);
    CALL(mxq_tensor_get_data, plain, k.memory, k.bytes, k.i);
    CALL(mxq_tensor_get_data_list, plain, k.n, k.lists, k.bytes);
    CALL(mxq_tensor_get_part, part, row, k.i, k.memory, k.bytes, k.memory + 1, k.bytes + 1, k.i + 1);
    CALL(mxq_tensor_get_part_list, part, row, k.n, k.lists, k.bytes, k.lists + 1, k.bytes + 1);
    CALL(mxq_tensor_get_strides, part, row, k.n, k.n + 1, k.n + 2, k.n + 3);
    CALL(mxq_tensor_get_groups, part, k.data, k.bytes, k.i, k.i + 1);
    CALL(mxq_tensor_get_groups_cover_rows, part, k.i);
    CALL(mxq_tensor_get_host_ends, part, k.data, k.bytes);
    CALL(mxq_tensor_get_group_alignment, part, k.i, k.i + 1);
    CALL(mxq_tensor_get_padded_groups, part, row, k.memory, k.bytes, k.memory + 1, k.bytes + 1);
    CALL(mxq_tensor_get_amax, part, row, &k.sums, k.bytes);
    CALL(mxq_tensor_get_decode_scale, part, row, &k.factors, k.bytes);
    CALL(mxq_tensor_get_hadamard, part, row, k.i, k.i + 1);
    CALL(mxq_tensor_get_scale_max, part, k.i);
    CALL(mxq_tensor_get_quantization_scale, part, &k.factors, k.bytes);
    CALL(mxq_tensor_get_scope, part, k.i);
    CALL(mxq_tensor_get_row_indices, plain, k.data, k.bytes, k.i, k.n);
    add("mxq_tensor_describe", [=] {
        char text[100];
        return mxq_tensor_describe(part, text, sizeof text) > 0 ? MXQ_STATUS_OK : MXQ_STATUS_OUT_OF_MEMORY;
    });
}

void EveryFunction::add_quantize_options() {
    const auto o = object(mxq_quantize_options_create, mxq_quantize_options_destroy);
    uint64_t* const seed = memory_of<uint64_t>(2);
    CALL(mxq_quantize_options_set_scale_rounding, o.get(), MXQ_SCALE_ROUNDING_EVEN);
    CALL(mxq_quantize_options_set_nonfinite, o.get(), MXQ_NONFINITE_SATURATE);
    CALL(mxq_quantize_options_set_four_over_six, o.get(), MXQ_FOUR_OVER_SIX_NONE);
    CALL(mxq_quantize_options_set_undo_hadamard, o.get(), 1);
    CALL(mxq_quantize_options_set_stochastic_rounding, o.get(), seed, 16);
    CALL(mxq_quantize_options_set_compute_amax, o.get(), 1);
    CALL(mxq_quantize_options_set_power_of_two_scales, o.get(), 0);
    CALL(mxq_quantize_options_set_amax_epsilon, o.get(), 0.0f);
    CALL(mxq_quantize_options_set_source_part, o.get(), row);
    CALL(mxq_quantize_options_set_implementation, o.get(), long_name);
    CALL(mxq_quantize_options_get_scale_rounding, o.get(), k.i);
    CALL(mxq_quantize_options_get_nonfinite, o.get(), k.i);
    CALL(mxq_quantize_options_get_four_over_six, o.get(), k.i);
    CALL(mxq_quantize_options_get_undo_hadamard, o.get(), k.i);
    CALL(mxq_quantize_options_get_stochastic_rounding, o.get(), &k.seed, k.bytes);
    CALL(mxq_quantize_options_get_compute_amax, o.get(), k.i);
    CALL(mxq_quantize_options_get_power_of_two_scales, o.get(), k.i);
    CALL(mxq_quantize_options_get_amax_epsilon, o.get(), k.x);
    CALL(mxq_quantize_options_get_source_part, o.get(), k.i);
    CALL(mxq_quantize_options_get_implementation, o.get(), &k.text);
}

void EveryFunction::add_gemm_options() {
    const auto o = object(mxq_gemm_options_create, mxq_gemm_options_destroy);
    float* const bias = memory_of<float>(cols);
    CALL(mxq_gemm_options_set_transpose, o.get(), MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T);
    CALL(mxq_gemm_options_set_alpha, o.get(), 1.0f);
    CALL(mxq_gemm_options_set_beta, o.get(), 0.0f);
    CALL(mxq_gemm_options_set_accumulate, o.get(), 0);
    CALL(mxq_gemm_options_set_bias, o.get(), MXQ_FORMAT_F32, bias, cols * 4);
    CALL(mxq_gemm_options_set_exact_products, o.get(), 1);
    CALL(mxq_gemm_options_set_sm_count, o.get(), 0);
    CALL(mxq_gemm_options_set_row_invariant, o.get(), 1);
    CALL(mxq_gemm_options_set_implementation, o.get(), long_name);
    CALL(mxq_gemm_options_get_transpose, o.get(), k.i, k.i + 1);
    CALL(mxq_gemm_options_get_alpha, o.get(), k.x);
    CALL(mxq_gemm_options_get_beta, o.get(), k.x);
    CALL(mxq_gemm_options_get_accumulate, o.get(), k.i);
    CALL(mxq_gemm_options_get_bias, o.get(), k.i, k.data, k.bytes);
    CALL(mxq_gemm_options_get_exact_products, o.get(), k.i);
    CALL(mxq_gemm_options_get_sm_count, o.get(), k.i);
    CALL(mxq_gemm_options_get_row_invariant, o.get(), k.i);
    CALL(mxq_gemm_options_get_implementation, o.get(), &k.text);
}

void EveryFunction::add_activate_options() {
    const auto o = object(mxq_activate_options_create, mxq_activate_options_destroy);
    const auto quantize = object(mxq_quantize_options_create, mxq_quantize_options_destroy);
    float* const numbers = memory_of<float>(rows);
    CALL(mxq_activate_options_set_activation, o.get(), MXQ_ACTIVATION_SWIGLU_CLAMPED);
    CALL(mxq_activate_options_set_gate_layout, o.get(), MXQ_GATE_LAYOUT_UP_GATE);
    CALL(mxq_activate_options_set_clamp, o.get(), 1.0f, 2.0f, 3.0f);
    CALL(mxq_activate_options_set_bias, o.get(), MXQ_FORMAT_F32, numbers, rows * 4);
    CALL(mxq_activate_options_set_row_weights, o.get(), MXQ_FORMAT_F32, numbers, rows * 4);
    CALL(mxq_activate_options_set_quantize_options, o.get(), quantize.get());
    CALL(mxq_activate_options_set_implementation, o.get(), long_name);
    CALL(mxq_activate_options_set_bias_gradient, o.get(), numbers, rows * 4);
    CALL(mxq_activate_options_set_row_weight_gradient, o.get(), numbers, rows * 4);
    CALL(mxq_activate_options_get_activation, o.get(), k.i);
    CALL(mxq_activate_options_get_gate_layout, o.get(), k.i);
    CALL(mxq_activate_options_get_clamp, o.get(), k.x, k.x + 1, k.x + 2);
    CALL(mxq_activate_options_get_bias, o.get(), k.i, k.data, k.bytes);
    CALL(mxq_activate_options_get_row_weights, o.get(), k.i, k.data, k.bytes);
    CALL(mxq_activate_options_get_bias_gradient, o.get(), &k.sums, k.bytes);
    CALL(mxq_activate_options_get_row_weight_gradient, o.get(), &k.sums, k.bytes);
    CALL(mxq_activate_options_get_quantize_options, o.get(), quantize.get());
    CALL(mxq_activate_options_get_implementation, o.get(), &k.text);
}

void EveryFunction::add_layer_options() {
    const auto o = object(mxq_expert_layer_options_create, mxq_expert_layer_options_destroy);
    const auto quantize = object(mxq_quantize_options_create, mxq_quantize_options_destroy);
    const auto activate = object(mxq_activate_options_create, mxq_activate_options_destroy);
    float* const bias = memory_of<float>(experts * cols);
    mxq_tensor *residual = tensor(MXQ_FORMAT_BF16, {std::nullopt, rows, cols}),
               *copy = tensor(MXQ_FORMAT_BF16, {std::nullopt, rows, cols});
    CALL(mxq_expert_layer_options_set_activate_options, o.get(), activate.get());
    CALL(mxq_expert_layer_options_set_row_format, o.get(), MXQ_FORMAT_MXFP8_E4M3, 0);
    CALL(mxq_expert_layer_options_set_quantize_options, o.get(), quantize.get());
    CALL(mxq_expert_layer_options_set_inner_format, o.get(), MXQ_FORMAT_BF16);
    CALL(mxq_expert_layer_options_set_gate_up_bias, o.get(), MXQ_FORMAT_F32, bias, experts * cols * 4);
    CALL(mxq_expert_layer_options_set_down_bias, o.get(), MXQ_FORMAT_F32, bias, experts * cols * 4);
    CALL(mxq_expert_layer_options_set_residual, o.get(), residual);
    CALL(mxq_expert_layer_options_set_weights_first, o.get(), 1);
    CALL(mxq_expert_layer_options_set_exact_products, o.get(), 1);
    CALL(mxq_expert_layer_options_set_row_invariant, o.get(), 1);
    CALL(mxq_expert_layer_options_get_activate_options, o.get(), activate.get());
    CALL(mxq_expert_layer_options_get_row_format, o.get(), k.i, k.i + 1);
    CALL(mxq_expert_layer_options_get_quantize_options, o.get(), quantize.get());
    CALL(mxq_expert_layer_options_get_inner_format, o.get(), k.i);
    CALL(mxq_expert_layer_options_get_gate_up_bias, o.get(), k.i, k.data, k.bytes);
    CALL(mxq_expert_layer_options_get_down_bias, o.get(), k.i, k.data, k.bytes);
    CALL(mxq_expert_layer_options_get_residual, o.get(), k.i, copy);
    CALL(mxq_expert_layer_options_get_weights_first, o.get(), k.i);
    CALL(mxq_expert_layer_options_get_exact_products, o.get(), k.i);
    CALL(mxq_expert_layer_options_get_row_invariant, o.get(), k.i);
}

void EveryFunction::add_routing() {
    mxq_routing *r = make_routing(), *computed = make_routing();
    constexpr uint64_t bytes = 8 * rows;
    int32_t* const ids = memory_of<int32_t>(2 * rows);
    float* const weights = memory_of<float>(2 * rows);
    uint8_t* const memory = memory_of<uint8_t>(1 << 14);
    CALL(mxq_routing_set_ids, r, ids, bytes, MXQ_TYPE_INT32);
    CALL(mxq_routing_set_weights, r, MXQ_FORMAT_F32, weights, bytes);
    CALL(mxq_routing_set_local_experts, r, 0, experts);
    CALL(mxq_routing_set_memory, r, memory, 1 << 14);
    CALL(mxq_routing_required_bytes, r, k.bytes);
    CALL(mxq_routing_set_dropped, r, ids, 4);
    CALL(mxq_routing_set_computed, computed, ids, experts * 4, ids, bytes, ids, bytes, weights, bytes);
    CALL(mxq_routing_get_shape, r, k.n, k.i, k.i + 1);
    CALL(mxq_routing_get_ids, r, k.data, k.bytes, k.i);
    CALL(mxq_routing_get_weights, r, k.i, k.data, k.bytes);
    CALL(mxq_routing_get_local_experts, r, k.i, k.i + 1);
    CALL(mxq_routing_get_memory, r, k.memory, k.bytes);
    CALL(mxq_routing_get_dropped, r, &k.numbers, k.bytes);
    CALL(mxq_routing_get_ends, r, &k.indices, k.bytes);
    CALL(mxq_routing_get_row_tokens, r, &k.indices, k.bytes);
    CALL(mxq_routing_get_choice_rows, r, &k.indices, k.bytes);
    CALL(mxq_routing_get_row_weights, r, &k.factors, k.bytes);
}

}  // namespace testing
