#include "cuda/cublaslt/library.h"

#include <dlfcn.h>

#include "core/environment.h"
#include "core/error.h"

namespace mxq::cuda::lt {
namespace {

constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

// Resolves names in one opened library, and remembers the first that it does not have.
struct Resolver {
    void* handle;
    const char* missing = nullptr;

    template <class Function>
    void find(Function& function, const char* name) {
        function = reinterpret_cast<Function>(dlsym(handle, name));
        if (!function && !missing) missing = name;
    }

    template <class Function>
    void find_if_any(Function& function, const char* name) const {
        function = reinterpret_cast<Function>(dlsym(handle, name));
    }
};

void resolve(Resolver& resolver, Api& api) {
    resolver.find(api.version, "cublasLtGetVersion");
    resolver.find(api.status_name, "cublasLtGetStatusName");
    resolver.find(api.create, "cublasLtCreate");
    resolver.find(api.destroy, "cublasLtDestroy");
    resolver.find(api.desc_create, "cublasLtMatmulDescCreate");
    resolver.find(api.desc_destroy, "cublasLtMatmulDescDestroy");
    resolver.find(api.desc_set, "cublasLtMatmulDescSetAttribute");
    resolver.find(api.layout_create, "cublasLtMatrixLayoutCreate");
    resolver.find(api.layout_destroy, "cublasLtMatrixLayoutDestroy");
    resolver.find(api.preference_create, "cublasLtMatmulPreferenceCreate");
    resolver.find(api.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    resolver.find(api.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    resolver.find(api.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    resolver.find(api.config_get, "cublasLtMatmulAlgoConfigGetAttribute");
    resolver.find(api.matmul, "cublasLtMatmul");
    resolver.find_if_any(api.grouped_layout_create, "cublasLtGroupedMatrixLayoutCreate");
    resolver.find_if_any(api.heuristic_for_stream, "cublasLtMatmulAlgoGetHeuristicForStream");
}

// RTLD_LOCAL: whoever else has a cuBLASLt keeps resolving to his own.
void* open_any(int flags) {
    for (const char* name : kNames)
        if (void* handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL | flags)) return handle;
    return nullptr;
}

std::string path_of(const Api& api, const char* otherwise) {
    Dl_info info;
    return dladdr(reinterpret_cast<void*>(api.version), &info) && info.dli_fname ? info.dli_fname : otherwise;
}

}  // namespace

Library open_library(const char* path, const char* by) {
    Library out;
    void* handle;
    if (path) {
        handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    } else {
        handle = open_any(RTLD_NOLOAD);
        if (!handle) handle = open_any(0);
    }
    if (!handle) {
        const char* words = dlerror();
        out.missing = format_text("needs libcublasLt.so.13 or .12 %sat %s, found none (%s)",
                                  path ? "" : "where the loader looks or ", by,
                                  words ? words : "the loader gives no reason");
        return out;
    }
    Resolver resolver{handle};
    resolve(resolver, out.api);
    if (resolver.missing) {
        out.missing = format_text("needs a cuBLASLt that has %s, found one without%s%s", resolver.missing, path ? " in " : "",
                                  path ? path : "");
        return out;
    }
    out.version = int32_t(out.api.version());
    out.path = path_of(out.api, path ? path : kNames[0]);
    return out;
}

const Library& library() {
    static const Library opened = [] {
        const char* path = environment_variable("MXQ_CUBLASLT_PATH");
        return open_library(path && *path ? path : nullptr);
    }();
    return opened;
}

std::string description(const Library& library) {
    const int32_t version = library.version;
    return format_text("cuBLASLt %d.%d.%d, %s", version / 10000, version % 10000 / 100, version % 100, library.path.c_str());
}

std::string version_text(int32_t version) {
    const std::string minor = format_text("%d.%d", version / 10000, version % 10000 / 100);
    return version % 100 == 0 ? minor : format_text("%s.%d", minor.c_str(), version % 100);
}

}  // namespace mxq::cuda::lt
