/* A driver without a device, with the name libcuda.so.1. It answers the questions that cuDNN asks while it selects and
 * compiles an engine for a device that the test describes. Its handles are not real, and it can run nothing. */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#ifndef DRIVER_VERSION
#define DRIVER_VERSION 13000
#endif

static char nowhere;

#define HANDLE(name)                                                                                                   \
    int name(void **ret);                                                                                              \
    int name(void **ret) {                                                                                             \
        *ret = &nowhere;                                                                                               \
        return 0;                                                                                                      \
    }
#define NUMBER(name, value)                                                                                            \
    int name(int *ret);                                                                                                \
    int name(int *ret) {                                                                                               \
        *ret = value;                                                                                                  \
        return 0;                                                                                                      \
    }
#define NOTHING(name)                                                                                                  \
    int name(void);                                                                                                    \
    int name(void) { return 0; }

HANDLE(cuCtxGetCurrent)
HANDLE(cuKernelGetFunction)
HANDLE(cuLibraryGetKernel)
HANDLE(cuLibraryGetModule)
HANDLE(cuLibraryLoadData)
HANDLE(cuLibraryLoadFromFile)
HANDLE(cuLinkCreate)
HANDLE(cuModuleGetFunction)
HANDLE(cuModuleLoadData)
HANDLE(cuModuleLoadDataEx)
HANDLE(cuStreamGetCtx)

NUMBER(cuCtxGetDevice, 0)
NUMBER(cuDeviceGet, 0)
NUMBER(cuDeviceGetAttribute, 0)
NUMBER(cuDeviceGetCount, 1)
NUMBER(cuDriverGetVersion, DRIVER_VERSION)
NUMBER(cuFuncGetAttribute, 0)
NUMBER(cuKernelGetAttribute, 0)
NUMBER(cuOccupancyMaxActiveBlocksPerMultiprocessor, 1)
NUMBER(cuOccupancyMaxPotentialClusterSize, 1)

NOTHING(cuCtxGetLimit)
NOTHING(cuCtxPopCurrent)
NOTHING(cuCtxPushCurrent)
NOTHING(cuFuncSetAttribute)
NOTHING(cuGetErrorName)
NOTHING(cuGetErrorString)
NOTHING(cuKernelSetAttribute)
NOTHING(cuLaunchCooperativeKernel)
NOTHING(cuLaunchKernel)
NOTHING(cuLaunchKernelEx)
NOTHING(cuLibraryUnload)
NOTHING(cuLinkAddData)
NOTHING(cuLinkComplete)
NOTHING(cuLinkDestroy)
NOTHING(cuModuleUnload)

/* The compiler asks the driver for a device of the host, and continues without one. */
int cuInit(unsigned flags);
int cuInit(unsigned flags) {
    (void)flags;
    return 100; /* CUDA_ERROR_NO_DEVICE */
}

int cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t flags, int *found);
int cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t flags, int *found) {
    (void)version, (void)flags;
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *ret = self ? dlsym(self, strcmp(name, "cuGetProcAddress") == 0 ? "cuGetProcAddress_v2" : name) : NULL;
    if (found)
        *found = *ret ? 0 : 1;
    return *ret ? 0 : 500; /* CUDA_ERROR_NOT_FOUND */
}
