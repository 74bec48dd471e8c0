// Descriptors with wild numbers and addresses. Setters, getters, sizes and queries read no memory of the caller, so that no
// address here leads anywhere.
#include "check.h"
#include "targets.h"

namespace fuzz {

namespace {

void* wild_address(Input& in) {
    const uint8_t byte = in.byte();
    if (byte % 4 == 0) return nullptr;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing is read there.
    return reinterpret_cast<void*>(
        static_cast<uintptr_t>(byte < 128 ? uint64_t{byte} << 20 : static_cast<uint64_t>(in.wild())));
}
uint64_t wild_bytes(Input& in) { return static_cast<uint64_t>(in.wild()); }
template <class T>
T* wild_array(Input& in) {
    return static_cast<T*>(wild_address(in));
}
using List = const void* const;

void set_wildly(Input& in, mxq_tensor* tensor) {
    const int32_t part = in.seldom(8) ? in.wild32() : 1 + in.below(3);
    switch (in.below(22)) {
        case 0: mxq_tensor_set_scaling(tensor, in.seldom(8) ? in.wild32() : in.below(9)); break;
        case 1: mxq_tensor_set_swizzled(tensor, in.below(3)); break;
        case 2: mxq_tensor_set_row_stride(tensor, in.wild()); break;
        case 3: mxq_tensor_set_data(tensor, wild_address(in), wild_bytes(in)); break;
        case 4: mxq_tensor_set_const_data(tensor, wild_address(in), wild_bytes(in)); break;
        case 5: mxq_tensor_set_data_list(tensor, in.wild(), wild_array<List>(in), wild_bytes(in)); break;
        case 6:
        case 7: mxq_tensor_set_part(tensor, part, wild_address(in), wild_bytes(in), wild_address(in), wild_bytes(in)); break;
        case 8:
            mxq_tensor_set_const_part(tensor, part, wild_address(in), wild_bytes(in), wild_address(in), wild_bytes(in));
            break;
        case 9:
            mxq_tensor_set_part_list(tensor, part, in.wild(), wild_array<List>(in), wild_bytes(in), wild_array<List>(in),
                                     wild_bytes(in));
            break;
        case 10: mxq_tensor_set_strides(tensor, part, in.wild(), in.wild(), in.wild(), in.wild()); break;
        case 11: mxq_tensor_set_memory(tensor, part, wild_address(in), wild_bytes(in)); break;
        case 12: mxq_tensor_clear_part(tensor, part); break;
        case 13: {
            const int32_t count = in.wild32();
            const mxq_type type = in.below(4);
            const uint64_t bytes =
                in.seldom(8) ? wild_bytes(in) : static_cast<uint64_t>(count) * (type == MXQ_TYPE_INT64 ? 8 : 4);
            mxq_tensor_set_groups(tensor, wild_address(in), bytes, type, count);
            break;
        }
        case 14: mxq_tensor_set_group_alignment(tensor, in.wild32(), in.wild32()); break;
        case 15:
            mxq_tensor_set_padded_groups(tensor, part, wild_address(in), wild_bytes(in), wild_address(in), wild_bytes(in));
            break;
        case 16: mxq_tensor_set_amax(tensor, part, wild_array<float>(in), wild_bytes(in)); break;
        case 17: mxq_tensor_set_decode_scale(tensor, part, wild_array<float>(in), wild_bytes(in)); break;
        case 18: mxq_tensor_set_quantization_scale(tensor, wild_array<float>(in), wild_bytes(in)); break;
        case 19: mxq_tensor_set_scope(tensor, in.below(4)); break;
        case 20: mxq_tensor_set_hadamard(tensor, part, in.below(3), in.wild32()); break;
        case 21: mxq_tensor_set_row_indices(tensor, wild_address(in), wild_bytes(in), in.below(4), in.wild()); break;
    }
}

Tensor make_wild(Input& in) {
    mxq_tensor* made = nullptr;
    const int32_t format = in.seldom(16) ? in.wild32() : 1 + in.below(11);
    const int64_t rows = in.wild(), cols = in.wild();
    if (in.below(2))
        mxq_tensor_create_2d(format, rows, cols, &made);
    else
        mxq_tensor_create_3d(format, in.wild(), rows, cols, &made);
    for (int32_t left = in.below(12); left > 0 && made; --left) set_wildly(in, made);
    return Tensor(made);
}

// A size that succeeds is one that 63 bits hold, and the whole is at least its parts.
void ask_sizes(const mxq_tensor* tensor) {
    for (const mxq_part part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        uint64_t codes = 0, scales = 0, amax = 0, total = 0;
        mxq_tensor_required_amax_bytes(tensor, part, &amax);
        if (mxq_tensor_required_bytes(tensor, part, &codes, &scales) != MXQ_STATUS_OK) continue;
        require(codes <= INT64_MAX && scales <= INT64_MAX, "sizes", "mxq_tensor_required_bytes overflows");
        uint64_t count_of_list = 0;
        int64_t listed = 0;
        mxq_tensor_get_part_list(tensor, part, &listed, nullptr, &count_of_list, nullptr, nullptr);
        mxq_tensor_get_data_list(tensor, &listed, nullptr, nullptr);
        if (mxq_tensor_total_bytes(tensor, part, &total) == MXQ_STATUS_OK && listed == 0)
            require(total % 256 == 0 && total >= codes && total >= scales, "sizes",
                    "mxq_tensor_total_bytes is less than a part");
    }
}

void describe(Input& in, const mxq_tensor* tensor) {
    char text[64];
    const uint64_t size = in.byte() % (sizeof text + 1);
    std::memset(text, '#', sizeof text);
    const uint64_t length = mxq_tensor_describe(tensor, text, size);
    for (uint64_t i = size; i < sizeof text; ++i)
        require(text[i] == '#', "mxq_tensor_describe", "it writes behind the buffer");
    if (size > 0)
        require(std::strlen(text) == (length < size ? length : size - 1), "mxq_tensor_describe", "it tells another length");
}

void get_everything(const mxq_tensor* tensor) {
    int64_t count = 0, rows = 0, cols = 0, strides[4];
    int32_t a = 0, b = 0;
    uint64_t bytes = 0, more = 0;
    void *first = nullptr, *second = nullptr;
    const void* constant = nullptr;
    const void* const* list = nullptr;
    mxq_tensor_get_shape(tensor, &a, &count, &rows, &cols);
    mxq_tensor_get_data(tensor, &first, &bytes, &a);
    mxq_tensor_get_data_list(tensor, &count, &list, &bytes);
    mxq_tensor_get_groups(tensor, &constant, &bytes, &a, &b);
    mxq_tensor_get_host_ends(tensor, &constant, &bytes);
    mxq_tensor_get_group_alignment(tensor, &a, &b);
    mxq_tensor_get_row_indices(tensor, &constant, &bytes, &a, &count);
    for (const mxq_part part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE, MXQ_PART_BOTH, 0}) {
        mxq_tensor_get_part(tensor, part, &a, &first, &bytes, &second, &more, &b);
        mxq_tensor_get_part_list(tensor, part, &count, &list, &bytes, &list, &more);
        mxq_tensor_get_strides(tensor, part, strides, strides + 1, strides + 2, strides + 3);
        mxq_tensor_get_padded_groups(tensor, part, &first, &bytes, &second, &more);
        mxq_tensor_get_hadamard(tensor, part, &a, &b);
    }
}

void query_everything(mxq_context* context, const mxq_tensor* a, const mxq_tensor* b, const mxq_tensor* c) {
    mxq_plan* plan = nullptr;
    const auto end = [&](mxq_status status) {
        require((status == MXQ_STATUS_OK) == (plan != nullptr), "a query", "it has a plan if and only if it succeeds");
        require(status != MXQ_STATUS_INTERNAL_ERROR && status != MXQ_STATUS_OUT_OF_MEMORY, "a query", mxq_last_error());
        mxq_plan_destroy(plan);
    };
    for (const auto query :
         {mxq_quantize_query, mxq_requantize_query, mxq_amax_query, mxq_dequantize_query, mxq_convert_query,
          mxq_pad_groups_query, mxq_unpad_groups_query, mxq_swizzle_scales_query, mxq_unswizzle_scales_query})
        end(query(context, nullptr, a, b, &plan));
    end(mxq_activate_query(context, nullptr, a, b, &plan));
    end(mxq_activate_backward_query(context, nullptr, a, b, c, &plan));
    end(mxq_gemm_query(context, nullptr, a, b, c, &plan));
    end(mxq_grouped_gemm_query(context, nullptr, a, b, c, &plan));
}

Routing make_wild_routing(Input& in) {
    mxq_routing* made = nullptr;
    mxq_routing_create(in.wild(), in.wild32(), in.wild32(), &made);
    for (int32_t left = in.below(6); left > 0 && made; --left) {
        switch (in.below(5)) {
            case 0: mxq_routing_set_ids(made, wild_address(in), wild_bytes(in), in.below(4)); break;
            case 1: mxq_routing_set_weights(made, in.below(5), wild_address(in), wild_bytes(in)); break;
            case 2: mxq_routing_set_local_experts(made, in.wild32(), in.wild32()); break;
            case 3: mxq_routing_set_memory(made, wild_address(in), wild_bytes(in)); break;
            case 4: mxq_routing_set_dropped(made, wild_array<int32_t>(in), wild_bytes(in)); break;
        }
    }
    return Routing(made);
}

}  // namespace

void descriptors(Input& in) {
    mxq_context* const context = contexts()[0];
    const Tensor a = make_wild(in), b = make_wild(in), c = make_wild(in);
    for (const Tensor* tensor : {&a, &b, &c}) {
        ask_sizes(tensor->get());
        describe(in, tensor->get());
        get_everything(tensor->get());
    }
    query_everything(context, a.get(), b.get(), c.get());
    const Routing routing = make_wild_routing(in);
    uint64_t bytes = 0;
    mxq_routing_required_bytes(routing.get(), &bytes);
    mxq_route_query(context, nullptr, routing.get(), nullptr);
    mxq_combine_query(context, nullptr, routing.get(), a.get(), nullptr, b.get(), nullptr);
    mxq_expert_layer_query(context, nullptr, a.get(), routing.get(), b.get(), c.get(), a.get(), nullptr);
    if (a && routing) {
        mxq_tensor_set_routing_rows(a.get(), routing.get());
        mxq_tensor_set_routing_groups(a.get(), routing.get());
        ask_sizes(a.get());
        describe(in, a.get());
    }
}

}  // namespace fuzz
