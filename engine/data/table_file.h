/* Tables as documents: the texts of one column of a Parquet or Arrow file. Private to this folder. */
#ifndef ENGINE_DATA_TABLE_FILE_H
#define ENGINE_DATA_TABLE_FILE_H

#include "base/cleanup.h"
#include "base/status.h"
#include "engine/data/table_reader.h"

#include <stddef.h>

struct table_file;

/* file: open for reading, borrowed; path: for error messages. FAILED_PRECONDITION: this installation cannot read
 * tables. INVALID_ARGUMENT: the file is damaged, or has no such column. */
MUST_CHECK status_t table_file_open(int file, enum table_form form, const char *column, const char *path,
                                    struct table_file **ret, struct err *e);
struct table_file *table_file_close(struct table_file *t);
CLEANUP_DEFINE(struct table_file *, table_file_close)

/* The text of the next row, valid until the next call; *ret NULL after the last one. */
MUST_CHECK status_t table_file_next(struct table_file *t, const char **ret, size_t *ret_bytes, struct err *e);

#endif
