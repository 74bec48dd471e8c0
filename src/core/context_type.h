// Names the context for those who only pass it on: core/context.h takes long to parse.
#pragma once

struct mxq_context_s;

namespace mxq {
using Context = mxq_context_s;
}
