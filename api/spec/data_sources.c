#include "api/spec/data_sources.h"

#include "api/spec/fields.h"

#include <stdio.h>

const ProtobufCMessage *data_sources_mixed(const Trainyard__V1__MixtureSource *source, const char **ret_field) {
    const bool text = source && source->text;
    if (ret_field)
        *ret_field = text ? "text" : "tokens";
    return text ? &source->text->base : source && source->tokens ? &source->tokens->base : NULL;
}

static void add(struct data_sources *ret, const ProtobufCMessage *message, const char *path) {
    if (!message || ret->n == DATA_SOURCES_LIST)
        return;
    struct data_sources_item *item = &ret->items[ret->n++];
    item->message = message;
    snprintf(item->path, sizeof item->path, "%s", path);
}

void data_sources_of(const Trainyard__V1__DataSpec *data, struct data_sources *ret) {
    char path[DATA_SOURCES_PATH];
    ret->n = 0;
    if (!data || !spec_member(&data->base))
        return;
    snprintf(path, sizeof path, "data.%s", spec_member(&data->base)->name);
    add(ret, spec_member_message(&data->base), path);
    if (data->source_case != TRAINYARD__V1__DATA_SPEC__SOURCE_MIXTURE)
        return;
    for (size_t i = 0; i < data->mixture->n_sources; i++) {
        const Trainyard__V1__MixtureData__SourcesEntry *entry = data->mixture->sources[i];
        const char *field;
        const ProtobufCMessage *message = data_sources_mixed(entry->value, &field);
        snprintf(path, sizeof path, "data.mixture.sources.%.32s.%s", entry->key, field);
        add(ret, message, path);
    }
}
