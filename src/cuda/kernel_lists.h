// Lists of kernels for all combinations of types, values and variants. What a kernel is compiled for names it in the list:
//
//     constexpr auto kernels = kernels_of(
//         []<class In, class Out>(In, Out) { return kernel(convert_kernel<In, Out>, kThreads); }, PlainTypes{}, PlainTypes{});
//     launch(context, kernels, {in.format, out.format}, ...);
#pragma once
#include <algorithm>
#include <array>
#include <tuple>
#include <type_traits>

#include "cuda/launch.h"
#include "numerics/convert.h"
#include "numerics/element.h"

namespace mxq::cuda {

template <class... T>
struct Types {};
template <auto... values>
using Values = Types<std::integral_constant<decltype(values), values>...>;

using PlainTypes = Types<float, F16, Bf16>;
using ElementsOf8Bits = Types<E4M3, E5M2>;
using AllElements = Types<E4M3, E5M2, E2M3, E3M2, E2M1>;

// How a problem names a type: by its MXQ_FORMAT_* or its Element. A value is its own name.
template <class T>
constexpr auto kNameOf = T::value;
template <>
inline constexpr int32_t kNameOf<float> = MXQ_FORMAT_F32;
template <>
inline constexpr int32_t kNameOf<F16> = MXQ_FORMAT_F16;
template <>
inline constexpr int32_t kNameOf<Bf16> = MXQ_FORMAT_BF16;
template <>
inline constexpr Element kNameOf<E4M3> = Element::E4M3;
template <>
inline constexpr Element kNameOf<E5M2> = Element::E5M2;
template <>
inline constexpr Element kNameOf<E2M3> = Element::E2M3;
template <>
inline constexpr Element kNameOf<E3M2> = Element::E3M2;
template <>
inline constexpr Element kNameOf<E2M1> = Element::E2M1;

// A kernel without a name yet.
template <class Arguments>
constexpr KernelEntry<std::tuple<>, Arguments> kernel(void (*function)(Arguments), dim3 threads, size_t shared_bytes = 0) {
    return {{}, function, threads, shared_bytes};
}

template <class Entry, size_t... counts>
constexpr auto join(const std::array<Entry, counts>&... lists) {
    std::array<Entry, (counts + ...)> all{};
    size_t at = 0;
    ((std::copy(lists.begin(), lists.end(), all.begin() + at), at += counts), ...);
    return all;
}

// Puts a type's name before those that the kernels of a list have.
template <class T, class... Names, class Arguments, size_t count>
constexpr auto named(const std::array<KernelEntry<std::tuple<Names...>, Arguments>, count>& list) {
    using Name = std::remove_const_t<decltype(kNameOf<T>)>;
    std::array<KernelEntry<std::tuple<Name, Names...>, Arguments>, count> all{};
    for (size_t i = 0; i < count; i++)
        all[i] = {std::tuple_cat(std::tuple<Name>(kNameOf<T>), list[i].key), list[i].function, list[i].threads,
                  list[i].shared_bytes};
    return all;
}

template <class T, class Make>
constexpr auto with_first(const Make& make) {
    return [&make](auto... rest) { return make(T{}, rest...); };
}

// Returns the kernels that `make` returns for each combination of the lists' types.
template <class Make>
constexpr auto kernels_of(const Make& make) {
    return std::array{make()};
}
template <class Make, class... T, class... Lists>
constexpr auto kernels_of(const Make& make, Types<T...>, Lists... lists) {
    return join(named<T>(kernels_of(with_first<T>(make), lists...))...);
}

}  // namespace mxq::cuda
