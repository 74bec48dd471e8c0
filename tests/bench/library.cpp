#include "library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>

namespace {

template <size_t Size>
struct Name {
    char text[Size];
    constexpr Name(const char (&name)[Size]) { std::copy_n(name, Size, text); }
};

// Stands in for a function that the library lacks: an older one still runs every row that does without it.
template <Name name, class Result, class... Arguments>
Result missing(Arguments...) {
    throw LeftOut(std::string("the library has no ") + name.text);
}

template <Name name, class Result, class... Arguments>
void find(void* library, Result (*&function)(Arguments...)) {
    function = reinterpret_cast<Result (*)(Arguments...)>(dlsym(library, name.text));
    if (!function) function = missing<name, Result, Arguments...>;
}

Functions functions_of(void* library) {
    Functions functions;
#define MXQ_BENCH_FIND(name) find<"mxq_" #name>(library, functions.name);
    MXQ_BENCH_FUNCTIONS(MXQ_BENCH_FIND)
#undef MXQ_BENCH_FIND
    return functions;
}

}  // namespace

Library::Library(std::string name, const Functions& functions, int32_t device_type, int threads)
    : name_(std::move(name)), functions_(functions), context_(nullptr, functions.context_destroy) {
    const auto options = make(functions_.context_options_destroy, functions_.context_options_create);
    check(functions_.context_options_set_threads(options.get(), threads));
    context_ = make(functions_.context_destroy, functions_.context_create, device_type, 0, options.get());
}

Library Library::open(const std::string& name, const std::string& file, int32_t device_type, int threads) {
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays open: its contexts outlive any scope here
    if (!library) throw std::runtime_error(dlerror());
    if (!dlsym(library, "mxq_context_create"))
        throw std::runtime_error(file + " is no libmxq: it has no mxq_context_create");
    return Library(name, functions_of(library), device_type, threads);
}

void Library::check(mxq_status status) const {
    if (status == MXQ_STATUS_OK) return;
    const std::string message = std::string(functions_.status_name(status)) + ": " + functions_.last_error();
    if (status == MXQ_STATUS_UNSUPPORTED) throw LeftOut(message);
    throw std::runtime_error(message);
}
