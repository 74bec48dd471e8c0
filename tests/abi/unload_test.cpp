// A host may close the library while a context lives, as a plugin host does: the context's threads must find their code. This
// program does not link the library, so that dlclose closes the last handle to it.
#include "../catch.h"

#include <mxq/mxq.h>

#include <dlfcn.h>

#include <string>

namespace {

template <class Function>
Function* function_of(void* library, const char* name, Function*) {
    return reinterpret_cast<Function*>(dlsym(library, name));
}

#define FUNCTION(library, name) function_of(library, #name, static_cast<decltype(&name)>(nullptr))

}  // namespace

TEST_CASE("unload: the library stays in memory behind a context that lives") {
    const char* const file = "libmxq.so.0";
    REQUIRE(dlopen(file, RTLD_NOW | RTLD_NOLOAD) == nullptr);
    void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    INFO((library ? "" : dlerror()));
    REQUIRE(library);
    auto* const create_options = FUNCTION(library, mxq_context_options_create);
    auto* const set_threads = FUNCTION(library, mxq_context_options_set_threads);
    auto* const create = FUNCTION(library, mxq_context_create);
    auto* const describe = FUNCTION(library, mxq_context_description);
    auto* const destroy = FUNCTION(library, mxq_context_destroy);
    auto* const destroy_options = FUNCTION(library, mxq_context_options_destroy);
    mxq_context_options* options = nullptr;
    mxq_context* context = nullptr;
    REQUIRE(create_options(&options) == MXQ_STATUS_OK);
    REQUIRE(set_threads(options, 3) == MXQ_STATUS_OK);
    REQUIRE(create(MXQ_DEVICE_CPU, 0, options, &context) == MXQ_STATUS_OK);

    REQUIRE(dlclose(library) == 0);
    REQUIRE(dlopen(file, RTLD_NOW | RTLD_NOLOAD) != nullptr);
    CHECK(std::string(describe(context)).find("CPU, 3 threads") == 0);
    destroy(context);  // wakes the threads, which run code of the library
    destroy_options(options);
}
