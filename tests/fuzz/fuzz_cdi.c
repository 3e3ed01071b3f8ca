/* A spec of the Container Device Interface. Whatever its bytes are, only absolute paths come from it, and not more than
 * the limit. */
#include "executor/container/cdi.h"

#include <assert.h>
#include <stdint.h>

static int mounts;

static void on_mount(void *ctx, const char *host_path) {
    (void)ctx;
    assert(*host_path == '/');
    mounts++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    bool gpus;
    mounts = 0;
    status_ignore(cdi_read((const char *)data, n, on_mount, NULL, &gpus, NULL));
    assert(mounts <= CDI_MOUNTS_MAX && (gpus || mounts == 0));
    return 0;
}
