// Reads no byte behind a buffer: on a CUDA device, buffers whose last byte is the last one of mapped memory, where the next
// would be an illegal address.
#include "../cases.h"
#include "../formats.h"

#ifndef MXQ_TESTS_CUDA
TEST_CASE("last bytes: nothing behind a buffer is read", "[cuda]") { MXQ_SKIP("a build without CUDA"); }
#else

#include <cuda.h>

using testing::Bytes;
using testing::ok;

namespace {

void check(CUresult result) {
    if (result != CUDA_SUCCESS) throw std::runtime_error("driver error " + std::to_string(int(result)));
}

template <class Function>
void find(Function& function, const char* name) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &result) != cudaSuccess || !entry)
        throw std::runtime_error(std::string("the driver has no ") + name);
    function = reinterpret_cast<Function>(entry);
}

// Functions of the driver, found by name: the tests are not linked with it.
struct Driver {
    decltype(&cuMemGetAllocationGranularity) granularity;
    decltype(&cuMemAddressReserve) reserve;
    decltype(&cuMemAddressFree) free;
    decltype(&cuMemCreate) create;
    decltype(&cuMemRelease) release;
    decltype(&cuMemMap) map;
    decltype(&cuMemUnmap) unmap;
    decltype(&cuMemSetAccess) set_access;
};

const Driver& driver() {
    static const Driver found = [] {
        Driver d;
        find(d.granularity, "cuMemGetAllocationGranularity");
        find(d.reserve, "cuMemAddressReserve");
        find(d.free, "cuMemAddressFree");
        find(d.create, "cuMemCreate");
        find(d.release, "cuMemRelease");
        find(d.map, "cuMemMap");
        find(d.unmap, "cuMemUnmap");
        find(d.set_access, "cuMemSetAccess");
        return d;
    }();
    return found;
}

// A copy of bytes whose last one ends the memory that is mapped.
class LastBytes {
public:
    explicit LastBytes(const Bytes& content) {
        CUmemAllocationProp what{};
        what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        what.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
        size_t page = 0;
        check(driver().granularity(&page, &what, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        mapped_ = (content.size() + page - 1) / page * page;
        reserved_ = mapped_ + page;
        check(driver().reserve(&address_, reserved_, 0, 0, 0));
        check(driver().create(&memory_, mapped_, &what, 0));
        check(driver().map(address_, mapped_, 0, memory_, 0));
        const CUmemAccessDesc access{what.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        check(driver().set_access(address_, mapped_, &access, 1));
        bytes = content.size();
        data = reinterpret_cast<uint8_t*>(address_ + mapped_ - bytes);
        if (cudaMemcpy(data, content.data(), bytes, cudaMemcpyHostToDevice) != cudaSuccess)
            throw std::runtime_error("no copy to the last bytes");
    }
    ~LastBytes() {
        driver().unmap(address_, mapped_);
        driver().release(memory_);
        driver().free(address_, reserved_);
    }
    LastBytes(const LastBytes&) = delete;

    uint8_t* data = nullptr;
    uint64_t bytes = 0;

private:
    CUdeviceptr address_ = 0;
    CUmemGenericAllocationHandle memory_ = 0;
    size_t mapped_ = 0, reserved_ = 0;
};

// Returns what dequantize makes of a part in such memory.
Bytes dequantized(testing::Device& device, mxq_tensor* in, testing::Dims dims) {
    const auto out = testing::make_tensor(MXQ_FORMAT_F32, dims);
    const testing::Buffer data(device, dims.shape().count() * 4);
    ok(mxq_tensor_set_data(out, data.data(), data.bytes()));
    testing::run(device, mxq_dequantize, mxq_dequantize_query, nullptr, in, out);
    return data.read();
}

// Requantizes a part in such memory to the same part of a format.
void requantize(testing::Device& device, mxq_tensor* in, testing::Dims dims, int32_t part, int32_t format) {
    INFO("requantized to " << format);
    const auto out = testing::make_quantized({format}, dims, false);
    uint64_t code_bytes = 0, scale_bytes = 0;
    ok(mxq_tensor_required_bytes(out, part, &code_bytes, &scale_bytes));
    const testing::Buffer codes(device, code_bytes), scales(device, scale_bytes);
    ok(mxq_tensor_set_part(out, part, codes.data(), codes.bytes(), scales.data(), scales.bytes()));
    testing::run(device, mxq_requantize, mxq_requantize_query, nullptr, in, out);
    CHECK_FALSE(codes.untouched());
}

// Returns the bytes that both parts of a format take where `in` is quantized to them.
Bytes quantized(testing::Device& device, mxq_tensor* in, testing::Dims dims, int32_t format) {
    const auto out = testing::make_quantized({format}, dims, false);
    std::vector<std::unique_ptr<testing::Buffer>> buffers;
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        uint64_t code_bytes = 0, scale_bytes = 0;
        ok(mxq_tensor_required_bytes(out, part, &code_bytes, &scale_bytes));
        for (uint64_t bytes : {code_bytes, scale_bytes}) buffers.push_back(std::make_unique<testing::Buffer>(device, bytes));
        const testing::Buffer &codes = *buffers[buffers.size() - 2], &scales = *buffers.back();
        ok(mxq_tensor_set_part(out, part, codes.data(), codes.bytes(), scales.data(), scales.bytes()));
    }
    testing::run(device, mxq_quantize, mxq_quantize_query, nullptr, in, out);
    Bytes all;
    for (const auto& buffer : buffers) {
        const Bytes bytes = buffer->read();
        all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
}

}  // namespace

// Lines of 21 codes of six bits are 16 bytes, whole words of which the last has codes of no other word's.
TEST_CASE("last bytes: nothing behind a buffer is read", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    testing::Device& device = *testing::cuda();
    int ran = 0;
    for (const oracle::Spec& spec : testing::all_formats()) {
        if (testing::is_nvfp4(spec)) continue;  // which has an amax besides
        for (int64_t size : {5, 21, 32})
            for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
                const testing::Dims dims{std::nullopt, size, size};
                const oracle::Floats x = cases::values(cases::Values::normal, dims.shape().count(), 1);
                const oracle::Part stored = oracle::quantize(spec, x, dims.shape(), part, false);
                const LastBytes codes(stored.codes), scales(stored.scales);
                const auto in = testing::make_tensor(spec, dims, false);
                ok(mxq_tensor_set_part(in, part, codes.data, codes.bytes, scales.data, scales.bytes));
                INFO(spec.format << " " << spec.scaling << " " << size << " " << part);
                const oracle::Floats expected = oracle::dequantize(spec, stored, dims.shape(), part, false);
                CHECK(testing::difference(dequantized(device, in, dims), oracle::store(MXQ_FORMAT_F32, expected)) == "");
                for (const int32_t format : {MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_MXFP4})
                    requantize(device, in, dims, part, format);
                ++ran;
            }
    }
    CHECK(ran > 100);
}

// The last row of a last tile of 128 columns begins at a multiple of 16 bytes: a piece beside it would lie behind the buffer.
TEST_CASE("last bytes: nothing behind rows that begin anywhere is read", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    testing::Device& device = *testing::cuda();
    for (const auto& [cols, stride] : {std::pair<int64_t, int64_t>{128, 129}, {128, 131}, {133, 133}, {256, 259}})
        for (int32_t format : {MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_MXFP6_E2M3, MXQ_FORMAT_MXFP4}) {
            const testing::Dims dims{std::nullopt, 128, cols};
            const oracle::Floats x = cases::values(cases::Values::normal, uint64_t(127 * stride + cols), 1);
            const Bytes content = oracle::store(MXQ_FORMAT_BF16, x);
            const auto set = [&](const void* data) {
                testing::Tensor in = testing::make_tensor(MXQ_FORMAT_BF16, dims);
                ok(mxq_tensor_set_row_stride(in, stride));
                ok(mxq_tensor_set_data(in, const_cast<void*>(data), content.size()));
                return in;
            };
            const LastBytes at_end(content);
            const testing::Buffer elsewhere(device, content);
            INFO(format << " " << cols << " " << stride);
            CHECK(quantized(device, set(at_end.data), dims, format) == quantized(device, set(elsewhere.data()), dims, format));
        }
}

#endif
