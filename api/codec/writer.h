/* The operations that print.c calls while it visits a message, and their two implementations: JSON and YAML. Internal
 * to this folder. */
#ifndef API_CODEC_WRITER_H
#define API_CODEC_WRITER_H

#include "base/bytes.h"
#include "base/status.h"

#include <stdbool.h>

struct writer;

struct writer_ops {
    /* A mapping or a list begins or ends. `empty`: it has no entries. */
    status_t (*open)(struct writer *w, bool list, bool empty, struct err *e);
    status_t (*close)(struct writer *w, bool list, bool empty, struct err *e);
    /* Called before each entry of a mapping (key) or of a list (item). `first`: the first entry of this mapping or
     * list. */
    status_t (*key)(struct writer *w, const char *key, bool first, struct err *e);
    status_t (*item)(struct writer *w, bool first, struct err *e);
    /* A value: text of n bytes, or a word (a number, true, a name) that is written as it is. */
    status_t (*string)(struct writer *w, const char *s, size_t n, struct err *e);
    status_t (*word)(struct writer *w, const char *word, struct err *e);
    status_t (*real)(struct writer *w, double value, struct err *e);
    status_t (*integer64)(struct writer *w, const char *digits, struct err *e);
};

struct writer {
    const struct writer_ops *ops;
    struct bytes *out;
    int indent;    /* spaces for each level; JSON: 0 = one line */
    int depth;     /* open mappings and lists */
    bool has_line; /* YAML: the next key or item continues the line that "- " began */
};

extern const struct writer_ops json_writer_ops, yaml_writer_ops;

#endif
