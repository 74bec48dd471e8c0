// JSON as text: enough to write what mxq-info tells.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace tools::json {

std::string text(const std::string& value);                // quoted; null for ""
std::string list(const std::vector<std::string>& values);  // of values that are JSON already, a line each

// Fields in the order in which they are added.
class Object {
public:
    Object& field(const std::string& name, const std::string& json);
    std::string on_one_line() const;
    std::string on_lines() const;

private:
    std::vector<std::string> fields_;
};

}  // namespace tools::json
