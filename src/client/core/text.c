/* SPDX-License-Identifier: Apache-2.0 */
#include "client/core/text.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

size_t text_width(const char *text)
{
    size_t width = 0;

    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

void text_url(struct buf *b, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
            strchr("-._~", c))
            buf_add(b, text, 1);
        else
            buf_printf(b, "%%%02X", c);
    }
}

int64_t text_parse_time(const char *text)
{
    struct tm tm = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    int64_t ms = 0;

    if (!rest)
        return -1;
    if (*rest == '.') {
        int64_t unit = 100;
        for (rest++; *rest >= '0' && *rest <= '9'; rest++, unit /= 10)
            ms += unit * (*rest - '0');
    }
    if (strcmp(rest, "Z") != 0)
        return -1;
    return (int64_t)timegm(&tm) * 1000 + ms;
}

const char *text_ago(int64_t now_ms, int64_t then_ms, char *ret)
{
    long long s = (long long)(now_ms - then_ms) / 1000;
    time_t then = (time_t)(then_ms / 1000);
    struct tm tm;

    s = s < 0 ? 0 : s;
    if (s < 60)
        snprintf(ret, TEXT_SHORT, "%llds ago", s);
    else if (s < 3600)
        snprintf(ret, TEXT_SHORT, "%lldm ago", s / 60);
    else if (s < 2LL * 86400)
        snprintf(ret, TEXT_SHORT, "%lldh ago", s / 3600);
    else if (s < 60LL * 86400)
        snprintf(ret, TEXT_SHORT, "%lldd ago", s / 86400);
    else if (!gmtime_r(&then, &tm) || !strftime(ret, TEXT_SHORT, "%Y-%m-%d", &tm))
        snprintf(ret, TEXT_SHORT, "long ago");
    return ret;
}

const char *text_bytes(uint64_t bytes, char *ret)
{
    static const char units[] = "KMGTPE";
    size_t unit = 0;
    double value = (double)bytes / 1024;

    if (bytes < 1024) {
        snprintf(ret, TEXT_SHORT, "%llu", (unsigned long long)bytes);
        return ret;
    }
    for (; value >= 1024; unit++)
        value /= 1024;
    snprintf(ret, TEXT_SHORT, value < 10 ? "%.1f%c" : "%.0f%c", value, units[unit]);
    return ret;
}

int text_signal(const char *name)
{
    char *end;
    long number = strtol(name, &end, 10);

    if (name[0] >= '0' && name[0] <= '9')
        return *end == '\0' && number > 0 && number < NSIG ? (int)number : 0;
    if (strncasecmp(name, "SIG", 3) == 0)
        name += 3;
    for (int i = 1; i < NSIG; i++) {
        const char *known = sigabbrev_np(i);
        if (known && strcasecmp(known, name) == 0)
            return i;
    }
    return 0;
}
