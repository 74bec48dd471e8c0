#include "cpu/backend.h"

#include "core/error.h"
#include "cpu/engine.h"

namespace mxq::cpu {

void open(Context& context, int threads) {
    context.cpu = std::make_shared<Engine>(threads);
    const int count = context.cpu->pool().threads();
    context.description = format_text("CPU, %d thread%s, %s", count, count == 1 ? "" : "s", context.cpu->kernels().name);
}

}  // namespace mxq::cpu
