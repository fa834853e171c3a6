/* SPDX-License-Identifier: Apache-2.0 */
/* Reads off a line of error output what the sandbox did not allow: programs print the system's
 * words for an error, mostly with the path. A guess, and marked as one. The fix never has a word of
 * the line in it: a command cannot have its caller told to open a place of its choice. */
#include <stdio.h>
#include <string.h>

#include "policy/units.h"
#include "sandbox/denial/denied.h"
#include "sandbox/limits/limits.h"
#include "sandbox/view.h"

struct str {
    const char *p;
    size_t n;
};

/* What is looked for, and what is then made of it; the first that matches and has something to
 * tell. Without the first letter, which some programs print large and some small. */
struct sign {
    const char *text;
    bool (*tell)(const struct run_view *, struct str line, size_t at, struct carrel_denial *);
};

void denied_append(char *to, size_t size, const char *bytes, size_t n)
{
    size_t at = strlen(to);

    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        bool plain = c >= ' ' && c <= '~' && c != '\\';
        char escaped[8];
        int length = snprintf(escaped, sizeof(escaped),
                              plain       ? "%c"
                              : c == '\\' ? "\\\\"
                                          : "\\x%02x",
                              c);
        if (at + (size_t)length >= size)
            return;
        memcpy(to + at, escaped, (size_t)length + 1);
        at += (size_t)length;
    }
}

/* --- paths in a line --- */

static bool ends_path(char c, char quote)
{
    if (quote)
        return c == quote;
    return c == ' ' || c == ':' || c == ',' || c == ')' || c == '\'' || c == '"' || c == '`' ||
           (unsigned char)c == 0xe2; /* the first byte of a typographic quote */
}

static bool begins_path(struct str line, size_t i)
{
    return line.p[i] == '/' && i > 0 && /* at the beginning it is the program's own name */
           (strchr(" '\"`=(", line.p[i - 1]) || (unsigned char)line.p[i - 1] >= 0x80);
}

/* The last absolute path in line[from, to). */
static struct str find_path(struct str line, size_t from, size_t to)
{
    struct str found = {NULL, 0};

    for (size_t i = from; i < to; i++) {
        if (!begins_path(line, i))
            continue;
        char before = line.p[i - 1];
        char quote = before == '\'' || before == '"' ? before : 0;
        size_t n = 0;
        while (i + n < to && !ends_path(line.p[i + n], quote))
            n++;
        found = (struct str){line.p + i, n};
        i += n;
    }
    return found;
}

/* Most name the path before the error, Python and Node after it. */
static struct str path_of(struct str line, size_t at)
{
    struct str path = find_path(line, 0, at);

    return path.p ? path : find_path(line, at, line.n);
}

static bool is_below(struct str path, const char *top)
{
    size_t n = strlen(top);

    return path.p && path.n >= n && memcmp(path.p, top, n) == 0 &&
           (path.n == n || path.p[n] == '/');
}

/* --- what it means --- */

static void tell(struct carrel_denial *ret, const char *verb, struct str path, const char *fix)
{
    denied_append(ret->what, sizeof(ret->what), verb, strlen(verb));
    if (path.p) {
        denied_append(ret->what, sizeof(ret->what), " ", 1);
        denied_append(ret->what, sizeof(ret->what), path.p, path.n);
    }
    snprintf(ret->fix, sizeof(ret->fix), "%s", fix);
}

static const char *const system_places[] = {"/usr",   "/bin",    "/sbin", "/lib",  "/lib32",
                                            "/lib64", "/libx32", "/etc",  "/proc", "/dev"};

static bool in_system(const struct run_view *run, struct str path, struct carrel_denial *ret)
{
    for (size_t i = 0; i < sizeof(system_places) / sizeof(system_places[0]); i++) {
        if (!is_below(path, system_places[i]))
            continue;
        snprintf(ret->rule, sizeof(ret->rule), "read-only: %s", system_places[i]);
        tell(
            ret, "write", path,
            run->spec->workspace
                ? "write to the workspace, which is everything else below / (for example install "
                  "to /opt or /.local)"
                : "write to the current directory, which is at /work (--at), or make a tree of its "
                  "own with --workspace DIR");
        return true;
    }
    return false;
}

static const char *writable_instead(const struct run_view *run, const struct carrel_mount *mount)
{
    if (mount->ready)
        return "\"mode\": \"rw\" for that mount in the policy, where the store is to be written";
    if (!mount->layer)
        return "--rw instead of --ro for that mount (in a policy: \"writable\": true)";
    return run->spec->plan ? "do it in a run without a plan, of which it is no part"
                           : "--layer instead of --layer-ro for that mount";
}

static bool in_mount(const struct run_view *run, struct str path, struct carrel_denial *ret)
{
    for (size_t i = 0; i < run->spec->mount_count; i++) {
        const struct carrel_mount *mount = &run->spec->mounts[i];
        const char *target = mount->target ? mount->target : mount->source;
        if (mount->writable || !is_below(path, target))
            continue;
        denied_append(ret->rule, sizeof(ret->rule), "read-only: ", strlen("read-only: "));
        denied_append(ret->rule, sizeof(ret->rule), target, strlen(target));
        tell(ret, "write", path, writable_instead(run, mount));
        return true;
    }
    return false;
}

static bool tell_read_only(const struct run_view *run, struct str line, size_t at,
                           struct carrel_denial *ret)
{
    struct str path = path_of(line, at);

    if (path.p)
        return in_mount(run, path, ret) || in_system(run, path, ret);
    snprintf(ret->rule, sizeof(ret->rule), "read-only");
    tell(
        ret, "write to a read-only place", path,
        "write to the workspace (or /work), /tmp or /.cache; a mount is writable with --rw instead "
        "of --ro");
    return true;
}

/* Files that exist answer "Permission denied" to who would write them, but to a reader as well. */
static bool speaks_of_writing(struct str line)
{
    static const char *const words[] = {"creat", "writ", "remov", "mov", "touch", "renam", "delet"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (memmem(line.p, line.n, words[i], strlen(words[i])))
            return true;
    }
    return false;
}

static bool tell_no_permission(const struct run_view *run, struct str line, size_t at,
                               struct carrel_denial *ret)
{
    struct str nothing = {NULL, 0};

    if (memmem(line.p, line.n, "bind", 4) || memmem(line.p, line.n, "listen", 6)) {
        snprintf(ret->rule, sizeof(ret->rule), "no capabilities");
        tell(ret, "listen on a port below 1024", nothing, "listen on a port from 1024 on");
        return true;
    }
    struct str path = path_of(line, at);
    return path.p && speaks_of_writing(line) && !is_below(path, "/proc") &&
           !is_below(path, "/dev") && in_system(run, path, ret);
}

static uint64_t tmp_bytes(const struct run_view *run)
{
    for (uint32_t i = 0; i < run->setup->op_count; i++) {
        const struct op *op = &run->setup->ops[i];
        if (op->kind == OP_TMPFS && strcmp(op->target, "tmp") == 0)
            return op->bytes;
    }
    return run->spec->tmp_bytes ? run->spec->tmp_bytes : CARREL_DEFAULT_TMP_BYTES;
}

static void print_size(char *to, size_t size, const char *name, uint64_t bytes)
{
    char text[32];

    snprintf(to, size, "%s %s", name, units_text(UNITS_SIZE, bytes, text));
}

static void tell_disk(const struct run_view *run, struct str path, struct carrel_denial *ret)
{
    const struct carrel_limits *limits = &run->spec->limits;
    char text[LIMITS_IMAGE_TEXT];

    if (limits->disk_image) {
        snprintf(ret->rule, sizeof(ret->rule), "%s", limits_image_rule(limits, text));
        tell(ret, "write", path, limits_image_fix(limits, text));
        return;
    }
    print_size(ret->rule, sizeof(ret->rule), "disk", limits->disk_bytes);
    tell(ret, "write", path, "--disk with a larger size");
}

static bool tell_no_space(const struct run_view *run, struct str line, size_t at,
                          struct carrel_denial *ret)
{
    static const char *const ours[] = {"/tmp", "/.cache", "/dev/shm"};
    struct str path = path_of(line, at);
    bool is_ours = !path.p && !run->spec->limits.disk_image; /* without a path: most likely */

    for (size_t i = 0; path.p && i < sizeof(ours) / sizeof(ours[0]); i++)
        is_ours = is_ours || is_below(path, ours[i]);
    if (is_ours) {
        print_size(ret->rule, sizeof(ret->rule), "tmp size", tmp_bytes(run));
        tell(ret, "write", path,
             "--tmp-size SIZE for a larger /tmp, /.cache and /dev/shm (together not above "
             "--memory), "
             "or write to the workspace");
    } else if (run->spec->limits.disk_bytes) {
        tell_disk(run, path, ret);
    } else if (!run->spec->workspace && !is_below(path, run->spec->at ? run->spec->at : "/work")) {
        snprintf(ret->rule, sizeof(ret->rule), "size of the root in memory");
        tell(ret, "write", path, "write to the current directory, which is at /work (--at)");
    } else {
        return false; /* the host's own disk */
    }
    return true;
}

static bool tell_too_large(const struct run_view *run, struct str line, size_t at,
                           struct carrel_denial *ret)
{
    if (!run->spec->limits.disk_bytes)
        return false;
    tell_disk(run, path_of(line, at), ret);
    return true;
}

static bool tell_network(const struct run_view *run, struct str line, size_t at,
                         struct carrel_denial *ret)
{
    struct str nothing = {NULL, 0};

    (void)line;
    (void)at;
    if (run->net != CARREL_NET_NONE)
        return false; /* with names, carrel-egress tells of each */
    snprintf(ret->rule, sizeof(ret->rule), DENIED_BY_NETWORK);
    tell(ret, "use the network", nothing, DENIED_BY_NETWORK_FIX);
    return true;
}

/* Ports from 1024 on that rules name have sockets of Carrel's, which the names lead to. */
static bool tell_port(const struct run_view *run, struct str line, size_t at,
                      struct carrel_denial *ret)
{
    struct str nothing = {NULL, 0};
    char fix[128];
    const uint32_t first_free = 1024;
    uint32_t port = 0;

    (void)line;
    (void)at;
    for (uint32_t i = 0; i < run->setup->port_count && port < first_free; i++)
        port = run->setup->ports[i] & SETUP_UDP ? 0 : run->setup->ports[i];
    if (port < first_free)
        return false;
    snprintf(fix, sizeof(fix),
             "listen on another port: a rule allows hosts at port %u, where Carrel's own socket is",
             port);
    snprintf(ret->rule, sizeof(ret->rule), DENIED_BY_NAMES);
    tell(ret, "listen on a port that leads to names", nothing, fix);
    return true;
}

static bool tell_files(const struct run_view *run, struct str line, size_t at,
                       struct carrel_denial *ret)
{
    struct str nothing = {NULL, 0};

    (void)run;
    (void)line;
    (void)at;
    snprintf(ret->rule, sizeof(ret->rule), "open files");
    tell(ret, "open more files at a time", nothing,
         "raise it inside, in front of the command: sh -c 'ulimit -n $(ulimit -Hn) && exec \"$@\"' "
         "sh COMMAND");
    return true;
}

static bool tell_owner(const struct run_view *run, struct str line, size_t at,
                       struct carrel_denial *ret)
{
    struct str nothing = {NULL, 0};

    (void)run;
    (void)line;
    (void)at;
    snprintf(ret->rule, sizeof(ret->rule), "no capabilities");
    tell(ret, "change the owner of a file", nothing,
         "leave the owner as it is: tar --no-same-owner, cp --no-preserve=ownership, rsync --no-o "
         "--no-g");
    return true;
}

static bool tell_privileges(const struct run_view *run, struct str line, size_t at,
                            struct carrel_denial *ret)
{
    struct str nothing = {NULL, 0};

    (void)run;
    (void)line;
    (void)at;
    snprintf(ret->rule, sizeof(ret->rule), "no new privileges");
    tell(ret, "become another user", nothing,
         "run it without sudo; a program that only asks for uid 0 is content with --user root");
    return true;
}

static const struct sign signs[] = {
    {"ead-only file system", tell_read_only},
    {"o space left on device", tell_no_space},
    {"isk quota exceeded", tell_too_large},
    {"ile too large", tell_too_large},
    {"ile size limit exceeded", tell_too_large},
    {"etwork is unreachable", tell_network},
    {"ENETUNREACH", tell_network},
    {"emporary failure in name resolution", tell_network},
    {"ould not resolve host", tell_network},
    {"EAI_AGAIN", tell_network},
    {"ddress already in use", tell_port},
    {"EADDRINUSE", tell_port},
    {"oo many open files", tell_files},
    {"hanging ownership of", tell_owner},
    {"annot change ownership to", tell_owner},
    {"no new privileges", tell_privileges},
    {"ffective uid is not 0", tell_privileges},
    {"must be setuid root", tell_privileges},
    {"ermission denied", tell_no_permission},
};

/* A line is gone through once: four bytes at a time are looked up in a set of 256 bits, where the
 * beginnings of the signs are, and only what is found there is compared. */
enum {
    BEGINNING = 4,
    SET_WORDS = 4
};

static unsigned slot(uint32_t beginning)
{
    return beginning * 2654435761U >> 24;
}

static void fill_set(uint64_t set[SET_WORDS])
{
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
        uint32_t word = 0;
        for (size_t n = 0; n < BEGINNING; n++)
            word = word << 8 | (uint8_t)signs[i].text[n];
        set[slot(word) / 64] |= 1ULL << slot(word) % 64;
    }
}

/* What the sign that begins at `at` tells, if one does. */
static bool tell_sign(const struct run_view *run, struct str line, size_t at,
                      struct carrel_denial *ret)
{
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
        size_t n = strlen(signs[i].text);
        if (line.n - at < n || memcmp(line.p + at, signs[i].text, n) != 0)
            continue;
        memset(ret, 0, sizeof(*ret));
        ret->source = CARREL_SOURCE_INFERRED;
        if (signs[i].tell(run, line, at, ret))
            return true;
    }
    return false;
}

bool denied_line(const struct run_view *run, const char *line, size_t n, struct carrel_denial *ret)
{
    uint64_t set[SET_WORDS] = {0};
    uint32_t word = 0;

    fill_set(set);
    for (size_t i = 0; i < n; i++) {
        word = word << 8 | (uint8_t)line[i];
        if (i + 1 < BEGINNING || !(set[slot(word) / 64] >> slot(word) % 64 & 1))
            continue;
        if (tell_sign(run, (struct str){line, n}, i + 1 - BEGINNING, ret))
            return true;
    }
    return false;
}
