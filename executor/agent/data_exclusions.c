#include "executor/agent/data_exclusions.h"

#include "base/roots.h"

static void add(struct data_exclusions *x, const char *path) {
    if (!path || !*path || x->n == DATA_EXCLUSIONS_MAX)
        return;
    Trainyard__V1__DataExcept *one = x->list[x->n] = &x->all[x->n];
    struct roots_except found = { .path = path };
    trainyard__v1__data_except__init(one);
    one->path = (char *)(uintptr_t)path;
    if (roots_except_find(path, &found, NULL) == ST_OK) {
        one->device = found.device;
        one->inode = found.inode;
    }
    x->n++;
}

void data_exclusions_find(const struct host *host, struct data_exclusions *ret) {
    const struct agent_options *o = host->options;
    ret->n = 0;
    add(ret, directory_path(host->directory));
    if (o->data_cache)
        add(ret, o->data_cache); /* it has data of other jobs, too */
    if (o->token_cache)
        add(ret, o->token_cache);
    add(ret, o->token_file);
    add(ret, o->tls.key);
    for (size_t i = 0; i < o->n_data_except; i++)
        add(ret, o->data_except[i]);
}
