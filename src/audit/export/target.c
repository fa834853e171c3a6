/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/export/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct scheme {
    const char *begins;
    enum target_kind kind;
    uint16_t port; /* 0: no host, a path */
    bool is_tls;
} schemes[] = {
    {"https://", TARGET_BULK, 443, true},
    {"http://", TARGET_BULK, 80, false},
    {"file:", TARGET_FILE, 0, false},
    {"syslog+udp://", TARGET_SYSLOG_UDP, 514, false},
    {"syslog+tcp://", TARGET_SYSLOG_TCP, 601, false},
    {"syslog+unix:", TARGET_SYSLOG_UNIX, 0, false},
    {"syslog:", TARGET_SYSLOG_UNIX, 0, false},
};

static int take_port(const char *text, size_t n, struct target *t, struct err *err)
{
    char digits[6];
    char *end;

    if (n == 0 || n >= sizeof(digits))
        return err_set(err, ERR_INVALID, 0, "'%.200s' has no port after its colon", t->text);
    memcpy(digits, text, n);
    digits[n] = '\0';
    unsigned long port = strtoul(digits, &end, 10);
    if (*end || port == 0 || port > UINT16_MAX || digits[0] < '0' || digits[0] > '9')
        return err_set(err, ERR_INVALID, 0, "'%s' is not a port", digits);
    t->port = (uint16_t)port;
    return 0;
}

/* HOST, HOST:PORT, [V6]:PORT, and for HTTP a path behind it. */
static int take_host(const char *text, struct target *t, struct err *err)
{
    size_t n = strcspn(text, "/?#");
    size_t host = *text == '[' ? strcspn(text, "]") : strcspn(text, ":/?#");
    bool is_v6 = *text == '[';

    if (memchr(text, '@', n))
        return err_set(err, ERR_INVALID, 0,
                       "'%.200s' holds a user or password: give these in a file", t->text);
    if (text[n] == '?' || text[n] == '#' || strchr(text + n, '?') || strchr(text + n, '#'))
        return err_set(err, ERR_INVALID, 0, "'%.200s' has a query", t->text);
    if (host > n || (is_v6 && text[host] != ']') || host - is_v6 == 0 ||
        host - is_v6 >= sizeof(t->host))
        return err_set(err, ERR_INVALID, 0, "'%.200s' names no host", t->text);
    memcpy(t->host, text + is_v6, host - is_v6);
    t->host[host - is_v6] = '\0';
    const char *rest = text + host + is_v6;
    if (*rest == ':' && take_port(rest + 1, (size_t)(text + n - rest - 1), t, err) < 0)
        return -1;
    if (*rest != ':' && rest != text + n)
        return err_set(err, ERR_INVALID, 0, "'%.200s' names no host", t->text);
    if (text[n] && t->kind != TARGET_BULK && strcmp(text + n, "/") != 0)
        return err_set(err, ERR_INVALID, 0, "'%.200s' has a path", t->text);
    t->is_loopback = strcmp(t->host, "localhost") == 0 || strcmp(t->host, "::1") == 0 ||
                     strncmp(t->host, "127.", 4) == 0;
    return 0;
}

static int take_path(const char *text, struct target *t, struct err *err)
{
    if (!*text && t->kind == TARGET_SYSLOG_UNIX)
        text = "/dev/log";
    if (*text != '/' || strlen(text) >= sizeof(t->path))
        return err_set(err, ERR_INVALID, 0, "'%.200s' has no absolute path", t->text);
    memcpy(t->path, text, strlen(text) + 1);
    return 0;
}

int target_parse(const char *text, struct target *ret, struct err *err)
{
    *ret = (struct target){.port = 0};
    if (strlen(text) >= sizeof(ret->text))
        return err_set(err, ERR_INVALID, 0, "the target is too long");
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f)
            return err_set(err, ERR_INVALID, 0, "the target holds a space or control character");
    memcpy(ret->text, text, strlen(text) + 1);
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        size_t n = strlen(schemes[i].begins);
        if (strncmp(text, schemes[i].begins, n) != 0)
            continue;
        ret->kind = schemes[i].kind;
        ret->port = schemes[i].port;
        ret->is_tls = schemes[i].is_tls;
        return schemes[i].port ? take_host(text + n, ret, err) : take_path(text + n, ret, err);
    }
    return err_set(err, ERR_INVALID, 0,
                   "'%.200s' is not a target: https://HOST:PORT, http://HOST:PORT, file:/PATH, "
                   "syslog:, syslog+unix:/PATH, syslog+udp://HOST:PORT or syslog+tcp://HOST:PORT",
                   text);
}
