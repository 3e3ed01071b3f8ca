#include "service/controller/keyring.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/secret.h"
#include "base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_BYTES = 32, NONCE_BYTES = 12, TAG_BYTES = 16, LINE_BYTES = sizeof SECRET_KEY_PREFIX + 2 * KEY_BYTES };
_Static_assert(NONCE_BYTES + TAG_BYTES == KEYRING_EXTRA_BYTES, "a ciphertext has a nonce and a tag");
_Static_assert(SECRET_TOKEN_DIGITS == 2 * KEY_BYTES, "files that hold a key are known by its length");

struct key {
    uint8_t bytes[KEY_BYTES];
    char id[KEYRING_ID_BYTES];
};

/* Has pages of its own, which are neither swapped, as far as the limits allow, nor part of a core dump. */
struct keyring {
    size_t n;
    struct key keys[KEYRING_MAX_KEYS];
};

size_t keyring_size(const struct keyring *k) { return k->n; }
const char *keyring_id(const struct keyring *k, size_t i) { return k->keys[i].id; }

static const struct key *find(const struct keyring *k, const char *id) {
    for (size_t i = 0; i < k->n; i++)
        if (strcmp(k->keys[i].id, id) == 0)
            return &k->keys[i];
    return NULL;
}

bool keyring_has(const struct keyring *k, const char *id) { return find(k, id) != NULL; }

/* ---- files ---- */

static void id_write(struct key *key) {
    static const char label[] = "trainyard secret key id";
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    struct sha256 s;
    sha256_begin(&s);
    sha256_update(&s, label, sizeof label);
    sha256_update(&s, key->bytes, sizeof key->bytes);
    sha256_final(&s, digest);
    sha256_hex(digest, hex);
    memcpy(key->id, hex, KEYRING_ID_BYTES - 1);
    key->id[KEYRING_ID_BYTES - 1] = '\0';
}

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

static bool line_read(const char *line, size_t n, struct key *ret) {
    const size_t prefix = sizeof SECRET_KEY_PREFIX - 1;
    if (n > 0 && line[n - 1] == '\n')
        n--;
    if (n != prefix + 2 * KEY_BYTES || memcmp(line, SECRET_KEY_PREFIX, prefix) != 0)
        return false;
    for (size_t i = 0; i < KEY_BYTES; i++) {
        const int high = digit(line[prefix + 2 * i]), low = digit(line[prefix + 2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        ret->bytes[i] = (uint8_t)(high << 4 | low);
    }
    id_write(ret);
    return true;
}

static status_t check_mode(int fd, const char *path, struct err *e) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(e, "stat '%s'", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is not a file", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return err_set(e, ST_PERMISSION_DENIED, "'%s' belongs to another user: it must belong to the controller's user",
                       path);
    if (st.st_mode & (S_IRWXG | S_IRWXO))
        return err_set(e, ST_PERMISSION_DENIED,
                       "'%s' has the mode %04o: others than its owner may use the key; run chmod 600 '%s'", path,
                       (unsigned)(st.st_mode & 07777), path);
    return ST_OK;
}

static status_t file_read_key(const char *path, struct key *ret, struct err *e) {
    char line[LINE_BYTES + 2];
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_errno(e, "open '%s'", path);
    TRY(check_mode(fd, path, e));
    const ssize_t n = read(fd, line, sizeof line);
    const bool good = n >= 0 && line_read(line, (size_t)n, ret);
    explicit_bzero(line, sizeof line);
    if (n < 0)
        return err_errno(e, "read '%s'", path);
    return good ? ST_OK
                : err_set(e, ST_INVALID_ARGUMENT,
                          "'%s' holds no key for secrets: make one with 'trainyard-controller make-secret-key FILE'",
                          path);
}

status_t keyring_open(const char *const *files, size_t n, struct keyring **ret, struct err *e) {
    if (n > KEYRING_MAX_KEYS)
        return err_set(e, ST_INVALID_ARGUMENT, "%zu key files are given, at most %d are allowed", n, KEYRING_MAX_KEYS);
    void *pages = mmap(NULL, sizeof(struct keyring), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return err_errno(e, "get memory for keys");
    CLEANUP(keyring_closep) struct keyring *k = pages;
    if (mlock(k, sizeof *k) < 0) /* the limit of locked memory may be 0: the key may then be swapped */
        errno = 0;
    if (madvise(k, sizeof *k, MADV_DONTDUMP) < 0)
        return err_errno(e, "keep the keys out of core dumps");
    for (size_t i = 0; i < n; i++) {
        TRY(file_read_key(files[i], &k->keys[k->n], e));
        if (!find(k, k->keys[k->n].id)) /* else the same key in two files */
            k->n++;
    }
    *ret = take_ptr(&k);
    return ST_OK;
}

struct keyring *keyring_close(struct keyring *k) {
    if (!k)
        return NULL;
    explicit_bzero(k, sizeof *k);
    munmap(k, sizeof *k);
    return NULL;
}

static status_t line_make(char line[LINE_BYTES + 1], struct err *e) {
    uint8_t key[KEY_BYTES];
    if (getrandom(key, sizeof key, 0) != sizeof key)
        return err_errno(e, "get random bytes for a key");
    size_t used = (size_t)snprintf(line, LINE_BYTES + 1, "%s", SECRET_KEY_PREFIX);
    for (size_t i = 0; i < sizeof key; i++)
        used += (size_t)snprintf(line + used, LINE_BYTES + 1 - used, "%02x", key[i]);
    line[used] = '\n';
    explicit_bzero(key, sizeof key);
    return ST_OK;
}

/* Else the name may be lost in a crash, after the key has encrypted secrets. */
static status_t folder_sync(const char *path, struct err *e) {
    CLEANUP(freep) char *copy = alloc_copy_text(path);
    return dir_sync(dirname(copy), e);
}

/* A file under the final name is always complete: a key that was lost in a crash could have encrypted secrets. */
status_t keyring_make_file(const char *path, struct err *e) {
    char line[LINE_BYTES + 1];
    CLEANUP(freep) char *temporary = alloc_format("%s.%d.new", path, (int)getpid());
    CLEANUP(closep) int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(e, "create '%s'", temporary);
    status_t st = line_make(line, e);
    if (st == ST_OK && (write(fd, line, LINE_BYTES) != LINE_BYTES || fsync(fd) < 0))
        st = err_errno(e, "write '%s'", temporary);
    explicit_bzero(line, sizeof line);
    if (st == ST_OK && link(temporary, path) < 0)
        st = errno == EEXIST ? err_set(e, ST_ALREADY_EXISTS, "'%s' is there already: a key is never replaced", path)
                             : err_errno(e, "create '%s'", path);
    unlink(temporary);
    return st == ST_OK ? folder_sync(path, e) : st;
}

/* ---- encryption ---- */

static void context_free(EVP_CIPHER_CTX **c) { EVP_CIPHER_CTX_free(*c); }

status_t keyring_encrypt(const struct keyring *k, const char *name, const void *value, size_t n, uint8_t *ret,
                         struct err *e) {
    if (k->n == 0)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the controller has no key for secrets: make one with 'trainyard-controller make-secret-key "
                       "FILE', and start the controller with --secret-key-file FILE");
    uint8_t *nonce = ret, *text = ret + NONCE_BYTES, *tag = text + n;
    int used = 0, more = 0;
    if (getrandom(nonce, NONCE_BYTES, 0) != NONCE_BYTES)
        return err_errno(e, "get random bytes to encrypt a secret");
    __attribute__((cleanup(context_free))) EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    if (!c || !EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, k->keys[0].bytes, nonce) ||
        !EVP_EncryptUpdate(c, NULL, &more, (const uint8_t *)name, (int)strlen(name)) ||
        !EVP_EncryptUpdate(c, text, &used, value, (int)n) || !EVP_EncryptFinal_ex(c, text + used, &more) ||
        !EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, tag))
        return err_set(e, ST_INTERNAL, "libcrypto did not encrypt the secret '%s'", name);
    return ST_OK;
}

status_t keyring_decrypt(const struct keyring *k, const char *id, const char *name, const void *ciphertext, size_t n,
                         uint8_t *ret, struct err *e) {
    const struct key *key = find(k, id);
    if (!key)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the secret '%s' is encrypted with the key %s, which this controller does not have: start it "
                       "with --secret-key-file of that key, or set the secret again",
                       name, id);
    const uint8_t *nonce = ciphertext, *text = nonce + NONCE_BYTES;
    const size_t n_text = n > KEYRING_EXTRA_BYTES ? n - KEYRING_EXTRA_BYTES : 0;
    int used = 0, more = 0;
    __attribute__((cleanup(context_free))) EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    const bool opened = n_text > 0 && c && EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, key->bytes, nonce) &&
                        EVP_DecryptUpdate(c, NULL, &more, (const uint8_t *)name, (int)strlen(name)) &&
                        EVP_DecryptUpdate(c, ret, &used, text, (int)n_text) &&
                        EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, (void *)(uintptr_t)(text + n_text)) &&
                        EVP_DecryptFinal_ex(c, ret + used, &more) > 0;
    if (opened)
        return ST_OK;
    explicit_bzero(ret, n_text); /* bytes that are not authentic */
    return err_set(e, ST_DATA_LOSS, "the secret '%s' has changed in the database since it was set: set it again", name);
}
