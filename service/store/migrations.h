/* The files of migrations/, put into the program by embed.cmake. Internal to the store. */
#ifndef SERVICE_STORE_MIGRATIONS_H
#define SERVICE_STORE_MIGRATIONS_H

struct migration {
    int version;
    const char *name, *up, *down;
};
extern const struct migration migrations[]; /* [n_migrations], versions 1, 2, ... */
extern const int n_migrations;

#endif
