// Reads a .safetensors file: an 8-byte little-endian length, a JSON header that gives each tensor's type, shape and byte
// range, then the bytes. Every length and range is checked, so a damaged file gives an exception and never a bad read.
#ifndef MXQ_EXAMPLES_SAFETENSORS_H
#define MXQ_EXAMPLES_SAFETENSORS_H

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace safetensors {

struct Tensor {
    std::string dtype;  // "F32", "BF16", "I32", "U8", ...
    std::vector<int64_t> shape;
    const uint8_t* data = nullptr;  // inside the File, which must outlive it; aligned only as the file aligns it
    size_t bytes = 0;

    int64_t count() const {
        int64_t product = 1;
        for (int64_t size : shape) product *= size;
        return product;
    }

    // Returns a copy of the bytes as values of T. The bytes need no alignment.
    template <class T>
    std::vector<T> values() const {
        std::vector<T> out(bytes / sizeof(T));
        if (bytes) std::memcpy(out.data(), data, out.size() * sizeof(T));
        return out;
    }
};

namespace detail {

inline size_t dtype_bytes(const std::string& dtype) {
    static const std::map<std::string, size_t> bytes = {
        {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"I16", 2}, {"U16", 2},
        {"F16", 2},  {"BF16", 2}, {"I32", 4}, {"U32", 4},     {"F32", 4},     {"I64", 8},     {"U64", 8}, {"F64", 8}};
    auto found = bytes.find(dtype);
    return found == bytes.end() ? 0 : found->second;
}

// Reads the parts of JSON that a header uses: objects, arrays of non-negative integers, strings.
class Json {
public:
    Json(const char* begin, const char* end) : at_(begin), begin_(begin), end_(end) {}

    char peek() {
        while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r')) ++at_;
        return at_ < end_ ? *at_ : '\0';
    }
    bool accept(char c) {
        if (peek() != c || at_ >= end_) return false;
        ++at_;
        return true;
    }
    void expect(char c) {
        if (!accept(c)) fail(std::string("expected '") + c + "'");
    }
    std::string string() {
        expect('"');
        std::string out;
        while (at_ < end_ && *at_ != '"') {
            char c = *at_++;
            if (c == '\\') {
                if (at_ >= end_) break;
                c = *at_++;
                if (c == 'n') c = '\n';
                else if (c == 't') c = '\t';
                else if (c != '"' && c != '\\' && c != '/') fail("an escape that tensor names do not need");
            }
            out += c;
        }
        if (at_ >= end_) fail("a string without its end");
        ++at_;
        return out;
    }
    uint64_t integer() {
        peek();
        const char* first = at_;
        uint64_t value = 0;
        while (at_ < end_ && *at_ >= '0' && *at_ <= '9') {
            if (value > (UINT64_MAX >> 1) / 10 - 1) fail("a number that is too large");
            value = value * 10 + static_cast<uint64_t>(*at_++ - '0');
        }
        if (at_ == first) fail("expected a non-negative integer");
        return value;
    }
    std::vector<uint64_t> integers() {
        std::vector<uint64_t> out;
        expect('[');
        if (accept(']')) return out;
        do out.push_back(integer());
        while (accept(','));
        expect(']');
        return out;
    }
    // Calls member(key) for each member of an object. The call must read the value.
    template <class Member>
    void object(Member member) {
        expect('{');
        if (accept('}')) return;
        do {
            std::string key = string();
            expect(':');
            member(key);
        } while (accept(','));
        expect('}');
    }
    [[noreturn]] void fail(const std::string& what) const {
        throw std::runtime_error("header, byte " + std::to_string(at_ - begin_) + ": " + what);
    }

private:
    const char *at_, *begin_, *end_;
};

}  // namespace detail

class File {
public:
    explicit File(const std::string& path) {
        std::ifstream in(path, std::ios::binary);
        if (!in) throw std::runtime_error(path + ": cannot open the file");
        bytes_.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
        try {
            parse();
        } catch (const std::runtime_error& error) {
            throw std::runtime_error(path + ": not a valid .safetensors file: " + error.what());
        }
        path_ = path;
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    bool contains(const std::string& name) const { return tensors_.count(name) != 0; }
    const std::map<std::string, Tensor>& tensors() const { return tensors_; }
    const Tensor& at(const std::string& name) const {
        auto found = tensors_.find(name);
        if (found == tensors_.end()) throw std::runtime_error(path_ + ": no tensor named " + name);
        return found->second;
    }

private:
    void parse() {
        if (bytes_.size() < 8) throw std::runtime_error("shorter than 8 bytes");
        uint64_t header = 0;
        for (int i = 7; i >= 0; --i) header = header << 8 | static_cast<uint8_t>(bytes_[static_cast<size_t>(i)]);
        if (header > bytes_.size() - 8)
            throw std::runtime_error("the header claims " + std::to_string(header) + " bytes of " +
                                     std::to_string(bytes_.size() - 8));
        const char* text = bytes_.data() + 8;
        data_ = reinterpret_cast<const uint8_t*>(text + header);
        data_bytes_ = bytes_.size() - 8 - header;

        detail::Json json(text, text + header);
        json.object([&](const std::string& name) {
            if (name == "__metadata__") return json.object([&](const std::string&) { json.string(); });
            tensor(json, name);
        });
        if (json.peek() != '\0') json.fail("something after the end");
    }

    void tensor(detail::Json& json, const std::string& name) {
        Tensor out;
        std::vector<uint64_t> shape, range;
        json.object([&](const std::string& key) {
            if (key == "dtype") out.dtype = json.string();
            else if (key == "shape") shape = json.integers();
            else if (key == "data_offsets") range = json.integers();
            else json.fail(name + ": unknown key " + key);
        });
        size_t element = detail::dtype_bytes(out.dtype);
        if (element == 0) throw std::runtime_error(name + ": unknown dtype '" + out.dtype + "'");
        if (range.size() != 2 || range[0] > range[1] || range[1] > data_bytes_)
            throw std::runtime_error(name + ": its byte range is not inside the " + std::to_string(data_bytes_) +
                                     " bytes of data");
        uint64_t need = element;
        for (uint64_t size : shape) {
            if (size != 0 && need > (UINT64_MAX >> 1) / size) throw std::runtime_error(name + ": its shape is too large");
            need *= size;
            out.shape.push_back(static_cast<int64_t>(size));
        }
        if (need != range[1] - range[0])
            throw std::runtime_error(name + ": its shape needs " + std::to_string(need) + " bytes, its range has " +
                                     std::to_string(range[1] - range[0]));
        out.data = data_ + range[0];
        out.bytes = static_cast<size_t>(need);
        if (!tensors_.emplace(name, out).second) throw std::runtime_error(name + ": named twice");
    }

    std::string path_;
    std::vector<char> bytes_;
    const uint8_t* data_ = nullptr;
    uint64_t data_bytes_ = 0;
    std::map<std::string, Tensor> tensors_;
};

}  // namespace safetensors

#endif
