// libcuda.so.1 of any VERSION, as far as CUDA's runtime asks it before it finds no device.
#include <string.h>

enum { success = 0, no_device = 100, not_found = 500 };

int cuDriverGetVersion(int* version) {
    *version = VERSION;
    return success;
}
int cuInit(unsigned flags) {
    (void)flags;
    return no_device;
}
int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags, int* result) {
    (void)version, (void)flags;
    *function = NULL;
    if (!strcmp(name, "cuDriverGetVersion")) *function = (void*)cuDriverGetVersion;
    if (!strcmp(name, "cuInit")) *function = (void*)cuInit;
    if (!strcmp(name, "cuGetProcAddress")) *function = (void*)cuGetProcAddress_v2;
    if (result) *result = *function ? 0 : 1;
    return *function ? success : not_found;
}
