// A product of 64 x 64 tiles: a block of 128 threads loads tiles of 64 x 128 bytes of A (2-D map) and B (3-D map) under the
// 128-byte swizzle through a ring of two stages, multiplies them by wgmma, and stores D (3-D map) from shared memory.
//
//     step        0      1      2      3
//     stage       0      1      0      1        full: the engine has brought both tiles (1 arrival and 16 KB)
//     parity      0      0      1      1        free: all 128 threads are done with them
//
// Edges of the matrices are the maps': zeros are loaded past them, nothing is stored there.
#include "sm90_probe.h"

#include <cuda_runtime.h>

#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/tensor_map.h"
#include "cuda/sm90/wgmma.cuh"

namespace {

using namespace mxq;
using namespace mxq::cuda;
using namespace mxq::cuda::sm90;
using testing::ProbeElement;
using testing::ProbeProblem;

constexpr int kSide = kProductRows;  // of A's, B's and D's tiles
constexpr int kRowBytes = 128;
constexpr int kStages = 2;
static_assert(kProductColumns == kSide);

struct Stage {
    uint8_t a[kSide * kRowBytes], b[kSide * kRowBytes];
};

struct Shared {
    union {
        alignas(1024) Stage stages[kStages];
        float d[kSide][kSide];  // after the last product
    };
    Barrier full[kStages], free[kStages];
};

// Where a block's tile of D begins, and of which product it is.
struct Origin {
    int row, col, matrix;
};

__device__ __forceinline__ void load_stage(const CUtensorMap& a, const CUtensorMap& b, const Origin& origin, int k,
                                           Stage& stage, Barrier& full) {
    arrive_expecting(full, sizeof(Stage));
    load_tile(stage.a, a, {k, origin.row}, full);
    load_tile(stage.b, b, {k, origin.col, origin.matrix}, full);
}

template <ProbeElement element>
__device__ __forceinline__ void multiply_stage(float (&d)[kAccumulators], const Stage& stage, bool adds) {
    const TileDescriptor a = describe_tile(stage.a), b = describe_tile(stage.b);
    begin_products(d);
#pragma unroll
    for (int byte = 0; byte < kRowBytes; byte += kProductBytes) {
        constexpr auto multiply = element == ProbeElement::E4M3 ? multiply_e4m3 : multiply_bf16;
        multiply(d, a.along(byte), b.along(byte), adds || byte > 0);
    }
    commit_products();
    wait_products<0>(d);
}

__device__ __forceinline__ void store_accumulators(const float (&d)[kAccumulators], const CUtensorMap& map,
                                                   const Origin& origin, float (&tile)[kSide][kSide]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = 0; i < kAccumulators; i++)
        tile[16 * warp + 8 * (i / 2 % 2) + lane / 4][8 * (i / 4) + 2 * (lane % 4) + i % 2] = d[i];
    publish_shared_writes();
    __syncthreads();
    if (threadIdx.x != 0) return;
    store_tile(map, {origin.col, origin.row, origin.matrix}, tile);
    commit_stores();
    wait_stores_read<0>();
}

template <ProbeElement element>
__global__ void __launch_bounds__(kWarpgroup)
    probe_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                 const __grid_constant__ CUtensorMap d, int steps) {
    constexpr int columns = element == ProbeElement::E4M3 ? kRowBytes : kRowBytes / 2;  // of a step
    __shared__ Shared shared;
    const Origin origin{int(blockIdx.y) * kSide, int(blockIdx.x) * kSide, int(blockIdx.z)};
    const bool leads = threadIdx.x == 0;
    const auto load = [&](int step) {
        load_stage(a, b, origin, step * columns, shared.stages[step % kStages], shared.full[step % kStages]);
    };
    if (leads) {
        for (Barrier& barrier : shared.full) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.free) init_barrier(barrier, kWarpgroup);
        publish_barriers();
        for (int step = 0; step < min(steps, kStages); step++) load(step);
    }
    __syncthreads();
    float sums[kAccumulators];
    for (int step = 0; step < steps; step++) {
        const int stage = step % kStages, parity = step / kStages % 2;
        wait(shared.full[stage], parity);
        multiply_stage<element>(sums, shared.stages[stage], step > 0);
        arrive(shared.free[stage]);
        if (leads && step + kStages < steps) {
            wait(shared.free[stage], parity);
            load(step + kStages);
        }
    }
    __syncthreads();
    store_accumulators(sums, d, origin, shared.d);
}

TileMap operand_map(const ProbeProblem& p, const void* data, int rows, int rank) {
    const bool e4m3 = p.element == ProbeElement::E4M3;
    const int64_t row_bytes = p.depth * (e4m3 ? 1 : 2);
    return {data,
            e4m3 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            rank,
            {p.depth, rows, p.matrices},
            {row_bytes, rows * row_bytes},
            {e4m3 ? kRowBytes : kRowBytes / 2, kSide, 1},
            CU_TENSOR_MAP_SWIZZLE_128B};
}

TileMap result_map(const ProbeProblem& p) {
    const int64_t row_bytes = p.cols * int64_t(sizeof(float));
    return {p.d,
            CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            3,
            {p.cols, p.rows, p.matrices},
            {row_bytes, p.rows * row_bytes},
            {kSide, kSide, 1},
            CU_TENSOR_MAP_SWIZZLE_NONE};
}

}  // namespace

namespace testing {

bool is_sm90() {
    int device = 0, major = 0, minor = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
    return major == 9 && minor == 0;
}

void run_probe(const ProbeProblem& p) {
    const CUtensorMap a = tensor_map(driver(), operand_map(p, p.a, p.rows, 2));
    const CUtensorMap b = tensor_map(driver(), operand_map(p, p.b, p.cols, 3));
    const CUtensorMap d = tensor_map(driver(), result_map(p));
    const int step = p.element == ProbeElement::E4M3 ? kRowBytes : kRowBytes / 2;
    const auto kernel =
        p.element == ProbeElement::E4M3 ? probe_kernel<ProbeElement::E4M3> : probe_kernel<ProbeElement::Bf16>;
    const auto tiles = [](int size) { return unsigned((size + kSide - 1) / kSide); };
    kernel<<<dim3(tiles(p.cols), tiles(p.rows), unsigned(p.matrices)), kWarpgroup>>>(a, b, d, (p.depth + step - 1) / step);
    check(cudaGetLastError(), "launching the probe");
    check(cudaDeviceSynchronize(), "running the probe");
}

}  // namespace testing
