// Opens a CUDA context: prints why not, and exits with the status.
#include <mxq/mxq.h>
#include <stdio.h>

int main(void) {
    mxq_context* context = NULL;
    const mxq_status status = mxq_context_create(MXQ_DEVICE_CUDA, 0, NULL, &context);
    puts(status == MXQ_STATUS_OK ? "open" : mxq_last_error());
    mxq_context_destroy(context);
    return status;
}
