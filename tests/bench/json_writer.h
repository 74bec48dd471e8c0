// As much JSON as writing a report takes.
#pragma once

#include <string>

std::string json_text(const std::string& text);  // quoted
std::string json_number(double value);

// An object or a list, member by member.
class JsonWriter {
public:
    explicit JsonWriter(const char* brackets, const char* separator = ", ")
        : end_(brackets[1]), text_(1, brackets[0]), separator_(separator) {}
    JsonWriter& add(const std::string& json) {
        text_ += (text_.size() > 1 ? separator_ : "") + json;
        return *this;
    }
    JsonWriter& add_json(const std::string& name, const std::string& json) { return add(json_text(name) + ": " + json); }
    JsonWriter& add(const std::string& name, const std::string& value) { return add_json(name, json_text(value)); }
    JsonWriter& add(const std::string& name, double value) { return add_json(name, json_number(value)); }
    std::string done() const { return text_ + end_; }

private:
    char end_;
    std::string text_, separator_;
};

// Throws std::runtime_error where the file cannot be written.
void write_json(const std::string& path, const JsonWriter& json);
