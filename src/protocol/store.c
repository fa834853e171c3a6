/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/store.h"

#include <stdlib.h>
#include <string.h>

enum {
    LONGEST_KEY = 64,
    HTTPS = 443,
    HTTP = 80,
};

/* Those that lead to this host's files, or to another remote. */
static const char *const refused_types[] = {"local",   "alias",    "cache", "chunker",
                                            "combine", "compress", "crypt", "hasher",
                                            "memory",  "union",    "http",  "archive"};

/* What has rclone run a program, read a file, or take what the environment or the machine has. */
static bool is_refused_key(const char *key)
{
    static const char *const ends[] = {"_command", "_file", "_file_path", "_path"};
    static const char *const whole[] = {"ssh",         "env_auth",      "remote",
                                        "upstreams",   "socks_proxy",   "profile",
                                        "unix_socket", "key_use_agent", "plugin"};
    size_t n = strlen(key);

    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        if (strcmp(key, whole[i]) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t m = strlen(ends[i]);
        if (n >= m && strcmp(key + n - m, ends[i]) == 0)
            return true;
    }
    return strncmp(key, "server_command", 14) == 0;
}

static bool is_key(const char *key)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    size_t n = strlen(key);

    return n > 0 && n <= LONGEST_KEY && strspn(key, letters) == n;
}

static bool is_value(const char *value)
{
    for (; *value; value++) {
        if ((unsigned char)*value < ' ' || *value == 0x7f)
            return false;
    }
    return true;
}

/* "bucket/dir": parts that every store can have, and none that leads elsewhere. */
static bool is_path(const char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-/";
    size_t n = strlen(path);

    if (n == 0 || n > STORE_PATH || path[0] == '/' || strspn(path, letters) != n ||
        path[n - 1] == '/')
        return false;
    for (const char *part = path; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (*part == '/' || *part == '.' || *part == '-')
            return false;
    }
    return true;
}

static int take_key(struct store_conf *conf, const char *key, const char *value, struct err *err)
{
    if (strcmp(key, "@path") == 0) {
        if (conf->path || !is_path(value))
            return err_set(err, ERR_INVALID, 0,
                           "the path of a store is a bucket, or a bucket and directories: letters, "
                           "digits, '.', '_', '-' and '/'; no part begins with '.' or '-'");
        conf->path = value;
        return 0;
    }
    if (!is_key(key))
        return err_set(err, ERR_INVALID, 0, "'%.64s' is not a key of rclone's configuration", key);
    if (!is_value(value))
        return err_set(err, ERR_INVALID, 0, "'%.64s' holds a control character", key);
    if (is_refused_key(key))
        return err_set(err, ERR_DENIED, 0,
                       "'%.64s' is not allowed: a store names no file, program or environment of "
                       "this host; give what is in the file itself (such as key_pem or "
                       "service_account_credentials)",
                       key);
    if (*store_conf_value(conf, key))
        return err_set(err, ERR_INVALID, 0, "'%.64s' is given twice", key);
    if (conf->count == STORE_KEYS)
        return err_set(err, ERR_INVALID, 0, "more than %d keys", STORE_KEYS);
    conf->keys[conf->count++] = (struct store_key_value){.key = key, .value = value};
    return 0;
}

static int check_type(struct store_conf *conf, struct err *err)
{
    conf->type = store_conf_value(conf, "type");
    if (!*conf->type)
        return err_set(err, ERR_INVALID, 0, "'type' is missing: s3, sftp, webdav, ...");
    for (size_t i = 0; i < sizeof(refused_types) / sizeof(refused_types[0]); i++) {
        if (strcmp(conf->type, refused_types[i]) == 0)
            return err_set(err, ERR_DENIED, 0,
                           "a store cannot be of the type '%s', which is no place of its own",
                           conf->type);
    }
    return 0;
}

int store_conf_parse(char *text, struct store_conf *ret, struct err *err)
{
    *ret = (struct store_conf){.count = 0};
    if (strlen(text) >= STORE_TEXT)
        return err_set(err, ERR_INVALID, 0, "the store's configuration is too long");
    for (char *line = text; line && *line;) {
        char *end = strchr(line, '\n');
        char *sign = strstr(line, " = ");
        if (end)
            *end = '\0';
        if (!sign || (end && sign > end))
            return err_set(err, ERR_INVALID, 0, "a line is not of the form key = value");
        *sign = '\0';
        if (take_key(ret, line, sign + 3, err) < 0)
            return -1;
        line = end ? end + 1 : NULL;
    }
    if (!ret->path)
        return err_set(err, ERR_INVALID, 0, "the path of the store is missing");
    return check_type(ret, err);
}

const char *store_conf_value(const struct store_conf *conf, const char *key)
{
    for (size_t i = 0; i < conf->count; i++) {
        if (strcmp(conf->keys[i].key, key) == 0)
            return conf->keys[i].value;
    }
    return "";
}

void store_conf_add(struct buf *b, const char *key, const char *value)
{
    buf_str(b, key);
    buf_str(b, " = ");
    buf_str(b, value);
    buf_str(b, "\n");
}

/* Of "https://host:port/...", and of a port that is given by itself. */
static unsigned port_of(const char *url)
{
    const char *host = strstr(url, "://");
    unsigned otherwise = strncmp(url, "http://", 7) == 0 ? HTTP : HTTPS;

    host = host ? host + 3 : url;
    const char *at = strchr(host, '@');
    host = at ? at + 1 : host;
    const char *colon = strrchr(host, ':');
    unsigned long port = colon ? strtoul(colon + 1, NULL, 10) : 0;
    return port > 0 && port < 65536 ? (unsigned)port : otherwise;
}

unsigned store_conf_port(const struct store_conf *conf)
{
    static const char *const urls[] = {"endpoint", "url"};
    unsigned long port = strtoul(store_conf_value(conf, "port"), NULL, 10);

    if (port > 0 && port < 65536)
        return (unsigned)port;
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        const char *url = store_conf_value(conf, urls[i]);
        if (*url)
            return port_of(url);
    }
    return strcmp(conf->type, "s3") == 0 ? HTTPS : 0;
}
