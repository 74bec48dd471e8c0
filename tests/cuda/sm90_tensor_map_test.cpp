// What is asked of the driver for a tensor map, and what is refused before; no GPU is needed.
#include "../catch.h"
#include "core/error.h"
#include "cuda/sm90/tensor_map.h"

#include <algorithm>
#include <vector>

using namespace mxq::cuda;
using namespace mxq::cuda::sm90;

namespace {

// The arguments of the last call of the driver's function.
struct Call {
    CUtensorMapDataType type;
    std::vector<cuuint64_t> sizes, strides;
    std::vector<cuuint32_t> box, element_strides;
    void* data;
    CUtensorMapSwizzle swizzle;
    CUtensorMapInterleave interleave;
    CUtensorMapFloatOOBfill fill;
    int count = 0;
};
Call last;

CUresult record(CUtensorMap*, CUtensorMapDataType type, cuuint32_t rank, void* data, const cuuint64_t* sizes,
                const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* element_strides,
                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                CUtensorMapFloatOOBfill fill) {
    last = {type,
            {sizes, sizes + rank},
            {strides, strides + rank - 1},
            {box, box + rank},
            {element_strides, element_strides + rank},
            data,
            swizzle,
            interleave,
            fill,
            last.count + 1};
    return CUDA_SUCCESS;
}

Driver recorder() {
    Driver driver{};
    driver.encode_tiled = record;
    return driver;
}

// Experts' codes: 3 matrices of 200 rows of 320 bytes.
TileMap experts() {
    return {reinterpret_cast<const void*>(0x7000010),
            CU_TENSOR_MAP_DATA_TYPE_UINT8,
            3,
            {320, 200, 3},
            {320, 64000},
            {128, 64, 1},
            CU_TENSOR_MAP_SWIZZLE_128B};
}

}  // namespace

TEST_CASE("sm90 tensor maps: columns, rows and matrices in the driver's order") {
    tensor_map(recorder(), experts());
    CHECK(last.type == CU_TENSOR_MAP_DATA_TYPE_UINT8);
    CHECK(last.data == reinterpret_cast<void*>(0x7000010));
    CHECK(last.sizes == std::vector<cuuint64_t>{320, 200, 3});
    CHECK(last.strides == std::vector<cuuint64_t>{320, 64000});
    CHECK(last.box == std::vector<cuuint32_t>{128, 64, 1});
    CHECK(last.element_strides == std::vector<cuuint32_t>{1, 1, 1});
    CHECK(last.swizzle == CU_TENSOR_MAP_SWIZZLE_128B);
    CHECK(last.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE);
    CHECK(last.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

TEST_CASE("sm90 tensor maps: a matrix is of rank 2, its third size and stride of no meaning") {
    TileMap map = experts();
    map.rank = 2;
    map.sizes[2] = map.box[2] = 0;
    map.strides[1] = 1;
    tensor_map(recorder(), map);
    CHECK(last.sizes == std::vector<cuuint64_t>{320, 200});
    CHECK(last.strides == std::vector<cuuint64_t>{320});
    CHECK(last.box == std::vector<cuuint32_t>{128, 64});
}

TEST_CASE("sm90 tensor maps: what the copy engine cannot address has a reason, and the driver is not asked") {
    struct Refusal {
        void (*change)(TileMap&);
        const char* reason;
    };
    const Refusal refusals[] = {
        {[](TileMap& m) { m.rank = 4; }, "needs tensor maps of rank 2 or 3, found 4"},
        {[](TileMap& m) { m.data = reinterpret_cast<void*>(0x7000018); },
         "needs matrices that begin at a multiple of 16 bytes, found one at 0x7000018"},
        {[](TileMap& m) { m.sizes[1] = 0; }, "needs 1 to 2^32 rows, found 0"},
        {[](TileMap& m) { m.sizes[0] = (int64_t(1) << 32) + 1; }, "needs 1 to 2^32 columns, found 4294967297"},
        {[](TileMap& m) { m.strides[0] = 328; }, "needs rows a multiple of 16 bytes apart, less than 2^40, found 328"},
        {[](TileMap& m) { m.strides[1] = int64_t(1) << 40; },
         "needs matrices a multiple of 16 bytes apart, less than 2^40, found 1099511627776"},
        {[](TileMap& m) { m.box[1] = 257; }, "needs boxes of 1 to 256 rows, found 257"},
        {[](TileMap& m) { m.box[0] = 144; }, "needs boxes with lines of whole 16 bytes, 128 at most, found 144"},
        {[](TileMap& m) { m.box[0] = 120; }, "needs boxes with lines of whole 16 bytes, 128 at most, found 120"},
        {[](TileMap& m) { m.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16; },
         "needs boxes with lines of whole 16 bytes, 128 at most, found 256"},
        {[](TileMap& m) { m.swizzle = CU_TENSOR_MAP_SWIZZLE_64B; },
         "needs boxes with lines of whole 16 bytes, 64 at most, found 128"}};
    CHECK(unmappable(experts()) == "");
    const int calls = last.count;
    for (const Refusal& refusal : refusals) {
        TileMap map = experts();
        refusal.change(map);
        CHECK(unmappable(map) == refusal.reason);
        CHECK_THROWS_AS(tensor_map(recorder(), map), mxq::Error);
    }
    CHECK(last.count == calls);
}
