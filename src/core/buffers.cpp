#include "core/buffers.h"

#include "core/error.h"

namespace mxq {

void Buffers::add(const std::string& name, const void* pointer, uint64_t have, uint64_t need, uint64_t alignment,
                  Access access, const char* setter) {
    if (need == 0) return;
    if (!pointer) {
        if (check_ == Check::Query) return;
        fail(MXQ_STATUS_MISSING_BUFFER, "%s is NULL, expected %llu bytes; set it with %s", name.c_str(),
             (unsigned long long)need, setter);
    }
    if (have < need)
        fail(MXQ_STATUS_BUFFER_TOO_SMALL, "%s holds %llu bytes, expected at least %llu; ask mxq_tensor_required_bytes",
             name.c_str(), (unsigned long long)have, (unsigned long long)need);
    const auto begin = reinterpret_cast<uintptr_t>(pointer);
    if (begin % alignment != 0)
        fail(MXQ_STATUS_MISALIGNED,
             "%s is at %p, expected a multiple of %llu bytes, the size of its elements; move it, or check its format",
             name.c_str(), pointer, (unsigned long long)alignment);
    if (begin + need < begin)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s is at %p with %llu bytes, which runs past the end of the address space; check the pointer", name.c_str(),
             pointer, (unsigned long long)need);
    ranges_.push_back({name, begin, begin + need, access});
}

void Buffers::check_overlaps() const {
    for (const Range& written : ranges_)
        for (const Range& other : ranges_)
            if (&written != &other && written.access == Access::Write && written.begin < other.end &&
                other.begin < written.end)
                fail(MXQ_STATUS_INVALID_ARGUMENT, "%s overlaps %s; give them memory of their own", written.name.c_str(),
                     other.name.c_str());
}

}  // namespace mxq
