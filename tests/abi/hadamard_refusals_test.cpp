// A Hadamard transform that a part cannot have, or that another tensor of the call does not have, is refused by name.
#include "../formats.h"
#include "says.h"

using testing::ok;

namespace {

constexpr int32_t invalid = MXQ_STATUS_INVALID_ARGUMENT, unsupported = MXQ_STATUS_UNSUPPORTED,
                  shape = MXQ_STATUS_SHAPE_MISMATCH;

const testing::Dims dims{std::nullopt, 64, 96};

// A tensor that declares these parts, without memory, for queries.
testing::Tensor declared(int32_t format, int32_t parts, testing::Dims of = dims) {
    auto tensor = testing::make_tensor(format, of);
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (parts & part) ok(mxq_tensor_set_part(tensor, part, nullptr, 0, nullptr, 0));
    return tensor;
}

testing::Tensor transformed(int32_t format, int32_t part, int32_t mask = 0xD7E8) {
    auto tensor = declared(format, part);
    ok(mxq_tensor_set_hadamard(tensor, part, 1, mask));
    return tensor;
}

constexpr int32_t rowwise = MXQ_PART_ROWWISE, columnwise = MXQ_PART_COLUMNWISE;

}  // namespace

TEST_CASE("hadamard refusals: the setter", "[cpu]") {
    auto nvfp4 = declared(MXQ_FORMAT_NVFP4, rowwise);
    for (int32_t format : {MXQ_FORMAT_BF16, MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_MXFP6_E2M3, MXQ_FORMAT_FP8_E4M3})
        MXQ_REFUSED(mxq_tensor_set_hadamard(testing::make_tensor(format, dims), rowwise, 1, 0), invalid,
                    mxq_format_name(format), "expected nvfp4 or mxfp4");
    for (int32_t bad : {0, 3, -1})
        MXQ_REFUSED(mxq_tensor_set_hadamard(nvfp4, bad, 1, 0), invalid, "part is " + std::to_string(bad));
    for (int32_t bad : {2, -1}) MXQ_REFUSED(mxq_tensor_set_hadamard(nvfp4, rowwise, bad, 0), invalid, "transformed is");
    for (int32_t bad : {-1, 65536})
        MXQ_REFUSED(mxq_tensor_set_hadamard(nvfp4, rowwise, 1, bad), invalid, "mask is " + std::to_string(bad));
    MXQ_REFUSED(mxq_tensor_set_hadamard(nullptr, rowwise, 1, 0), invalid, "tensor is NULL");
    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    for (int32_t bad : {2, -1}) MXQ_REFUSED(mxq_quantize_options_set_undo_hadamard(options, bad), invalid, "undo is");
}

MXQ_EACH_DEVICE("hadamard refusals: shapes and scales of the part that a verb uses") {
    auto in = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 64, 90});
    auto ragged = declared(MXQ_FORMAT_NVFP4, rowwise | columnwise, {std::nullopt, 64, 90});
    const auto quantize = [&](mxq_tensor* from, mxq_tensor* to) {
        return mxq_quantize_query(device.context, nullptr, from, to, nullptr);
    };
    ok(mxq_tensor_set_hadamard(ragged, columnwise, 1, 0));
    CHECK(quantize(in, ragged) == MXQ_STATUS_OK);
    ok(mxq_tensor_set_hadamard(ragged, rowwise, 1, 0));
    MXQ_REFUSED(quantize(in, ragged), shape, "out.rowwise has a Hadamard transform", "contraction of 90", "multiple of 16");
    MXQ_REFUSED(mxq_dequantize_query(device.context, nullptr, ragged, in, nullptr), shape, "in.rowwise",
                "contraction of 90");
    ok(mxq_tensor_set_hadamard(ragged, rowwise, 0, 0));
    CHECK(quantize(in, ragged) == MXQ_STATUS_OK);
    ok(mxq_tensor_set_hadamard(ragged, rowwise, 1, 0));
    ok(mxq_tensor_clear_part(ragged, rowwise));
    ok(mxq_tensor_set_part(ragged, rowwise, nullptr, 0, nullptr, 0));
    CHECK(quantize(in, ragged) == MXQ_STATUS_OK);  // clearing a part takes its transform away

    auto plain = testing::make_tensor(MXQ_FORMAT_BF16, dims);
    for (auto [format, scaling] : {std::pair{MXQ_FORMAT_NVFP4, MXQ_SCALING_16X16}, {MXQ_FORMAT_MXFP4, MXQ_SCALING_32X32}}) {
        auto square = transformed(format, rowwise);
        CHECK(quantize(plain, square) == MXQ_STATUS_OK);
        MXQ_REFUSED(mxq_tensor_set_scaling(square, scaling), invalid, "tensor has a Hadamard transform",
                    scaling == MXQ_SCALING_16X16 ? "16x16" : "32x32", "mxq_tensor_set_scaling");
    }

    // 20 rows are padded to the alignment of the group, which is what the transform sees.
    const testing::Dims twenty{std::nullopt, 20, 96};
    auto rows = testing::make_tensor(MXQ_FORMAT_BF16, twenty);
    auto grouped = declared(MXQ_FORMAT_NVFP4, columnwise, twenty);
    ok(mxq_tensor_set_hadamard(grouped, columnwise, 1, 0));
    MXQ_REFUSED(quantize(rows, grouped), shape, "out.columnwise", "contraction of 20");
    ok(testing::set_ends(grouped, nullptr, MXQ_TYPE_INT32, 2));
    CHECK(quantize(rows, grouped) == MXQ_STATUS_OK);
}

MXQ_EACH_DEVICE("hadamard refusals: a transform of a part that out does not declare") {
    auto plain = testing::make_tensor(MXQ_FORMAT_BF16, dims), source = declared(MXQ_FORMAT_NVFP4, rowwise);
    for (int32_t part : {rowwise, columnwise}) {
        auto out = declared(MXQ_FORMAT_MXFP4, MXQ_PART_BOTH - part);
        const auto quantize = [&] { return mxq_quantize_query(device.context, nullptr, plain, out, nullptr); };
        const auto requantize = [&] { return mxq_requantize_query(device.context, nullptr, source, out, nullptr); };
        ok(mxq_tensor_set_hadamard(out, part, 1, 5));
        const std::string says = std::string("out.") + (part == rowwise ? "rowwise" : "columnwise") +
                                 " has a Hadamard transform and is not declared";
        MXQ_REFUSED(quantize(), invalid, says, "mxq_tensor_set_part", "mxq_tensor_set_hadamard");
        MXQ_REFUSED(requantize(), invalid, says);
        ok(mxq_tensor_set_hadamard(out, part, 0, 0));
        CHECK(quantize() == MXQ_STATUS_OK);
        CHECK(requantize() == MXQ_STATUS_OK);
        ok(mxq_tensor_set_hadamard(out, part, 1, 5));
        ok(mxq_tensor_set_part(out, part, nullptr, 0, nullptr, 0));
        CHECK(quantize() == MXQ_STATUS_OK);
    }
    auto none = testing::make_tensor(MXQ_FORMAT_MXFP4, dims);  // a query of sizes alone
    ok(mxq_tensor_set_hadamard(none, columnwise, 1, 5));
    CHECK(mxq_quantize_query(device.context, nullptr, plain, none, nullptr) == MXQ_STATUS_OK);
}

MXQ_EACH_DEVICE("hadamard refusals: operands of a product with different transforms") {
    auto d = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 64, 64});
    const auto product = [&](mxq_tensor* a, mxq_tensor* b) {
        return mxq_gemm_query(device.context, nullptr, a, b, d, nullptr);
    };
    int ran = 0;
    for (int32_t format : {MXQ_FORMAT_NVFP4, MXQ_FORMAT_MXFP4}) {
        auto a = transformed(format, rowwise), b = transformed(format, rowwise),
             other = transformed(format, rowwise, 0xD7E9), zero = transformed(format, rowwise, 0),
             none = declared(format, rowwise);
        CHECK(product(a, b) == MXQ_STATUS_OK);
        MXQ_REFUSED(product(a, other), invalid, "a.rowwise has a Hadamard transform with the mask 0xD7E8",
                    "b.rowwise a Hadamard transform with the mask 0xD7E9", "mxq_tensor_set_hadamard");
        MXQ_REFUSED(product(a, none), invalid, "a.rowwise has a Hadamard transform", "b.rowwise no Hadamard transform");
        MXQ_REFUSED(product(none, zero), invalid, "a.rowwise has no Hadamard transform", "b.rowwise a Hadamard transform");
        CHECK(product(none, none) == MXQ_STATUS_OK);
        auto bf16 = testing::make_tensor(MXQ_FORMAT_BF16, dims);
        MXQ_REFUSED(product(bf16, b), invalid, "a is bf16, and b has a Hadamard transform");
        ok(mxq_tensor_set_hadamard(other, rowwise, 0, 0));
        CHECK(product(none, other) == MXQ_STATUS_OK);
        ok(mxq_tensor_set_hadamard(none, columnwise, 1, 3));  // of a part that this product does not read
        CHECK(product(none, none) == MXQ_STATUS_OK);
        auto across =
            declared(format, columnwise, {std::nullopt, 96, 64});  // one direction on one side, the other on the other
        ok(mxq_tensor_set_hadamard(across, columnwise, 1, 0xD7E8));
        const auto forward = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_N);
        CHECK(mxq_gemm_query(device.context, forward, a, across, d, nullptr) == MXQ_STATUS_OK);
        ok(mxq_tensor_set_hadamard(across, columnwise, 1, 0xD7E9));
        MXQ_REFUSED(mxq_gemm_query(device.context, forward, a, across, d, nullptr), invalid, "b.columnwise");
        ++ran;
    }
    CHECK(ran == 2);
}

MXQ_EACH_DEVICE("hadamard refusals: copies between parts with different transforms") {
    auto in = transformed(MXQ_FORMAT_NVFP4, rowwise), out = declared(MXQ_FORMAT_NVFP4, rowwise);
    ok(mxq_tensor_set_swizzled(out, 1));
    MXQ_REFUSED(mxq_swizzle_scales_query(device.context, nullptr, in, out, nullptr), invalid, "in.rowwise has a Hadamard",
                "out.rowwise no Hadamard transform", "mxq_tensor_set_hadamard");
    MXQ_REFUSED(mxq_unswizzle_scales_query(device.context, nullptr, out, in, nullptr), invalid,
                "in.rowwise has no Hadamard");
    ok(mxq_tensor_set_hadamard(out, rowwise, 1, 0xD7E8));
    CHECK(mxq_swizzle_scales_query(device.context, nullptr, in, out, nullptr) == MXQ_STATUS_OK);

    ok(mxq_tensor_set_swizzled(out, 0));
    for (mxq_tensor* tensor : {static_cast<mxq_tensor*>(in), static_cast<mxq_tensor*>(out)})
        ok(testing::set_ends(tensor, nullptr, MXQ_TYPE_INT32, 2));
    CHECK(mxq_pad_groups_query(device.context, nullptr, in, out, nullptr) == MXQ_STATUS_OK);
    ok(mxq_tensor_set_hadamard(out, rowwise, 1, 1));
    MXQ_REFUSED(mxq_pad_groups_query(device.context, nullptr, in, out, nullptr), invalid, "0xD7E8", "0x0001");
    MXQ_REFUSED(mxq_unpad_groups_query(device.context, nullptr, in, out, nullptr), invalid, "0xD7E8", "0x0001");
}

MXQ_EACH_DEVICE("hadamard refusals: requantize from a transformed part to another one") {
    const auto requantize = [&](mxq_tensor* in, mxq_tensor* out) {
        return mxq_requantize_query(device.context, nullptr, in, out, nullptr);
    };
    auto in = transformed(MXQ_FORMAT_NVFP4, rowwise), same = transformed(MXQ_FORMAT_MXFP4, rowwise),
         other = transformed(MXQ_FORMAT_MXFP4, rowwise, 1), none = declared(MXQ_FORMAT_MXFP8_E4M3, rowwise),
         across = transformed(MXQ_FORMAT_MXFP4, columnwise), both = transformed(MXQ_FORMAT_MXFP4, rowwise);
    ok(mxq_tensor_set_part(both, columnwise, nullptr, 0, nullptr, 0));
    CHECK(requantize(in, same) == MXQ_STATUS_OK);
    for (mxq_tensor* out : {static_cast<mxq_tensor*>(other), static_cast<mxq_tensor*>(none),
                            static_cast<mxq_tensor*>(across), static_cast<mxq_tensor*>(both)})
        MXQ_REFUSED(requantize(in, out), unsupported, "in.rowwise has a Hadamard transform with the mask 0xD7E8",
                    "no other part", "dequantize in");
    auto plain = declared(MXQ_FORMAT_NVFP4, rowwise);
    CHECK(requantize(plain, both) == MXQ_STATUS_OK);

    auto columns = transformed(MXQ_FORMAT_NVFP4, columnwise), undeclared = testing::make_tensor(MXQ_FORMAT_MXFP4, dims);
    CHECK(requantize(columns, across) == MXQ_STATUS_OK);
    ok(mxq_tensor_set_hadamard(undeclared, columnwise, 1, 0xD7E8));
    CHECK(requantize(columns, undeclared) == MXQ_STATUS_OK);
    ok(testing::set_ends(columns, nullptr, MXQ_TYPE_INT32, 2));
    ok(testing::set_ends(across, nullptr, MXQ_TYPE_INT32, 2));
    MXQ_REFUSED(requantize(columns, across), unsupported, "in.columnwise has a Hadamard transform and groups",
                "dequantize in");
}

MXQ_EACH_DEVICE("hadamard refusals: keeping a transform") {
    testing::QuantizeOptions keep;
    ok(mxq_quantize_options_create(keep.out()));
    ok(mxq_quantize_options_set_undo_hadamard(keep, 0));
    auto plain = testing::make_tensor(MXQ_FORMAT_BF16, dims), q = transformed(MXQ_FORMAT_NVFP4, columnwise),
         mxfp8 = declared(MXQ_FORMAT_MXFP8_E4M3, rowwise);
    CHECK(mxq_dequantize_query(device.context, keep, q, plain, nullptr) == MXQ_STATUS_OK);
    CHECK(mxq_dequantize_query(device.context, keep, declared(MXQ_FORMAT_MXFP4, rowwise), plain, nullptr) == MXQ_STATUS_OK);
    MXQ_REFUSED(mxq_dequantize_query(device.context, keep, mxfp8, plain, nullptr), invalid, "keeps a Hadamard transform",
                "in is mxfp8_e4m3");
    ok(testing::set_ends(q, nullptr, MXQ_TYPE_INT32, 2));
    MXQ_REFUSED(mxq_dequantize_query(device.context, keep, q, plain, nullptr), invalid, "in.columnwise",
                "mxq_quantize_options_set_undo_hadamard");
    CHECK(mxq_dequantize_query(device.context, nullptr, q, plain, nullptr) == MXQ_STATUS_OK);

    for (auto query : {mxq_quantize_query, mxq_amax_query})
        MXQ_REFUSED(query(device.context, keep, plain, transformed(MXQ_FORMAT_NVFP4, rowwise), nullptr), invalid,
                    "keeps a Hadamard transform");
    MXQ_REFUSED(mxq_requantize_query(device.context, keep, mxfp8, mxfp8, nullptr), invalid, "keeps a Hadamard transform");
    for (auto query : {mxq_swizzle_scales_query, mxq_unswizzle_scales_query, mxq_pad_groups_query, mxq_unpad_groups_query})
        MXQ_REFUSED(query(device.context, keep, mxfp8, mxfp8, nullptr), invalid, "a Hadamard transform that is kept");
}
