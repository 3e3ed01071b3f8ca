/* The files of web/page, which the build embeds (embed.cmake). */
#ifndef WEB_SERVER_FILES_H
#define WEB_SERVER_FILES_H

#include <stddef.h>

struct web_file {
    const char *path; /* "/app.js" */
    const char *type; /* of its content */
    const char *etag; /* the beginning of its SHA-256, in quotes */
    const unsigned char *data;
    size_t n;
};

extern const struct web_file web_files[];
extern const size_t n_web_files;

#endif
