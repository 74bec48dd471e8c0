// Lists of plain experts: what the setter and verbs refuse, what getters and sizes say.
#include "../formats.h"
#include "says.h"

#include <cstring>

using testing::ok;

namespace {

constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT, missing = MXQ_STATUS_MISSING_BUFFER;
constexpr int32_t rowwise = MXQ_PART_ROWWISE;

testing::Tensor experts_of(int32_t format) { return testing::make_tensor(format, {3, 4, 8}); }

using Listed = std::tuple<int64_t, const void* const*, uint64_t>;
const Listed none{0, nullptr, 0};

Listed list_of(const mxq_tensor* tensor) {
    int64_t count = -1;
    const void* const* data = nullptr;
    uint64_t bytes = 1;
    ok(mxq_tensor_get_data_list(tensor, &count, &data, &bytes));
    return {count, data, bytes};
}

uint64_t bytes_of(const mxq_tensor* tensor) {
    uint64_t bytes = 0;
    ok(mxq_tensor_required_bytes(tensor, rowwise, &bytes, nullptr));
    return bytes;
}

std::string described(const mxq_tensor* tensor) {
    char text[200];
    mxq_tensor_describe(tensor, text, sizeof text);
    return text;
}

// F32 experts of 4 x 8 that a CPU context converts to BF16.
struct Convert {
    Convert() {
        ok(mxq_tensor_set_data_list(in, 3, addresses, 128));
        ok(mxq_tensor_set_data(out, results, sizeof results));
    }
    mxq_status run() const { return mxq_convert(testing::cpu().context, nullptr, in, out, nullptr, 0, nullptr); }
    mxq_status query() const { return mxq_convert_query(testing::cpu().context, nullptr, in, out, nullptr); }

    float values[3 * 32] = {};
    alignas(8) uint16_t results[3 * 32] = {};
    const void* addresses[3] = {values, values + 32, values + 64};
    testing::Tensor in = experts_of(MXQ_FORMAT_F32), out = experts_of(MXQ_FORMAT_BF16);
};

}  // namespace

TEST_CASE("data lists: the setter, its getter, sizes, and what replaces it", "[cpu]") {
    auto x = experts_of(MXQ_FORMAT_BF16), two = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 4, 8}),
         q = experts_of(MXQ_FORMAT_MXFP4);
    const void* data[3] = {};
    MXQ_REFUSED(mxq_tensor_set_data_list(nullptr, 3, data, 64), invalid, "mxq_tensor_set_data_list", "tensor is NULL");
    MXQ_REFUSED(mxq_tensor_set_data_list(q, 3, data, 64), invalid, "mxfp4", "mxq_tensor_set_part_list");
    MXQ_REFUSED(mxq_tensor_set_data_list(two, 1, data, 64), invalid, "2 dimensions", "mxq_tensor_set_data");
    MXQ_REFUSED(mxq_tensor_set_data_list(x, 4, data, 64), invalid, "count is 4, expected 3", "an address for each");
    MXQ_REFUSED(mxq_tensor_set_data_list(x, 3, nullptr, 64), invalid, "data is NULL with 64 bytes", "was it allocated");
    MXQ_REFUSED(mxq_tensor_get_data_list(nullptr, nullptr, nullptr, nullptr), invalid, "tensor is NULL");
    MXQ_REFUSED(mxq_tensor_get_data_list(q, nullptr, nullptr, nullptr), invalid, "mxfp4", "mxq_tensor_get_part_list");
    CHECK(list_of(x) == none);
    CHECK(bytes_of(x) == 3 * 64);

    ok(mxq_tensor_set_data_list(x, 3, data, 64));
    CHECK(list_of(x) == Listed{3, data, 64});
    CHECK(mxq_tensor_get_data_list(x, nullptr, nullptr, nullptr) == MXQ_STATUS_OK);
    CHECK(bytes_of(x) == 64);
    CHECK(described(x) == "bf16 3 x 4 x 8 listed");
    ok(mxq_tensor_set_row_stride(x, 10));
    CHECK(bytes_of(x) == (3 * 10 + 8) * 2);
    CHECK(described(x) == "bf16 3 x 4 x 8 row stride 10 listed");
    void* pointer = data;
    uint64_t bytes = 1, total = 0;
    int32_t is_const = 0;
    ok(mxq_tensor_get_data(x, &pointer, &bytes, &is_const));
    CHECK(std::tuple(pointer, bytes, is_const) == std::tuple<void*, uint64_t, int32_t>(nullptr, 0, 1));

    ok(mxq_tensor_total_bytes(x, rowwise, &total));
    CHECK(total == 256);  // (11 * 10 + 8) * 2 of all experts, in one piece
    alignas(256) static uint8_t memory[256];
    ok(mxq_tensor_set_memory(x, rowwise, memory, sizeof memory));
    CHECK(list_of(x) == none);
    CHECK(bytes_of(x) == (11 * 10 + 8) * 2);
    for (const auto replace : {+[](mxq_tensor* t) { return mxq_tensor_set_data(t, nullptr, 0); },
                               +[](mxq_tensor* t) { return mxq_tensor_set_const_data(t, memory, 236); }}) {
        ok(mxq_tensor_set_data_list(x, 3, data, 64));
        CHECK(list_of(x) != none);
        ok(replace(x));
        CHECK(list_of(x) == none);
    }
    auto empty = testing::make_tensor(MXQ_FORMAT_F32, {0, 4, 8});
    ok(mxq_tensor_set_data_list(empty, 0, nullptr, 0));
    CHECK(bytes_of(empty) == 0);
}

TEST_CASE("data lists: verbs check every address", "[cpu]") {
    Convert c;
    CHECK(c.run() == MXQ_STATUS_OK);
    c.addresses[1] = nullptr;
    MXQ_REFUSED(c.run(), missing, "in.data[1] is NULL, expected the address of 128 bytes",
                "the array that mxq_tensor_set_data_list got");
    CHECK(c.query() == MXQ_STATUS_OK);  // which reads no memory
    c.addresses[1] = c.values;          // experts may share memory, which is only read
    CHECK(c.run() == MXQ_STATUS_OK);
    c.addresses[2] = reinterpret_cast<const char*>(c.values) + 2;
    MXQ_REFUSED(c.run(), MXQ_STATUS_MISALIGNED, "in.data[2] is at", "multiple of 4");
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing is read there.
    c.addresses[2] = reinterpret_cast<const void*>(UINTPTR_MAX - 63);
    MXQ_REFUSED(c.run(), invalid, "in.data[2] is at", "past the end of the address space");
    c.addresses[2] = c.results;
    MXQ_REFUSED(c.run(), invalid, "out.data overlaps in.data[2]");
    c.addresses[2] = c.values;
    ok(mxq_tensor_set_data_list(c.in, 3, c.addresses, 127));
    MXQ_REFUSED(c.run(), MXQ_STATUS_BUFFER_TOO_SMALL, "in.data holds 127 bytes at each address, expected at least 128",
                "mxq_tensor_required_bytes");
    MXQ_REFUSED(c.query(), MXQ_STATUS_BUFFER_TOO_SMALL, "127");
    ok(mxq_tensor_set_data_list(c.in, 3, nullptr, 0));
    MXQ_REFUSED(c.run(), missing, "the array of addresses of in.data is NULL, expected 24 bytes", "mxq_tensor_set_data_list");
    CHECK(c.query() == MXQ_STATUS_OK);
    std::memcpy(c.results, c.addresses, sizeof c.addresses);
    ok(mxq_tensor_set_data_list(c.in, 3, reinterpret_cast<const void* const*>(c.results), 128));
    MXQ_REFUSED(c.run(), invalid, "out.data overlaps the array of addresses of in.data");
}

TEST_CASE("data lists: no verb writes one", "[cpu]") {
    mxq_context* const context = testing::cpu().context;
    auto x = experts_of(MXQ_FORMAT_F32), list = experts_of(MXQ_FORMAT_F32), q = experts_of(MXQ_FORMAT_MXFP8_E4M3);
    ok(mxq_tensor_set_data_list(list, 3, nullptr, 0));
    const auto refused = [&](mxq_status status) {
        MXQ_REFUSED(status, invalid, "out has a list of experts, which may only be read", "mxq_tensor_set_data");
    };
    refused(mxq_dequantize_query(context, nullptr, q, list, nullptr));
    refused(mxq_convert_query(context, nullptr, x, list, nullptr));
    auto a = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, 64, 4}),
         b = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, 64, 8});
    for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(a), static_cast<mxq_tensor*>(b)})
        ok(testing::set_ends(tensor, nullptr, MXQ_TYPE_INT32, 3));
    auto gradient = testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N);
    CHECK(mxq_grouped_gemm_query(context, gradient, a, b, x, nullptr) == MXQ_STATUS_OK);
    MXQ_REFUSED(mxq_grouped_gemm_query(context, gradient, a, b, list, nullptr), invalid, "d has a list of experts");
    CHECK(mxq_quantize_query(context, nullptr, list, q, nullptr) == MXQ_STATUS_OK);
}

MXQ_EACH_DEVICE("data lists: implementations that need one piece decline by name") {
    if (device.is_cpu()) return;
    auto list = experts_of(MXQ_FORMAT_F32), x = experts_of(MXQ_FORMAT_BF16), q = experts_of(MXQ_FORMAT_NVFP4);
    ok(mxq_tensor_set_data_list(list, 3, nullptr, 0));
    const auto declined = [&](mxq_status status, const char* implementation) {
        MXQ_REFUSED(status, MXQ_STATUS_UNSUPPORTED, implementation, "needs contiguous experts");
    };
    declined(mxq_quantize_query(device.context, nullptr, list, q, nullptr), "quantize_tile");
    declined(mxq_amax_query(device.context, nullptr, list, q, nullptr), "amax");
    declined(mxq_convert_query(device.context, nullptr, list, x, nullptr), "convert");
}
