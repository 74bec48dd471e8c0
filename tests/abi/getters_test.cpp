// Getters return what setters set, and before that the defaults; a tensor describes itself.
#include "../formats.h"
#include "says.h"

#include <functional>

using testing::ok;

namespace {

constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT;

// Calls a getter of one value and returns it.
template <class T>
T value(mxq_status (*get)(const mxq_tensor*, T*), const mxq_tensor* tensor) {
    T out{};
    ok(get(tensor, &out));
    return out;
}

// A pointer and its bytes, as a getter told them.
struct Got {
    const void* pointer;
    uint64_t bytes;
    bool operator==(const Got& other) const { return pointer == other.pointer && bytes == other.bytes; }
};
std::ostream& operator<<(std::ostream& out, const Got& got) { return out << got.pointer << " with " << got.bytes << " bytes"; }

const Got nothing{nullptr, 0};

std::string described(const mxq_tensor* tensor) {
    char text[200] = "unset";
    const uint64_t length = mxq_tensor_describe(tensor, text, sizeof text);
    CHECK(length == std::strlen(text));
    return text;
}

}  // namespace

TEST_CASE("getters: format, shape, scaling and layout, first as they are by default", "[cpu]") {
    auto q = testing::make_tensor(MXQ_FORMAT_NVFP4, {3, 40, 70}), x = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 4, 9});
    CHECK(value(mxq_tensor_get_format, q) == MXQ_FORMAT_NVFP4);
    CHECK(value(mxq_tensor_get_scaling, q) == MXQ_SCALING_1X16);
    CHECK(value(mxq_tensor_get_scaling, x) == MXQ_SCALING_NONE);
    CHECK(value(mxq_tensor_get_swizzled, q) == 0);
    CHECK(value(mxq_tensor_get_scope, q) == MXQ_SCOPE_TENSOR);
    CHECK(value(mxq_tensor_get_scale_max, q) == 448);
    CHECK(value(mxq_tensor_get_row_stride, x) == 9);
    int32_t dimensions = 0;
    int64_t experts = 0, rows = 0, cols = 0;
    ok(mxq_tensor_get_shape(q, &dimensions, &experts, &rows, &cols));
    CHECK(std::tuple(dimensions, experts, rows, cols) == std::tuple(3, 3, 40, 70));
    ok(mxq_tensor_get_shape(x, &dimensions, &experts, &rows, &cols));
    CHECK(std::tuple(dimensions, experts, rows, cols) == std::tuple(2, 1, 4, 9));

    ok(mxq_tensor_set_scaling(q, MXQ_SCALING_16X16));
    ok(mxq_tensor_set_swizzled(q, 1));
    ok(mxq_tensor_set_scope(q, MXQ_SCOPE_EXPERT));
    ok(mxq_tensor_set_scale_max(q, 256));
    ok(mxq_tensor_set_row_stride(x, 11));
    CHECK(value(mxq_tensor_get_scaling, q) == MXQ_SCALING_16X16);
    CHECK(value(mxq_tensor_get_swizzled, q) == 1);
    CHECK(value(mxq_tensor_get_scope, q) == MXQ_SCOPE_EXPERT);
    CHECK(value(mxq_tensor_get_scale_max, q) == 256);
    CHECK(value(mxq_tensor_get_row_stride, x) == 11);
}

TEST_CASE("getters: pointers and their bytes, of each part its own", "[cpu]") {
    auto q = testing::make_tensor(MXQ_FORMAT_NVFP4, {std::nullopt, 8, 32}), x = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 2, 2}),
         fp8 = testing::make_tensor(MXQ_FORMAT_FP8_E4M3, {std::nullopt, 8, 32});
    const auto data = [&] {
        void* pointer = &pointer;
        uint64_t bytes = 1;
        int32_t is_const = -1;
        ok(mxq_tensor_get_data(x, &pointer, &bytes, &is_const));
        return std::pair(Got{pointer, bytes}, is_const);
    };
    const auto part = [&](int32_t which) {
        int32_t declared = -1, is_const = -1;
        void *codes = &declared, *scales = &declared;
        uint64_t code_bytes = 1, scale_bytes = 1;
        ok(mxq_tensor_get_part(q, which, &declared, &codes, &code_bytes, &scales, &scale_bytes, &is_const));
        return std::tuple(declared, Got{codes, code_bytes}, Got{scales, scale_bytes}, is_const);
    };
    const auto amax = [&](int32_t which) {
        float* pointer = nullptr;
        uint64_t bytes = 1;
        ok(mxq_tensor_get_amax(q, which, &pointer, &bytes));
        return Got{pointer, bytes};
    };
    const auto decode_scale = [&](int32_t which) {
        const float* pointer = nullptr;
        uint64_t bytes = 1;
        ok(mxq_tensor_get_decode_scale(q, which, &pointer, &bytes));
        return Got{pointer, bytes};
    };
    const auto quantization_scale = [&] {
        const float* pointer = nullptr;
        uint64_t bytes = 1;
        ok(mxq_tensor_get_quantization_scale(fp8, &pointer, &bytes));
        return Got{pointer, bytes};
    };
    const auto padded = [&](int32_t which) {
        void *starts = &q, *ends = &q;
        uint64_t start_bytes = 1, end_bytes = 1;
        ok(mxq_tensor_get_padded_groups(q, which, &starts, &start_bytes, &ends, &end_bytes));
        return std::pair(Got{starts, start_bytes}, Got{ends, end_bytes});
    };
    CHECK(data() == std::pair(nothing, 0));
    CHECK(quantization_scale() == nothing);
    for (int32_t which : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        CHECK(part(which) == std::tuple(0, nothing, nothing, 0));
        CHECK(amax(which) == nothing);
        CHECK(decode_scale(which) == nothing);
        CHECK(padded(which) == std::pair(nothing, nothing));
    }

    float numbers[16] = {};
    ok(mxq_tensor_set_data(x, numbers, 16));
    CHECK(data() == std::pair(Got{numbers, 16}, 0));
    ok(mxq_tensor_set_const_data(x, numbers + 1, 17));
    CHECK(data() == std::pair(Got{numbers + 1, 17}, 1));
    ok(mxq_tensor_set_quantization_scale(fp8, numbers, 5));
    CHECK(quantization_scale() == Got{numbers, 5});
    ok(mxq_tensor_set_part(q, MXQ_PART_COLUMNWISE, numbers, 6, numbers + 1, 7));
    ok(mxq_tensor_set_part(q, MXQ_PART_ROWWISE, nullptr, 0, numbers + 2, 9));
    ok(mxq_tensor_set_amax(q, MXQ_PART_COLUMNWISE, numbers + 3, 10));
    ok(mxq_tensor_set_decode_scale(q, MXQ_PART_ROWWISE, numbers + 4, 11));
    ok(mxq_tensor_set_padded_groups(q, MXQ_PART_COLUMNWISE, numbers + 5, 12, numbers + 6, 13));
    CHECK(part(MXQ_PART_COLUMNWISE) == std::tuple(1, Got{numbers, 6}, Got{numbers + 1, 7}, 0));
    CHECK(part(MXQ_PART_ROWWISE) == std::tuple(1, nothing, Got{numbers + 2, 9}, 0));
    CHECK(amax(MXQ_PART_COLUMNWISE) == Got{numbers + 3, 10});
    CHECK(amax(MXQ_PART_ROWWISE) == nothing);
    CHECK(decode_scale(MXQ_PART_ROWWISE) == Got{numbers + 4, 11});
    CHECK(decode_scale(MXQ_PART_COLUMNWISE) == nothing);
    CHECK(padded(MXQ_PART_COLUMNWISE) == std::pair(Got{numbers + 5, 12}, Got{numbers + 6, 13}));
    CHECK(padded(MXQ_PART_ROWWISE) == std::pair(nothing, nothing));
    ok(mxq_tensor_set_const_part(q, MXQ_PART_COLUMNWISE, numbers + 2, 4, numbers + 3, 5));
    CHECK(part(MXQ_PART_COLUMNWISE) == std::tuple(1, Got{numbers + 2, 4}, Got{numbers + 3, 5}, 1));
    CHECK(std::get<3>(part(MXQ_PART_ROWWISE)) == 0);
    ok(mxq_tensor_set_part(q, MXQ_PART_COLUMNWISE, numbers, 6, numbers + 1, 7));
    CHECK(std::get<3>(part(MXQ_PART_COLUMNWISE)) == 0);
}

TEST_CASE("getters: groups, their copy on the host, alignments", "[cpu]") {
    auto q = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, 8, 32});
    const auto groups = [&] {
        const void* ends = &q;
        uint64_t bytes = 1;
        int32_t type = -1, count = -1;
        ok(mxq_tensor_get_groups(q, &ends, &bytes, &type, &count));
        return std::tuple(Got{ends, bytes}, type, count);
    };
    const auto host_ends = [&] {
        const void* ends = &q;
        uint64_t bytes = 1;
        ok(mxq_tensor_get_host_ends(q, &ends, &bytes));
        return Got{ends, bytes};
    };
    const auto alignments = [&] {
        int32_t rowwise = -1, columnwise = -1;
        ok(mxq_tensor_get_group_alignment(q, &rowwise, &columnwise));
        return std::pair(rowwise, columnwise);
    };
    CHECK(groups() == std::tuple(nothing, 0, 0));
    CHECK(host_ends() == nothing);
    CHECK(value(mxq_tensor_get_groups_cover_rows, q) == 0);
    CHECK(alignments() == std::pair(1, 32));
    const int64_t ends[] = {3, 8}, copy[] = {3, 8};
    ok(mxq_tensor_set_groups(q, ends, 16, MXQ_TYPE_INT64, 2));
    ok(mxq_tensor_set_host_ends(q, copy, 16));
    ok(mxq_tensor_set_groups_cover_rows(q, 1));
    ok(mxq_tensor_set_group_alignment(q, 4, 64));
    CHECK(groups() == std::tuple(Got{ends, 16}, MXQ_TYPE_INT64, 2));
    CHECK(host_ends() == Got{copy, 16});
    CHECK(value(mxq_tensor_get_groups_cover_rows, q) == 1);
    CHECK(alignments() == std::pair(4, 64));
    ok(mxq_tensor_set_groups(q, nullptr, 0, MXQ_TYPE_INT32, 5));
    ok(mxq_tensor_set_group_alignment(q, 4, 0));
    ok(mxq_tensor_set_scaling(q, MXQ_SCALING_1X128));
    CHECK(groups() == std::tuple(Got{nullptr, 20}, MXQ_TYPE_INT32, 5));
    CHECK(host_ends() == nothing);
    CHECK(alignments() == std::pair(4, 128));
}

TEST_CASE("getters: outputs may be NULL, and a wrong tensor or part is refused by name", "[cpu]") {
    auto q = testing::make_tensor(MXQ_FORMAT_NVFP4, {std::nullopt, 8, 32}), x = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 2, 2});
    using Get = std::function<mxq_status(const mxq_tensor*, int32_t)>;
    struct Getter {
        bool of_part;
        Get get;
    };
    const Getter all[] = {
        {false, [](auto* t, int32_t) { return mxq_tensor_get_format(t, nullptr); }},
        {false, [](auto* t, int32_t) { return mxq_tensor_get_shape(t, nullptr, nullptr, nullptr, nullptr); }},
        {false, [](auto* t, int32_t) { return mxq_tensor_get_scaling(t, nullptr); }},
        {false, [](auto* t, int32_t) { return mxq_tensor_get_swizzled(t, nullptr); }},
        {false, [](auto* t, int32_t) { return mxq_tensor_get_row_stride(t, nullptr); }},
        {true,
         [](auto* t, int32_t part) {
             return mxq_tensor_get_part(t, part, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
         }},
        {false, [](auto* t, int32_t) { return mxq_tensor_get_groups(t, nullptr, nullptr, nullptr, nullptr); }},
        {false, [](auto* t, int32_t) { return mxq_tensor_get_groups_cover_rows(t, nullptr); }},
        {false, [](auto* t, int32_t) { return mxq_tensor_get_host_ends(t, nullptr, nullptr); }},
        {false, [](auto* t, int32_t) { return mxq_tensor_get_group_alignment(t, nullptr, nullptr); }},
        {true,
         [](auto* t, int32_t part) { return mxq_tensor_get_padded_groups(t, part, nullptr, nullptr, nullptr, nullptr); }},
        {true, [](auto* t, int32_t part) { return mxq_tensor_get_amax(t, part, nullptr, nullptr); }},
        {true, [](auto* t, int32_t part) { return mxq_tensor_get_decode_scale(t, part, nullptr, nullptr); }},
        {true, [](auto* t, int32_t part) { return mxq_tensor_get_hadamard(t, part, nullptr, nullptr); }},
        {false, [](auto* t, int32_t) { return mxq_tensor_get_scale_max(t, nullptr); }},
        {false, [](auto* t, int32_t) { return mxq_tensor_get_quantization_scale(t, nullptr, nullptr); }},
        {false, [](auto* t, int32_t) { return mxq_tensor_get_scope(t, nullptr); }},
    };
    auto* const no_tensor = reinterpret_cast<mxq_tensor*>(static_cast<mxq_context*>(testing::cpu().context));
    int ran = 0;
    for (const Getter& getter : all) {
        CHECK(getter.get(q, MXQ_PART_ROWWISE) == MXQ_STATUS_OK);
        MXQ_REFUSED(getter.get(nullptr, MXQ_PART_ROWWISE), invalid, "mxq_tensor_get_", "tensor is NULL");
        MXQ_REFUSED(getter.get(no_tensor, MXQ_PART_ROWWISE), invalid, "tensor is a context");
        if (getter.of_part) MXQ_REFUSED(getter.get(q, MXQ_PART_BOTH), invalid, "part is 3");
        ++ran;
    }
    CHECK(ran == 17);
    CHECK(mxq_tensor_get_data(x, nullptr, nullptr, nullptr) == MXQ_STATUS_OK);
    MXQ_REFUSED(mxq_tensor_get_data(q, nullptr, nullptr, nullptr), invalid, "nvfp4", "mxq_tensor_get_part");
    MXQ_REFUSED(mxq_tensor_get_part(x, MXQ_PART_ROWWISE, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr), invalid,
                "f32", "mxq_tensor_get_data");
}

TEST_CASE("getters: the Hadamard transform of each part", "[cpu]") {
    auto q = testing::make_tensor(MXQ_FORMAT_NVFP4, {std::nullopt, 32, 32});
    const auto hadamard = [&](int32_t part) {
        int32_t transformed = -1, mask = -1;
        ok(mxq_tensor_get_hadamard(q, part, &transformed, &mask));
        return std::pair(transformed, mask);
    };
    CHECK(hadamard(MXQ_PART_ROWWISE) == std::pair(0, 0));
    ok(mxq_tensor_set_hadamard(q, MXQ_PART_ROWWISE, 1, 0xD7E8));
    ok(mxq_tensor_set_hadamard(q, MXQ_PART_COLUMNWISE, 0, 0));
    CHECK(hadamard(MXQ_PART_ROWWISE) == std::pair(1, 0xD7E8));
    CHECK(hadamard(MXQ_PART_COLUMNWISE) == std::pair(0, 0));
}

TEST_CASE("describe: the words of the log, cut to the buffer", "[cpu]") {
    auto x = testing::make_tensor(MXQ_FORMAT_BF16, {2, 3, 4}), q = testing::make_quantized({MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_32X32}, {std::nullopt, 64, 32}, true);
    CHECK(described(x) == "bf16 2 x 3 x 4");
    CHECK(described(q) == "mxfp8_e4m3 64 x 32 32x32 swizzled");
    ok(testing::set_ends(q, nullptr, MXQ_TYPE_INT32, 4));
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) ok(mxq_tensor_set_part(q, part, nullptr, 0, nullptr, 0));
    CHECK(described(q) == "mxfp8_e4m3 64 x 32 in 4 groups 32x32 rowwise columnwise swizzled");
    auto strided = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 3, 4});
    ok(mxq_tensor_set_row_stride(strided, 9));
    CHECK(described(strided) == "f32 3 x 4 row stride 9");

    char text[8];
    for (const uint64_t size : {0, 1, 5, 8}) {
        std::memset(text, '#', sizeof text);
        CHECK(mxq_tensor_describe(x, text, size) == 14);
        CHECK(std::string(text, sizeof text) == (std::string("bf16 2 x").substr(0, size ? size - 1 : 0) + (size ? std::string(1, 0) : "") + "########").substr(0, 8));
    }
    CHECK(mxq_tensor_describe(x, nullptr, 0) == 14);
    CHECK(mxq_tensor_describe(x, nullptr, 100) == 14);
    CHECK(mxq_tensor_describe(nullptr, nullptr, 0) == 0);
    CHECK(mxq_tensor_describe(nullptr, text, 8) == 0);
    CHECK(text[0] == 0);
    text[0] = '#';
    CHECK(mxq_tensor_describe(reinterpret_cast<mxq_tensor*>(static_cast<mxq_context*>(testing::cpu().context)), text, 8) == 0);
    CHECK(text[0] == 0);
    CHECK(std::string(mxq_last_error()).find("mxq_tensor_describe: tensor is a context") == 0);
}
