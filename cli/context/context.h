/* The controllers that a user has logged in to: $XDG_CONFIG_HOME/trainyard/contexts.yaml, or ~/.config/trainyard/...
 *
 * The file contains tokens. It is written with mode 0600, atomically, and refused if other users can read or write it,
 * or if it belongs to another user. */
#ifndef CLI_CONTEXT_CONTEXT_H
#define CLI_CONTEXT_CONTEXT_H

#include "base/status.h"

#include <cli/context/contexts.pb-c.h>
#include <stdbool.h>

enum { CONTEXT_PATH_BYTES = 4096, CONTEXTS_MAX = 100 };

/* The path of the file. FAILED_PRECONDITION: neither XDG_CONFIG_HOME nor HOME is an absolute path. */
MUST_CHECK status_t context_path(char ret[CONTEXT_PATH_BYTES], struct err *e);
/* Reads the file; no file has no contexts. The caller frees the message: CLEANUP(message_freep). INVALID_ARGUMENT: the
 * file is wrong; PERMISSION_DENIED: other users can read it. */
MUST_CHECK status_t contexts_read(Trainyard__Cli__Contexts **ret, struct err *e);
/* Whether the user can have contexts. False: there is no path of the file, or the user has no access to it, like a
 * service that runs under another name. */
bool contexts_reachable(void);
/* Locks the file against other commands that change it, and waits for them; makes its folder. The lock lasts until
 * *ret_lock is closed: CLEANUP(closep). A command reads the contexts after it has the lock. */
MUST_CHECK status_t contexts_lock(int *ret_lock, struct err *e);
/* Under the lock of contexts_lock, which has made the folder. */
MUST_CHECK status_t contexts_write(const Trainyard__Cli__Contexts *contexts, struct err *e);
/* Returns NULL if no context has the name. */
Trainyard__Cli__Context *contexts_find(const Trainyard__Cli__Contexts *contexts, const char *name);
/* The same; NOT_FOUND names the contexts that exist. */
MUST_CHECK status_t contexts_get(const Trainyard__Cli__Contexts *contexts, const char *name,
                                 Trainyard__Cli__Context **ret, struct err *e);
/* INVALID_ARGUMENT: a name consists of up to 64 letters, digits and -_. */
MUST_CHECK status_t context_name_check(const char *name, struct err *e);

#endif
