/* libyaml's events of one document, within limits. YAML features that a spec has no use for are refused here: anchors
 * and aliases (a few lines of which can stand for gigabytes), tags, more than one document. Internal to this folder. */
#ifndef API_CODEC_YAML_READER_H
#define API_CODEC_YAML_READER_H

#include "api/codec/text.h"
#include "base/status.h"

#include <stdbool.h>
#include <yaml.h>

struct yaml_reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    char *text;         /* owned copy that the parser reads from */
    int depth, depth_most;
};

/* Opens and reads up to the first event inside the document; the event is YAML_STREAM_END_EVENT when there is none.
 * On failure nothing is left open. */
MUST_CHECK status_t yaml_reader_open(struct yaml_reader *r, const char *text, size_t n,
                                     const struct codec_limits *limits, struct err *e);
void yaml_reader_close(struct yaml_reader *r);

/* The next event. Pointers into the last one are no longer valid. */
MUST_CHECK status_t yaml_reader_next(struct yaml_reader *r, struct err *e);

/* After the document's last node: nothing else may follow. */
MUST_CHECK status_t yaml_reader_finish(struct yaml_reader *r, struct err *e);

/* The current event is a plain (unquoted) scalar that is empty, or empty or a word for null. */
bool yaml_reader_at_empty(const struct yaml_reader *r);
bool yaml_reader_at_null(const struct yaml_reader *r);

/* What the current event begins, for a sentence: "a list", "a mapping" or the scalar in quotes. */
void yaml_reader_found(const struct yaml_reader *r, char ret[64]);

#endif
