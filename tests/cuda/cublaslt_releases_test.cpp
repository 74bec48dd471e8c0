// Checks which releases of cuBLASLt are asked for a product on which chip, and which of their algorithms are taken: every row of
// the tables in src/cuda/cublaslt/README.md, at both ends.
#include "../catch.h"
#include "cublaslt_recorder.h"
#include "core/error.h"
#include "cuda/cublaslt/arrays.h"

using namespace mxq;
using namespace mxq::cuda::lt;
using namespace recorder;

namespace {

std::string reason(const GemmProblem& p, int32_t capability, int32_t version) {
    MatmulDescription matmul{};
    const Machine where = machine(capability, version);
    return (p.grouping == Grouping::None ? describe(p, where, matmul) : describe_grouped(p, where, {}, matmul)).text();
}

Case of(const oracle::Spec& spec, bool swizzled = true) {
    Case c{spec, spec};
    c.swizzled = swizzled;
    return c;
}

GroupCase groups_of(const oracle::Spec& spec, bool swizzled = true) {
    GroupCase c;
    c.a = c.b = spec, c.swizzled = swizzled;
    return c;
}

const oracle::Spec tensor_scale = fp8(MXQ_SCALING_TENSOR);

// A product that a release declines for a fault, and that other releases and other chips take.
struct Row {
    const char* what;
    GemmProblem p;
    std::vector<int32_t> chips, other_chips;
    std::vector<int32_t> faulty, right;  // releases
    const char* needs;                   // the release in the reason
};

int check(const Row& row) {
    int checked = 0;
    for (const int32_t chip : row.chips) {
        for (const int32_t version : row.faulty) {
            INFO(row.what << " on " << chip << " with " << version);
            CHECK(reason(row.p, chip, version) ==
                  format_text("needs cuBLASLt %s for %s on compute capability %d.%d, found %s in /usr/lib/libcublasLt.so.13",
                              row.needs, row.what, chip / 10, chip % 10, version_text(version).c_str()));
            ++checked;
        }
        for (const int32_t version : row.right) {
            INFO(row.what << " on " << chip << " with " << version);
            CHECK(reason(row.p, chip, version) == "");
            ++checked;
        }
    }
    for (const int32_t chip : row.other_chips)
        for (const int32_t version : row.faulty) {
            INFO(row.what << " on " << chip << " with " << version);
            CHECK(reason(row.p, chip, version) == "");
            ++checked;
        }
    return checked;
}

GemmProblem biased(const Sizes& sizes) {
    Case c = of(bf16());
    c.sizes = sizes;
    GemmProblem p = dense(c);
    p.bias = {at(d_data), MXQ_FORMAT_BF16};
    return p;
}

GemmProblem accumulated(const Sizes& sizes) {
    Case c = of(bf16());
    c.sizes = sizes, c.d = MXQ_FORMAT_F32, c.accumulate = true;
    return dense(c);
}

GemmProblem with_scalar_at(int64_t offset) {
    GemmProblem p = dense(of(tensor_scale, false));
    p.b.scales += offset;
    return p;
}

GemmProblem with_scalar_of_groups_at(int64_t offset) {
    GemmProblem p = by_rows(groups_of(tensor_scale, false));
    p.a.scales += offset;
    return p;
}

GroupCase per_group() {
    GroupCase c = groups_of(tensor_scale, false);
    c.per_group = true;
    return c;
}

}  // namespace

TEST_CASE("cublaslt releases: from which release on a product is asked for") {
    int checked = 0;
    const auto since = [&](const char* what, const GemmProblem& p, int32_t chip, int32_t before, int32_t first) {
        const std::string needs = version_text(first);
        checked += check({what, p, {chip}, {}, {before}, {first}, needs.c_str()});
    };
    for (int32_t chip : {100, 110}) since("16-bit numbers", dense(of(bf16())), chip, 120803, 120804);
    for (int32_t chip : {100, 110}) since("fp8 TENSOR", dense(of(tensor_scale, false)), chip, 120803, 120804);
    for (int32_t chip : {100, 103, 110}) since("mxfp8", dense(of(mxfp8())), chip, 120803, 120804);
    for (int32_t chip : {100, 110, 120}) since("nvfp4", dense(of(nvfp4())), chip, 120803, 120804);
    since("fp8 ROW", dense(of(fp8(MXQ_SCALING_ROW), false)), 90, 120805, 120900);
    since("fp8 1X128", dense(of(fp8(MXQ_SCALING_1X128))), 90, 120805, 120900);
    for (int32_t chip : {100, 103, 110}) {
        since("groups of 16-bit numbers", by_rows(groups_of(bf16())), chip, 130101, 130200);
        since("groups of fp8 TENSOR", by_rows(groups_of(tensor_scale, false)), chip, 130101, 130200);
        since("groups of mxfp8", by_rows(groups_of(mxfp8())), chip, 130202, 130300);
        since("groups of nvfp4", by_rows(groups_of(nvfp4())), chip, 130300, 130400);
    }
    since("groups of 16-bit numbers", by_rows(groups_of(bf16())), 90, 130602, 130700);
    since("groups of fp8 1X128", by_rows(groups_of(fp8(MXQ_SCALING_1X128))), 90, 130900, 131000);
    CHECK(checked == 2 * (2 + 2 + 3 + 3 + 1 + 1 + 3 * 4 + 1 + 1));

    // Ada and Hopper have had 16-bit and FP8 products under one scale from the first on.
    for (const Case& c : {of(bf16()), of(tensor_scale, false)})
        for (int32_t chip : {89, 90}) CHECK(reason(dense(c), chip, 120000) == "");
}

TEST_CASE("cublaslt releases: faults for which a product is declined") {
    const GemmProblem nv = dense(of(nvfp4())), mx = dense(of(mxfp8())), plain = dense(of(bf16()));
    const GemmProblem scalar = dense(of(tensor_scale, false));
    int checked = 0;
    checked += check({"nvfp4", nv, {103, 107}, {100, 110, 120}, {120900, 130202}, {130300, 131000}, "13.3"});
    for (const GemmProblem& p : {scalar, mx})
        checked += check({"fp8 and mxfp8", p, {120, 121}, {100, 103, 110}, {120900, 130202}, {130300, 131000}, "13.3"});
    CHECK(reason(scalar, 89, 130202) == "");
    checked += check({"16-bit numbers", plain, {121}, {100, 120}, {120900, 130202}, {130300, 131000}, "13.3"});
    for (const GroupCase& c : {groups_of(bf16()), groups_of(mxfp8()), groups_of(nvfp4()), groups_of(tensor_scale, false)})
        checked += check({"groups", by_rows(c), {100, 103, 110}, {}, {130700, 130800, 131000}, {130602}, "before 13.7"});
    const char* const away = "the scales of tensors at no multiples of 16 bytes";
    for (const int64_t offset : {4, 8})
        checked += check(
            {away, with_scalar_at(offset), {90, 100}, {}, {120900, 130101, 130200}, {120805, 130201, 130300}, "13.2.1"});
    checked += check({away, with_scalar_of_groups_at(4), {100}, {}, {130200}, {130201}, "13.2.1"});
    checked += check({away, by_rows(per_group()), {100}, {}, {130200}, {130201}, "13.2.1"});  // 4 bytes apart
    CHECK(reason(with_scalar_at(0), 90, 130100) == "");
    CHECK(reason(with_scalar_of_groups_at(0), 100, 130200) == "");
    checked += check(
        {"a bias of one row or column", biased({1, 64, 256}), {80, 90}, {}, {120600, 120803}, {120804, 131000}, "12.8.4"});
    GemmProblem column = biased({64, 1, 256});
    column.d.format = column.bias.format = MXQ_FORMAT_F32;
    checked += check({"a bias of one row or column", column, {90}, {}, {120803}, {120804}, "12.8.4"});
    GemmProblem longest = dense({bf16(), bf16(), MXQ_FORMAT_BF16, false, true, false, false, {1, 384, 256}});
    longest.n = longest.b.lines = longest.d.row_stride = (1 << 23) + 8;
    checked += check({"more than 2^31 numbers with one row or column", longest, {80}, {}, {120803}, {120804}, "12.8.4"});
    checked += check({"more than 3145680 rows or columns and a beta",
                      accumulated({1, 3145688, 64}),
                      {120, 121},
                      {90, 100},
                      {130600},
                      {130501, 130601, 130700},
                      "13.6.1"});
    longest.n = longest.b.lines = 1 << 23;
    CHECK(reason(longest, 80, 120803) == "");
    CHECK(reason(accumulated({1, 3145680, 64}), 120, 130600) == "");
    CHECK(reason(accumulated({2, 3145688, 64}), 120, 130600) == "");
    CHECK(checked == (8 + 6) + 2 * (8 + 6) + (4 + 4) + 4 * 12 + 2 * 12 + 2 + 2 + 8 + 2 + 2 + (8 + 2));
}

// ---- Algorithms ------------------------------------------------------------------------------------------------------------

namespace {

constexpr int id = CUBLASLT_ALGO_CONFIG_ID, splits = CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
              stages = CUBLASLT_ALGO_CONFIG_STAGES_ID, scheme = CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME;
const Candidate good{9, {{id, 65}}};
constexpr int32_t before_patches[] = {120804, 120901, 130100, 130201}, patched[] = {120805, 120902, 130101, 130202, 130300};

Candidate split(uint64_t number, uint32_t parts) {
    return {number, {{id, 66}, {splits, parts}, {scheme, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}}};
}

// Returns how many releases there were.
int check_taken(const MatmulDescription& p, int32_t chip, const Candidate& candidate, const std::vector<int32_t>& faulty,
                const std::vector<int32_t>& right) {
    Recording recording;
    const auto takes = [&](int32_t version, uint64_t number) {
        INFO("on " << chip << " with " << version);
        CHECK(taken(recording, p, chip, version, {candidate, good}) == number);
    };
    for (const int32_t version : faulty) takes(version, 9);
    for (const int32_t version : right) takes(version, candidate.number);
    CHECK(recording.live == 0);
    return int(faulty.size() + right.size());
}

template <size_t count>
std::vector<int32_t> list(const int32_t (&versions)[count]) {
    return {versions, versions + count};
}

}  // namespace

// Whatever the formats: a kernel of somebody else's that uses Tensor Memory on another stream changes its sums.
TEST_CASE("cublaslt releases: algorithm 66 beside kernels that use Tensor Memory") {
    const Candidate tensor_memory{6, {{id, 66}}};
    int checked = 0;
    for (const int32_t chip : {100, 103, 110}) {
        for (const Case& c : {of(bf16()), of(mxfp8()), of(tensor_scale, false)})
            checked += check_taken(matmul_of(dense(c), chip), chip, tensor_memory, list(before_patches), list(patched));
        checked +=
            check_taken(matmul_of(dense(of(nvfp4())), chip), chip, tensor_memory, list(before_patches), list(patched));
    }
    CHECK(checked == 3 * 4 * 9);
    for (const int32_t chip : {90, 120})
        check_taken(matmul_of(dense(of(bf16())), chip), chip, tensor_memory, {}, list(before_patches));
    check_taken(matmul_of(dense(of(bf16())), 90), 90, tensor_memory, {}, {120603});
}

// 2^31 bytes from a line to the next, of every matrix.
TEST_CASE("cublaslt releases: algorithm 66 with strides beyond 32 bits") {
    const Candidate strided{6, {{id, 66}}};
    const auto with_strides = [](const oracle::Spec& spec, int64_t a, int64_t b, int64_t d) {
        MatmulDescription matmul = matmul_of(dense(of(spec)), spec.format == MXQ_FORMAT_BF16 ? 90 : 100);
        if (a) matmul.a.ld = a;
        if (b) matmul.b.ld = b;
        if (d) matmul.ldd = d;
        return matmul;
    };
    constexpr int64_t far = int64_t(1) << 30, near = far - 8;
    const std::vector<int32_t> faulty{120603, 120804, 120901, 130100, 130201};
    for (const auto& [a, b, d] : {std::array{far, int64_t(0), int64_t(0)}, std::array{int64_t(0), far, int64_t(0)},
                                  std::array{int64_t(0), int64_t(0), far}})
        CHECK(check_taken(with_strides(bf16(), a, b, d), 90, strided, faulty, list(patched)) == 10);
    check_taken(with_strides(bf16(), near, near, near), 90, strided, {}, faulty);
    check_taken(with_strides(bf16(), far, 0, 0), 90, strided, {}, {120600});
    check_taken(with_strides(bf16(), far, 0, 0), 89, strided, {}, faulty);
    check_taken(with_strides(nvfp4(), 4 * far, 0, 0), 100, {6, {{id, 65}}}, {}, {130201});
    check_taken(with_strides(nvfp4(), 4 * far, 0, 0), 90, strided, {130201}, {130300});  // half a byte each
    check_taken(with_strides(nvfp4(), 4 * far - 32, 0, 0), 90, strided, {}, {130201});
}

// 512 codes; of groups the host has averages alone.
TEST_CASE("cublaslt releases: algorithm 66 that sums unequal parts of the contraction") {
    const std::vector<int32_t> faulty{130300, 130602, 130700}, right{130800, 131000};
    const MatmulDescription plain = matmul_of(dense(of(bf16())), 90);
    check_taken(plain, 90, split(6, 3), faulty, right);
    check_taken(plain, 90, split(7, 4), {}, faulty);
    check_taken(plain, 90, split(7, 3), {}, {120600});
    check_taken(matmul_of(dense(of(bf16())), 120), 120, split(7, 3), {}, faulty);
    GroupCase c = groups_of(mxfp8());
    c.d = MXQ_FORMAT_F32;
    for (const GemmProblem& p : {by_rows(c), by_contraction(c)}) {
        const MatmulDescription groups = matmul_of(p, 100, 130602);
        CHECK(groups.k % 4 == 0);
        check_taken(groups, 100, split(6, 4), {130300, 130602}, {});
        check_taken(groups, 100, split(7, 1), {}, {130300, 130602});
    }
}

TEST_CASE("cublaslt releases: the deepest stages of algorithm 66 with NVFP4") {
    const Candidate deep{8, {{id, 66}, {stages, kDeepStages}}};
    const std::vector<int32_t> faulty{130501, 130601, 130700}, right{130400, 130602, 130800, 131000};
    const MatmulDescription nv = matmul_of(dense(of(nvfp4())), 103);
    for (const int32_t chip : {103, 107}) CHECK(check_taken(nv, chip, deep, faulty, right) == 7);
    for (const int32_t chip : {100, 110}) check_taken(nv, chip, deep, {}, faulty);
    check_taken(matmul_of(dense(of(mxfp8())), 103), 103, deep, {}, faulty);
    check_taken(nv, 103, {8, {{id, 66}, {stages, kDeepStages - 1}}}, {}, faulty);
    check_taken(nv, 103, {8, {{id, 65}, {stages, kDeepStages}}}, {}, faulty);
}
