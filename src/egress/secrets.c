/* SPDX-License-Identifier: Apache-2.0 */
/* The secrets of all owners. Nothing of a value is said anywhere: not in the log, not in news. */
#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/seal.h"
#include "egress/egress.h"
#include "egress/inspected.h"
#include "policy/network_inner.h"

struct secret {
    struct secret *next;
    char *owner;
    char *name;
    char *value;
    char *before; /* what it was; NULL: nothing */
};

int secrets_open(struct egress *e, int fd, struct err *err)
{
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, e->secret_key, sizeof(e->secret_key));
    (void)close(fd);
    if (n != sizeof(e->secret_key))
        return err_set(err, ERR_INVALID, 0, "the key of the secrets is not %zu bytes long",
                       sizeof(e->secret_key));
    e->has_secret_key = true;
    return 0;
}

static void wipe(char **text)
{
    if (*text)
        OPENSSL_cleanse(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

static struct secret **find(struct egress *e, const char *owner, const char *name)
{
    struct secret **at = &e->secrets;

    while (*at && (strcmp((*at)->owner, owner) != 0 || strcmp((*at)->name, name) != 0))
        at = &(*at)->next;
    return at;
}

static struct secret *make(struct egress *e, const char *owner, const char *name)
{
    struct secret *s = e->secret_count < SECRETS_MOST ? calloc(1, sizeof(*s)) : NULL;

    if (!s || !(s->owner = strdup(owner)) || !(s->name = strdup(name))) {
        if (s)
            free(s->owner);
        free(s);
        return NULL;
    }
    s->next = e->secrets;
    e->secrets = s;
    e->secret_count++;
    return s;
}

/* Its value stays known as one to be taken out of answers: "before". */
static int set_value(struct egress *e, const struct egress_order *o, const char *value,
                     struct err *err)
{
    struct secret *s = *find(e, o->owner, o->secret);
    char *copy = *value ? strdup(value) : NULL;

    if (!s && *value)
        s = make(e, o->owner, o->secret);
    if (*value && (!s || !copy)) {
        wipe(&copy);
        return err_set(err, ERR_LIMIT, ENOMEM, "keep a secret");
    }
    if (!s || (s->value && copy && strcmp(s->value, copy) == 0)) {
        wipe(&copy);
        return 0;
    }
    if (s->value) {
        wipe(&s->before);
        s->before = s->value;
    }
    s->value = copy;
    return 0;
}

/* "OWNER/NAME": a sealed value is nobody else's, and stands under no other name. */
static int open_value(const struct egress *e, const struct egress_order *o, char *value,
                      struct err *err)
{
    scoped_buf struct buf about;

    buf_init(&about, 4096);
    buf_printf(&about, "%s/%s", o->owner, o->secret);
    if (buf_done(&about) < 0 || seal_open(e->secret_key, about.p, o->value, value) < 0)
        return err_set(err, ERR_INVALID, 0,
                       "the secret '%s' was not sealed for this key: set it again", o->secret);
    return 0;
}

int secrets_hear(struct egress *e, const struct egress_order *o, struct err *err)
{
    char value[SEAL_MOST + 1] = "";

    if (!network_is_secret(o->secret) || strlen(o->value) >= SEAL_HEX)
        return err_set(err, ERR_INVALID, 0, "a secret without a name");
    if (*o->value && !e->has_secret_key && strlen(o->value) <= SEAL_MOST)
        memcpy(value, o->value, strlen(o->value) + 1);
    else if (*o->value && open_value(e, o, value, err) < 0)
        return -1;
    int r = set_value(e, o, value, err);
    OPENSSL_cleanse(value, sizeof(value));
    return r;
}

const char *secrets_value(void *context, const char *name, bool before)
{
    struct box *box = context;
    const struct secret *s = *find(box->egress, box->owner, name);

    return !s ? NULL : before ? s->before : s->value;
}
