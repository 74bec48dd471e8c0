// mxq/dlpack.h makes descriptors of DLTensors, row strides included, and refuses by name what no descriptor describes.
#include "dlpack_types.h"

#include "../api.h"
#include "../catch.h"

#include <mxq/dlpack.h>

#include <array>
#include <cstring>

extern "C" int mxq_use_dlpack_from_c(void);

namespace {

constexpr DLDataType f32{kDLFloat, 32, 1}, f16{kDLFloat, 16, 1}, bf16{kDLBfloat, 16, 1}, u8{kDLUInt, 8, 1};

// A DLTensor with its shape and strides; no strides: compact.
struct Handed {
    Handed(void* data, DLDataType dtype, std::vector<int64_t> sizes, std::vector<int64_t> steps = {})
        : shape(std::move(sizes)), strides(std::move(steps)) {
        tensor.data = data;
        tensor.device = {kDLCPU, 0};
        tensor.ndim = static_cast<int32_t>(shape.size());
        tensor.dtype = dtype;
        tensor.shape = shape.data();
        tensor.strides = strides.empty() ? nullptr : strides.data();
        tensor.byte_offset = 0;
    }
    Handed(const Handed&) = delete;
    Handed& operator=(const Handed&) = delete;

    std::vector<int64_t> shape, strides;
    DLTensor tensor;
};

// Returns "" if the tensor is refused with every one of these words, and nothing is created.
std::string refusal(const DLTensor* source, std::initializer_list<const char*> words, mxq_device device = MXQ_DEVICE_CPU, int32_t ordinal = 0) {
    char message[MXQ_DLPACK_MESSAGE_BYTES] = "";
    auto* out = reinterpret_cast<mxq_tensor*>(16);
    const mxq_status status = mxq_dlpack_create_tensor(source, device, ordinal, 0, &out, message);
    if (status != MXQ_STATUS_INVALID_ARGUMENT || out) return std::string("status ") + mxq_status_name(status);
    if (mxq_dlpack_create_tensor(source, device, ordinal, 0, &out, nullptr) != status) return "another status without a message";
    for (const char* word : words)
        if (!std::strstr(message, word)) return std::string("no \"") + word + "\" in: " + message;
    return "";
}

// Returns the bytes of the numbers that a descriptor finds: dequantized codes of the quantized numbers, which are exact here.
std::vector<float> numbers_of(const DLTensor& source, const std::vector<int64_t>& shape) {
    testing::Tensor in, q, back;
    char message[MXQ_DLPACK_MESSAGE_BYTES] = "";
    const mxq_status status = mxq_dlpack_create_tensor(&source, MXQ_DEVICE_CPU, 0, 1, in.out(), message);
    INFO(message);
    REQUIRE(status == MXQ_STATUS_OK);
    const testing::Dims dims{shape.size() == 3 ? std::optional(shape[0]) : std::nullopt, shape[shape.size() - 2], shape.back()};
    const auto count = static_cast<size_t>(dims.shape().count());
    std::vector<float> values(count, -1);
    q = testing::make_quantized({}, dims, false), back = testing::make_tensor(MXQ_FORMAT_F32, dims);
    testing::Device& device = testing::cpu();
    testing::PartBuffers part(device, q, MXQ_PART_ROWWISE);
    testing::ok(mxq_tensor_set_data(back, values.data(), count * sizeof(float)));
    testing::ok(mxq_quantize(device.context, nullptr, in, q, nullptr, 0, nullptr));
    testing::ok(mxq_dequantize(device.context, nullptr, q, back, nullptr, 0, nullptr));
    return values;
}

}  // namespace

TEST_CASE("dlpack: a C99 program includes it and quantizes") { CHECK(mxq_use_dlpack_from_c() == 0); }

TEST_CASE("dlpack: row strides, experts, offsets and dimensions of one") {
    std::vector<float> memory(64);
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i % 8);
    int ran = 0;
    const auto check = [&](const std::vector<int64_t>& shape, std::vector<int64_t> strides, size_t offset, const std::vector<float>& expected) {
        CAPTURE(ran);
        Handed handed(memory.data(), f32, shape, std::move(strides));
        handed.tensor.byte_offset = offset * sizeof(float);
        CHECK(numbers_of(handed.tensor, shape) == expected);
        ++ran;
    };
    check({2, 3}, {}, 0, {0, 1, 2, 3, 4, 5});
    check({2, 3}, {3, 1}, 0, {0, 1, 2, 3, 4, 5});
    check({2, 3}, {10, 1}, 0, {0, 1, 2, 2, 3, 4});
    check({2, 3}, {10, 1}, 2, {2, 3, 4, 4, 5, 6});
    check({2, 1}, {5, 7}, 0, {0, 5});         // the step between columns means nothing: there is one
    check({1, 3}, {-9, 1}, 0, {0, 1, 2});     // nor that between rows here
    check({2, 2, 2}, {8, 4, 1}, 1, {1, 2, 5, 6, 1, 2, 5, 6});
    check({2, 1, 2}, {5, 99, 1}, 0, {0, 1, 5, 6});
    check({1, 2, 2}, {0, 3, 1}, 0, {0, 1, 3, 4});
    check({0, 3}, {7, 7}, 0, {});
    CHECK(ran == 10);
}

TEST_CASE("dlpack: types, devices, and data that is only read") {
    std::vector<float> memory(64, 1);
    int ran = 0;
    for (const DLDataType type : {f32, f16, bf16})
        for (const DLDeviceType device : {kDLCPU, kDLCUDAHost, kDLCUDA, kDLCUDAManaged}) {
            Handed handed(memory.data(), type, {2, 32});
            const bool on_cuda = device == kDLCUDA || device == kDLCUDAManaged;
            handed.tensor.device = {device, device == kDLCUDA ? 3 : 0};
            testing::Tensor tensor;
            CHECK(mxq_dlpack_create_tensor(&handed.tensor, on_cuda ? MXQ_DEVICE_CUDA : MXQ_DEVICE_CPU, on_cuda ? 3 : 0, 0, tensor.out(),
                                           nullptr) == MXQ_STATUS_OK);
            uint64_t bytes = 0;
            testing::ok(mxq_tensor_required_bytes(tensor, MXQ_PART_ROWWISE, &bytes, nullptr));
            CHECK(bytes == 64u * type.bits / 8);
            ++ran;
        }
    CHECK(ran == 12);

    Handed handed(memory.data(), f32, {1, 32});
    uint8_t codes[32] = {}, scale = 127;
    auto q = testing::make_quantized({}, {std::nullopt, 1, 32}, false);
    testing::ok(mxq_tensor_set_part(q, MXQ_PART_ROWWISE, codes, sizeof codes, &scale, 1));
    for (const int32_t read_only : {1, 0}) {
        testing::Tensor x;
        testing::ok(mxq_dlpack_create_tensor(&handed.tensor, MXQ_DEVICE_CPU, 0, read_only, x.out(), nullptr));
        const mxq_status expected = read_only ? MXQ_STATUS_INVALID_ARGUMENT : MXQ_STATUS_OK;
        CHECK(mxq_dequantize(testing::cpu().context, nullptr, q, x, nullptr, 0, nullptr) == expected);
        CHECK(memory[0] == (read_only ? 1 : 0));
    }
}

TEST_CASE("dlpack: what no descriptor describes is refused by name") {
    std::vector<float> memory(256);
    const auto refused = [&](DLDataType type, std::vector<int64_t> shape, std::vector<int64_t> strides, std::initializer_list<const char*> words) {
        Handed handed(memory.data(), type, std::move(shape), std::move(strides));
        CHECK(refusal(&handed.tensor, words) == "");
    };
    CHECK(refusal(nullptr, {"source is NULL"}) == "");
    refused(f32, {4}, {}, {"ndim is 1", "expected 2", "reshape"});
    refused(f32, {1, 1, 2, 2}, {}, {"ndim is 4"});
    refused(f32, {2, 3}, {1, 2}, {"strides[1] is 2", "expected 1", "contiguous"});
    refused(f32, {2, 3}, {2, 1}, {"strides[0] is 2", "at least 3"});
    refused(f32, {2, 3}, {0, 1}, {"strides[0] is 0"});
    refused(f32, {2, 3}, {-3, 1}, {"strides[0] is -3"});
    refused(f32, {2, 2, 3}, {6, 2, 1}, {"strides[1] is 2", "at least 3"});
    refused(f32, {2, 1, 3}, {2, 3, 1}, {"strides[0] is 2", "at least 3"});
    refused(f32, {2, 2, 3}, {7, 3, 1}, {"strides[0] is 7", "2 rows of 3", "expert after expert"});
    refused(f32, {2, 2, 3}, {8, 3, 1}, {"strides[0] is 8"});
    refused({kDLFloat, 64, 1}, {2, 3}, {}, {"dtype is (code 2, 64 bits)", "bfloat16", "convert"});
    refused({kDLInt, 32, 1}, {2, 3}, {}, {"dtype is (code 0, 32 bits)"});
    refused({kDLFloat8_e4m3fn, 8, 1}, {2, 3}, {}, {"dtype is (code 10, 8 bits)"});
    refused({kDLFloat, 32, 4}, {2, 3}, {}, {"dtype.lanes is 4", "expected 1"});
    refused(f32, {-2, 3}, {}, {"mxq_tensor_create_2d", "rows", "-2"});  // the library's own words

    Handed handed(memory.data(), f32, {2, 3});
    for (const auto& [type, id] : {std::pair{kDLCUDA, 0}, {kDLROCM, 0}, {kDLCUDAManaged, 0}}) {
        handed.tensor.device = {type, id};
        CHECK(refusal(&handed.tensor, {"device is (", "(1, 0)", "copy"}) == "");
    }
    handed.tensor.device = {kDLCUDA, 1};
    CHECK(refusal(&handed.tensor, {"device is (2, 1)", "(2, 0)"}, MXQ_DEVICE_CUDA, 0) == "");
    handed.tensor.device = {kDLCPU, 0};
    CHECK(refusal(&handed.tensor, {"device is (1, 0)"}, MXQ_DEVICE_CUDA, 0) == "");
    CHECK(refusal(&handed.tensor, {"device_type is 7"}, 7, 0) == "");
    handed.tensor.shape = nullptr;
    CHECK(refusal(&handed.tensor, {"shape NULL"}) == "");
    handed.tensor.ndim = -1;
    CHECK(refusal(&handed.tensor, {"ndim is -1"}) == "");
    char message[MXQ_DLPACK_MESSAGE_BYTES];
    CHECK(mxq_dlpack_create_tensor(&handed.tensor, MXQ_DEVICE_CPU, 0, 0, nullptr, message) == MXQ_STATUS_INVALID_ARGUMENT);
    CHECK(std::strstr(message, "out is NULL"));
}

TEST_CASE("dlpack: memory of any type has an address and bytes where it is compact") {
    std::vector<uint8_t> memory(256);
    char message[MXQ_DLPACK_MESSAGE_BYTES];
    int ran = 0;
    const auto bytes_of = [&](DLDataType type, std::vector<int64_t> shape, std::vector<int64_t> strides, uint64_t offset = 0) -> int64_t {
        Handed handed(memory.data(), type, std::move(shape), std::move(strides));
        handed.tensor.byte_offset = offset;
        void* data = nullptr;
        uint64_t bytes = 77;
        ++ran;
        std::strcpy(message, "");
        if (mxq_dlpack_memory(&handed.tensor, MXQ_DEVICE_CPU, 0, &data, &bytes, message)) return -1;
        CHECK(data == (bytes ? memory.data() + offset : nullptr));
        return static_cast<int64_t>(bytes);
    };
    CHECK(bytes_of(u8, {4, 8}, {8, 1}) == 32);
    CHECK(bytes_of(u8, {4, 8}, {}, 5) == 32);
    CHECK(bytes_of(f32, {}, {}) == 4);
    CHECK(bytes_of({kDLInt, 64, 1}, {3}, {1}) == 24);
    CHECK(bytes_of({kDLFloat4_e2m1fn, 4, 1}, {3, 8}, {8, 1}) == 12);
    CHECK(bytes_of(u8, {0, 8}, {1, 1}) == 0);
    CHECK(bytes_of(u8, {1, 8}, {99, 1}) == 8);
    CHECK(bytes_of({kDLFloat4_e2m1fn, 4, 1}, {3, 7}, {}) == -1);
    CHECK(std::strstr(message, "whole bytes"));
    CHECK(bytes_of(u8, {4, 8}, {9, 1}) == -1);
    CHECK(std::strstr(message, "strides[0] is 9, expected 8"));
    CHECK(bytes_of(u8, {4, 8}, {1, 4}) == -1);
    CHECK(std::strstr(message, "strides[1] is 4, expected 1"));
    CHECK(bytes_of(u8, {int64_t(1) << 40, int64_t(1) << 40}, {}) == -1);
    CHECK(std::strstr(message, "shape[0]"));
    CHECK(bytes_of(u8, {-1, 8}, {}) == -1);
    CHECK(ran == 12);

    Handed codes(memory.data(), u8, {1, 32}), scales(memory.data() + 64, u8, {1, 1}, {1, 1}), spread(memory.data(), u8, {2, 2}, {3, 1});
    auto q = testing::make_quantized({}, {std::nullopt, 1, 32}, false), plain = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 1, 32});
    CHECK(mxq_dlpack_set_part(q, MXQ_PART_ROWWISE, &codes.tensor, &spread.tensor, MXQ_DEVICE_CPU, 0, message) == MXQ_STATUS_INVALID_ARGUMENT);
    CHECK(mxq_dlpack_set_part(plain, MXQ_PART_ROWWISE, &codes.tensor, &scales.tensor, MXQ_DEVICE_CPU, 0, message) == MXQ_STATUS_INVALID_ARGUMENT);
    CHECK(std::strstr(message, "tensor is f32, which has no parts; call mxq_dlpack_create_tensor"));
    CHECK(mxq_dlpack_memory(&codes.tensor, MXQ_DEVICE_CPU, 0, nullptr, nullptr, message) == MXQ_STATUS_INVALID_ARGUMENT);
}

namespace {

using Strides = std::array<int64_t, 4>;

// Returns the strides that a part got, or the message of a refusal.
std::string strides_of(mxq_tensor* tensor, int32_t part, const DLTensor& codes, const DLTensor& scales, Strides* got) {
    char message[MXQ_DLPACK_MESSAGE_BYTES] = "";
    if (mxq_dlpack_set_part(tensor, part, &codes, &scales, MXQ_DEVICE_CPU, 0, message)) return message;
    testing::ok(mxq_tensor_get_strides(tensor, part, &(*got)[0], &(*got)[1], &(*got)[2], &(*got)[3]));
    return "";
}

}  // namespace

TEST_CASE("dlpack: parts that are slices get strides") {
    std::vector<uint8_t> memory(1 << 16);
    int ran = 0;
    const auto check = [&](mxq_tensor* tensor, int32_t part, const Handed& codes, const Handed& scales, Strides expected,
                           uint64_t code_bytes, uint64_t scale_bytes) {
        CAPTURE(ran);
        Strides got{};
        CHECK(strides_of(tensor, part, codes.tensor, scales.tensor, &got) == "");
        CHECK(got == expected);
        void *code_data = nullptr, *scale_data = nullptr;
        uint64_t code_extent = 0, scale_extent = 0, needed = 0, needed_scales = 0;
        testing::ok(mxq_tensor_get_part(tensor, part, nullptr, &code_data, &code_extent, &scale_data, &scale_extent, nullptr));
        testing::ok(mxq_tensor_required_bytes(tensor, part, &needed, &needed_scales));
        CHECK(code_data == memory.data());
        CHECK(scale_data == memory.data() + 4096);
        CHECK(std::pair(code_extent, scale_extent) == std::pair(code_bytes, scale_bytes));
        CHECK(std::pair(needed, needed_scales) == std::pair(code_bytes, scale_bytes));
        ++ran;
    };
    uint8_t* const second = memory.data() + 4096;
    constexpr DLDataType fp4{kDLFloat4_e2m1fn, 4, 1}, fp8{kDLFloat8_e4m3fn, 8, 1};
    constexpr auto rowwise = MXQ_PART_ROWWISE, columnwise = MXQ_PART_COLUMNWISE;
    const auto codes = [&](DLDataType type, std::vector<int64_t> shape, std::vector<int64_t> strides) {
        return std::make_unique<Handed>(memory.data(), type, std::move(shape), std::move(strides));
    };
    const auto scales = [&](DLDataType type, std::vector<int64_t> shape, std::vector<int64_t> strides) {
        return std::make_unique<Handed>(second, type, std::move(shape), std::move(strides));
    };
    auto q = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, 8, 64}),
         experts = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {3, 8, 64}),
         four = testing::make_tensor(MXQ_FORMAT_MXFP4, {3, 8, 64}),
         tiles = testing::make_quantized({MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_32X32}, {std::nullopt, 70, 64}, false),
         rows = testing::make_quantized({MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_ROW}, {std::nullopt, 8, 64}, false);
    check(q, rowwise, *codes(fp8, {8, 64}, {100, 1}), *scales(u8, {8, 2}, {5, 1}), {100, 0, 5, 0}, 764, 37);
    check(q, rowwise, *codes(fp8, {8, 64}, {}), *scales(u8, {8, 2}, {2, 1}), {0, 0, 0, 0}, 512, 16);
    check(q, columnwise, *codes(u8, {64, 8}, {9, 1}), *scales(u8, {64, 1}, {3, 7}), {9, 0, 3, 0}, 63 * 9 + 8, 63 * 3 + 1);
    check(experts, rowwise, *codes(u8, {3, 8, 64}, {1000, 100, 1}), *scales(u8, {3, 8, 2}, {20, 2, 1}), {100, 1000, 0, 20},
          2 * 1000 + 7 * 100 + 64, 2 * 20 + 16);
    check(experts, rowwise, *codes(u8, {3, 8, 64}, {64, 192, 1}), *scales(u8, {24, 2}, {3, 1}), {192, 64, 3, 0}, 3 * 512,
          23 * 3 + 2);
    check(four, rowwise, *codes(u8, {3, 8, 2, 16}, {400, 50, 16, 1}), *scales(u8, {3, 8, 2}, {}), {50, 400, 0, 0},
          800 + 350 + 32, 48);
    check(four, rowwise, *codes(fp4, {3, 8, 64}, {1024, 64, 1}), *scales(u8, {3, 8, 2}, {}), {0, 512, 0, 0}, 1024 + 256, 48);
    check(tiles, rowwise, *codes(u8, {70, 64}, {}), *scales(u8, {3, 2}, {9, 1}), {0, 0, 9, 0}, 70 * 64, 2 * 9 + 2);
    check(rows, rowwise, *codes(u8, {8, 64}, {}), *scales(f32, {8}, {2}), {0, 0, 8, 0}, 512, 7 * 8 + 4);
    CHECK(ran == 9);

    const auto refused = [&](mxq_tensor* tensor, const Handed& of_codes, const Handed& of_scales,
                             std::initializer_list<const char*> words) {
        Strides got{};
        const std::string message = strides_of(tensor, rowwise, of_codes.tensor, of_scales.tensor, &got);
        for (const char* word : words) CHECK((message.find(word) != std::string::npos ? "" : message) == "");
        ++ran;
    };
    const auto full = scales(u8, {8, 2}, {}), all_scales = scales(u8, {3, 8, 2}, {});
    refused(q, *codes(u8, {8, 64}, {1, 8}), *full, {"codes: ", "8 x 64 pieces lie apart", "1 experts, 8 lines"});
    refused(q, *codes(u8, {4, 128}, {200, 1}), *full, {"codes: 1 x 4 pieces lie apart", "contiguous copy"});
    refused(q, *codes(u8, {8, 64}, {100, 1}), *scales(u8, {8, 2}, {1, 8}), {"scales: 8 x 2 pieces"});
    refused(q, *codes(u8, {8, 64}, {10, 1}), *full,
            {"code line stride of 10 bytes", "at least 64"});  // the library's own words
    refused(q, *codes(u8, {8, 64}, {-100, 1}), *full, {"codes: ", "strides[0] -100"});
    refused(q, *codes(u8, {8, 64}, {int64_t(1) << 60, 1}), *full, {"2^52 elements"});
    refused(four, *codes(u8, {3, 8, 2, 16}, {1000, 100, 40, 1}), *all_scales,
            {"codes: strides[0] is 1000", "lines and experts alone"});
    refused(four, *codes(fp4, {3, 8, 64}, {1001, 65, 1}), *all_scales, {"codes: dtype.bits is 4", "whole bytes"});
    refused(q, *codes(u8, {8, 64}, {100, 1}), Handed(nullptr, u8, {8, 2}), {"scales is NULL with 16 bytes"});
    CHECK(ran == 18);
    Strides kept{};
    testing::ok(mxq_tensor_get_strides(q, rowwise, &kept[0], &kept[1], &kept[2], &kept[3]));
    CHECK(kept == Strides{0, 0, 0, 0});
}
