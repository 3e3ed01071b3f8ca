/* Tables of a struct's members, for code that fills, prints or compares structs by the names of their members.
 *
 *     struct shape { int layers; double dropout; };
 *     static const struct member MEMBERS[] = { MEMBER_INT(struct shape, layers), MEMBER_REAL(struct shape, dropout) };
 *
 * A model's shape and the settings of an optimizer, a data kind and a learning rate have such a table. The fields of
 * the spec have the same names. */
#ifndef BASE_MEMBER_H
#define BASE_MEMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum member_type {
    MEMBER_TYPE_INT,    /* int */
    MEMBER_TYPE_INT64,  /* int64_t */
    MEMBER_TYPE_REAL,   /* double */
    MEMBER_TYPE_BOOL,   /* bool */
    MEMBER_TYPE_CHOICE, /* int (an enum): the index of a word in `choices` */
    MEMBER_TYPE_LIST,   /* int[max], and an int with their number */
    MEMBER_TYPE_REALS,  /* double[max], and an int with their number */
    MEMBER_TYPE_TEXT,   /* const char * */
    MEMBER_TYPE_PATH,   /* const char *: what a file:// URI names; any other text is kept as it is */
    MEMBER_TYPE_FILES,  /* const char *const *: the files that URIs name, and an int with their number */
    MEMBER_TYPE_TREE,   /* const char *: the folder that a URI names; or a struct member_files */
};

/* A file that a URI names: its name in the store or on the host, and its path on this host. */
struct member_file {
    const char *name, *path;
};

/* The files of a pattern, or of a store, in any order. n 0: the URI names a folder, or none is given. */
struct member_files {
    const struct member_file *files;
    int n;
};

enum member_path { MEMBER_FILE, MEMBER_FOLDER, MEMBER_FILE_OR_FOLDER };

struct member {
    const char *name; /* "a.b": b in the struct a */
    enum member_type type;
    size_t at;                  /* offset */
    size_t count_at;            /* MEMBER_TYPE_LIST, _REALS, _FILES; _TREE: of the struct member_files */
    int max;                    /* MEMBER_TYPE_LIST, MEMBER_TYPE_REALS */
    const char *const *choices; /* MEMBER_TYPE_CHOICE: up to NULL */
    enum member_path path;      /* MEMBER_TYPE_PATH */
    bool optional;              /* a record leaves it out when it is 0: older records do not have it */
};

#define MEMBER_INT(type_, member_)                                                                                     \
    { .name = #member_, .type = MEMBER_TYPE_INT, .at = offsetof(type_, member_) }
#define MEMBER_INT64(type_, member_)                                                                                   \
    { .name = #member_, .type = MEMBER_TYPE_INT64, .at = offsetof(type_, member_) }
#define MEMBER_REAL(type_, member_)                                                                                    \
    { .name = #member_, .type = MEMBER_TYPE_REAL, .at = offsetof(type_, member_) }
#define MEMBER_REALS(type_, member_, count_, max_)                                                                     \
    {                                                                                                                  \
        .name = #member_, .type = MEMBER_TYPE_REALS, .at = offsetof(type_, member_),                                   \
        .count_at = offsetof(type_, count_), .max = (max_)                                                             \
    }
#define MEMBER_BOOL(type_, member_)                                                                                    \
    { .name = #member_, .type = MEMBER_TYPE_BOOL, .at = offsetof(type_, member_) }
#define MEMBER_CHOICE(type_, member_, words)                                                                           \
    { .name = #member_, .type = MEMBER_TYPE_CHOICE, .at = offsetof(type_, member_), .choices = words }
#define MEMBER_TEXT(type_, member_)                                                                                    \
    { .name = #member_, .type = MEMBER_TYPE_TEXT, .at = offsetof(type_, member_) }
#define MEMBER_PATH(type_, member_, path_)                                                                             \
    { .name = #member_, .type = MEMBER_TYPE_PATH, .at = offsetof(type_, member_), .path = path_ }
#define MEMBER_TREE(type_, member_, files_)                                                                            \
    { .name = #member_, .type = MEMBER_TYPE_TREE, .at = offsetof(type_, member_), .count_at = offsetof(type_, files_) }
#define MEMBER_FILES(type_, member_, count_)                                                                           \
    { .name = #member_, .type = MEMBER_TYPE_FILES, .at = offsetof(type_, member_), .count_at = offsetof(type_, count_) }

/* The MEMBER_TYPE_INT of this name in a struct with this table; NULL if it has none. */
static inline const int *member_int(const struct member *members, int n, const void *of, const char *name) {
    for (int i = 0; i < n; i++)
        if (members[i].type == MEMBER_TYPE_INT && strcmp(members[i].name, name) == 0)
            return (const int *)(const void *)((const char *)of + members[i].at);
    return NULL;
}

#endif
