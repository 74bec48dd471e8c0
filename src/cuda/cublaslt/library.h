// cuBLASLt, opened at run time and never linked: one table of its functions for the process, and one for each path
// in the options of a context.
//
//     a path in the options         this file and no other
//     MXQ_CUBLASLT_PATH             likewise, where the options have none
//     loaded by somebody already    libcublasLt.so.13, .12
//     found by the loader           libcublasLt.so.13, .12
//
// What a library can do goes by its version at run time, never by the headers that this was built with. Those of CUDA 13.0
// and before lack the grouped matrix layout: the few names of it that are needed are declared here.
#pragma once
#include <cublasLt.h>

#include <string>

namespace mxq::cuda::lt {

// Values of cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t and cublasLtMatmulStages_t.
constexpr auto kAlphaBatchStride = static_cast<cublasLtMatmulDescAttributes_t>(39);          // int64_t
constexpr auto kBetaBatchStride = static_cast<cublasLtMatmulDescAttributes_t>(40);           // int64_t
constexpr auto kAverageDepth = static_cast<cublasLtMatmulPreferenceAttributes_t>(13);        // int64_t
constexpr auto kAverageRows = static_cast<cublasLtMatmulPreferenceAttributes_t>(14);         // int64_t
constexpr auto kAverageColumns = static_cast<cublasLtMatmulPreferenceAttributes_t>(15);      // int64_t
constexpr uint32_t kDeepStages = 38;  // CUBLASLT_MATMUL_STAGES_768xAUTO

// Rows, columns and leading dimensions are arrays of int32_t on the device, one entry a group.
using GroupedLayoutCreate = cublasStatus_t(cublasLtMatrixLayout_t*, cudaDataType, int groups, const void* rows,
                                           const void* columns, const void* leading_dimensions);
// The heuristic without the legacy stream, which no other stream may meet while it is being captured.
using HeuristicForStream = cublasStatus_t(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                          cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t*, int*,
                                          cudaStream_t);

struct Api {
    decltype(&cublasLtGetVersion) version;
    decltype(&cublasLtGetStatusName) status_name;
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtMatmulDescCreate) desc_create;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    decltype(&cublasLtMatmulAlgoConfigGetAttribute) config_get;
    decltype(&cublasLtMatmul) matmul;
    GroupedLayoutCreate* grouped_layout_create;  // NULL before 13.2
    HeuristicForStream* heuristic_for_stream;    // NULL before 13.5
};

struct Library {
    Api api{};
    int32_t version = 0;   // 130100 for 13.1.0
    std::string path;
    std::string missing;   // why there is none; empty: there is
};

// Returns the library of the process, which the first call searches for, and keeps it until the process ends.
const Library& library();

// Opens the file at `path`, which is what `by` says, or with NULL the one that the search finds. It is never closed.
Library open_library(const char* path, const char* by = "MXQ_CUBLASLT_PATH");

// Returns text such as "cuBLASLt 13.1.0, /usr/lib/libcublasLt.so.13".
std::string description(const Library& library);

// Returns text such as "13.1", or "13.2.1" of a patch release.
std::string version_text(int32_t version);

}  // namespace mxq::cuda::lt
