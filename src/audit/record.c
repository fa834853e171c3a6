/* SPDX-License-Identifier: Apache-2.0 */
/* Writing one record as one line. Its texts come from people, from sandboxes and from a front that
 * may have been taken over: none of them can end the line, end a string, or add a member. */
#include "audit/line.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"

/* What a terminal might obey, or show in another order, when somebody looks at the file. */
static bool is_unsafe(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
           code == 0xfeff;
}

/* Copies, writing unsafe characters and broken bytes as escapes; in a string of its own also quotes
 * and backslashes. In checked JSON all of these are inside strings, where an escape is the same. */
static void add_clean(struct buf *b, const char *text, size_t n, bool is_json)
{
    size_t plain = 0; /* bytes before `text` that are copied as they are */
    uint32_t code = 0;

    while (n) {
        size_t length = utf8_next(text, n, &code);
        bool is_quoted = !is_json && length == 1 && (code == '"' || code == '\\');
        if (length && !is_quoted && !is_unsafe(code)) {
            plain += length;
        } else {
            buf_add(b, text - plain, plain);
            plain = 0;
            if (is_quoted)
                buf_printf(b, "\\%c", (char)code);
            else
                buf_printf(b, "\\u%04x", length ? code : 0xfffd);
            length = length ? length : 1;
        }
        text += length;
        n -= length;
    }
    buf_add(b, text - plain, plain);
}

static void add_text(struct buf *b, const char *name, const char *text)
{
    size_t n = text ? strnlen(text, AUDIT_TEXT + 1) : 0;
    bool is_cut = n > AUDIT_TEXT;

    buf_printf(b, ",\"%s\":\"", name);
    add_clean(b, text, is_cut ? AUDIT_TEXT - 3 : n, false);
    buf_str(b, is_cut ? "...\"" : "\"");
}

/* Details that are not what they should be do not cost the record: that something was done weighs
 * more than how, and the end of a command cannot be refused. */
static void add_details(struct buf *b, const char *details)
{
    size_t n = details ? strnlen(details, AUDIT_DETAILS + 1) : 0;

    buf_str(b, ",\"details\":");
    if (!n)
        buf_str(b, "{}");
    else if (n > AUDIT_DETAILS)
        buf_str(b, "{\"refused\":\"details\",\"why\":\"too long\"}");
    else if (!audit_is_object(details, n))
        buf_str(b, "{\"refused\":\"details\",\"why\":\"not a JSON object\"}");
    else
        add_clean(b, details, n, true);
}

void audit_now(char ret_time[AUDIT_TIME])
{
    struct timespec now;
    struct tm tm;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    /* The year stays in four digits: the verifier compares times as text. */
    snprintf(ret_time, AUDIT_TIME, "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ",
             (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)(tm.tm_mon + 1) % 100,
             (unsigned)tm.tm_mday % 100, (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100,
             (unsigned)tm.tm_sec % 100, (unsigned)(now.tv_nsec / 1000) % 1000000);
}

void audit_encode(struct buf *b, const struct audit_chain *chain, const char *time,
                  const struct audit_record *record)
{
    buf_printf(b, "{\"seq\":%ju,\"time\":\"%s\"", (uintmax_t)(chain->seq + 1),
               strcmp(time, chain->time) < 0 ? chain->time : time);
    add_text(b, "actor", record->actor);
    add_text(b, "workspace", record->workspace);
    add_text(b, "request", record->request);
    add_text(b, "operation", record->operation);
    add_text(b, "result", record->result);
    add_details(b, record->details);
    buf_printf(b, ",\"prev\":\"%s\"}", chain->head);
}
