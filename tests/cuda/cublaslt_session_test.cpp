// The search for the library, the algorithms that are taken and those that are remembered.
#include "../catch.h"
#include "cublaslt_recorder.h"
#include "core/error.h"
#include "cuda/cublaslt/arrays.h"

#include <cstdlib>
#include <thread>

using namespace mxq;
using namespace mxq::cuda::lt;
using namespace recorder;

namespace {

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
    CHECK(version_text(131000) == "13.10");
    CHECK(version_text(130201) == "13.2.1");
    Library patched;
    patched.version = 130201, patched.path = "/usr/lib/libcublasLt.so.13";
    CHECK(description(patched) == "cuBLASLt 13.2.1, /usr/lib/libcublasLt.so.13");
}

TEST_CASE("cublaslt session: the heuristic is asked once for a problem") {
    Recording recording;
    Session session(api(), machine(90, 131000), nullptr);
    Case c = bf16_case();
    MatmulDescription matmul = matmul_of(c, 90);
    for (int i = 0; i < 3; i++) CHECK(session.choose(matmul).declines.text() == "");
    session.multiply(matmul, *session.choose(matmul).algorithm, nullptr, {}, nullptr, nullptr);
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
        CHECK(session.choose(matmul_of(c, 90)).declines.text() == "");
    }
    CHECK(recording.heuristics.size() == 302);
    c.sizes.m = 45;  // 45 to 300 are there
    session.choose(matmul_of(c, 90));
    CHECK(recording.heuristics.size() == 302);
    c.sizes.m = 44;
    session.choose(matmul_of(c, 90));
    CHECK(recording.heuristics.size() == 303);
}

TEST_CASE("cublaslt session: a refusal is remembered, a failure is not") {
    Recording recording;
    Session session(api(false), machine(90, 130100), nullptr);
    const MatmulDescription matmul = matmul_of(bf16_case(), 90);
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
    constexpr int splits = CUBLASLT_ALGO_CONFIG_SPLITK_NUM, scheme = CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME;
    const Candidate failed{1, {}, CUBLAS_STATUS_NOT_SUPPORTED}, large{2, {}, CUBLAS_STATUS_SUCCESS, (32u << 20) + 1};
    const Candidate in_output{3, {{splits, 4}, {scheme, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE}}};
    const Candidate in_place{4, {{splits, 4}, {scheme, CUBLASLT_REDUCTION_SCHEME_INPLACE}}};
    const Candidate in_fp32{5, {{splits, 4}, {scheme, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}}};
    const Candidate good{9, {}};
    CHECK(taken(recording, matmul_of(bf16_case(), 90), 90, 131000, {failed, large, in_output, in_place, in_fp32, good}) == 5);
    CHECK(taken(recording, matmul_of(bf16_case(MXQ_FORMAT_F32), 90), 90, 131000, {in_place, good}) == 4);
    CHECK(taken(recording, matmul_of(bf16_case(), 90), 90, 131000, {failed, in_output}) == 0);
    CHECK(taken(recording, matmul_of(bf16_case(), 90), 90, 131000, {}) == 0);

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

// ---- Descriptors that are used again ------------------------------------------------------------------------------------

namespace {

// A product that the session has chosen an algorithm for.
struct Chosen {
    Session& session;
    MatmulDescription matmul;
    Session::Choice choice = session.choose(matmul);

    void multiply(const GroupSizes* sizes = nullptr) {
        session.multiply(matmul, *choice.algorithm, sizes, {}, nullptr, nullptr);
    }
};

MatmulDescription with_bias(MatmulDescription matmul) {
    matmul.has_bias = true;
    matmul.bias_type = CUDA_R_16BF;
    return matmul;
}

MatmulDescription described_groups() {
    GroupCase c;
    c.a = c.b = nvfp4();
    MatmulDescription matmul{};
    REQUIRE(describe_grouped(by_rows(c), machine(100, 130602), {}, matmul).text() == "");
    return matmul;
}

const Bytes& attribute(const Call& call, int number) { return call.operation.attributes.at(number); }

constexpr int a_scales = CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b_scales = CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
              bias_pointer = CUBLASLT_MATMUL_DESC_BIAS_POINTER;

}  // namespace

TEST_CASE("cublaslt session: a product that is made again sets its pointers and no more") {
    Recording recording;
    Session session(api(), machine(100, 131000), nullptr);
    const auto check = [&](const MatmulDescription& matmul, const std::vector<int>& pointers) {
        Chosen product{session, matmul};
        const int created = recording.created;
        for (uintptr_t offset : {0, 0, 0x1000}) {
            recording.sets.clear();
            product.matmul.a.scales = at(b_row_scales + offset);
            product.matmul.b.scales = at(a_row_scales + 2 * offset);
            product.matmul.bias = at(arrays + 3 * offset);
            product.multiply();
            CHECK(recording.created == created);
            CHECK(recording.sets == pointers);
            const Call& call = recording.matmuls.back();
            if (call.operation.attributes.count(a_scales)) {
                CHECK(attribute(call, a_scales) == bytes_of(at(b_row_scales + offset)));
                CHECK(attribute(call, b_scales) == bytes_of(at(a_row_scales + 2 * offset)));
            }
            if (matmul.has_bias) CHECK(attribute(call, bias_pointer) == bytes_of(at(arrays + 3 * offset)));
        }
    };
    const MatmulDescription plain = matmul_of(bf16_case(), 100), narrow = matmul_of({mxfp8(), mxfp8()}, 100);
    check(plain, {});
    check(with_bias(plain), {bias_pointer});
    check(narrow, {a_scales, b_scales});
    check(with_bias(narrow), {bias_pointer, a_scales, b_scales});
    CHECK(recording.heuristics.size() == 4);
    CHECK(recording.matmuls.size() == 12);
}

TEST_CASE("cublaslt session: products in turns keep their own descriptors") {
    Recording recording;
    Session session(api(), machine(100, 131000), nullptr);
    Case wide{mxfp8(), mxfp8()};
    wide.sizes.n = 1024;
    Chosen products[] = {{session, matmul_of({mxfp8(), mxfp8()}, 100)},
                         {session, matmul_of(wide, 100)},
                         {session, matmul_of({nvfp4(), nvfp4()}, 100)}};
    const int created = recording.created;
    for (int i = 0; i < 9; i++) {
        const size_t which = size_t(i) % 3;
        products[which].multiply();
        const Call &call = recording.matmuls.back(), &asked = recording.heuristics[which];
        CHECK(call.operation.attributes == asked.operation.attributes);
        CHECK((call.a == asked.a && call.b == asked.b && call.d == asked.d));
    }
    CHECK(recording.created == created);
}

TEST_CASE("cublaslt session: layouts of groups are made anew where their sizes move") {
    Recording recording;
    Session session(api(), machine(100, 131000), nullptr);
    Chosen product{session, described_groups()};
    int created = recording.created;
    const GroupSizes first = group_arrays(at(arrays), 4).sizes, second = group_arrays(at(workspace), 4).sizes;
    for (const GroupSizes* sizes : {&first, &first, &second, &second, &first}) {
        const bool moved = recording.matmuls.empty() || recording.matmuls.back().a.rows_array != sizes->k;
        product.multiply(sizes);
        const Call& call = recording.matmuls.back();
        CHECK((call.a == Layout{CUDA_R_4F_E2M1, 0, 0, 0, 4, sizes->k, sizes->m, sizes->a_ld}));
        CHECK((call.b == Layout{CUDA_R_4F_E2M1, 0, 0, 0, 4, sizes->k, sizes->n, sizes->b_ld}));
        CHECK((call.d == Layout{CUDA_R_16BF, 0, 0, 0, 4, sizes->m, sizes->n, sizes->d_ld}));
        CHECK(recording.created == (created += moved ? 3 : 0));
    }
    CHECK(recording.matmuls.size() == 5);
}

TEST_CASE("cublaslt session: an algorithm that is forgotten lives as long as a call has it") {
    Recording recording;
    {
        Session session(api(), machine(100, 131000), nullptr);
        Case other = bf16_case();
        other.sizes.n = 1024;
        CHECK(!session.known(matmul_of(other, 100)));
        Chosen product{session, matmul_of(other, 100)};
        CHECK(session.known(product.matmul));
        for (other = bf16_case(), other.sizes.m = 1; other.sizes.m <= 256; other.sizes.m++)
            session.choose(matmul_of(other, 100));
        CHECK(!session.known(product.matmul));
        const int created = recording.created;
        product.multiply();
        CHECK(recording.created == created);
        CHECK((recording.matmuls.back().a == Layout{CUDA_R_16BF, 512, 1024, 512}));
    }
    CHECK(recording.live == 0);
}

// A call that has the descriptors meets another one of the same product, as two threads do.
TEST_CASE("cublaslt session: two calls of one product at once have descriptors of their own") {
    Recording recording;
    {
        Session session(api(), machine(100, 131000), nullptr);
        Chosen outer{session, matmul_of({mxfp8(), mxfp8()}, 100)}, inner = outer;
        inner.matmul.a.scales = at(a_columns);
        recording.during_matmul = [&] { inner.multiply(); };
        outer.multiply();
        REQUIRE(recording.matmuls.size() == 2);
        CHECK(attribute(recording.matmuls[0], a_scales) == bytes_of(at(a_columns)));
        CHECK(attribute(recording.matmuls[1], a_scales) == bytes_of(at(b_row_scales)));
        const int created = recording.created;
        outer.multiply();
        inner.multiply();
        CHECK(recording.created == created);
    }
    CHECK(recording.live == 0);
}

TEST_CASE("cublaslt session: a call that fails leaves the next one right") {
    Recording recording;
    {
        Session session(api(), machine(100, 131000), nullptr);
        Chosen product{session, described_groups()};
        const GroupSizes sizes = group_arrays(at(arrays), 4).sizes;
        for (int layouts : {0, 1, 2}) {
            recording.layouts_until_failure = layouts;
            CHECK_THROWS_AS(product.multiply(&sizes), Error);
            CHECK(recording.layouts_until_failure == -1);
        }
        CHECK(recording.matmuls.empty());
        recording.matmul_status = CUBLAS_STATUS_INTERNAL_ERROR;
        CHECK_THROWS_AS(product.multiply(&sizes), Error);
        recording.matmul_status = CUBLAS_STATUS_SUCCESS;
        product.multiply(&sizes);
        REQUIRE(recording.matmuls.size() == 2);
        CHECK(recording.matmuls[1].operation.attributes == recording.heuristics[0].operation.attributes);
        CHECK((recording.matmuls[1].a == Layout{CUDA_R_4F_E2M1, 0, 0, 0, 4, sizes.k, sizes.m, sizes.a_ld}));
        const int created = recording.created;
        product.multiply(&sizes);
        CHECK(recording.created == created);
        CHECK(recording.heuristics.size() == 1);
    }
    CHECK(recording.live == 0);
}

TEST_CASE("cublaslt session: many threads") {
    Recording recording;
    Session session(api(), machine(90, 131000), nullptr);
    std::vector<MatmulDescription> problems;
    for (int64_t m = 1; m <= 64; m++) {
        Case c = bf16_case();
        c.sizes.m = m;
        problems.push_back(matmul_of(c, 90));
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
        for (int i = 0; i < 2; i++)  // the second time with the descriptors of the first
            CHECK_NOTHROW(session.multiply(matmul, *choice.algorithm, nullptr, {}, nullptr, nullptr));
    };
    for (const Case& c : {Case{mxfp8(), mxfp8()}, Case{nvfp4(), nvfp4()}, bf16_case()}) run(matmul_of(c, 100));
    run(matmul_of({fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_128X128)}, 90));
    CHECK(recording.matmuls.size() == 8);
    if (!found.api.grouped_layout_create) return;
    GroupCase c;
    c.a = c.b = nvfp4(), c.per_group = true;
    MatmulDescription matmul{};
    REQUIRE(describe_grouped(by_rows(c), machine(100, 130602), {}, matmul).text() == "");
    run(matmul);
    CHECK(recording.matmuls.size() == 10);
}
