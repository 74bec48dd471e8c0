// Compares the oracle, which every other test relies on, with the golden vectors.
#include "../catch.h"
#include "../oracle_groups.h"
#include "golden.h"

using namespace golden;

namespace {

oracle::Floats values(const safetensors::Tensor& x) {
    return oracle::load(plain_format(x), x.data, static_cast<size_t>(x.count()));
}

oracle::Bytes as_bytes(const oracle::Floats& x) { return oracle::store(MXQ_FORMAT_F32, x); }

}  // namespace

TEST_CASE("golden: the oracle gives every byte of mx_rowwise") {
    const auto& vectors = file("mx_rowwise");
    int compared = 0;
    for (Name format : mx_formats)
        for (Name rounding : roundings)
            for (const auto& [name, x] : vectors.tensors()) {
                if (name.rfind("x/", 0) != 0) continue;
                std::string prefix = std::string(format.text) + "/" + rounding.text + "/" + name.substr(2);
                if (!vectors.contains(prefix + ".codes")) continue;
                INFO(prefix);
                oracle::Part part = oracle::quantize({format.value, MXQ_SCALING_1X32, rounding.value}, values(x), shape(x),
                                                     MXQ_PART_ROWWISE, false);
                CHECK(part.codes == bytes(vectors.at(prefix + ".codes")));
                CHECK(part.scales == bytes(vectors.at(prefix + ".scales")));
                compared += 2;
            }
    CHECK(compared == 2 * 5 * 4 * 11);
}

TEST_CASE("golden: the oracle gives every byte of layout") {
    const auto& vectors = file("layout");
    int compared = 0;
    auto compare = [&](const std::string& prefix, const oracle::Spec& spec, int32_t part, const safetensors::Tensor& x) {
        INFO(prefix);
        oracle::Part compact = oracle::quantize(spec, values(x), shape(x), part, false);
        CHECK(compact.codes == bytes(vectors.at(prefix + ".codes")));
        CHECK(compact.scales == bytes(vectors.at(prefix + ".scales")));
        CHECK(oracle::quantize(spec, values(x), shape(x), part, true).scales == bytes(vectors.at(prefix + ".swizzled")));
        compared += 3;
    };
    for (Name format : formats)
        for (Name rounding : {roundings[0], roundings[3]}) {
            std::string head = std::string(format.text) + "/" + rounding.text + "/";
            for (Name part : parts) {
                for (const char* input : {"mat", "experts"})
                    compare(head + part.text + "/" + input, {format.value, MXQ_SCALING_1X32, rounding.value}, part.value,
                            vectors.at(std::string("x/") + input));
                if (format.value == MXQ_FORMAT_MXFP8_E4M3)
                    compare(head + "tile32/experts." + part.text, {format.value, MXQ_SCALING_32X32, rounding.value},
                            part.value, vectors.at("x/experts"));
            }
        }
    for (const auto& [name, scales] : vectors.tensors()) {
        if (name.rfind("swizzle/", 0) != 0 || name.find(".scales") == std::string::npos) continue;
        INFO(name);
        auto swizzled = oracle::swizzle_positions(scales.data, scales.shape[0], scales.shape[1]);
        CHECK(swizzled == bytes(vectors.at(name.substr(0, name.size() - 6) + "swizzled")));
        ++compared;
    }
    CHECK(compared == 60 + 7);
}

TEST_CASE("golden: the oracle places groups as the vectors do") {
    const auto& vectors = file("groups");
    auto ends32 = vectors.at("ends").values<int32_t>();
    oracle::Ends ends(ends32.begin(), ends32.end());
    int compared = 0;
    for (int64_t alignment : {16, 32, 128}) {
        std::string name = "pad" + std::to_string(alignment);
        auto starts = oracle::padded_starts(ends, alignment);
        auto first = vectors.at(name + ".starts").values<int32_t>(), last = vectors.at(name + ".ends").values<int32_t>();
        CHECK(std::vector<int64_t>(starts.begin(), starts.end() - 1) == std::vector<int64_t>(first.begin(), first.end()));
        CHECK(std::vector<int64_t>(starts.begin() + 1, starts.end()) == std::vector<int64_t>(last.begin(), last.end()));
        const auto& x = vectors.at("x");
        auto rows = oracle::pad_groups(values(x), x.shape[1], ends, alignment, starts.back());
        CHECK(rows == values(vectors.at(name + ".rows")));
        compared += 3;
    }
    for (const char* name : {"rows/4", "rows/8"}) {
        const auto& scales = vectors.at(std::string(name) + ".scales");
        auto swizzled = oracle::swizzle_row_groups(bytes(scales), scales.shape[1], ends);
        auto expected = bytes(vectors.at(std::string(name) + ".swizzled"));
        expected.resize(swizzled.size());  // the vector may come from a larger buffer
        CHECK(swizzled == expected);
        auto starts = oracle::padded_starts(ends, 128);  // counted in rows
        auto first = vectors.at(std::string(name) + ".starts").values<int32_t>();
        CHECK(starts == std::vector<int64_t>(first.begin(), first.end()));
        compared += 2;
    }
    for (const char* name : {"contraction/64", "contraction/200"}) {
        const auto& scales = vectors.at(std::string(name) + ".scales");
        auto block_ends = vectors.at(std::string(name) + ".block_ends").values<int32_t>();
        auto swizzled = oracle::swizzle_contraction_groups(scales.data, scales.shape[0], scales.shape[1],
                                                           {block_ends.begin(), block_ends.end()});
        auto expected = bytes(vectors.at(std::string(name) + ".swizzled"));
        REQUIRE(expected.size() >= swizzled.size());
        expected.resize(swizzled.size());
        CHECK(swizzled == expected);
        ++compared;
    }
    CHECK(compared == 15);
}

TEST_CASE("golden: the oracle gives every byte of nvfp4") {
    const auto& vectors = file("nvfp4");
    int compared = 0;
    for (const auto& [name, x] : vectors.tensors()) {
        if (name.rfind("x/", 0) != 0 || name.find(".amax") != std::string::npos) continue;
        oracle::Spec spec;
        spec.format = MXQ_FORMAT_NVFP4, spec.scaling = MXQ_SCALING_1X16;
        CHECK(oracle::amax(spec, values(x), shape(x), MXQ_PART_ROWWISE) == values(vectors.at(name + ".amax")));
        ++compared;
        for (Name scaling : nvfp4_scalings)
            for (FourOverSix way : four_over_six) {
                std::string prefix = std::string(scaling.text) + "/" + way.text + "/" + name.substr(2);
                INFO(prefix);
                spec.scaling = scaling.value, spec.four_over_six = way.value, spec.nvfp4_t = way.t;
                oracle::Part part = oracle::quantize(spec, values(x), shape(x), MXQ_PART_ROWWISE, false);
                CHECK(part.codes == bytes(vectors.at(prefix + ".codes")));
                CHECK(part.scales == bytes(vectors.at(prefix + ".scales")));
                compared += 2;
            }
    }
    CHECK(compared == 6 * (1 + 2 * 2 * 5));
}

TEST_CASE("golden: the oracle gives every byte of fp8") {
    const auto& vectors = file("fp8");
    const auto& x = vectors.at("x");
    int compared = 0;
    for (Name format : fp8_formats)
        for (Name scaling : fp8_scalings)
            for (bool power_of_two : {false, true}) {
                std::string prefix = std::string(format.text) + "/" + scaling.text + (power_of_two ? "/pow2" : "/exact");
                INFO(prefix);
                oracle::Spec spec;
                spec.format = format.value, spec.scaling = scaling.value, spec.power_of_two = power_of_two;
                oracle::Part part = oracle::quantize(spec, values(x), shape(x), MXQ_PART_ROWWISE, false);
                CHECK(part.codes == bytes(vectors.at(prefix + ".codes")));
                CHECK(part.scales == bytes(vectors.at(prefix + ".scale_inv")));
                CHECK(as_bytes(part.amax) == bytes(vectors.at(prefix + ".amax")));
                compared += 3;
            }
    CHECK(compared == 3 * 2 * 4 * 2);
}

TEST_CASE("golden: the oracle gives every random byte and every stochastic code of contract") {
    const auto& vectors = file("contract");
    const auto& x = vectors.at("x");
    auto seed_offset = vectors.at("seed_offset").values<uint64_t>();
    int compared = 0;
    CHECK(oracle::philox({0, 0, 0, 0}, {0, 0}) == oracle::Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});

    oracle::Spec spec;
    spec.format = MXQ_FORMAT_NVFP4, spec.scaling = MXQ_SCALING_1X16;
    spec.stochastic = true, spec.seed = seed_offset[0], spec.offset = seed_offset[1];
    CHECK(oracle::random_bytes(spec, x.shape[0], x.shape[1], {}) == bytes(vectors.at("philox")));
    CHECK(oracle::amax(spec, values(x), shape(x), MXQ_PART_ROWWISE) == values(vectors.at("amax")));
    compared += 2;

    auto compare = [&](const std::string& prefix, int32_t part) {
        INFO(prefix);
        oracle::Part got = oracle::quantize(spec, values(x), shape(x), part, false);
        CHECK(got.codes == bytes(vectors.at(prefix + ".codes")));
        CHECK(got.scales == bytes(vectors.at(prefix + ".scales")));
        compared += 2;
    };
    spec.amax = values(vectors.at("amax"));
    for (Name part : parts) compare(std::string("sr/nvfp4/") + part.text, part.value);
    spec.format = MXQ_FORMAT_MXFP4, spec.scaling = MXQ_SCALING_1X32;
    compare("sr/mxfp4/rowwise", MXQ_PART_ROWWISE);
    CHECK(compared == 2 + 2 * 3);
}

TEST_CASE("golden: the oracle gives every transformed value of contract") {
    const auto& vectors = file("contract");
    const auto& x = vectors.at("x");
    int compared = 0;
    for (uint32_t mask : {0x0000u, 0xD7E8u, 0xF52Cu}) {
        std::string prefix = std::string("hadamard/") + (mask == 0 ? "0000" : mask == 0xD7E8 ? "d7e8" : "f52c");
        INFO(prefix);
        oracle::Spec spec;
        spec.format = MXQ_FORMAT_NVFP4, spec.scaling = MXQ_SCALING_1X16;
        spec.hadamard = MXQ_PART_ROWWISE, spec.rowwise_mask = mask;
        oracle::Floats y = oracle::lines_of(spec, values(x).data(), x.shape[0], x.shape[1], MXQ_PART_ROWWISE);
        oracle::Part part = oracle::quantize(spec, values(x), shape(x), MXQ_PART_ROWWISE, false);
        CHECK(as_bytes(y) == bytes(vectors.at(prefix + "/y")));
        CHECK(as_bytes(part.amax) == bytes(vectors.at(prefix + "/amax")));
        CHECK(part.codes == bytes(vectors.at(prefix + "/codes")));
        CHECK(part.scales == bytes(vectors.at(prefix + "/scales")));
        compared += 4;
    }
    CHECK(compared == 4 * 3);
}

// ---- Rules of the contract that no golden vector covers, computed by hand ------------------------------------------------

namespace {

oracle::Part quantize_one_row(const oracle::Spec& spec, const oracle::Floats& x, bool swizzled = false) {
    return oracle::quantize(spec, x, {1, 1, static_cast<int64_t>(x.size())}, MXQ_PART_ROWWISE, swizzled);
}
oracle::Floats fp32_scales(const oracle::Part& part) {
    return oracle::load(MXQ_FORMAT_F32, part.scales.data(), part.scales.size() / 4);
}
oracle::Spec spec_of(int32_t format, int32_t scaling) {
    oracle::Spec spec;
    spec.format = format, spec.scaling = scaling;
    return spec;
}

}  // namespace

TEST_CASE("oracle: 6-bit rows that end inside a word, and types without NaN") {
    oracle::Spec spec = spec_of(MXQ_FORMAT_MXFP6_E2M3, MXQ_SCALING_1X32);
    oracle::Part part = quantize_one_row(spec, {7.5f, 1, -1, 0.125f, 4});  // codes before packing: 1F 08 28 01 18
    CHECK(part.codes == oracle::Bytes{0x1F, 0x82, 0x06, 0x18});
    CHECK(part.scales == oracle::Bytes{127});
    CHECK(oracle::dequantize(spec, part, {1, 1, 5}, MXQ_PART_ROWWISE) == oracle::Floats{7.5f, 1, -1, 0.125f, 4});

    spec.format = MXQ_FORMAT_MXFP4;
    part = quantize_one_row(spec, {6, NAN, -1});
    CHECK(part.codes == oracle::Bytes{0, 0});
    CHECK(part.scales == oracle::Bytes{255});
    spec.nonfinite = MXQ_NONFINITE_SATURATE;
    part = quantize_one_row(spec, {6, -NAN, -1});
    CHECK(part.codes == oracle::Bytes{0x77, 0x0A});
    CHECK(part.scales == oracle::Bytes{127});
    part = quantize_one_row(spec, {-INFINITY, NAN, -1});
    CHECK(part.codes == oracle::Bytes{0x7F, 0x08});
    CHECK(part.scales == oracle::Bytes{0xFE});
    part = quantize_one_row(spec, {NAN, NAN});
    CHECK(part.codes == oracle::Bytes{0x77});
    CHECK(part.scales == oracle::Bytes{0});
}

TEST_CASE("oracle: NVFP4 at its edges") {
    oracle::Spec spec = spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16);
    spec.amax = {2688};  // S_enc = 1, S_dec = 1
    oracle::Part part = quantize_one_row(spec, {0x1p-12f, -0x1p-12f, NAN, -0.0f});  // S_blk = 0
    CHECK(part.codes == oracle::Bytes{0x80, 0x80});
    CHECK(part.scales == oracle::Bytes{0});
    part = quantize_one_row(spec, {6, -3, NAN, 0.25f, 0.75f});  // S_blk = 1; 0.25 and 0.75 are ties, rounded to even
    CHECK(part.codes == oracle::Bytes{0xD7, 0x07, 0x02});
    CHECK(part.scales == oracle::Bytes{0x38});

    spec.amax = {INFINITY};  // S_enc = 1; S_blk saturates
    part = quantize_one_row(spec, {-INFINITY, 448, 1});
    CHECK(part.codes == oracle::Bytes{0x2F, 0x00});
    CHECK(part.scales == oracle::Bytes{0x7E});

    spec.amax = {1e-38f};  // S_enc and enc stop at FLT_MAX
    part = quantize_one_row(spec, {1e-38f});
    CHECK(part.codes == oracle::Bytes{0x05});
    CHECK(part.scales == oracle::Bytes{0x31});

    part = {{0x27}, {0xC0}, {}, {0.5f}};  // codes of 6 and 1 under a block scale of -2
    oracle::Floats back = oracle::dequantize(spec, part, {1, 1, 2}, MXQ_PART_ROWWISE);
    CHECK(back == oracle::Floats{-6, -1});
    CHECK(std::isnan(oracle::decode(spec, 1, 0x7F, 0.5f)));
    spec.nvfp4_t = 256, part.global_scale = {}, part.amax = {768};
    CHECK(oracle::dequantize(spec, part, {1, 1, 2}, MXQ_PART_ROWWISE) == back);
}

TEST_CASE("oracle: FP8 at its edges") {
    oracle::Spec spec = spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR);
    oracle::Part part = quantize_one_row(spec, {NAN, -224, 1});
    CHECK(part.codes == oracle::Bytes{0x7F, 0xFE, 0x40});
    CHECK(fp32_scales(part) == oracle::Floats{0.5f});
    CHECK(part.amax == oracle::Floats{224});
    part = quantize_one_row(spec, {-INFINITY, 1});
    CHECK(part.codes == oracle::Bytes{0xFE, 0x38});
    CHECK(fp32_scales(part) == oracle::Floats{1});
    CHECK(part.amax == oracle::Floats{INFINITY});
    part = quantize_one_row(spec, {1e-40f});  // s stops at FLT_MAX, its reciprocal is subnormal
    CHECK(part.codes == oracle::Bytes{0x11});
    CHECK(fp32_scales(part) == oracle::Floats{0x1p-128f});

    spec.eps = 448;
    part = quantize_one_row(spec, {1, 0});
    CHECK(part.codes == oracle::Bytes{0x38, 0x00});
    CHECK(part.amax == oracle::Floats{1});
    spec.eps = 0, spec.power_of_two = true, spec.quantization_scale = {3};  // a given scale is not rounded to a power of two
    part = quantize_one_row(spec, {1, 1000});
    CHECK(part.codes == oracle::Bytes{0x44, 0x7E});
    CHECK(fp32_scales(part) == oracle::Floats{1 / 3.0f});
    CHECK(part.amax == oracle::Floats{1000});
}

TEST_CASE("oracle: scales of coarse tiles, swizzled") {
    oracle::Floats x(130, 1);
    x[128] = 448;
    oracle::Part mx = quantize_one_row(spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X128), x, true);
    oracle::Bytes expected(1024, 0);
    std::fill(expected.begin(), expected.begin() + 4, uint8_t{119});  // 2^-8, the next power of two above 1 / 448
    expected[512] = 127;
    CHECK(mx.scales == expected);

    x[128] = 896;
    oracle::Floats two = x;
    two.insert(two.end(), x.begin(), x.end());
    two[0] = 448;
    oracle::Spec spec = spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128);
    float low = 1 / 448.0f;
    CHECK(fp32_scales(oracle::quantize(spec, two, {1, 2, 130}, MXQ_PART_ROWWISE, true)) == oracle::Floats{1, low, 2, 2});
    spec.scaling = MXQ_SCALING_128X128;
    CHECK(fp32_scales(oracle::quantize(spec, two, {1, 2, 130}, MXQ_PART_ROWWISE, true)) == oracle::Floats{1, 2, 0, 0});
}

// Uses sums of which one order of rounded additions gives 1 and another the next larger number.
TEST_CASE("oracle: sums in the order of the contract") {
    const float small = 0x1p-24f, above_one = 1 + 0x1p-23f;
    oracle::Floats x(16, 0.0f);
    x[0] = 1, x[8] = small, x[9] = small;
    oracle::hadamard_16(x.data(), 0);
    CHECK(x[0] == above_one / 4);  // distance 1 comes first: elements 8 and 9 are added before element 0 is

    oracle::Spec spec = spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_16X16);
    spec.four_over_six = MXQ_FOUR_OVER_SIX_MAE;
    oracle::Bytes codes(256, 0);
    auto error = [&](const oracle::Floats& tile, bool columnwise) {  // all codes are 0, so that it is the sum of magnitudes
        return oracle::nvfp4_block_error(spec, {tile.data(), codes.data(), nullptr, 16, 16, 16}, 1, 0, columnwise);
    };
    oracle::Floats tile(256, 0.0f);
    tile[0] = small, tile[1] = small, tile[2] = 1;  // the elements of a row are added in order
    CHECK(error(tile, false) == above_one);
    CHECK(error(oracle::transposed(tile.data(), 16, 16), true) == above_one);
    tile = oracle::Floats(256, 0.0f);
    tile[0] = 1, tile[1 * 16] = small, tile[9 * 16] = small;  // rows 1 and 9 are added before row 0 is
    CHECK(error(tile, false) == above_one);
    CHECK(error(oracle::transposed(tile.data(), 16, 16), true) == above_one);
    CHECK(error(tile, true) == 1);  // in a columnwise tile the elements of a column are added in order
}
