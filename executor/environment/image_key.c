#include "executor/environment/image_key.h"

#include "base/cleanup.h"
#include "base/sha256.h"
#include "executor/worker/job_roots.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static status_t source_stat(int fd, struct stat *ret, struct err *e) {
    if (fstat(fd, ret) < 0)
        return err_errno(e, "stat the image");
    if (!S_ISDIR(ret->st_mode))
        return ST_OK;
    CLEANUP(closep) int index = openat(fd, "index.json", O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return index < 0 || fstat(index, ret) < 0 ? err_errno(e, "open the image's index.json") : ST_OK;
}

static status_t archive_open(const Trainyard__V1__EnvironmentBuild *order, int *ret, struct err *e) {
    const struct job_roots_given given = { order->data_roots,         order->n_data_roots, order->checkpoint_roots,
                                           order->n_checkpoint_roots, order->data_except,  order->n_data_except };
    struct job_roots roots;
    job_roots_take(&given, &roots);
    status_t st = roots_open(&roots.data, order->image->archive, O_PATH, ret, e);
    job_roots_done(&roots);
    return st;
}

/* Of a layout, the index changes when the image does. */
static status_t archive_describe(const char *path, int source, struct sha256 *s, struct err *e) {
    struct stat st;
    TRY(source_stat(source, &st, e));
    const int64_t numbers[] = { st.st_size, (int64_t)st.st_ino, st.st_mtim.tv_sec, st.st_mtim.tv_nsec };
    sha256_update(s, path, strlen(path) + 1);
    sha256_update(s, numbers, sizeof numbers);
    return ST_OK;
}

static status_t id_find(const Trainyard__V1__ImageSpec *image, int source, char ret[KEY_BYTES], struct err *e) {
    static const char KIND[] = "image";
    uint8_t sum[SHA256_BYTES];
    char text[SHA256_HEX];
    struct sha256 s;
    sha256_begin(&s);
    sha256_update(&s, KIND, sizeof KIND);
    if (image->name)
        sha256_update(&s, image->name, strlen(image->name) + 1);
    else
        TRY(archive_describe(image->archive, source, &s, e));
    sha256_final(&s, sum);
    sha256_hex(sum, text);
    snprintf(ret, KEY_BYTES, "%.*s", KEY_BYTES - 1, text);
    return ST_OK;
}

status_t image_key_find(const Trainyard__V1__EnvironmentBuild *order, struct environment_key *ret, int *ret_source,
                        struct err *e) {
    CLEANUP(closep) int source = -1;
    *ret = (struct environment_key){ .id = "" };
    *ret_source = -1;
    if (!order->image->name)
        TRY(archive_open(order, &source, e));
    TRY(id_find(order->image, source, ret->id, e));
    *ret_source = take_fd(&source);
    return ST_OK;
}

status_t image_key_open(const Trainyard__V1__EnvironmentBuild *order, int source, int *ret, struct err *e) {
    const char *path = order->image->archive;
    struct stat found, opened;
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(source, &found) < 0 || fstat(fd, &opened) < 0)
        return err_errno(e, "open '%.200s'", path);
    if (found.st_dev != opened.st_dev || found.st_ino != opened.st_ino)
        return err_set(e, ST_INTERNAL, "the archive '%.200s' was replaced before it was unpacked", path);
    *ret = take_fd(&fd);
    return ST_OK;
}

status_t image_key_check(const Trainyard__V1__EnvironmentBuild *order, const struct environment_key *key, int source,
                         struct err *e) {
    char id[KEY_BYTES];
    TRY(id_find(order->image, source, id, e));
    return strcmp(id, key->id) == 0 ? ST_OK
                                    : err_set(e, ST_INTERNAL, "the archive '%.200s' was changed while it was unpacked",
                                              order->image->archive);
}
