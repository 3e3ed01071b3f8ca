/* A proxy between a client and PostgreSQL's unix socket, which cuts the connection at a chosen statement. */
#ifndef TESTS_STORE_PROXY_H
#define TESTS_STORE_PROXY_H

enum proxy_cut {
    PROXY_CUT_REQUEST, /* the server does not receive the statement */
    PROXY_CUT_ANSWER,  /* the server runs the statement, and its answer is lost */
};

struct proxy;
/* server_dir: the folder of PostgreSQL's socket. */
struct proxy *proxy_start(const char *server_dir);
const char *proxy_dir(const struct proxy *p); /* the conninfo's host= */
/* Cuts the connection once, at the count-th next piece of a client's bytes that contains the text (1 = the first). */
void proxy_cut_at(struct proxy *p, const char *text, int count, enum proxy_cut how);
int proxy_cuts(const struct proxy *p); /* how many cuts were made */
void proxy_stop(struct proxy *p);

#endif
