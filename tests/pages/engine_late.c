// A program around the function of docs/embedding.md that opens the library late.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mxq/mxq.h>
#include <stdio.h>

// page

int main(void) {
    void* library = open_mxq("libmxq.so.0");
    return library ? 0 : (printf("%s\n", dlerror()), 1);
}
