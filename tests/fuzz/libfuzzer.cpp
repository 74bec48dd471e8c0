// mxq_fuzz --target=NAME [libFuzzer's options] [folders]: one target under libFuzzer, which leaves alone what begins with
// --.
#include "check.h"
#include "targets.h"

#include <cstdio>
#include <cstdlib>

namespace {

const fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
    for (int i = 1; i < *count; ++i)
        for (const fuzz::Target& target : fuzz::targets())
            if ((*arguments)[i] == std::string("--target=") + target.name) chosen = &target;
    if (!chosen) {
        std::fprintf(stderr, "usage: mxq_fuzz --target=NAME [libFuzzer's options] [folders]; names:");
        for (const fuzz::Target& target : fuzz::targets()) std::fprintf(stderr, " %s", target.name);
        std::fprintf(stderr, "\n");
        std::exit(2);
    }
    fuzz::contexts();
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
    fuzz::Input input(bytes, count);
    chosen->run(input);
    return 0;
}
