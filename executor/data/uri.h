/* URIs of data. What they name is an object, or, with a pattern in the path, several:
 *
 *   s3://BUCKET/KEY
 *   hf://OWNER/NAME[@REVISION]/PATH             a model repository of Hugging Face
 *   hf://datasets/OWNER/NAME[@REVISION]/PATH    a dataset repository
 *   https://HOST[:PORT]/PATH                    also http://, which the caller decides about
 *
 * Patterns, in the path alone:
 *
 *   {000..127}  {a,b}   in any scheme; written out, without asking the store (api/spec/data_braces.h)
 *   *  ?  [a-z]         in s3 and hf, as in a shell: none of them matches a '/', or a '.' at the beginning of a part
 *
 * %XX is a character without a meaning in a pattern. The text of https is what is sent. */
#ifndef EXECUTOR_DATA_URI_H
#define EXECUTOR_DATA_URI_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum data_scheme { DATA_S3, DATA_HTTPS, DATA_HF, DATA_SCHEMES };
enum { DATA_URI_MAX = 2048 }; /* bytes; keys of S3 have at most 1,024 */

struct data_uri {
    enum data_scheme scheme;
    char *root;     /* s3: the bucket; hf: [datasets/]OWNER/NAME; https: https://HOST[:PORT] */
    char *revision; /* hf: as given, or "main"; else NULL */
    char *path;     /* as given. s3: the key; hf: without a '/' at its beginning; https: with it, and with the query */
};

MUST_CHECK status_t data_uri_parse(const char *text, struct data_uri *ret, struct err *e);
void data_uri_done(struct data_uri *uri);

/* Whether the path must be compared with a listing. */
bool data_path_is_pattern(enum data_scheme scheme, const char *path);
/* Whether a wildcard may match in other parts of the path than the last. */
bool data_path_is_deep(const char *path);
/* The path, decoded, up to its first wildcard: all of it if it has none. */
char *data_path_decode(const char *path);
/* What data_path_matches compares decoded paths with. */
char *data_path_glob(const char *path);
bool data_path_matches(const char *glob, const char *decoded);

#endif
