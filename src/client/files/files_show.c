/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs on files share: their words, their output, their progress. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/terminal.h"
#include "client/core/text.h"
#include "client/files/files.h"

enum {
    TELL_MS = 100,
    NAME_COLUMNS = 24,
    BAR_MOST = 40,
    BAR_REST = 48, /* columns of a line that are not the bar */
};

int files_begin(struct files *f, char **argv, const struct files_verb *verb, const char **words)
{
    struct err err = {0};
    size_t count = 0;

    *f = (struct files){.common.verb = argv[0], .socket = -1};
    if (args_all(argv + 1, verb->rules, &f->common, words, verb->most, &err) < 0)
        return client_fail(&err);
    if (f->common.help)
        return args_help(verb->help, verb->rules);
    while (words[count])
        count++;
    return count < verb->least ? cli_fail(verb->missing) : -1;
}

int files_fail(const char *word, struct err *err)
{
    const struct err plain = *err;
    size_t id = strcspn(word, ":/");

    if (plain.msg[0] == '/' && word[id] == ':') /* a path in there */
        err_set(err, plain.code, plain.os_errno, "%.*s:%.300s", (int)id, word, plain.msg);
    else if (plain.msg[0] != '/' && !strstr(plain.msg, word))
        err_wrap(err, "%.200s", word);
    return client_fail(err);
}

int files_end(struct files *f, int status)
{
    if (f->reached)
        daemon_close(&f->daemon);
    local_end(f);
    return status;
}

int files_number(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *ret,
                 struct err *err)
{
    char *end;

    if (!text)
        return 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value < least || value > most)
        return err_set(err, ERR_INVALID, 0, "%s '%.40s': write a number from %llu to %llu", option,
                       text, (unsigned long long)least, (unsigned long long)most);
    *ret = value;
    return 0;
}

int files_mode(const char *text, uint64_t *ret, struct err *err)
{
    char *end;

    if (!text)
        return 0;
    *ret = strtoull(text, &end, 8);
    if (*text < '0' || *text > '7' || *end || *ret > 0777)
        return err_set(err, ERR_INVALID, 0, "--mode '%.40s': write octal digits, such as 0644",
                       text);
    return 0;
}

int files_if_match(const char *text, struct files_message *m, struct err *err)
{
    if (text && (!*text || strlen(text) >= FILES_ETAG || strpbrk(text, "\r\n")))
        return err_set(err, ERR_INVALID, 0,
                       "--if-match '%.40s': write the etag that 'carrel stat' prints, with its "
                       "quotes",
                       text);
    m->if_match = text;
    return 0;
}

void files_explain_match(struct err *err)
{
    const struct err plain = *err;

    if (plain.said == SAID_PRECONDITION_FAILED)
        err_set(err, plain.code, 0,
                "%.250s; the file has changed since you read it: read it again, then write",
                plain.msg);
    err->said = plain.said;
}

bool files_bytes(const json_t *object, const char *name, struct buf *ret)
{
    char encoded[64];
    const json_t *text = json_object_get(object, name);

    ret->n = 0;
    if (json_is_string(text)) {
        buf_add(ret, json_string_value(text), json_string_length(text));
        return buf_done(ret) == 0;
    }
    snprintf(encoded, sizeof(encoded), "%s_b64", name);
    text = json_object_get(object, encoded);
    return json_is_string(text) &&
           bytes_add_decoded(ret, json_string_value(text), json_string_length(text)) == 0 &&
           buf_done(ret) == 0;
}

void files_show(struct buf *b, const char *bytes, size_t n)
{
    if (isatty(STDOUT_FILENO))
        text_escape(b, bytes, n);
    else
        buf_add(b, bytes, n);
}

int files_put_out(const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t wrote = write(STDOUT_FILENO, bytes, n);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0) {
            struct err err = {0};
            err_set(&err, ERR_IO, errno, "standard output cannot be written");
            return client_fail(&err);
        }
        bytes += wrote;
        n -= (size_t)wrote;
    }
    return 0;
}

/* --- progress --- */

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void add_bar(struct buf *line, const struct progress *p, int columns)
{
    int room = columns - BAR_REST;
    int wide = room < BAR_MOST ? room : BAR_MOST;

    if (p->total == 0 || wide < 4)
        return;
    double part = p->done >= p->total ? 1 : (double)p->done / (double)p->total;
    int full = (int)(part * wide);
    buf_str(line, "[");
    for (int i = 0; i < wide; i++)
        buf_str(line, i < full ? "=" : i == full ? ">" : " ");
    buf_printf(line, "] %3d%%  ", (int)(part * 100));
}

static void tell(const struct progress *p, int64_t now)
{
    uint64_t passed = (uint64_t)(now - p->begun_ms > 0 ? now - p->begun_ms : 1);
    char done[TEXT_SHORT];
    char rate[TEXT_SHORT];
    scoped_buf struct buf line;
    scoped_buf struct buf name;
    int columns;
    int rows;

    terminal_size(&columns, &rows);
    buf_init(&line, 4096);
    buf_init(&name, 65536);
    text_escape(&name, p->name, strlen(p->name));
    if (buf_done(&name) < 0)
        return;
    size_t cut = name.n < NAME_COLUMNS ? name.n : NAME_COLUMNS;
    while (cut > 0 && ((unsigned char)name.p[cut] & 0xc0) == 0x80)
        cut--; /* not in the middle of a character */
    buf_printf(&line, "\r%.*s  ", (int)cut, name.p);
    add_bar(&line, p, columns);
    buf_printf(&line, "%s  %s/s\033[K", text_bytes(p->done, done),
               text_bytes(p->done * 1000 / passed, rate));
    if (buf_done(&line) == 0)
        ignore(write(STDERR_FILENO, line.p, line.n) > 0); /* it is only to look at */
}

void progress_begin(struct progress *p, const char *name, uint64_t total)
{
    *p = (struct progress){.shown = isatty(STDERR_FILENO), .name = name, .total = total};
    p->begun_ms = p->told_ms = now_ms();
}

void progress_add(struct progress *p, uint64_t n)
{
    int64_t now;

    p->done += n;
    if (!p->shown || (now = now_ms()) - p->told_ms < TELL_MS)
        return;
    p->told_ms = now;
    tell(p, now);
}

void progress_end(struct progress *p)
{
    if (p->shown && p->told_ms != p->begun_ms)
        ignore(write(STDERR_FILENO, "\r\033[K", 4) > 0);
    p->shown = false;
}
