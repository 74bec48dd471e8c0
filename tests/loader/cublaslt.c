// libcublasLt.so of any VERSION, whose functions do nothing. -DcublasLtMatmul=other leaves that one out.
#include <stddef.h>

size_t cublasLtGetVersion(void) { return VERSION; }
const char* cublasLtGetStatusName(int status) {
    (void)status;
    return "NOTHING";
}
int cublasLtCreate(void) { return 1; }
int cublasLtDestroy(void) { return 1; }
int cublasLtMatmulDescCreate(void) { return 1; }
int cublasLtMatmulDescDestroy(void) { return 1; }
int cublasLtMatmulDescSetAttribute(void) { return 1; }
int cublasLtMatrixLayoutCreate(void) { return 1; }
int cublasLtMatrixLayoutDestroy(void) { return 1; }
int cublasLtMatmulPreferenceCreate(void) { return 1; }
int cublasLtMatmulPreferenceDestroy(void) { return 1; }
int cublasLtMatmulPreferenceSetAttribute(void) { return 1; }
int cublasLtMatmulAlgoGetHeuristic(void) { return 1; }
int cublasLtMatmulAlgoConfigGetAttribute(void) { return 1; }
int cublasLtMatmul(void) { return 1; }
