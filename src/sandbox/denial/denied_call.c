/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that the filter asks about: what each was, which rule it met, and what to do instead.
 * Numbers and flags are the kernel's own copy; an address is read from the caller's memory, may
 * have changed since, and is only told of, never decided by. */
#include <arpa/inet.h>
#include <asm/unistd.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "policy/network.h"
#include "sandbox/denial/denied.h"

enum {
    LONGEST_TOLD = 90 /* a name that fits into the fix, twice */
};

#define DIR_LEVEL "--level dir, which isolates nothing"

#define NAMESPACES                                                                                 \
    "namespaces",                                                                                  \
        "leave out the program's own sandbox (bwrap, unshare, a browser's --no-sandbox): "         \
        "it runs in one already"
#define MOUNTS                                                                                     \
    "mounts", "show a directory of the host with --ro DIR or --rw DIR; inside use a copy or a "    \
              "symbolic link"
#define ROOTS    "change of root", "carrel run --workspace DIR makes DIR the root"
#define OTHERS   "other processes", "to debug or trace, run it with " DIR_LEVEL
#define KEYRINGS "keyrings", "keep the secret in a file or pass it with --env NAME=VALUE"
#define CLOCKS                                                                                     \
    "the clock", "it is the host's: pass a time with --env SOURCE_DATE_EPOCH=SECONDS, or use the " \
                 "faketime program"
#define HANDLES "file handles", "open the file by its path"
#define WATCHES "fanotify", "watch with inotify, which works inside"
#define MEMORY                                                                                     \
    "memory placement",                                                                            \
        "set it for carrel itself, which hands it on: numactl OPTIONS carrel run ..."
#define MACHINE  "the machine", "do it on the host, as root, outside of Carrel"
#define OBSOLETE "old calls", "if it cannot do without: " DIR_LEVEL
#define HOSTNAME                                                                                   \
    "the host name", "it stays \"carrel\"; for programs that read the variable: --env "            \
                     "HOSTNAME=NAME"

struct text {
    uint32_t number;
    const char *what;
    const char *rule; /* after "filter: " */
    const char *fix;
};

/* Calls that are refused whatever their arguments, and those with one text for all of them. */
static const struct text texts[] = {
    {__NR_unshare, "unshare", NAMESPACES},
    {__NR_setns, "setns", NAMESPACES},
    {__NR_clone, "clone with new namespaces", NAMESPACES},
    {__NR_mount, "mount", MOUNTS},
    {__NR_umount2, "umount", MOUNTS},
    {__NR_pivot_root, "pivot_root", ROOTS},
    {__NR_chroot, "chroot", ROOTS},
    {__NR_bpf, "bpf", "kernel programs", "do it on the host, as root, outside of Carrel"},
    {__NR_perf_event_open, "perf_event_open", "performance counters",
     "measure with the time command, or run it with " DIR_LEVEL},
    {__NR_userfaultfd, "userfaultfd", "page faults", "run it with " DIR_LEVEL},
    {__NR_keyctl, "keyctl", KEYRINGS},
    {__NR_add_key, "add_key", KEYRINGS},
    {__NR_request_key, "request_key", KEYRINGS},
    {__NR_process_madvise, "process_madvise", OTHERS},
    {__NR_kcmp, "kcmp", OTHERS},
    {__NR_pidfd_getfd, "pidfd_getfd", OTHERS},
    {__NR_kexec_load, "kexec_load", MACHINE},
    {__NR_kexec_file_load, "kexec_file_load", MACHINE},
    {__NR_init_module, "init_module", MACHINE},
    {__NR_finit_module, "finit_module", MACHINE},
    {__NR_delete_module, "delete_module", MACHINE},
    {__NR_reboot, "reboot", MACHINE},
    {__NR_swapon, "swapon", MACHINE},
    {__NR_swapoff, "swapoff", MACHINE},
    {__NR_acct, "acct", MACHINE},
    {__NR_quotactl, "quotactl", MACHINE},
    {__NR_quotactl_fd, "quotactl_fd", MACHINE},
    {__NR_syslog, "syslog", "the kernel's log", "run dmesg on the host"},
    {__NR_settimeofday, "settimeofday", CLOCKS},
    {__NR_clock_settime, "clock_settime", CLOCKS},
    {__NR_adjtimex, "adjtimex", CLOCKS},
    {__NR_clock_adjtime, "clock_adjtime", CLOCKS},
    {__NR_lookup_dcookie, "lookup_dcookie", OBSOLETE},
    {__NR_nfsservctl, "nfsservctl", OBSOLETE},
    {__NR_vhangup, "vhangup", OBSOLETE},
    {__NR_open_by_handle_at, "open_by_handle_at", HANDLES},
    {__NR_name_to_handle_at, "name_to_handle_at", HANDLES},
    {__NR_fanotify_init, "fanotify_init", WATCHES},
    {__NR_fanotify_mark, "fanotify_mark", WATCHES},
    {__NR_sethostname, "sethostname", HOSTNAME},
    {__NR_setdomainname, "setdomainname", HOSTNAME},
    {__NR_move_pages, "move_pages", MEMORY},
    {__NR_mbind, "mbind", MEMORY},
    {__NR_set_mempolicy_home_node, "set_mempolicy_home_node", MEMORY},
    {__NR_migrate_pages, "migrate_pages", MEMORY},
    {__NR_io_uring_setup, "io_uring_setup", "io_uring",
     "use epoll or threads, as most programs then do by themselves (--env UV_USE_IO_URING=0); or "
     "run it with " DIR_LEVEL},
    {__NR_prctl, "prctl PR_SET_MM", "process memory map",
     "name the process with PR_SET_NAME, or run it with " DIR_LEVEL},
    {__NR_socketpair, "socketpair", "socket families", "use a pair of AF_UNIX"},
#ifdef __x86_64__
    {__NR_iopl, "iopl", MACHINE},
    {__NR_ioperm, "ioperm", MACHINE},
    {__NR_uselib, "uselib", OBSOLETE},
    {__NR__sysctl, "sysctl", OBSOLETE},
    {__NR_modify_ldt, "modify_ldt", OBSOLETE},
#endif
};

static const char fix_mode[] = "only directories may have the set-id bits, and files go without: "
                               "leave them out, for example chmod 755, chmod ug-s";
static const char fix_device[] =
    "use those in /dev (null, zero, full, random, urandom, tty), a named pipe or a plain file";

static void tell(struct carrel_denial *ret, const char *rule, const char *fix)
{
    snprintf(ret->rule, sizeof(ret->rule), "%s", rule);
    snprintf(ret->fix, sizeof(ret->fix), "%s", fix);
}

static void tell_filter(struct carrel_denial *ret, const char *rule, const char *fix)
{
    snprintf(ret->rule, sizeof(ret->rule), "filter: %s", rule);
    snprintf(ret->fix, sizeof(ret->fix), "%s", fix);
}

/* --- addresses --- */

struct address_text {
    char text[64]; /* "203.0.113.5:443" */
    uint16_t port;
};

static void read_ipv4(const uint8_t *a, struct address_text *ret)
{
    snprintf(ret->text, sizeof(ret->text), "%u.%u.%u.%u:%u", a[0], a[1], a[2], a[3], ret->port);
}

static void read_ipv6(const uint8_t *a, struct address_text *ret)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    char text[INET6_ADDRSTRLEN] = "";

    if (memcmp(a, mapped, sizeof(mapped)) == 0) {
        read_ipv4(a + 12, ret);
        return;
    }
    (void)inet_ntop(AF_INET6, a, text, sizeof(text));
    snprintf(ret->text, sizeof(ret->text), "[%s]:%u", text, ret->port);
}

static struct address_text read_place(const void *address, size_t n)
{
    const uint8_t *bytes = address;
    struct address_text place = {.text = "(an unreadable address)"};
    uint16_t family;

    if (n < sizeof(struct sockaddr_in))
        return place;
    memcpy(&family, bytes, sizeof(family));
    place.port = (uint16_t)(bytes[2] << 8 | bytes[3]);
    if (family == AF_INET)
        read_ipv4(bytes + offsetof(struct sockaddr_in, sin_addr), &place);
    else if (family == AF_INET6 && n >= sizeof(struct sockaddr_in6))
        read_ipv6(bytes + offsetof(struct sockaddr_in6, sin6_addr), &place);
    return place;
}

void denied_refusal(enum carrel_net net, struct carrel_denial *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->source = CARREL_SOURCE_KERNEL;
    snprintf(ret->what, sizeof(ret->what), "use the network");
    if (net == CARREL_NET_ALLOW) {
        snprintf(ret->what, sizeof(ret->what), "connect to an address");
        tell(ret, DENIED_BY_NAMES, DENIED_BY_NAMES_FIX);
    } else {
        tell(ret, DENIED_BY_NETWORK, DENIED_BY_NETWORK_FIX);
    }
}

/* The host goes into a line that somebody may paste: only what is a name. */
static void tell_allow(const char *host, uint16_t port, struct carrel_denial *ret)
{
    char name[NETWORK_NAME];
    char at[8] = "";

    if (!network_name(host, strlen(host), name) || strlen(name) > LONGEST_TOLD) {
        snprintf(ret->fix, sizeof(ret->fix), "--allow HOST for a name that may be reached");
        return;
    }
    if (port != 0 && port != 80 && port != 443)
        snprintf(at, sizeof(at), ":%u", port);
    snprintf(ret->fix, sizeof(ret->fix),
             "--allow %s%s (in a policy: \"network\": {\"allow\": [\"%s%s\"]})", name, at, name,
             at);
}

#define LOOK_THERE "a rule allows the name: look whether its server runs and answers"

void denied_name(const char *host, unsigned port, const char *rule, const char *why,
                 const char *fix, struct carrel_denial *ret)
{
    char text[sizeof(ret->what)];

    memset(ret, 0, sizeof(*ret));
    ret->source = CARREL_SOURCE_KERNEL;
    ret->count = 1;
    if (port == 0)
        snprintf(text, sizeof(text), "look up %.160s", host);
    else
        snprintf(text, sizeof(text), "connect %.160s:%u", host, port);
    denied_append(ret->what, sizeof(ret->what), text, strlen(text));
    snprintf(text, sizeof(text), "%s: %s%s%s", DENIED_BY_NAMES, why, *rule ? ", rule " : "", rule);
    denied_append(ret->rule, sizeof(ret->rule), text, strlen(text));
    if (rule[0] == '!')
        snprintf(ret->fix, sizeof(ret->fix),
                 "take out what denies it: --deny, or \"deny\" of \"network\" in the policy");
    else if (*rule) /* it is allowed: something else is the matter */
        denied_append(ret->fix, sizeof(ret->fix), *fix ? fix : LOOK_THERE,
                      strlen(*fix ? fix : LOOK_THERE));
    else
        tell_allow(host, (uint16_t)port, ret);
}

void denied_connection(enum outbound why, const void *address, size_t n, struct carrel_denial *ret)
{
    struct address_text place = read_place(address, n);

    memset(ret, 0, sizeof(*ret));
    ret->source = CARREL_SOURCE_KERNEL;
    snprintf(ret->what, sizeof(ret->what), "connect %s", place.text);
    if (why == OUTBOUND_METADATA)
        tell(ret, "metadata address",
             "it gives out the host's own credentials: fetch what the command needs outside, and "
             "pass it with --env NAME=VALUE or in a file");
    else
        tell(ret, "Carrel's own port",
             "a sandbox is no client of Carrel's: send the request from outside; another program "
             "of the host is reached on another port");
}

/* --- sockets, modes, commands --- */

static const struct {
    uint32_t family;
    const char *name;
} families[] = {
    {AF_UNIX, "AF_UNIX"},        {AF_PACKET, "AF_PACKET"}, {AF_BLUETOOTH, "AF_BLUETOOTH"},
    {AF_ALG, "AF_ALG"},          {AF_VSOCK, "AF_VSOCK"},   {AF_KEY, "AF_KEY"},
    {AF_CAN, "AF_CAN"},          {AF_TIPC, "AF_TIPC"},     {AF_RDS, "AF_RDS"},
    {44 /* AF_XDP */, "AF_XDP"},
};

static void tell_family(uint32_t family, struct carrel_denial *ret)
{
    const char *fix = "run it with " DIR_LEVEL;

    snprintf(ret->what, sizeof(ret->what), "socket of family %u", family);
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        if (families[i].family == family)
            snprintf(ret->what, sizeof(ret->what), "socket %s", families[i].name);
    }
    if (family == AF_UNIX)
        fix = "--net none, where Unix sockets of its own are possible; or Linux 6.12";
    if (family == AF_ALG)
        fix = "use a library for it (OpenSSL, hashlib), or run it with " DIR_LEVEL;
    tell_filter(ret, "socket families", fix);
}

static void tell_socket(const struct seccomp_data *call, struct carrel_denial *ret)
{
    uint32_t family = (uint32_t)call->args[0];

    if (family == AF_INET || family == AF_INET6) {
        snprintf(ret->what, sizeof(ret->what), "raw socket (%s)",
                 family == AF_INET ? "IPv4" : "IPv6");
        tell(ret, "no capabilities",
             "test the way with a TCP connection instead of ping, and with --net host: curl, or "
             "bash -c 'echo >/dev/tcp/HOST/PORT'");
    } else if (family == AF_NETLINK) {
        snprintf(ret->what, sizeof(ret->what), "socket AF_NETLINK, protocol %u",
                 (uint32_t)call->args[2]);
        tell_filter(
            ret, "netlink other than routes",
            "read /proc/net (sockets: /proc/net/tcp, udp, unix), or run it with " DIR_LEVEL);
    } else {
        tell_family(family, ret);
    }
}

static void tell_mode(const char *name, uint32_t mode, struct carrel_denial *ret)
{
    uint32_t type = mode & S_IFMT;

    if (type == S_IFCHR || type == S_IFBLK) {
        snprintf(ret->what, sizeof(ret->what), "%s of a %s device", name,
                 type == S_IFCHR ? "character" : "block");
        tell_filter(ret, "devices", fix_device);
    } else {
        snprintf(ret->what, sizeof(ret->what), "%s with mode %04o", name, mode & 07777);
        tell_filter(ret, "set-id bits", fix_mode);
    }
}

static void tell_ioctl(uint32_t command, struct carrel_denial *ret)
{
    bool terminal = command == TIOCSTI || command == 0x541c || command == TIOCSETD;
    const char *name = command == TIOCSTI    ? "TIOCSTI"
                       : command == 0x541c   ? "TIOCLINUX"
                       : command == TIOCSETD ? "TIOCSETD"
                                             : "for verity or encryption";

    snprintf(ret->what, sizeof(ret->what), "ioctl %s", name);
    if (terminal)
        tell_filter(ret, "typing into terminals",
                    "write to the command's standard input (a pipe, or the terminal of --tty)");
    else
        tell_filter(ret, "file system features", "do it on the host, outside of Carrel");
}

static void tell_personality(uint32_t persona, struct carrel_denial *ret)
{
    snprintf(ret->what, sizeof(ret->what), "personality 0x%x", persona);
    tell_filter(ret, "personality",
                "set it for carrel itself, which hands it on: setarch OPTIONS carrel run ...");
}

static void tell_by_table(uint32_t number, struct carrel_denial *ret)
{
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i].number == number) {
            snprintf(ret->what, sizeof(ret->what), "%s", texts[i].what);
            tell_filter(ret, texts[i].rule, texts[i].fix);
            return;
        }
    }
    snprintf(ret->what, sizeof(ret->what), "system call %u", number);
    tell_filter(ret, "system calls", "if it cannot do without: " DIR_LEVEL);
}

/* --- one call --- */

/* Without a capability the kernel makes none, but for the one that overlay file systems take for a
 * deleted name. */
static int answer_device(uint32_t mode, uint32_t device)
{
    bool is_character = (mode & S_IFMT) == S_IFCHR;
    bool is_device = is_character || (mode & S_IFMT) == S_IFBLK;

    return is_device && !(is_character && device == 0) ? 0 : EPERM;
}

int denied_call_answer(const struct seccomp_data *call)
{
    uint32_t family = (uint32_t)call->args[0];

    switch (call->nr) {
#ifdef __NR_mknod
    case __NR_mknod:
        return answer_device((uint32_t)call->args[1], (uint32_t)call->args[2]);
#endif
    case __NR_mknodat:
        return answer_device((uint32_t)call->args[2], (uint32_t)call->args[3]);
    case __NR_socket:
        if (family == AF_INET || family == AF_INET6)
            return 0;
        return family == AF_NETLINK ? EPROTONOSUPPORT : EAFNOSUPPORT;
    case __NR_socketpair:
        return EAFNOSUPPORT;
    case __NR_io_uring_setup:
        return ENOSYS;
    default:
        return EPERM;
    }
}

void denied_bits(uint32_t mode, struct carrel_denial *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->source = CARREL_SOURCE_KERNEL;
    tell_mode("chmod", mode & 07777, ret);
}

void denied_call(const struct seccomp_data *call, struct carrel_denial *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->source = CARREL_SOURCE_KERNEL;
    switch (call->nr) {
    case __NR_socket:
        tell_socket(call, ret);
        break;
    case __NR_ioctl:
        tell_ioctl((uint32_t)call->args[1], ret);
        break;
    case __NR_personality:
        tell_personality((uint32_t)call->args[0], ret);
        break;
    case __NR_openat:
        tell_mode("open", (uint32_t)call->args[3] & 07777, ret);
        break;
    case __NR_fchmod:
        tell_mode("chmod", (uint32_t)call->args[1] & 07777, ret);
        break;
    case __NR_fchmodat:
    case 452: /* fchmodat2 */
        tell_mode("chmod", (uint32_t)call->args[2] & 07777, ret);
        break;
    case __NR_mknodat:
        tell_mode("mknod", (uint32_t)call->args[2], ret);
        break;
#ifdef __NR_open
    case __NR_open:
        tell_mode("open", (uint32_t)call->args[2] & 07777, ret);
        break;
    case __NR_creat:
        tell_mode("open", (uint32_t)call->args[1] & 07777, ret);
        break;
    case __NR_chmod:
        tell_mode("chmod", (uint32_t)call->args[1] & 07777, ret);
        break;
    case __NR_mknod:
        tell_mode("mknod", (uint32_t)call->args[1], ret);
        break;
#endif
    default:
        tell_by_table((uint32_t)call->nr, ret);
    }
}
