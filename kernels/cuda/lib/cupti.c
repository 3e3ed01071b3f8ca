#include "kernels/cuda/lib/cupti.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { RELEASE = CUPTI_API_VERSION / 100, MAJOR = RELEASE / 100, MINOR = RELEASE % 100 }; /* 1300 is CUDA 13.0 */

/* Toolkits install CUPTI beside their libraries or in a folder of its own. */
static void *load_from(const char *toolkit, const char *file) {
    static const char *const FOLDERS[] = { "extras/CUPTI/lib64", "lib64", "lib" };
    char path[PATH_MAX];
    void *library = NULL;
    for (size_t i = 0; toolkit && *toolkit && !library && i < sizeof FOLDERS / sizeof *FOLDERS; i++) {
        const int n = snprintf(path, sizeof path, "%s/%s/%s", toolkit, FOLDERS[i], file);
        if (n > 0 && (size_t)n < sizeof path)
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

static status_t library_load(void **ret, struct err *e) {
    char file[32];
    struct err why;
    snprintf(file, sizeof file, "libcupti.so.%d", MAJOR);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        status_ignore(err_set(&why, ST_FAILED_PRECONDITION, "CUPTI cannot be loaded: %s", dlerror()));
    library = library ? library : load_from(getenv("CUDA_HOME"), file);
    library = library ? library : load_from(getenv("CUDA_PATH"), file);
    library = library ? library : load_from("/usr/local/cuda", file);
    if (!library)
        return err_set(e, ST_FAILED_PRECONDITION, "%s", why.msg);
    *ret = library;
    return ST_OK;
}

static status_t functions_find(void *library, struct cupti *c, struct err *e) {
#define FIND(f)                                                                                                        \
    *(void **)&c->f = dlsym(library, #f);                                                                              \
    if (!c->f)                                                                                                         \
        return err_set(e, ST_FAILED_PRECONDITION, "this host's CUPTI has no function " #f);
    CUPTI_FUNCTIONS(FIND)
#undef FIND
    return ST_OK;
}

status_t cupti_status(const struct cupti *c, CUptiResult result, const char *what, struct err *e) {
    const char *text = NULL;
    if (result == CUPTI_SUCCESS)
        return ST_OK;
    if (c->cuptiGetResultString(result, &text) != CUPTI_SUCCESS || !text)
        text = "an error without a name";
    return err_set(e, ST_FAILED_PRECONDITION, "%s: %s", what, text);
}

/* Newer versions only append fields to records, and only within a major version. */
static status_t version_check(const struct cupti *c, struct err *e) {
    uint32_t version = 0;
    TRY(cupti_status(c, c->cuptiGetVersion(&version), "asking CUPTI for its version", e));
    const uint32_t release = version / 100;
    if (release / 100 == MAJOR && release >= RELEASE)
        return ST_OK;
    return err_set(e, ST_FAILED_PRECONDITION,
                   "this host's CUPTI is of version %u.%u, and this build reads %d.%d and later", release / 100,
                   release % 100, MAJOR, MINOR);
}

status_t cupti_load(const struct cupti **ret, struct err *e) {
    static struct cupti loaded;
    static bool is_loaded;
    void *library = NULL;
    if (!is_loaded) {
        TRY(library_load(&library, e));
        status_t st = functions_find(library, &loaded, e);
        if (st == ST_OK)
            st = version_check(&loaded, e);
        if (st != ST_OK) {
            dlclose(library);
            return st;
        }
        is_loaded = true;
    }
    *ret = &loaded;
    return ST_OK;
}
