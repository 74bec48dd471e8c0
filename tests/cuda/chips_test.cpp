// Which implementation takes a product on chips that are not here: the whole list of the verb is asked as it would be there,
// with a stand-in for cuBLASLt that has an algorithm for everything. docs/blackwell.md has the same table in words.
#include <set>

#include "../catch.h"
#include "cublaslt_recorder.h"
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "dispatch/choice.h"

using namespace mxq;
using recorder::bf16, recorder::fp8, recorder::mxfp8, recorder::mxfp8_e5m2, recorder::nvfp4;

namespace {

constexpr int32_t newest = 131000, newest_groups = 130602;  // of groups on 10.x and 11.0

// A CUDA context as if on a chip with this cuBLASLt; 0: without one.
struct Chip {
    Chip(int32_t capability, int32_t version) {
        std::shared_ptr<cuda::lt::Session> session;
        if (version)
            session = std::make_shared<cuda::lt::Session>(recorder::api(), recorder::machine(capability, version), nullptr);
        context.device_type = MXQ_DEVICE_CUDA;
        context.cuda = std::make_shared<cuda::Device>(capability, std::move(session));
        context.cuda->multiprocessors = 132;
    }
    std::string taker(const GemmProblem& p) const {
        const auto& verb = p.grouping == Grouping::None ? verbs::gemm : verbs::grouped_gemm;
        const auto choice = ask(verb, context, p, Wanted{});
        return choice.implementation ? choice.implementation->name : "nobody";
    }

    recorder::Recording recording;
    Context context;
};

std::string taker(int32_t capability, int32_t version, const GemmProblem& p) { return Chip(capability, version).taker(p); }

oracle::Spec mx(int32_t format, int32_t scaling = MXQ_SCALING_1X32) { return testing::spec_of(format, scaling); }
const oracle::Spec mxfp4 = mx(MXQ_FORMAT_MXFP4), mxfp6 = mx(MXQ_FORMAT_MXFP6_E2M3),
                   fp8_e5m2 = mx(MXQ_FORMAT_FP8_E5M2, MXQ_SCALING_TENSOR);

recorder::GroupCase of(const oracle::Spec& a, const oracle::Spec& b, bool swizzled, recorder::Sizes sizes = {},
                       int32_t d = MXQ_FORMAT_BF16) {
    recorder::GroupCase c;
    c.a = a, c.b = b, c.d = d, c.swizzled = swizzled, c.sizes = sizes;
    return c;
}

// With the ends of the groups on the host, too.
GemmProblem with_host_ends(GemmProblem p) {
    static const int32_t ends[] = {4, 4, 8, 16};
    p.host_ends = ends;
    return p;
}

constexpr const char *library = "cublaslt", *swizzle = "cublaslt_swizzle", *groups = "cublaslt_grouped",
                     *swizzled_groups = "cublaslt_grouped_swizzle", *portable = "mma_bf16";

struct Row {
    recorder::GroupCase c;
    const char *ampere, *ada, *blackwell, *grouped;  // dense products on 8.0, on 8.9, from 10.0 on; groups on 10.x and 11.0
};

const Row rows[] = {
    {of(mxfp8(), mxfp8(), true), portable, portable, library, groups},
    {of(mxfp8_e5m2(), mxfp8(), true), portable, portable, library, groups},
    {of(mx(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X128), mx(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_128X128), true), portable,
     portable, library, groups},
    {of(mxfp8(), mxfp8(), true, {}, MXQ_FORMAT_F32), portable, portable, library, groups},
    {of(nvfp4(), nvfp4(), true), portable, portable, library, groups},
    {of(nvfp4(), mx(MXQ_FORMAT_NVFP4, MXQ_SCALING_16X16), true), portable, portable, library, groups},
    {of(nvfp4(), nvfp4(), true, {}, MXQ_FORMAT_F16), portable, portable, library, portable},
    {of(mxfp8(), mxfp8(), false), portable, portable, swizzle, swizzled_groups},
    {of(mxfp8(), mxfp8(), true, {256, 384, 496}), portable, portable, swizzle, swizzled_groups},
    {of(nvfp4(), nvfp4(), false), portable, portable, swizzle, swizzled_groups},
    {of(mxfp4, mxfp4, true), portable, portable, swizzle, swizzled_groups},
    {of(mxfp8(), mxfp4, true), portable, portable, swizzle, swizzled_groups},
    {of(mxfp6, mx(MXQ_FORMAT_MXFP6_E3M2), false), portable, portable, swizzle, swizzled_groups},
    {of(bf16(), bf16(), false), library, library, library, groups},
    {of(fp8(MXQ_SCALING_TENSOR), fp8(MXQ_SCALING_TENSOR), false), portable, library, library, groups},
    {of(fp8_e5m2, fp8(MXQ_SCALING_TENSOR), false), portable, library, library, groups},
    {of(fp8(MXQ_SCALING_ROW), fp8(MXQ_SCALING_ROW), false), portable, portable, portable, portable},
    {of(fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_128X128), true), portable, portable, portable, portable},
    {of(mxfp8_e5m2(), mxfp8_e5m2(), true), portable, portable, portable, portable},
    {of(fp8_e5m2, fp8_e5m2, false), portable, portable, portable, portable},
    {of(bf16(), mxfp4, true), portable, portable, portable, portable},
    {of(bf16(), mxfp8(), true, {512, 384, 512}), portable, portable, portable, portable},
    {of(mxfp8(), mxfp8(), true, {256, 388, 512}), portable, portable, portable, portable},
    {of(nvfp4(), nvfp4(), true, {256, 384, 48}), portable, portable, portable, portable},
};

std::string text(const Row& row) {
    const auto [m, n, k] = row.c.sizes;
    return std::to_string(row.c.a.format) + " x " + std::to_string(row.c.b.format) + " to " + std::to_string(row.c.d) +
           ", " + std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) +
           (row.c.swizzled ? ", swizzled" : ", compact");
}

}  // namespace

TEST_CASE("chips: who takes a product") {
    for (const Row& row : rows) {
        INFO(text(row));
        const GemmProblem p = recorder::dense(row.c);
        CHECK(taker(80, newest, p) == row.ampere);
        CHECK(taker(89, newest, p) == row.ada);
        for (int32_t capability : {100, 103, 110, 120, 121}) {
            INFO("capability " << capability);
            CHECK(taker(capability, newest, p) == row.blackwell);
            CHECK(taker(capability, 130300, p) == row.blackwell);
            CHECK(taker(capability, 0, p) == portable);
        }
    }
}

// A kernel that any chip has must not be asked before those of the chip.
TEST_CASE("chips: few rows of block-scaled operands stay with cuBLASLt on Blackwell") {
    const recorder::Sizes few{8, 384, 512};
    for (int32_t capability : {100, 103, 110, 120, 121}) {
        INFO("capability " << capability);
        CHECK(taker(capability, newest, recorder::dense(of(mxfp8(), mxfp8(), true, few))) == library);
        CHECK(taker(capability, newest, recorder::dense(of(nvfp4(), nvfp4(), true, few))) == library);
        CHECK(taker(capability, newest, recorder::dense(of(mxfp8(), mxfp4, false, few))) == swizzle);
        CHECK(taker(capability, newest, recorder::dense(of(bf16(), mxfp4, false, few))) == std::string("mma_bf16_rows"));
    }
}

TEST_CASE("chips: who takes groups of rows") {
    for (const Row& row : rows) {
        INFO(text(row));
        GemmProblem p = recorder::by_rows(row.c);
        p.groups.count = 2;  // of many rows
        const GemmProblem p_on_host = with_host_ends(p);
        for (int32_t capability : {100, 103, 110}) {
            INFO("capability " << capability);
            CHECK(taker(capability, newest_groups, p) == row.grouped);
            CHECK(taker(capability, newest_groups, p_on_host) == (row.grouped == portable ? row.blackwell : row.grouped));
            CHECK(taker(capability, newest, p) == portable);  // whose groups may be wrong there
            CHECK(taker(capability, newest, p_on_host) == row.blackwell);
        }
        for (int32_t capability : {120, 121}) {
            INFO("capability " << capability);
            CHECK(taker(capability, newest, p) == portable);
            CHECK(taker(capability, newest, p_on_host) == row.blackwell);
        }
    }
}

TEST_CASE("chips: who takes groups along the contraction") {
    const auto problem = [](const oracle::Spec& spec, bool swizzled, int32_t columnwise) {
        recorder::GroupCase c = of(spec, spec, swizzled, {}, MXQ_FORMAT_F32);
        c.a_columnwise = c.b_columnwise = columnwise;
        c.per_group = true;
        return recorder::by_contraction(c);
    };
    const std::pair<GemmProblem, const char*> all[] = {
        {problem(mxfp8(), true, 0), groups},
        {problem(mxfp8(), false, 0), swizzled_groups},
        {problem(mxfp4, true, 0), swizzled_groups},
        {problem(nvfp4(), true, 32), groups},
        {problem(nvfp4(), true, 16), portable},  // no whole 16 bytes of codes
        {problem(fp8(MXQ_SCALING_TENSOR), false, 16), groups},
        {problem(fp8(MXQ_SCALING_1X128), false, 0), portable},
    };
    for (const auto& [p, wanted] : all) {
        INFO("format " << p.a.format << ", swizzled " << int(p.a.layout.swizzled) << ", groups of " << p.a.units.codes);
        for (int32_t capability : {100, 103, 110}) CHECK(taker(capability, newest_groups, p) == wanted);
        for (int32_t capability : {120, 121}) CHECK(taker(capability, newest, p) == portable);
    }
}

// Returns what takes plain operands on Hopper where cuBLASLt does not.
const char* own_kernel() { return cuda::wgmma_plain_sm90.load ? "wgmma_plain_sm90" : portable; }

// cuBLASLt has transposes of its own for plain numbers. Its grouped product must be sure of whole 16 bytes in every group.
TEST_CASE("chips: who takes plain operands that are contracted over rows") {
    const std::string own = own_kernel();
    for (auto [a, b] : {std::pair{false, false}, {true, false}, {true, true}}) {
        recorder::Case c = of(bf16(), bf16(), false);
        c.transpose_a = a, c.transpose_b = b;
        for (int32_t capability : {80, 90, 100, 120}) CHECK(taker(capability, newest, recorder::dense(c)) == library);
        CHECK(taker(90, 0, recorder::dense(c)) == own);
        CHECK(taker(80, 0, recorder::dense(c)) == portable);
        c.a = c.b = recorder::plain(MXQ_FORMAT_F16);
        CHECK(taker(90, newest, recorder::dense(c)) == own);
        CHECK(taker(100, newest, recorder::dense(c)) == portable);
        c.a = recorder::plain(MXQ_FORMAT_F32);
        CHECK(taker(90, newest, recorder::dense(c)) == "nobody");
    }
    recorder::GroupCase c = of(bf16(), bf16(), false, {}, MXQ_FORMAT_F32);
    GemmProblem p = recorder::by_contraction(c);
    const int32_t whole[] = {8, 8, 128, 512}, odd[] = {8, 8, 131, 512};
    CHECK(taker(90, newest, p) == own);
    CHECK(taker(80, newest, p) == portable);
    p.host_ends = odd;
    CHECK(taker(90, newest, p) == (own == portable ? library : own));
    CHECK(taker(80, newest, p) == library);
    p.host_ends = whole;
    CHECK(taker(90, newest, p) == groups);
    CHECK(taker(100, newest_groups, p) == groups);
    CHECK(taker(80, newest, p) == library);
    c.transpose_b = false;
    GemmProblem by_rows = recorder::by_rows(c);
    CHECK(taker(90, newest, by_rows) == (own == portable ? groups : own));
    CHECK(taker(100, newest_groups, by_rows) == groups);
    by_rows.m = (1 << 15) + 1;
    CHECK(taker(90, newest, by_rows) == groups);
}

// Returns what takes weights without a columnwise part where cuBLASLt does not, on Hopper with kernels of our own or elsewhere.
std::string taker_across(const oracle::Spec& a, const oracle::Spec& weights, bool own) {
    if (find_format(weights.format)->is_mx()) return own ? "wgmma_plain_widen" : "mma_bf16_widen";
    if (weights.format == MXQ_FORMAT_NVFP4) return own ? "wgmma_plain_widen" : portable;
    if (own && a.format == weights.format) return "wgmma_fp8_transpose";
    if (!own) return "mma_bf16_transpose";
    return weights.scaling == MXQ_SCALING_TENSOR ? "wgmma_plain_widen" : "wgmma_blocks_sm90";
}

// In the gradient of a layer's input their blocks run across the contraction: MX weights become BF16 first where there are many
// rows.
TEST_CASE("chips: who takes weights that are quantized along their rows alone") {
    const auto problem = [](const oracle::Spec& a_spec, const oracle::Spec& weights) {
        testing::Tensor a = recorder::tensor(a_spec, {{}, 256, 384}, false, recorder::a_rows, recorder::a_amax),
                        b = recorder::tensor(weights, {{}, 384, 512}, false, recorder::b_rows, recorder::b_amax),
                        d = recorder::tensor(recorder::plain(MXQ_FORMAT_F32), {{}, 256, 512}, false, recorder::d_data, 0);
        testing::ok(mxq_tensor_clear_part(b, MXQ_PART_COLUMNWISE));
        const auto options = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_N);
        return validate_gemm(*testing::any_context(), options, a, b, d, Check::Execute);
    };
    for (const oracle::Spec& weights : {mxfp4, mxfp6, mxfp8(), nvfp4(), fp8(MXQ_SCALING_TENSOR), fp8(MXQ_SCALING_128X128)})
        for (const oracle::Spec& a : {bf16(), weights})
            for (int32_t capability : {80, 90, 100}) {
                INFO("a of format " << a.format << ", weights of format " << weights.format << ", capability " << capability);
                GemmProblem p = problem(a, weights);
                const bool is_mx = find_format(weights.format)->is_mx();
                const std::string own = taker_across(a, weights, capability == 90 && cuda::wgmma_plain_sm90.load);
                CHECK(taker(capability, 0, p) == own);
                CHECK(taker(capability, newest, p) == (is_mx ? "cublaslt_widen" : own));
                if (is_mx) {
                    p.alpha = -1.5f;  // which cuBLASLt might multiply values by
                    CHECK(taker(capability, newest, p) == own);
                    p.alpha = -1;
                    CHECK(taker(capability, newest, p) == "cublaslt_widen");
                }
                p.sm_count = 8;
                CHECK(taker(capability, newest, p) == "nobody");
            }
    for (int32_t scaling : {MXQ_SCALING_ROW, MXQ_SCALING_1X128}) CHECK(taker(90, newest, problem(bf16(), fp8(scaling))) == "nobody");
}

// BF16 that is read across its rows becomes no faster by a pass over the other side, but has a fast product then.
TEST_CASE("chips: who takes exact weight gradients of MX") {
    const bool has_own = cuda::wgmma_plain_sm90.load;
    const char* const own = has_own ? "wgmma_plain_widen" : portable;
    for (const oracle::Spec& other : {mxfp8(), mxfp4, bf16()})
        for (bool swapped : {false, true}) {
            INFO("beside format " << other.format << ", swapped " << swapped);
            const bool reads_across = other.format == MXQ_FORMAT_BF16;
            recorder::GroupCase c = of(swapped ? other : mxfp8(), swapped ? mxfp8() : other, false, {}, MXQ_FORMAT_F32);
            c.transpose_a = true, c.transpose_b = false;
            GemmProblem dense = recorder::dense(c), grouped = recorder::by_contraction(c);
            dense.exact_products = grouped.exact_products = true;
            for (int32_t capability : {80, 90, 100}) {
                INFO("capability " << capability);
                if (reads_across) CHECK(taker(capability, newest, dense) == "cublaslt_widen");
            }
            CHECK(taker(80, 0, dense) == portable);
            if (has_own) CHECK(taker(90, 0, dense) == (reads_across ? "wgmma_plain_widen" : "weights_sm90"));
            CHECK(taker(90, newest, grouped) == own);  // whose ends the host does not know
            CHECK(taker(80, newest, grouped) == portable);
            const int32_t whole[] = {8, 8, 128, 512};
            grouped.host_ends = whole;
            CHECK(taker(80, newest, grouped) == (reads_across ? "cublaslt_widen" : portable));
        }
    recorder::GroupCase c = of(nvfp4(), nvfp4(), false, {}, MXQ_FORMAT_F32);
    GemmProblem p = recorder::by_contraction(c);
    CHECK(taker(90, newest, p) == own);
    CHECK(taker(80, newest, p) == portable);
    p.a.transformed = p.b.transformed = true;  // whose groups end with sixteens of what the transform made of their rows
    CHECK(taker(90, newest, p) == portable);
}

TEST_CASE("chips: releases that a product is not asked of") {
    const GemmProblem mxfp8s = recorder::dense(of(mxfp8(), mxfp8(), true)),
                      nvfp4s = recorder::dense(of(nvfp4(), nvfp4(), true)),
                      plain = recorder::dense(of(bf16(), bf16(), false)),
                      packed = recorder::dense(of(mxfp8(), mxfp8(), false));
    CHECK(taker(100, 120800, mxfp8s) == portable);
    CHECK(taker(100, 120800, packed) == portable);
    CHECK(taker(100, 120804, mxfp8s) == library);
    CHECK(taker(100, 120804, packed) == swizzle);
    CHECK(taker(103, 130201, nvfp4s) == portable);
    CHECK(taker(103, 130201, mxfp8s) == library);
    CHECK(taker(120, 130201, mxfp8s) == portable);
    CHECK(taker(120, 130201, nvfp4s) == library);
    CHECK(taker(121, 130201, plain) == portable);
    CHECK(taker(120, 130201, plain) == library);
}

// Products of which one implementation was by a quarter faster than all others on an H200, 2026-11-29 (mxq_bench --suite
// dispatch). Groups are of rows.
TEST_CASE("chips: who takes products that were measured on Hopper") {
    if (!cuda::wgmma_fp8_sm90.load) MXQ_SKIP("a build without kernels for sm_90a");
    constexpr int32_t measured_with = 130100;
    const struct {
        oracle::Spec a, b;
        int32_t groups;
        recorder::Sizes sizes;
        const char* fastest;
    } measured[] = {
        {fp8(MXQ_SCALING_ROW), fp8(MXQ_SCALING_ROW), 0, {44, 2752, 4160}, "cublaslt"},
        {bf16(), bf16(), 0, {11, 2432, 640}, "cublaslt"},
        {mxfp8(), mxfp6, 0, {2232, 1536, 3200}, "cublaslt_rebase"},
        {mxfp8(), mxfp4, 0, {688, 12800, 7552}, "cublaslt_rebase"},
        {mxfp8(), mxfp4, 0, {4, 648, 2432}, "mma_bf16_rows"},
        {mxfp8(), mxfp8(), 0, {8, 576, 2048}, "mma_bf16_rows"},
        {bf16(), nvfp4(), 11, {3, 2440, 4864}, "mma_bf16_rows"},
        {bf16(), mxfp4, 8, {2, 1728, 512}, "mma_bf16_rows"},
        {bf16(), mxfp8(), 12, {60, 9600, 14208}, "weights_sm90"},
        {mxfp8(), mxfp6, 8, {5, 6144, 13312}, "weights_sm90"},
        {mxfp8(), mxfp8(), 45, {221, 4544, 640}, "weights_sm90"},
        {bf16(), mxfp6, 122, {39, 4416, 896}, "weights_sm90"},
        {mxfp8(), mxfp8(), 0, {87, 7040, 640}, "splitk_sm90"},
        {bf16(), mxfp6, 0, {32, 5824, 512}, "splitk_sm90"},
        {bf16(), fp8(MXQ_SCALING_ROW), 0, {23, 7232, 3072}, "splitk_sm90"},
        {bf16(), mxfp4, 0, {92, 3328, 2304}, "splitk_sm90"},
        {fp8(MXQ_SCALING_1X128), mxfp4, 63, {2015, 608, 512}, "weights_fp8_sm90"},
        {fp8(MXQ_SCALING_1X128), mxfp4, 0, {69, 7488, 11904}, "weights_fp8_sm90"},
        {bf16(), fp8(MXQ_SCALING_128X128), 0, {355, 2304, 1056}, "weights_sm90"},
        {bf16(), fp8(MXQ_SCALING_128X128), 11, {12, 7552, 896}, "weights_sm90"},
        {bf16(), mxfp4, 0, {196, 704, 5888}, "weights_sm90"},
        {nvfp4(), nvfp4(), 0, {353, 704, 1920}, "weights_sm90"},
        {bf16(), nvfp4(), 33, {11485, 9472, 2624}, "wgmma_bf16_sm90"},
        {nvfp4(), nvfp4(), 0, {2538, 896, 1920}, "wgmma_bf16_sm90"},
        {bf16(), mxfp4, 0, {6889, 2560, 3840}, "wgmma_bf16_sm90"},
        {bf16(), fp8(MXQ_SCALING_128X128), 0, {726, 2944, 640}, "wgmma_blocks_sm90"},
        {fp8(MXQ_SCALING_ROW), fp8(MXQ_SCALING_ROW), 49, {15383, 640, 1664}, "wgmma_fp8_sm90"},
        {mxfp8(), mxfp4, 66, {61297, 2592, 2432}, "wgmma_fp8_sm90"},
        {fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_128X128), 89, {1239, 768, 10752}, "wgmma_fp8_sm90"},
        {fp8(MXQ_SCALING_1X128), mxfp4, 0, {2404, 3200, 3584}, "wgmma_fp8_sm90"},
        {bf16(), bf16(), 43, {46073, 9472, 3584}, "wgmma_plain_sm90"},
        {bf16(), mxfp6, 0, {14661, 960, 1024}, "wgmma_plain_widen"},
        {bf16(), mxfp8(), 0, {2284, 8000, 896}, "wgmma_plain_widen"},
        {bf16(), fp8(MXQ_SCALING_ROW), 0, {8357, 704, 832}, "wgmma_plain_widen"},
        {mxfp8(), mxfp6, 0, {1679, 3456, 640}, "wgmma_plain_widen"},
    };
    int compared = 0;
    for (const auto& row : measured) {
        INFO("formats " << row.a.format << " and " << row.b.format << ", " << row.groups << " groups, " << row.sizes.m << " rows");
        const recorder::GroupCase c = of(row.a, row.b, false, row.sizes);
        GemmProblem p = row.groups ? recorder::by_rows(c) : recorder::dense(c);
        p.groups.count = row.groups;
        CHECK(taker(90, measured_with, p) == row.fastest);
        compared++;
    }
    CHECK(compared == 35);
}

TEST_CASE("chips: exact products are left to those that make them") {
    if (!cuda::wgmma_fp8_sm90.load) MXQ_SKIP("a build without kernels for sm_90a");
    const std::set<std::string> rounding = {"wgmma_fp8_sm90", "weights_fp8_sm90", "cublaslt_rebase"};
    int rounded = 0;
    for (const oracle::Spec& a : {mxfp8(), fp8(MXQ_SCALING_1X128)})
        for (const oracle::Spec& b : {mxfp4, mxfp6, mxfp8()})
            for (int64_t m : {1, 16, 64, 512, 4096}) {
                INFO("formats " << a.format << " and " << b.format << ", " << m << " rows");
                GemmProblem p = recorder::dense(of(a, b, false, {m, 4096, 4096}));
                rounded += rounding.count(taker(90, newest, p));
                p.exact_products = true;
                CHECK(rounding.count(taker(90, newest, p)) == 0);
            }
    CHECK(rounded >= 12);
}

TEST_CASE("chips: who takes FP8 with scales of 128 beside others on Ampere") {
    int compared = 0;
    for (const oracle::Spec& other : {bf16(), mxfp4, nvfp4()})
        for (int32_t scaling : {MXQ_SCALING_1X128, MXQ_SCALING_128X128}) {
            const bool is_weights = other.format == MXQ_FORMAT_BF16;
            const auto dense = [&](int64_t m) {
                const oracle::Spec blocks = fp8(scaling);
                return taker(80, newest, recorder::dense(of(is_weights ? other : blocks, is_weights ? blocks : other, false, {m, 384, 512})));
            };
            CHECK(dense(64) == "mma_bf16_rows");
            CHECK(dense(65) == portable);
            compared++;
        }
    CHECK(compared == 6);
}

TEST_CASE("chips: who takes few rows, on any chip") {
    const std::string fewest = "mma_bf16_rows";
    const auto dense = [](int32_t capability, const oracle::Spec& a, const oracle::Spec& b, recorder::Sizes sizes) {
        return taker(capability, 0, recorder::dense(of(a, b, false, sizes)));
    };
    for (int32_t capability : {80, 86, 89, 100, 120})
        for (const oracle::Spec& weights : {mxfp4, mxfp6, mxfp8(), nvfp4(), fp8(MXQ_SCALING_ROW), fp8(MXQ_SCALING_TENSOR)}) {
            INFO("capability " << capability << ", weights of format " << weights.format << " and scaling " << weights.scaling);
            CHECK(dense(capability, bf16(), weights, {1, 384, 512}) == fewest);
            CHECK(dense(capability, bf16(), weights, {64, 16512, 512}) == fewest);
            CHECK(dense(capability, bf16(), weights, {65, 384, 512}) == portable);
            CHECK(dense(capability, recorder::plain(MXQ_FORMAT_F16), weights, {32, 384, 512}) == fewest);
            CHECK(dense(capability, recorder::plain(MXQ_FORMAT_F16), weights, {33, 384, 512}) == portable);
        }
    CHECK(dense(80, mxfp8(), mxfp4, {8, 384, 512}) == fewest);
    CHECK(dense(80, nvfp4(), nvfp4(), {8, 384, 512}) == fewest);
    CHECK(dense(80, nvfp4(), nvfp4(), {8, 384, 48}) == portable);  // not whole 32 codes
    CHECK(dense(80, bf16(), fp8(MXQ_SCALING_128X128), {8, 384, 512}) == fewest);
    CHECK(dense(80, bf16(), bf16(), {8, 384, 512}) == portable);
    GemmProblem p = recorder::by_rows(of(bf16(), mxfp4, false, {256, 384, 512}));
    p.groups.count = 4;
    CHECK(taker(80, 0, p) == fewest);
    p.groups.count = 3;
    CHECK(taker(80, 0, p) == portable);
    p.groups.count = 4, p.sm_count = 8;
    CHECK(taker(80, 0, p) == "nobody");
    p.sm_count = 0, p.a.line_bytes += 2;
    CHECK(taker(80, 0, p) == portable);
}

// An F16 number is two of BF16 to tensor cores, so that a row counts twice.
TEST_CASE("chips: who takes F16 with quantized weights") {
    if (!cuda::wgmma_bf16_sm90.load) MXQ_SKIP("a build without kernels for sm_90a");
    const oracle::Spec f16 = recorder::plain(MXQ_FORMAT_F16);
    const auto dense = [&](int32_t capability, const oracle::Spec& a, const oracle::Spec& weights, int64_t m) {
        return taker(capability, newest, recorder::dense(of(a, weights, false, {m, 4096, 4096})));
    };
    for (const oracle::Spec& weights : {mxfp4, mxfp6, mxfp8(), nvfp4(), fp8(MXQ_SCALING_ROW)}) {
        INFO("weights of format " << weights.format);
        for (int64_t m : {4, 32, 512}) CHECK(dense(90, f16, weights, m) != portable);
        CHECK(dense(80, f16, weights, 65) == portable);
        CHECK(dense(100, f16, weights, 65) == portable);
    }
    CHECK(dense(90, f16, fp8(MXQ_SCALING_128X128), 65) == "weights_sm90");
    CHECK(taker(90, newest, recorder::dense(of(mxfp4, f16, false))) == "nobody");
    CHECK(taker(90, newest, recorder::dense(of(f16, bf16(), false))) == "nobody");
}

// Formats choose the order of sums, and with it the implementation, for any number of rows.
TEST_CASE("chips: who takes rows that must be invariant on Hopper") {
    if (!cuda::weights_sm90.load) MXQ_SKIP("a build without kernels for sm_90a");
    constexpr const char* of_weights = "weights_sm90";
    const auto dense = [&](int32_t capability, const oracle::Spec& a, const oracle::Spec& b, int64_t m) {
        GemmProblem p = recorder::dense(of(a, b, false, {m, 384, 512}));
        p.row_invariant = true;
        return taker(capability, newest, p);
    };
    for (const oracle::Spec& weights : {mxfp4, mxfp6, nvfp4(), mxfp8(), fp8(MXQ_SCALING_ROW)}) {
        INFO("weights of format " << weights.format);
        for (int64_t m : {1, 64, 257, 5000}) {
            CHECK(dense(90, bf16(), weights, m) == of_weights);
            CHECK(dense(80, bf16(), weights, m) == portable);
        }
        GemmProblem p = recorder::by_rows(of(bf16(), weights, false, {4 * 32, 384, 512}));
        p.row_invariant = true;
        for (int32_t groups : {1, 4, 128}) {
            p.groups.count = groups;
            CHECK(taker(90, newest, p) == of_weights);
        }
    }
    for (const recorder::Sizes& empty : {recorder::Sizes{0, 384, 512}, {64, 0, 512}, {64, 384, 0}}) {
        GemmProblem p = recorder::dense(of(bf16(), mxfp4, false, empty));
        p.row_invariant = true;
        CHECK(taker(90, newest, p) != of_weights);
    }
    for (int64_t m : {1, 64, 5000}) {
        CHECK(dense(90, mxfp8(), mxfp8(), m) == of_weights);
        CHECK(dense(90, bf16(), fp8(MXQ_SCALING_128X128), m) == of_weights);
        CHECK(dense(90, fp8(MXQ_SCALING_1X128), fp8(MXQ_SCALING_128X128), m) == "wgmma_fp8_sm90");
        CHECK(dense(90, fp8(MXQ_SCALING_1X128), mxfp4, m) == "nobody");
    }
}

TEST_CASE("chips: who takes one scale a line on Hopper") {
    if (!cuda::wgmma_fp8_sm90.load) MXQ_SKIP("a build without kernels for sm_90a");
    const oracle::Spec lines = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_ROW);
    const recorder::Sizes many_tiles{4096, 4096, 8192};
    CHECK(taker(90, newest, recorder::dense(of(mxfp8(), lines, false, many_tiles))) == "wgmma_fp8_sm90");
    CHECK(taker(90, newest, recorder::dense(of(lines, lines, false, many_tiles))) == "wgmma_fp8_sm90");
    CHECK(taker(90, 0, recorder::dense(of(lines, lines, false, many_tiles))) == "wgmma_fp8_sm90");
    CHECK(taker(90, newest, recorder::dense(of(lines, lines, false, many_tiles, MXQ_FORMAT_F32))) == "wgmma_fp8_sm90");
}

TEST_CASE("chips: codes with one scale a line stay on Hopper, wherever the scales lie") {
    if (!cuda::wgmma_fp8_sm90.load) MXQ_SKIP("a build without kernels for sm_90a");
    const oracle::Spec lines = testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_ROW), coarse = mx(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X128);
    const auto workspace = [](const GemmProblem& p) {
        const Chip chip(90, newest);
        const auto choice = ask(p.grouping == Grouping::None ? verbs::gemm : verbs::grouped_gemm, chip.context, p,
                                Wanted{"wgmma_fp8_sm90", "this test"});
        REQUIRE(choice.implementation);
        return choice.prepared.workspace_bytes;
    };
    const recorder::Sizes sizes{4096, 4096, 512};
    constexpr uint64_t a_codes = 4096 * 512, b_codes = 4096 * 512;
    for (const bool swizzled : {false, true}) {
        INFO("swizzled " << swizzled);
        CHECK(workspace(recorder::dense(of(lines, lines, swizzled, sizes, MXQ_FORMAT_F32))) == 0);
        CHECK(workspace(recorder::by_rows(of(lines, lines, swizzled, {16384, 4096, 512}))) == 0);
        const uint64_t moved = workspace(recorder::dense(of(mxfp8(), lines, swizzled, sizes)));
        CHECK(moved > a_codes);
        CHECK(moved < a_codes + b_codes);
        const uint64_t words = workspace(recorder::dense(of(coarse, lines, swizzled, sizes)));
        CHECK(words > 0);
        CHECK(words < a_codes);
    }
    // Groups along the contraction begin in 128 x 4 tiles where their lengths say: a pass copies them.
    CHECK(workspace(recorder::by_contraction(of(lines, lines, false, {1024, 1024, 4096}))) == 0);
    CHECK(workspace(recorder::by_contraction(of(lines, lines, true, {1024, 1024, 4096}))) > 0);
}

TEST_CASE("chips: who asks for exact products, or for few multiprocessors") {
    GemmProblem p = recorder::dense(of(mxfp8(), mxfp8(), false));
    p.exact_products = true;
    CHECK(taker(100, newest, p) == swizzle);  // nothing is rounded on the way
    p.sm_count = 8;
    CHECK(taker(100, newest, p) == "nobody");
}
