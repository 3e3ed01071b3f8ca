/* One walk over a spec checks each field by the option (field) that spec.proto gives it: required, range, choices,
 * power of two, format, number of elements, and a field that must divide another. A field without presence that is
 * zero or empty is not given. Comparisons are written so that NaN fails. The walk adds at most one line for a field. */
#include "api/codec/field_option.h"
#include "api/codec/message.h"
#include "api/codec/text.h"
#include "api/spec/data_uri.h"
#include "api/spec/fields.h"
#include "api/spec/rules.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 128, FILE_PATH_BYTES = 4096, NAMES_BYTES = 256, SHOWN_BYTES = 64, ARGUMENT_BYTES = 128 << 10 };

typedef Trainyard__V1__SpecField rule_t;

/* ---- numbers ---- */

static double number(const ProtobufCFieldDescriptor *f, const void *at) {
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32: return *(const int32_t *)at;
    case PROTOBUF_C_TYPE_INT64: return (double)*(const int64_t *)at;
    default: return *(const double *)at;
    }
}

/* Integers with all digits, which a double may not have. */
static const char *show(const ProtobufCFieldDescriptor *f, const void *at, char ret[SHOWN_BYTES]) {
    if (f->type == PROTOBUF_C_TYPE_INT64)
        snprintf(ret, SHOWN_BYTES, "%" PRId64, *(const int64_t *)at);
    else
        codec_double_text(number(f, at), ret);
    return ret;
}

static bool in_range(const rule_t *r, double value) {
    int exponent;
    return (!r->_min_case || value >= r->min) && (!r->_max_case || value <= r->max) &&
           (!r->_above_case || value > r->above) && (!r->_below_case || value < r->below) &&
           (!r->power_of_two || frexp(value, &exponent) == 0.5);
}

/* "from 1 to 1024"; every range has a lower end. */
static const char *range_text(const rule_t *r, char ret[2 * SHOWN_BYTES]) {
    char low[32], high[32];
    codec_double_text(r->_above_case ? r->above : r->min, low);
    codec_double_text(r->_below_case ? r->below : r->max, high);
    if (!r->_max_case && !r->_below_case)
        snprintf(ret, 2 * SHOWN_BYTES, "at least %s", low);
    else if (r->_below_case)
        snprintf(ret, 2 * SHOWN_BYTES, "at least %s and below %s", low, high);
    else if (r->_above_case)
        snprintf(ret, 2 * SHOWN_BYTES, "above %s and at most %s", low, high);
    else
        snprintf(ret, 2 * SHOWN_BYTES, "%sfrom %s to %s", r->power_of_two ? "a power of two " : "", low, high);
    return ret;
}

static bool is_choice(const rule_t *r, const char *text) {
    for (size_t i = 0; i < r->n_choices; i++)
        if (strcmp(r->choices[i], text) == 0)
            return true;
    return false;
}

static const char *choice_names(const rule_t *r, char ret[NAMES_BYTES]) {
    size_t used = 0;
    for (size_t i = 0; i < r->n_choices; i++)
        used += (size_t)snprintf(ret + used, NAMES_BYTES - used, "%s%s", used ? ", " : "", r->choices[i]);
    if (r->format == TRAINYARD__V1__SPEC_FIELD__FORMAT__FILE_URI)
        snprintf(ret + used, NAMES_BYTES - used, ", a file:// URI");
    else if (r->format == TRAINYARD__V1__SPEC_FIELD__FORMAT__DATA_URI)
        snprintf(ret + used, NAMES_BYTES - used, ", a file://, https://, s3:// or hf:// URI");
    return ret;
}

static bool check_number(const ProtobufCFieldDescriptor *f, const rule_t *r, const void *at, const char *path,
                         struct spec_problems *p) {
    char shown[SHOWN_BYTES], range[2 * SHOWN_BYTES], names[NAMES_BYTES];
    show(f, at, shown);
    if (r->n_choices && !is_choice(r, shown))
        problem_add(p, "%s: %s is not one of: %s", path, shown, choice_names(r, names));
    else if (!in_range(r, number(f, at)))
        problem_add(p, "%s: %s is not %s", path, shown, range_text(r, range));
    else
        return true;
    return false;
}

/* Both fields are int32. A partner that is wrong itself has a line of its own. */
static bool check_divides(const ProtobufCMessage *msg, const rule_t *r, const void *at, const char *path,
                          struct spec_problems *p) {
    const int32_t value = *(const int32_t *)at, *whole = spec_value(msg, r->divides);
    if (!whole || !rules_field_good(msg, r->divides) || *whole % value == 0)
        return true;
    problem_add(p, "%s: %d does not divide %s %d", path, value, r->divides, *whole);
    return false;
}

/* ---- text ---- */

bool rules_file(const char *uri, const char *path, struct spec_problems *p) {
    char local[FILE_PATH_BYTES];
    struct err e;
    if (data_uri_is_remote(uri)) {
        problem_add(p, "%s: '%.120s' is no file of the hosts: this field supports file:///PATH only", path, uri);
        return false;
    }
    if (spec_uri_path(uri, local, sizeof local, &e) == ST_OK)
        return true;
    problem_add(p, "%s: %s", path, e.msg);
    return false;
}

static bool check_data_uri(const char *uri, bool may_be_pattern, const char *path, struct spec_problems *p) {
    struct err e;
    if (data_uri_check(uri, may_be_pattern, &e) == ST_OK)
        return true;
    problem_add(p, "%s: %s", path, e.msg);
    return false;
}

static bool check_secret(const char *name, const char *path, struct spec_problems *p) {
    if (spec_secret_name(name))
        return true;
    problem_add(p, "%s: '%.60s' is not the name of a secret: 1 to 128 letters, digits and '_', the first no digit",
                path, name);
    return false;
}

bool rules_argument(const char *value, const char *path, struct spec_problems *p) {
    const size_t n = strlen(value);
    if (n >= ARGUMENT_BYTES)
        problem_add(p, "%s: %zu bytes are more than a program can get, %d", path, n, ARGUMENT_BYTES - 1);
    else if (!utf8_valid(value, n))
        problem_add(p, "%s: is not UTF-8", path);
    else
        return true;
    return false;
}

/* It is checked as one of its files. */
static bool check_remote_folder(const char *value, const char *path, struct spec_problems *p) {
    char file[DATA_URI_BYTES];
    struct err e = { "" };
    const int n = snprintf(file, sizeof file, "%s/config.json", value);
    if (n < 0 || (size_t)n >= sizeof file || value[strlen(value) - 1] == '/')
        status_ignore(err_set(&e, ST_INVALID_ARGUMENT, "'%.120s' is too long, or has a '/' at its end", value));
    else if (data_uri_check(file, false, &e) == ST_OK)
        return true;
    problem_add(p, "%s: %s", path, e.msg);
    return false;
}

static bool check_checkpoint(const char *value, const char *path, struct spec_problems *p) {
    int64_t job, id;
    if (spec_checkpoint_name(value, &job, &id))
        return true;
    if (strncmp(value, "file:", 5) == 0)
        return rules_file(value, path, p);
    if (strncmp(value, "s3://", 5) == 0 || strncmp(value, "hf://", 5) == 0)
        return check_remote_folder(value, path, p);
    problem_add(p, "%s: '%.60s' is neither a checkpoint (jobs/42/checkpoints/7) nor a file://, s3:// or hf:// URI",
                path, value);
    return false;
}

static bool is_uri(const rule_t *r, const char *value) {
    switch (r->format) {
    case TRAINYARD__V1__SPEC_FIELD__FORMAT__FILE_URI: return strncmp(value, "file:", 5) == 0;
    case TRAINYARD__V1__SPEC_FIELD__FORMAT__DATA_URI:
        return strncmp(value, "file:", 5) == 0 || data_uri_is_remote(value);
    default: return false;
    }
}

/* A pattern names several files. */
static bool check_text(const rule_t *r, const char *value, bool in_list, const char *path, struct spec_problems *p) {
    char names[NAMES_BYTES];
    if (r->n_choices && !is_uri(r, value)) {
        if (is_choice(r, value))
            return true;
        problem_add(p, "%s: '%.40s' is not one of: %s", path, value, choice_names(r, names));
        return false;
    }
    switch (r->format) {
    case TRAINYARD__V1__SPEC_FIELD__FORMAT__FILE_URI: return rules_file(value, path, p);
    case TRAINYARD__V1__SPEC_FIELD__FORMAT__DATA_URI: return check_data_uri(value, in_list, path, p);
    case TRAINYARD__V1__SPEC_FIELD__FORMAT__DATA_FILES: return check_data_uri(value, true, path, p);
    case TRAINYARD__V1__SPEC_FIELD__FORMAT__CHECKPOINT: return check_checkpoint(value, path, p);
    case TRAINYARD__V1__SPEC_FIELD__FORMAT__ARGUMENT: return rules_argument(value, path, p);
    case TRAINYARD__V1__SPEC_FIELD__FORMAT__SECRET: return check_secret(value, path, p);
    case TRAINYARD__V1__SPEC_FIELD__FORMAT__NAME: return check_name(p, path, value);
    default: return true;
    }
}

/* ---- fields ---- */

static bool check_value(const ProtobufCFieldDescriptor *f, const rule_t *r, const void *at, const char *path,
                        struct spec_problems *p) {
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING: return check_text(r, *(char *const *)at, field_is_repeated(f), path, p);
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_DOUBLE: return check_number(f, r, at, path, p);
    default: return true;
    }
}

static bool check_list(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, const rule_t *r,
                       const char *path, struct spec_problems *p) {
    size_t n;
    const char *elements = field_elements(msg, f, &n);
    const size_t max = r->max_items ? (size_t)r->max_items : n;
    bool good = n <= max && !(r->required && n == 0);
    if (n > max)
        problem_add(p, "%s: %zu %s are more than %zu", path, n, r->unit, max);
    else if (!good)
        problem_add(p, "%s: must not be empty", path);
    for (size_t i = 0; i < n && i < max; i++) {
        char element[PATH_BYTES + 24];
        snprintf(element, sizeof element, "%s[%zu]", path, i);
        good &= check_value(f, r, elements + i * field_element_bytes(f), element, p);
    }
    return good;
}

static bool check_missing(const ProtobufCFieldDescriptor *f, const rule_t *r, const char *path,
                          struct spec_problems *p) {
    char text[NAMES_BYTES] = "";
    if (!r->required)
        return true;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessageDescriptor *choice = f->descriptor;
        oneof_member_names(choice, &choice->fields[0], text, sizeof text);
        problem_add(p, "%s: give exactly one of %s", path, text);
    } else if (r->format == TRAINYARD__V1__SPEC_FIELD__FORMAT__NAME) {
        problem_add(p, "%s: must be given, 1 to 63 letters, digits, '.', '_' or '-'", path);
    } else if (r->_min_case) {
        problem_add(p, "%s: must be given, %s", path, range_text(r, text));
    } else {
        problem_add(p, "%s: must be given", path);
    }
    return false;
}

/* Zero in a field without presence, which cannot distinguish zero from absent. */
static bool is_absent(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f) {
    const void *at = field_value(msg, f);
    if (f->type == PROTOBUF_C_TYPE_MESSAGE && field_is_set(msg, f) && message_is_choice(f->descriptor))
        return !spec_member(*(ProtobufCMessage *const *)at);
    if (field_has_presence(f))
        return !field_is_set(msg, f);
    return f->type == PROTOBUF_C_TYPE_STRING ? !**(char *const *)at
                                             : f->type != PROTOBUF_C_TYPE_BOOL && number(f, at) == 0;
}

static bool check_field(const ProtobufCMessage *msg, unsigned i, const char *path, struct spec_problems *p) {
    const ProtobufCFieldDescriptor *f = &msg->descriptor->fields[i];
    const rule_t *r = spec_field(msg->descriptor, i);
    if (spec_replaced(msg, r)) {
        if (field_is_set(msg, f))
            problem_add(p,
                        *r->mapping ? "%s: is either a number or a mapping, not both" : "%s: cannot be given with %s",
                        path, r->unless);
        return !field_is_set(msg, f);
    }
    if (field_is_repeated(f))
        return check_list(msg, f, r, path, p);
    if (is_absent(msg, f))
        return check_missing(f, r, path, p);
    const void *at = field_value(msg, f);
    return check_value(f, r, at, path, p) && (!*r->divides || check_divides(msg, r, at, path, p));
}

bool rules_field_good(const ProtobufCMessage *msg, const char *name) {
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(msg->descriptor, name);
    return check_field(msg, (unsigned)(f - msg->descriptor->fields), name, NULL);
}

/* The messages of a list. The values of a map are visited by the rules of that map, since its keys have rules, too. */
static void check_elements(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, const char *path,
                           struct spec_problems *p) {
    size_t n;
    ProtobufCMessage *const *elements = field_elements(msg, f, &n);
    for (size_t i = 0; i < n; i++) {
        char element[PATH_BYTES + 24];
        snprintf(element, sizeof element, "%s[%zu]", path, i);
        rules_fields(elements[i], element, p);
    }
}

void rules_fields(const ProtobufCMessage *msg, const char *path, struct spec_problems *p) {
    for (unsigned i = 0; i < msg->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &msg->descriptor->fields[i];
        char below[PATH_BYTES];
        const ProtobufCFieldDescriptor *mapped = field_mapped(msg->descriptor, f);
        snprintf(below, sizeof below, "%s%s%s", path, *path ? "." : "", mapped ? mapped->name : f->name);
        check_field(msg, i, below, p);
        if (spec_replaced(msg, spec_field(msg->descriptor, i)))
            continue;
        if (f->type == PROTOBUF_C_TYPE_MESSAGE && !field_is_repeated(f) && field_is_set(msg, f))
            rules_fields(*(ProtobufCMessage *const *)field_value(msg, f), below, p);
        if (f->type == PROTOBUF_C_TYPE_MESSAGE && field_is_repeated(f) && !field_is_map(f))
            check_elements(msg, f, below, p);
    }
}
