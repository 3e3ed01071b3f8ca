/* Where the copies of a job's remote data are on this host, from the reports of trainyard-data. */
#ifndef EXECUTOR_WORKER_DATA_LIST_H
#define EXECUTOR_WORKER_DATA_LIST_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>
#include <trainyard/v1/worker.pb-c.h>

struct data_list_object {
    const char *name; /* its URI */
    const char *path; /* its copy */
};

struct data_list;
/* For the URIs of this spec, which is borrowed. */
struct data_list *data_list_new(const Trainyard__V1__JobSpec *spec);
struct data_list *data_list_free(struct data_list *l); /* NULL is fine; returns NULL */
CLEANUP_DEFINE(struct data_list *, data_list_free)

/* Adds the objects of a report; a list that begins again replaces what was added. INTERNAL: the report is not as
 * worker.proto says. RESOURCE_EXHAUSTED: more objects than a job can have. */
MUST_CHECK status_t data_list_add(struct data_list *l, const Trainyard__V1__DataReport *report, struct err *e);

/* The objects of a URI of the spec, sorted by name; they stay valid until the next data_list_add. *ret_n 0: the list
 * does not have the URI. */
const struct data_list_object *data_list_find(const struct data_list *l, const char *uri, size_t *ret_n);

/* The name of the object whose copy the sentence names; NULL: it names none. */
const struct data_list_object *data_list_named(const struct data_list *l, const char *sentence);

#endif
