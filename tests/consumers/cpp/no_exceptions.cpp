// A program without exceptions: a call that fails goes to its own function, and may return.
static int failures = 0;
static void failed(int status, const char* what);
#define MXQ_THROW(error) failed((error).status(), (error).what())
#include <mxq/mxq.hpp>

#include <cstdio>
#include <cstring>

static char last[512];
static void failed(int status, const char* what) {
    failures += status;
    std::snprintf(last, sizeof last, "%s", what);
}

int main() {
    float values[64] = {1, 2, 3}, back[64] = {};
    mxq::context cpu(MXQ_DEVICE_CPU), none(MXQ_DEVICE_CPU, 7);
    if (failures != MXQ_STATUS_INVALID_ARGUMENT || none || !std::strstr(last, "mxq_context_create")) return 1;
    mxq::tensor in(MXQ_FORMAT_F32, 1, 64), out(MXQ_FORMAT_F32, 1, 64);
    in.set_const_data(values, sizeof values), out.set_data(back, sizeof back);
    mxq::convert(none, {}, in, out);  // refused, since the context is empty
    if (failures != 2 * MXQ_STATUS_INVALID_ARGUMENT || back[2] != 0) return 2;
#if __cplusplus >= 202002L
    mxq::tensor(MXQ_FORMAT_BF16, 1, 64).set_data(std::span(values));
    if (failures != 3 * MXQ_STATUS_INVALID_ARGUMENT || !std::strstr(last, "set_data: data has elements")) return 3;
    failures -= MXQ_STATUS_INVALID_ARGUMENT;
#endif
    if (mxq::tensor().get_shape().rows != 0 || mxq::quantize_query(none, {}, in, out).workspace_bytes() != 0) return 4;
    failures = 0;
    mxq::convert(cpu, {}, in, out);
    return failures == 0 && back[2] == 3 ? 0 : 5;
}
