#include "cuda/sm90/tensor_map.h"

#include "core/error.h"

namespace mxq::cuda::sm90 {
namespace {

constexpr int64_t kUnit = 16;  // bytes that addresses, strides and lines of a box are multiples of
constexpr int64_t kMostSize = int64_t(1) << 32, kMostStride = (int64_t(1) << 40) - kUnit;
constexpr int32_t kMostBox = 256;
constexpr const char* kAxes[] = {"columns", "rows", "matrices"};

int64_t bytes_of(CUtensorMapDataType type) {
    switch (type) {
        case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
        case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT32: return 4;
        default: fail(MXQ_STATUS_INTERNAL_ERROR, "a tensor map has data type %d, expected one of 1, 2 or 4 bytes", type);
    }
}

// Returns the bytes over which a line of a swizzled box may stretch; without a swizzle any number of elements may.
int64_t longest_line(CUtensorMapSwizzle swizzle, int64_t element_bytes) {
    switch (swizzle) {
        case CU_TENSOR_MAP_SWIZZLE_NONE: return kMostBox * element_bytes;
        case CU_TENSOR_MAP_SWIZZLE_32B: return 32;
        case CU_TENSOR_MAP_SWIZZLE_64B: return 64;
        case CU_TENSOR_MAP_SWIZZLE_128B: return 128;
        default: fail(MXQ_STATUS_INTERNAL_ERROR, "a tensor map has swizzle %d, expected NONE, 32B, 64B or 128B", swizzle);
    }
}

std::string unmappable_box(const TileMap& map) {
    for (int i = 0; i < map.rank; i++)
        if (map.box[i] < 1 || map.box[i] > kMostBox)
            return format_text("needs boxes of 1 to %d %s, found %d", kMostBox, kAxes[i], map.box[i]);
    const int64_t element = bytes_of(map.type), line = map.box[0] * element, longest = longest_line(map.swizzle, element);
    if (line % kUnit != 0 || line > longest)
        return format_text("needs boxes with lines of whole 16 bytes, %lld at most, found %lld",
                           static_cast<long long>(longest), static_cast<long long>(line));
    return "";
}

}  // namespace

std::string unmappable(const TileMap& map) {
    if (map.rank < 2 || map.rank > 3) return format_text("needs tensor maps of rank 2 or 3, found %d", map.rank);
    if (reinterpret_cast<uintptr_t>(map.data) % kUnit != 0)
        return format_text("needs matrices that begin at a multiple of 16 bytes, found one at %p", map.data);
    for (int i = 0; i < map.rank; i++)
        if (map.sizes[i] < 1 || map.sizes[i] > kMostSize)
            return format_text("needs 1 to 2^32 %s, found %lld", kAxes[i], static_cast<long long>(map.sizes[i]));
    for (int i = 0; i < map.rank - 1; i++)
        if (map.strides[i] < 0 || map.strides[i] > kMostStride || map.strides[i] % kUnit != 0)
            return format_text("needs %s a multiple of 16 bytes apart, less than 2^40, found %lld", kAxes[i + 1],
                               static_cast<long long>(map.strides[i]));
    return unmappable_box(map);
}

CUtensorMap tensor_map(const Driver& driver, const TileMap& map) {
    const std::string reason = unmappable(map);
    if (!reason.empty()) fail(MXQ_STATUS_INTERNAL_ERROR, "a tensor map %s", reason.c_str());
    if (!map.data) fail(MXQ_STATUS_INTERNAL_ERROR, "a tensor map has no matrices, expected some");
    cuuint64_t sizes[3], strides[2];
    cuuint32_t box[3];
    constexpr cuuint32_t every_element[3] = {1, 1, 1};
    for (int i = 0; i < 3; i++) sizes[i] = cuuint64_t(map.sizes[i]), box[i] = cuuint32_t(map.box[i]);
    for (int i = 0; i < 2; i++) strides[i] = cuuint64_t(map.strides[i]);
    CUtensorMap encoded;
    check_driver(driver.encode_tiled(&encoded, map.type, cuuint32_t(map.rank), const_cast<void*>(map.data), sizes, strides,
                                     box, every_element, CU_TENSOR_MAP_INTERLEAVE_NONE, map.swizzle,
                                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                 "cuTensorMapEncodeTiled");
    return encoded;
}

}  // namespace mxq::cuda::sm90
