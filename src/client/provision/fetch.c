/* SPDX-License-Identifier: Apache-2.0 */
#include "client/provision/fetch.h"

#include <curl/curl.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "client/core/text.h"

enum {
    REDIRECTS = 5,
    CONNECT_S = 15,
    PROGRESS_MS = 200,
    SLOWEST = 100, /* bytes in a second */
};

#define MOST_BYTES (1ULL << 30) /* of one package */

/* One download. */
struct load {
    const struct fetch *f;
    CURL *easy;
    struct buf *page; /* to here, */
    int fd;           /* ... or there */
    EVP_MD_CTX *digest;
    uint64_t got;
    int os_errno; /* of a write here that failed */
    bool too_much;
    const char *label; /* of what is loaded, for the progress */
    uint64_t shown_ms;
    bool shown;
    char error[CURL_ERROR_SIZE];
};

const char *fetch_shown(const char *url, char *ret)
{
    const char *scheme = strstr(url, "://");
    const char *host = scheme ? scheme + 3 : url;
    const char *at = memrchr(host, '@', strcspn(host, "/?#"));

    if (at)
        host = at + 1;
    snprintf(ret, FETCH_SHOWN, "%.*s%.*s", scheme ? (int)(scheme + 3 - url) : 0, url,
             (int)strcspn(host, "?#"), host);
    return ret;
}

/* --- bytes as they come --- */

static int keep(struct load *l, const char *bytes, size_t n)
{
    if (l->page) {
        buf_add(l->page, bytes, n);
        l->too_much = l->page->failed;
        return l->too_much ? -1 : 0;
    }
    l->too_much = l->got + n > MOST_BYTES;
    if (l->too_much || EVP_DigestUpdate(l->digest, bytes, n) != 1)
        return -1;
    while (n > 0) {
        ssize_t written = write(l->fd, bytes, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            l->os_errno = errno;
            return -1;
        }
        bytes += written;
        n -= (size_t)written;
    }
    return 0;
}

static size_t take(char *bytes, size_t one, size_t n, void *context)
{
    struct load *l = context;
    long status = 0;

    curl_easy_getinfo(l->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 300) /* of a redirect or a refusal: nobody reads it */
        return one * n;
    if (keep(l, bytes, one * n) < 0)
        return 0;
    l->got += one * n;
    return one * n;
}

static int progress(void *context, curl_off_t total, curl_off_t now, curl_off_t up_total,
                    curl_off_t up)
{
    struct load *l = context;
    char done[TEXT_SHORT];
    char all[TEXT_SHORT];
    uint64_t ms = now_ms();

    (void)up_total;
    (void)up;
    if (total <= 0 || ms - l->shown_ms < PROGRESS_MS)
        return 0;
    l->shown_ms = ms;
    l->shown = true;
    fprintf(stderr, "\r  %.60s  %s of %s\033[K", l->label, text_bytes((uint64_t)now, done),
            text_bytes((uint64_t)total, all));
    return 0;
}

/* --- what went wrong --- */

static const struct {
    CURLcode code;
    enum err_code kind;
    const char *why;
    const char *remedy;
} failures[] = {
    {CURLE_COULDNT_RESOLVE_HOST, ERR_NOT_FOUND, "the name of its host is not known here",
     "check the network, or name a mirror with"},
    {CURLE_COULDNT_RESOLVE_PROXY, ERR_NOT_FOUND, "the name of the proxy is not known here",
     "check https_proxy, or name a mirror with"},
    {CURLE_COULDNT_CONNECT, ERR_NOT_FOUND, "nobody answers there",
     "check the network, or name a mirror with"},
    {CURLE_OPERATION_TIMEDOUT, ERR_IO, "it sends nothing for too long",
     "try again, raise --timeout, or name a mirror with"},
    {CURLE_PEER_FAILED_VERIFICATION, ERR_DENIED,
     "its certificate is not signed by an authority known here",
     "name the file of that authority with --ca, or a mirror with"},
    {CURLE_SSL_CACERT_BADFILE, ERR_INVALID, "the file of the certificate authority is of no use",
     "check --ca, package_ca or SSL_CERT_FILE, or name a mirror with"},
    {CURLE_PARTIAL_FILE, ERR_IO, "the connection broke off before the end",
     "run it again, or name a mirror with"},
    {CURLE_GOT_NOTHING, ERR_IO, "the connection was closed without an answer",
     "run it again, or name a mirror with"},
    {CURLE_RECV_ERROR, ERR_IO, "the connection broke off", "run it again, or name a mirror with"},
    {CURLE_TOO_MANY_REDIRECTS, ERR_INVALID, "it leads from one address to the next without end",
     "name a mirror with"},
    {CURLE_UNSUPPORTED_PROTOCOL, ERR_INVALID, "it is, or leads to, no address that is used here",
     "give an address that begins with https:// to"},
    {CURLE_URL_MALFORMAT, ERR_INVALID, "it is no address",
     "give an address that begins with https:// to"},
};

static int explain(const struct load *l, CURLcode code, const char *url, struct err *err)
{
    char shown[FETCH_SHOWN];

    fetch_shown(url, shown);
    if (l->too_much)
        return err_set(err, ERR_LIMIT, 0, "%s sends more than a package has; check %s", shown,
                       l->f->option);
    if (l->os_errno)
        return err_set(err, ERR_IO, l->os_errno,
                       "write what %s sends (make room where the state directory is, and run it "
                       "again)",
                       shown);
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        if (failures[i].code == code)
            return err_set(err, failures[i].kind, 0, "%s: %s; %s %s", shown, failures[i].why,
                           failures[i].remedy, l->f->option);
    }
    return err_set(err, ERR_IO, 0, "%s: %.120s; try again, or name a mirror with %s", shown,
                   l->error[0] ? l->error : curl_easy_strerror(code), l->f->option);
}

static int explain_status(const struct load *l, long status, const char *url, struct err *err)
{
    char shown[FETCH_SHOWN];

    fetch_shown(url, shown);
    if (status == 404 || status == 410)
        return err_set(err, ERR_NOT_FOUND, 0, "%s is not there (status %ld); check %s", shown,
                       status, l->f->option);
    if (status == 401 || status == 403 || status == 407)
        return err_set(err, ERR_DENIED, 0,
                       "%s does not let us in (status %ld); put name and password into the address "
                       "of %s, or into ~/.netrc",
                       shown, status, l->f->option);
    return err_set(err, ERR_IO, 0,
                   "%s answers with status %ld; try again, or name a mirror with %s", shown, status,
                   l->f->option);
}

/* --- the transfer --- */

static void set_up(struct load *l, const char *url)
{
    const struct fetch *f = l->f;
    CURL *easy = l->easy;
    bool is_safe = strncasecmp(url, "https:", 6) == 0;

    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    /* What was asked for safely is not fetched otherwise. */
    curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, is_safe ? "https" : "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(easy, CURLOPT_MAXREDIRS, (long)REDIRECTS);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT,
                     f->patience_s < CONNECT_S ? f->patience_s : (long)CONNECT_S);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, (long)SLOWEST);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, f->patience_s);
    curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "carrel");
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, l->error);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, l);
    if (f->ca)
        curl_easy_setopt(easy, CURLOPT_CAINFO, f->ca);
    if (l->label && f->shows_progress) {
        curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
        curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, progress);
        curl_easy_setopt(easy, CURLOPT_XFERINFODATA, l);
    }
}

static int run(struct load *l, const char *url, struct err *err)
{
    long status = 0;
    CURLcode code = curl_easy_perform(l->easy);

    if (l->shown)
        fputs("\r\033[K", stderr);
    if (code != CURLE_OK)
        return explain(l, code, url, err);
    curl_easy_getinfo(l->easy, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 && status < 300 ? 0 : explain_status(l, status, url, err);
}

static int begin(struct load *l, const char *url, struct err *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(l->easy = curl_easy_init()))
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    set_up(l, url);
    return 0;
}

int fetch_page(const struct fetch *f, const char *url, const char *accept, struct buf *ret,
               char *place, struct err *err)
{
    struct load l = {.f = f, .page = ret, .fd = -1};
    struct curl_slist *headers = curl_slist_append(NULL, accept);
    const char *final = NULL;
    int r = begin(&l, url, err);

    if (r == 0) {
        curl_easy_setopt(l.easy, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(l.easy, CURLOPT_ACCEPT_ENCODING, "");
        r = run(&l, url, err);
    }
    if (r == 0) {
        curl_easy_getinfo(l.easy, CURLINFO_EFFECTIVE_URL, &final);
        snprintf(place, PACKAGE_URL, "%s", final ? final : url);
        r = buf_done(ret) == 0 ? 0 : err_set(err, ERR_LIMIT, 0, "the page is too long");
    }
    curl_easy_cleanup(l.easy);
    curl_slist_free_all(headers);
    return r;
}

/* --- addresses --- */

static bool same_part(CURLU *a, CURLU *b, CURLUPart part)
{
    char *x = NULL;
    char *y = NULL;
    unsigned flags = part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0;
    bool same = curl_url_get(a, part, &x, flags) == CURLUE_OK &&
                curl_url_get(b, part, &y, flags) == CURLUE_OK && strcasecmp(x, y) == 0;

    curl_free(x);
    curl_free(y);
    return same;
}

static void give_part(CURLU *from, CURLU *to, CURLUPart part)
{
    char *text = NULL;

    if (curl_url_get(from, part, &text, 0) == CURLUE_OK)
        (void)curl_url_set(to, part, text, 0); /* without it the server says what it wants */
    curl_free(text);
}

/* The address of a package as seen from the page that names it; NULL: it is none. */
static char *resolve(const char *page, const char *url)
{
    CURLU *from = curl_url();
    CURLU *to = curl_url();
    char *whole = NULL;
    char *user = NULL;

    if (from && to && curl_url_set(from, CURLUPART_URL, page, 0) == CURLUE_OK &&
        curl_url_set(to, CURLUPART_URL, page, 0) == CURLUE_OK &&
        curl_url_set(to, CURLUPART_URL, url, 0) == CURLUE_OK) {
        if (same_part(from, to, CURLUPART_SCHEME) && same_part(from, to, CURLUPART_HOST) &&
            same_part(from, to, CURLUPART_PORT) &&
            curl_url_get(to, CURLUPART_USER, &user, 0) != CURLUE_OK) {
            give_part(from, to, CURLUPART_USER);
            give_part(from, to, CURLUPART_PASSWORD);
        }
        (void)curl_url_get(to, CURLUPART_URL, &whole, 0);
    }
    curl_free(user);
    curl_url_cleanup(from);
    curl_url_cleanup(to);
    return whole;
}

static int check_hash(EVP_MD_CTX *digest, const struct package *package, struct err *err)
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    char hex[2 * EVP_MAX_MD_SIZE + 1];
    unsigned n = 0;

    if (EVP_DigestFinal_ex(digest, bytes, &n) != 1)
        return err_set(err, ERR_KERNEL, 0, "this host's OpenSSL has no %s", package->algorithm);
    bytes_to_hex(bytes, n, hex);
    if (strcmp(hex, package->hash) == 0)
        return 0;
    return err_set(err, ERR_DENIED, 0,
                   "%.100s is not what the index promises (%s is %.16s..., not %.16s...); nothing "
                   "of it is used: try again, and if that does not help, another mirror",
                   package->file, package->algorithm, hex, package->hash);
}

static int load_checked(struct load *l, const char *url, const struct package *package,
                        struct err *err)
{
    const EVP_MD *md = EVP_get_digestbyname(package->algorithm);

    if (!l->digest || !md || EVP_DigestInit_ex(l->digest, md, NULL) != 1)
        return err_set(err, ERR_KERNEL, 0, "this host's OpenSSL has no %s", package->algorithm);
    if (begin(l, url, err) < 0 || run(l, url, err) < 0)
        return -1;
    return check_hash(l->digest, package, err);
}

int fetch_package(const struct fetch *f, const char *page, const struct package *package, int fd,
                  struct err *err)
{
    struct load l = {.f = f, .fd = fd, .label = package->file};
    char *url = resolve(page, package->url);

    if (!url)
        return err_set(err, ERR_INVALID, 0,
                       "the index gives no proper address for %.100s; check %s", package->file,
                       f->option);
    l.digest = EVP_MD_CTX_new();
    int r = load_checked(&l, url, package, err);
    curl_easy_cleanup(l.easy);
    EVP_MD_CTX_free(l.digest);
    curl_free(url);
    return r;
}
