#include "engine/data/document.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { NAMES_BYTES = 160 };

/* "'id', 'body'": the object's fields, as far as they fit. */
static const char *names_of(const json_t *object, char ret[NAMES_BYTES]) {
    const char *name;
    json_t *value;
    size_t used = 0;
    ret[0] = '\0';
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        int n = snprintf(ret + used, NAMES_BYTES - used, "%s'%.40s'", used ? ", " : "", name);
        if (n < 0 || used + (size_t)n >= NAMES_BYTES) {
            ret[used] = '\0';
            break;
        }
        used += (size_t)n;
    }
    return ret;
}

static status_t find_field(const json_t *object, const char *field, const json_t **ret, struct err *e) {
    char names[NAMES_BYTES];
    for (const char *part = field;; part++) {
        const size_t n = strcspn(part, ".");
        if (!json_is_object(object))
            return err_set(e, ST_INVALID_ARGUMENT, "has no JSON object that contains '%.80s'", part);
        const json_t *value = json_object_getn(object, part, n);
        if (!value)
            return err_set(e, ST_INVALID_ARGUMENT, "has no field '%.*s'; it has %s", (int)(n < 80 ? n : 80), part,
                           *names_of(object, names) ? names : "none");
        object = value;
        part += n;
        if (!*part)
            break;
    }
    *ret = object;
    return ST_OK;
}

status_t document_of_json(const char *json, size_t n, const char *field, struct bytes *ret, struct err *e) {
    json_error_t why;
    CLEANUP(json_decrefp) json_t *object = json_loadb(json, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
    const json_t *text = NULL;
    if (!object)
        return err_set(e, ST_INVALID_ARGUMENT, "is not JSON: %s", why.text);
    TRY(find_field(object, field, &text, e));
    if (!json_is_string(text))
        return err_set(e, ST_INVALID_ARGUMENT, "has a field '%.80s' that is not a string", field);
    return bytes_append(ret, json_string_value(text), json_string_length(text), e);
}

bool document_in_file(const char *field, const char *extension, const char **ret_part) {
    const size_t n = strlen(extension);
    if (strncmp(field, extension, n) != 0 || (field[n] && field[n] != '.'))
        return false;
    *ret_part = field[n] ? field + n + 1 : NULL;
    return true;
}
