#include "cuda/cublaslt/releases.h"

#include <algorithm>

#include "core/error.h"
#include "cuda/cublaslt/library.h"

namespace mxq::cuda::lt {
namespace {

// Compute capabilities from first to last, and the words for them.
struct Chips {
    int32_t first, last;
    const char* text = nullptr;

    constexpr bool has(int32_t capability) const { return capability >= first && capability <= last; }
};

constexpr Chips kAll{0, INT32_MAX, "any"}, kHopper{90, 90, "9.0"}, kUntilHopper{0, 99, "any"},
    kAdaToHopper{89, 99, "8.9 or later"}, kBlackwell{100, INT32_MAX, "10.0 or later"}, kDataCenter{100, 119},
    kHopperToDataCenter{90, 119}, kUltra{103, 109}, kGeForce{120, 129}, kSpark{121, 121};

// ---- What runs where -------------------------------------------------------------------------------------------------------

struct Offer {
    ScaleMode mode;
    bool grouped;
    Chips chips;
    int32_t since;  // 130100 for 13.1.0
};

constexpr bool kSingle = false, kGrouped = true;
const Offer offers[] = {
    {ScaleMode::None, kSingle, kUntilHopper, 0},
    {ScaleMode::None, kSingle, kBlackwell, 120804},
    {ScaleMode::Scalar, kSingle, kAdaToHopper, 0},
    {ScaleMode::Scalar, kSingle, kBlackwell, 120804},
    {ScaleMode::OuterVec, kSingle, kHopper, 120900},
    {ScaleMode::Vec128, kSingle, kHopper, 120900},
    {ScaleMode::Block128, kSingle, kHopper, 120900},
    {ScaleMode::Vec32, kSingle, kBlackwell, 120804},
    {ScaleMode::Vec16, kSingle, kBlackwell, 120804},
    {ScaleMode::None, kGrouped, kHopper, 130700},
    {ScaleMode::Scalar, kGrouped, kHopper, 130700},
    {ScaleMode::Vec128, kGrouped, kHopper, 131000},  // ragged ones were seen to be right with this release first
    {ScaleMode::Block128, kGrouped, kHopper, 131000},
    {ScaleMode::None, kGrouped, kDataCenter, 130200},
    {ScaleMode::Scalar, kGrouped, kDataCenter, 130200},
    {ScaleMode::Vec32, kGrouped, kDataCenter, 130300},
    {ScaleMode::Vec16, kGrouped, kDataCenter, 130400},
};

// `before` and `groups_of`: words that stand there, or none.
Reason needs_version(const char* before, int32_t version, const char* groups_of, const char* what, const Machine& machine) {
    return [=, found = &machine] {
        return format_text("needs cuBLASLt %s%s for %s%s on compute capability %d.%d, found %s in %s", before,
                           version_text(version).c_str(), groups_of, what, found->capability / 10, found->capability % 10,
                           version_text(found->version).c_str(), found->path.c_str());
    };
}

Reason needs_chips(const char* chips, const char* what, const Machine& machine) {
    return [=, capability = machine.capability] {
        return format_text("needs compute capability %s for %s, found %d.%d", chips, what, capability / 10, capability % 10);
    };
}

// ---- Faults of products ----------------------------------------------------------------------------------------------------

int64_t bits_of(cudaDataType type) {
    switch (type) {
        case CUDA_R_4F_E2M1: return 4;
        case CUDA_R_8F_E4M3:
        case CUDA_R_8F_E5M2: return 8;
        case CUDA_R_32F: return 32;
        default: return 16;
    }
}

constexpr uintptr_t kAligned = 16;

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % kAligned == 0; }
bool is_whole(int64_t count, cudaDataType type) { return count * bits_of(type) % int64_t(8 * kAligned) == 0; }

bool is_fp8(const MatmulDescription& p) { return bits_of(p.a.type) == 8; }
bool is_plain(const MatmulDescription& p) { return p.a.mode == ScaleMode::None; }
bool is_nvfp4(const MatmulDescription& p) { return p.a.mode == ScaleMode::Vec16; }
bool is_grouped(const MatmulDescription& p) { return p.groups > 0; }
bool has_one_line(const MatmulDescription& p) { return p.groups == 0 && std::min(p.m, p.n) == 1; }

// Scales of experts or groups are 4 bytes apart.
bool has_unaligned_scalars(const MatmulDescription& p) {
    if (p.a.mode == ScaleMode::GroupScalar) return true;
    return p.a.mode == ScaleMode::Scalar && !(is_aligned(p.a.scales) && is_aligned(p.b.scales));
}

bool rounds_before_bias(const MatmulDescription& p) {
    return is_plain(p) && p.has_bias && p.d_type != CUDA_R_32F && !has_whole_lines(p);
}

bool is_long_line(const MatmulDescription& p) {
    constexpr int64_t kMostNumbers = int64_t(1) << 31;
    const auto numbers = [&](const MatrixDescription& of) { return of.ld * (of.across ? p.k : of.lines); };
    return has_one_line(p) && std::max({numbers(p.a), numbers(p.b), p.ldd * p.n}) > kMostNumbers;
}

bool is_long_accumulated_line(const MatmulDescription& p) {
    return has_one_line(p) && p.reads_d && std::max(p.m, p.n) > 3145680;
}

struct Fault {
    const char* what;
    Chips chips;
    int32_t from,
        mended;  // the releases that have it: from one until before the other; 0: no release is known to be without
    bool (*concerns)(const MatmulDescription&);
};

const Fault faults[] = {
    {"nvfp4", kUltra, 0, 130300, is_nvfp4},
    {"fp8 and mxfp8", kGeForce, 0, 130300, is_fp8},
    {"16-bit numbers", kSpark, 0, 130300, is_plain},
    {"groups", kDataCenter, 130700, 0, is_grouped},
    {"the scales of tensors at no multiples of 16 bytes", kAll, 120900, 130201, has_unaligned_scalars},
    {"a bias where pointers, rows or strides of a, b or d are no multiples of 16 bytes", kAll, 0, 131000,
     rounds_before_bias},
    {"a bias of one row or column", kAll, 0, 120804,
     [](const MatmulDescription& p) { return has_one_line(p) && p.has_bias; }},
    {"more than 2^31 numbers with one row or column", kAll, 0, 120804, is_long_line},
    {"more than 3145680 rows or columns and a beta", kGeForce, 130600, 130601, is_long_accumulated_line},
};

// ---- Faults of algorithms --------------------------------------------------------------------------------------------------

constexpr uint32_t kTensorMemory = 66;  // CUBLASLT_ALGO_CONFIG_ID of the algorithm that has most of them

bool is_66(const AlgorithmConfig& algorithm, const MatmulDescription&) { return algorithm.id == kTensorMemory; }

bool has_long_strides(const AlgorithmConfig& algorithm, const MatmulDescription& p) {
    const auto bytes = [](int64_t ld, cudaDataType type) { return ld * bits_of(type) / 8; };
    const int64_t longest = std::max({bytes(p.a.ld, p.a.type), bytes(p.b.ld, p.b.type), bytes(p.ldd, p.d_type)});
    return algorithm.id == kTensorMemory && longest > INT32_MAX;
}

// Groups know their contraction on the device alone.
bool splits_unevenly(const AlgorithmConfig& algorithm, const MatmulDescription& p) {
    return algorithm.id == kTensorMemory && algorithm.splits > 1 && (is_grouped(p) || p.k % algorithm.splits != 0);
}

bool has_deep_stages(const AlgorithmConfig& algorithm, const MatmulDescription& p) {
    return algorithm.id == kTensorMemory && algorithm.stages == kDeepStages && is_nvfp4(p);
}

// Releases that are without a fault: from the last on, and from each of the others on in its own minor release.
using Mended = int32_t[5];

struct AlgorithmFault {
    Chips chips;
    int32_t from;
    Mended mended;
    bool (*concerns)(const AlgorithmConfig&, const MatmulDescription&);
};

const AlgorithmFault algorithm_faults[] = {
    {kDataCenter, 120800, {120805, 120902, 130101, 130202, 130300}, is_66},  // wrong while other kernels use Tensor Memory
    {kHopperToDataCenter, 120603, {120805, 120902, 130101, 130202, 130300}, has_long_strides},
    {kHopperToDataCenter, 120603, {130800}, splits_unevenly},
    {kUltra, 130501, {130602, 130800}, has_deep_stages},
};

bool is_mended(const Mended& mended, int32_t version) {
    for (const int32_t release : mended)
        if (version >= release && release != 0 && version / 100 == release / 100) return true;
    return version >= *std::max_element(std::begin(mended), std::end(mended));
}

}  // namespace

bool has_whole_lines(const MatmulDescription& p) {
    const bool across = (!p.a.across || is_whole(p.m, p.a.type)) && (!p.b.across || is_whole(p.n, p.b.type));
    return is_aligned(p.a.data) && is_aligned(p.b.data) && is_aligned(p.d) && is_whole(p.a.ld, p.a.type) &&
           is_whole(p.b.ld, p.b.type) && is_whole(p.ldd, p.d_type) && is_whole(p.k, p.a.type) && is_whole(p.m, p.d_type) &&
           across;
}

Reason check_offer(ScaleMode mode, bool grouped, const Machine& machine) {
    const char* chips = nullptr;
    for (const Offer& offer : offers) {
        if (offer.mode != mode || offer.grouped != grouped) continue;
        if (offer.chips.has(machine.capability)) {
            if (machine.version >= offer.since) return {};
            return needs_version("", offer.since, grouped ? "groups of " : "", mode_name(mode), machine);
        }
        if (!chips) chips = offer.chips.text;
    }
    if (grouped) return needs_chips("9.0, 10.x or 11.0", "groups", machine);
    return needs_chips(chips, mode_name(mode), machine);
}

Reason check_faults(const MatmulDescription& p, const Machine& machine) {
    for (const Fault& fault : faults) {
        if (!fault.chips.has(machine.capability) || machine.version < fault.from || !fault.concerns(p)) continue;
        if (fault.mended == 0) return needs_version("before ", fault.from, "", fault.what, machine);
        if (machine.version < fault.mended) return needs_version("", fault.mended, "", fault.what, machine);
    }
    return {};
}

bool is_faulty(const AlgorithmConfig& algorithm, const MatmulDescription& p, const Machine& machine) {
    return std::any_of(std::begin(algorithm_faults), std::end(algorithm_faults), [&](const AlgorithmFault& fault) {
        return fault.chips.has(machine.capability) && machine.version >= fault.from &&
               !is_mended(fault.mended, machine.version) && fault.concerns(algorithm, p);
    });
}

}  // namespace mxq::cuda::lt
