// The buffers of one call: each is there, long enough and aligned, and none that is written overlaps another.
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

    // `name` as in "out.rowwise.scales"; `setter` is the function that sets it.
    void add(const std::string& name, const void* pointer, uint64_t have, uint64_t need, uint64_t alignment, Access access,
             const char* setter);

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
