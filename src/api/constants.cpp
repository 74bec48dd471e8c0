// Every constant of the header, for languages that cannot read one.
#include <cstring>

#include "api/guard.h"

namespace {

struct Constant {
    const char* name;
    int64_t value;
};

#define ROW(name) \
    { #name, name }
constexpr Constant constants[] = {
    ROW(MXQ_VERSION_MAJOR),
    ROW(MXQ_VERSION_MINOR),
    ROW(MXQ_VERSION_PATCH),
    ROW(MXQ_VERSION),
    // The statuses stand together and in order: mxq_status_name counts on it.
    ROW(MXQ_STATUS_OK),
    ROW(MXQ_STATUS_INVALID_ARGUMENT),
    ROW(MXQ_STATUS_SHAPE_MISMATCH),
    ROW(MXQ_STATUS_MISSING_BUFFER),
    ROW(MXQ_STATUS_BUFFER_TOO_SMALL),
    ROW(MXQ_STATUS_MISALIGNED),
    ROW(MXQ_STATUS_UNSUPPORTED),
    ROW(MXQ_STATUS_NO_DEVICE),
    ROW(MXQ_STATUS_OUT_OF_MEMORY),
    ROW(MXQ_STATUS_CUDA_ERROR),
    ROW(MXQ_STATUS_INTERNAL_ERROR),
    ROW(MXQ_LOG_OFF),
    ROW(MXQ_LOG_INFO),
    ROW(MXQ_LOG_TRACE),
    ROW(MXQ_FORMAT_F32),
    ROW(MXQ_FORMAT_F16),
    ROW(MXQ_FORMAT_BF16),
    ROW(MXQ_FORMAT_MXFP8_E4M3),
    ROW(MXQ_FORMAT_MXFP8_E5M2),
    ROW(MXQ_FORMAT_MXFP6_E2M3),
    ROW(MXQ_FORMAT_MXFP6_E3M2),
    ROW(MXQ_FORMAT_MXFP4),
    ROW(MXQ_FORMAT_NVFP4),
    ROW(MXQ_FORMAT_FP8_E4M3),
    ROW(MXQ_FORMAT_FP8_E5M2),
    ROW(MXQ_SCALING_NONE),
    ROW(MXQ_SCALING_1X32),
    ROW(MXQ_SCALING_32X32),
    ROW(MXQ_SCALING_1X128),
    ROW(MXQ_SCALING_128X128),
    ROW(MXQ_SCALING_1X16),
    ROW(MXQ_SCALING_16X16),
    ROW(MXQ_SCALING_ROW),
    ROW(MXQ_SCALING_TENSOR),
    ROW(MXQ_SCOPE_TENSOR),
    ROW(MXQ_SCOPE_EXPERT),
    ROW(MXQ_PROPERTY_ELEMENT_BITS),
    ROW(MXQ_PROPERTY_BLOCK),
    ROW(MXQ_PROPERTY_QUANTIZED),
    ROW(MXQ_DEVICE_CPU),
    ROW(MXQ_DEVICE_CUDA),
    ROW(MXQ_PART_ROWWISE),
    ROW(MXQ_PART_COLUMNWISE),
    ROW(MXQ_PART_BOTH),
    ROW(MXQ_TYPE_INT32),
    ROW(MXQ_TYPE_INT64),
    ROW(MXQ_MAX_DIM),
    ROW(MXQ_MAX_GROUPS),
    ROW(MXQ_SCALE_ROUNDING_FLOOR),
    ROW(MXQ_SCALE_ROUNDING_CEIL),
    ROW(MXQ_SCALE_ROUNDING_EVEN),
    ROW(MXQ_SCALE_ROUNDING_RCEIL),
    ROW(MXQ_NONFINITE_PROPAGATE),
    ROW(MXQ_NONFINITE_SATURATE),
    ROW(MXQ_FOUR_OVER_SIX_NONE),
    ROW(MXQ_FOUR_OVER_SIX_MAE),
    ROW(MXQ_FOUR_OVER_SIX_MSE),
    ROW(MXQ_TRANSPOSE_N),
    ROW(MXQ_TRANSPOSE_T),
    ROW(MXQ_BOUND_NONE),
    ROW(MXQ_BOUND_EXACT_PRODUCTS),
    ROW(MXQ_BOUND_FP8_TENSOR_CORES),
    ROW(MXQ_BOUND_REBASED),
    ROW(MXQ_BOUND_REBASED_GUARDED),
    ROW(MXQ_BOUND_BLACKWELL_TENSOR_CORES),
    ROW(MXQ_ACTIVATION_SWIGLU),
    ROW(MXQ_ACTIVATION_GEGLU_ERF),
    ROW(MXQ_ACTIVATION_GEGLU_TANH),
    ROW(MXQ_ACTIVATION_SWIGLU_CLAMPED),
    ROW(MXQ_ACTIVATION_SILU),
    ROW(MXQ_ACTIVATION_GELU_ERF),
    ROW(MXQ_ACTIVATION_GELU_TANH),
    ROW(MXQ_ACTIVATION_SQUARED_RELU),
    ROW(MXQ_GATE_LAYOUT_GATE_UP),
    ROW(MXQ_GATE_LAYOUT_UP_GATE),
    ROW(MXQ_GATE_LAYOUT_INTERLEAVED_GATE_UP),
    ROW(MXQ_GATE_LAYOUT_INTERLEAVED_UP_GATE),
};
#undef ROW

constexpr int32_t constant_count = sizeof constants / sizeof constants[0];
constexpr int32_t first_status = 4;
static_assert(constants[first_status + MXQ_STATUS_INTERNAL_ERROR].value == MXQ_STATUS_INTERNAL_ERROR);

}  // namespace

mxq_status mxq_constant(const char* name, int64_t* value) {
    return mxq::guard("mxq_constant", [&] {
        mxq::require_output(value, "value");
        if (!name) mxq::fail(MXQ_STATUS_INVALID_ARGUMENT, "name is NULL, expected a constant such as \"MXQ_FORMAT_BF16\"");
        for (const Constant& constant : constants)
            if (std::strcmp(name, constant.name) == 0) {
                *value = constant.value;
                return;
            }
        mxq::fail(MXQ_STATUS_INVALID_ARGUMENT, "name is \"%s\", expected a constant of mxq.h; loop over mxq_constant_name",
                  name);
    });
}

const char* mxq_constant_name(int32_t index) {
    return index >= 0 && index < constant_count ? constants[index].name : nullptr;
}

const char* mxq_status_name(mxq_status status) {
    const bool known = status >= MXQ_STATUS_OK && status <= MXQ_STATUS_INTERNAL_ERROR;
    return known ? constants[first_status + status].name : "unknown status";
}
