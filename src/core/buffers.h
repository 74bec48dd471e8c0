// Checks the buffers of one call: each is present, large enough and aligned, and none that is written overlaps another.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "core/validate.h"

namespace mxq {

class Buffers {
public:
    enum class Access { Read, Write };

    explicit Buffers(Check check) : check_(check) {}

    // Checks one buffer and remembers it for check_overlaps. Messages call it `name`, such as "out.rowwise.scales", and tell
    // the caller to set it with the API function `setter`. A query accepts NULL.
    void add(const std::string& name, const void* pointer, uint64_t have, uint64_t need, uint64_t alignment, Access access,
             const char* setter);

    // Throws where a buffer that is written shares a byte with any other buffer.
    void check_overlaps() const;

private:
    struct Range {
        std::string name;
        uintptr_t begin, end;
        Access access;
    };
    Check check_;
    std::vector<Range> ranges_;
};

}  // namespace mxq
