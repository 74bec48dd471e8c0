// Tensors of random numbers in a device's memory. Their bytes are shared by all libraries of a run, and each library has
// a descriptor of its own for them.
#pragma once

#include "device.h"
#include "formats.h"
#include "library.h"

struct Shape {
    int64_t rows, cols;
    int64_t experts = 0;  // 0: 2-D
};

// Groups of rows: their ends on the host and on the device.
struct Groups {
    std::vector<int32_t> ends;
    std::shared_ptr<void> device_ends;
};

// Ragged groups over `rows` rows, sizes between half and one and a half of the mean, and none a multiple of 4 where `rows`
// is one. Always the same.
Groups ragged_groups(Device& device, int64_t rows, int count);

struct Description {
    int32_t format;
    Shape shape;
    int32_t scaling = MXQ_SCALING_NONE;
    int32_t parts = MXQ_PART_ROWWISE;  // MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE or both, or-ed
    bool swizzled = false;
    bool per_expert = false;  // one amax, or scale of TENSOR, for each expert or group
    bool delayed = false;     // FP8 with TENSOR scales: the scale is given
    bool hadamard = false;    // its parts are transformed
    bool with_codes = true;   // false: the scales alone have memory
    bool with_amax = false;   // FP8: has a place for its amax, which NVFP4 always has
    bool padded_groups = false;  // has a place for the starts and ends of its groups
    const Groups* groups = nullptr;
    int32_t rowwise_alignment = 1, columnwise_alignment = 0;  // of the groups

    bool plain() const { return scaling == MXQ_SCALING_NONE; }
    bool has(int32_t part) const { return plain() ? part == MXQ_PART_ROWWISE : (parts & part) != 0; }
};

Description describe(const Quantization& quantization, const Shape& shape);

class Operand {
public:
    // Its content is left open. NVFP4 has its amax: more than any of the random numbers.
    Operand(Device& device, const Library& library, const Description& description);

    // This library's descriptor of it. The operand must outlive it.
    Handle<mxq_tensor> tensor(const Library& library) const;
    const Description& description() const { return description_; }
    void* data() const { return parts_[0].codes.get(); }  // of a plain tensor
    uint64_t data_bytes() const { return parts_[0].code_bytes; }
    void* codes(int32_t part) const { return parts_[part - 1].codes.get(); }
    void* scales(int32_t part) const { return parts_[part - 1].scales.get(); }

private:
    struct Part {
        uint64_t code_bytes = 0, scale_bytes = 0, amax_bytes = 0;
        std::shared_ptr<void> codes, scales, amax;
    };
    void allocate_part(Device& device, const Library& library, mxq_tensor* tensor, int32_t part);

    Description description_;
    Part parts_[2];
    std::shared_ptr<void> quantization_scale_, starts_, ends_;
    uint64_t quantization_scale_bytes_ = 0;
};

// Normal random numbers (never zeros: they flatter tensor cores and caches alike), quantized by `library` where the
// description is not plain.
Operand random_operand(Device& device, const Library& library, const Description& description);

struct Bytes {
    double codes = 0, scales = 0;
    double all() const { return codes + scales; }
};
// What a verb reads of it: no padding of groups; and what it writes: with the padding that these groups have.
Bytes bytes_read(const Library& library, const Description& description);
Bytes bytes_written(const Library& library, const Description& description);
