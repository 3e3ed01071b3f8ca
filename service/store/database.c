#include "service/store/database.h"

#include "service/store/pool.h"

static const struct sql_query DATABASE_GET = {
    { "database_get", "SELECT {columns} FROM leader" },
    SQL_ROW(struct store_database, SQL_COLUMN(struct store_database, version, "current_setting('server_version')"),
            SQL_COLUMN(struct store_database, leader, "holder"), SQL_COLUMN(struct store_database, epoch, "epoch"),
            SQL_COLUMN(struct store_database, elected_time_us, "elected_at"))
};

status_t store_database_get(struct store *s, struct store_memory *m, struct store_database *ret, struct err *e) {
    bool found;
    TRY(store_find(s, m, &DATABASE_GET, NULL, ret, &found, e));
    return found ? ST_OK : err_set(e, ST_INTERNAL, "the table `leader` has no row");
}
