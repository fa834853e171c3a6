/* SPDX-License-Identifier: Apache-2.0
 *
 * Attempts to make a set-id file, which would be one of the workspace's owner's on the host: by
 * every call that takes a mode, and by having what a call is of swapped for a file while it is
 * looked at. Directories may have the bits, so that all of these calls are answered by somebody.
 */
#include "probe.h"

#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>

#define BITS          06755
#define ROUNDS        4000
#define SYS_FCHMODAT2 452

/* --- one way after the other --- */

static void make_file(const char *name)
{
    int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);

    if (fd < 0)
        unclear(name);
    close(fd);
}

static void must_be_plain(const char *name, const char *way)
{
    struct stat st;

    if (lstat(name, &st) == 0 && !S_ISDIR(st.st_mode) && (st.st_mode & 06000))
        escaped("%s: %s has mode %o", way, name, st.st_mode & 07777);
    else
        printf("plain: %s after %s\n", name, way);
}

static void change_modes(void)
{
    char path[64];
    int fd;

    make_file("file");
    fd = open("file", O_RDONLY | O_CLOEXEC);
    (void)chmod("file", BITS);
    must_be_plain("file", "chmod");
    (void)fchmod(fd, BITS);
    must_be_plain("file", "fchmod");
    (void)syscall(SYS_fchmodat, AT_FDCWD, "file", BITS);
    must_be_plain("file", "fchmodat");
    (void)syscall(SYS_FCHMODAT2, AT_FDCWD, "file", BITS, AT_SYMLINK_NOFOLLOW);
    must_be_plain("file", "fchmodat2");
    (void)syscall(SYS_FCHMODAT2, fd, "", BITS, AT_EMPTY_PATH);
    must_be_plain("file", "fchmodat2 of a descriptor");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    (void)chmod(path, BITS);
    must_be_plain("file", "chmod of a descriptor's name");
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
    (void)chmod(path, BITS);
    must_be_plain("file", "chmod of a descriptor's name by number");
    (void)chmod("file", (mode_t)(02000 | 0777));
    must_be_plain("file", "chmod with setgid alone");
    close(fd);
}

static void make_new(void)
{
    struct {
        uint64_t flags;
        uint64_t mode;
        uint64_t resolve;
    } how = {O_CREAT | O_WRONLY, BITS, 0};

    (void)open("opened", O_CREAT | O_WRONLY | O_CLOEXEC, BITS);
    must_be_plain("opened", "open");
    (void)creat("created", BITS);
    must_be_plain("created", "creat");
    (void)syscall(SYS_openat2, AT_FDCWD, "openat2", &how, sizeof(how));
    must_be_plain("openat2", "openat2");
    (void)mknod("node", S_IFREG | BITS, 0);
    must_be_plain("node", "mknod");
    (void)mknod("pipe", S_IFIFO | BITS, 0);
    must_be_plain("pipe", "mknod of a pipe");
    int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, BITS);
    if (fd < 0)
        fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0755);
    if (fd >= 0) {
        char path[64];
        (void)fchmod(fd, BITS);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        (void)linkat(AT_FDCWD, path, AT_FDCWD, "unnamed", AT_SYMLINK_FOLLOW);
        must_be_plain("unnamed", "O_TMPFILE and linkat");
    }
}

static void make_by_others(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    unsigned capability[5] = {0x02000001, ~0U, 0, 0xff, 0};

    /* user rwx, group rwx, other rwx, and bits where the set-id ones are in a mode */
    struct {
        uint32_t version;

        struct {
            uint16_t tag;
            uint16_t perm;
            uint32_t id;
        } entry[3];
    } acl = {2, {{1, 06007, ~0U}, {4, 06007, ~0U}, {0x20, 06007, ~0U}}};

    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)fchmod(fd, BITS);
    (void)bind(fd, (struct sockaddr *)&address, sizeof(address));
    must_be_plain("socket", "fchmod and bind");
    failed("security.capability",
           setxattr("file", "security.capability", capability, sizeof(capability), 0));
    (void)setxattr("file", "system.posix_acl_access", &acl, sizeof(acl), 0);
    must_be_plain("file", "an access list");
    if (mkdir("shared", 0777) < 0 || chmod("shared", 02777) < 0)
        unclear("a directory with the bit");
    make_file("shared/file");
    must_be_plain("shared/file", "a directory with the bit");
    (void)rename("shared", "file");
    (void)link("shared", "linked");
    must_be_plain("linked", "link of a directory");
}

/* --- races --- */

static int is_over;
static int slot; /* a descriptor that is of a file and of a directory by turns */
static int file_fd;
static int dir_fd;
static char path_text[16] = "race-dir";

static void swap_names(int turn)
{
    (void)turn;
    (void)syscall(SYS_renameat2, AT_FDCWD, "race-dir", AT_FDCWD, "race-file", 2 /* EXCHANGE */);
}

static void swap_links(int turn)
{
    (void)symlink(turn ? "race-file" : "race-dir", "race-new");
    (void)rename("race-new", "race-link");
}

static void swap_descriptors(int turn)
{
    (void)dup3(turn ? file_fd : dir_fd, slot, O_CLOEXEC);
}

static void swap_text(int turn)
{
    memcpy(path_text, turn ? "race-file" : "race-dir\0", 9);
}

static void *keep_swapping(void *swap)
{
    void (*one)(int) = *(void (**)(int))swap;

    for (int turn = 0; !__atomic_load_n(&is_over, __ATOMIC_RELAXED); turn = !turn)
        one(turn);
    return NULL;
}

static void change_name(void)
{
    (void)chmod("race-dir", 02777);
}

static void change_link(void)
{
    (void)chmod("race-link", 02777);
}

static void change_slot(void)
{
    (void)fchmod(slot, 02777);
}

static void change_slot_by_name(void)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", slot);
    (void)chmod(path, 02777);
}

static void change_text(void)
{
    (void)chmod(path_text, 02777);
}

static void race(const char *what, void (*swap)(int), void (*change)(void))
{
    struct stat st;
    pthread_t thread;

    is_over = 0;
    if (pthread_create(&thread, NULL, keep_swapping, &swap) != 0)
        unclear("a thread");
    for (int i = 0; i < ROUNDS; i++) {
        change();
        if (fstat(file_fd, &st) < 0 || (st.st_mode & 06000)) {
            escaped("%s: the file has mode %o in round %d", what, st.st_mode & 07777, i);
            break;
        }
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    (void)pthread_join(thread, NULL);
    if (fstat(file_fd, &st) == 0 && (st.st_mode & 06000))
        escaped("%s: the file has mode %o", what, st.st_mode & 07777);
    (void)fchmod(file_fd, 0755);
    printf("raced: %s\n", what);
}

static void races(char **args)
{
    (void)args;
    make_file("race-file");
    if (mkdir("race-dir", 0755) < 0 || symlink("race-dir", "race-link") < 0)
        unclear("a directory");
    file_fd = open("race-file", O_RDONLY | O_CLOEXEC);
    dir_fd = open("race-dir", O_RDONLY | O_CLOEXEC);
    slot = dup(dir_fd);
    race("names", swap_names, change_name);
    race("links", swap_links, change_link);
    race("descriptors", swap_descriptors, change_slot);
    race("descriptors by name", swap_descriptors, change_slot_by_name);
    race("the path in memory", swap_text, change_text);
}

static void ways(char **args)
{
    (void)args;
    change_modes();
    make_new();
    make_by_others();
}

static const struct attack attacks[] = {
    {"ways", ways},
    {"races", races},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
