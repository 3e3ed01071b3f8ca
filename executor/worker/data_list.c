/* Objects are kept in the order of the reports, which is that of the URIs; those of one URI follow each other. The URIs
 * are those of the agent's order, which follows from the spec. */
#include "executor/worker/data_list.h"

#include "api/spec/data_uri.h"
#include "base/alloc.h"
#include "base/limits.h"

#include <stdlib.h>
#include <string.h>

struct data_list {
    const char **uris; /* sorted */
    size_t n_uris;
    size_t *first; /* [n_uris + 1] the first object of each URI, as far as they are known */
    size_t known;  /* URIs whose first object is known */
    struct data_list_object *objects;
    size_t n;
};

struct data_list *data_list_new(const Trainyard__V1__JobSpec *spec) {
    struct data_list *l = alloc_zeroed(1, sizeof *l);
    l->uris = data_uris_remote(spec, &l->n_uris);
    l->first = alloc_zeroed(l->n_uris + 1, sizeof *l->first);
    return l;
}

static void clear(struct data_list *l) {
    for (size_t i = 0; i < l->n; i++) {
        free((char *)(uintptr_t)l->objects[i].name);
        free((char *)(uintptr_t)l->objects[i].path);
    }
    free(l->objects);
    l->objects = NULL;
    l->n = l->known = 0;
}

struct data_list *data_list_free(struct data_list *l) {
    if (!l)
        return NULL;
    clear(l);
    free(l->uris);
    free(l->first);
    free(l);
    return NULL;
}

static status_t add(struct data_list *l, const char *folder, const Trainyard__V1__DataObject *object, struct err *e) {
    const size_t uri = object->uri < 0 ? l->n_uris : (size_t)object->uri;
    if (*folder != '/' || uri >= l->n_uris || uri + 1 < l->known || !*object->sha256 || strchr(object->sha256, '/'))
        return err_set(e, ST_INTERNAL, "data: the list of copies has '%.200s' in the wrong place", object->name);
    if (l->n == LIMIT_DATA_OBJECTS)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "data: the list of copies has more than %d", LIMIT_DATA_OBJECTS);
    while (l->known <= uri)
        l->first[l->known++] = l->n;
    l->objects = alloc_grow(l->objects, l->n, sizeof *l->objects);
    l->objects[l->n++] = (struct data_list_object){ alloc_copy_text(object->name),
                                                    alloc_format("%s/%s", folder, object->sha256) };
    return ST_OK;
}

status_t data_list_add(struct data_list *l, const Trainyard__V1__DataReport *report, struct err *e) {
    if (report->again)
        clear(l);
    for (size_t i = 0; i < report->n_objects; i++)
        TRY(add(l, report->folder, report->objects[i], e));
    return ST_OK;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

const struct data_list_object *data_list_find(const struct data_list *l, const char *uri, size_t *ret_n) {
    const char **found = l->n_uris ? bsearch(&uri, l->uris, l->n_uris, sizeof *l->uris, by_text) : NULL;
    const size_t i = found ? (size_t)(found - l->uris) : l->n_uris;
    *ret_n = i < l->known ? (i + 1 < l->known ? l->first[i + 1] : l->n) - l->first[i] : 0;
    return *ret_n ? l->objects + l->first[i] : NULL;
}

const struct data_list_object *data_list_named(const struct data_list *l, const char *sentence) {
    for (size_t i = 0; i < l->n; i++)
        if (strstr(sentence, l->objects[i].path))
            return &l->objects[i];
    return NULL;
}
