/* A proxy between a client and PostgreSQL's unix socket, which cuts the connection at a chosen statement. */
#ifndef TESTS_STORE_PROXY_H
#define TESTS_STORE_PROXY_H

enum proxy_cut {
    PROXY_CUT_REQUEST, /* the server never sees the statement */
    PROXY_CUT_ANSWER,  /* it does, and its answer is lost */
};

struct proxy;
/* server_dir: where PostgreSQL's socket is. */
struct proxy *proxy_start(const char *server_dir);
const char *proxy_dir(const struct proxy *p); /* host= of the conninfo */
/* The next piece of a client's bytes that contains text, count times later (1 = the first), is cut; once. */
void proxy_cut_at(struct proxy *p, const char *text, int count, enum proxy_cut how);
int proxy_cuts(const struct proxy *p); /* how many were made */
void proxy_stop(struct proxy *p);

#endif
