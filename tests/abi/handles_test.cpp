// Every setter of tensors and options refuses values that mean nothing, and says so.
#include "says.h"

#include <functional>
#include <utility>

using testing::ok;

namespace {
constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT;
}

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
    MXQ_REFUSED(mxq_tensor_create_2d(MXQ_FORMAT_F32, 1, 1, nullptr), invalid, "out", "NULL");
    CHECK(tensor == nullptr);

    testing::Tensor largest, empty;
    CHECK(mxq_tensor_create_3d(MXQ_FORMAT_MXFP8_E4M3, 1 << 16, 1 << 16, 1 << 16, largest.out()) == MXQ_STATUS_OK);
    CHECK(mxq_tensor_create_3d(MXQ_FORMAT_F32, MXQ_MAX_DIM, 0, MXQ_MAX_DIM, empty.out()) == MXQ_STATUS_OK);
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
        {"options", [] { return mxq_context_options_set_cublaslt_path(nullptr, ""); }},
        {"tensor", [] { return mxq_tensor_set_host_ends(nullptr, nullptr, 0); }},
    };
    int ran = 0;
    for (const auto& [name, call] : calls) {
        MXQ_REFUSED(call(), invalid, name, "NULL", "expected");
        ++ran;
    }
    CHECK(ran == 23);
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
