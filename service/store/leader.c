/* Elections.
 *
 * store_leader_try takes the advisory lock on a connection of its own. The controller that gets it updates the leader's
 * row in one statement (LEADER_ELECT), which returns the new term and the one before. decide_succession compares the
 * term before with the one that this store had won, to find out whether another controller has led meanwhile. Three
 * signs show that the database was rolled back: the table `election` lacks the store's own election, a transaction
 * whose COMMIT was answered is not committed (commits_lost), or the leader's table was created again. The transactions
 * are checked before the election takes a transaction id, because that id could be one of theirs.
 *
 * The column `server` names the server: its system identifier, its timeline, and the place of the leader's row. */
#include "service/store/leader.h"

#include "base/alloc.h"
#include "service/store/pool.h"
#include "service/store/schema.h"

#include <stdlib.h>
#include <string.h>

/* The key of the advisory lock: "TYLD". */
#define LEADER_LOCK 1415138380

#define QUOTE_(x) #x
#define QUOTE(x)  QUOTE_(x)

static const struct sql_query LEADER_LOCK_TRY = { { "leader_lock_try", "SELECT {columns}" },
                                                  SQL_SCALAR(bool, "pg_try_advisory_lock($1)") };
/* What an election returns: its own term, and the one that the row had before. */
struct election {
    struct term now, before;
    bool unanswered; /* the row was this holder's election whose answer was lost */
    bool moved;      /* another server, timeline, database or table than at the last election */
    bool recreated;  /* the leader's table was created again */
};
/* The timeline comes from the name of the WAL file, because pg_control has a new one only after the next checkpoint. A
 * value of `server` that an older release wrote has fewer words and is not compared.
 * $1 is the holder, $2 the last epoch that the holder has won. An election of the holder whose answer was lost is taken
 * as it is. The row before the update names the previous leader. */
static const struct sql_query LEADER_ELECT = {
    { "leader_elect",
      "WITH before AS (SELECT epoch, nonce, server, " SQL_LEADER_PLACE
      " AS place, holder = $1 AND epoch > $2 AS unanswered FROM leader FOR UPDATE), "
      "now AS (UPDATE leader l SET server = (SELECT system_identifier FROM pg_control_system()) || ' ' || "
      "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || ' ' || b.place, "
      "epoch = CASE WHEN b.unanswered THEN b.epoch ELSE greatest(b.epoch, $2) + 1 END, "
      "nonce = CASE WHEN b.unanswered THEN b.nonce ELSE gen_random_uuid() END, holder = $1, elected_at = now() "
      "FROM before b RETURNING l.epoch, l.nonce, l.server), "
      "kept AS (INSERT INTO election (epoch, nonce) SELECT epoch, nonce FROM now ON CONFLICT (epoch) DO UPDATE "
      "SET nonce = excluded.nonce) SELECT {columns} FROM now, before b" },
    SQL_ROW(struct election, SQL_COLUMN(struct election, now.epoch, "now.epoch"),
            SQL_COLUMN(struct election, now.nonce, "now.nonce::text"),
            SQL_COLUMN(struct election, now.server_us, "pg_postmaster_start_time()"),
            SQL_COLUMN(struct election, before.epoch, "b.epoch"),
            SQL_COLUMN(struct election, before.nonce, "b.nonce::text"),
            SQL_COLUMN(struct election, unanswered, "b.unanswered"),
            SQL_COLUMN(struct election, moved, "b.server LIKE '% % % %' AND b.server <> now.server"),
            SQL_COLUMN(struct election, recreated, "b.server LIKE '% % % %' AND b.server NOT LIKE '% % ' || b.place"))
};
/* $1 the leader's epoch, $2 its nonce, $3 an epoch that the new one must exceed. */
static const struct sql_query LEADER_RAISE = {
    { "leader_raise",
      "WITH now AS (UPDATE leader SET epoch = greatest(epoch, $3) + 1, nonce = gen_random_uuid(), "
      "elected_at = now() WHERE epoch = $1 AND nonce = $2::uuid AND " SQL_LEADER_IN_PLACE " RETURNING epoch, nonce), "
      "kept AS (INSERT INTO election (epoch, nonce) SELECT epoch, nonce FROM now) SELECT {columns} FROM now" },
    SQL_ROW(struct term, SQL_COLUMN(struct term, epoch, "epoch"), SQL_COLUMN(struct term, nonce, "nonce::text"),
            SQL_COLUMN(struct term, server_us, "pg_postmaster_start_time()"))
};
static const struct sql ELECTION_TRIM = { "election_trim", "DELETE FROM election WHERE epoch < (SELECT epoch FROM "
                                                           "election ORDER BY epoch DESC OFFSET $1 LIMIT 1)" };
static const struct sql ELECTION_KNOWN = { "election_known",
                                           "SELECT 1 FROM election WHERE epoch = $1 AND nonce = $2::uuid" };
/* Whether one of these transactions, whose COMMIT was answered, is not committed. An id that the server has not
 * assigned yet is an error (22023). A transaction that is too old has no status. */
static const struct sql_query COMMITS_LOST = {
    { "commits_lost", "SELECT {columns} FROM unnest($1) AS x(id) WHERE pg_xact_status(id::text::xid8) <> 'committed'" },
    SQL_SCALAR(bool, "count(*) > 0")
};
static const struct sql JOB_IDS_SKIP = { "job_ids_skip", "SELECT setval(pg_get_serial_sequence('job', 'id'), "
                                                         "nextval(pg_get_serial_sequence('job', 'id')) + " QUOTE(
                                                             STORE_IDS_SKIPPED) ")" };
static const struct sql LEADER_CHECK = {
    "leader_check", "SELECT 1 FROM leader WHERE epoch = $1 AND nonce = $2::uuid AND " SQL_LEADER_IN_PLACE
};
static const struct sql LEADER_IS_CURRENT = { "leader_is_current",
                                              "SELECT 1 FROM leader WHERE epoch = $1 AND nonce = $2::uuid "
                                              "AND pg_postmaster_start_time() = $3 AND " SQL_LEADER_IN_PLACE };
struct leader_row {
    struct term term;
    bool holds;
};
static const struct sql_query LEADER_ROW = { { "leader_row", "SELECT {columns} FROM leader" },
                                             SQL_ROW(struct leader_row,
                                                     SQL_COLUMN(struct leader_row, term.epoch, "epoch"),
                                                     SQL_COLUMN(struct leader_row, term.nonce, "nonce::text"),
                                                     SQL_COLUMN(struct leader_row, holds, "holder = $1")) };

struct store_leader {
    struct store *store;
    struct connection *c; /* its session holds the lock */
    struct term term;
    enum store_succession succession;
    bool moved;
};

struct store_leader *store_leader_close(struct store_leader *l) {
    if (l) {
        connection_close(l->c);
        free(l);
    }
    return NULL;
}

static status_t term_known(struct connection *c, const struct term *t, bool *ret, struct err *e) {
    int64_t n;
    TRY(sql_execute(c, &ELECTION_KNOWN, ARGS(arg_int8(t->epoch), arg_text(t->nonce)), &n, e));
    *ret = n > 0;
    return ST_OK;
}

/* Whether the server lacks a transaction whose COMMIT it answered to this store. */
static status_t commits_lost(struct store *s, struct connection *c, bool *ret, struct err *e) {
    int64_t ids[POOL_COMMITS];
    const size_t n = store_commits(s, ids);
    struct err why = { "" };
    status_t st = sql_get(c, NULL, &COMMITS_LOST, ARGS(arg_int8s(ids, n)), ret, "PostgreSQL returned no count", &why);
    if (st == ST_INVALID_ARGUMENT)
        *ret = true;
    else if (st != ST_OK)
        return err_set(e, st, "%s", why.msg);
    return ST_OK;
}

/* Decides what happened to the epoch `known`. before: the term in the row before this election. */
static status_t decide_succession(struct store_leader *l, int64_t known, const struct term *before, bool unanswered,
                                  bool lost, struct err *e) {
    const struct term own = store_term(l->store);
    const bool is_own = own.epoch == known && own.nonce[0];
    bool remembered = true;
    l->succession = STORE_SUCCESSION_NONE;
    if (known == 0)
        return ST_OK;
    if (is_own)
        TRY(term_known(l->c, &own, &remembered, e));
    const bool forgotten = !remembered || lost;
    const bool same = before->epoch == known && (!is_own || strcmp(before->nonce, own.nonce) == 0);
    l->succession = forgotten                                            ? STORE_SUCCESSION_FORGOTTEN
                    : same || (unanswered && before->epoch == known + 1) ? STORE_SUCCESSION_OWN
                                                                         : STORE_SUCCESSION_FOLLOWED;
    return ST_OK;
}

static status_t elect(struct store_leader *l, const char *holder, int64_t known, bool *ret_won, struct err *e) {
    struct election x;
    bool lost;
    TRY(sql_get(l->c, NULL, &LEADER_LOCK_TRY, ARGS(arg_int8(LEADER_LOCK)), ret_won,
                "PostgreSQL did not report whether it gave the leader's lock", e));
    if (!*ret_won)
        return ST_OK;
    TRY(commits_lost(l->store, l->c, &lost,
                     e)); /* before the election takes a transaction id, which may be that of a lost transaction */
    TRY(sql_get(l->c, NULL, &LEADER_ELECT, ARGS(arg_text(holder), arg_int8(known)), &x, "the leader's row is missing",
                e));
    l->term = x.now;
    l->moved = x.moved;
    TRY(decide_succession(l, known, &x.before, x.unanswered, lost || x.recreated, e));
    return sql_execute(l->c, &ELECTION_TRIM, ARGS(arg_int8(STORE_ELECTIONS_KEPT)), NULL, e);
}

static status_t try_on(struct store_leader *l, const char *holder, int64_t known, bool *ret_won, struct err *e) {
    if (!l->c)
        TRY(connection_open(l->store->conninfo, &l->c, e));
    TRY(schema_check(l->c, e)); /* it may have changed since store_open, and must not have the lock then */
    return elect(l, holder, known, ret_won, e);
}

/* A standby tries several times a second, on one session. If that has ended, PostgreSQL may have restarted: the try is
 * made again on a new one. */
status_t store_leader_try(struct store *s, const char *holder, int64_t known, struct store_leader **ret,
                          struct err *e) {
    CLEANUP(store_leader_closep) struct store_leader *l = alloc_zeroed(1, sizeof *l);
    bool won;
    l->store = s;
    l->c = store_take_standby(s);
    const bool kept = l->c != NULL;
    status_t st = try_on(l, holder, known, &won, e);
    if (st == ST_UNAVAILABLE && kept) {
        l->c = connection_close(l->c);
        st = try_on(l, holder, known, &won, e);
    }
    TRY(st);
    if (won)
        store_set_term(s, &l->term);
    else
        store_keep_standby(s, take_ptr(&l->c));
    *ret = won ? take_ptr(&l) : NULL;
    return ST_OK;
}

static status_t leader_over(const struct store_leader *l, struct err *e) {
    return err_set(e, ST_FAILED_PRECONDITION, "epoch %lld is over: another controller leads", (long long)l->term.epoch);
}

status_t store_leader_raise(struct store_leader *l, int64_t above, struct err *e) {
    bool found;
    TRY(sql_find(l->c, NULL, &LEADER_RAISE, ARGS(arg_int8(l->term.epoch), arg_text(l->term.nonce), arg_int8(above)),
                 &l->term, &found, e));
    if (!found)
        return leader_over(l, e);
    store_set_term(l->store, &l->term);
    return ST_OK;
}

status_t store_leader_skip_ids(struct store_leader *l, struct err *e) {
    return sql_execute(l->c, &JOB_IDS_SKIP, NULL, NULL, e);
}

status_t store_leader_is_current(struct store *s, int64_t epoch, bool *ret, struct err *e) {
    const struct term term = store_term(s);
    int64_t n = 0;
    if (term.epoch == epoch) {
        TRY(STORE_READ(s, c, sql_execute(c, &LEADER_IS_CURRENT, ARGS(ARGS_OF_TERM(term)), &n, e), e));
    }
    *ret = n > 0;
    return ST_OK;
}

status_t store_leader_followed(struct store *s, const char *holder, int64_t known, bool *ret, struct err *e) {
    const struct term own = store_term(s);
    struct leader_row row;
    bool found;
    TRY(store_find(s, NULL, &LEADER_ROW, ARGS(arg_text(holder)), &row, &found, e));
    if (!found)
        return err_set(e, ST_NOT_FOUND, "the leader's row is missing");
    const int64_t epoch = row.term.epoch;
    const bool same = epoch == known && (own.epoch != known || strcmp(row.term.nonce, own.nonce) == 0);
    *ret = !same && !(row.holds && epoch == known + 1);
    return ST_OK;
}

int64_t store_leader_epoch(const struct store_leader *l) { return l->term.epoch; }
const char *store_leader_nonce(const struct store_leader *l) { return l->term.nonce; }
bool store_leader_moved(const struct store_leader *l) { return l->moved; }
enum store_succession store_leader_succession(const struct store_leader *l) { return l->succession; }

status_t store_leader_check(struct store_leader *l, struct err *e) {
    int64_t n;
    TRY(sql_execute(l->c, &LEADER_CHECK, ARGS(arg_int8(l->term.epoch), arg_text(l->term.nonce)), &n, e));
    return n ? ST_OK : leader_over(l, e);
}
