/* The documents in the bytes of a JSON object, and how a spec names them. Private to this folder. */
#ifndef ENGINE_DATA_DOCUMENT_H
#define ENGINE_DATA_DOCUMENT_H

#include "base/bytes.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Appends the string that `field` names in the JSON object: "a.b" is b in the object a. INVALID_ARGUMENT says what is
 * wrong with the object, without its place: "has no field 'text'; it has 'id', 'body'". RESOURCE_EXHAUSTED: the
 * buffer's limit. */
MUST_CHECK status_t document_of_json(const char *json, size_t n, const char *field, struct bytes *ret, struct err *e);

/* Whether `field` names a file with this extension in a sample of a WebDataset, or a part of that file. *ret_part: the
 * field in its JSON object ("json.text" -> "text"); NULL = the whole file. */
bool document_in_file(const char *field, const char *extension, const char **ret_part);

#endif
