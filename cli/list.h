/* What completion offers for `trainyard list`. */
#ifndef CLI_LIST_H
#define CLI_LIST_H

#include <stddef.h>

/* The name of column i for --columns; NULL behind the last one. */
const char *list_column(size_t i);

#endif
