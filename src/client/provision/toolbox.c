/* SPDX-License-Identifier: Apache-2.0 */
#include "client/provision/toolbox.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "client/provision/packages.h"
#include "client/provision/unpack.h"

enum {
    MOST_FILES = 2, /* of a tool */
    PATH_ROOM = 320,
    BLOCK = 1 << 16,
    SHA256_HEX = 2 * 32 + 1,
};

const char *const tool_names[TOOL_COUNT_] = {
    [TOOL_UV] = "uv", [TOOL_PIP] = "pip", [TOOL_BUN] = "bun"};

/* The first of a tool's files is the one that is checked; no files: its archive is kept. */
static const char *const files[TOOL_COUNT_][MOST_FILES] = {
    [TOOL_UV] = {"libexec/uv", "libexec/uvx"},
    [TOOL_BUN] = {"bin/bun"},
};

/* --- small things --- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static int remove_tree(const struct toolbox *box, const char *name)
{
    char path[64];

    /* By the descriptor: whoever owns the state directory cannot put another one in its place. */
    snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", box->top, name);
    /* One thread here; NOLINTNEXTLINE(concurrency-mt-unsafe) */
    return nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT ? -1 : 0;
}

static bool hash_file(int dir, const char *path, char hex[SHA256_HEX])
{
    static unsigned char bytes[BLOCK];
    unsigned char hash[EVP_MAX_MD_SIZE];
    scoped_fd int fd = openat(dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    EVP_MD_CTX *digest = fd < 0 ? NULL : EVP_MD_CTX_new();
    bool good = digest && EVP_DigestInit_ex(digest, EVP_sha256(), NULL) == 1;
    unsigned n = 0;
    ssize_t got;

    while (good && (got = read(fd, bytes, sizeof(bytes))) != 0)
        good = got > 0 && EVP_DigestUpdate(digest, bytes, (size_t)got) == 1;
    good = good && EVP_DigestFinal_ex(digest, hash, &n) == 1 && n == 32;
    EVP_MD_CTX_free(digest);
    if (good)
        bytes_to_hex(hash, n, hex);
    return good;
}

/* Where the file of a tool is that is checked; "" : the record is of no use. */
static const char *main_file(enum tool tool, const json_t *entry, char path[PATH_ROOM])
{
    const char *archive = json_string_value(json_object_get(entry, "archive"));

    if (files[tool][0])
        snprintf(path, PATH_ROOM, "%s", files[tool][0]);
    else if (archive && !strchr(archive, '/') && strlen(archive) < 256)
        snprintf(path, PATH_ROOM, "wheels/%s", archive);
    else
        path[0] = '\0';
    return path;
}

/* The first one was looked at. */
static bool has_others(const struct toolbox *box, enum tool tool)
{
    struct stat st;

    for (size_t i = 1; i < MOST_FILES && files[tool][i]; i++) {
        if (fstatat(box->old, files[tool][i], &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode) || (st.st_mode & 0111) != 0111 || st.st_size == 0)
            return false;
    }
    return true;
}

const json_t *toolbox_find(const struct toolbox *box, enum tool tool)
{
    const json_t *entry = json_object_get(box->list, tool_names[tool]);
    const char *hash = json_string_value(json_object_get(entry, "sha256"));
    const char *version = json_string_value(json_object_get(entry, "version"));
    char path[PATH_ROOM];
    char hex[SHA256_HEX];

    if (!hash || !version || !*main_file(tool, entry, path) || !hash_file(box->old, path, hex))
        return NULL;
    return strcmp(hash, hex) == 0 && has_others(box, tool) ? entry : NULL;
}

static bool is_link_to(int dir, const char *path, const char *target)
{
    char text[64];
    ssize_t n = readlinkat(dir, path, text, sizeof(text));

    return n == (ssize_t)strlen(target) && memcmp(text, target, (size_t)n) == 0;
}

static bool has_text(int dir, const char *path, const char *text)
{
    static char bytes[BLOCK];
    struct stat st;
    scoped_fd int fd = openat(dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));

    return n == (ssize_t)strlen(text) && memcmp(bytes, text, (size_t)n) == 0 &&
           fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0755;
}

bool toolbox_names_are_right(const struct toolbox *box, enum tool tool)
{
    if (tool == TOOL_UV)
        return has_text(box->old, "bin/uv", toolbox_uv) &&
               is_link_to(box->old, "bin/uvx", "../libexec/uvx");
    return tool != TOOL_BUN || is_link_to(box->old, "bin/bunx", "bun");
}

/* --- the place --- */

static void make_parents(const char *path)
{
    char part[WHERE_PATH];

    for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(at - path), path);
        ignore(mkdir(part, 0755) == 0); /* what is missing is told by the next step */
    }
}

static int open_place(struct toolbox *box, const char *state, bool make, struct err *err)
{
    struct stat st;

    if (make) {
        make_parents(state);
        ignore(mkdir(state, geteuid() == 0 ? 0711 : 0700) == 0); /* likewise */
    }
    scoped_fd int dir = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 && (errno == ENOENT || errno == ENOTDIR))
        return err_set(err, ERR_NOT_FOUND, 0,
                       "there is no state directory '%.200s'; check --state, or start the daemon "
                       "there once: carrel serve --state DIR",
                       state);
    if (dir < 0)
        return err_set(err, ERR_IO, errno, "open the state directory '%.200s'", state);
    if (mkdirat(dir, ".carrel", 0700) < 0 && errno != EEXIST)
        return err_set(err, errno == EACCES || errno == EPERM ? ERR_DENIED : ERR_IO, errno,
                       "make '%.200s/.carrel' (who runs the daemon may)", state);
    box->top = openat(dir, ".carrel", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (box->top < 0)
        return err_set(err, ERR_IO, errno, "open '%.200s/.carrel' (who runs the daemon may)",
                       state);
    snprintf(box->path, sizeof(box->path), "%s/.carrel", state);
    if (fstat(box->top, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at '%.200s'", box->path);
    if (st.st_uid != geteuid() || (st.st_mode & 022))
        return err_set(err, ERR_DENIED, 0,
                       "'%.200s' belongs to another user, or others can write it; run this as who "
                       "runs the daemon",
                       box->path);
    return 0;
}

static int take_lock(struct toolbox *box, struct err *err)
{
    box->lock = openat(box->top, "tools.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (box->lock < 0)
        return err_set(err, ERR_IO, errno, "open '%.200s/tools.lock'", box->path);
    if (flock(box->lock, LOCK_EX | LOCK_NB) == 0)
        return 0;
    return errno == EWOULDBLOCK
               ? err_set(err, ERR_CONFLICT, 0,
                         "another 'carrel env setup' is at work in '%.200s'; wait for it",
                         box->path)
               : err_set(err, ERR_IO, errno, "lock '%.200s'", box->path);
}

int toolbox_open(struct toolbox *box, const char *state, bool make, struct err *err)
{
    *box = (struct toolbox){.top = -1, .lock = -1, .old = -1, .fresh = -1};
    if (open_place(box, state, make, err) < 0 || take_lock(box, err) < 0)
        return -1;
    /* Of one that was killed. */
    if (remove_tree(box, "tools.new") < 0)
        return err_set(err, ERR_IO, errno, "remove '%.200s/tools.new'", box->path);
    box->old = openat(box->top, "tools", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (box->old < 0)
        return errno == ENOENT ? 0 : err_set(err, ERR_IO, errno, "open '%.200s/tools'", box->path);
    scoped_fd int fd = openat(box->old, "tools.json", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    box->list = fd < 0 ? NULL : json_loadfd(fd, 0, NULL);
    return 0;
}

void toolbox_close(struct toolbox *box)
{
    if (box->fresh >= 0)
        ignore(remove_tree(box, "tools.new") == 0); /* else the next one does */
    scope_close(&box->fresh);
    scope_close(&box->old);
    scope_close(&box->lock);
    scope_close(&box->top);
    json_decref(box->list);
    json_decref(box->fresh_list);
    box->list = box->fresh_list = NULL;
}

/* --- the next one --- */

static const char *const dirs[] = {"bin", "libexec", "wheels"};

int toolbox_begin(struct toolbox *box, struct err *err)
{
    if (box->fresh >= 0)
        return 0;
    if (mkdirat(box->top, "tools.new", 0755) < 0)
        return err_set(err, ERR_IO, errno, "make '%.200s/tools.new'", box->path);
    box->fresh = openat(box->top, "tools.new", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    box->fresh_list = json_object();
    if (box->fresh < 0 || fchmod(box->fresh, 0755) < 0)
        return err_set(err, ERR_IO, errno, "open '%.200s/tools.new'", box->path);
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        if (mkdirat(box->fresh, dirs[i], 0755) < 0 || fchmodat(box->fresh, dirs[i], 0755, 0) < 0)
            return err_set(err, ERR_IO, errno, "make '%s' for the tools", dirs[i]);
    }
    return box->fresh_list ? 0 : err_set(err, ERR_LIMIT, ENOMEM, "note the tools");
}

int toolbox_spare(const struct toolbox *box, struct err *err)
{
    static const char name[] = "archive";
    int fd = openat(box->fresh, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0 || unlinkat(box->fresh, name, 0) < 0) {
        scope_close(&fd);
        return err_set(err, ERR_IO, errno, "make a file in '%.200s'", box->path);
    }
    return fd;
}

static int copy_whole(int from, int dir, const char *path, struct err *err)
{
    static char bytes[BLOCK];
    scoped_fd int to = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    ssize_t n = 0;
    bool good = to >= 0 && lseek(from, 0, SEEK_SET) == 0 && fchmod(to, 0644) == 0;

    while (good && (n = read(from, bytes, sizeof(bytes))) > 0)
        good = write(to, bytes, (size_t)n) == n;
    if (!good || n < 0 || fsync(to) < 0)
        return err_set(err, ERR_IO, errno ? errno : ENOSPC, "write '%.200s'", path);
    return 0;
}

static int unpack(struct toolbox *box, enum tool tool, const struct toolbox_archive *a,
                  struct err *err)
{
    char uv[2][PACKAGE_VERSION + 32];
    struct unpack_member members[MOST_FILES];

    if (tool == TOOL_BUN) {
        members[0] = (struct unpack_member){"package/bin/bun", files[tool][0]};
        return unpack_members(a->fd, a->name, members, 1, box->fresh, err);
    }
    for (size_t i = 0; i < MOST_FILES; i++) {
        snprintf(uv[i], sizeof(uv[i]), "uv-%s.data/scripts/%s", a->version, i == 0 ? "uv" : "uvx");
        members[i] = (struct unpack_member){uv[i], files[tool][i]};
    }
    return unpack_members(a->fd, a->name, members, MOST_FILES, box->fresh, err);
}

/* Half a tool is none; the one of before takes its place. */
static void drop_files(const struct toolbox *box, enum tool tool, const char *path)
{
    ignore(*path && unlinkat(box->fresh, path, 0) == 0); /* it may not have come so far */
    for (size_t i = 0; i < MOST_FILES && files[tool][i]; i++)
        ignore(unlinkat(box->fresh, files[tool][i], 0) == 0);
}

int toolbox_add(struct toolbox *box, enum tool tool, const struct toolbox_archive *archive,
                struct err *err)
{
    json_t *entry = json_pack("{s:s, s:s, s:s}", "version", archive->version, "archive",
                              archive->name, "hash", archive->hash);
    char path[PATH_ROOM];
    char hex[SHA256_HEX];
    int r;

    main_file(tool, entry, path);
    if (!*path)
        r = err_set(err, ERR_INVALID, 0, "'%.100s' is no name for an archive", archive->name);
    else if (files[tool][0])
        r = unpack(box, tool, archive, err);
    else
        r = copy_whole(archive->fd, box->fresh, path, err);
    if (r == 0 && !hash_file(box->fresh, path, hex))
        r = err_set(err, ERR_IO, errno, "read '%.200s' again", path);
    if (r < 0) {
        drop_files(box, tool, path);
        json_decref(entry);
        return -1;
    }
    json_object_set_new(entry, "sha256", json_string(hex));
    return json_object_set_new(box->fresh_list, tool_names[tool], entry) == 0
               ? 0
               : err_set(err, ERR_LIMIT, ENOMEM, "note the tools");
}

/* The files of a tool that stays as it is, as further names of the same. */
static int take_over(struct toolbox *box, enum tool tool, const json_t *entry, struct err *err)
{
    char path[PATH_ROOM];
    const char *one = main_file(tool, entry, path);

    for (size_t i = 0; one && *one && i < MOST_FILES; i++) {
        if (linkat(box->old, one, box->fresh, one, 0) < 0)
            return err_set(err, ERR_IO, errno, "take over '%s' of the tools there are", one);
        one = i + 1 < MOST_FILES ? files[tool][i + 1] : NULL;
    }
    return json_object_set(box->fresh_list, tool_names[tool], (json_t *)(uintptr_t)entry) == 0
               ? 0
               : err_set(err, ERR_LIMIT, ENOMEM, "note the tools");
}

static int write_text(int dir, const char *path, const char *text, mode_t mode, struct err *err)
{
    scoped_fd int fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    size_t n = strlen(text);

    if (fd < 0 || write(fd, text, n) != (ssize_t)n || fchmod(fd, mode) < 0 || fsync(fd) < 0)
        return err_set(err, ERR_IO, errno, "write '%s' of the tools", path);
    return 0;
}

/* The names that are called: toolbox_names_are_right. */
static int write_names(struct toolbox *box, struct err *err)
{
    bool has_uv = json_object_get(box->fresh_list, "uv") != NULL;
    bool has_bun = json_object_get(box->fresh_list, "bun") != NULL;

    if (has_uv && write_text(box->fresh, "bin/uv", toolbox_uv, 0755, err) < 0)
        return -1;
    if ((has_uv && symlinkat("../libexec/uvx", box->fresh, "bin/uvx") < 0) ||
        (has_bun && symlinkat("bun", box->fresh, "bin/bunx") < 0))
        return err_set(err, ERR_IO, errno, "make the names of the tools");
    return 0;
}

static int write_list(struct toolbox *box, struct err *err)
{
    char *text = json_dumps(box->fresh_list, JSON_INDENT(2) | JSON_SORT_KEYS);
    int r = text ? write_text(box->fresh, "tools.json", text, 0644, err)
                 : err_set(err, ERR_LIMIT, ENOMEM, "write tools.json");

    free(text);
    return r;
}

/* Both names change at one instant, where the file system can do that. */
static int exchange(struct toolbox *box, struct err *err)
{
    if (renameat2(box->top, "tools.new", box->top, "tools", RENAME_NOREPLACE) == 0)
        return 0;
    if (remove_tree(box, "tools.old") < 0)
        return err_set(err, ERR_IO, errno, "remove '%.200s/tools.old'", box->path);
    if (renameat2(box->top, "tools.new", box->top, "tools", RENAME_EXCHANGE) == 0) {
        ignore(renameat(box->top, "tools.new", box->top, "tools.old") == 0); /* else it goes */
        return 0;
    }
    if (renameat(box->top, "tools", box->top, "tools.old") < 0 && errno != ENOENT)
        return err_set(err, ERR_IO, errno, "put the tools there are aside");
    if (renameat(box->top, "tools.new", box->top, "tools") == 0)
        return 0;
    err_set(err, ERR_IO, errno, "put the new tools into place");
    ignore(renameat(box->top, "tools.old", box->top, "tools") == 0); /* said above */
    return -1;
}

static int sync_dirs(const struct toolbox *box)
{
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        scoped_fd int fd =
            openat(box->fresh, dirs[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fsync(fd) < 0)
            return -1;
    }
    return fsync(box->fresh);
}

int toolbox_publish(struct toolbox *box, struct err *err)
{
    if (toolbox_begin(box, err) < 0)
        return -1;
    for (enum tool tool = TOOL_UV; tool < TOOL_COUNT_; tool++) {
        const json_t *there =
            json_object_get(box->fresh_list, tool_names[tool]) ? NULL : toolbox_find(box, tool);
        if (there && take_over(box, tool, there, err) < 0)
            return -1;
    }
    if (write_names(box, err) < 0 || write_list(box, err) < 0)
        return -1;
    if (sync_dirs(box) < 0)
        return err_set(err, ERR_IO, errno, "write the tools to disk");
    if (exchange(box, err) < 0)
        return -1;
    scope_close(&box->fresh);
    ignore(fsync(box->top) == 0); /* they are there in any case, old or new */
    return 0;
}
