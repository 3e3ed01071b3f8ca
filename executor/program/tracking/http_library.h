/* libmicrohttpd, loaded when the first client connects: with the libraries that it needs it would cost each rank of
 * each program three milliseconds at its start. The functions have the library's own types.
 *
 *     const struct http_library *http;  TRY(http_library_get(&http, e));  http->run(daemon); */
#ifndef EXECUTOR_PROGRAM_TRACKING_HTTP_LIBRARY_H
#define EXECUTOR_PROGRAM_TRACKING_HTTP_LIBRARY_H

#include "base/status.h"

#include <microhttpd.h>

struct http_library {
    __typeof__(MHD_start_daemon) *start_daemon;
    __typeof__(MHD_stop_daemon) *stop_daemon;
    __typeof__(MHD_suspend_connection) *suspend_connection;
    __typeof__(MHD_resume_connection) *resume_connection;
    __typeof__(MHD_run) *run;
    __typeof__(MHD_get_timeout) *get_timeout;
    __typeof__(MHD_get_daemon_info) *get_daemon_info;
    __typeof__(MHD_get_connection_info) *get_connection_info;
    __typeof__(MHD_lookup_connection_value) *lookup_connection_value;
    __typeof__(MHD_create_response_from_buffer) *create_response_from_buffer;
    __typeof__(MHD_create_response_from_fd64) *create_response_from_fd;
    __typeof__(MHD_add_response_header) *add_response_header;
    __typeof__(MHD_queue_response) *queue_response;
    __typeof__(MHD_destroy_response) *destroy_response;
};

/* FAILED_PRECONDITION if this host does not have the library. The library stays loaded. One thread. */
MUST_CHECK status_t http_library_get(const struct http_library **ret, struct err *e);

#endif
