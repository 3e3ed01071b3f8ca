/* A FileDescriptorSet, indexed for reflection: which file has a name or a symbol, what it imports, and which kind a
 * method has. The descriptors of the runtime's own services (health, reflection) are always in it. Immutable after
 * open: any thread. */
#ifndef API_RPC_DESCRIPTORS_H
#define API_RPC_DESCRIPTORS_H

#include "api/rpc/call.h"
#include "base/status.h"

struct descriptors;

/* set: a serialised google.protobuf.FileDescriptorSet, copied. INVALID_ARGUMENT when it is not one. */
MUST_CHECK status_t descriptors_open(const void *set, size_t n, struct descriptors **ret, struct err *e);
struct descriptors *descriptors_close(struct descriptors *); /* NULL is fine; returns NULL */

size_t descriptors_count(const struct descriptors *); /* files */

/* A file's number, or -1. A symbol is a message, enum, enum value, field, oneof, service, method or extension, fully
 * qualified, without a leading dot. */
int descriptors_file_by_name(const struct descriptors *, const char *name);
int descriptors_file_by_symbol(const struct descriptors *, const char *symbol);
/* Whether the symbol is a message. */
bool descriptors_is_message(const struct descriptors *, const char *symbol);

/* The serialised file first, then all that it imports, each once; ret has room for descriptors_count. They live as long
 * as d. Returns how many. */
size_t descriptors_with_imports(const struct descriptors *d, int file, ProtobufCBinaryData *ret);

/* Extensions of a message: their numbers, at most `most`, and the file that has one, or -1. */
size_t descriptors_extensions(const struct descriptors *, const char *message, int32_t *ret, size_t most);
int descriptors_file_by_extension(const struct descriptors *, const char *message, int32_t number);

/* NOT_FOUND when the set does not have the method. */
MUST_CHECK status_t descriptors_method_kind(const struct descriptors *, const char *service, const char *method,
                                            enum rpc_kind *ret, struct err *e);
/* The value of an option of a method's that is an extension of google.protobuf.MethodOptions and an enum or an integer;
 * 0 without it. */
uint64_t descriptors_method_option(const struct descriptors *, const char *service, const char *method,
                                   unsigned number);

#endif
