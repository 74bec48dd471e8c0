// Every constant of the header can be looked up by name, and every name that the library returns is correct.
#include "../api.h"
#include "../paths.h"

#include <fstream>
#include <regex>
#include <set>

namespace {

// Returns every #define of a number in the text of the header, by name.
std::map<std::string, int64_t> header_constants() {
    std::ifstream in(testing::header_path());
    REQUIRE(in);
    std::map<std::string, int64_t> out;
    std::regex pattern(R"(^#define\s+(MXQ_[A-Z0-9_]+)\s+(-?[0-9]+)\b.*)");
    std::smatch match;
    for (std::string line; std::getline(in, line);)
        if (std::regex_match(line, match, pattern)) out[match[1]] = std::stoll(match[2]);
    return out;
}

}  // namespace

TEST_CASE("constants: every #define of the header, by name, with its value") {
    auto constants = header_constants();
    CHECK(constants.size() == 81);
    for (const auto& [name, value] : constants) {
        INFO(name);
        int64_t got = -1;
        CHECK(mxq_constant(name.c_str(), &got) == MXQ_STATUS_OK);
        CHECK(got == value);
    }
    std::set<std::string> names;
    for (int32_t i = 0; mxq_constant_name(i); ++i) names.insert(mxq_constant_name(i));
    CHECK(names.size() == constants.size());
    for (const std::string& name : names) CHECK(constants.count(name) == 1);
    CHECK(mxq_constant_name(-1) == nullptr);
    CHECK(mxq_constant_name(1 << 30) == nullptr);
}

TEST_CASE("constants: unknown names and NULL are refused") {
    int64_t value = 17;
    for (const char* name : {"MXQ_FORMAT_F33", "MXQ_FORMAT_F3", "", "mxq_format_f32"}) {
        CHECK(mxq_constant(name, &value) == MXQ_STATUS_INVALID_ARGUMENT);
        CHECK(std::string(mxq_last_error()).find("mxq_constant") != std::string::npos);
    }
    CHECK(mxq_constant(nullptr, &value) == MXQ_STATUS_INVALID_ARGUMENT);
    CHECK(mxq_constant("MXQ_FORMAT_F32", nullptr) == MXQ_STATUS_INVALID_ARGUMENT);
    CHECK(value == 17);
}

TEST_CASE("constants: every status has its name") {
    int statuses = 0;
    for (const auto& [name, value] : header_constants())
        if (name.rfind("MXQ_STATUS_", 0) == 0) {
            CHECK(mxq_status_name(static_cast<mxq_status>(value)) == name);
            ++statuses;
        }
    CHECK(statuses == 11);
    for (mxq_status unknown : {-1, 11, 1000}) CHECK(mxq_status_name(unknown) == std::string("unknown status"));
}

TEST_CASE("constants: version, formats and their properties") {
    CHECK(mxq_version() == MXQ_VERSION_MAJOR * 10000 + MXQ_VERSION_MINOR * 100 + MXQ_VERSION_PATCH);
    CHECK(mxq_version_string() == std::string("0.2.0"));

    struct Expected {
        int32_t format;
        const char* name;
        int64_t bits, block, quantized;
    };
    const Expected formats[] = {{MXQ_FORMAT_F32, "f32", 32, 1, 0},
                                {MXQ_FORMAT_F16, "f16", 16, 1, 0},
                                {MXQ_FORMAT_BF16, "bf16", 16, 1, 0},
                                {MXQ_FORMAT_MXFP8_E4M3, "mxfp8_e4m3", 8, 32, 1},
                                {MXQ_FORMAT_MXFP8_E5M2, "mxfp8_e5m2", 8, 32, 1},
                                {MXQ_FORMAT_MXFP6_E2M3, "mxfp6_e2m3", 6, 32, 1},
                                {MXQ_FORMAT_MXFP6_E3M2, "mxfp6_e3m2", 6, 32, 1},
                                {MXQ_FORMAT_MXFP4, "mxfp4", 4, 32, 1},
                                {MXQ_FORMAT_NVFP4, "nvfp4", 4, 16, 1},
                                {MXQ_FORMAT_FP8_E4M3, "fp8_e4m3", 8, 0, 1},
                                {MXQ_FORMAT_FP8_E5M2, "fp8_e5m2", 8, 0, 1}};
    for (const Expected& expected : formats) {
        auto property = [&](int32_t id) {
            int64_t value = -1;
            CHECK(mxq_format_property(expected.format, id, &value) == MXQ_STATUS_OK);
            return value;
        };
        CHECK(mxq_format_name(expected.format) == std::string(expected.name));
        CHECK(property(MXQ_PROPERTY_ELEMENT_BITS) == expected.bits);
        CHECK(property(MXQ_PROPERTY_BLOCK) == expected.block);
        CHECK(property(MXQ_PROPERTY_QUANTIZED) == expected.quantized);
    }
    int64_t value = 17;
    for (int32_t format : {-1, 0, 12, 99}) {
        CHECK(mxq_format_name(format) == nullptr);
        CHECK(mxq_format_property(format, MXQ_PROPERTY_BLOCK, &value) == MXQ_STATUS_INVALID_ARGUMENT);
    }
    for (int32_t property : {-1, 0, 4}) CHECK(mxq_format_property(MXQ_FORMAT_F32, property, &value) == MXQ_STATUS_INVALID_ARGUMENT);
    CHECK(mxq_format_property(MXQ_FORMAT_F32, MXQ_PROPERTY_BLOCK, nullptr) == MXQ_STATUS_INVALID_ARGUMENT);
    CHECK(value == 17);
}
