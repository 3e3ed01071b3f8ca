/* An S3 server for `images`: N objects of the same size, bucket/d/000000.bin and so on, which differ in their first
 * bytes. It answers GET of an object and of a listing in pages of 1,000, from memory, so that a measurement of a client
 * is not one of the server. Prints its port, and ends when its input does. Arguments: N, bytes of an object. */
#include "api/http/listener.h"
#include "base/alloc.h"
#include "base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 1000, PAGE_BYTES = 1 << 20, THREADS = 2, CONNECTIONS = 64, IDLE_S = 60 };

struct objects {
    int n;
    size_t bytes;
};

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned code, char *body, size_t n,
                              const char *etag) {
    struct MHD_Response *r = MHD_create_response_from_buffer(n, body, MHD_RESPMEM_MUST_FREE);
    if (*etag)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ETAG, etag);
    enum MHD_Result ok = MHD_queue_response(connection, code, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result list(const struct objects *o, struct MHD_Connection *connection) {
    const char *token = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "continuation-token");
    const int first = token ? (int)strtol(token, NULL, 10) : 0, end = first + PAGE < o->n ? first + PAGE : o->n;
    struct bytes text;
    bytes_init(&text, PAGE_BYTES);
    status_t st = bytes_printf(&text, NULL, "<ListBucketResult><IsTruncated>%s</IsTruncated>",
                               end < o->n ? "true" : "false");
    if (st == ST_OK && end < o->n)
        st = bytes_printf(&text, NULL, "<NextContinuationToken>%d</NextContinuationToken>", end);
    for (int i = first; st == ST_OK && i < end; i++)
        st = bytes_printf(&text, NULL,
                          "<Contents><Key>d/%06d.bin</Key><Size>%zu</Size><ETag>\"%d-2\"</ETag></Contents>", i,
                          o->bytes, i);
    if (st == ST_OK)
        st = bytes_printf(&text, NULL, "</ListBucketResult>");
    const size_t n = text.len;
    return st == ST_OK ? answer(connection, MHD_HTTP_OK, bytes_take(&text), n, "") : MHD_NO;
}

static enum MHD_Result serve(void *ctx, struct MHD_Connection *connection, const char *url, const char *method,
                             const char *version, const char *body, size_t *n_body, void **request) {
    static int begun;
    const struct objects *o = ctx;
    char etag[32];
    static const char FOLDER[] = "/bucket/d/";
    (void)method, (void)version, (void)body, (void)n_body;
    if (!*request) {
        *request = &begun;
        return MHD_YES;
    }
    if (strcmp(url, "/bucket") == 0)
        return list(o, connection);
    const bool in_folder = strncmp(url, FOLDER, sizeof FOLDER - 1) == 0;
    const int i = in_folder ? (int)strtol(url + sizeof FOLDER - 1, NULL, 10) : -1;
    if (i < 0 || i >= o->n)
        return answer(connection, MHD_HTTP_NOT_FOUND, alloc_zeroed(1, 1), 0, "");
    char *data = alloc_zeroed(o->bytes + sizeof i, 1);
    memcpy(data, &i, sizeof i);
    snprintf(etag, sizeof etag, "\"%d-2\"", i);
    return answer(connection, MHD_HTTP_OK, data, o->bytes, etag);
}

int main(int argc, char **argv) {
    struct objects o = { .n = argc > 2 ? (int)strtol(argv[1], NULL, 10) : 0,
                         .bytes = argc > 2 ? (size_t)strtol(argv[2], NULL, 10) : 0 };
    struct http_listener listener = { 0 };
    struct err e = { "" };
    char byte;
    const struct http_listener_config config = { .address = "127.0.0.1:0",
                                                 .connections = CONNECTIONS,
                                                 .per_host = CONNECTIONS,
                                                 .idle_s = IDLE_S,
                                                 .threads = THREADS,
                                                 .serve = serve,
                                                 .ctx = &o };
    if (http_listener_open(&config, &listener, &e) != ST_OK) {
        fprintf(stderr, "bench_objects: %s\n", e.msg);
        return 1;
    }
    printf("%d\n", listener.port);
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        continue;
    http_listener_close(&listener);
    return 0;
}
