// Tensor maps: what the copy engine of sm_90 ("TMA") must know of matrices in memory to load and store tiles of them by itself.
// The host encodes a map once per launch; a kernel takes it as a parameter and copies by coordinates (sm90/copy.cuh).
//
//     sizes[0], columns ->
//     +---------+---------+-----      a box is the tile of one copy, at any coordinates. What of it lies outside of the
//     | box     |         |           matrix is zero when it is loaded and stays as it is when it is stored; a load brings
//     +---------+---------+-----      the bytes of the whole box either way.
//     |         |         |           sizes[1] rows, strides[0] bytes apart; sizes[2] matrices, strides[1] bytes apart
#pragma once
#include <cstdint>
#include <string>

#include "cuda/driver.h"

namespace mxq::cuda::sm90 {

// One matrix (rank 2) or several at equal distances (rank 3), columns first as the copy engine counts, and the box.
struct TileMap {
    const void* data;
    CUtensorMapDataType type;  // UINT8 for codes, BFLOAT16, FLOAT16 or FLOAT32
    int rank;
    int64_t sizes[3];            // columns, rows, matrices; elements
    int64_t strides[2];          // bytes from a row and from a matrix to the next
    int32_t box[3];              // columns, rows, matrices; elements
    CUtensorMapSwizzle swizzle;  // of the box in shared memory
};

// Returns why the copy engine cannot address this, in the words of an implementation that declines; empty where it can. A query
// may come before the memory: NULL counts as aligned.
std::string unmappable(const TileMap& map);

// Encodes the map, on the current device. Throws INTERNAL_ERROR where `unmappable` has a reason, since its caller should have declined, and
// CUDA_ERROR where the driver refuses.
CUtensorMap tensor_map(const Driver& driver, const TileMap& map);

}  // namespace mxq::cuda::sm90
