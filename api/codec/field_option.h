/* The option (field) of the fields of a job spec or a sweep (field.proto).
 *
 * The options are decoded from the embedded descriptors when the first one is needed, and kept until the process ends.
 * Thread-safe. */
#ifndef API_CODEC_FIELD_OPTION_H
#define API_CODEC_FIELD_OPTION_H

#include <protobuf-c/protobuf-c.h>
#include <trainyard/v1/field.pb-c.h>

/* Of desc->fields[i]. NULL: desc is neither SweepSpec nor a message inside it, such as JobSpec. A field without the
 * option has an empty one. */
const Trainyard__V1__SpecField *field_option(const ProtobufCMessageDescriptor *desc, unsigned i);

/* The option `mapping` of f: the field of the same message that takes a mapping which is given for f. NULL: none. */
const ProtobufCFieldDescriptor *field_mapping(const ProtobufCMessageDescriptor *desc,
                                              const ProtobufCFieldDescriptor *f);
/* The reverse: the field under whose name a text has the mapping; NULL: it has its own name. */
const ProtobufCFieldDescriptor *field_mapped(const ProtobufCMessageDescriptor *desc,
                                             const ProtobufCFieldDescriptor *mapping);

#endif
