#include "json.h"

#include <cstdio>

namespace tools::json {
namespace {

std::string joined(const std::vector<std::string>& parts, const char* between) {
    std::string out;
    for (const std::string& part : parts) out += (&part == &parts.front() ? "" : between) + part;
    return out;
}

std::string quoted(const std::string& value) {
    std::string out = "\"";
    for (const unsigned char c : value) {
        char escaped[8];
        std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
        if (c == '"' || c == '\\') out += std::string("\\") + char(c);
        else if (c < 0x20 || c >= 0x7F) out += escaped;  // the encoding is unknown: each byte becomes one character
        else out += char(c);
    }
    return out + "\"";
}

}  // namespace

std::string text(const std::string& value) { return value.empty() ? "null" : quoted(value); }

std::string list(const std::vector<std::string>& values) {
    if (values.empty()) return "[]";
    return std::string("[\n    ").append(joined(values, ",\n    ")).append("\n  ]");
}

Object& Object::field(const std::string& name, const std::string& json) {
    fields_.push_back(quoted(name) + ": " + json);
    return *this;
}

std::string Object::on_one_line() const { return std::string("{").append(joined(fields_, ", ")).append("}"); }
std::string Object::on_lines() const { return std::string("{\n  ").append(joined(fields_, ",\n  ")).append("\n}"); }

}  // namespace tools::json
