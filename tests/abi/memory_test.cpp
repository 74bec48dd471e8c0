// All of a tensor's memory in one block: its size is the sum of the pieces, the pieces do not overlap, and verbs find in them
// what they find in buffers of their own.
#include "../formats.h"
#include "says.h"

using testing::Buffer;
using testing::ok;

namespace {

constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT;

uint64_t aligned(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

uint64_t total_of(const mxq_tensor* tensor, int32_t parts) {
    uint64_t bytes = 99;
    ok(mxq_tensor_total_bytes(tensor, parts, &bytes));
    return bytes;
}

// Returns the sum of what a part requires, piece by piece.
uint64_t sum_of(const mxq_tensor* tensor, int32_t part, bool with_amax) {
    uint64_t codes = 0, scales = 0, amax = 0;
    ok(mxq_tensor_required_bytes(tensor, part, &codes, &scales));
    ok(mxq_tensor_required_amax_bytes(tensor, part, &amax));
    return aligned(codes) + aligned(scales) + (with_amax ? aligned(amax) : 0);
}

struct Piece {
    void* pointer;
    uint64_t bytes;
};

// Returns codes, scales and amax of the parts, as the getters tell them.
std::vector<Piece> pieces_of(const mxq_tensor* tensor, int32_t parts) {
    std::vector<Piece> out;
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        if (!(parts & part)) continue;
        Piece codes{}, scales{}, amax{};
        float* numbers = nullptr;
        ok(mxq_tensor_get_part(tensor, part, nullptr, &codes.pointer, &codes.bytes, &scales.pointer, &scales.bytes,
                               nullptr));
        ok(mxq_tensor_get_amax(tensor, part, &numbers, &amax.bytes));
        amax.pointer = numbers;
        out.insert(out.end(), {codes, scales, amax});
    }
    return out;
}

}  // namespace

TEST_CASE("memory: pieces follow each other in the block, each aligned and as large as it must be", "[cpu]") {
    int ran = 0;
    for (const oracle::Spec& spec : testing::all_formats())
        for (bool swizzled : {false, true})
            for (int shape : {0, 1, 2})  // a matrix, experts, groups
                for (int32_t parts : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE, MXQ_PART_BOTH}) {
                    const bool whole_lines = spec.scaling == MXQ_SCALING_ROW || spec.scaling == MXQ_SCALING_TENSOR;
                    if (swizzled && oracle::is_fp8(spec.format) && (whole_lines || shape == 2)) continue;
                    const testing::Dims dims{shape == 1 ? std::optional<int64_t>(3) : std::nullopt, 37, 70};
                    auto tensor = testing::make_tensor(spec, dims, swizzled);
                    if (shape == 2) ok(testing::set_ends(tensor, nullptr, MXQ_TYPE_INT32, 4));
                    const bool nvfp4 = spec.format == MXQ_FORMAT_NVFP4;
                    uint64_t expected = 0;
                    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
                        if (parts & part) expected += sum_of(tensor, part, nvfp4);
                    INFO(testing::describe(spec) << " swizzled " << swizzled << " shape " << shape << " parts " << parts);
                    REQUIRE(total_of(tensor, parts) == expected);

                    alignas(256) static uint8_t block[1 << 20];
                    ok(mxq_tensor_set_memory(tensor, parts, block, expected));
                    const uint8_t* next = block;
                    for (const Piece& piece : pieces_of(tensor, parts)) {
                        if (piece.bytes == 0) continue;
                        REQUIRE(piece.pointer == next);
                        next += aligned(piece.bytes);
                    }
                    CHECK(next == block + expected);
                    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
                        int32_t declared = -1;
                        ok(mxq_tensor_get_part(tensor, part, &declared, nullptr, nullptr, nullptr, nullptr, nullptr));
                        CHECK(declared == (parts & part ? 1 : 0));
                    }
                    ++ran;
                }
    CHECK(ran == 35 * 2 * 3 * 3 - 4 * 9 - 4 * 3);
}

MXQ_EACH_DEVICE("memory: quantize writes the same bytes into one block as into buffers of their own") {
    int ran = 0;
    for (const oracle::Spec& spec : testing::all_formats())
        for (bool in_groups : {false, true}) {
            const testing::Dims dims{std::nullopt, 70, 96};
            testing::DeviceEnds ends(device, {20, 20, 61});
            Buffer data(device, testing::bytes_of(oracle::Floats(70 * 96, 1.5f)));
            auto in = testing::make_tensor(MXQ_FORMAT_F32, dims), one = testing::make_tensor(spec, dims, false),
                 many = testing::make_tensor(spec, dims, false);
            if (in_groups) ends.set(one, {}), ends.set(many, {});
            Buffer block(device, static_cast<size_t>(total_of(one, MXQ_PART_BOTH)));
            ok(mxq_tensor_set_memory(one, MXQ_PART_BOTH, block.data(), block.bytes()));
            ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
            testing::run(device, mxq_quantize, mxq_quantize_query, nullptr, in, one);
            const testing::Bytes all = block.read();

            testing::PartBuffers row(device, many, MXQ_PART_ROWWISE), column(device, many, MXQ_PART_COLUMNWISE);
            Buffer amax(device, 8);
            if (spec.format == MXQ_FORMAT_NVFP4)
                for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
                    ok(mxq_tensor_set_amax(many, part, static_cast<float*>(amax.data()) + (part - 1), 4));
            testing::run(device, mxq_quantize, mxq_quantize_query, nullptr, in, many);
            const auto at = [&](const Piece& piece) {
                const auto first = all.begin() + (static_cast<uint8_t*>(piece.pointer) - static_cast<uint8_t*>(block.data()));
                return testing::Bytes(first, first + static_cast<std::ptrdiff_t>(piece.bytes));
            };
            const auto pieces = pieces_of(one, MXQ_PART_BOTH);
            INFO(testing::describe(spec) << " groups " << in_groups);
            CHECK(testing::difference(at(pieces[0]), row.codes->read()) == "");
            CHECK(testing::difference(at(pieces[1]), row.scales->read()) == "");
            CHECK(testing::difference(at(pieces[3]), column.codes->read()) == "");
            CHECK(testing::difference(at(pieces[4]), column.scales->read()) == "");
            if (pieces[2].bytes) CHECK(at(pieces[2]) == testing::bytes_of({1.5f}));
            ++ran;
        }
    CHECK(ran == 35 * 2);
}

TEST_CASE("memory: formats without an amax need no bytes for one, whichever part is asked for", "[cpu]") {
    for (int32_t format : {MXQ_FORMAT_F32, MXQ_FORMAT_BF16, MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_MXFP4})
        for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
            auto tensor = testing::make_tensor(format, {std::nullopt, 5, 40});
            uint64_t bytes = 99;
            ok(mxq_tensor_required_amax_bytes(tensor, part, &bytes));
            CHECK(bytes == 0);
        }
}

TEST_CASE("memory: data of a plain tensor, with its row stride", "[cpu]") {
    alignas(256) static uint8_t block[1024];
    auto x = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 5, 10});
    ok(mxq_tensor_set_row_stride(x, 32));
    CHECK(total_of(x, MXQ_PART_ROWWISE) == 512);  // 4 * 32 + 10 elements are 276 bytes
    ok(mxq_tensor_set_const_data(x, block, 1));
    ok(mxq_tensor_set_memory(x, MXQ_PART_ROWWISE, block, 512));
    void* data = nullptr;
    uint64_t bytes = 0;
    int32_t is_const = -1;
    ok(mxq_tensor_get_data(x, &data, &bytes, &is_const));
    CHECK(data == block);
    CHECK(bytes == 276);
    CHECK(is_const == 0);
    for (int32_t parts : {MXQ_PART_COLUMNWISE, MXQ_PART_BOTH})
        MXQ_REFUSED(mxq_tensor_set_memory(x, parts, block, 1024), invalid, "MXQ_PART_ROWWISE for bf16");
}

TEST_CASE("memory: NULL serves tensors of no bytes, and no others", "[cpu]") {
    for (int32_t format : {MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_NVFP4})
        for (const testing::Dims& dims : {testing::Dims{0, 32, 32}, {std::nullopt, 0, 32}, {std::nullopt, 32, 0}}) {
            auto empty = testing::make_tensor(format, dims);
            const bool has_amax = format == MXQ_FORMAT_NVFP4 && !dims.experts;  // quantize writes it
            CHECK(total_of(empty, MXQ_PART_BOTH) == (has_amax ? 512 : 0));
            CHECK(mxq_tensor_set_memory(empty, MXQ_PART_BOTH, nullptr, 0) == (has_amax ? MXQ_STATUS_MISSING_BUFFER : MXQ_STATUS_OK));
        }
    auto plain = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 0, 8}), one = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 1, 8});
    CHECK(mxq_tensor_set_memory(plain, MXQ_PART_ROWWISE, nullptr, 0) == MXQ_STATUS_OK);
    MXQ_REFUSED(mxq_tensor_set_memory(one, MXQ_PART_ROWWISE, nullptr, 0), MXQ_STATUS_MISSING_BUFFER, "memory is NULL", "256", "mxq_tensor_total_bytes");
    auto fp8 = testing::make_tensor(MXQ_FORMAT_FP8_E4M3, {0, 8, 8});  // has a scale, which quantize writes
    CHECK(total_of(fp8, MXQ_PART_ROWWISE) == 256);
}

TEST_CASE("memory: what is refused changes nothing", "[cpu]") {
    alignas(256) static uint8_t block[1024];
    auto q = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, 8, 32});
    CHECK(total_of(q, MXQ_PART_BOTH) == 1024);
    for (int32_t bad : {-1, 0, 4}) {
        uint64_t bytes = 7;
        MXQ_REFUSED(mxq_tensor_set_memory(q, bad, block, 1024), invalid, "parts is " + std::to_string(bad), "MXQ_PART_BOTH");
        MXQ_REFUSED(mxq_tensor_total_bytes(q, bad, &bytes), invalid, "parts is " + std::to_string(bad));
        CHECK(bytes == 7);
    }
    MXQ_REFUSED(mxq_tensor_set_memory(q, MXQ_PART_BOTH, block, 1023), MXQ_STATUS_BUFFER_TOO_SMALL, "1023 bytes", "1024", "mxq_tensor_total_bytes");
    MXQ_REFUSED(mxq_tensor_set_memory(q, MXQ_PART_ROWWISE, block + 128, 896), MXQ_STATUS_MISALIGNED, "memory is at", "multiple of 256");
    MXQ_REFUSED(mxq_tensor_set_memory(nullptr, MXQ_PART_BOTH, block, 1024), invalid, "tensor is NULL");
    MXQ_REFUSED(mxq_tensor_total_bytes(nullptr, MXQ_PART_BOTH, nullptr), invalid, "tensor is NULL");
    MXQ_REFUSED(mxq_tensor_total_bytes(q, MXQ_PART_BOTH, nullptr), invalid, "bytes is NULL");
    int32_t declared = -1;
    ok(mxq_tensor_get_part(q, MXQ_PART_ROWWISE, &declared, nullptr, nullptr, nullptr, nullptr, nullptr));
    CHECK(declared == 0);
}

TEST_CASE("memory: one part leaves the other and FP8's amax as they were, and a decode scale takes the place of an amax", "[cpu]") {
    alignas(256) static uint8_t block[4096];
    float number = 1;
    auto fp8 = testing::make_tensor(MXQ_FORMAT_FP8_E4M3, {std::nullopt, 8, 32});
    ok(mxq_tensor_set_amax(fp8, MXQ_PART_ROWWISE, &number, 4));
    ok(mxq_tensor_set_memory(fp8, MXQ_PART_ROWWISE, block, total_of(fp8, MXQ_PART_ROWWISE)));
    ok(mxq_tensor_set_memory(fp8, MXQ_PART_COLUMNWISE, block + 2048, total_of(fp8, MXQ_PART_COLUMNWISE)));
    const auto pieces = pieces_of(fp8, MXQ_PART_BOTH);
    CHECK(pieces[0].pointer == block);
    CHECK(pieces[2].pointer == &number);
    CHECK(pieces[3].pointer == block + 2048);

    auto nvfp4 = testing::make_tensor(MXQ_FORMAT_NVFP4, {std::nullopt, 8, 32});
    ok(mxq_tensor_set_decode_scale(nvfp4, MXQ_PART_ROWWISE, &number, 4));
    CHECK(total_of(nvfp4, MXQ_PART_ROWWISE) == 512);
    CHECK(total_of(nvfp4, MXQ_PART_COLUMNWISE) == 768);
    ok(mxq_tensor_set_memory(nvfp4, MXQ_PART_ROWWISE, block, 512));
    CHECK(pieces_of(nvfp4, MXQ_PART_ROWWISE)[2].pointer == nullptr);
    auto y = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 8, 32});
    ok(mxq_tensor_set_memory(y, MXQ_PART_ROWWISE, block + 2048, 1024));
    CHECK(mxq_dequantize(testing::cpu().context, nullptr, nvfp4, y, nullptr, 0, nullptr) == MXQ_STATUS_OK);
}
