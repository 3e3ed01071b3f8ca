/* The face of libtrainyard_arrow.so, which reads Parquet and Arrow files with Apache Arrow's C++ library. table_file.c
 * loads it when a job asks for such a file; no program links it. */
#ifndef ENGINE_DATA_TABLE_READER_H
#define ENGINE_DATA_TABLE_READER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum table_form { TABLE_PARQUET, TABLE_ARROW };
enum table_result { TABLE_ROW, TABLE_END, TABLE_ERROR };

struct table;

struct table_reader {
    int version; /* TABLE_READER_VERSION of the library's build */
    /* Opens a column of strings; "a.b" is b in the struct a. `file` is borrowed. NULL: `why` is the reason, of less
     * than n bytes. */
    struct table *(*open)(int file, enum table_form form, const char *column, char *why, size_t n);
    /* The text of the next row, valid until the next call. */
    enum table_result (*next)(struct table *t, const char **ret, size_t *ret_bytes, char *why, size_t n);
    void (*close)(struct table *t); /* NULL is fine */
};

#define TABLE_READER_VERSION 1
#define TABLE_READER_NAME    "trainyard_table_reader"

#ifdef __cplusplus
}
#endif

#endif
