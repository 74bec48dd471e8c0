// Two copies of the library in one process, as when two plugins bring it: each works, and has its own last error and log.
// This program does not link the library.
#include "../catch.h"

#include <mxq/mxq.h>

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace {

// Opens one file of the library, whose functions are found by name.
class Copy {
public:
    explicit Copy(const std::string& file) : library_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        INFO((library_ ? "" : dlerror()));
        REQUIRE(library_);
    }
    ~Copy() { dlclose(library_); }
    Copy(const Copy&) = delete;
    Copy& operator=(const Copy&) = delete;

    template <class Function>
    Function* find(const char* name) const {
        void* const address = dlsym(library_, name);
        INFO(name);
        REQUIRE(address);
        return reinterpret_cast<Function*>(address);
    }

private:
    void* library_;
};

#define CALL(copy, name) (*(copy).find<decltype(name)>(#name))

// Returns the file of the library that the loader finds.
std::filesystem::path library_file() {
    const Copy original("libmxq.so.0");
    Dl_info info{};
    REQUIRE(dladdr(reinterpret_cast<void*>(original.find<decltype(mxq_version)>("mxq_version")), &info));
    return std::filesystem::canonical(info.dli_fname);
}

// Two copies of the library's file under names of their own, in a folder that goes with the object.
struct Files {
    std::filesystem::path folder;
    std::string first, second;

    Files() {
        std::string name = (std::filesystem::temp_directory_path() / "mxq_copies_XXXXXX").string();
        REQUIRE(mkdtemp(name.data()));
        folder = name;
        first = folder / "libfirst.so";
        second = folder / "libsecond.so";
        for (const auto& file : {first, second}) std::filesystem::copy_file(library_file(), file);
    }
    ~Files() { std::filesystem::remove_all(folder); }
};

constexpr int64_t rows = 64, cols = 64;

// Quantizes a matrix by one copy, with a context and threads of its own.
std::vector<uint8_t> quantize(const Copy& copy) {
    std::vector<float> x(rows * cols);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 100;
    std::vector<uint8_t> codes(rows * cols), scales(rows * cols / 32);
    mxq_context_options* options = nullptr;
    mxq_context* context = nullptr;
    mxq_tensor *in = nullptr, *out = nullptr;
    REQUIRE(CALL(copy, mxq_context_options_create)(&options) == MXQ_STATUS_OK);
    REQUIRE(CALL(copy, mxq_context_options_set_threads)(options, 3) == MXQ_STATUS_OK);
    REQUIRE(CALL(copy, mxq_context_create)(MXQ_DEVICE_CPU, 0, options, &context) == MXQ_STATUS_OK);
    REQUIRE(CALL(copy, mxq_tensor_create_2d)(MXQ_FORMAT_F32, rows, cols, &in) == MXQ_STATUS_OK);
    REQUIRE(CALL(copy, mxq_tensor_create_2d)(MXQ_FORMAT_MXFP8_E4M3, rows, cols, &out) == MXQ_STATUS_OK);
    REQUIRE(CALL(copy, mxq_tensor_set_data)(in, x.data(), x.size() * sizeof(float)) == MXQ_STATUS_OK);
    REQUIRE(CALL(copy, mxq_tensor_set_part)(out, MXQ_PART_ROWWISE, codes.data(), codes.size(), scales.data(),
                                            scales.size()) == MXQ_STATUS_OK);
    REQUIRE(CALL(copy, mxq_quantize)(context, nullptr, in, out, nullptr, 0, nullptr) == MXQ_STATUS_OK);
    CALL(copy, mxq_tensor_destroy)(out);
    CALL(copy, mxq_tensor_destroy)(in);
    CALL(copy, mxq_context_destroy)(context);
    CALL(copy, mxq_context_options_destroy)(options);
    codes.insert(codes.end(), scales.begin(), scales.end());
    return codes;
}

void count_line(void* user, mxq_log_level, const char*) { ++*static_cast<int*>(user); }

}  // namespace

TEST_CASE("copies: two copies of the library work in one process, each with its own last error and log") {
    const Files files;
    const Copy first(files.first), second(files.second);
    REQUIRE(first.find<decltype(mxq_quantize)>("mxq_quantize") != second.find<decltype(mxq_quantize)>("mxq_quantize"));
    CHECK(CALL(first, mxq_version)() == MXQ_VERSION);
    CHECK(CALL(second, mxq_version)() == MXQ_VERSION);

    int lines_of_first = 0;
    REQUIRE(CALL(first, mxq_set_log_callback)(count_line, MXQ_LOG_INFO, &lines_of_first) == MXQ_STATUS_OK);
    const auto by_second = quantize(second);
    CHECK(lines_of_first == 0);
    CHECK(quantize(first) == by_second);
    CHECK(lines_of_first == 1);
    REQUIRE(CALL(first, mxq_set_log_callback)(nullptr, MXQ_LOG_OFF, nullptr) == MXQ_STATUS_OK);

    mxq_tensor* none = nullptr;
    REQUIRE(CALL(first, mxq_tensor_create_2d)(MXQ_FORMAT_F32, -1, 4, &none) == MXQ_STATUS_INVALID_ARGUMENT);
    CHECK(std::string(CALL(first, mxq_last_error)()).find("mxq_tensor_create_2d") != std::string::npos);
    CHECK(std::string(CALL(second, mxq_last_error)()).find("mxq_tensor_create_2d") == std::string::npos);
}

TEST_CASE("copies: one copy goes on while the other is opened, used and closed") {
    const Files files;
    const Copy first(files.first);
    const auto expected = quantize(first);
    {
        const Copy second(files.second);
        CHECK(quantize(second) == expected);
    }
    CHECK(quantize(first) == expected);
}
