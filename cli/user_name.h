/* The user who runs this program. */
#ifndef CLI_USER_NAME_H
#define CLI_USER_NAME_H

enum { USER_NAME_BYTES = 129 }; /* the service accepts 128 */

/* The login name of the process's user; the user's number if the system does not know a name. */
void user_name(char ret[USER_NAME_BYTES]);

#endif
