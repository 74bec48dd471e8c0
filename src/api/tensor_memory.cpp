// How much memory a tensor takes, and all of it in one block.
#include "api/guard.h"
#include "api/take.h"
#include "core/tensor.h"
#include "core/views.h"

using namespace mxq;

namespace {

bool has_amax(const mxq_tensor& tensor) { return tensor.format->is_nvfp4() || tensor.format->is_fp8(); }

struct PartBytes {
    uint64_t codes, scales, amax;  // the last for a format that has one
};

PartBytes plain_bytes(const mxq_tensor& tensor, int32_t part) {
    if (part != MXQ_PART_ROWWISE)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "the part is %s, expected MXQ_PART_ROWWISE for %s",
             part == MXQ_PART_BOTH ? "MXQ_PART_BOTH" : "MXQ_PART_COLUMNWISE", tensor.format->name);
    const int64_t bytes = tensor.data_bytes();
    if (bytes < 0)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "tensor has row stride %lld, with which it is 2^63 bytes or more; use a smaller row stride",
             (long long)tensor.row_stride);
    return {uint64_t(bytes), 0, 0};
}

PartBytes required_bytes(const mxq_tensor& tensor, int32_t part) {
    if (!tensor.format->quantized()) return plain_bytes(tensor, part);
    require_storage(tensor, part, "tensor");
    const Storage storage = tensor.storage(part);
    return {uint64_t(storage.code_bytes), uint64_t(storage.scale_bytes()), uint64_t(storage.amax_count) * sizeof(float)};
}

// Returns the bytes of what a block of memory has of a part: an amax only where a verb needs one.
PartBytes block_bytes(const mxq_tensor& tensor, int32_t part) {
    mxq_tensor in_one_piece = tensor;
    in_one_piece.rowwise.listed = in_one_piece.columnwise.listed = false;
    PartBytes bytes = required_bytes(in_one_piece, part);
    const bool needs_amax = tensor.format->is_nvfp4() && tensor.experts > 0 && !tensor.part(part).decode_scale.pointer;
    if (!needs_amax) bytes.amax = 0;
    return bytes;
}

// Calls visit(part, bytes) for each of the parts, in the order in which they lie in a block.
template <class Visit>
void for_each_part(const mxq_tensor& tensor, int32_t parts, const Visit& visit) {
    if (!tensor.format->quantized()) return visit(parts, block_bytes(tensor, parts));
    for (const int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (parts & part) visit(part, block_bytes(tensor, part));
}

uint64_t total_bytes(const mxq_tensor& tensor, int32_t parts) {
    uint64_t total = 0;
    for_each_part(tensor, parts, [&](int32_t, const PartBytes& bytes) {
        total += aligned_bytes(bytes.codes) + aligned_bytes(bytes.scales) + aligned_bytes(bytes.amax);
    });
    return total;
}

void require_parts(int32_t parts) {
    if (parts < MXQ_PART_ROWWISE || parts > MXQ_PART_BOTH)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "parts is %d, expected MXQ_PART_ROWWISE (1), MXQ_PART_COLUMNWISE (2) or MXQ_PART_BOTH (3)", parts);
}

}  // namespace

mxq_status mxq_tensor_required_bytes(const mxq_tensor* tensor, int32_t part, uint64_t* code_bytes, uint64_t* scale_bytes) {
    return with(tensor, [&](auto& t) {
        require_part(part);
        const PartBytes bytes = required_bytes(t, part);
        if (code_bytes) *code_bytes = bytes.codes;
        if (scale_bytes) *scale_bytes = bytes.scales;
    });
}

mxq_status mxq_tensor_required_amax_bytes(const mxq_tensor* tensor, int32_t part, uint64_t* bytes) {
    return with(tensor, [&](auto& t) {
        require_part(part);
        require_output(bytes, "bytes");
        *bytes = has_amax(t) ? required_bytes(t, part).amax : 0;
    });
}

mxq_status mxq_tensor_total_bytes(const mxq_tensor* tensor, int32_t parts, uint64_t* bytes) {
    return with(tensor, [&](auto& t) {
        require_parts(parts);
        require_output(bytes, "bytes");
        *bytes = total_bytes(t, parts);
    });
}

mxq_status mxq_tensor_set_memory(mxq_tensor* tensor, int32_t parts, void* memory, uint64_t bytes) {
    return with(tensor, [&](auto& t) {
        require_parts(parts);
        const uint64_t need = total_bytes(t, parts);
        if (!memory && need > 0)
            fail(MXQ_STATUS_MISSING_BUFFER, "memory is NULL, expected %llu bytes; ask mxq_tensor_total_bytes",
                 (unsigned long long)need);
        require_block(memory, bytes, need, "mxq_tensor_total_bytes");
        auto* next = static_cast<uint8_t*>(memory);
        const auto take = [&](uint64_t size) {
            const Buffer buffer{size == 0 ? nullptr : next, size};
            next += aligned_bytes(size);
            return buffer;
        };
        for_each_part(t, parts, [&](int32_t part, const PartBytes& of_part) {
            Part& target = t.part(part);
            const Buffer codes = take(of_part.codes);
            target.declare(codes, take(of_part.scales), false, false);
            if (t.format->is_nvfp4()) target.amax = take(of_part.amax);
        });
    });
}
