// A program around the functions of docs/embedding.md: a pool with two threads, a log and a library that is opened late.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mxq/mxq.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int engine_tasks; /* how many tasks the engine ran */

// Runs work(argument, index) for every index, half of them on a second thread, and returns when all are done.
typedef struct {
    void (*work)(void*, int32_t);
    void* argument;
    int32_t begin, end;
} range;
static void* run_range(void* argument) {
    range* r = argument;
    for (int32_t i = r->begin; i < r->end; ++i) r->work(r->argument, i);
    return NULL;
}
static void engine_run(int32_t count, void (*work)(void*, int32_t), void* argument) {
    range first = {work, argument, 0, count / 2}, second = {work, argument, count / 2, count};
    pthread_t thread;
    const int other = pthread_create(&thread, NULL, run_range, &second) == 0;
    run_range(&first);
    other ? pthread_join(thread, NULL) : (run_range(&second), 0);
    engine_tasks += count;
}
static void engine_log(int level, const char* text) { printf("level %d: %s\n", level, text); }

// page

static float values[256][1024];
static uint8_t codes[256][1024], scales[256][32];

int main(void) {
    mxq_context* context = engine_context();
    mxq_tensor *x = NULL, *xq = NULL;
    if (!context || mxq_tensor_create_2d(MXQ_FORMAT_F32, 256, 1024, &x) || mxq_tensor_set_data(x, values, sizeof values) ||
        mxq_tensor_create_2d(MXQ_FORMAT_MXFP8_E4M3, 256, 1024, &xq) ||
        mxq_tensor_set_part(xq, MXQ_PART_ROWWISE, codes, sizeof codes, scales, sizeof scales) ||
        mxq_quantize(context, NULL, x, xq, NULL, 0, NULL))
        return puts(mxq_last_error()), 1;
    mxq_tensor_destroy(x), mxq_tensor_destroy(xq), mxq_context_destroy(context);
    return engine_tasks == 0; /* the pool had work */
}
