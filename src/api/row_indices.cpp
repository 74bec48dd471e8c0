// Rows of a plain tensor by index, and the rows and groups of a routing.
#include "api/guard.h"
#include "api/put.h"
#include "api/take.h"
#include "core/routing.h"
#include "core/strides.h"
#include "core/views.h"

using namespace mxq;

namespace {

// Requires a plain matrix, whose rows may be given by index.
void require_plain_matrix(const mxq_tensor_s& tensor) {
    if (tensor.format->quantized())
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "tensor is %s, expected f32, f16 or bf16, whose rows may be given by index; gather rows before they are "
             "quantized",
             tensor.format->name);
    if (tensor.is_3d) fail(MXQ_STATUS_INVALID_ARGUMENT, "tensor has 3 dimensions, expected 2; call mxq_tensor_create_2d");
}

RowIndices indices_of(const mxq_tensor_s& tensor, const void* indices, uint64_t bytes, int32_t type, int64_t source_rows) {
    require_type(type, "type");
    if (source_rows < 0 || source_rows > MXQ_MAX_DIM)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "source_rows is %lld, expected 0 to %d", (long long)source_rows, MXQ_MAX_DIM);
    const RowIndices by{indices, type, source_rows, true};
    const uint64_t need = uint64_t(tensor.rows * by.index_bytes());
    buffer_of(indices, bytes, "indices");
    if (indices && bytes != need)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "bytes is %llu, expected exactly %llu: one number for each of %lld rows; check the type",
             (unsigned long long)bytes, (unsigned long long)need, (long long)tensor.rows);
    return by;
}

const mxq_routing_s& require_rows_of(const mxq_tensor_s& tensor, const mxq_routing* routing) {
    require_handle(routing, "routing");
    if (tensor.is_3d || tensor.rows != routing->rows())
        fail(MXQ_STATUS_SHAPE_MISMATCH, "tensor is %s, expected %lld rows, one for each choice of each token; create it so",
             shape_text(tensor).c_str(), (long long)routing->rows());
    return *routing;
}

void set_groups(mxq_tensor_s& tensor, const mxq_routing_s& routing) {
    tensor.groups = {routing.arrays().ends.pointer, MXQ_TYPE_INT32, routing.local_experts(), true, tensor.groups.cover_rows};
    tensor.host_ends = nullptr;  // they belong to the groups that were set before
}

}  // namespace

mxq_status mxq_tensor_set_row_indices(mxq_tensor* tensor, const void* indices, uint64_t bytes, int32_t type,
                                      int64_t source_rows) {
    return with(tensor, [&](auto& t) {
        require_plain_matrix(t);
        const bool clears = !indices && bytes == 0 && type == 0 && source_rows == 0;
        t.row_indices = clears ? RowIndices{} : indices_of(t, indices, bytes, type, source_rows);
    });
}

mxq_status mxq_tensor_get_row_indices(const mxq_tensor* tensor, const void** indices, uint64_t* bytes, int32_t* type,
                                      int64_t* source_rows) {
    return with(tensor, [&](auto& t) {
        const RowIndices& by = t.row_indices;
        put(indices, by.indices);
        put(bytes, by.indices ? t.rows * by.index_bytes() : 0);
        put(type, by.type);
        put(source_rows, by.source_rows);
    });
}

mxq_status mxq_tensor_set_routing_rows(mxq_tensor* tensor, const mxq_routing* routing) {
    return with(tensor, [&](auto& t) {
        require_plain_matrix(t);
        const mxq_routing_s& r = require_rows_of(t, routing);
        t.row_indices = {r.arrays().row_tokens.pointer, MXQ_TYPE_INT32, r.tokens, true};
        set_groups(t, r);
    });
}

mxq_status mxq_tensor_set_routing_groups(mxq_tensor* tensor, const mxq_routing* routing) {
    return change(tensor, [&](auto& t) {
        set_groups(t, require_rows_of(t, routing));
        require_strides(t);
    });
}
