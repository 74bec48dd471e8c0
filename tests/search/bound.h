// A problem in a device's memory: its buffers, descriptors and options, ready to be called.
#ifndef MXQ_TESTS_SEARCH_BOUND_H
#define MXQ_TESTS_SEARCH_BOUND_H

#include "problem.h"

namespace search {

struct Pointer {
    uint8_t* address = nullptr;
    uint64_t bytes = 0;
};

struct Bound {
    // `implementation`: its name; "" asks for none.
    Bound(testing::Device& device, const Problem& problem, const std::string& implementation);

    mxq_status query(mxq_plan** plan) const;
    mxq_status run(void* workspace, uint64_t workspace_bytes) const;

    // Creates the descriptor of a tensor with these dimensions, without pointers.
    void create(size_t tensor, testing::Dims dims);

    // Gives the descriptors and options the pointers, once more after `pointers` was changed.
    void point();

    bool has(const std::string& name) const { return pointers.count(name) != 0; }
    const Image& image(const std::string& name) const { return problem.images.at(name); }
    std::string verb_name() const { return "mxq_" + problem.call.verb; }

    testing::Device& device;
    const Problem& problem;
    std::map<std::string, std::unique_ptr<testing::Buffer>> buffers;
    std::map<std::string, Pointer> pointers;
    std::vector<testing::Tensor> tensors;
    testing::QuantizeOptions options;  // NULL: defaults
    testing::GemmOptions gemm_options;
    void* stream = nullptr;

private:
    void point_tensor(size_t number);
    void make_options(const std::string& implementation);
    Pointer at(const std::string& name) const { return has(name) ? pointers.at(name) : Pointer{}; }
};

// Creates the options of a conversion if they are NULL.
mxq_quantize_options* made(testing::QuantizeOptions& options);

}  // namespace search

#endif
