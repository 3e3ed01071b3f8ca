#include "cli/up/postgres.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool has_server(const char *bin) {
    char path[300];
    snprintf(path, sizeof path, "%s/postgres", bin);
    bool server = access(path, X_OK) == 0;
    snprintf(path, sizeof path, "%s/initdb", bin);
    return server && access(path, X_OK) == 0;
}

static bool ask_pg_config(char *ret, size_t cap) {
    FILE *f = popen("pg_config --bindir 2>/dev/null", "re");
    if (!f)
        return false;
    bool got = fgets(ret, (int)cap, f) != NULL;
    pclose(f);
    if (got)
        ret[strcspn(ret, "\n")] = '\0';
    return got && has_server(ret);
}

/* The highest version: 15 is above 9.6. */
static bool search_debian(char *ret, size_t cap) {
    glob_t found;
    double best = -1;
    if (glob("/usr/lib/postgresql/*/bin", 0, NULL, &found) != 0)
        return false;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        double version = strtod(found.gl_pathv[i] + strlen("/usr/lib/postgresql/"), NULL);
        if (version > best && strlen(found.gl_pathv[i]) < cap && has_server(found.gl_pathv[i])) {
            best = version;
            strcpy(ret, found.gl_pathv[i]);
        }
    }
    globfree(&found);
    return best >= 0;
}

status_t postgres_find(struct postgres *ret, struct err *e) {
    struct postgres pg = { .uid = geteuid(), .gid = getegid() };
    if (!ask_pg_config(pg.bin, sizeof pg.bin) && !search_debian(pg.bin, sizeof pg.bin))
        return err_set(e, ST_FAILED_PRECONDITION,
                       "PostgreSQL's server is not installed: neither pg_config nor /usr/lib/postgresql has it");
    if (pg.uid == 0) {
        struct passwd *user = getpwnam("postgres");
        user = user ? user : getpwnam("nobody");
        if (!user)
            return err_set(e, ST_FAILED_PRECONDITION,
                           "PostgreSQL refuses to run as root, and there is no user 'postgres' or 'nobody' to run it");
        pg.uid = user->pw_uid;
        pg.gid = user->pw_gid;
    }
    *ret = pg;
    return ST_OK;
}

bool postgres_cluster_exists(const struct directory *d) {
    char path[DIRECTORY_PATH_BYTES + 64];
    directory_join(d, "postgres/PG_VERSION", path);
    return access(path, F_OK) == 0;
}

/* Opens the cluster's folder for the child, and sets the child's user. */
static status_t on_cluster(const struct postgres *pg, const char *path, struct child *c, struct err *e) {
    c->directory_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->directory_fd < 0)
        return err_errno(e, "open '%s'", path);
    if (geteuid() == 0) {
        c->uid = pg->uid;
        c->gid = pg->gid;
    }
    return ST_OK;
}

status_t postgres_make_cluster(const struct postgres *pg, const struct directory *d, struct child *c, struct err *e) {
    char path[DIRECTORY_PATH_BYTES + 64];
    directory_join(d, "postgres.new", path);
    TRY(dir_remove(path, e));
    if (mkdir(path, 0700) < 0)
        return err_errno(e, "mkdir '%s'", path);
    if (geteuid() == 0 && chown(path, pg->uid, pg->gid) < 0)
        return err_errno(e, "chown '%s'", path);
    TRY(on_cluster(pg, path, c, e));
    c->tries = 1;
    c->start_limit_ms = 600000; /* initdb syncs a thousand files, and the disk may be busy */
    child_argument(c, "%s/initdb", pg->bin);
    child_argument(c, "--pgdata=/proc/self/fd/%d", CHILD_DIRECTORY_FD);
    child_argument(c, "--username=trainyard");
    child_argument(c, "--auth=trust"); /* only its user and root can enter the socket's folder */
    child_argument(c, "--encoding=UTF8");
    child_argument(c, "--locale=C");
    child_argument(c, "--no-instructions");
    return ST_OK;
}

status_t postgres_adopt_cluster(const struct directory *d, struct err *e) {
    char from[DIRECTORY_PATH_BYTES + 64], to[DIRECTORY_PATH_BYTES + 64];
    directory_join(d, "postgres.new", from);
    directory_join(d, "postgres", to);
    if (rename(from, to) < 0)
        return err_errno(e, "rename '%s' to '%s'", from, to);
    return dir_sync(d->path, e);
}

status_t postgres_serve(const struct postgres *pg, const struct directory *d, struct child *c, struct err *e) {
    static const char *const settings[] = {
        "listen_addresses=", "unix_socket_permissions=0700", "cluster_name=trainyard", "lc_messages=C", "timezone=UTC",
        "log_timezone=UTC",  "logging_collector=off",        "log_destination=stderr", "jit=off",
    };
    char path[DIRECTORY_PATH_BYTES + 64];
    directory_join(d, "postgres", path);
    TRY(on_cluster(pg, path, c, e));
    child_argument(c, "%s/postgres", pg->bin);
    child_argument(c, "-D");
    child_argument(c, "/proc/self/fd/%d", CHILD_DIRECTORY_FD);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        child_argument(c, "-c");
        child_argument(c, "%s", settings[i]);
    }
    child_argument(c, "-c");
    child_argument(c, "unix_socket_directories=%s", d->sockets);
    c->ready_text = "database system is ready to accept connections";
    c->stop_signal = SIGINT;   /* fast shutdown: ends sessions, writes a checkpoint */
    c->death_signal = SIGQUIT; /* immediate shutdown: its children end too, and the next start recovers */
    c->stop_grace_ms = 30000;
    /* After kill -9 a new server refuses to start while backends of the old one use its shared memory. */
    c->tries = 20;
    c->start_limit_ms = 600000; /* crash recovery may read gigabytes of log */
    return ST_OK;
}

void postgres_conninfo(const struct directory *d, char *ret, size_t cap) {
    snprintf(ret, cap, "host=%s user=trainyard dbname=postgres", d->sockets);
}
