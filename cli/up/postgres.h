/* The private PostgreSQL of `up`: where its programs are, as whom it runs, how its cluster is made and served.
 *
 * PostgreSQL refuses to run as root, so for root it runs as the user `postgres`, or `nobody` where there is none. That
 * user may be unable to reach DIR (below /root, say); so the cluster's directory is opened by us and given to the child
 * as a descriptor, and PostgreSQL is told that its data stand in /proc/self/fd/9: no folder above it needs to be open
 * to that user, and the cluster stays inside DIR. */
#ifndef CLI_UP_POSTGRES_H
#define CLI_UP_POSTGRES_H

#include "cli/up/child.h"
#include "cli/up/directory.h"

struct postgres {
    char bin[256]; /* the folder of initdb and postgres */
    uid_t uid;     /* ours, or for root the unprivileged user's */
    gid_t gid;
};

/* pg_config --bindir, else the highest version below /usr/lib/postgresql. NOT_FOUND when there is none. */
MUST_CHECK status_t postgres_find(struct postgres *ret, struct err *e);

/* Whether DIR/postgres is a cluster already. */
bool postgres_cluster_exists(const struct directory *d);

/* The task that makes DIR/postgres.new (removing what an interrupted one left), and what makes it DIR/postgres. */
MUST_CHECK status_t postgres_make_cluster(const struct postgres *pg, const struct directory *d, struct child *c,
                                          struct err *e);
MUST_CHECK status_t postgres_adopt_cluster(const struct directory *d, struct err *e);

/* The server, on the sockets' directory only. */
MUST_CHECK status_t postgres_serve(const struct postgres *pg, const struct directory *d, struct child *c,
                                   struct err *e);

/* How libpq reaches it. */
void postgres_conninfo(const struct directory *d, char *ret, size_t cap);

#endif
