/* SPDX-License-Identifier: Apache-2.0 */
/* Users and groups as the system's own files say. A name service would be that of another C
 * library. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sudo/sudo.h"

enum {
    LONGEST_LINE = 65536,
    USER_FIELDS = 7,
    GROUP_FIELDS = 4
};

/* The next line with that many fields, cut in place. */
static bool next(FILE *file, char *line, char *fields[], size_t count)
{
    while (fgets(line, LONGEST_LINE, file)) {
        size_t n = 0;
        line[strcspn(line, "\n")] = '\0';
        for (char *at = line; at && n < count; n++) {
            fields[n] = at;
            at = strchr(at, ':');
            if (at)
                *at++ = '\0';
        }
        if (n == count && *fields[0])
            return true;
    }
    return false;
}

static bool read_number(const char *text, unsigned *ret)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);

    *ret = (unsigned)number;
    return *text >= '0' && *text <= '9' && *end == '\0' && number < UINT32_MAX;
}

static void fill(struct user *ret, char *fields[], unsigned uid, unsigned gid)
{
    ret->uid = uid;
    ret->gid = gid;
    snprintf(ret->name, sizeof(ret->name), "%s", fields[0]);
    snprintf(ret->home, sizeof(ret->home), "%s", *fields[5] ? fields[5] : "/");
    snprintf(ret->shell, sizeof(ret->shell), "%s", *fields[6] ? fields[6] : "/bin/sh");
}

/* By name, or where that is NULL by number. */
static bool search(const char *name, unsigned number, struct user *ret)
{
    static char line[LONGEST_LINE];
    char *fields[USER_FIELDS];
    FILE *file = fopen("/etc/passwd", "re");
    bool found = false;

    while (file && !found && next(file, line, fields, USER_FIELDS)) {
        unsigned uid;
        unsigned gid = 0;
        found = read_number(fields[2], &uid) && read_number(fields[3], &gid) &&
                (name ? strcmp(fields[0], name) == 0 : uid == number);
        if (found)
            fill(ret, fields, uid, gid);
    }
    if (file)
        (void)fclose(file);
    return found;
}

bool user_look_up(uid_t uid, struct user *ret)
{
    return search(NULL, uid, ret);
}

void user_find(const char *name, struct user *ret)
{
    static char *roots[USER_FIELDS] = {
        (char *)(uintptr_t) "root", [5] = (char *)(uintptr_t) "/root",
        [6] = (char *)(uintptr_t) "/bin/sh"};
    unsigned uid;

    if (name[0] == '#' && read_number(name + 1, &uid)) {
        if (user_look_up(uid, ret))
            return;
        fill(ret, roots, uid, uid);
        snprintf(ret->name, sizeof(ret->name), "%s", name);
        return;
    }
    if (search(name, 0, ret))
        return;
    if (strcmp(name, "root") != 0)
        fail("unknown user %s", name);
    fill(ret, roots, 0, 0); /* whatever has become of the file */
}

gid_t group_find(const char *name)
{
    static char line[LONGEST_LINE];
    char *fields[GROUP_FIELDS];
    unsigned gid;

    if (name[0] == '#' && read_number(name + 1, &gid))
        return gid;
    FILE *file = fopen("/etc/group", "re");
    while (file && next(file, line, fields, GROUP_FIELDS)) {
        if (strcmp(fields[0], name) == 0 && read_number(fields[2], &gid)) {
            (void)fclose(file);
            return gid;
        }
    }
    fail("unknown group %s", name);
}

static bool lists(char *members, const char *name)
{
    char *rest;

    for (char *at = strtok_r(members, ",", &rest); at; at = strtok_r(NULL, ",", &rest)) {
        if (strcmp(at, name) == 0)
            return true;
    }
    return false;
}

void user_find_groups(struct user *user)
{
    static char line[LONGEST_LINE];
    char *fields[GROUP_FIELDS];
    FILE *file = fopen("/etc/group", "re");

    user->groups[0] = user->gid;
    user->group_count = 1;
    while (file && user->group_count < USER_GROUPS && next(file, line, fields, GROUP_FIELDS)) {
        unsigned gid;
        if (lists(fields[3], user->name) && read_number(fields[2], &gid))
            user->groups[user->group_count++] = gid;
    }
    if (file)
        (void)fclose(file);
}
