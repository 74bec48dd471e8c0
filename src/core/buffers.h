// Checks the buffers of one call: each is present, large enough and aligned, and none that is written overlaps another.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.h"
#include "core/validate.h"

namespace mxq {

// A buffer as messages call it: "out.rowwise.codes", or without a part "in.data". Holds the words, which outlive the call,
// and joins them only for a message: most calls never need the text.
struct BufferName {
    const char* owner;  // a tensor, or "options"
    const char* part;   // NULL: none
    const char* buffer;
    bool is_array = false;  // the array of addresses of such buffers: "the array of addresses of b.rowwise.codes"
    int64_t number = -1;    // one buffer of such an array: "b.rowwise.codes[2]"

    std::string text() const;
};

class Buffers {
public:
    enum class Access { Read, Write };

    // The rows of a buffer that has gaps between them, in bytes. Without gaps `stride` is 0.
    struct Rows {
        uint64_t width, stride;
    };

    Buffers(const Context& context, Check check) : context_(context), check_(check) {}

    // Returns whether this call may read what a buffer holds.
    bool can_read() const { return context_.is_cpu() && check_ == Check::Execute; }
    bool is_cpu() const { return context_.is_cpu(); }

    // Checks one buffer and remembers it for check_overlaps. Messages tell the caller to set it with the API function
    // `setter`. A query accepts NULL.
    void add(const BufferName& name, const Buffer& buffer, uint64_t need, uint64_t alignment, Access access,
             const char* setter, const Rows& rows = {});

    // Does so for what is read and came without an extent: it has the bytes that it needs.
    void add_read(const BufferName& name, const void* pointer, uint64_t bytes, uint64_t alignment, const char* setter) {
        add(name, {const_cast<void*>(pointer), bytes}, bytes, alignment, Access::Read, setter);
    }

    // Checks an array of `count` addresses, each of a buffer that is read, as add checks one. On a CUDA context the host
    // reads no address.
    void add_list(const BufferName& name, const Buffer& array, int64_t count, uint64_t need, uint64_t alignment,
                  const char* setter, const Rows& rows);

    // Throws where a buffer that is written shares a byte with any other buffer. Gaps between rows belong to no buffer,
    // where two buffers have rows of the same stride.
    void check_overlaps() const;

private:
    struct Range {
        BufferName name;
        uintptr_t begin, end;
        Access access;
        Rows rows;
    };
    // activate_backward to both FP8 parts has the most: three arrays of ends, four inputs, six buffers of parts, a scale, two
    // sums.
    static constexpr size_t kMost = 16;

    // Buffers at the addresses of an array.
    struct List {
        BufferName name;
        const void* const* addresses;
        int64_t count;
        uint64_t bytes;  // at each address
        Rows rows;

        BufferName name_of(int64_t number) const { return {name.owner, name.part, name.buffer, false, number}; }
    };
    static constexpr size_t kMostLists = 4;  // of a product: codes and scales of both operands

    // Returns the addresses of a buffer at `pointer`, which must be a multiple of `alignment`.
    static Range range_of(const BufferName& name, const void* pointer, uint64_t need, uint64_t alignment, Access access,
                          const Rows& rows);
    static bool overlap(const Range& a, const Range& b);
    [[noreturn]] static void refuse_overlap(const Range& written, const Range& other);
    void check_overlaps_with_list(const Range& written, const List& list) const;
    void keep(const Range& range);
    std::span<const Range> ranges() const { return {ranges_.data(), count_}; }

    const Context& context_;
    Check check_;
    size_t count_ = 0;
    std::array<Range, kMost> ranges_;
    size_t list_count_ = 0;
    std::array<List, kMostLists> lists_;
};

}  // namespace mxq
