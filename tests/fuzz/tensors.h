// Descriptors and options made from the bytes of an input, with setters in any order and memory of exactly the bytes that
// the queries name. Now and then a number or a size is wrong.
#ifndef MXQ_TESTS_FUZZ_TENSORS_H
#define MXQ_TESTS_FUZZ_TENSORS_H

#include "memory.h"

#include <mxq/mxq.h>

#include <memory>

namespace fuzz {

template <class T, void (*destroy)(T*)>
struct Destroy {
    void operator()(T* handle) const { destroy(handle); }
};
using Tensor = std::unique_ptr<mxq_tensor, Destroy<mxq_tensor, mxq_tensor_destroy>>;
using Routing = std::unique_ptr<mxq_routing, Destroy<mxq_routing, mxq_routing_destroy>>;
using QuantizeOptions = std::unique_ptr<mxq_quantize_options, Destroy<mxq_quantize_options, mxq_quantize_options_destroy>>;
using GemmOptions = std::unique_ptr<mxq_gemm_options, Destroy<mxq_gemm_options, mxq_gemm_options_destroy>>;
using ActivateOptions = std::unique_ptr<mxq_activate_options, Destroy<mxq_activate_options, mxq_activate_options_destroy>>;
using LayerOptions =
    std::unique_ptr<mxq_expert_layer_options, Destroy<mxq_expert_layer_options, mxq_expert_layer_options_destroy>>;

enum class Role { plain, quantized, any };
enum class Use { read, written };

struct Shape {
    int64_t experts = 0;  // 0: a matrix
    int64_t rows = 0, cols = 0;
};

// Holds what the calls of one input share: its bytes, its memory, and the groups of its tensors.
struct Scene {
    explicit Scene(Input& bytes) : in(bytes) { memory.clear(); }
    ~Scene() { memory.clear(); }

    Input& in;
    Memory memory;
    int32_t groups = 0;  // 0: none
    mxq_type type = MXQ_TYPE_INT32;
    Buffer ends;

    // Draws sizes that hold few elements.
    int64_t size();
    // Makes an array of ends of `rows`, mostly right, for tensors that have groups.
    void draw_groups(int64_t rows);
};

Buffer make_ends(Scene& scene, int64_t rows);
// Makes an array of `count` numbers of 32 or 64 bits that are mostly below a limit.
Buffer make_integers(Scene& scene, int64_t count, mxq_type type, int64_t limit);
// Makes numbers above 0, of which few are not.
Buffer make_factors(Scene& scene, uint64_t bytes, bool may_be_written);

// Says which shape a tensor mostly has, so that two tensors fit; 0: whatever is drawn.
struct Like {
    mxq_format format = 0;
    mxq_scaling scaling = 0;
    int32_t swizzled = 0;
    mxq_part parts = 0;
};

mxq_format draw_format(Input& in, Role role);
// Returns a tensor, or NULL where its shape is refused.
Tensor make_tensor(Scene& scene, Role role, Use use, Shape shape, const Like& like = {});
// Calls one setter with numbers that mostly make sense.
void set_something(Scene& scene, mxq_tensor* tensor, Use use, const Shape& shape);

// Return NULL for the defaults in many cases.
QuantizeOptions make_quantize_options(Scene& scene);
GemmOptions make_gemm_options(Scene& scene, int64_t columns);
ActivateOptions make_activate_options(Scene& scene, int64_t columns, int64_t rows, bool backward);
LayerOptions make_layer_options(Scene& scene, int64_t inner, int64_t width);

}  // namespace fuzz

#endif
