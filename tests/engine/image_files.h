/* Files of images and labels in a folder of the test, which its main makes with mkdtemp and removes. */
#ifndef TESTS_ENGINE_IMAGE_FILES_H
#define TESTS_ENGINE_IMAGE_FILES_H

#include "base/file.h"
#include "engine/data/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char folder[] = "/tmp/ty-images-XXXXXX";

/* Writes a file; returns its path, which is valid for 15 more calls. */
static inline const char *put(const char *name, const void *data, size_t n) {
    static char paths[16][128];
    static int next;
    struct err e = { "" };
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    if (dir_make(path, 0755, &e) != ST_OK)
        fail_msg("%s", e.msg);
    *slash = '/';
    FILE *f = fopen(path, "w"); /* without an fsync: there are many */
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
    return path;
}

/* An idx file of n images, whose pixels are 1, 2, ... */
static inline const char *idx_images(const char *name, int n, int h, int w) {
    static uint8_t data[16 + 64 * 64];
    const uint8_t head[16] = { 0, 0, 8, 3, 0, 0, 0, (uint8_t)n, 0, 0, 0, (uint8_t)h, 0, 0, 0, (uint8_t)w };
    memcpy(data, head, sizeof head);
    for (int i = 0; i < n * h * w; i++)
        data[16 + i] = (uint8_t)(1 + i);
    return put(name, data, (size_t)(16 + n * h * w));
}

static inline const char *idx_labels(const char *name, int n, int classes) {
    uint8_t data[8 + 255] = { 0, 0, 8, 1, 0, 0, 0, (uint8_t)n };
    for (int i = 0; i < n; i++)
        data[8 + i] = (uint8_t)(i % classes);
    return put(name, data, (size_t)(8 + n));
}

static inline struct source *idx_of(const char *images, const char *labels, struct data_augmentation augment) {
    struct data_config config = { .kind = &data_idx,
                                  .idx = { .train_images = images, .train_labels = labels, .augment = augment } };
    struct source *s = NULL;
    struct err e = { "" };
    if (source_open(&config, &(struct source_options){ 0 }, &s, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return s;
}

#endif
