/* The messages of a spec's data that name files: the one source that `data` has, or a mixture and each of its sources.
 *
 *     struct data_sources all;
 *     data_sources_of(spec->data, &all);
 *     for (int i = 0; i < all.n; i++)      // all.items[i].path is "data.text", or "data.mixture.sources.web.text"
 */
#ifndef API_SPEC_DATA_SOURCES_H
#define API_SPEC_DATA_SOURCES_H

#include <stdbool.h>
#include <trainyard/v1/spec.pb-c.h>

enum { DATA_SOURCES_PATH = 96, DATA_SOURCES_LIST = 1 + 2 * 32 };

struct data_sources {
    struct data_sources_item {
        const ProtobufCMessage *message;
        char path[DATA_SOURCES_PATH];
    } items[DATA_SOURCES_LIST]; /* a mixture with more sources than are allowed: as many as there is space for */
    int n;
};

/* data: NULL, or without a source: none. */
void data_sources_of(const Trainyard__V1__DataSpec *data, struct data_sources *ret);

/* The text or the tokens of a mixture's source, which may be NULL (on the wire an entry of a map may lack its value);
 * NULL if it has neither. *ret_field: "text" or "tokens"; may be NULL. */
const ProtobufCMessage *data_sources_mixed(const Trainyard__V1__MixtureSource *source, const char **ret_field);

#endif
