/* SPDX-License-Identifier: Apache-2.0 */
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "audit/export/export.h"
#include "base/fd.h"

#define MOST_ANSWER (16UL << 20)

enum {
    CONNECT_S = 10,
    WHOLE_S = 120,
    SLOW_S = 30, /* without a byte */
};

static size_t take(char *bytes, size_t one, size_t n, void *context)
{
    struct post *post = context;

    buf_add(&post->answer, bytes, one * n);
    return post->answer.failed ? 0 : one * n;
}

static int is_time_up(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)context, (void)a, (void)b, (void)c, (void)d;
    return export_told_to_stop;
}

static bool begins(const char *text, const char *word)
{
    return strncasecmp(text, word, strlen(word)) == 0;
}

/* The first line of the file: a whole header, or user and password. */
static int set_auth(struct post *post, const struct target *target, int fd, struct err *err)
{
    char text[4096];
    char header[4200];

    if (fd < 0)
        return 0;
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    if (n < 0)
        n = read(fd, text, sizeof(text) - 1); /* a pipe */
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    bool is_header = begins(text, "ApiKey ") || begins(text, "Bearer ") || begins(text, "Basic ");
    bool is_pair = !is_header && strchr(text, ':') && text[0] != ':';
    if (!is_header && !is_pair)
        return err_set(err, ERR_INVALID, 0,
                       "the file of credentials must hold 'ApiKey ...', 'Bearer ...' or "
                       "'user:password' on its first line");
    if (!target->is_tls && !target->is_loopback)
        return err_set(err, ERR_DENIED, 0,
                       "credentials are sent over https, or to this host, only");
    if (is_pair) {
        curl_easy_setopt(post->curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        curl_easy_setopt(post->curl, CURLOPT_USERPWD, text);
    } else {
        snprintf(header, sizeof(header), "Authorization: %s", text);
        post->headers = curl_slist_append(post->headers, header);
    }
    explicit_bzero(text, sizeof(text));
    explicit_bzero(header, sizeof(header));
    return 0;
}

static void set_bounds(CURL *curl)
{
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)WHOLE_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)SLOW_S);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "carrel-export");
}

int post_open(struct post *post, const struct post_options *o, struct err *err)
{
    char header[256];

    *post = (struct post){.curl = curl_easy_init()};
    buf_init(&post->answer, MOST_ANSWER);
    if (!post->curl)
        return err_set(err, ERR_LIMIT, ENOMEM, "open libcurl");
    snprintf(header, sizeof(header), "Content-Type: %s", o->type);
    post->headers = curl_slist_append(NULL, header);
    post->headers = curl_slist_append(post->headers, "Accept: application/json");
    post->headers = curl_slist_append(post->headers, "Expect:"); /* no second trip for each */
    if (o->gzip)
        post->headers = curl_slist_append(post->headers, "Content-Encoding: gzip");
    set_bounds(post->curl);
    curl_easy_setopt(post->curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(post->curl, CURLOPT_WRITEDATA, post);
    curl_easy_setopt(post->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(post->curl, CURLOPT_XFERINFOFUNCTION, is_time_up);
    if (o->ca)
        curl_easy_setopt(post->curl, CURLOPT_CAINFO, o->ca);
    if (set_auth(post, o->target, o->auth_fd, err) < 0)
        return -1;
    curl_easy_setopt(post->curl, CURLOPT_HTTPHEADER, post->headers);
    return 0;
}

void post_close(struct post *post)
{
    curl_easy_cleanup(post->curl);
    curl_slist_free_all(post->headers);
    buf_clear(&post->answer);
    *post = (struct post){.curl = NULL};
}

/* As one gzip member; NULL without memory. */
static unsigned char *compress_all(const char *bytes, size_t n, size_t *ret_n)
{
    z_stream z = {.next_in = NULL};

    if (deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return NULL;
    size_t room = deflateBound(&z, n);
    unsigned char *out = malloc(room);
    z.next_in = (Bytef *)(uintptr_t)bytes; /* zlib only reads it */
    z.avail_in = (unsigned)n;
    z.next_out = out;
    z.avail_out = (unsigned)room;
    bool good = out && deflate(&z, Z_FINISH) == Z_STREAM_END;
    *ret_n = z.total_out;
    (void)deflateEnd(&z);
    if (!good) {
        free(out);
        out = NULL;
    }
    return out;
}

long post_send(struct post *post, const char *url, const char *bytes, size_t n, bool gzip,
               struct err *err)
{
    char why[CURL_ERROR_SIZE] = "";
    unsigned char *packed = NULL;
    curl_off_t wait = 0;
    long status = 0;

    if (gzip && !(packed = compress_all(bytes, n, &n)))
        return err_set(err, ERR_LIMIT, ENOMEM, "compress what is to be sent");
    buf_clear(&post->answer);
    buf_init(&post->answer, MOST_ANSWER);
    curl_easy_setopt(post->curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(post->curl, CURLOPT_URL, url);
    curl_easy_setopt(post->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n);
    curl_easy_setopt(post->curl, CURLOPT_POSTFIELDS, packed ? (const char *)packed : bytes);
    CURLcode code = curl_easy_perform(post->curl);
    free(packed);
    curl_easy_setopt(post->curl, CURLOPT_ERRORBUFFER, NULL);
    if (code != CURLE_OK)
        return err_set(err, ERR_IO, 0, "'%.200s' does not answer: %s", url,
                       *why ? why : curl_easy_strerror(code));
    (void)curl_easy_getinfo(post->curl, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(post->curl, CURLINFO_RETRY_AFTER, &wait);
    post->retry_after_s = wait > 300 ? 300 : (long)wait;
    if (buf_done(&post->answer) < 0)
        return err_set(err, ERR_LIMIT, 0, "the answer of '%.200s' is too long", url);
    return status;
}
