/* SPDX-License-Identifier: Apache-2.0 */
#include "client/provision/packages.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"

enum {
    PARTS = 8,     /* of a version */
    TAGS = 6,      /* parts of a wheel's name */
    SHA256 = 64,   /* digits */
    SHA512 = 64,   /* bytes */
    OLD_GLIBC = 17 /* manylinux2014 is another name of manylinux_2_17 */
};

/* The best so far. */
struct search {
    const struct wheel_wish *wish;
    struct package *best;
    unsigned long parts[PARTS];
    int score;
    bool others; /* there are wheels, of other hosts */
    bool unhashed;
};

/* --- versions --- */

/* Releases only: what has letters is none. */
static bool read_version(const char *text, unsigned long parts[PARTS])
{
    memset(parts, 0, PARTS * sizeof(parts[0]));
    for (size_t i = 0; i < PARTS; i++) {
        char *end;
        if (*text < '0' || *text > '9')
            return false;
        parts[i] = strtoul(text, &end, 10);
        if (*end == '\0')
            return true;
        if (*end != '.')
            return false;
        text = end + 1;
    }
    return false;
}

static int compare_versions(const unsigned long a[PARTS], const unsigned long b[PARTS])
{
    for (size_t i = 0; i < PARTS; i++) {
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    }
    return 0;
}

/* --- names of wheels --- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text);
    size_t m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

/* How well one tag fits, 0: not at all. The build for musl is static and runs anywhere, but the
 * host's own kind comes first. */
static int score_tag(const char *tag, const struct platform *host)
{
    char machine[64];
    unsigned minor;

    if (strcmp(tag, "any") == 0)
        return 3;
    snprintf(machine, sizeof(machine), "_%s", host->machine);
    if (!ends_with(tag, machine))
        return 0;
    if (strncmp(tag, "manylinux2014_", 14) == 0)
        return !host->musl && host->glibc >= OLD_GLIBC ? 3 : 0;
    /* NOLINTNEXTLINE(cert-err34-c): a number that is too large fits no host */
    if (sscanf(tag, "manylinux_2_%5u_", &minor) == 1)
        return !host->musl && host->glibc >= minor ? 3 : 0;
    if (strncmp(tag, "musllinux_1_", 12) == 0)
        return host->musl ? 3 : 1;
    return strncmp(tag, "linux_", 6) == 0 ? 2 : 0;
}

static int score_platform(char *tags, const struct platform *host)
{
    int best = 0;
    char *rest = NULL;

    for (char *tag = strtok_r(tags, ".", &rest); tag; tag = strtok_r(NULL, ".", &rest)) {
        int score = score_tag(tag, host);
        best = score > best ? score : best;
    }
    return best;
}

/* "uv-0.1.2-py3-none-manylinux_2_17_x86_64.whl" in its parts; false: not one of ours. */
static bool split_wheel(char *name, const char *project, char *parts[TAGS], size_t *ret_count)
{
    size_t count = 0;
    char *rest = NULL;

    if (!ends_with(name, ".whl"))
        return false;
    name[strlen(name) - 4] = '\0';
    for (char *part = strtok_r(name, "-", &rest); part; part = strtok_r(NULL, "-", &rest)) {
        if (count == TAGS)
            return false;
        parts[count++] = part;
    }
    *ret_count = count;
    return count >= 5 && strcasecmp(parts[0], project) == 0 && strlen(parts[1]) < PACKAGE_VERSION;
}

static bool is_newer(const struct search *s, const char *version, unsigned long parts[PARTS],
                     int score)
{
    bool is_release = read_version(version, parts);

    if (s->wish->version)
        return strcmp(version, s->wish->version) == 0 && score > s->score;
    if (!is_release)
        return false;
    int order = s->score ? compare_versions(parts, s->parts) : 1;
    return order > 0 || (order == 0 && score > s->score);
}

static bool is_sha256(const char *hash)
{
    unsigned char bytes[SHA256 / 2];

    return strlen(hash) == SHA256 && bytes_from_hex(hash, sizeof(bytes), bytes);
}

/* It becomes a name on disk. */
static bool is_plain(const char *name)
{
    static const char safe[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+!-";

    return strlen(name) < PACKAGE_NAME && name[strspn(name, safe)] == '\0';
}

/* One file of the page. `url` and `hash` are copied. */
static void consider(struct search *s, const char *name, const char *url, const char *hash)
{
    char copy[PACKAGE_NAME];
    char *parts[TAGS];
    unsigned long version[PARTS];
    size_t count;

    if (!is_plain(name) || strlen(url) >= PACKAGE_URL)
        return;
    memcpy(copy, name, strlen(name) + 1);
    if (!split_wheel(copy, s->wish->project, parts, &count))
        return;
    int score = score_platform(parts[count - 1], s->wish->host);
    s->others = true;
    if (score == 0 || !is_newer(s, parts[1], version, score))
        return;
    if (!hash || !is_sha256(hash)) {
        s->unhashed = true;
        return;
    }
    s->score = score;
    memcpy(s->parts, version, sizeof(version));
    *s->best = (struct package){.algorithm = "sha256"};
    memcpy(s->best->file, name, strlen(name) + 1);
    memcpy(s->best->version, parts[1], strlen(parts[1]) + 1);
    memcpy(s->best->url, url, strlen(url) + 1);
    memcpy(s->best->hash, hash, SHA256 + 1);
}

/* --- a page in JSON --- */

static void read_json(struct search *s, const json_t *page)
{
    const json_t *files = json_object_get(page, "files");

    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *file = json_array_get(files, i);
        const json_t *yanked = json_object_get(file, "yanked");
        const char *name = json_string_value(json_object_get(file, "filename"));
        const char *url = json_string_value(json_object_get(file, "url"));
        if (!name || !url || json_is_true(yanked) || json_is_string(yanked))
            continue;
        consider(s, name, url,
                 json_string_value(json_object_get(json_object_get(file, "hashes"), "sha256")));
    }
}

/* --- a page in HTML: only its anchors count --- */

/* A value with its entities as the characters they stand for. */
static void decode(const char *from, size_t n, char *to, size_t size)
{
    static const struct {
        const char *entity;
        char is;
    } known[] = {{"&amp;", '&'},  {"&lt;", '<'},  {"&gt;", '>'},
                 {"&#39;", '\''}, {"&#43;", '+'}, {"&quot;", '"'}};

    size_t at = 0;

    for (size_t i = 0; i < n && at + 1 < size; at++) {
        size_t skip = 1;
        to[at] = from[i];
        for (size_t k = 0; from[i] == '&' && k < sizeof(known) / sizeof(known[0]); k++) {
            size_t length = strlen(known[k].entity);
            if (n - i >= length && memcmp(from + i, known[k].entity, length) == 0) {
                to[at] = known[k].is;
                skip = length;
                break;
            }
        }
        i += skip;
    }
    to[at] = '\0';
}

struct anchor {
    char href[PACKAGE_URL];
    bool yanked;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void take_attribute(struct anchor *a, const char *name, size_t name_n, const char *value,
                           size_t value_n)
{
    if (name_n == 4 && strncasecmp(name, "href", 4) == 0 && value_n < sizeof(a->href))
        decode(value, value_n, a->href, sizeof(a->href));
    if (name_n == 11 && strncasecmp(name, "data-yanked", 11) == 0)
        a->yanked = true;
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && is_blank(*at))
        at++;
    return at;
}

/* Behind an equals sign: in quotes of either kind, or without. */
static const char *read_value(const char *at, const char *end, const char **ret, size_t *ret_n)
{
    at = skip_blanks(at, end);
    char quote = at < end && (*at == '"' || *at == '\'') ? *at++ : '\0';
    *ret = at;
    while (at < end && (quote ? *at != quote : !is_blank(*at) && *at != '>'))
        at++;
    *ret_n = (size_t)(at - *ret);
    return at < end && quote ? at + 1 : at;
}

/* From behind "<a" to behind its ">"; `end` when there is none. */
static const char *read_anchor(const char *at, const char *end, struct anchor *ret)
{
    *ret = (struct anchor){.yanked = false};
    while (at < end && *at != '>') {
        const char *name = at;
        const char *value = at;
        size_t value_n = 0;
        while (at < end && !is_blank(*at) && *at != '=' && *at != '>')
            at++;
        size_t name_n = (size_t)(at - name);
        at = skip_blanks(at, end);
        if (at < end && *at == '=')
            at = read_value(at + 1, end, &value, &value_n);
        take_attribute(ret, name, name_n, value, value_n);
    }
    return at < end ? at + 1 : end;
}

/* The file's name is the end of the path; the hash is behind the #. */
static void consider_anchor(struct search *s, struct anchor *a)
{
    static const char mark[] = "#sha256=";
    char name[PACKAGE_NAME];
    char *hash = strstr(a->href, mark);
    size_t n;

    if (hash)
        *hash = '\0';
    n = strcspn(a->href, "?#");
    const char *slash = a->href;
    for (size_t i = 0; i < n; i++)
        slash = a->href[i] == '/' ? a->href + i + 1 : slash;
    n -= (size_t)(slash - a->href);
    if (n == 0 || n >= sizeof(name) || a->yanked)
        return;
    memcpy(name, slash, n);
    name[n] = '\0';
    if (hash) {
        hash += sizeof(mark) - 1;
        hash[strcspn(hash, "&")] = '\0';
    }
    consider(s, name, a->href, hash);
}

static void read_html(struct search *s, const char *page, size_t n)
{
    const char *end = page + n;
    struct anchor anchor;

    for (const char *at = page; at < end && (at = memchr(at, '<', (size_t)(end - at))) != NULL;) {
        if (end - at > 2 && (at[1] == 'a' || at[1] == 'A') && is_blank(at[2])) {
            at = read_anchor(at + 2, end, &anchor);
            consider_anchor(s, &anchor);
        } else {
            at++;
        }
    }
}

int packages_wheel(const char *page, size_t n, const struct wheel_wish *wish, struct package *ret,
                   struct err *err)
{
    struct package best = {.algorithm = NULL};
    struct search s = {.wish = wish, .best = &best};
    json_t *object = n > 0 && page[0] == '{' ? json_loadb(page, n, 0, NULL) : NULL;

    if (object)
        read_json(&s, object);
    else
        read_html(&s, page, n);
    json_decref(object);
    if (s.score) {
        *ret = best;
        return 0;
    }
    if (s.unhashed)
        return err_set(err, ERR_INVALID, 0,
                       "the index gives no sha256 for %s, so that it cannot be checked; use "
                       "another index",
                       wish->project);
    if (!s.others)
        return err_set(err, ERR_NOT_FOUND, 0, "the index has no wheel of %s", wish->project);
    return err_set(err, ERR_NOT_FOUND, 0, "the index has no %s%s%s for this host (%s, %s)",
                   wish->project, wish->version ? " " : "", wish->version ? wish->version : "",
                   wish->host->machine, wish->host->musl ? "musl" : "glibc");
}

/* --- npm's registry --- */

/* "sha512-BASE64", among others with blanks between. */
static bool read_integrity(const char *text, char hash[PACKAGE_HASH])
{
    unsigned char bytes[SHA512 + 8];
    const char *at = text ? strstr(text, "sha512-") : NULL;

    if (!at)
        return false;
    at += 7;
    size_t n = strcspn(at, " ?");
    if (n > sizeof(bytes) / 3 * 4 || bytes_from_base64(at, n, bytes) != SHA512)
        return false;
    bytes_to_hex(bytes, SHA512, hash);
    return true;
}

static int read_release(const json_t *document, const char *version, struct package *ret,
                        struct err *err)
{
    const json_t *dist =
        json_object_get(json_object_get(json_object_get(document, "versions"), version), "dist");
    const char *url = json_string_value(json_object_get(dist, "tarball"));
    struct package found = {.algorithm = "sha512"};

    if (!url || strlen(url) >= sizeof(found.url) || strlen(version) >= sizeof(found.version))
        return err_set(err, ERR_NOT_FOUND, 0, "the registry has no version %.40s of it", version);
    if (!read_integrity(json_string_value(json_object_get(dist, "integrity")), found.hash))
        return err_set(err, ERR_INVALID, 0,
                       "the registry gives no sha512 for it, so that it cannot be checked");
    const char *slash = strrchr(url, '/');
    const char *file = slash ? slash + 1 : url;
    snprintf(found.file, sizeof(found.file), "%.*s", (int)strcspn(file, "?#"), file);
    if (!is_plain(version) || !is_plain(found.file)) /* both are shown */
        return err_set(err, ERR_INVALID, 0,
                       "the registry gives it a version or a file name with odd characters");
    memcpy(found.url, url, strlen(url) + 1);
    memcpy(found.version, version, strlen(version) + 1);
    *ret = found;
    return 0;
}

int packages_npm(const char *page, size_t n, const char *version, struct package *ret,
                 struct err *err)
{
    json_t *document = n > 0 ? json_loadb(page, n, 0, NULL) : NULL;
    const json_t *latest = json_object_get(json_object_get(document, "dist-tags"), "latest");
    const char *wanted = version ? version : json_string_value(latest);
    int r;

    if (!json_is_object(document))
        r = err_set(err, ERR_INVALID, 0, "the registry's answer is not JSON");
    else if (!wanted)
        r = err_set(err, ERR_NOT_FOUND, 0, "the registry has no version of it");
    else
        r = read_release(document, wanted, ret, err);
    json_decref(document);
    return r;
}

const char *packages_bun(const struct platform *host)
{
    static const struct {
        const char *machine;
        bool musl;
        bool avx2; /* needs it */
        const char *name;
    } builds[] = {
        {"x86_64", false, true, "@oven/bun-linux-x64"},
        {"x86_64", false, false, "@oven/bun-linux-x64-baseline"},
        {"x86_64", true, true, "@oven/bun-linux-x64-musl"},
        {"x86_64", true, false, "@oven/bun-linux-x64-musl-baseline"},
        {"aarch64", false, false, "@oven/bun-linux-aarch64"},
        {"aarch64", true, false, "@oven/bun-linux-aarch64-musl"},
    };

    for (size_t i = 0; i < sizeof(builds) / sizeof(builds[0]); i++) {
        if (strcmp(builds[i].machine, host->machine) == 0 && builds[i].musl == host->musl &&
            (host->avx2 || !builds[i].avx2))
            return builds[i].name;
    }
    return NULL;
}
