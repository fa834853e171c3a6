/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/local/files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

enum {
    TIME_DIGITS = 10,
    ID_MAX = 64,
    LAYER_MS = 2000, /* what was killed may take a moment to go */
    STEP_MS = 10,
    OPEN_DIRECTORY = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
};

#define PLANS_SUFFIX ".carrel-plans"

/* --- where they are --- */

int plan_name_home(const char *dir, char ret_dir[PATH_MAX], char ret_home[PATH_MAX],
                   struct err *err)
{
    if (!realpath(dir, ret_dir))
        return err_set(err, ERR_NOT_FOUND, errno, "directory '%.200s'", dir);
    if (strcmp(ret_dir, "/") == 0)
        return err_set(err, ERR_INVALID, 0, "'/' cannot have plans; change to another directory");
    int n = snprintf(ret_home, PATH_MAX, "%s%s", ret_dir, PLANS_SUFFIX);
    if (n < 0 || n + 1 + ID_MAX >= PATH_MAX)
        return err_set(err, ERR_INVALID, ENAMETOOLONG, "a plan beside '%.200s'", ret_dir);
    return 0;
}

int plan_open_home(const char *path, int *ret, struct err *err)
{
    struct stat st;
    scoped_fd int fd = open(path, OPEN_DIRECTORY);

    *ret = -1;
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077))
        return err_set(err, ERR_DENIED, 0,
                       "'%.200s', where plans are kept, must be a directory of yours that no other "
                       "user can enter (chmod 700)",
                       path);
    *ret = take_fd(&fd);
    return 0;
}

/* A name that is new must outlive the power as what is done by it does. Where the directory above
 * may not be read, the kernel's own time for it has to do. */
static void keep_name(int home)
{
    scoped_fd int above = openat(home, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (above >= 0)
        ignore(fsync(above) == 0);
}

int plan_make_home(const char *path, bool *ret_made, int *ret, struct err *err)
{
    *ret = -1;
    *ret_made = mkdir(path, 0700) == 0;
    if (!*ret_made && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make '%.200s', where plans are kept", path);
    if (plan_open_home(path, ret, err) < 0)
        return -1;
    if (*ret < 0)
        return err_set(err, ERR_CONFLICT, 0, "'%.200s' was just removed; try again", path);
    if (*ret_made)
        keep_name(*ret);
    return 0;
}

int plan_make_id(char id[PLAN_ID_SIZE], struct err *err)
{
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    unsigned char random[PLAN_ID_SIZE];
    struct timespec now;

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random) ||
        clock_gettime(CLOCK_REALTIME, &now) < 0)
        return err_set(err, ERR_IO, errno, "make a name for the plan");
    uint64_t ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    id[0] = 'p';
    for (int i = TIME_DIGITS; i > 0; i--) {
        id[i] = digits[ms % 32];
        ms /= 32;
    }
    for (int i = TIME_DIGITS + 1; i < PLAN_ID_SIZE - 1; i++)
        id[i] = digits[random[i] % 32];
    id[PLAN_ID_SIZE - 1] = '\0';
    return 0;
}

bool plan_is_id(const char *id)
{
    static const char allowed[] =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-";
    size_t n = strlen(id);

    return n > 0 && n <= ID_MAX && id[0] != '.' && strspn(id, allowed) == n;
}

int plan_open_place(int home, const char *id)
{
    if (plan_is_id(id))
        return openat(home, id, OPEN_DIRECTORY);
    errno = ENOENT;
    return -1;
}

int plan_make_place(int home, const char *id, struct err *err)
{
    if (mkdirat(home, id, 0700) < 0)
        return err_set(err, ERR_IO, errno, "make the directory of plan '%.64s'", id);
    scoped_fd int place = plan_open_place(home, id);
    if (place < 0 || fsync(home) < 0) {
        err_set(err, ERR_IO, errno, "make the directory of plan '%.64s'", id);
        ignore(unlinkat(home, id, AT_REMOVEDIR) == 0);
        return -1;
    }
    return take_fd(&place);
}

static int lock_or_tell(int fd, int wait_ms, const char *id, struct err *err)
{
    int r = flock(fd, LOCK_EX | LOCK_NB);

    for (int waited = 0; r < 0 && errno == EWOULDBLOCK && waited < wait_ms; waited += STEP_MS) {
        (void)poll(NULL, 0, STEP_MS);
        r = flock(fd, LOCK_EX | LOCK_NB);
    }
    if (r == 0)
        return 0;
    if (errno == EWOULDBLOCK)
        return err_set(err, ERR_CONFLICT, 0,
                       "plan '%.64s' is in use: a command runs in it or works on it; wait for it",
                       id);
    return err_set(err, ERR_IO, errno, "lock plan '%.64s'", id);
}

int plan_lock(int place, const char *id, struct err *err)
{
    scoped_fd int lock = openat(place, ".lock", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (lock < 0)
        return err_set(err, ERR_IO, errno, "lock plan '%.64s'", id);
    return lock_or_tell(lock, 0, id, err) < 0 ? -1 : take_fd(&lock);
}

int plan_lock_layer(int place, const char *id, struct err *err)
{
    return lock_or_tell(place, LAYER_MS, id, err);
}

/* --- state.json --- */

json_t *plan_read_state(int place)
{
    scoped_fd int fd = openat(place, "state.json", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    json_t *state = fd >= 0 ? json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL) : NULL;

    if (json_is_object(state))
        return state;
    json_decref(state);
    return NULL;
}

int plan_write_state(int place, const json_t *state, struct err *err)
{
    scoped_fd int fd =
        openat(place, ".state.json", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0 || json_dumpfd(state, fd, JSON_COMPACT) < 0 || fsync(fd) < 0 ||
        renameat(place, ".state.json", place, "state.json") < 0 || fsync(place) < 0) {
        err_set(err, ERR_IO, errno, "write the state of the plan");
        ignore(unlinkat(place, ".state.json", 0) == 0);
        return -1;
    }
    return 0;
}

enum plan_state plan_state_of(const json_t *state)
{
    return plan_state_from_name(json_string_value(json_object_get(state, "state")));
}

int plan_change_state(int place, json_t *state, enum plan_event event, uint64_t in_force,
                      struct err *err)
{
    enum plan_state next = plan_state_after(plan_state_of(state), event, in_force);

    if (next == PLAN_NONE)
        return err_set(err, ERR_CONFLICT, 0, "the plan is %s",
                       plan_state_name(plan_state_of(state)));
    if (json_object_set_new(state, "state", json_string(plan_state_name(next))) < 0)
        return err_set(err, ERR_LIMIT, 0, "no memory for the state of the plan");
    return plan_write_state(place, state, err);
}

json_t *plan_time_now(void)
{
    struct timespec now = {0};
    struct tm tm;
    char text[40] = "";

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (!gmtime_r(&now.tv_sec, &tm) || !strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm))
        return json_null();
    return json_sprintf("%s.%03ldZ", text, now.tv_nsec / 1000000);
}
