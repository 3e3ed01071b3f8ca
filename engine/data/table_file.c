#include "engine/data/table_file.h"

#include "base/alloc.h"
#include "base/process.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

enum { WHY_BYTES = 320 };

struct table_file {
    const struct table_reader *reader;
    struct table *table;
    const char *path;
};

static const char LIBRARY[] = "libtrainyard_arrow.so";

static status_t load(const struct table_reader **ret, struct err *e) {
    char path[PATH_MAX];
    process_library(LIBRARY, path, sizeof path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "Parquet and Arrow files need a library that cannot be loaded (./dev arrow builds it): %s",
                       dlerror());
    const struct table_reader *reader = dlsym(handle, TABLE_READER_NAME);
    if (!reader || reader->version != TABLE_READER_VERSION) {
        dlclose(handle);
        return err_set(e, ST_FAILED_PRECONDITION,
                       "Parquet and Arrow files need a %s of the same build as this program, not %s", LIBRARY, path);
    }
    *ret = reader; /* loaded until the process ends */
    return ST_OK;
}

static status_t find_reader(const struct table_reader **ret, struct err *e) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const struct table_reader *loaded;
    pthread_mutex_lock(&lock);
    const status_t st = loaded ? ST_OK : load(&loaded, e);
    *ret = loaded;
    pthread_mutex_unlock(&lock);
    return st;
}

struct table_file *table_file_close(struct table_file *t) {
    if (t)
        t->reader->close(t->table);
    free(t);
    return NULL;
}

status_t table_file_open(int file, enum table_form form, const char *column, const char *path, struct table_file **ret,
                         struct err *e) {
    const struct table_reader *reader;
    char why[WHY_BYTES] = "";
    TRY(find_reader(&reader, e));
    struct table *table = reader->open(file, form, column, why, sizeof why);
    if (!table)
        return err_set(e, ST_INVALID_ARGUMENT, "the data file '%s' %s", path, why);
    struct table_file *t = alloc_zeroed(1, sizeof *t);
    *t = (struct table_file){ reader, table, path };
    *ret = t;
    return ST_OK;
}

status_t table_file_next(struct table_file *t, const char **ret, size_t *ret_bytes, struct err *e) {
    char why[WHY_BYTES] = "";
    *ret = NULL;
    return t->reader->next(t->table, ret, ret_bytes, why, sizeof why) == TABLE_ERROR
               ? err_set(e, ST_INVALID_ARGUMENT, "the data file '%s' %s", t->path, why)
               : ST_OK;
}
