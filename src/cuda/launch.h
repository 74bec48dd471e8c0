// How kernels are loaded and launched. Kernel files include this and not cuda/device.h, which takes longer to parse.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "dispatch/implementation.h"

namespace mxq::cuda {

// When a kernel may start: once all work before it in the stream is done, or once every block of the kernel before it has
// executed griddepcontrol.launch_dependents. It then executes griddepcontrol.wait before it reads what that kernel writes,
// or writes anything; the first kernel of a call starts AfterAll.
enum class Start { AfterAll, WithPrevious };

// Returns how a portable kernel starts after another kernel of the same call: WithPrevious where its code was compiled for
// chips that support it, since older code does not wait. After a kernel of the caller it must start AfterAll, since it
// reads what that kernel writes.
Start overlapped_start(const Context& context);

// Returns how the first kernel of a run starts: as overlapped_start says where it follows a kernel of the same call.
inline Start first_start(const Context& context, const Launch& call) {
    return call.follows ? overlapped_start(context) : Start::AfterAll;
}

// Returns whether portable kernels may be launched in clusters: their code was compiled for compute capability 9.0 or later.
bool has_clusters(const Context& context);

// Launches a kernel on the context's device; `arguments` are the addresses of its arguments, `name` is for messages. So many
// blocks make a cluster, where the kernel leaves it open.
void launch_kernel(const Context& context, const void* kernel, const char* name, dim3 grid, dim3 block, size_t shared_bytes,
                   void* stream, void** arguments, Start start = Start::AfterAll, uint32_t cluster = 1);

// Launches `kernel(arguments...)`; the argument types are the kernel's own.
template <class... Parameters>
void launch(const Context& context, void (*kernel)(Parameters...), const char* name, dim3 grid, dim3 block,
            size_t shared_bytes, void* stream, const Parameters&... arguments) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
    launch_kernel(context, reinterpret_cast<const void*>(kernel), name, grid, block, shared_bytes, stream, pointers);
}

// Enqueues zeros into device memory; `what` is for messages.
void clear(const Context& context, void* at, size_t bytes, const char* what, void* stream);

// Returns why an implementation that needs a CUDA context declines this one; empty where it is a CUDA context.
Reason needs_cuda(const Context& context);

// Declines for an implementation that needs nothing else.
template <class Problem>
Reason needs_cuda_alone(const Context& context, const Problem&) {
    return needs_cuda(context);
}

// Returns why an implementation for other chips declines a compute capability.
inline Reason needs_capability(const char* what, int32_t found) {
    return [what, found] { return format_text("needs compute capability %s, found %d.%d", what, found / 10, found % 10); };
}

// Returns why an implementation that takes BF16 alone declines another plain input.
inline Reason needs_bf16(const PlainMatrix& in) { return needs("bf16", find_format(in.format)->name); }

// Loads a kernel, so that none is loaded under graph capture, and allows it this much dynamic shared memory. Returns the compute
// capability that its code was compiled for: 90 for 9.0.
int load_kernel(const void* kernel, size_t shared_bytes);

template <class... Parameters>
int load_kernel(void (*kernel)(Parameters...), size_t shared_bytes = 0) {
    return load_kernel(reinterpret_cast<const void*>(kernel), shared_bytes);
}

// Has an SM keep all of its shared memory under a kernel that uses none. Else it changes for the next kernel, which waits for
// that.
void prefer_shared_memory(const void* kernel);

// A kernel in the one list of its file, from which it is both chosen by its key and loaded.
template <class KeyType, class ArgumentsType>
struct KernelEntry {
    using Key = KeyType;
    using Arguments = ArgumentsType;
    Key key;
    void (*function)(Arguments);
    dim3 threads;
    size_t shared_bytes;  // dynamic
};

template <class List>
using EntryOf = std::remove_cvref_t<decltype(std::declval<const List&>()[0])>;

template <class List>
void load_kernels(const List& list) {
    for (const auto& entry : list) load_kernel(entry.function, entry.shared_bytes);
}

// Loads lists of kernels, as the function of an implementation.
template <const auto& first, const auto&... others>
void load_all(const Context&) {
    load_kernels(first);
    (load_kernels(others), ...);
}

// Launches the kernel of this key, which is in the list.
template <class List>
void launch(const Context& context, const List& list, const typename EntryOf<List>::Key& key, const char* name, dim3 grid,
            void* stream, const typename EntryOf<List>::Arguments& arguments, Start start = Start::AfterAll,
            uint32_t cluster = 1) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))};
    for (const auto& entry : list)
        if (entry.key == key)
            return launch_kernel(context, reinterpret_cast<const void*>(entry.function), name, grid, entry.threads,
                                 entry.shared_bytes, stream, pointers, start, cluster);
    fail(MXQ_STATUS_INTERNAL_ERROR, "%s has no kernel for a problem that it took", name);
}

}  // namespace mxq::cuda
