/* The lines of a requirements file of pip, as far as Trainyard must know them: which other files it includes, and
 * whether what it installs depends on files beside it. pip reads the file itself; of the lines that pip may accept,
 * only editable folders are refused.
 *
 * Free of I/O and thread-safe. */
#ifndef API_CODE_REQUIREMENTS_H
#define API_CODE_REQUIREMENTS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { REQUIREMENTS_PATH_BYTES = 1024 };

enum requirements_kind { REQUIREMENTS_PIP, REQUIREMENTS_UV_LOCK, REQUIREMENTS_PYPROJECT };

/* By the name of the file: uv.lock, pyproject.toml, or any other. */
enum requirements_kind requirements_kind(const char *path);

struct requirements_line {
    int number;                            /* of its first line, from 1 */
    char include[REQUIREMENTS_PATH_BYTES]; /* of -r or -c; empty: the line includes no file */
    bool local;                            /* what it installs may depend on files that it names */
    bool sources;                          /* local, and a build may write beside these files */
    bool hashed;                           /* it has a --hash */
};

/* Reads from *at, which it moves, up to the next line that is neither empty nor a comment. *ret_end: there is none.
 * INVALID_ARGUMENT: pip would refuse the line, it includes something that is no file, or it is an editable folder. */
MUST_CHECK status_t requirements_next(const char **at, const char *end, int *number, struct requirements_line *ret,
                                      bool *ret_end, struct err *e);

/* The path of an included file, relative to the folder of the including one: joins both and resolves "." and "..".
 * False: it leaves the folder at which the paths begin, or is too long. An absolute path stays as it is. */
bool requirements_join(const char *including, const char *include, char ret[REQUIREMENTS_PATH_BYTES]);

#endif
