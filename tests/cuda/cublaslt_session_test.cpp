// The search for the library, the algorithms that are taken and those that are remembered.
#include "../catch.h"
#include "cublaslt_recorder.h"
#include "core/error.h"

#include <cstdlib>
#include <thread>

using namespace mxq;
using namespace mxq::cuda::lt;
using namespace recorder;

namespace {

MatmulDescription described(const Case& c, int capability) {
    MatmulDescription matmul{};
    REQUIRE(describe(dense(c), machine(capability, 131000), matmul).text() == "");
    return matmul;
}

// The candidate that a product of these is made with; 0: none serves.
uint64_t taken(Recording& recording, const Case& c, int capability, int version, std::vector<Candidate> candidates) {
    recording.candidates = std::move(candidates);
    Session session(api(), machine(capability, version), nullptr);
    const MatmulDescription matmul = described(c, capability);
    const Session::Choice choice = session.choose(matmul);
    if (!choice.declines.empty()) return 0;
    session.multiply(matmul, choice.algorithm, nullptr, {}, nullptr, nullptr);
    return recording.matmuls.back().algorithm;
}

Case bf16_case(int32_t d = MXQ_FORMAT_BF16) { return {bf16(), bf16(), d}; }

}  // namespace

TEST_CASE("cublaslt library: found, or why not") {
    const std::string none = "needs libcublasLt.so.13 or .12 ";
    CHECK(open_library("/nowhere/libcublasLt.so.13").missing.find(none + "at MXQ_CUBLASLT_PATH, found none (") == 0);
    CHECK(open_library("/nowhere", "the path in the options").missing.find(none + "at the path in the options, found none (") == 0);
    CHECK(open_library("libc.so.6").missing == "needs a cuBLASLt that has cublasLtGetVersion, found one without in libc.so.6");
    const Library found = open_library(nullptr);
    if (found.missing.empty()) {
        CHECK(found.version >= 120000);
        CHECK(found.path.find("cublasLt") != std::string::npos);
        CHECK(found.api.matmul);
        CHECK((found.version < 130200) == !found.api.grouped_layout_create);
        CHECK(description(found).find("cuBLASLt 1") == 0);
    } else {
        CHECK(found.missing.find(none + "where the loader looks or at MXQ_CUBLASLT_PATH, found none (") == 0);
    }
    CHECK(version_text(130100) == "13.1");
    CHECK(version_text(131002) == "13.10");
}

TEST_CASE("cublaslt session: the heuristic is asked once for a problem") {
    Recording recording;
    Session session(api(), machine(90, 131000), nullptr);
    Case c = bf16_case();
    MatmulDescription matmul = described(c, 90);
    for (int i = 0; i < 3; i++) CHECK(session.choose(matmul).declines.text() == "");
    session.multiply(matmul, session.choose(matmul).algorithm, nullptr, {}, nullptr, nullptr);
    CHECK(recording.heuristics.size() == 1);
    matmul.a.data = at(b_rows + 0x1000);  // as aligned as before
    CHECK(session.choose(matmul).declines.text() == "");
    CHECK(recording.heuristics.size() == 1);
    matmul.a.data = at(b_rows + 64);
    CHECK(session.choose(matmul).declines.text() == "");
    CHECK(recording.heuristics.size() == 2);

    // The oldest goes when there are 256.
    for (int64_t m = 1; m <= 300; m++) {
        c.sizes.m = m;
        CHECK(session.choose(described(c, 90)).declines.text() == "");
    }
    CHECK(recording.heuristics.size() == 302);
    c.sizes.m = 45;  // 45 to 300 are there
    session.choose(described(c, 90));
    CHECK(recording.heuristics.size() == 302);
    c.sizes.m = 44;
    session.choose(described(c, 90));
    CHECK(recording.heuristics.size() == 303);
}

TEST_CASE("cublaslt session: a refusal is remembered, a failure is not") {
    Recording recording;
    Session session(api(false), machine(90, 130100), nullptr);
    const MatmulDescription matmul = described(bf16_case(), 90);
    recording.heuristic_status = CUBLAS_STATUS_INTERNAL_ERROR;
    CHECK(session.choose(matmul).declines.text() == "needs an algorithm of cuBLASLt 13.1 for this product, found OTHER");
    recording.heuristic_status = CUBLAS_STATUS_NOT_SUPPORTED;
    CHECK(session.choose(matmul).declines.text() == "needs an algorithm of cuBLASLt 13.1 for this product, found NOT_SUPPORTED");
    recording.heuristic_status = CUBLAS_STATUS_SUCCESS;
    CHECK(session.choose(matmul).declines.text() != "");
    CHECK(recording.heuristics.size() == 2);
    CHECK(!recording.heuristics[0].for_stream);
}

TEST_CASE("cublaslt session: algorithms that are not taken") {
    Recording recording;
    constexpr int splits = CUBLASLT_ALGO_CONFIG_SPLITK_NUM, scheme = CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                  id = CUBLASLT_ALGO_CONFIG_ID, stages = CUBLASLT_ALGO_CONFIG_STAGES_ID;
    const Candidate failed{1, {}, CUBLAS_STATUS_NOT_SUPPORTED}, large{2, {}, CUBLAS_STATUS_SUCCESS, (32u << 20) + 1};
    const Candidate in_output{3, {{splits, 4}, {scheme, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE}}};
    const Candidate in_place{4, {{splits, 4}, {scheme, CUBLASLT_REDUCTION_SCHEME_INPLACE}}};
    const Candidate in_fp32{5, {{splits, 4}, {scheme, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}}};
    const Candidate good{9, {}};
    CHECK(taken(recording, bf16_case(), 90, 131000, {failed, large, in_output, in_place, in_fp32, good}) == 5);
    CHECK(taken(recording, bf16_case(MXQ_FORMAT_F32), 90, 131000, {in_place, good}) == 4);
    CHECK(taken(recording, bf16_case(), 90, 131000, {failed, in_output}) == 0);
    CHECK(taken(recording, bf16_case(), 90, 131000, {}) == 0);

    // 512 codes in 3 parts.
    const Candidate uneven{6, {{id, 66}, {splits, 3}, {scheme, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}}};
    const Candidate even{7, {{id, 66}, {splits, 4}, {scheme, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}}};
    CHECK(taken(recording, bf16_case(), 90, 130100, {uneven, even}) == 7);
    CHECK(taken(recording, bf16_case(), 90, 131000, {uneven, even}) == 6);

    const Candidate deep{8, {{id, 66}, {stages, kDeepStages}}};
    const Case fp4{nvfp4(), nvfp4()};
    CHECK(taken(recording, fp4, 103, 130600, {deep, good}) == 9);
    CHECK(taken(recording, fp4, 100, 130600, {deep, good}) == 8);
    CHECK(taken(recording, fp4, 103, 131000, {deep, good}) == 8);
    CHECK(recording.live == 0);
}

TEST_CASE("cublaslt session: groups need a library that has their layout") {
    Recording recording;
    Session session(api(false), machine(90, 131000), nullptr);
    GroupCase c;
    c.a = c.b = bf16();
    MatmulDescription matmul{};
    REQUIRE(describe_grouped(by_rows(c), machine(90, 131000), {}, matmul).text() == "");
    CHECK(session.choose(matmul).declines.text() == "needs a cuBLASLt with grouped layouts, found 13.10 in /usr/lib/libcublasLt.so.13");
    CHECK(recording.heuristics.empty());
}

TEST_CASE("cublaslt session: many threads") {
    Recording recording;
    Session session(api(), machine(90, 131000), nullptr);
    std::vector<MatmulDescription> problems;
    for (int64_t m = 1; m <= 64; m++) {
        Case c = bf16_case();
        c.sizes.m = m;
        problems.push_back(described(c, 90));
    }
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&] {
            for (const MatmulDescription& p : problems) session.choose(p);
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(recording.heuristics.size() == 64);
}

// Descriptors need no GPU: the real library checks the size of every attribute.
TEST_CASE("cublaslt session: a library that is here takes every attribute") {
    const char* path = std::getenv("MXQ_CUBLASLT_PATH");
    const Library found = open_library(path && *path ? path : nullptr);
    if (!found.missing.empty()) MXQ_SKIP(found.missing);
    Recording recording;
    Api real = found.api;
    real.create = api().create, real.destroy = api().destroy, real.config_get = api().config_get;
    real.heuristic_for_stream = nullptr;
    real.heuristic = [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                        cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                        cublasLtMatmulHeuristicResult_t*, int* count) {
        *count = 1;
        return CUBLAS_STATUS_SUCCESS;
    };
    real.matmul = [](cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*, cublasLtMatrixLayout_t, const void*,
                     cublasLtMatrixLayout_t, const void*, const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                     const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t) {
        now->matmuls.emplace_back();
        return CUBLAS_STATUS_SUCCESS;
    };
    Session session(real, machine(100, found.version), nullptr);
    const auto run = [&](const MatmulDescription& matmul) {
        const Session::Choice choice = session.choose(matmul);
        CHECK(choice.declines.text() == "");
        CHECK_NOTHROW(session.multiply(matmul, choice.algorithm, nullptr, {}, nullptr, nullptr));
    };
    for (const Case& c : {Case{mxfp8(), mxfp8()}, Case{nvfp4(), nvfp4()}, bf16_case()}) run(described(c, 100));
    run(described({fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_128X128)}, 90));
    CHECK(recording.matmuls.size() == 4);
    if (!found.api.grouped_layout_create) return;
    GroupCase c;
    c.a = c.b = nvfp4(), c.per_group = true;
    MatmulDescription matmul{};
    REQUIRE(describe_grouped(by_rows(c), machine(100, 131000), {}, matmul).text() == "");
    run(matmul);
    CHECK(recording.matmuls.size() == 5);
}
