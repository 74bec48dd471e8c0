// Included before every source of the copy that mutants.py builds: tells which mutant the process is, and records which ones it
// reaches. MXQ_MUTANT=number in the environment makes it one, and MXQ_MUTANT=-1 records.
//
// All of this is one for the process: libmxq.so exports it in the copy. Code for the device has a copy of the modes in constant
// memory, of which every .cu file has its own. tell_device, which the copy calls when a CUDA context is opened, sets them all.
#pragma once
#ifdef __cplusplus
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define MXQ_MUTANT_INLINE inline __attribute__((always_inline))

namespace mutants __attribute__((visibility("default"))) {

constexpr int kCount = 1024, kRecord = -1;

enum class Mode : int { Off, On, Recorded };
inline Mode modes[kCount];
inline unsigned char reached[kCount];
inline unsigned char* reached_on_device = nullptr;  // managed memory
inline unsigned told_devices = 0;                   // a bit each

struct Unit {  // a .cu file
    void (*set)(Unit&);
    Unit* next;
    bool is_here = true;
};
inline Unit* units = nullptr;

inline void tell_device() {
    for (Unit* unit = units; unit; unit = unit->next) unit->set(*unit);
}

// Tells a device that has just become the current one, the first time alone.
inline void tell_device(int ordinal) {
    const unsigned bit = 1u << (ordinal & 31);
    if (told_devices & bit || !std::getenv("MXQ_MUTANT")) return;
    told_devices |= bit;
    tell_device();
}

// Makes the process, and those that it starts, a mutant: none for 0, and for kRecord none, but what is reached is recorded.
inline void choose(int number) {
    for (Mode& mode : modes) mode = number == kRecord ? Mode::Recorded : Mode::Off;
    if (number > 0 && number < kCount) modes[number] = Mode::On;
    std::memset(reached, 0, sizeof reached);
    if (reached_on_device) std::memset(reached_on_device, 0, kCount);
}

// Does so in a process that may have told its device before.
inline void change(int number) {
    choose(number);
    char text[16];
    std::snprintf(text, sizeof text, "%d", number);
    setenv("MXQ_MUTANT", text, 1);
    if (told_devices) tell_device();
}

inline bool is_reached(int number) { return reached[number] || (reached_on_device && reached_on_device[number]); }

inline const bool has_begun = [] {
    if (const char* number = std::getenv("MXQ_MUTANT")) choose(std::atoi(number));
    return true;
}();

// Says whether the mutant is on, and that it was reached if that is recorded; once is enough.
__attribute__((noinline, cold)) inline bool look(int number) {
    if (modes[number] == Mode::On) return true;
    reached[number] = 1;
    modes[number] = Mode::Off;
    return false;
}

}  // namespace mutants

#ifdef __CUDACC__
struct MutantsOnDevice {
    unsigned char* reached;
    mutants::Mode modes[mutants::kCount];
};
static __constant__ MutantsOnDevice mutants_on_device;

// Sets the constant of this file on the device. That fails in a file that is compiled for another chip alone, whose kernels are
// not there to be changed, so the error is dropped. The last file waits for the copies of all.
static mutants::Unit mutant_unit{
    [](mutants::Unit& unit) {
        if (!mutants::reached_on_device && cudaMallocManaged(&mutants::reached_on_device, mutants::kCount) == cudaSuccess)
            std::memset(mutants::reached_on_device, 0, mutants::kCount);
        static MutantsOnDevice values;
        values.reached = mutants::reached_on_device;
        std::memcpy(values.modes, mutants::modes, sizeof values.modes);
        if (unit.is_here)
            unit.is_here = cudaMemcpyToSymbolAsync(mutants_on_device, &values, sizeof values) == cudaSuccess;
        if (!unit.next) cudaStreamSynchronize(nullptr);
        cudaGetLastError();
    },
    mutants::units};
[[maybe_unused]] static const bool mutant_unit_is_known = (mutants::units = &mutant_unit) != nullptr;

#undef MXQ_MUTANT_INLINE
#define MXQ_MUTANT_INLINE __host__ __device__ __forceinline__
#endif

MXQ_MUTANT_INLINE bool is_mutant(int number) {
#ifdef __CUDA_ARCH__
    const mutants::Mode mode = mutants_on_device.modes[number];
    if (mode == mutants::Mode::Recorded) mutants_on_device.reached[number] = 1;
    return mode == mutants::Mode::On;
#else
    return __builtin_expect(mutants::modes[number] != mutants::Mode::Off, 0) && mutants::look(number);
#endif
}
#endif
