// Every setter of tensors and options refuses values that mean nothing, and says so.
#include "says.h"

#include <functional>
#include <utility>

using testing::ok;

namespace {
constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT;

template <class T, void (*destroy)(T*)>
void* to_pointer(const testing::Handle<T, destroy>& handle) {
    return static_cast<T*>(handle);
}

}  // namespace

TEST_CASE("tensor: formats and sizes that cannot be are refused") {
    mxq_tensor* tensor = nullptr;
    for (int32_t format : {-1, 0, 12, 1000}) {
        tensor = reinterpret_cast<mxq_tensor*>(16);
        MXQ_REFUSED(mxq_tensor_create_2d(format, 1, 1, &tensor), invalid, "mxq_tensor_create_2d", "format", std::to_string(format), "MXQ_FORMAT");
        CHECK(tensor == nullptr);
    }
    const int64_t too_large = int64_t(MXQ_MAX_DIM) + 1;
    for (int64_t size : {int64_t(-1), INT64_MIN, too_large, INT64_MAX}) {
        MXQ_REFUSED(mxq_tensor_create_2d(MXQ_FORMAT_F32, size, 1, &tensor), invalid, "rows", std::to_string(size), "2147483647");
        MXQ_REFUSED(mxq_tensor_create_2d(MXQ_FORMAT_F32, 1, size, &tensor), invalid, "cols", std::to_string(size));
        MXQ_REFUSED(mxq_tensor_create_3d(MXQ_FORMAT_F32, size, 1, 1, &tensor), invalid, "experts", std::to_string(size));
    }
    MXQ_REFUSED(mxq_tensor_create_2d(MXQ_FORMAT_F32, MXQ_MAX_DIM, MXQ_MAX_DIM, &tensor), invalid, "2^48");
    MXQ_REFUSED(mxq_tensor_create_3d(MXQ_FORMAT_F32, MXQ_MAX_DIM, MXQ_MAX_DIM, 1, &tensor), invalid, "2^48");
    MXQ_REFUSED(mxq_tensor_create_3d(MXQ_FORMAT_F32, 1 << 20, 1 << 20, 257, &tensor), invalid, "2^48");
    MXQ_REFUSED(mxq_tensor_create_3d(MXQ_FORMAT_F32, MXQ_MAX_DIM, 0, MXQ_MAX_DIM, &tensor), invalid, "2^48", "a size of 0 counts as 1");
    MXQ_REFUSED(mxq_tensor_create_2d(MXQ_FORMAT_F32, 1, 1, nullptr), invalid, "out", "NULL");
    CHECK(tensor == nullptr);

    testing::Tensor largest, empty;
    CHECK(mxq_tensor_create_3d(MXQ_FORMAT_MXFP8_E4M3, 1 << 16, 1 << 16, 1 << 16, largest.out()) == MXQ_STATUS_OK);
    CHECK(mxq_tensor_create_3d(MXQ_FORMAT_F32, MXQ_MAX_DIM, 0, 1 << 17, empty.out()) == MXQ_STATUS_OK);
    uint64_t codes = 0, scales = 0;
    CHECK(mxq_tensor_required_bytes(largest, MXQ_PART_COLUMNWISE, &codes, &scales) == MXQ_STATUS_OK);
    CHECK(codes == uint64_t(1) << 48);
    CHECK(scales == uint64_t(1) << 43);
    CHECK(mxq_tensor_required_bytes(empty, MXQ_PART_ROWWISE, &codes, &scales) == MXQ_STATUS_OK);
    CHECK(codes == 0);
}

TEST_CASE("tensor: setters refuse unknown values, and what the format has not") {
    auto plain = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 4, 32}), quantized = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, 4, 32}),
         experts = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {2, 4, 32});
    uint8_t byte = 0;
    uint64_t bytes = 77;
    for (int32_t bad : {-1, 0, 5, 9})
        MXQ_REFUSED(mxq_tensor_set_scaling(quantized, bad), invalid, "scaling", std::to_string(bad), "MXQ_SCALING_1X32");
    for (int32_t bad : {-1, 0, 3}) {
        MXQ_REFUSED(mxq_tensor_set_part(quantized, bad, &byte, 1, &byte, 1), invalid, "part", std::to_string(bad), "MXQ_PART_ROWWISE");
        MXQ_REFUSED(mxq_tensor_clear_part(quantized, bad), invalid, "part", std::to_string(bad));
        MXQ_REFUSED(mxq_tensor_required_bytes(quantized, bad, &bytes, nullptr), invalid, "part", std::to_string(bad));
        MXQ_REFUSED(mxq_tensor_set_groups(quantized, &byte, 4, bad, 1), invalid, "ends_type", std::to_string(bad), "MXQ_TYPE_INT32");
    }
    for (int32_t bad : {-1, 2}) MXQ_REFUSED(mxq_tensor_set_swizzled(quantized, bad), invalid, "swizzled", std::to_string(bad));
    for (int32_t bad : {-1, MXQ_MAX_GROUPS + 1})
        MXQ_REFUSED(mxq_tensor_set_groups(quantized, &byte, 4, MXQ_TYPE_INT32, bad), invalid, "count", std::to_string(bad), "4096");
    MXQ_REFUSED(mxq_tensor_set_groups(experts, &byte, 4, MXQ_TYPE_INT32, 1), invalid, "dimensions");
    for (int64_t bad : {int64_t(-1), int64_t(31), INT64_MAX})
        MXQ_REFUSED(mxq_tensor_set_row_stride(plain, bad), invalid, "elements", std::to_string(bad), "32");

    MXQ_REFUSED(mxq_tensor_set_scaling(plain, MXQ_SCALING_1X32), invalid, "bf16");
    MXQ_REFUSED(mxq_tensor_set_swizzled(plain, 1), invalid, "bf16");
    MXQ_REFUSED(mxq_tensor_set_part(plain, MXQ_PART_ROWWISE, &byte, 1, &byte, 1), invalid, "bf16", "mxq_tensor_set_data");
    MXQ_REFUSED(mxq_tensor_clear_part(plain, MXQ_PART_ROWWISE), invalid, "bf16");
    MXQ_REFUSED(mxq_tensor_required_bytes(plain, MXQ_PART_COLUMNWISE, &bytes, nullptr), invalid, "MXQ_PART_ROWWISE");
    MXQ_REFUSED(mxq_tensor_set_data(quantized, &byte, 1), invalid, "mxfp8_e4m3", "mxq_tensor_set_part");
    MXQ_REFUSED(mxq_tensor_set_row_stride(quantized, 64), invalid, "mxfp8_e4m3");
    CHECK(bytes == 77);

    // The refused calls above changed nothing.
    uint64_t codes = 0, scales = 0;
    ok(mxq_tensor_required_bytes(quantized, MXQ_PART_ROWWISE, &codes, &scales));
    CHECK(codes == 128);
    CHECK(scales == 4);
    ok(mxq_tensor_required_bytes(plain, MXQ_PART_ROWWISE, &codes, nullptr));
    CHECK(codes == 256);
}

TEST_CASE("options: setters refuse unknown values") {
    testing::QuantizeOptions quantize;
    testing::GemmOptions gemm;
    ok(mxq_quantize_options_create(quantize.out()));
    ok(mxq_gemm_options_create(gemm.out()));
    for (int32_t bad : {-1, 0, 5}) {
        std::string number = std::to_string(bad);
        MXQ_REFUSED(mxq_quantize_options_set_scale_rounding(quantize, bad), invalid, "rounding", number);
        MXQ_REFUSED(mxq_quantize_options_set_nonfinite(quantize, bad), invalid, "policy", number);
        MXQ_REFUSED(mxq_gemm_options_set_transpose(gemm, bad, MXQ_TRANSPOSE_N), invalid, "transposes", number);
        MXQ_REFUSED(mxq_gemm_options_set_transpose(gemm, MXQ_TRANSPOSE_N, bad), invalid, "transposes", number);
    }
    for (int32_t bad : {-1, 2}) MXQ_REFUSED(mxq_gemm_options_set_accumulate(gemm, bad), invalid, "accumulate", std::to_string(bad));
}

TEST_CASE("handles: every function refuses a NULL one by name") {
    using Call = std::function<mxq_status()>;
    uint64_t bytes = 0;
    const std::pair<const char*, Call> calls[] = {
        {"tensor", [] { return mxq_tensor_set_scaling(nullptr, MXQ_SCALING_1X32); }},
        {"tensor", [] { return mxq_tensor_set_swizzled(nullptr, 1); }},
        {"tensor", [] { return mxq_tensor_set_row_stride(nullptr, 1); }},
        {"tensor", [] { return mxq_tensor_set_data(nullptr, nullptr, 0); }},
        {"tensor", [] { return mxq_tensor_set_part(nullptr, MXQ_PART_ROWWISE, nullptr, 0, nullptr, 0); }},
        {"tensor", [] { return mxq_tensor_clear_part(nullptr, MXQ_PART_ROWWISE); }},
        {"tensor", [] { return mxq_tensor_set_groups(nullptr, nullptr, 0, MXQ_TYPE_INT32, 0); }},
        {"tensor", [&] { return mxq_tensor_required_bytes(nullptr, MXQ_PART_ROWWISE, &bytes, &bytes); }},
        {"out", [] { return mxq_tensor_create_3d(MXQ_FORMAT_F32, 1, 1, 1, nullptr); }},
        {"out", [] { return mxq_quantize_options_create(nullptr); }},
        {"out", [] { return mxq_gemm_options_create(nullptr); }},
        {"options", [] { return mxq_quantize_options_set_scale_rounding(nullptr, MXQ_SCALE_ROUNDING_FLOOR); }},
        {"options", [] { return mxq_quantize_options_set_nonfinite(nullptr, MXQ_NONFINITE_SATURATE); }},
        {"options", [] { return mxq_quantize_options_set_implementation(nullptr, ""); }},
        {"options", [] { return mxq_gemm_options_set_transpose(nullptr, MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_N); }},
        {"options", [] { return mxq_gemm_options_set_accumulate(nullptr, 1); }},
        {"options", [] { return mxq_gemm_options_set_implementation(nullptr, ""); }},
        {"options", [] { return mxq_gemm_options_set_alpha(nullptr, 1); }},
        {"options", [] { return mxq_gemm_options_set_beta(nullptr, 0); }},
        {"options", [] { return mxq_gemm_options_set_bias(nullptr, 0, nullptr, 0); }},
        {"options", [] { return mxq_gemm_options_set_exact_products(nullptr, 1); }},
        {"options", [] { return mxq_gemm_options_set_sm_count(nullptr, 1); }},
        {"options", [] { return mxq_gemm_options_set_row_invariant(nullptr, 1); }},
        {"options", [] { return mxq_context_options_set_cublaslt_path(nullptr, ""); }},
        {"tensor", [] { return mxq_tensor_set_host_ends(nullptr, nullptr, 0); }},
    };
    int ran = 0;
    for (const auto& [name, call] : calls) {
        MXQ_REFUSED(call(), invalid, name, "NULL", "expected");
        ++ran;
    }
    CHECK(ran == 25);
}

// Every place of a handle gets one of another kind, which a language without types lets pass.
TEST_CASE("handles: those of another kind are refused by every function", "[cpu]") {
    testing::Context context = testing::cpu_context(1);
    testing::Tensor tensor = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 2, 32}), q = testing::make_quantized({}, {std::nullopt, 2, 32}, false);
    testing::QuantizeOptions quantize_options;
    testing::GemmOptions gemm_options;
    testing::Plan plan;
    testing::Handle<mxq_context_options, mxq_context_options_destroy> context_options;
    ok(mxq_quantize_options_create(quantize_options.out()));
    ok(mxq_gemm_options_create(gemm_options.out()));
    ok(mxq_context_options_create(context_options.out()));
    ok(mxq_quantize_query(context, nullptr, tensor, q, plan.out()));
    const auto context_of = [](const auto& handle) { return reinterpret_cast<mxq_context*>(to_pointer(handle)); };
    const auto tensor_of = [](const auto& handle) { return reinterpret_cast<mxq_tensor*>(to_pointer(handle)); };
    const auto options_of = [](const auto& handle) { return reinterpret_cast<mxq_quantize_options*>(to_pointer(handle)); };
    const auto gemm_options_of = [](const auto& handle) { return reinterpret_cast<mxq_gemm_options*>(to_pointer(handle)); };

    using Verb = mxq_status (*)(mxq_context*, const mxq_quantize_options*, const mxq_tensor*, const mxq_tensor*, void*, uint64_t, void*);
    using Query = mxq_status (*)(mxq_context*, const mxq_quantize_options*, const mxq_tensor*, const mxq_tensor*, mxq_plan**);
    const std::pair<Verb, Query> verbs[] = {
        {mxq_quantize, mxq_quantize_query},           {mxq_requantize, mxq_requantize_query},
        {mxq_amax, mxq_amax_query},                   {mxq_dequantize, mxq_dequantize_query},
        {mxq_convert, mxq_convert_query},
        {mxq_pad_groups, mxq_pad_groups_query},       {mxq_unpad_groups, mxq_unpad_groups_query},
        {mxq_swizzle_scales, mxq_swizzle_scales_query}, {mxq_unswizzle_scales, mxq_unswizzle_scales_query}};
    int ran = 0;
    for (const auto& [verb, query] : verbs) {
        MXQ_REFUSED(verb(context_of(tensor), nullptr, tensor, q, nullptr, 0, nullptr), invalid, "context is a tensor, expected a context");
        MXQ_REFUSED(verb(context, options_of(gemm_options), tensor, q, nullptr, 0, nullptr), invalid, "options is gemm options, expected quantize options");
        MXQ_REFUSED(verb(context, nullptr, tensor_of(context), q, nullptr, 0, nullptr), invalid, "in is a context, expected a tensor");
        MXQ_REFUSED(verb(context, nullptr, tensor, tensor_of(plan), nullptr, 0, nullptr), invalid, "out is a plan, expected a tensor");
        MXQ_REFUSED(query(context_of(context_options), nullptr, tensor, q, nullptr), invalid, "context is a context's options");
        MXQ_REFUSED(query(context, options_of(tensor), tensor, q, nullptr), invalid, "options is a tensor");
        MXQ_REFUSED(query(context, nullptr, tensor, tensor_of(quantize_options), nullptr), invalid, "out is quantize options");
        ++ran;
    }
    for (const auto product : {mxq_gemm, mxq_grouped_gemm}) {
        MXQ_REFUSED(product(context_of(plan), nullptr, q, q, tensor, nullptr, 0, nullptr), invalid, "context is a plan");
        MXQ_REFUSED(product(context, gemm_options_of(quantize_options), q, q, tensor, nullptr, 0, nullptr), invalid, "options is quantize options, expected gemm options");
        MXQ_REFUSED(product(context, nullptr, tensor_of(context), q, tensor, nullptr, 0, nullptr), invalid, "a is a context");
        MXQ_REFUSED(product(context, nullptr, q, tensor_of(context), tensor, nullptr, 0, nullptr), invalid, "b is a context");
        MXQ_REFUSED(product(context, nullptr, q, q, tensor_of(context), nullptr, 0, nullptr), invalid, "d is a context");
        ++ran;
    }
    CHECK(ran == 11);

    MXQ_REFUSED(mxq_tensor_set_data(tensor_of(context), nullptr, 0), invalid, "tensor is a context, expected a tensor");
    MXQ_REFUSED(mxq_quantize_options_set_undo_hadamard(options_of(gemm_options), 0), invalid, "options is gemm options");
    MXQ_REFUSED(mxq_gemm_options_set_alpha(gemm_options_of(tensor), 1), invalid, "options is a tensor, expected gemm options");
    MXQ_REFUSED(mxq_context_options_set_threads(reinterpret_cast<mxq_context_options*>(to_pointer(tensor)), 1), invalid, "options is a tensor");
    testing::Context none;
    MXQ_REFUSED(mxq_context_create(MXQ_DEVICE_CPU, 0, reinterpret_cast<mxq_context_options*>(to_pointer(context)), none.out()), invalid, "options is a context, expected");

    auto* const not_a_plan = reinterpret_cast<mxq_plan*>(to_pointer(tensor));
    CHECK(mxq_plan_implementation(not_a_plan) == std::string());
    CHECK(mxq_plan_reason(not_a_plan) == std::string());
    CHECK(mxq_plan_workspace_bytes(not_a_plan) == 0);
    CHECK(mxq_plan_bound(not_a_plan) == MXQ_BOUND_NONE);
    CHECK(mxq_context_description(context_of(tensor)) == std::string());
    CHECK(mxq_context_cublaslt(context_of(tensor)) == std::string());

    // The wrong destroy function leaves the object alive.
    mxq_plan_destroy(not_a_plan);
    CHECK(std::string(mxq_last_error()).find("mxq_plan_destroy: plan is a tensor, expected a plan") == 0);
    mxq_context_destroy(context_of(tensor));
    mxq_gemm_options_destroy(gemm_options_of(tensor));
    mxq_quantize_options_destroy(options_of(tensor));
    mxq_tensor_destroy(tensor_of(context));
    mxq_context_options_destroy(reinterpret_cast<mxq_context_options*>(to_pointer(context)));
    CHECK(mxq_tensor_set_data(tensor, nullptr, 0) == MXQ_STATUS_OK);
    CHECK(mxq_quantize_query(context, nullptr, tensor, q, nullptr) == MXQ_STATUS_OK);
}

// Compares required sizes with the contract's arithmetic, with and without groups.
TEST_CASE("tensor: required bytes") {
    struct Expected {
        int32_t scaling, swizzled, groups;
        uint64_t row_codes, row_scales, column_codes, column_scales;
    };
    const uint64_t rows = 100, cols = 70;  // 3 blocks in a row, 4 in a column
    const uint64_t padded = 32 * ((rows + 31 * 5) / 32), padded128 = 128 * ((rows + 127 * 5) / 128);
    const Expected all[] = {
        {MXQ_SCALING_1X32, 0, 0, rows * cols, rows * 3, rows * cols, cols * 4},
        {MXQ_SCALING_32X32, 0, 0, rows * cols, 4 * 3, rows * cols, 3 * 4},
        {MXQ_SCALING_1X32, 1, 0, rows * cols, 512, rows * cols, 512},
        {MXQ_SCALING_32X32, 1, 0, rows * cols, 512, rows * cols, 512},
        {MXQ_SCALING_1X32, 0, 5, rows * cols, rows * 3, cols * padded, cols * padded / 32},
        {MXQ_SCALING_32X32, 0, 5, rows * cols, padded / 32 * 3, cols * padded, 3 * padded / 32},
        {MXQ_SCALING_1X32, 1, 5, rows * cols, padded128 * 4, cols * padded, 128 * padded128 / 32},
        {MXQ_SCALING_32X32, 1, 5, rows * cols, padded128 * 4, cols * padded, 128 * padded128 / 32},
    };
    int ran = 0;
    for (const Expected& e : all) {
        oracle::Spec spec;
        spec.scaling = e.scaling;
        auto tensor = testing::make_quantized(spec, {std::nullopt, static_cast<int64_t>(rows), static_cast<int64_t>(cols)}, e.swizzled != 0);
        if (e.groups) ok(mxq_tensor_set_groups(tensor, nullptr, 0, MXQ_TYPE_INT32, e.groups));
        uint64_t codes = 0, scales = 0;
        CAPTURE(e.scaling, e.swizzled, e.groups);
        ok(mxq_tensor_required_bytes(tensor, MXQ_PART_ROWWISE, &codes, &scales));
        CHECK(codes == e.row_codes);
        CHECK(scales == e.row_scales);
        ok(mxq_tensor_required_bytes(tensor, MXQ_PART_COLUMNWISE, &codes, &scales));
        CHECK(codes == e.column_codes);
        CHECK(scales == e.column_scales);
        ok(mxq_tensor_set_groups(tensor, nullptr, 0, MXQ_TYPE_INT32, 0));  // clears the groups
        ok(mxq_tensor_required_bytes(tensor, MXQ_PART_COLUMNWISE, &codes, nullptr));
        CHECK(codes == rows * cols);
        ++ran;
    }
    CHECK(ran == 8);
}
