#include "kernels/plugin.h"

#include "base/process.h"
#include "kernels/sources.h" /* generated: KERNELS_SOURCES */

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char CUDA[] = "libtrainyard_cuda.so";

struct library {
    void *handle;
    const struct kernels_plugin *plugin;
};

static status_t load(const char *name, struct library *ret, struct err *e) {
    char path[PATH_MAX];
    process_library(name, path, sizeof path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return err_set(e, ST_FAILED_PRECONDITION, "device 'cuda' needs a library that cannot be loaded: %s", dlerror());
    const struct kernels_plugin *plugin = dlsym(handle, KERNELS_PLUGIN_NAME);
    if (!plugin || strncmp(plugin->sources, KERNELS_SOURCES, sizeof plugin->sources) != 0) {
        dlclose(handle);
        return err_set(e, ST_FAILED_PRECONDITION, "device 'cuda' needs a %s of the same build as this program, not %s",
                       name, path);
    }
    *ret = (struct library){ handle, plugin };
    return ST_OK;
}

static status_t cuda_library(struct library *ret, struct err *e) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct library loaded;
    pthread_mutex_lock(&lock);
    const status_t st = loaded.handle ? ST_OK : load(CUDA, &loaded, e);
    *ret = loaded;
    pthread_mutex_unlock(&lock);
    return st;
}

status_t kernels_plugin_cuda(const struct kernels_plugin **ret, struct err *e) {
    struct library library;
    TRY(cuda_library(&library, e));
    *ret = library.plugin;
    return ST_OK;
}

status_t kernels_plugin_cuda_symbol(const char *name, const void **ret, struct err *e) {
    struct library library;
    TRY(cuda_library(&library, e));
    const void *symbol = dlsym(library.handle, name);
    if (!symbol)
        return err_set(e, ST_FAILED_PRECONDITION, "this build's %s has no %s", CUDA, name);
    *ret = symbol;
    return ST_OK;
}
