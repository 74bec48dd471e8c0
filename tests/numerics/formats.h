// The element types of the library, and the formats under which the oracle knows them.
#ifndef MXQ_TESTS_NUMERICS_FORMATS_H
#define MXQ_TESTS_NUMERICS_FORMATS_H

#include <mxq/mxq.h>

#include "numerics/element.h"

#include <type_traits>

template <class E>
constexpr int32_t format_of = std::is_same_v<E, mxq::E4M3>   ? MXQ_FORMAT_MXFP8_E4M3
                              : std::is_same_v<E, mxq::E5M2> ? MXQ_FORMAT_MXFP8_E5M2
                              : std::is_same_v<E, mxq::E3M2> ? MXQ_FORMAT_MXFP6_E3M2
                              : std::is_same_v<E, mxq::E2M3> ? MXQ_FORMAT_MXFP6_E2M3
                                                             : MXQ_FORMAT_MXFP4;

// Calls f with an object of each type.
template <class F>
void for_each_element(F f) {
    f(mxq::E4M3());
    f(mxq::E5M2());
    f(mxq::E3M2());
    f(mxq::E2M3());
    f(mxq::E2M1());
}

#endif
