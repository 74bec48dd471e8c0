// A call of every exported function that succeeds, for tests of what holds for all of them. Each caller has descriptors and
// memory of its own; they may share a context.
#ifndef MXQ_TESTS_EVERY_FUNCTION_H
#define MXQ_TESTS_EVERY_FUNCTION_H

#include "api.h"

#include <functional>
#include <list>

namespace testing {

struct Function {
    std::string name;
    std::function<mxq_status()> call;  // OK for those that return no status
    bool is_verb = false;
};

// Where the memory of the calls comes from: such as both the host and the context's device reach.
struct Allocator {
    void* (*allocate)(size_t bytes);
    void (*release)(void* memory);
};
Allocator host_allocator();

class EveryFunction {
public:
    explicit EveryFunction(mxq_context* context, Allocator allocator = host_allocator());

    // In the order in which they must run: a verb reads what one before it wrote.
    const std::vector<Function>& functions() const { return functions_; }
    // Returns the bytes of all memory that these calls may write.
    Bytes memory() const;

    // Returns the names of all functions that the header declares.
    static std::vector<std::string> declared();

private:
    template <class T>
    T* memory_of(size_t count, T value = T());
    mxq_tensor* tensor(int32_t format, Dims dims, mxq_part parts = MXQ_PART_ROWWISE);
    mxq_routing* make_routing();
    void add(const char* name, std::function<mxq_status()> call) { functions_.push_back({name, std::move(call)}); }
    template <class Run, class Query, class Options, class... Arguments>
    void verb(const char* name, Run run, Query query, Options options, Arguments... arguments);
    void add_verbs();
    void add_creators();
    void add_questions();
    void add_context_options();
    void add_tensor_setters();
    void add_tensor_memory();
    void add_tensor_getters();
    void add_quantize_options();
    void add_gemm_options();
    void add_activate_options();
    void add_layer_options();
    void add_routing();

    mxq_context* context_;
    std::vector<Function> functions_;
    Allocator allocator_;
    struct Block {
        std::unique_ptr<void, void (*)(void*)> memory;
        size_t bytes;
    };
    std::list<Block> blocks_;
    std::list<Tensor> tensors_;
    std::list<Handle<mxq_routing, mxq_routing_destroy>> routings_;
};

}  // namespace testing

#endif
