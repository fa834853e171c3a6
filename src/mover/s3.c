/* SPDX-License-Identifier: Apache-2.0 */
/* What rclone cannot ask of a store of the kind S3: to write an object only if there is none.
 * libcurl signs. */
#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "base/digest.h"
#include "mover/mover.h"

enum {
    CONNECT_S = 10,
    WHOLE_S = 60,
    CREATED = 200,
    THERE_IS_ONE = 412,
    RACING = 409, /* somebody else is writing it now */
};

bool s3_is(const struct mover *m)
{
    return strcmp(m->conf.type, "s3") == 0;
}

static const char *region_of(const struct mover *m)
{
    const char *region = store_conf_value(&m->conf, "region");

    return *region ? region : "us-east-1";
}

/* By path: the bucket is no part of a host's name, which a certificate would have to cover. */
static const char *url_of(const struct mover *m, struct arena *arena, const char *below)
{
    const char *endpoint = store_conf_value(&m->conf, "endpoint");
    const char *scheme = *endpoint && !strstr(endpoint, "://") ? "https://" : "";

    if (!*endpoint)
        return arena_printf(arena, "https://s3.%s.amazonaws.com/%s/%s", region_of(m), m->conf.path,
                            below);
    size_t n = strlen(endpoint);
    while (n > 0 && endpoint[n - 1] == '/')
        n--;
    return arena_printf(arena, "%s%.*s/%s/%s", scheme, (int)n, endpoint, m->conf.path, below);
}

static size_t drop(char *bytes, size_t size, size_t n, void *context)
{
    (void)bytes;
    (void)context;
    return size * n;
}

static long put(CURL *curl, struct curl_slist *headers, const char *url, const char *bytes,
                size_t n, char *why)
{
    long status = 0;

    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "PUT");
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, bytes);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)WHOLE_S);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    if (curl_easy_perform(curl) != CURLE_OK)
        return -1;
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static struct curl_slist *make_headers(const struct mover *m, const char *hash)
{
    char line[DIGEST_HEX + 64];
    const char *token = store_conf_value(&m->conf, "session_token");
    struct curl_slist *headers = curl_slist_append(NULL, "If-None-Match: *");

    snprintf(line, sizeof(line), "x-amz-content-sha256: %s", hash);
    headers = curl_slist_append(headers, line);
    headers = curl_slist_append(headers, "Content-Type: application/json");
    headers = curl_slist_append(headers, "Expect:");
    if (*token && strlen(token) < 4096) {
        char with[4200];
        snprintf(with, sizeof(with), "x-amz-security-token: %s", token);
        headers = curl_slist_append(headers, with);
    }
    return headers;
}

int s3_create(struct mover *m, const char *below, const char *bytes, size_t n, struct err *err)
{
    char why[CURL_ERROR_SIZE] = "";
    char hash[DIGEST_HEX];
    struct arena arena;

    arena_init(&arena, 65536);
    CURL *curl = curl_easy_init();
    const char *url = url_of(m, &arena, below);
    const char *sign = arena_printf(&arena, "aws:amz:%s:s3", region_of(m));
    const char *user = arena_printf(&arena, "%s:%s", store_conf_value(&m->conf, "access_key_id"),
                                    store_conf_value(&m->conf, "secret_access_key"));
    if (!curl || !url || !sign || !user || digest_hex(bytes, n, hash) < 0) {
        arena_clear(&arena);
        curl_easy_cleanup(curl);
        return err_set(err, ERR_LIMIT, 0, "prepare a request to the store");
    }
    curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, sign);
    curl_easy_setopt(curl, CURLOPT_USERPWD, user);
    struct curl_slist *headers = make_headers(m, hash);
    long status = put(curl, headers, url, bytes, n, why);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    arena_clear(&arena);
    if (status == CREATED)
        return 1;
    if (status == THERE_IS_ONE || status == RACING)
        return 0;
    if (status < 0)
        return err_set(err, ERR_IO, 0, "the store does not answer: %.200s", why);
    return err_set(err, ERR_IO, 0,
                   status == 403   ? "the store does not accept the credentials (status 403)"
                   : status == 404 ? "the bucket does not exist (status %ld)"
                                   : "the store answers with status %ld",
                   status);
}
