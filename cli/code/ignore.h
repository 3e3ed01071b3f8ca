/* The patterns of .trainyardignore: a subset of those of .gitignore.
 *
 *   a blank line, a line that begins with #    nothing
 *   !PATTERN            files that an earlier line leaves out are packed. A file in a folder that is left out stays out
 *   PATTERN/            only folders, with everything in them
 *   a / before the end  the pattern is the whole path from the folder of the file on; otherwise it is a name at any
 *                       depth
 *   * ? [a-z] [!a-z]    any characters, one character, one of them; none matches a /
 *   two stars as a part  any number of folders: at the beginning, in the middle, or at the end (all that is below)
 *   \                   before a character: that character itself
 *
 * Spaces at the end of a line are ignored. Only the file in the packed folder counts, none in its subfolders. */
#ifndef CLI_CODE_IGNORE_H
#define CLI_CODE_IGNORE_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>

#define IGNORE_FILE ".trainyardignore"
enum { IGNORE_BYTES = 64 << 10, IGNORE_RULES = 1000, IGNORE_PARTS = 64 };

struct ignore;
/* text: the content of the file; NULL: no pattern. INVALID_ARGUMENT: too many patterns, or too many parts in one. */
MUST_CHECK status_t ignore_new(const char *text, struct ignore **ret, struct err *e);
struct ignore *ignore_free(struct ignore *ig);
CLEANUP_DEFINE(struct ignore *, ignore_free)

/* Whether a file, link or folder is left out: it or a folder above it matches. path: as code_name_check allows. */
bool ignore_matches(const struct ignore *ig, const char *path, bool is_folder);

#endif
