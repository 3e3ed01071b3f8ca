/* A FileDescriptorSet with lookups for reflection: the file with a name or a symbol, its imports, and the kind of a
 * method. It always contains the descriptors of the runtime's own services (health, reflection). Immutable after open,
 * so any thread may use it. */
#ifndef API_RPC_DESCRIPTORS_H
#define API_RPC_DESCRIPTORS_H

#include "api/rpc/call.h"
#include "base/status.h"

struct descriptors;

/* set: a serialised google.protobuf.FileDescriptorSet, copied. INVALID_ARGUMENT if the bytes are not such a set. */
MUST_CHECK status_t descriptors_open(const void *set, size_t n, struct descriptors **ret, struct err *e);
struct descriptors *descriptors_close(struct descriptors *); /* NULL is fine; returns NULL */

size_t descriptors_count(const struct descriptors *); /* files */

/* A file's number, or -1. A symbol is a message, enum, enum value, field, oneof, service, method or extension, fully
 * qualified, without a leading dot. */
int descriptors_file_by_name(const struct descriptors *, const char *name);
int descriptors_file_by_symbol(const struct descriptors *, const char *symbol);
/* Whether the symbol is a message. */
bool descriptors_is_message(const struct descriptors *, const char *symbol);

/* Fills ret with the serialised file and then all files that it imports, each once. ret has a capacity of
 * descriptors_count. The data belongs to d. Returns the number of files. */
size_t descriptors_with_imports(const struct descriptors *d, int file, ProtobufCBinaryData *ret);

/* The numbers of a message's extensions, at most `capacity`; and the file that defines an extension, or -1. */
size_t descriptors_extensions(const struct descriptors *, const char *message, int32_t *ret, size_t capacity);
int descriptors_file_by_extension(const struct descriptors *, const char *message, int32_t number);

/* NOT_FOUND when the set does not have the method. */
MUST_CHECK status_t descriptors_method_kind(const struct descriptors *, const char *service, const char *method,
                                            enum rpc_kind *ret, struct err *e);
/* The value of a method's option. The option is an extension of google.protobuf.MethodOptions and an enum or an
 * integer. 0 if the method does not have it. */
uint64_t descriptors_method_option(const struct descriptors *, const char *service, const char *method,
                                   unsigned number);
/* The same for an option that is a string, cut at capacity - 1 bytes. False if the method does not have it. */
bool descriptors_method_text(const struct descriptors *, const char *service, const char *method, unsigned number,
                             char *ret, size_t capacity);

#endif
