// The reader of .safetensors files takes valid files and refuses damaged ones with a message.
#include "../../examples/common/safetensors.h"
#include "../catch.h"
#include "../paths.h"

#include <cstdio>
#include <unistd.h>

namespace {

std::string file_of(const std::string& header, const std::string& data, int64_t length = -1) {
    uint64_t bytes = length < 0 ? header.size() : static_cast<uint64_t>(length);
    std::string out;
    for (int i = 0; i < 8; ++i) out += static_cast<char>(bytes >> (8 * i));
    return out + header + data;
}

// Returns the message of a reader that refuses a file of these bytes, or "" if it takes it.
std::string complaint(const std::string& bytes) {
    std::string path = "/tmp/mxq_safetensors_" + std::to_string(getpid());
    std::ofstream(path, std::ios::binary) << bytes;
    std::string text;
    try {
        safetensors::File file(path);
    } catch (const std::runtime_error& error) {
        text = error.what();
    }
    std::remove(path.c_str());
    return text;
}

}  // namespace

TEST_CASE("safetensors: the carried files are whole") {
    safetensors::File moe(testing::data_dir() + "/moe.safetensors");
    CHECK(moe.tensors().size() == 7);
    CHECK(moe.at("tokens").shape == std::vector<int64_t>{512, 384});
    CHECK(moe.at("group_ends").values<int32_t>() == std::vector<int32_t>{61, 264, 297, 512});
    CHECK(moe.at("up.weight").bytes == 4 * 1536 * 384 * 2);
    CHECK_THROWS_AS(moe.at("no such"), std::runtime_error);
    CHECK_THROWS_AS(safetensors::File("/no/such/file"), std::runtime_error);
}

TEST_CASE("safetensors: damaged files are refused") {
    const std::string good = R"({"__metadata__":{"a":"b"},"x":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})";
    CHECK(complaint(file_of(good, "12345678")) == "");
    CHECK(complaint(file_of("{}  ", "")) == "");
    const std::pair<std::string, std::string> bad[] = {
        {"short", "shorter than 8"},
        {file_of(good, "12345678", 10000), "claims 10000"},
        {file_of(good, "12345678", INT64_MAX), "claims"},
        {file_of(good, "1234567"), "byte range"},
        {file_of(good.substr(0, 40), ""), "header, byte"},
        {file_of(good + "x", "12345678"), "after the end"},
        {file_of(R"({"x":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", "12345678"), "F33"},
        {file_of(R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12345678"), "needs 12"},
        {file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "12345678"), "byte range"},
        {file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "12345678"), "byte range"},
        {file_of(R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "12345678"), "non-negative"},
        {file_of(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", "12345678"), "too large"},
        {file_of(R"({"x":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]}})", "12345678"), "too large"},
        {file_of(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1"), "twice"},
        {file_of(R"({"x":{"what":1}})", ""), "unknown key"},
        {file_of(R"({"x)", ""), "without its end"},
    };
    int ran = 0;
    for (const auto& [bytes, words] : bad) {
        CAPTURE(words, complaint(bytes));
        CHECK(complaint(bytes).find(words) != std::string::npos);
        ++ran;
    }
    CHECK(ran == 16);
}
