// A problem in a device's memory: its buffers, descriptors and options, ready to be called.
#ifndef MXQ_TESTS_SEARCH_BOUND_H
#define MXQ_TESTS_SEARCH_BOUND_H

#include "arena.h"
#include "problem.h"

#include <span>

namespace search {

// A context that calls are made on, with the memory that they use, and what tells it from others: "cpu scalar", "cuda".
struct Runner {
    std::string name;
    std::unique_ptr<testing::Device> device;
    std::unique_ptr<Arena> arena;
    std::map<std::string, std::vector<std::string>> implementations = {};  // of each verb that was asked for them
    bool for_products = false;  // all other verbs run the kernels of another runner
    bool takes_large = true;    // false: large calls are left to a faster runner

    bool takes(const Call& call) const {
        return (!for_products || call.is_product()) && (takes_large || !call.is_large());
    }
};

struct Pointer {
    uint8_t* address = nullptr;
    uint64_t bytes = 0;
};

// The bytes that check.cpp adds to the workspace of a call that must be refused for another reason, so that it is never refused
// for a workspace that is too small.
inline constexpr uint64_t spare_workspace = 4096;

struct Bound {
    // Lays the buffers out, and writes none of them. `implementation`: its name; "" asks for none.
    Bound(Runner& runner, const Problem& problem, const std::string& implementation);

    // Makes the verb take this implementation or fail.
    void ask_for(const std::string& implementation);

    // Limits a product to so many multiprocessors; 0: to none.
    void set_limit(int64_t sm_count);

    // Clears the pointers of tensors, for a query before there is memory.
    void forget_memory();

    // Sets the pointers of tensors to large buffers that do not exist, as far from aligned as the call says, for a query
    // alone.
    void invent_memory();

    // Sets the workspace, which may move all buffers.
    void add_workspace(uint64_t bytes);

    mxq_status query(mxq_plan** plan) const;
    mxq_status run() const;

    // Gives all buffers their content before the call, and the workspace poison.
    void fill() const;

    // Brings all buffers back. Throws if something was written between them.
    void read() const;

    // Returns what read() brought back.
    std::span<const uint8_t> content(const std::string& name) const;
    bool workspace_is_poison() const;

    // Returns the descriptor of a tensor by its name; NULL where the call has none.
    mxq_tensor* tensor(const std::string& name) const;

    // Creates the descriptor of a tensor with these dimensions, without pointers.
    void create(size_t tensor, testing::Dims dims);

    // Clears an address in one of the lists of experts that a verb reads. Returns false where there is none.
    bool drop_address(int64_t at);

    // Gives the descriptors and options the pointers, once more after `pointers` was changed.
    void point();

    bool has(const std::string& name) const { return pointers.count(name) != 0; }
    const Image& image(const std::string& name) const { return problem.images.at(name); }
    std::string verb_name() const { return "mxq_" + problem.call.verb; }

    const Runner& runner;
    const Problem& problem;
    mxq_context* context;
    std::map<std::string, Room> rooms;
    std::map<std::string, Pointer> pointers;
    Pointer workspace;
    std::vector<testing::Tensor> tensors;
    testing::QuantizeOptions options;  // NULL: defaults
    testing::GemmOptions gemm_options;
    testing::Handle<mxq_activate_options, mxq_activate_options_destroy> activate_options;
    testing::RoutingHandle routing;
    void* stream;

private:
    void lay_out();
    void set_pointers();
    std::vector<Room> rooms_in_memory() const;
    void check_canaries() const;
    void point_tensor(size_t number);
    void point_groups(size_t number);
    void point_data(size_t number);
    void point_part(size_t number, int32_t part);
    void point_block(size_t number, const std::vector<std::string>& block);
    void point_part_list(size_t number, int32_t part);
    const void* const* addresses_of(const std::string& buffer, const Lying& lying);
    void point_activation();
    void point_routing();
    void make_options();
    void make_activation();
    void make_routing();
    mxq_status query_layer(mxq_plan** plan) const;
    mxq_status run_layer() const;
    bool is_read_only(const TensorPlan& plan) const;
    Pointer at(const std::string& name) const { return has(name) ? pointers.at(name) : Pointer{}; }

    std::vector<std::string> order_;                         // of the buffers in memory
    std::map<std::string, std::vector<const void*>> lists_;  // addresses of experts, by buffer
    bool in_blocks_ = true;                                  // as the call says; else all addresses are set one by one
    Room workspace_;  // begins behind the canaries of the last buffer
};

// Creates the options of a conversion if they are NULL.
mxq_quantize_options* made(testing::QuantizeOptions& options);

}  // namespace search

#endif
