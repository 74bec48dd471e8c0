#include "json.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace {

class Parser {
public:
    explicit Parser(const std::string& text) : at_(text.c_str()), begin_(at_) {}

    Json document() {
        Json value = parse();
        if (next() != '\0') fail("the end");
        return value;
    }

private:
    [[noreturn]] void fail(const char* expected) const {
        throw std::runtime_error("byte " + std::to_string(at_ - begin_) + ": expected " + expected);
    }
    char next() {
        while (*at_ && std::strchr(" \t\r\n", *at_)) ++at_;
        return *at_;
    }
    void take(char wanted, const char* expected) {
        if (next() != wanted) fail(expected);
        ++at_;
    }
    bool taken(char wanted) {
        if (next() != wanted) return false;
        ++at_;
        return true;
    }

    Json parse() {
        switch (next()) {
            case '{': return object();
            case '[': return list();
            case '"': return {.type = Json::Type::Text, .text = text()};
            default: return word();
        }
    }
    Json object() {
        Json out{.type = Json::Type::Object};
        take('{', "an object");
        if (taken('}')) return out;
        do {
            next();
            const std::string name = text();
            take(':', "a colon");
            out.object[name] = parse();
        } while (taken(','));
        take('}', "the end of an object");
        return out;
    }
    Json list() {
        Json out{.type = Json::Type::List};
        take('[', "a list");
        if (taken(']')) return out;
        do out.list.push_back(parse());
        while (taken(','));
        take(']', "the end of a list");
        return out;
    }
    std::string text() {
        std::string out;
        take('"', "a string");
        for (; *at_ != '"'; ++at_) {
            if (!*at_) fail("the end of a string");
            if (*at_ == '\\' && at_[1] != '"' && at_[1] != '\\' && at_[1] != '/')
                fail("no escape but those of quotes and slashes");
            if (*at_ == '\\') ++at_;
            out += *at_;
        }
        ++at_;
        return out;
    }
    Json word() {
        const std::pair<const char*, Json> words[] = {
            {"null", {}}, {"true", {.type = Json::Type::Number, .number = 1}}, {"false", {.type = Json::Type::Number}}};
        for (const auto& [name, value] : words)
            if (std::strncmp(at_, name, std::strlen(name)) == 0) return at_ += std::strlen(name), value;
        char* end = nullptr;
        const double number = std::strtod(at_, &end);
        if (end == at_) fail("a value");
        at_ = end;
        return {.type = Json::Type::Number, .number = number};
    }

    const char *at_, *const begin_;
};

}  // namespace

const Json& Json::operator[](const std::string& name) const& {
    static const Json nothing;
    const auto found = object.find(name);
    return found == object.end() ? nothing : found->second;
}

Json read_json(const std::string& path) {
    std::ifstream in(path);
    if (!in) throw std::runtime_error("cannot read " + path);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    try {
        return Parser(text).document();
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(path + ": " + error.what());
    }
}
