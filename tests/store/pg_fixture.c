/* Starts, freezes, kills and restores a real PostgreSQL server.
 *
 * The cluster is in a temporary folder, and the server listens on a unix socket in it. The server writes into a file of
 * its data folder when it is ready, and inotify reports the change. A SIGQUIT at the death of the test ends the server.
 * To freeze, kill or copy the cluster, the fixture finds the backends as children of the postmaster in /proc.
 * pg_await_blocked counts blocked backends after each change of the server's log, to which log_lock_waits adds a line
 * for each wait for a lock. The count reads pg_locks, which shows the wait before and after that line is written. A
 * backend that writes the line has no wait event until it sleeps again.
 *
 * Each statement runs on a new connection, so that no connection survives a restart of the server. Only pg_number on
 * the main thread keeps its connection, because tests call it in loops. */
#include "tests/store/pg_fixture.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "service/store/migrate.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <libpq-fe.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_TIMEOUT_MS 120000 /* longer than any start takes */

struct pg {
    char dir[64], data[80], bin[256], conninfo[256];
    pid_t postmaster;
    int databases;
};

static void die(const char *what, const char *why) {
    fprintf(stderr, "pg_fixture: %s: %s\n", what, why);
    exit(1);
}

/* PostgreSQL refuses root. The death signal is set after the change of user, because that change clears it. */
static void become_server(void) {
    if (geteuid() == 0) {
        const struct passwd *user = getpwnam("postgres");
        if (!user || initgroups(user->pw_name, user->pw_gid) || setgid(user->pw_gid) || setuid(user->pw_uid))
            die("become user postgres", strerror(errno));
    }
    prctl(PR_SET_PDEATHSIG, SIGQUIT);
    int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
}

/* Starts the PostgreSQL program argv[0] by its whole path. The program finds its other files from argv[0] and would
 * search PATH for a bare name, but Debian does not put PostgreSQL into PATH. */
static pid_t spawn(const struct pg *pg, char *argv[]) {
    char path[512], log[128];
    snprintf(path, sizeof path, "%s/%s", pg->bin, argv[0]);
    snprintf(log, sizeof log, "%s/server.log", pg->dir);
    pid_t pid = fork();
    if (pid < 0)
        die("fork", strerror(errno));
    if (pid == 0) {
        become_server();
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(fd, STDERR_FILENO);
        /* The sanitizers' options are for the test, not for the server. */
        unsetenv("ASAN_OPTIONS");
        argv[0] = path;
        execv(path, argv);
        _exit(127);
    }
    return pid;
}

static void find_programs(struct pg *pg) {
    glob_t found = { 0 };
    if (glob("/usr/lib/postgresql/*/bin/initdb", 0, NULL, &found) != 0 || found.gl_pathc == 0)
        die("PostgreSQL's programs", "not found under /usr/lib/postgresql");
    snprintf(pg->bin, sizeof pg->bin, "%s", found.gl_pathv[found.gl_pathc - 1]);
    *strrchr(pg->bin, '/') = '\0';
    globfree(&found);
}

/* Returns true when the server answers, false if it has exited. It writes into a file of
 * its data folder when it is ready. */
static bool server_answers(const struct pg *pg, deadline_ms_t deadline) {
    CLEANUP(closep) int process = (int)syscall(SYS_pidfd_open, pg->postmaster, 0), changes = inotify_init1(IN_CLOEXEC);
    if (process < 0 || changes < 0 || inotify_add_watch(changes, pg->data, IN_MODIFY | IN_CLOSE_WRITE) < 0)
        die("watch PostgreSQL", strerror(errno));
    struct pollfd events[] = { { .fd = process, .events = POLLIN }, { .fd = changes, .events = POLLIN } };
    while (PQping(pg->conninfo) != PQPING_OK) {
        char buffer[4096];
        if (poll(events, 2, deadline_poll_ms(deadline)) <= 0)
            die("start PostgreSQL", "not ready in time");
        if (events[0].revents) {
            waitpid(pg->postmaster, NULL, 0);
            return false;
        }
        if (read(changes, buffer, sizeof buffer) < 0)
            die("watch PostgreSQL", strerror(errno));
    }
    return true;
}

/* After a kill, old children may hold the cluster's shared memory for a moment. Then the new server exits, and is
 * started again. */
static void start_server(struct pg *pg) {
    deadline_ms_t deadline = deadline_in(START_TIMEOUT_MS);
    char sockets[128];
    snprintf(sockets, sizeof sockets, "unix_socket_directories=%s", pg->dir);
    char *argv[] = { "postgres",
                     "-D",
                     pg->data,
                     "-c",
                     sockets,
                     "-c",
                     "listen_addresses=",
                     "-c",
                     "max_connections=60",
                     "-c",
                     "shared_buffers=64MB",
                     "-c",
                     "fsync=on",
                     "-c",
                     "log_lock_waits=on", /* pg_await_blocked waits for these lines */
                     "-c",
                     "deadlock_timeout=20ms", /* how long a wait lasts before it is logged */
                     NULL };
    do
        pg->postmaster = spawn(pg, argv);
    while (!server_answers(pg, deadline));
}

struct pg *pg_start(void) {
    struct pg *pg = calloc(1, sizeof *pg);
    const char *folder = getenv("TMPDIR");
    snprintf(pg->dir, sizeof pg->dir, "%s/ty-pg-XXXXXX", folder && *folder ? folder : "/tmp");
    if (!pg || !mkdtemp(pg->dir))
        die("mkdtemp", strerror(errno));
    const struct passwd *user = getpwnam("postgres");
    if (geteuid() == 0 && (!user || chown(pg->dir, user->pw_uid, user->pw_gid)))
        die("chown", "there is no user postgres");
    snprintf(pg->data, sizeof pg->data, "%s/data", pg->dir);
    snprintf(pg->conninfo, sizeof pg->conninfo, "host=%s user=postgres dbname=postgres", pg->dir);
    find_programs(pg);
    char *argv[] = { "initdb", "-D", pg->data, "-U",         "postgres",  "-A",
                     "trust",  "-E", "UTF8",   "--locale=C", "--no-sync", NULL };
    int status;
    waitpid(spawn(pg, argv), &status, 0);
    if (status != 0)
        die("initdb", pg->dir);
    start_server(pg);
    return pg;
}

/* Backends are sessions of their own, so no process group contains them. They are found by their parent. */
static int children(pid_t parent, pid_t *ret, int max) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
    FILE *list = fopen(path, "r");
    int n = 0;
    while (list && n < max && fscanf(list, "%d", &ret[n]) == 1)
        n++;
    if (list)
        fclose(list);
    return n;
}

void pg_freeze(struct pg *pg, bool frozen) {
    pid_t pids[128];
    int n = children(pg->postmaster, pids, 128);
    if (frozen)
        kill(pg->postmaster, SIGSTOP);
    for (int i = 0; i < n; i++)
        kill(pids[i], frozen ? SIGSTOP : SIGCONT);
    if (!frozen)
        kill(pg->postmaster, SIGCONT);
}

/* Waits by pidfd, because the process is no longer a child of the postmaster when it ends. */
static void wait_gone(int process) {
    struct pollfd event = { .fd = process, .events = POLLIN };
    if (process >= 0 && poll(&event, 1, START_TIMEOUT_MS) <= 0)
        die("kill PostgreSQL", "a child of it stays");
}

void pg_stop(struct pg *pg) {
    kill(pg->postmaster, SIGQUIT);
    waitpid(pg->postmaster, NULL, 0);
    struct err e;
    if (dir_remove(pg->dir, &e) != ST_OK)
        fprintf(stderr, "pg_fixture: %s\n", e.msg);
    free(pg);
}

void pg_kill(struct pg *pg) {
    pid_t pids[128];
    int processes[128], n = children(pg->postmaster, pids, 128);
    for (int i = 0; i < n; i++)
        processes[i] = (int)syscall(SYS_pidfd_open, pids[i], 0);
    kill(pg->postmaster, SIGKILL);
    waitpid(pg->postmaster, NULL, 0);
    for (int i = 0; i < n; i++) {
        wait_gone(processes[i]);
        closep(&processes[i]);
    }
}

void pg_restart(struct pg *pg) { start_server(pg); }

static void copy_cluster(const struct pg *pg, const char *from, const char *to) {
    char from_path[128], to_path[128];
    struct err e;
    int status;
    snprintf(from_path, sizeof from_path, "%s/%s", pg->dir, from);
    snprintf(to_path, sizeof to_path, "%s/%s", pg->dir, to);
    if (dir_remove(to_path, &e) != ST_OK)
        die("remove a cluster", e.msg);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("cp", "cp", "-a", from_path, to_path, NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
        die("copy a cluster", from_path);
}

void pg_snapshot(struct pg *pg) {
    pg_freeze(pg, true);
    copy_cluster(pg, "data", "snapshot");
    pg_freeze(pg, false);
}

void pg_roll_back(struct pg *pg) {
    pg_kill(pg);
    copy_cluster(pg, "snapshot", "data");
    pg_restart(pg);
}

const char *pg_socket_dir(const struct pg *pg) { return pg->dir; }

const char *pg_database(struct pg *pg, bool migrated) {
    static char conninfo[256];
    char sql[128];
    struct err e;
    if (migrated && pg->databases == 0) {
        pg->databases++;
        pg_run(pg->conninfo, "CREATE DATABASE migrated");
        snprintf(conninfo, sizeof conninfo, "host=%s user=postgres dbname=migrated", pg->dir);
        if (store_migrate(conninfo, store_schema_version(), NULL, &e) != ST_OK)
            die("migrate", e.msg);
    }
    int number = ++pg->databases;
    snprintf(sql, sizeof sql, "CREATE DATABASE test%d TEMPLATE %s", number, migrated ? "migrated" : "template0");
    pg_run(pg->conninfo, sql);
    snprintf(conninfo, sizeof conninfo, "host=%s user=postgres dbname=test%d", pg->dir, number);
    return conninfo;
}

static PGconn *connect_to(const char *conninfo) {
    PGconn *c = PQconnectdb(conninfo);
    if (PQstatus(c) != CONNECTION_OK)
        die("connect", PQerrorMessage(c));
    return c;
}

static char refused_by[128];
const char *pg_refused_by(void) { return refused_by; }

const char *pg_try(const char *conninfo, const char *sql) {
    static char state[6];
    PGconn *c = connect_to(conninfo);
    PGresult *r = PQexec(c, sql);
    const char *found = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    const char *constraint = PQresultErrorField(r, PG_DIAG_CONSTRAINT_NAME);
    snprintf(state, sizeof state, "%s", found ? found : "00000");
    snprintf(refused_by, sizeof refused_by, "%s", constraint ? constraint : "");
    PQclear(r);
    PQfinish(c);
    return state;
}

void pg_run(const char *conninfo, const char *sql) {
    const char *state = pg_try(conninfo, sql);
    if (strcmp(state, "00000") != 0)
        die(sql, state);
}

void pg_force(const char *conninfo, const char *sql) {
    char text[1000];
    snprintf(text, sizeof text, "SET session_replication_role = replica; %s", sql);
    pg_run(conninfo, text);
}

/* The connection of the main thread's last pg_number. Without it a loop that waits for a number would start a server
 * process in each turn. Other threads do not keep one, because they end and would leave it open. */
static struct {
    PGconn *connection;
    char conninfo[256];
} last;

static PGconn *reconnect(const char *conninfo) {
    PQfinish(last.connection);
    last.connection = connect_to(conninfo);
    snprintf(last.conninfo, sizeof last.conninfo, "%s", conninfo);
    return last.connection;
}

static PGresult *query_again(const char *conninfo, const char *sql) {
    bool same = last.connection && strcmp(conninfo, last.conninfo) == 0;
    PGresult *r = PQexec(same ? last.connection : reconnect(conninfo), sql);
    if (!same || PQstatus(last.connection) == CONNECTION_OK)
        return r;
    PQclear(r); /* the server was restarted since the last query */
    return PQexec(reconnect(conninfo), sql);
}

static PGresult *query_once(const char *conninfo, const char *sql) {
    PGconn *c = connect_to(conninfo);
    PGresult *r = PQexec(c, sql);
    PQfinish(c);
    return r;
}

long long pg_number(const char *conninfo, const char *sql) {
    PGresult *r = gettid() == getpid() ? query_again(conninfo, sql) : query_once(conninfo, sql);
    if (PQresultStatus(r) != PGRES_TUPLES_OK || PQntuples(r) < 1)
        die(sql, PQresultErrorMessage(r));
    long long number = atoll(PQgetvalue(r, 0, 0));
    PQclear(r);
    return number;
}

struct pg_open {
    PGconn *connection;
};

static void run_open(struct pg_open *open, const char *sql) {
    PGresult *r = PQexec(open->connection, sql);
    if (PQresultStatus(r) != PGRES_TUPLES_OK && PQresultStatus(r) != PGRES_COMMAND_OK)
        die(sql, PQresultErrorMessage(r));
    PQclear(r);
}

struct pg_open *pg_begin(const char *conninfo, const char *sql) {
    struct pg_open *open = calloc(1, sizeof *open);
    if (!open)
        die("open a transaction", "no memory");
    open->connection = connect_to(conninfo);
    run_open(open, "BEGIN");
    run_open(open, sql);
    return open;
}

void pg_commit(struct pg_open *open) {
    run_open(open, "COMMIT");
    PQfinish(open->connection);
    free(open);
}

void pg_await_blocked(struct pg *pg, const char *conninfo, int n) {
    static const char blocked[] = "SELECT count(DISTINCT l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
                                  "WHERE NOT l.granted AND a.datname = current_database()";
    char log[128], buffer[4096];
    snprintf(log, sizeof log, "%s/server.log", pg->dir);
    CLEANUP(closep) int changes = inotify_init1(IN_CLOEXEC);
    if (changes < 0 || inotify_add_watch(changes, log, IN_MODIFY) < 0)
        die("watch PostgreSQL's log", strerror(errno));
    struct pollfd event = { .fd = changes, .events = POLLIN };
    deadline_ms_t deadline = deadline_in(START_TIMEOUT_MS);
    while (pg_number(conninfo, blocked) < n) {
        if (poll(&event, 1, deadline_poll_ms(deadline)) <= 0)
            die("wait for a blocked backend", "none is");
        if (read(changes, buffer, sizeof buffer) < 0)
            die("watch PostgreSQL's log", strerror(errno));
    }
}

struct committer {
    struct pg *pg;
    const char *conninfo;
    struct pg_open *open;
};

static void *commit_when_blocked(void *ctx) {
    struct committer *c = ctx;
    pg_await_blocked(c->pg, c->conninfo, 1);
    pg_commit(c->open);
    free(c);
    return NULL;
}

pthread_t pg_commit_when_blocked(struct pg *pg, const char *conninfo, struct pg_open *open) {
    struct committer *c = calloc(1, sizeof *c);
    pthread_t thread;
    if (!c)
        die("calloc", strerror(errno));
    *c = (struct committer){ pg, conninfo, open };
    if (pthread_create(&thread, NULL, commit_when_blocked, c) != 0)
        die("pthread_create", "no thread was started");
    return thread;
}
