// A libmxq that is opened at run time, so that several can be measured in one run, and handles that remember whose they are.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include <mxq/mxq.h>

// The functions of mxq.h that the benchmark calls. A list, because each name is needed as a type, a member and a string.
#define MXQ_BENCH_FUNCTIONS(X)                                                                                             \
    X(version_string) X(build_string) X(status_name) X(last_error)                                                         \
    X(context_options_create) X(context_options_destroy) X(context_options_set_threads)                                    \
    X(context_create) X(context_destroy) X(context_description) X(context_cublaslt)                                        \
    X(tensor_create_2d) X(tensor_create_3d) X(tensor_destroy) X(tensor_set_scaling) X(tensor_set_swizzled)                 \
    X(tensor_set_data) X(tensor_set_part) X(tensor_set_groups) X(tensor_set_group_alignment) X(tensor_set_amax)            \
    X(tensor_set_padded_groups)                                                                                            \
    X(tensor_set_quantization_scale) X(tensor_set_scope) X(tensor_set_hadamard)                                            \
    X(tensor_required_bytes) X(tensor_required_amax_bytes)                                                                 \
    X(quantize_options_create) X(quantize_options_destroy) X(quantize_options_set_four_over_six)                           \
    X(quantize_options_set_stochastic_rounding) X(quantize_options_set_compute_amax)                                       \
    X(quantize_options_set_implementation) X(quantize_options_set_scale_rounding)                                          \
    X(gemm_options_create) X(gemm_options_destroy) X(gemm_options_set_transpose) X(gemm_options_set_exact_products)        \
    X(gemm_options_set_implementation) X(gemm_options_set_bias) X(gemm_options_set_beta)                                   \
    X(plan_implementation) X(plan_reason) X(plan_workspace_bytes) X(plan_destroy)                                          \
    X(quantize) X(quantize_query) X(requantize) X(requantize_query) X(dequantize) X(dequantize_query) X(amax) X(amax_query) \
    X(pad_groups) X(pad_groups_query) X(unpad_groups) X(unpad_groups_query)                                                \
    X(swizzle_scales) X(swizzle_scales_query) X(unswizzle_scales) X(unswizzle_scales_query)                                \
    X(gemm) X(gemm_query) X(grouped_gemm) X(grouped_gemm_query)                                                            \
    X(tensor_total_bytes) X(tensor_set_memory) X(tensor_set_routing_rows) X(tensor_set_routing_groups)                     \
    X(routing_create) X(routing_destroy) X(routing_set_ids) X(routing_set_weights) X(routing_required_bytes)               \
    X(routing_set_memory) X(route) X(activate) X(activate_query) X(activate_backward) X(activate_backward_query)           \
    X(combine) X(combine_query) X(combine_backward) X(combine_backward_query)                                              \
    X(expert_layer_options_create) X(expert_layer_options_destroy) X(expert_layer_options_set_row_format)                  \
    X(expert_layer) X(expert_layer_query)

struct Functions {
#define MXQ_BENCH_MEMBER(name) decltype(&mxq_##name) name;
    MXQ_BENCH_FUNCTIONS(MXQ_BENCH_MEMBER)
#undef MXQ_BENCH_MEMBER
};

// Why a row is not there: a function that the library lacks, a format that no implementation takes, a peer that is missing.
struct LeftOut : std::runtime_error {
    using std::runtime_error::runtime_error;
};

template <class T>
using Handle = std::unique_ptr<T, void (*)(T*)>;

// A library and its context for one device.
class Library {
public:
    Library(std::string name, const Functions& functions, int32_t device_type, int threads);
    // file: a path, or a name that the loader finds. name: as reports have it.
    static Library open(const std::string& name, const std::string& file, int32_t device_type, int threads);

    const Functions* operator->() const { return &functions_; }
    mxq_context* context() const { return context_.get(); }
    const std::string& name() const { return name_; }

    // Throws LeftOut where the status is UNSUPPORTED, and std::runtime_error for other failures.
    void check(mxq_status status) const;

    template <class T, class Create, class... Arguments>
    Handle<T> make(void (*destroy)(T*), Create create, Arguments... arguments) const {
        T* raw = nullptr;
        check(create(arguments..., &raw));
        return {raw, destroy};
    }

private:
    std::string name_;
    Functions functions_;
    Handle<mxq_context> context_;
};
