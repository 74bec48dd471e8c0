#include "core/handle.h"

namespace mxq {

const char* text_of_kind(Kind kind) {
    switch (kind) {
        case Kind::Destroyed: return "was destroyed";
        case Kind::Context: return "is a context";
        case Kind::ContextOptions: return "is a context's options";
        case Kind::Tensor: return "is a tensor";
        case Kind::QuantizeOptions: return "is quantize options";
        case Kind::GemmOptions: return "is gemm options";
        case Kind::Plan: return "is a plan";
        case Kind::Routing: return "is a routing";
        case Kind::ExpertLayerOptions: return "is an expert layer's options";
        case Kind::ActivateOptions: return "is activate options";
    }
    return "is no handle of libmxq, or was destroyed";
}

}  // namespace mxq
