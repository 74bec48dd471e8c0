// What cuBLASLt is not asked for, in the words that a user reads.
#include "../catch.h"
#include "core/error.h"
#include "cublaslt_recorder.h"

using namespace mxq;
using namespace mxq::cuda::lt;
using namespace recorder;

namespace {

constexpr int newest = 131000;

std::string reason(const GemmProblem& p, int capability, int version = newest) {
    MatmulDescription matmul{};
    return describe(p, machine(capability, version), matmul).text();
}

// By default asks the newest release that has no known fault with groups.
std::string group_reason(const GemmProblem& p, int capability, int version = 0) {
    MatmulDescription matmul{};
    if (version == 0) version = capability < 100 ? newest : 130602;
    return describe_grouped(p, machine(capability, version), {}, matmul).text();
}

Case of(const oracle::Spec& a, const oracle::Spec& b, bool swizzled = true) {
    Case c{a, b};
    c.swizzled = swizzled;
    return c;
}

GroupCase groups_of(const oracle::Spec& a, const oracle::Spec& b, bool swizzled = true) {
    GroupCase c;
    c.a = a, c.b = b, c.swizzled = swizzled;
    return c;
}

const oracle::Spec tensor_scale = fp8(MXQ_SCALING_TENSOR), row_scale = fp8(MXQ_SCALING_ROW), lines = fp8(MXQ_SCALING_1X128),
                   tiles = fp8(MXQ_SCALING_128X128);

}  // namespace

TEST_CASE("cublaslt declines: formats") {
    using testing::spec_of;
    const auto mxfp4 = spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32), mxfp6 = spec_of(MXQ_FORMAT_MXFP6_E3M2, MXQ_SCALING_1X32);
    CHECK(reason(dense(of(mxfp4, mxfp8())), 100) == "needs bf16, mxfp8, nvfp4 or fp8 operands, found mxfp4");
    CHECK(reason(dense(of(mxfp8(), mxfp6)), 100) == "needs bf16, mxfp8, nvfp4 or fp8 operands, found mxfp6_e3m2");
    CHECK(reason(dense(of(mxfp8_e5m2(), mxfp8_e5m2())), 100) == "needs e4m3 codes on one side at least, found e5m2 on both");
    CHECK(reason(dense(of(bf16(), mxfp8())), 100) ==
          "needs the same kind of scales on both sides, found 16-bit numbers and mxfp8");
    CHECK(reason(dense(of(tensor_scale, row_scale, false)), 90) ==
          "needs the same kind of scales on both sides, found fp8 TENSOR and fp8 ROW");
    CHECK(reason(dense(of(tiles, tiles)), 90) == "needs 1X128 scales on one side at least, found 128X128 on both");
    const auto mx_row = spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_ROW);
    CHECK(reason(dense(of(mx_row, mxfp8())), 100) == "");
    CHECK(reason(dense(of(mx_row, mxfp8(), false)), 100) == "needs swizzled scales, found compact ones on a");
    Case half = of(bf16(), bf16());
    half.d = MXQ_FORMAT_F16;
    CHECK(reason(dense(half), 90) == "needs d in f32 or in the type of the operands, found f16");
}

TEST_CASE("cublaslt declines: chips and versions") {
    const std::string in = " in /usr/lib/libcublasLt.so.13";
    CHECK(reason(dense(of(mxfp8(), mxfp8())), 90) == "needs compute capability 10.0 or later for mxfp8, found 9.0");
    CHECK(reason(dense(of(nvfp4(), nvfp4())), 89) == "needs compute capability 10.0 or later for nvfp4, found 8.9");
    CHECK(reason(dense(of(mxfp8(), mxfp8())), 100, 120600) == "needs cuBLASLt 12.8.4 for mxfp8 on compute capability 10.0, found 12.6" + in);
    CHECK(reason(dense(of(lines, tiles)), 100) == "needs compute capability 9.0 for fp8 1X128, found 10.0");
    CHECK(reason(dense(of(row_scale, row_scale, false)), 120) == "needs compute capability 9.0 for fp8 ROW, found 12.0");
    CHECK(reason(dense(of(lines, tiles)), 90, 120800) == "needs cuBLASLt 12.9 for fp8 1X128 on compute capability 9.0, found 12.8" + in);
    CHECK(reason(dense(of(tensor_scale, tensor_scale, false)), 80) ==
          "needs compute capability 8.9 or later for fp8 TENSOR, found 8.0");

    const auto mx = by_rows(groups_of(mxfp8(), mxfp8())), nv = by_rows(groups_of(nvfp4(), nvfp4())),
               plain = by_rows(groups_of(bf16(), bf16()));
    const std::string of_groups = " for groups of ", there = " on compute capability ";
    CHECK(group_reason(mx, 100, 130100) == "needs cuBLASLt 13.3" + of_groups + "mxfp8" + there + "10.0, found 13.1" + in);
    CHECK(group_reason(mx, 100, 130300) == "");
    CHECK(group_reason(nv, 100, 130300) == "needs cuBLASLt 13.4" + of_groups + "nvfp4" + there + "10.0, found 13.3" + in);
    CHECK(group_reason(nv, 110, 130400) == "");
    CHECK(group_reason(plain, 100, 130100) == "needs cuBLASLt 13.2" + of_groups + "16-bit numbers" + there + "10.0, found 13.1" + in);
    CHECK(group_reason(plain, 100, 130200) == "");
    CHECK(group_reason(plain, 90, 130100) == "needs cuBLASLt 13.7" + of_groups + "16-bit numbers" + there + "9.0, found 13.1" + in);
    CHECK(group_reason(plain, 90, 130601) == "needs cuBLASLt 13.7" + of_groups + "16-bit numbers" + there + "9.0, found 13.6.1" + in);  // may hang
    CHECK(group_reason(plain, 90, 130700) == "");
    CHECK(group_reason(plain, 80) == "needs compute capability 9.0, 10.x or 11.0 for groups, found 8.0");
    CHECK(group_reason(mx, 120) == "needs compute capability 9.0, 10.x or 11.0 for groups, found 12.0");
    CHECK(group_reason(by_rows(groups_of(row_scale, row_scale, false)), 90) ==
          "needs scales other than ROW for groups, found fp8 ROW");
}

TEST_CASE("cublaslt declines: layouts and alignments") {
    CHECK(reason(dense(of(mxfp8(), mxfp8(), false)), 100) == "needs swizzled scales, found compact ones on a");
    CHECK(reason(dense(of(nvfp4(), nvfp4(), false)), 100) == "needs swizzled scales, found compact ones on a");
    GemmProblem p = dense(of(mxfp8(), mxfp8()));
    p.b.layout.swizzled = 0;
    CHECK(reason(p, 100) == "needs swizzled scales, found compact ones on b");
    p = dense(of(mxfp8(), mxfp8()));
    p.a.codes += 8;
    CHECK(reason(p, 100) == "needs a at a multiple of 16 bytes, found 0x100000008");
    p = dense(of(mxfp8(), mxfp8()));
    p.b.scales += 4;
    CHECK(reason(p, 100) == "needs the scales of b at a multiple of 16 bytes, found 0x240000004");
    p = dense(of(tensor_scale, tensor_scale, false));
    p.b.scales += 4;
    CHECK(reason(p, 90) == "");  // one float
    p.d.data = at(d_data + 2);
    CHECK(reason(p, 90) == "needs d at a multiple of 16 bytes, found 0x300000002");
    p = dense(of(mxfp8(), mxfp8()));
    p.d.row_stride = 385;
    CHECK(reason(p, 100) == "needs the row stride of d a multiple of 16 bytes, found 770");

    Case c = of(mxfp8(), mxfp8());
    c.sizes.n = 388;
    CHECK(reason(dense(c), 100) == "needs rows of d a multiple of 16 bytes, found 776");
    c.sizes = {256, 384, 496};
    CHECK(reason(dense(c), 100) == "needs a multiple of 32 codes along the contraction, found 496");
    c.sizes.k = 0;
    CHECK(reason(dense(c), 100) == "needs 1 to 2^31 - 1 codes along the contraction, found 0");
    c = of(nvfp4(), nvfp4());
    c.sizes.k = 48;
    CHECK(reason(dense(c), 100) == "needs a multiple of 32 codes along the contraction, found 48");
    c = of(tensor_scale, tensor_scale, false);
    c.sizes.k = 504;
    CHECK(reason(dense(c), 90) == "needs a multiple of 16 codes along the contraction, found 504");
    c = of(lines, tiles);
    c.sizes.m = 254;
    CHECK(reason(dense(c), 90) == "needs a multiple of 4 rows of d for scales of 128, found 254");
}

TEST_CASE("cublaslt declines: a bias of 16 bits before 13.10, unless all rows are multiples of 16 bytes") {
    const std::string words = "needs cuBLASLt 13.10 for a bias where pointers, rows or strides of a, b or d are no multiples of "
                              "16 bytes on compute capability 9.0, found 13.1 in /usr/lib/libcublasLt.so.13";
    const auto biased = [](int64_t m, int64_t n, int64_t k) {
        Case c = of(bf16(), bf16());
        c.sizes = {m, n, k};
        GemmProblem p = dense(c);
        p.bias = {at(d_data), MXQ_FORMAT_BF16};
        return p;
    };
    CHECK(reason(biased(240, 64, 256), 90, 130100) == "");
    for (const auto& sizes : {Sizes{240, 60, 256}, Sizes{240, 64, 257}}) {
        GemmProblem p = biased(sizes.m, sizes.n, sizes.k);
        CHECK(reason(p, 90, 130100) == words);
        CHECK(reason(p, 90, 131000) == "");
        p.bias = {};
        CHECK(reason(p, 90, 130100) == "");
        p.bias = {at(d_data), MXQ_FORMAT_F32};
        p.d.format = MXQ_FORMAT_F32;
        CHECK(reason(p, 90, 130100) == "");
        p.alpha = 0;
        const char* const of_alpha = "needs an alpha other than 0 for a bias where a row is no multiple of 16 bytes, found 0";
        for (int version : {130100, 131000})
            CHECK(reason(p, 90, version) == (sizes.k % 8 ? of_alpha : ""));  // 60 numbers of F32 are a multiple of 16 bytes
    }
    GemmProblem p = biased(240, 64, 256);
    p.a.codes += 2;
    CHECK(reason(p, 90, 130100) == words);
    p = biased(240, 64, 256);
    p.b.line_bytes += 2;
    CHECK(reason(p, 90, 130100) == words);
    p = biased(240, 64, 256);
    p.d.row_stride = 65;
    CHECK(reason(p, 90, 130100) == words);
}

TEST_CASE("cublaslt declines: an alpha below the normal numbers") {
    GemmProblem p = dense(of(tensor_scale, tensor_scale, false));
    for (float alpha : {1.0f, 0.0f, -0x1p-126f}) {
        p.alpha = alpha;
        CHECK(reason(p, 90) == "");
    }
    p.alpha = 0x1p-127f;
    CHECK(reason(p, 90) == "needs an alpha of 0 or a normal number, found 5.87747e-39");
    p = dense(of(bf16(), bf16()));
    p.alpha = 0x1p-127f;
    CHECK(reason(p, 90) == "needs an alpha of 0 or a normal number, found 5.87747e-39");
}

TEST_CASE("cublaslt declines: a bias, and factors of D") {
    GemmProblem p = dense(of(tensor_scale, tensor_scale, false));
    p.bias = {at(d_data), MXQ_FORMAT_F32};
    CHECK(reason(p, 90) == "needs the bias in bf16, found it in f32");
    p.bias.format = MXQ_FORMAT_BF16;
    CHECK(reason(p, 90) == "");
    p.bias.values = at(d_data + 2);
    CHECK(reason(p, 90) == "needs the bias at a multiple of 16 bytes, found 0x300000002");
    p = dense(of(bf16(), bf16()));
    p.bias = {at(d_data), MXQ_FORMAT_F32};
    CHECK(reason(p, 90) == "needs the bias in bf16, found it in f32");  // D's type
    p.d.format = MXQ_FORMAT_F32;
    CHECK(reason(p, 90) == "");
    p = dense(of(bf16(), bf16()));
    p.beta = 1;
    CHECK(reason(p, 90) == "needs an f32 d where beta is set, found bf16");
    p.d.format = MXQ_FORMAT_F32;
    CHECK(reason(p, 90) == "");

    p = by_rows(groups_of(bf16(), bf16()));
    p.beta = -0.5f;
    CHECK(group_reason(p, 90) == "needs an f32 d where beta is set, found bf16");
    p.d.format = MXQ_FORMAT_F32;
    CHECK(group_reason(p, 90) == "");
    p.bias = {at(d_data), MXQ_FORMAT_BF16};
    CHECK(group_reason(p, 90) == "needs no bias, found one");
    p = by_contraction(groups_of(mxfp8(), mxfp8()));
    p.d.format = MXQ_FORMAT_F32;
    p.beta = 1;
    CHECK(group_reason(p, 100) == "");
    p.beta = -0.5f;
    CHECK(group_reason(p, 100) == "needs a beta of 0 or 1 for groups along the contraction, found -0.5");
    CHECK(check_groups(p).text() == "needs a beta of 0 or 1 for groups along the contraction, found -0.5");
}

TEST_CASE("cublaslt declines: groups of plain numbers along the contraction") {
    const auto plain = [](Sizes sizes = {}) {
        GroupCase c = groups_of(bf16(), bf16());
        c.d = MXQ_FORMAT_F32, c.sizes = sizes;
        return by_contraction(c);
    };
    GemmProblem p = plain();
    CHECK(group_reason(p, 90) == "needs the ends of the groups on the host, to know of 8 rows each or a multiple, found them on "
                                 "the device alone");
    const int32_t whole[] = {8, 8, 128, 512}, odd[] = {8, 8, 131, 512};
    p.host_ends = whole;
    CHECK(group_reason(p, 90) == "");
    CHECK(group_reason(p, 100) == "");
    p.host_ends = odd;
    CHECK(group_reason(p, 90) == "needs a multiple of 8 rows in each group, found 123 in group 2");
    CHECK(reason(product_of_group(p, {}, {}, 0, 123), 90) == "");  // one call a group takes any
    p.host_ends = whole;
    p.a.units.codes = 4;  // where the groups start is all that padding says
    CHECK(group_reason(p, 90) == "");
    CHECK(check_groups(p).text() == "");
    p = plain({260, 384, 512});
    p.host_ends = whole;
    CHECK(group_reason(p, 90) == "needs rows of a a multiple of 16 bytes, found 520");
    p.a.line_bytes = 528;
    CHECK(group_reason(p, 90) == "needs rows of a a multiple of 16 bytes, found 520");
}

// Groups without rows are declined like those that have some.
TEST_CASE("cublaslt declines: groups one by one, of operands that it does not multiply") {
    GroupCase c = groups_of(plain(MXQ_FORMAT_F32), mxfp8());
    CHECK(check_groups(by_rows(c)).text() == "needs bf16, mxfp8, nvfp4 or fp8 operands, found f32");
    c = groups_of(bf16(), mxfp8());
    CHECK(check_groups(by_rows(c)).text() == "needs the same kind of scales on both sides, found 16-bit numbers and mxfp8");
}

TEST_CASE("cublaslt declines: groups") {
    CHECK(group_reason(dense(of(mxfp8(), mxfp8())), 100) == "needs a grouped product, found one without groups");
    CHECK(reason(by_rows(groups_of(mxfp8(), mxfp8())), 100) == "needs a product without groups, found groups");
    CHECK(group_reason(by_rows(groups_of(mxfp8(), mxfp8(), false)), 100) == "needs swizzled scales, found compact ones on a");
    GroupCase c = groups_of(mxfp8(), mxfp8());
    c.groups = 0;
    CHECK(group_reason(by_rows(c), 100) == "needs a group, found none");
    c = groups_of(bf16(), bf16());
    c.sizes.k = 500;
    CHECK(group_reason(by_rows(c), 100) == "needs rows of a a multiple of 16 bytes, found 1000");
    GemmProblem short_lines = by_rows(c);
    short_lines.a.line_bytes = short_lines.b.line_bytes = 1024;
    CHECK(group_reason(short_lines, 100) == "needs a multiple of 8 codes along the contraction, found 500");
    GemmProblem far_rows = by_rows(groups_of(bf16(), bf16()));
    far_rows.d.row_stride = (int64_t(1) << 31) - 8;
    CHECK(group_reason(far_rows, 100) == "");
    far_rows.d.row_stride += 8;
    CHECK(group_reason(far_rows, 100) == "needs 1 to 2^31 - 1 numbers from row to row of d, found 2147483648");
    c = groups_of(nvfp4(), nvfp4());
    c.d = MXQ_FORMAT_F16;
    CHECK(group_reason(by_rows(c), 100) == "needs d in bf16 or f32 for groups of nvfp4, found f16");
    c = groups_of(mxfp8(), mxfp8());
    c.d = MXQ_FORMAT_F16;
    CHECK(group_reason(by_rows(c), 100) == "");
    c = groups_of(lines, tiles);
    CHECK(group_reason(by_rows(c), 90) == "");  // ragged
    CHECK(group_reason(by_rows(c), 90, 130900) == "needs cuBLASLt 13.10 for groups of fp8 1X128 on compute capability 9.0, found 13.9 in /usr/lib/libcublasLt.so.13");
    CHECK(reason(product_of_group(by_rows(c), {}, {}, 0, 28), 90) == "");
    CHECK(reason(product_of_group(by_rows(c), {}, {}, 0, 29), 90) ==
          "needs a multiple of 4 rows of d for scales of 128, found 29");  // one call a group
    c.a_alignment = 16, c.d_alignment = 2;
    CHECK(group_reason(by_rows(c), 90) == "");
    c.d = MXQ_FORMAT_F32, c.accumulate = true;
    CHECK(group_reason(by_rows(c), 90) == "");
    CHECK(group_reason(by_rows(groups_of(tiles, lines)), 90) == "needs 1X128 scales on the grouped side, found 128X128");

    c = groups_of(mxfp8(), mxfp8());
    c.a_columnwise = 32, c.b_columnwise = 64;
    CHECK(group_reason(by_contraction(c), 100) ==
          "needs the same columnwise group alignment on both sides, found 32 and 64");
    c = groups_of(nvfp4(), nvfp4());
    c.sizes.k = 516;  // 576 with padding: whole pieces of 16 bytes
    CHECK(group_reason(by_contraction(c), 100) == "needs a columnwise group alignment of 32 or more, found 16");
    CHECK(group_reason(by_contraction(groups_of(lines, tiles, false)), 90) ==
          "needs 1X128 scales for groups along the contraction, found 128X128");
    c = groups_of(lines, lines, false);
    c.sizes.m = 254;
    CHECK(group_reason(by_contraction(c), 90) == "needs a multiple of 4 rows of d for scales of 128, found 254");
}
