// The oracle against the golden vectors: what every other test trusts.
#include "../catch.h"
#include "../oracle_groups.h"
#include "golden.h"

using namespace golden;

namespace {

oracle::Floats values(const safetensors::Tensor& x) {
    return oracle::load(plain_format(x), x.data, static_cast<size_t>(x.count()));
}

}  // namespace

TEST_CASE("golden: the oracle gives every byte of mx_rowwise") {
    const auto& vectors = file("mx_rowwise");
    int compared = 0;
    for (Name format : formats)
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
    CHECK(compared == 2 * 2 * 4 * 11);
}

TEST_CASE("golden: the oracle gives every byte of layout") {
    const auto& vectors = file("layout");
    int compared = 0;
    auto compare = [&](const std::string& prefix, oracle::Spec spec, int32_t part, const safetensors::Tensor& x) {
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
        expected.resize(swizzled.size());  // the vector may stand in a larger buffer
        CHECK(swizzled == expected);
        ++compared;
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
    CHECK(compared == 13);
}
