/* URIs of data of a store, taken apart: for the rules of a spec, and for trainyard-data. What they name is an
 * object, or, with a pattern in the path, several:
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
#ifndef API_SPEC_REMOTE_URI_H
#define API_SPEC_REMOTE_URI_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum data_scheme { DATA_S3, DATA_HTTPS, DATA_HF, DATA_SCHEMES };
enum { REMOTE_URI_MAX = 2048 }; /* bytes; keys of S3 have at most 1,024 */

struct remote_uri {
    enum data_scheme scheme;
    char *root;     /* s3: the bucket; hf: [datasets/]OWNER/NAME; https: https://HOST[:PORT] */
    char *revision; /* hf: as given, or "main"; else NULL */
    char *path;     /* as given. s3: the key; hf: without a '/' at its beginning; https: with it, and with the query */
};

/* The bytes of the scheme with which the text begins, "s3://" and the like, be the rest right or wrong; 0: none. */
size_t remote_uri_scheme_bytes(const char *text);

/* INVALID_ARGUMENT with what is wrong with the URI. ret must be zeroed. Braces are not checked. */
MUST_CHECK status_t remote_uri_parse(const char *text, struct remote_uri *ret, struct err *e);
void remote_uri_done(struct remote_uri *uri);

/* Whether the path must be compared with a listing. */
bool remote_path_is_pattern(enum data_scheme scheme, const char *path);
/* Whether a wildcard may match in other parts of the path than the last. */
bool remote_path_is_deep(const char *path);
/* The path, decoded, up to its first wildcard: all of it if it has none. */
char *remote_path_decode(const char *path);
/* The text with every byte encoded but letters, digits, "-._~" and those of `keep`: what signatures of S3 cover. */
char *remote_text_encode(const char *text, const char *keep);
/* What remote_path_matches compares decoded paths with. */
char *remote_path_glob(const char *path);
bool remote_path_matches(const char *glob, const char *decoded);

#endif
