/* URIs of data: file:///PATH, https://HOST/PATH, s3://BUCKET/KEY and hf://OWNER/NAME/PATH. All but the first are
 * remote: a host copies what they name (executor/data).
 *
 * The path of a URI may be a pattern: * ? and [a-z] stand for characters of one part of the path, {000..127} for
 * each of these numbers, and {a,b} for each of these texts (data_braces.h). A web server does not list its files,
 * so a URI of https:// has braces only. %XX is a character that has no meaning in a pattern. What a pattern matches
 * is sorted by its bytes. This file checks a URI for a spec; remote_uri.h takes a remote one apart.
 *
 * No I/O. Thread-safe. */
#ifndef API_SPEC_DATA_URI_H
#define API_SPEC_DATA_URI_H

#include "api/spec/data_braces.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <trainyard/v1/spec.pb-c.h>

enum { DATA_URI_BYTES = 4096 };

/* Whether a text names data of a store: it begins with a scheme of one, be it right or wrong. */
bool data_uri_is_remote(const char *uri);
/* Whether the path has a character of patterns. */
bool data_uri_is_pattern(const char *uri);
/* The bytes of a URI before the first such character. */
size_t data_uri_plain_bytes(const char *uri);

/* INVALID_ARGUMENT with what is wrong with the URI, or that a pattern is given where only one file can be. */
MUST_CHECK status_t data_uri_check(const char *uri, bool may_be_pattern, struct err *e);

/* data_braces_expand of the URI's path; other patterns stay as they are. */
MUST_CHECK status_t data_uri_expand(const char *uri, size_t max, struct data_uris *ret, struct err *e);

/* A part of a path that has n bytes, as a pattern for fnmatch(3). False: it does not fit. */
bool data_uri_part_pattern(const char *part, size_t n, char *ret, size_t cap);

/* The field whose remote URI a sentence about an object names: "data.text.files[3]"; "data": none. */
void data_uri_field(const Trainyard__V1__JobSpec *spec, const char *sentence, char *ret, size_t cap);

/* The remote URIs of the job's data, sorted, each once. They point into the spec; the caller frees the list. NULL and
 * 0: none. */
const char **data_uris_remote(const Trainyard__V1__JobSpec *spec, size_t *ret_n);

#endif
