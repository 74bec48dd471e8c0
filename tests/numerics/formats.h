// The element types of the library, and the formats under which the oracle knows them.
#ifndef MXQ_TESTS_NUMERICS_FORMATS_H
#define MXQ_TESTS_NUMERICS_FORMATS_H

#include <mxq/mxq.h>

#include "numerics/element.h"

template <class E>
struct FormatOf;
template <>
struct FormatOf<mxq::E4M3> { static constexpr int32_t id = MXQ_FORMAT_MXFP8_E4M3; };
template <>
struct FormatOf<mxq::E5M2> { static constexpr int32_t id = MXQ_FORMAT_MXFP8_E5M2; };
template <>
struct FormatOf<mxq::E3M2> { static constexpr int32_t id = MXQ_FORMAT_MXFP6_E3M2; };
template <>
struct FormatOf<mxq::E2M3> { static constexpr int32_t id = MXQ_FORMAT_MXFP6_E2M3; };
template <>
struct FormatOf<mxq::E2M1> { static constexpr int32_t id = MXQ_FORMAT_MXFP4; };

template <class E>
constexpr int32_t format_of = FormatOf<E>::id;

// Calls f with an object of each type.
template <class F>
void for_each_element(F f) {
    for (mxq::Element element : mxq::kElements) mxq::with_element(element, f);
}

#endif
