/* The descriptors of all files, for reflection and for the access rules of methods.
 *
 * Two serialised sets are unpacked: that of this folder (health, reflection) and that of the caller's services. Each
 * file is kept once, unpacked for lookups and packed for replies. A symbol is looked up by comparing its name part by
 * part with packages, messages, enums, services and methods. protobuf-c does not know extensions: they are unknown
 * fields of a method's options, and this file reads them from there. */
#include "api/rpc/descriptors.h"

#include "base/alloc.h"

#include <google/protobuf/descriptor.pb-c.h>
#include <rpc/descriptors.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef Google__Protobuf__FileDescriptorSet set_t;
typedef Google__Protobuf__FileDescriptorProto file_t;
typedef Google__Protobuf__DescriptorProto message_t;
typedef Google__Protobuf__EnumDescriptorProto enum_t;
typedef Google__Protobuf__ServiceDescriptorProto service_t;
typedef Google__Protobuf__MethodDescriptorProto method_t;
typedef Google__Protobuf__FieldDescriptorProto field_t;

enum { SETS = 2 };

struct descriptors {
    set_t *sets[SETS];
    const file_t **files;
    ProtobufCBinaryData *packed; /* [n] */
    size_t n;
};

int descriptors_file_by_name(const struct descriptors *d, const char *name) {
    for (size_t i = 0; i < d->n; i++)
        if (!strcmp(d->files[i]->name, name))
            return (int)i;
    return -1;
}

static void add_file(struct descriptors *d, const file_t *file) {
    if (!file->name || descriptors_file_by_name(d, file->name) >= 0)
        return; /* both sets may have it */
    size_t n = google__protobuf__file_descriptor_proto__get_packed_size(file);
    uint8_t *packed = alloc_zeroed(1, n ? n : 1);
    google__protobuf__file_descriptor_proto__pack(file, packed);
    d->files[d->n] = file;
    d->packed[d->n++] = (ProtobufCBinaryData){ n, packed };
}

static void index_files(struct descriptors *d) {
    size_t n = d->sets[0]->n_file + d->sets[1]->n_file;
    d->files = alloc_zeroed(n, sizeof(const file_t *));
    d->packed = alloc_zeroed(n, sizeof *d->packed);
    for (int s = 0; s < SETS; s++)
        for (size_t i = 0; i < d->sets[s]->n_file; i++)
            add_file(d, d->sets[s]->file[i]);
}

status_t descriptors_open(const void *set, size_t n, struct descriptors **ret, struct err *e) {
    struct descriptors *d = alloc_zeroed(1, sizeof *d);
    d->sets[0] = google__protobuf__file_descriptor_set__unpack(NULL, rpc_descriptors_len, rpc_descriptors);
    d->sets[1] = google__protobuf__file_descriptor_set__unpack(NULL, n, n ? set : "");
    if (!d->sets[0] || !d->sets[1]) {
        descriptors_close(d);
        return err_set(e, ST_INVALID_ARGUMENT, "the descriptors are not a FileDescriptorSet");
    }
    index_files(d);
    *ret = d;
    return ST_OK;
}

struct descriptors *descriptors_close(struct descriptors *d) {
    if (!d)
        return NULL;
    for (size_t i = 0; i < d->n; i++)
        free(d->packed[i].data);
    free(d->packed);
    free(d->files);
    for (int s = 0; s < SETS; s++)
        if (d->sets[s])
            google__protobuf__file_descriptor_set__free_unpacked(d->sets[s], NULL);
    free(d);
    return NULL;
}

size_t descriptors_count(const struct descriptors *d) { return d->n; }

/* Returns the rest of symbol after "name" or "name.": "" if the symbol ends there, NULL if it does not begin with name.
 * For an empty name (a file without a package) the rest is the whole symbol. */
static const char *behind(const char *symbol, const char *name) {
    size_t n = name ? strlen(name) : 0;
    if (n == 0)
        return symbol;
    if (strncmp(symbol, name, n) != 0 || (symbol[n] && symbol[n] != '.'))
        return NULL;
    return symbol + n + (symbol[n] == '.');
}

static bool is(const char *symbol, const char *name) { return name && !strcmp(symbol, name); }

/* The name of a value is in the scope that contains its enum, as in C++. */
static bool enum_has(const enum_t *t, const char *symbol) {
    bool found = is(symbol, t->name);
    for (size_t i = 0; i < t->n_value; i++)
        found = found || is(symbol, t->value[i]->name);
    return found;
}

static bool message_has(const message_t *m, const char *symbol) {
    const char *rest = behind(symbol, m->name);
    if (!rest || !*rest)
        return rest != NULL;
    bool found = false;
    for (size_t i = 0; i < m->n_field; i++)
        found = found || is(rest, m->field[i]->name);
    for (size_t i = 0; i < m->n_oneof_decl; i++)
        found = found || is(rest, m->oneof_decl[i]->name);
    for (size_t i = 0; i < m->n_enum_type; i++)
        found = found || enum_has(m->enum_type[i], rest);
    for (size_t i = 0; i < m->n_nested_type; i++)
        found = found || message_has(m->nested_type[i], rest);
    return found;
}

static bool service_has(const service_t *s, const char *symbol) {
    const char *rest = behind(symbol, s->name);
    bool found = rest && !*rest;
    for (size_t i = 0; rest && i < s->n_method; i++)
        found = found || is(rest, s->method[i]->name);
    return found;
}

static bool file_has(const file_t *f, const char *symbol) {
    const char *rest = behind(symbol, f->package);
    if (!rest || !*rest)
        return false;
    bool found = false;
    for (size_t i = 0; i < f->n_message_type; i++)
        found = found || message_has(f->message_type[i], rest);
    for (size_t i = 0; i < f->n_enum_type; i++)
        found = found || enum_has(f->enum_type[i], rest);
    for (size_t i = 0; i < f->n_service; i++)
        found = found || service_has(f->service[i], rest);
    for (size_t i = 0; i < f->n_extension; i++)
        found = found || is(rest, f->extension[i]->name);
    return found;
}

int descriptors_file_by_symbol(const struct descriptors *d, const char *symbol) {
    for (size_t i = 0; i < d->n; i++)
        if (file_has(d->files[i], symbol))
            return (int)i;
    return -1;
}

static bool nests(message_t *const *messages, size_t n, const char *symbol) {
    for (size_t i = 0; i < n; i++) {
        const char *rest = behind(symbol, messages[i]->name);
        if (rest && (!*rest || nests(messages[i]->nested_type, messages[i]->n_nested_type, rest)))
            return true;
    }
    return false;
}

bool descriptors_is_message(const struct descriptors *d, const char *symbol) {
    for (size_t i = 0; i < d->n; i++) {
        const char *rest = behind(symbol, d->files[i]->package);
        if (rest && nests(d->files[i]->message_type, d->files[i]->n_message_type, rest))
            return true;
    }
    return false;
}

size_t descriptors_with_imports(const struct descriptors *d, int file, ProtobufCBinaryData *ret) {
    size_t n = 0;
    ret[n++] = d->packed[file];
    for (size_t done = 0; done < n; done++) { /* breadth first; ret is also the queue */
        size_t at = 0;
        while (d->packed[at].data != ret[done].data)
            at++;
        for (size_t i = 0; i < d->files[at]->n_dependency; i++) {
            int import = descriptors_file_by_name(d, d->files[at]->dependency[i]);
            bool known = import < 0;
            for (size_t k = 0; k < n && !known; k++)
                known = ret[k].data == d->packed[import].data;
            if (!known)
                ret[n++] = d->packed[import];
        }
    }
    return n;
}

static const method_t *find_method(const struct descriptors *d, const char *service, const char *method) {
    for (size_t i = 0; i < d->n; i++) {
        const char *rest = behind(service, d->files[i]->package);
        for (size_t s = 0; rest && s < d->files[i]->n_service; s++) {
            const service_t *found = d->files[i]->service[s];
            for (size_t m = 0; is(rest, found->name) && m < found->n_method; m++) {
                if (is(method, found->method[m]->name))
                    return found->method[m];
            }
        }
    }
    return NULL;
}

status_t descriptors_method_kind(const struct descriptors *d, const char *service, const char *method,
                                 enum rpc_kind *ret, struct err *e) {
    const method_t *found = find_method(d, service, method);
    if (!found)
        return err_set(e, ST_NOT_FOUND, "the descriptors do not have the method %s of %s", method, service);
    bool in = found->client_streaming, out = found->server_streaming;
    *ret = in && out ? RPC_BIDI : in ? RPC_CLIENT_STREAM : out ? RPC_SERVER_STREAM : RPC_UNARY;
    return ST_OK;
}

static uint64_t varint(const uint8_t *data, size_t n) {
    uint64_t value = 0;
    for (size_t i = 0; i < n && i < 10; i++)
        value |= (uint64_t)(data[i] & 127) << (7 * i);
    return value;
}

/* protobuf-c does not support extensions: its decoder keeps them as unknown fields. */
uint64_t descriptors_method_option(const struct descriptors *d, const char *service, const char *method,
                                   unsigned number) {
    const method_t *found = find_method(d, service, method);
    uint64_t value = 0;
    if (!found || !found->options)
        return 0;
    for (unsigned i = 0; i < found->options->base.n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *f = &found->options->base.unknown_fields[i];
        if (f->tag == number && f->wire_type == PROTOBUF_C_WIRE_TYPE_VARINT)
            value = varint(f->data, f->len);
    }
    return value;
}

bool descriptors_method_text(const struct descriptors *d, const char *service, const char *method, unsigned number,
                             char *ret, size_t capacity) {
    const method_t *found = find_method(d, service, method);
    bool has = false;
    for (unsigned i = 0; found && found->options && i < found->options->base.n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *f = &found->options->base.unknown_fields[i];
        if (f->tag != number || f->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
            continue;
        size_t n = 0; /* of the length in front of the text */
        while (n < f->len && f->data[n++] & 128) {
        }
        snprintf(ret, capacity, "%.*s", (int)(f->len - n), (const char *)f->data + n);
        has = true;
    }
    return has;
}

/* ---- extensions, at file level only: no proto of Trainyard defines one inside a message ---- */

static bool extends(const field_t *f, const char *message) {
    return f->extendee && f->extendee[0] == '.' && !strcmp(f->extendee + 1, message);
}

size_t descriptors_extensions(const struct descriptors *d, const char *message, int32_t *ret, size_t capacity) {
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++)
        for (size_t k = 0; k < d->files[i]->n_extension; k++)
            if (n < capacity && extends(d->files[i]->extension[k], message))
                ret[n++] = d->files[i]->extension[k]->number;
    return n;
}

int descriptors_file_by_extension(const struct descriptors *d, const char *message, int32_t number) {
    for (size_t i = 0; i < d->n; i++)
        for (size_t k = 0; k < d->files[i]->n_extension; k++)
            if (d->files[i]->extension[k]->number == number && extends(d->files[i]->extension[k], message))
                return (int)i;
    return -1;
}
