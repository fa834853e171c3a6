/* SPDX-License-Identifier: Apache-2.0
 *
 * The program to mark setuid or give file capabilities: says what running it has gained. With an
 * argument it first drops every capability it has and becomes that program, so that whatever is
 * there afterwards came from the file.
 */
#include "probe.h"

#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/auxv.h>
#include <sys/prctl.h>

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

static void become(char *program)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    char *const arguments[] = {program, NULL};

    prctl(PR_SET_SECUREBITS, SECBIT_NOROOT, 0, 0,
          0); /* else any program gives uid 0 capabilities */
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capset, &head, none) < 0)
        unclear("drop capabilities");
    execv(program, arguments);
    unclear(program);
}

int main(int argc, char **argv)
{
    uid_t real_uid;
    uid_t uid;
    uid_t saved_uid;
    gid_t real_gid;
    gid_t gid;
    gid_t saved_gid;

    if (argc > 1)
        become(argv[1]);
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
