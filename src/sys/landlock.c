/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/uapi.h"

#define READS (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define RUNS  LANDLOCK_ACCESS_FS_EXECUTE
#define WRITES                                                                                     \
    (READS | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |                         \
     LANDLOCK_ACCESS_FS_REMOVE_FILE | ACCESS_TRUNCATE)
#define MAKES                                                                                      \
    (LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REMOVE_DIR |   \
     ACCESS_REFER)
#define OF_FILES                                                                                   \
    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | ACCESS_TRUNCATE | RUNS)
#define ACCESS_TRUNCATE (1ULL << 14) /* ABI 3 */
#define ACCESS_REFER    (1ULL << 13) /* ABI 2 */
#define ACCESS_ALL      ((1ULL << 13) - 1)
#define NET_ALL         3ULL /* ABI 4: bind and connect */

enum {
    RULE_PORT = 2, /* LANDLOCK_RULE_NET_PORT */
    NET_BIND = 1,  /* LANDLOCK_ACCESS_NET_BIND_TCP */
};

static int allow_place(int rules, const struct landlock_place *place, uint64_t handled)
{
    uint64_t access =
        ((place->writes ? WRITES : READS) | (place->makes ? MAKES : 0) | (place->runs ? RUNS : 0)) &
        handled;
    scoped_fd int fd = open(place->path, O_PATH | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return place->may_lack && (errno == ENOENT || errno == EACCES || errno == ENOTDIR) ? 0
                                                                                           : -errno;
    if (!place->unasked && fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
        access &= OF_FILES;
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};
    return syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0 ? -errno
                                                                                           : 0;
}

static int allow_port(int rules, uint16_t port)
{
    struct {
        uint64_t allowed_access;
        uint64_t port;
    } rule = {CARREL_LANDLOCK_ACCESS_NET_CONNECT_TCP, port};

    return syscall(SYS_landlock_add_rule, rules, RULE_PORT, &rule, 0) < 0 ? -errno : 0;
}

int landlock_confine(const struct landlock_place *places, size_t count, const uint16_t *ports,
                     size_t port_count)
{
    struct carrel_landlock_ruleset attr = {.handled_access_fs = ACCESS_ALL};
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    int r = 0;

    if (abi < 0)
        return -ENOSYS;
    attr.handled_access_fs |= (abi >= 2 ? ACCESS_REFER : 0) | (abi >= 3 ? ACCESS_TRUNCATE : 0);
    attr.handled_access_net = port_count == LANDLOCK_ANY_PORT ? NET_BIND : NET_ALL;
    attr.scoped = CARREL_LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | CARREL_LANDLOCK_SCOPE_SIGNAL;
    size_t size = abi >= CARREL_LANDLOCK_ABI_SCOPES ? sizeof(attr) : abi >= 4 ? 16 : 8;
    scoped_fd int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    if (rules < 0)
        return -errno;
    for (size_t i = 0; r == 0 && i < count; i++)
        r = allow_place(rules, &places[i], attr.handled_access_fs);
    for (size_t i = 0; r == 0 && abi >= 4 && ports && i < port_count; i++)
        r = allow_port(rules, ports[i]);
    if (r < 0)
        return r;
    return syscall(SYS_landlock_restrict_self, rules, 0) < 0 ? -errno : 0;
}
