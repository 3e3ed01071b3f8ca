#include "service/store/audit.h"

#include "service/store/pool.h"

#include <assert.h>

/* Later than every row: the year 9999. */
#define FAR_US 253402214400000000LL

static const struct sql_column AUDIT_COLUMNS[] = {
    SQL_COLUMN(struct store_audit, time_us, "time"),
    SQL_COLUMN(struct store_audit, entry, "entry"),
    SQL_COLUMN(struct store_audit, caller, "caller"),
    SQL_COLUMN(struct store_audit, address, "address"),
    SQL_COLUMN(struct store_audit, certificate, "certificate"),
    SQL_COLUMN(struct store_audit, method, "method"),
    SQL_COLUMN(struct store_audit, object, "object"),
    SQL_COLUMN(struct store_audit, job, "coalesce(job, 0)"),
    SQL_COLUMN(struct store_audit, request_id, "request_id"),
    SQL_COLUMN(struct store_audit, result, "result"),
    SQL_COLUMN(struct store_audit, message, "message"),
    SQL_COLUMN(struct store_audit, unrecorded, "unrecorded"),
};
static const struct sql_row AUDIT = SQL_ROW_OF(struct store_audit, AUDIT_COLUMNS);

static const struct sql AUDIT_ADD = {
    "audit_add", "INSERT INTO audit (time, entry, caller, address, certificate, method, object, job, request_id, "
                 "result, message, unrecorded) SELECT t, n, c, a, x, m, o, nullif(j, 0), r, s, w, u "
                 "FROM unnest($1::timestamptz[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], "
                 "$7::text[], $8::bigint[], $9::text[], $10::text[], $11::text[], $12::bigint[]) "
                 "AS row (t, n, c, a, x, m, o, j, r, s, w, u) ON CONFLICT DO NOTHING"
};

/* A query for each index: a condition that may be off would leave PostgreSQL no index. */
#define PAGE                                                                                                           \
    "(time, entry) < ($1, $2) AND time >= $3 AND ($4 = '' OR caller = $4) AND ($5 = 0 OR job = $5) "                   \
    "AND (NOT $6 OR result <> 'OK') ORDER BY time DESC, entry DESC LIMIT $7"
static const struct sql_query AUDIT_LIST = { { "audit_list", "SELECT {columns} FROM audit WHERE " PAGE }, &AUDIT };
static const struct sql_query AUDIT_LIST_JOB = {
    { "audit_list_job", "SELECT {columns} FROM audit WHERE job = $5 AND " PAGE }, &AUDIT
};
static const struct sql_query AUDIT_LIST_CALLER = {
    { "audit_list_caller", "SELECT {columns} FROM audit WHERE caller = $4 AND " PAGE }, &AUDIT
};
static const struct sql_query AUDIT_LIST_FAILED = {
    { "audit_list_failed", "SELECT {columns} FROM audit WHERE result <> 'OK' AND " PAGE }, &AUDIT
};

static const struct sql_query AUDIT_TRIM = { { "audit_trim", "SELECT {columns}" },
                                             SQL_SCALAR(int64_t, "audit_trim($1, $2)") };

status_t store_audit_add(struct store *s, const struct store_audit *rows, size_t n, struct err *e) {
    enum { CALLER, ADDRESS, CERTIFICATE, METHOD, OBJECT, REQUEST_ID, RESULT, MESSAGE, TEXTS };
    enum { ENTRY, JOB, UNRECORDED, NUMBERS };
    int64_t times[STORE_AUDIT_BATCH], numbers[NUMBERS][STORE_AUDIT_BATCH];
    const char *texts[TEXTS][STORE_AUDIT_BATCH];
    assert(n <= STORE_AUDIT_BATCH);
    for (size_t i = 0; i < n; i++) {
        const struct store_audit *r = &rows[i];
        times[i] = r->time_us;
        numbers[ENTRY][i] = r->entry;
        numbers[JOB][i] = r->job;
        numbers[UNRECORDED][i] = r->unrecorded;
        texts[CALLER][i] = r->caller;
        texts[ADDRESS][i] = r->address;
        texts[CERTIFICATE][i] = r->certificate;
        texts[METHOD][i] = r->method;
        texts[OBJECT][i] = r->object;
        texts[REQUEST_ID][i] = r->request_id;
        texts[RESULT][i] = r->result;
        texts[MESSAGE][i] = r->message;
    }
    const struct sql_arg *args = ARGS(
        arg_times(times, n), arg_int8s(numbers[ENTRY], n), arg_texts(texts[CALLER], n), arg_texts(texts[ADDRESS], n),
        arg_texts(texts[CERTIFICATE], n), arg_texts(texts[METHOD], n), arg_texts(texts[OBJECT], n),
        arg_int8s(numbers[JOB], n), arg_texts(texts[REQUEST_ID], n), arg_texts(texts[RESULT], n),
        arg_texts(texts[MESSAGE], n), arg_int8s(numbers[UNRECORDED], n));
    return STORE_READ(s, c, sql_execute(c, &AUDIT_ADD, args, NULL, e), e); /* one statement: a transaction of its own */
}

status_t store_audit_list(struct store *s, struct store_memory *m, const struct store_audit_page *p,
                          struct store_audit **ret, size_t *ret_n, struct err *e) {
    const struct sql_query *q = p->job       ? &AUDIT_LIST_JOB
                                : *p->caller ? &AUDIT_LIST_CALLER
                                : p->failed  ? &AUDIT_LIST_FAILED
                                             : &AUDIT_LIST;
    return store_rows(s, m, q,
                      ARGS(arg_time(p->time_us ? p->time_us : FAR_US), arg_int8(p->entry), arg_time(p->since_us),
                           arg_text(p->caller), arg_int8(p->job), arg_bool(p->failed), arg_int8(p->limit)),
                      ret, ret_n, e);
}

status_t store_audit_trim(struct store *s, int64_t epoch, int keep_days, int limit, int64_t *ret_n, struct err *e) {
    return STORE_WRITE(s, epoch, c,
                       sql_get(c, NULL, &AUDIT_TRIM, ARGS(arg_int4(keep_days), arg_int4(limit)), ret_n,
                               "PostgreSQL returned no number of audit rows", e),
                       e);
}
