#include "api/spec/secret_fields.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>

enum { STORE_FIELDS = 4, STORES_BYTES = sizeof "stores." - 1 };

static size_t store_fields(const Trainyard__V1__StoresSpec *stores, const char *ret[STORE_FIELDS][2]) {
    const char *const all[STORE_FIELDS][2] = {
        { "stores.s3.access_key", stores->s3 ? stores->s3->access_key : "" },
        { "stores.s3.secret_key", stores->s3 ? stores->s3->secret_key : "" },
        { "stores.hf.token", stores->hf ? stores->hf->token : "" },
        { "stores.https.token", stores->https ? stores->https->token : "" },
    };
    size_t n = 0;
    for (size_t i = 0; i < STORE_FIELDS; i++)
        if (*all[i][1]) {
            ret[n][0] = all[i][0];
            ret[n++][1] = all[i][1];
        }
    return n;
}

struct secret_field *spec_secret_fields(const Trainyard__V1__JobSpec *spec, size_t *ret_n) {
    const char *stores[STORE_FIELDS][2];
    const size_t n_program = spec->program ? spec->program->n_secrets : 0;
    const size_t n_stores = spec->stores && !spec->program ? store_fields(spec->stores, stores) : 0;
    *ret_n = n_program + n_stores;
    if (*ret_n == 0)
        return NULL;
    struct secret_field *list = alloc_zeroed(*ret_n, sizeof *list);
    for (size_t i = 0; i < n_program; i++) {
        const Trainyard__V1__ProgramSpec__SecretsEntry *entry = spec->program->secrets[i];
        snprintf(list[i].path, sizeof list[i].path, "program.secrets.%.128s", entry->key);
        list[i].variable = entry->key;
        list[i].secret = entry->value;
    }
    for (size_t i = 0; i < n_stores; i++) {
        struct secret_field *to = &list[n_program + i];
        snprintf(to->path, sizeof to->path, "%s", stores[i][0]);
        to->variable = stores[i][0] + STORES_BYTES;
        to->secret = stores[i][1];
    }
    return list;
}

bool spec_names_secrets(const Trainyard__V1__JobSpec *spec) {
    size_t n;
    free(spec_secret_fields(spec, &n));
    return n > 0;
}
