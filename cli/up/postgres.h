/* The private PostgreSQL of `up`: its programs, its user, and how its cluster is created and served.
 *
 * PostgreSQL refuses to run as root. If `up` runs as root, PostgreSQL runs as `postgres` or `nobody`. That user may be
 * unable to reach DIR (for example below /root). Therefore `up` opens the cluster's folder, passes the descriptor to
 * the child, and gives PostgreSQL /proc/self/fd/9 as its data folder: the user needs no access to the folders above
 * it. */
#ifndef CLI_UP_POSTGRES_H
#define CLI_UP_POSTGRES_H

#include "cli/up/child.h"
#include "cli/up/directory.h"

struct postgres {
    char bin[256]; /* the folder of initdb and postgres */
    uid_t uid;     /* ours; for root that of the unprivileged user */
    gid_t gid;
};

/* Finds the programs by pg_config --bindir, or in the highest version below /usr/lib/postgresql. FAILED_PRECONDITION:
 * PostgreSQL is not installed. */
MUST_CHECK status_t postgres_find(struct postgres *ret, struct err *e);

/* Whether DIR/postgres is a cluster. */
bool postgres_cluster_exists(const struct directory *d);

/* The task that creates DIR/postgres.new (after removing an interrupted one), and its rename to DIR/postgres. */
MUST_CHECK status_t postgres_make_cluster(const struct postgres *pg, const struct directory *d, struct child *c,
                                          struct err *e);
MUST_CHECK status_t postgres_adopt_cluster(const struct directory *d, struct err *e);

/* The server, which listens only in the folder of the sockets. */
MUST_CHECK status_t postgres_serve(const struct postgres *pg, const struct directory *d, struct child *c,
                                   struct err *e);

/* The connection string for libpq. */
void postgres_conninfo(const struct directory *d, char *ret, size_t cap);

#endif
