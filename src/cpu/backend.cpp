#include "cpu/backend.h"

#include "core/error.h"
#include "cpu/engine.h"

namespace mxq::cpu {

void open(Context& context, const mxq_context_options_s& options) {
    context.cpu = std::make_shared<Engine>(options);
    const int count = context.cpu->pool().threads();
    context.description = format_text("CPU, %d thread%s%s, %s", count, count == 1 ? "" : "s",
                                      options.parallel_for ? " of the host" : "", context.cpu->instruction_set());
}

}  // namespace mxq::cpu
