// Writes JSON: as much of it as mxq-info needs.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace tools::json {

// Returns a JSON string, or null for an empty one.
std::string text(const std::string& value);

// Returns an array, one line for each of its values, which are JSON already.
std::string list(const std::vector<std::string>& values);

// A JSON object, whose fields stand in the order in which they are added.
class Object {
public:
    Object& field(const std::string& name, const std::string& json);
    std::string on_one_line() const;
    std::string on_lines() const;

private:
    std::vector<std::string> fields_;
};

}  // namespace tools::json
