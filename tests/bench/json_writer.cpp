#include "json_writer.h"

#include <cstdio>
#include <stdexcept>

std::string json_text(const std::string& text) {
    std::string out = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return out + "\"";
}

std::string json_number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", value);
    return text;
}

void write_json(const std::string& path, const JsonWriter& json) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (!file) throw std::runtime_error("cannot write " + path);
    std::fprintf(file, "%s\n", json.done().c_str());
    if (std::fclose(file) != 0) throw std::runtime_error("cannot write " + path);
}
