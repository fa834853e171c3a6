/* SPDX-License-Identifier: Apache-2.0
 *
 * The program to mark setuid or give file capabilities: says what running it has gained.
 */
#include "probe.h"

#include <sys/auxv.h>

static unsigned long long capabilities(const char *field)
{
    FILE *status = fopen("/proc/self/status", "re");
    char line[256];
    unsigned long long set = ~0ULL;

    if (status == NULL)
        unclear("/proc/self/status");
    while (fgets(line, sizeof(line), status) != NULL) {
        if (strncmp(line, field, strlen(field)) == 0)
            set = strtoull(line + strlen(field), NULL, 16);
    }
    fclose(status);
    return set;
}

int main(void)
{
    uid_t real_uid;
    uid_t uid;
    uid_t saved_uid;
    gid_t real_gid;
    gid_t gid;
    gid_t saved_gid;

    if (getresuid(&real_uid, &uid, &saved_uid) < 0 || getresgid(&real_gid, &gid, &saved_gid) < 0)
        unclear("getresuid");
    printf("uid %u/%u/%u gid %u/%u/%u secure %lu\n", real_uid, uid, saved_uid, real_gid, gid,
           saved_gid, getauxval(AT_SECURE));
    if (uid != real_uid || saved_uid != real_uid)
        escaped("uid %u became %u", real_uid, uid);
    if (gid != real_gid || saved_gid != real_gid)
        escaped("gid %u became %u", real_gid, gid);
    if (capabilities("CapEff:") != 0 || capabilities("CapPrm:") != 0)
        escaped("capabilities %llx", capabilities("CapPrm:"));
    return verdict();
}
