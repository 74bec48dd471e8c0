// As much JSON as reading an earlier report takes.
#pragma once

#include <map>
#include <string>
#include <vector>

struct Json {
    enum class Type { Null, Number, Text, List, Object } type = Type::Null;  // true and false are numbers
    double number = 0;
    std::string text = {};
    std::vector<Json> list = {};
    std::map<std::string, Json> object = {};

    // The member of this name; Null where there is none.
    const Json& operator[](const std::string& name) const&;
    const Json& operator[](const std::string& name) const&& = delete;  // it would not outlive the document
};

// Throws std::runtime_error with the place of what is wrong.
Json read_json(const std::string& path);
