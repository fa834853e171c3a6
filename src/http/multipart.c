/* SPDX-License-Identifier: Apache-2.0 */
/* multipart/form-data (RFC 7578), a whole body at a time. Strict, as the rest of http/: what two
 * parsers could read in two ways is refused. Nothing stands before the first boundary or behind the
 * last one, a part has each header and each parameter once, and no encoding but none. */
#include "http/multipart.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "http/head.h"

static int refuse(const char **ret_why, const char *why)
{
    *ret_why = why;
    return -1;
}

/* --- parameters: ;name=token or ;name="text" --- */

/* A backslash stands before a quote, and nowhere else: in names some clients double it and others
 * do not. Percent signs are left as they are. Where the text ends, or NULL. */
static char *take_quoted(char *at)
{
    char *to = at;

    for (; *at != '"'; at++) {
        if (*at == '\0')
            return NULL;
        if (*at == '\\' && *++at != '"')
            return NULL;
        *to++ = *at;
    }
    *to = '\0';
    return at + 1;
}

struct parameter {
    const char *name;
    const char *value;
};

/* Takes the one behind a semicolon, which is changed; `*at` is then behind the next semicolon, or
 * NULL where there is none. False: it is malformed. */
static bool take_parameter(char **at, struct parameter *ret)
{
    char *name = *at + strspn(*at, " \t");
    char *c = name;

    while (http_is_token((unsigned char)*c))
        c++;
    if (c == name || *c != '=' || c[-1] == '*') /* which some prefer to the plain one */
        return false;
    *c++ = '\0';
    bool is_quoted = *c == '"';
    char *end = is_quoted ? take_quoted(c + 1) : c;
    while (!is_quoted && http_is_token((unsigned char)*end))
        end++;
    if (!end || end == c)
        return false;
    const char *rest = end + strspn(end, " \t");
    char next = *rest;
    if (next != '\0' && next != ';')
        return false;
    *at = next ? end + (rest - end) + 1 : NULL;
    *end = '\0';
    *ret = (struct parameter){.name = name, .value = is_quoted ? c + 1 : c};
    return true;
}

/* "TYPE; a=b; …": what is named in `wanted` goes to `values`, the rest is of no interest. */
static bool read_parameters(char *text, const char *type, const char *const *wanted,
                            const char **values)
{
    size_t n = strcspn(text, "; \t");
    char *at = text + n + strspn(text + n, " \t");
    struct parameter p;

    if (n != strlen(type) || strncasecmp(text, type, n) != 0 || *at++ != ';')
        return false;
    while (at) {
        if (!take_parameter(&at, &p))
            return false;
        for (size_t i = 0; wanted[i]; i++) {
            if (strcasecmp(p.name, wanted[i]) != 0)
                continue;
            if (values[i])
                return false;
            values[i] = p.value;
        }
    }
    return true;
}

/* --- the boundary --- */

static bool is_boundary(const char *text)
{
    static const char set[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "'()+_,-./:=? ";
    size_t n = strlen(text);

    return n > 0 && n <= HTTP_BOUNDARY && strspn(text, set) == n && text[n - 1] != ' ';
}

int http_multipart_begin(struct http_multipart *m, const char *type, const char *bytes, size_t n,
                         const char **ret_why)
{
    static const char *const wanted[] = {"boundary", NULL};
    const char *boundary[1] = {NULL};
    size_t type_n = type ? strlen(type) : 0;

    if (type_n == 0 || type_n >= sizeof(m->head))
        return refuse(ret_why, "a Content-Type of multipart/form-data is needed");
    memcpy(m->head, type, type_n + 1);
    if (!read_parameters(m->head, "multipart/form-data", wanted, boundary) || !boundary[0] ||
        !is_boundary(boundary[0]))
        return refuse(ret_why, "a Content-Type of multipart/form-data with a boundary is needed");
    memcpy(m->delimiter, "\r\n--", 4);
    m->delimiter_n = 4 + strlen(boundary[0]);
    memcpy(m->delimiter + 4, boundary[0], m->delimiter_n - 4);
    m->at = bytes;
    m->end = bytes + n;
    /* The first has no line before it. */
    if (n < m->delimiter_n - 2 || memcmp(bytes, m->delimiter + 2, m->delimiter_n - 2) != 0)
        return refuse(ret_why, "the body does not begin with its boundary");
    m->at += m->delimiter_n - 2;
    return 0;
}

/* --- parts --- */

static int read_disposition(char *value, struct http_part *ret, const char **ret_why)
{
    static const char *const wanted[] = {"name", "filename", NULL};
    const char *found[2] = {NULL, NULL};

    if (ret->name)
        return refuse(ret_why, "a part has two of Content-Disposition");
    if (!read_parameters(value, "form-data", wanted, found) || !found[0])
        return refuse(ret_why, "a part has no proper Content-Disposition: form-data with a name");
    ret->name = found[0];
    ret->filename = found[1];
    return 0;
}

static int read_header(char *line, size_t n, struct http_part *ret, const char **ret_why)
{
    struct http_header header;

    if (http_read_field(line, n, &header, ret_why) < 0)
        return -1;
    if (strcmp(header.name, "content-disposition") == 0) {
        size_t at = (size_t)(header.value - line);
        return read_disposition(line + at, ret, ret_why);
    }
    if (strcmp(header.name, "content-transfer-encoding") == 0 &&
        strcasecmp(header.value, "binary") != 0 && strcasecmp(header.value, "8bit") != 0 &&
        strcasecmp(header.value, "7bit") != 0)
        return refuse(ret_why, "a part has a Content-Transfer-Encoding");
    return 0;
}

/* Lines that end in CR LF, and no other control characters. */
static bool are_lines(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        bool is_end = c == '\r' && i + 1 < n && bytes[i + 1] == '\n';
        if (is_end)
            i++;
        else if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

/* Of the n bytes of a part. Copies its headers, which are then pointed into; what follows them is
 * its content. */
static int read_part(struct http_multipart *m, const char *bytes, size_t n, struct http_part *ret,
                     const char **ret_why)
{
    size_t room = sizeof(m->head) - 1;
    const char *empty = memmem(bytes, n < room ? n : room, "\r\n\r\n", 4);

    if (!empty)
        return refuse(ret_why, "the headers of a part have no end, or are too long");
    size_t head_n = (size_t)(empty + 2 - bytes);
    memcpy(m->head, bytes, head_n);
    m->head[head_n] = '\0';
    if (!are_lines(m->head, head_n))
        return refuse(ret_why, "a part has a header with control characters");
    for (char *line = m->head; *line;) {
        char *end = strstr(line, "\r\n");
        *end = '\0';
        if (read_header(line, (size_t)(end - line), ret, ret_why) < 0)
            return -1;
        line = end + 2;
    }
    if (!ret->name)
        return refuse(ret_why, "a part has no Content-Disposition");
    ret->bytes = empty + 4;
    ret->n = n - head_n - 2;
    return 0;
}

/* Where CR LF - - ends, at or behind `i`, or n: by the last of the four, which mostly is none of
 * them and lets three be passed over. Everybody waits for this, and who sends a form chooses what
 * is in it: no content makes it look at a byte often. */
static size_t find_dashes(const char *bytes, size_t i, size_t n)
{
    while (i < n) {
        const char *at = bytes + i;
        if (*at == '-' && at[-1] == '-' && at[-2] == '\n' && at[-3] == '\r')
            return i;
        bool is_second = *at == '\n' && at[-1] == '\r';
        bool is_third = *at == '-' && at[-1] == '\n' && at[-2] == '\r';
        i += *at == '\r' ? 3 : is_second ? 2 : is_third ? 1 : 4;
    }
    return n;
}

static const char *find_delimiter(const struct http_multipart *m)
{
    size_t n = (size_t)(m->end - m->at);

    for (size_t i = 3; (i = find_dashes(m->at, i, n)) < n; i += 4) {
        const char *at = m->at + i - 3;
        if (n - (i - 3) < m->delimiter_n)
            return NULL;
        if (memcmp(at, m->delimiter, m->delimiter_n) == 0)
            return at;
    }
    return NULL;
}

int http_multipart_next(struct http_multipart *m, struct http_part *ret, const char **ret_why)
{
    size_t left = (size_t)(m->end - m->at);

    *ret = (struct http_part){0};
    if (left >= 2 && memcmp(m->at, "--", 2) == 0) {
        bool is_last = left == 2 || (left == 4 && memcmp(m->at + 2, "\r\n", 2) == 0);
        return is_last ? 0 : refuse(ret_why, "something follows the last boundary");
    }
    if (left < 2 || memcmp(m->at, "\r\n", 2) != 0)
        return refuse(ret_why, "a boundary is not followed by the end of its line");
    const char *end = find_delimiter(m);
    if (!end)
        return refuse(ret_why, "a part has no end");
    const char *part = m->at + 2;
    m->at = end + m->delimiter_n;
    if (end < part)
        return refuse(ret_why, "a part has nothing in it");
    return read_part(m, part, (size_t)(end - part), ret, ret_why) < 0 ? -1 : 1;
}
