// New memory of torch for the parts of a quantized tensor, in the shapes that _shapes.py has.
#ifndef MXQ_PYTHON_TORCH_PARTS_H
#define MXQ_PYTHON_TORCH_PARTS_H

#include "torch_calls.h"

namespace mxq_python {

inline int64_t code_bits(mxq_format format) {
    switch (format) {
        case MXQ_FORMAT_MXFP6_E2M3:
        case MXQ_FORMAT_MXFP6_E3M2: return 6;
        case MXQ_FORMAT_MXFP4:
        case MXQ_FORMAT_NVFP4: return 4;
        default: return 8;
    }
}

// The numbers that share a scale along a line, and down the lines where they are a tile.
inline int64_t block_of(mxq_scaling scaling) {
    switch (scaling) {
        case MXQ_SCALING_1X16:
        case MXQ_SCALING_16X16: return 16;
        case MXQ_SCALING_1X128:
        case MXQ_SCALING_128X128: return 128;
        default: return 32;
    }
}

struct PartShape {
    Shape codes, scales;
    int64_t amaxes = 0;
};

inline Shape scale_shape(const mxq::tensor& of, const Spec& spec, const Shape& codes, bool grouped, int64_t count) {
    const mxq_scaling scaling = of.get_scaling();
    const bool tile = scaling == MXQ_SCALING_32X32 || scaling == MXQ_SCALING_128X128;
    const bool flat = spec.swizzled || (grouped && tile);
    Shape shape(codes.begin(), codes.end() - 2);
    const int64_t experts = shape.empty() ? 1 : shape[0], lines = codes[codes.size() - 2];
    if (scaling == MXQ_SCALING_TENSOR) return {count};
    if (flat || scaling == MXQ_SCALING_ROW) {
        shape.push_back(experts ? count / experts : flat ? 0 : lines);
        return shape;
    }
    const int64_t block = block_of(scaling), width = codes.back() * 8 / code_bits(spec.format);
    shape.push_back(tile ? (lines + block - 1) / block : lines);
    shape.push_back((width + block - 1) / block);
    return shape;
}

inline PartShape part_shape(const mxq::tensor& of, const Spec& spec, const View& x, mxq_part part, const Groups* groups) {
    int64_t rows = x.size(2);
    if (groups) {
        const mxq::group_alignment both = of.get_group_alignment();
        const int64_t alignment = part == MXQ_PART_ROWWISE ? both.rowwise : both.columnwise;
        rows = (rows + (alignment - 1) * std::min<int64_t>(groups->ends.count(), rows)) / alignment * alignment;
    }
    const int64_t lines = part == MXQ_PART_ROWWISE ? rows : x.size(1), length = part == MXQ_PART_ROWWISE ? x.size(1) : rows;
    PartShape out;
    if (x.dims == 3) out.codes.push_back(x.shape[0]);
    out.codes.insert(out.codes.end(), {lines, (length * code_bits(spec.format) + 7) / 8});
    const auto scales = static_cast<int64_t>(of.required_bytes(part).scales);
    out.scales = scale_shape(of, spec, out.codes, groups != nullptr, scales / (spec.is_fp8() ? 4 : 1));
    if (spec.format == MXQ_FORMAT_NVFP4) out.amaxes = static_cast<int64_t>(of.required_amax_bytes(part)) / 4;
    return out;
}

// New memory of a part: codes, scales and, of NVFP4, amaxes.
struct NewPart {
    Tensor codes, scales;
    std::optional<Tensor> amaxes;
};

inline uint64_t count_of(const Shape& shape) {
    uint64_t product = 1;
    for (const int64_t size : shape) product *= static_cast<uint64_t>(size);
    return product;
}

// Makes a part of this shape, of which a described tensor is told.
inline NewPart new_part(const Device& device, mxq::tensor& of, const Spec& spec, mxq_part part, const PartShape& shape) {
    NewPart out{new_tensor_on(device, shape.codes, aoti_torch_dtype_uint8()),
                new_tensor_on(device, shape.scales, spec.is_fp8() ? aoti_torch_dtype_float32() : aoti_torch_dtype_uint8()),
                {}};
    const uint64_t code_bytes = count_of(shape.codes), scale_bytes = count_of(shape.scales) * (spec.is_fp8() ? 4 : 1);
    of.set_part(part, code_bytes ? out.codes.data_ptr() : nullptr, code_bytes, scale_bytes ? out.scales.data_ptr() : nullptr,
                scale_bytes);
    if (!shape.amaxes) return out;
    out.amaxes = new_tensor_on(device, {shape.amaxes}, aoti_torch_dtype_float32());
    set_number(of, part, 1, view_of(*out.amaxes));
    return out;
}

// Makes all parts of a described tensor, whose bits are `parts`.
inline std::vector<Tensor> new_parts(const Device& device, mxq::tensor& of, const Spec& spec, const View& x, int64_t parts,
                                     const Groups* groups) {
    std::vector<Tensor> out;
    for (const mxq_part part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        if (!(parts & part)) continue;
        const NewPart made = new_part(device, of, spec, part, part_shape(of, spec, x, part, groups));
        out.insert(out.end(), {made.codes, made.scales});
        if (made.amaxes) out.push_back(*made.amaxes);
    }
    return out;
}

}  // namespace mxq_python

#endif
