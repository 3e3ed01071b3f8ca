#include "executor/program/tracking/http_library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libmicrohttpd.so.12"

static const struct {
    const char *name;
    size_t at;
} functions[] = {
    { "MHD_start_daemon", offsetof(struct http_library, start_daemon) },
    { "MHD_stop_daemon", offsetof(struct http_library, stop_daemon) },
    { "MHD_suspend_connection", offsetof(struct http_library, suspend_connection) },
    { "MHD_resume_connection", offsetof(struct http_library, resume_connection) },
    { "MHD_run", offsetof(struct http_library, run) },
    { "MHD_get_timeout", offsetof(struct http_library, get_timeout) },
    { "MHD_get_daemon_info", offsetof(struct http_library, get_daemon_info) },
    { "MHD_get_connection_info", offsetof(struct http_library, get_connection_info) },
    { "MHD_lookup_connection_value", offsetof(struct http_library, lookup_connection_value) },
    { "MHD_create_response_from_buffer", offsetof(struct http_library, create_response_from_buffer) },
    { "MHD_create_response_from_fd64", offsetof(struct http_library, create_response_from_fd) },
    { "MHD_add_response_header", offsetof(struct http_library, add_response_header) },
    { "MHD_queue_response", offsetof(struct http_library, queue_response) },
    { "MHD_destroy_response", offsetof(struct http_library, destroy_response) },
};

status_t http_library_get(const struct http_library **ret, struct err *e) {
    static struct http_library library;
    static void *loaded;
    if (!loaded) {
        void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
        if (!handle)
            return err_set(e, ST_FAILED_PRECONDITION, "this host cannot load " LIBRARY ": %s", dlerror());
        for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
            void *function = dlsym(handle, functions[i].name);
            if (!function)
                return err_set(e, ST_FAILED_PRECONDITION, LIBRARY " has no %s", functions[i].name);
            memcpy((char *)&library + functions[i].at, &function, sizeof function);
        }
        loaded = handle;
    }
    *ret = &library;
    return ST_OK;
}
