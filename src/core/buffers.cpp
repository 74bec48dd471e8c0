#include "core/buffers.h"

#include <string_view>

#include "core/error.h"

namespace mxq {

std::string BufferName::text() const {
    const std::string name = std::string(owner) + (part ? "." : "") + (part ? part : "") + "." + buffer;
    return (is_array ? "the array of addresses of " : "") + name + (number < 0 ? "" : format_text("[%lld]", (long long)number));
}

namespace {

// Returns where a caller learns how large a buffer must be.
const char* size_hint(std::string_view buffer) {
    if (buffer == "amax" || buffer == "decode_scale") return "ask mxq_tensor_required_amax_bytes";
    if (buffer == "quantization_scale") return "it has one number, or with MXQ_SCOPE_EXPERT one for each expert or group";
    if (buffer == "starts" || buffer == "ends") return "it has one integer for each group";
    if (buffer == "memory") return "ask mxq_routing_required_bytes";
    return "ask mxq_tensor_required_bytes";
}

// Returns " for ..." where a buffer has gaps, whose size the caller may have given in other units.
std::string text_of_rows(const Buffers::Rows& rows) {
    if (rows.stride == rows.width || rows.stride == 0) return "";
    return format_text(" for rows of %llu bytes every %llu", (unsigned long long)rows.width,
                       (unsigned long long)rows.stride);
}

}  // namespace

void Buffers::add(const BufferName& name, const Buffer& buffer, uint64_t need, uint64_t alignment, Access access,
                  const char* setter, const Rows& rows) {
    if (need == 0) return;
    if (!buffer.pointer) {
        if (check_ == Check::Query) return;
        fail(MXQ_STATUS_MISSING_BUFFER, "%s is NULL, expected %llu bytes; set it with %s", name.text().c_str(),
             (unsigned long long)need, setter);
    }
    if (buffer.bytes < need)
        fail(MXQ_STATUS_BUFFER_TOO_SMALL, "%s holds %llu bytes, expected at least %llu%s; %s", name.text().c_str(),
             (unsigned long long)buffer.bytes, (unsigned long long)need, text_of_rows(rows).c_str(), size_hint(name.buffer));
    keep(range_of(name, buffer.pointer, need, alignment, access, rows));
}

Buffers::Range Buffers::range_of(const BufferName& name, const void* pointer, uint64_t need, uint64_t alignment, Access access,
                                 const Rows& rows) {
    const auto begin = reinterpret_cast<uintptr_t>(pointer);
    if (begin % alignment != 0)
        fail(MXQ_STATUS_MISALIGNED, "%s is at %p, expected a multiple of %llu bytes, the size of %s; move it%s",
             name.text().c_str(), pointer, (unsigned long long)alignment, name.is_array ? "an address" : "its elements",
             name.is_array ? "" : ", or check its format");
    if (begin + need < begin)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s is at %p with %llu bytes, which runs past the end of the address space; check the pointer",
             name.text().c_str(), pointer, (unsigned long long)need);
    return {name, begin, begin + need, access, rows};
}

void Buffers::add_list(const BufferName& name, const Buffer& array, int64_t count, uint64_t need, uint64_t alignment,
                       const char* setter, const Rows& rows) {
    if (need == 0 || count == 0) return;
    BufferName of_array = name;
    of_array.is_array = true;
    add_read(of_array, array.pointer, uint64_t(count) * sizeof(void*), sizeof(void*), setter);
    if (array.pointer && array.bytes < need)
        fail(MXQ_STATUS_BUFFER_TOO_SMALL, "%s holds %llu bytes at each address, expected at least %llu%s; %s",
             name.text().c_str(), (unsigned long long)array.bytes, (unsigned long long)need, text_of_rows(rows).c_str(),
             size_hint(name.buffer));
    if (!array.pointer || !can_read()) return;
    List list{name, static_cast<const void* const*>(array.pointer), count, need, rows};
    for (int64_t i = 0; i < count; i++) {
        if (!list.addresses[i])
            fail(MXQ_STATUS_MISSING_BUFFER, "%s is NULL, expected the address of %llu bytes; write it to the array that %s got",
                 list.name_of(i).text().c_str(), (unsigned long long)need, setter);
        range_of(list.name_of(i), list.addresses[i], need, alignment, Access::Read, rows);
    }
    if (list_count_ == kMostLists) fail(MXQ_STATUS_INTERNAL_ERROR, "a call has more than %zu lists", kMostLists);
    lists_[list_count_++] = list;
}

void Buffers::keep(const Range& range) {
    if (count_ == kMost) fail(MXQ_STATUS_INTERNAL_ERROR, "a call has more than %zu buffers", kMost);
    ranges_[count_++] = range;
}

bool Buffers::overlap(const Range& a, const Range& b) {
    if (a.begin >= b.end || b.begin >= a.end) return false;
    if (a.rows.stride == 0 || a.rows.stride != b.rows.stride) return true;
    const Range &first = a.begin <= b.begin ? a : b, &second = a.begin <= b.begin ? b : a;
    // The rows of the second are apart from those of the first where each fits into a gap.
    const uint64_t offset = (second.begin - first.begin) % a.rows.stride;
    return offset < first.rows.width || offset + second.rows.width > a.rows.stride;
}

void Buffers::refuse_overlap(const Range& written, const Range& other) {
    fail(MXQ_STATUS_INVALID_ARGUMENT, "%s overlaps %s; give them memory of their own", written.name.text().c_str(),
         other.name.text().c_str());
}

void Buffers::check_overlaps_with_list(const Range& written, const List& list) const {
    for (int64_t i = 0; i < list.count; i++) {
        const Range read = range_of(list.name_of(i), list.addresses[i], list.bytes, 1, Access::Read, list.rows);
        if (overlap(written, read)) refuse_overlap(written, read);
    }
}

void Buffers::check_overlaps() const {
    for (const Range& written : ranges()) {
        if (written.access != Access::Write) continue;
        for (size_t i = 0; i < list_count_; i++) check_overlaps_with_list(written, lists_[i]);
        for (const Range& other : ranges())
            if (&written != &other && overlap(written, other)) refuse_overlap(written, other);
    }
}

}  // namespace mxq
