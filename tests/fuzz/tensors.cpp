#include "tensors.h"

#include <iterator>

namespace fuzz {

int64_t Scene::size() {
    constexpr int64_t sizes[] = {1, 2, 3, 8, 16, 17, 31, 32, 33, 48, 64, 65, 96, 127, 128, 129};
    const uint8_t byte = in.byte();
    if (byte < 64) return byte;
    if (byte < 250) return sizes[byte % std::size(sizes)];
    return byte == 255 ? in.wild() : 260;
}

void Scene::draw_groups(int64_t rows) {
    groups = in.below(5);
    type = in.seldom(8) ? in.below(4) : 1 + in.below(2);
    if (groups > 0) ends = make_ends(*this, rows);
}

namespace {

uint64_t bytes_of(mxq_type type) { return type == MXQ_TYPE_INT64 ? 8 : 4; }

void put(const Buffer& buffer, int64_t index, mxq_type type, int64_t value) {
    if (!buffer.address) return;
    const auto narrow = static_cast<int32_t>(value);
    std::memcpy(buffer.address + static_cast<uint64_t>(index) * bytes_of(type),
                type == MXQ_TYPE_INT64 ? static_cast<void*>(&value) : const_cast<int32_t*>(&narrow), bytes_of(type));
}

}  // namespace

Buffer make_ends(Scene& scene, int64_t rows) {
    const Buffer ends = scene.memory.take(static_cast<uint64_t>(scene.groups) * bytes_of(scene.type), false);
    int64_t end = 0;
    for (int32_t g = 0; g < scene.groups; ++g) {
        const uint8_t step = scene.in.byte();
        // Without signs, since `rows` may be the largest number that there is.
        end = end < 0 || end > rows ? rows : static_cast<int64_t>(static_cast<uint64_t>(end) + step % 40);
        if (step < 200 && end > rows) end = rows;
        if (step > 252) end = scene.in.wild();
        if (step % 8 == 7 && g + 1 == scene.groups) end = rows;
        put(ends, g, scene.type, end);
    }
    return ends;
}

Buffer make_integers(Scene& scene, int64_t count, mxq_type type, int64_t limit) {
    if (count < 0 || count > 65536) return {};
    const Buffer buffer = scene.memory.take(static_cast<uint64_t>(count) * bytes_of(type), false);
    const uint8_t kind = scene.in.byte();
    uint32_t state = kind;
    for (int64_t i = 0; i < count; ++i) {
        state = state * 1664525u + 1013904223u;
        put(buffer, i, type, limit > 0 ? static_cast<int64_t>(state >> 8) % limit : -1);
    }
    for (int32_t wrong = kind % 4; wrong > 0 && count > 0; --wrong) {
        const int64_t value = scene.in.seldom(4) ? scene.in.wild() : -1;
        put(buffer, scene.in.byte() % count, type, value);
    }
    return buffer;
}

Buffer make_factors(Scene& scene, uint64_t bytes, bool may_be_written) {
    const Buffer buffer = scene.memory.take(bytes, may_be_written);
    for (uint64_t i = 0; i + 4 <= buffer.bytes; i += 4) {
        const float value = 0.5f + static_cast<float>(i % 7);
        std::memcpy(buffer.address + i, &value, 4);
    }
    if (scene.in.seldom(8) && buffer.bytes >= 4) {
        const float value = scene.in.wild_float();
        std::memcpy(buffer.address, &value, 4);
    }
    return buffer;
}

namespace {

mxq_part draw_part(Input& in) { return in.seldom(16) ? in.below(6) : 1 + in.below(2); }

void set_strides(Scene& scene, mxq_tensor* tensor) {
    const mxq_part part = draw_part(scene.in);
    int64_t strides[4];
    for (auto& stride : strides)
        stride = scene.in.seldom(16) ? scene.in.wild() : scene.in.byte() * (scene.in.below(2) ? 4 : 1);
    mxq_tensor_set_strides(tensor, part, strides[0], strides[1], strides[2], strides[3]);
}

void set_row_indices(Scene& scene, mxq_tensor* tensor, const Shape& shape) {
    const mxq_type type = 1 + scene.in.below(2);
    const int64_t source = scene.in.seldom(16) ? scene.in.wild() : scene.in.below(40);
    const Buffer indices = make_integers(scene, shape.rows, type, source);
    mxq_tensor_set_row_indices(tensor, indices.address, indices.bytes, type, source);
}

void set_padded_groups(Scene& scene, mxq_tensor* tensor, Use use) {
    const uint64_t bytes = static_cast<uint64_t>(scene.groups) * bytes_of(scene.type) + scene.in.seldom(8) * 4u;
    const Buffer starts = scene.memory.take(bytes, use == Use::written),
                 ends = scene.memory.take(bytes, use == Use::written);
    mxq_tensor_set_padded_groups(tensor, draw_part(scene.in), starts.address, starts.bytes, ends.address, ends.bytes);
}

void set_amax(Scene& scene, mxq_tensor* tensor, mxq_part part, Use use) {
    uint64_t bytes = 0;
    mxq_tensor_required_amax_bytes(tensor, part, &bytes);
    const Buffer amax = make_factors(scene, bytes - (scene.in.seldom(16) && bytes ? 1 : 0), use == Use::written);
    mxq_tensor_set_amax(tensor, part, reinterpret_cast<float*>(amax.address), amax.bytes);
}

}  // namespace

void set_something(Scene& scene, mxq_tensor* tensor, Use use, const Shape& shape) {
    Input& in = scene.in;
    switch (in.below(17)) {
        case 0: mxq_tensor_set_scaling(tensor, in.below(10)); break;
        case 1: mxq_tensor_set_swizzled(tensor, in.seldom(8) ? in.wild32() : 1); break;
        case 2:
            mxq_tensor_set_row_stride(tensor, in.seldom(16) || shape.cols > 65536 ? in.wild() : shape.cols + in.below(20));
            break;
        case 3: {
            const Buffer ends = in.seldom(8) ? make_ends(scene, shape.rows) : scene.ends;
            mxq_tensor_set_groups(tensor, ends.address, ends.bytes, scene.type, scene.groups);
            break;
        }
        case 4: mxq_tensor_set_group_alignment(tensor, 1 << in.below(9), in.seldom(3) ? 1 << in.below(9) : 0); break;
        case 5: mxq_tensor_set_groups_cover_rows(tensor, in.below(3)); break;
        case 6: mxq_tensor_set_scale_max(tensor, in.seldom(4) ? in.wild32() : in.below(2) ? 448 : 256); break;
        case 7: mxq_tensor_set_hadamard(tensor, draw_part(in), in.below(2), in.seldom(4) ? in.wild32() : 0xD7E8); break;
        case 8: mxq_tensor_set_scope(tensor, in.below(4)); break;
        case 9: mxq_tensor_clear_part(tensor, draw_part(in)); break;
        case 10: set_strides(scene, tensor); break;
        case 11: mxq_tensor_set_host_ends(tensor, scene.ends.address, scene.ends.bytes); break;
        case 12: set_row_indices(scene, tensor, shape); break;
        case 13:
        case 14: {
            const int64_t many = in.below(2) ? 1 : shape.experts ? shape.experts : scene.groups;
            const Buffer factors = make_factors(scene, many > 0 && many < 64 ? static_cast<uint64_t>(many) * 4 : 4, false);
            const auto* const scale = reinterpret_cast<const float*>(factors.address);
            if (in.below(2))
                mxq_tensor_set_quantization_scale(tensor, scale, factors.bytes);
            else
                mxq_tensor_set_decode_scale(tensor, draw_part(in), scale, factors.bytes);
            break;
        }
        case 15: set_padded_groups(scene, tensor, use); break;
        case 16: set_amax(scene, tensor, draw_part(in), use); break;
    }
}

namespace {

enum class Given { exact, constant, list, too_short, unaligned, shared, nothing, more };

Given draw_given(Input& in) {
    const uint8_t byte = in.byte();
    if (byte < 176) return Given::exact;
    return static_cast<Given>(byte % 8);
}

// Takes the bytes that a query named, or what a wrong caller would.
Buffer take_as(Scene& scene, Given given, uint64_t bytes, Use use) {
    const auto seed = static_cast<uint32_t>(scene.in.byte());
    if (given == Given::shared && !scene.memory.empty()) return scene.memory.share(scene.in.byte(), use == Use::written);
    if (given == Given::too_short && bytes > 0) --bytes;
    if (given == Given::more) bytes += 5;
    return scene.memory.take(bytes, use == Use::written, 16, given == Given::unaligned ? 1 + seed % 15 : 0, seed);
}

// Makes an array of addresses, each of as many bytes.
Buffer take_list(Scene& scene, int64_t count, uint64_t bytes) {
    if (count < 0 || count > 16) return {};
    Buffer list = scene.memory.take(static_cast<uint64_t>(count) * sizeof(void*), false);
    for (int64_t i = 0; i < count && list.address; ++i) {
        const Buffer one = scene.memory.take(bytes, false, 16, 0, static_cast<uint32_t>(i + 1));
        std::memcpy(list.address + static_cast<uint64_t>(i) * sizeof(void*), &one.address, sizeof(void*));
        if (!one.address && bytes > 0) list = {};
    }
    return list;
}

void give_data(Scene& scene, mxq_tensor* tensor, Use use, int64_t experts) {
    const Given given = draw_given(scene.in);
    uint64_t bytes = 0;
    if (given == Given::nothing) return;
    if (given == Given::list) {
        mxq_tensor_set_data_list(tensor, experts, nullptr, 0);
        mxq_tensor_required_bytes(tensor, MXQ_PART_ROWWISE, &bytes, nullptr);
        const Buffer list = take_list(scene, experts, bytes);
        mxq_tensor_set_data_list(tensor, experts, reinterpret_cast<const void* const*>(list.address),
                                 list.address ? bytes : 0);
        return;
    }
    mxq_tensor_required_bytes(tensor, MXQ_PART_ROWWISE, &bytes, nullptr);
    const Buffer data = take_as(scene, given, bytes, use);
    if (given == Given::constant)
        mxq_tensor_set_const_data(tensor, data.address, data.bytes);
    else
        mxq_tensor_set_data(tensor, data.address, data.bytes);
}

void give_part(Scene& scene, mxq_tensor* tensor, mxq_part part, Use use, int64_t experts) {
    const Given given = draw_given(scene.in);
    uint64_t code_bytes = 0, scale_bytes = 0;
    if (given == Given::list) {
        mxq_tensor_set_part_list(tensor, part, experts, nullptr, 0, nullptr, 0);
        mxq_tensor_required_bytes(tensor, part, &code_bytes, &scale_bytes);
        const Buffer codes = take_list(scene, experts, code_bytes), scales = take_list(scene, experts, scale_bytes);
        if (!codes.address || !scales.address) return;
        mxq_tensor_set_part_list(tensor, part, experts, reinterpret_cast<const void* const*>(codes.address), code_bytes,
                                 reinterpret_cast<const void* const*>(scales.address), scale_bytes);
        return;
    }
    if (given == Given::nothing) {
        mxq_tensor_set_part(tensor, part, nullptr, 0, nullptr, 0);
        return;
    }
    mxq_tensor_required_bytes(tensor, part, &code_bytes, &scale_bytes);
    const Buffer codes = take_as(scene, given, code_bytes, use), scales = take_as(scene, given, scale_bytes, use);
    if (given == Given::constant)
        mxq_tensor_set_const_part(tensor, part, codes.address, codes.bytes, scales.address, scales.bytes);
    else
        mxq_tensor_set_part(tensor, part, codes.address, codes.bytes, scales.address, scales.bytes);
}

void give_block(Scene& scene, mxq_tensor* tensor, mxq_part parts, Use use) {
    uint64_t bytes = 0;
    mxq_tensor_total_bytes(tensor, parts, &bytes);
    const Buffer block = scene.memory.take(bytes, use == Use::written, 256, scene.in.seldom(16) ? 16 : 0, scene.in.byte());
    mxq_tensor_set_memory(tensor, parts, block.address, block.bytes);
}

}  // namespace

mxq_format draw_format(Input& in, Role role) {
    const uint8_t byte = in.byte();
    if (byte >= 248) return byte == 255 ? in.wild32() : byte - 248;
    if (role == Role::plain) return MXQ_FORMAT_F32 + byte % 3;
    if (role == Role::quantized) return MXQ_FORMAT_MXFP8_E4M3 + byte % 8;
    return MXQ_FORMAT_F32 + byte % 11;
}

Tensor make_tensor(Scene& scene, Role role, Use use, Shape shape, const Like& like) {
    Input& in = scene.in;
    const mxq_format format = like.format && !in.seldom(32) ? like.format : draw_format(in, role);
    if (in.seldom(32)) shape.rows = scene.size();
    if (in.seldom(32)) shape.cols = scene.size();
    if (in.seldom(32)) shape.experts = in.below(4);
    mxq_tensor* made = nullptr;
    const mxq_status status = shape.experts ? mxq_tensor_create_3d(format, shape.experts, shape.rows, shape.cols, &made)
                                            : mxq_tensor_create_2d(format, shape.rows, shape.cols, &made);
    require((status == MXQ_STATUS_OK) == (made != nullptr), "a tensor that was refused is NULL");
    Tensor tensor(made);
    if (!tensor) return tensor;
    int64_t quantized = 0;
    mxq_format_property(format, MXQ_PROPERTY_QUANTIZED, &quantized);
    if (scene.groups > 0 && !in.seldom(8))
        mxq_tensor_set_groups(made, scene.ends.address, scene.ends.bytes, scene.type, scene.groups);
    if (like.scaling) mxq_tensor_set_scaling(made, like.scaling);
    if (like.swizzled && !in.seldom(16)) mxq_tensor_set_swizzled(made, 1);
    for (int32_t left = in.below(like.format ? 3 : 5); left > 0; --left) set_something(scene, made, use, shape);

    mxq_part parts = quantized ? in.below(8) < 3 ? MXQ_PART_BOTH : 1 + in.below(2) : MXQ_PART_ROWWISE;
    if (like.parts && quantized && !in.seldom(8)) parts = like.parts;
    if (in.seldom(12))
        give_block(scene, made, parts, use);
    else if (!quantized)
        give_data(scene, made, use, shape.experts);
    else
        for (mxq_part part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
            if (parts & part) {
                give_part(scene, made, part, use, shape.experts);
                if (format == MXQ_FORMAT_NVFP4 && !in.seldom(16)) set_amax(scene, made, part, use);
            }
    for (int32_t left = in.seldom(4) ? in.below(3) : 0; left > 0; --left) set_something(scene, made, use, shape);
    return tensor;
}

}  // namespace fuzz
