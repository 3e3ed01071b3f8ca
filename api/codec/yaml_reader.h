/* The events of libyaml for one document, within limits. Features of YAML that a spec does not need are refused here:
 * anchors and aliases (a few lines can expand to gigabytes), tags, more than one document. Internal to this folder. */
#ifndef API_CODEC_YAML_READER_H
#define API_CODEC_YAML_READER_H

#include "api/codec/text.h"
#include "base/status.h"

#include <stdbool.h>
#include <yaml.h>

struct yaml_reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current event */
    char *text;         /* owned copy that the parser reads from */
    int depth, max_depth;
    bool json; /* the text begins with a brace, as JSON does */
};

/* Opens the text and reads up to the first event inside the document. If the document is empty, the event is
 * YAML_STREAM_END_EVENT. After an error nothing is left open. */
MUST_CHECK status_t yaml_reader_open(struct yaml_reader *r, const char *text, size_t n,
                                     const struct codec_options *options, struct err *e);
void yaml_reader_close(struct yaml_reader *r);

/* Reads the next event. Pointers into the previous event become invalid. */
MUST_CHECK status_t yaml_reader_next(struct yaml_reader *r, struct err *e);

/* Call after the last node of the document: fails if anything else follows. */
MUST_CHECK status_t yaml_reader_finish(struct yaml_reader *r, struct err *e);

/* yaml_reader_at_empty: the current event is a plain (unquoted) scalar that is empty. yaml_reader_at_null: it is empty
 * or a word for null. */
bool yaml_reader_at_empty(const struct yaml_reader *r);
bool yaml_reader_at_null(const struct yaml_reader *r);

/* Describes the current event for error messages: "a list", "a mapping" or the scalar in quotes. */
void yaml_reader_found(const struct yaml_reader *r, char ret[64]);

#endif
