/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs that make a plan, and what they answer. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "plan/core/plan.h"
#include "plan/core/verbs.h"
#include "plan/trees/version.h"
#include "plan/verbs/saved.h"
#include "sys/path.h"

enum {
    MOST_FLAWS_TOLD = 100,
    MOST_MOUNT_POINTS = 1024,
};

static json_t *tell_flaws(const struct plan *plan)
{
    json_t *list = json_array();

    for (size_t i = 0; i < plan->flaw_count && i < MOST_FLAWS_TOLD; i++) {
        const struct plan_flaw *flaw = &plan->flaws[i];
        json_t *told = json_pack("{s:s,s:s}", "flaw", plan_flaw_names[flaw->kind], "message",
                                 plan_flaw_words[flaw->kind]);
        if (!told || version_set_path(told, flaw->path) < 0 || json_array_append(list, told) < 0) {
            json_decref(told);
            json_decref(list);
            return NULL;
        }
        json_decref(told);
    }
    return list;
}

static json_t *tell_counts(const struct plan *plan)
{
    json_int_t counts[PLAN_KIND_COUNT_] = {0};
    json_t *told = json_object();

    for (size_t i = 0; i < plan->count; i++)
        counts[plan->operations[i].kind]++;
    for (size_t i = 0; i < PLAN_KIND_COUNT_; i++)
        (void)json_object_set_new(told, plan_kind_names[i], json_integer(counts[i]));
    return told;
}

static int answer(const struct plan *plan, const unsigned char hash[PLAN_HASH], json_t *answer,
                  struct err *err)
{
    char text[2 * PLAN_HASH + 1];
    uint64_t copied = 0;

    for (size_t i = 0; i < plan->count; i++)
        copied += plan->operations[i].copied ? plan->operations[i].size : 0;
    bytes_to_hex(hash, PLAN_HASH, text);
    json_t *told = json_pack("{s:s,s:I,s:I,s:I,s:o,s:o,s:I}", "hash", text, "operations",
                             (json_int_t)plan->count, "bytes", (json_int_t)plan->bytes,
                             "copied_bytes", (json_int_t)copied, "counts", tell_counts(plan),
                             "flaws", tell_flaws(plan), "flaw_count", (json_int_t)plan->flaw_count);
    int r = told ? json_object_update(answer, told) : -1;
    json_decref(told);
    return r < 0 ? err_set(err, ERR_LIMIT, 0, "tell about the plan") : 0;
}

int verb_save_plan(const struct verb_call *call, const struct plan *plan, const char *name,
                   json_t *ret_answer, struct err *err)
{
    unsigned char hash[PLAN_HASH];

    return plan_save(plan, call->dir, name, hash, err) < 0 ? -1
                                                           : answer(plan, hash, ret_answer, err);
}

static int read_mount_points(const json_t *list, const char **ret, size_t *count, struct err *err)
{
    if (list && (!json_is_array(list) || json_array_size(list) > MOST_MOUNT_POINTS))
        return err_set(err, ERR_INVALID, 0, "the job: 'mount_points' is a list of at most %d paths",
                       MOST_MOUNT_POINTS);
    for (size_t i = 0; i < json_array_size(list); i++) {
        ret[i] = json_string_value(json_array_get(list, i));
        if (!ret[i])
            return err_set(err, ERR_INVALID, 0, "the job: a mount point is no text");
    }
    *count = json_array_size(list);
    return 0;
}

/* What the kernel keeps beside the layer: whatever is linked there has a name more than it should,
 * and a second way to what is staged. */
static int empty_own(int dir, const char *name)
{
    int fd = path_open_beneath(dir, name, O_RDONLY | O_DIRECTORY, 1);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    int r = 0;

    if (!stream) {
        r = fd < 0 ? fd : -errno;
        scope_close(&fd);
        return r == -ENOENT ? 0 : r;
    }
    const struct dirent *entry;
    while (r == 0 && (entry = readdir(stream))) { /* NOLINT(concurrency-mt-unsafe) */
        if (path_is_dots(entry->d_name))
            continue;
        if (unlinkat(fd, entry->d_name, 0) < 0 && unlinkat(fd, entry->d_name, AT_REMOVEDIR) < 0)
            r = -errno;
    }
    (void)closedir(stream);
    return r;
}

static int drop_work(int dir, struct err *err)
{
    static const char *const parts[] = {"work/index", "work/work", "work"};
    int r = empty_own(dir, parts[0]);

    if (r < 0)
        return err_set(err, ERR_IO, -r, "remove the layer's index");
    ignore(empty_own(dir, parts[1])); /* nothing but what a crash left: it goes with the plan */
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        ignore(unlinkat(dir, parts[i], AT_REMOVEDIR));
    return 0;
}

/* Closed already, and asked again: the layer has lost its marks, and the manifest is the plan. */
static int derive_again(struct plan *plan, int dir, unsigned char hash[PLAN_HASH], struct err *err)
{
    int r = plan_load(plan, dir, "manifest", hash, err);

    return r == 0 ? 1 : err->code == ERR_NOT_FOUND ? 0 : -1;
}

int verb_derive(const struct verb_call *call, json_t *ret_answer, struct err *err)
{
    const char *mode = NULL;
    const char *points[MOST_MOUNT_POINTS];
    const json_t *list = NULL;
    struct plan plan;
    unsigned char hash[PLAN_HASH];
    int privileged = 0;
    struct plan_derivation how = {.tree = call->tree, .dir = call->dir, .mount_points = points};

    if (verb_read(call, err, "{s:s,s:b,s?o}", "mode", &mode, "privileged", &privileged,
                  "mount_points", &list) < 0)
        return -1;
    how.privileged = privileged;
    how.closing = strcmp(mode, "close") == 0;
    if (!how.closing && strcmp(mode, "look") != 0)
        return err_set(err, ERR_INVALID, 0, "the job: 'mode' is \"look\" or \"close\"");
    if (read_mount_points(list, points, &how.mount_point_count, err) < 0)
        return -1;
    int r = how.closing ? derive_again(&plan, call->dir, hash, err) : 0;
    if (r < 0 || (r == 0 && plan_derive(&plan, &how, err) < 0))
        return -1;
    r = r > 0 ? answer(&plan, hash, ret_answer, err)
              : verb_save_plan(call, &plan, how.closing ? "manifest" : "look", ret_answer, err);
    plan_clear(&plan);
    return r == 0 && how.closing ? drop_work(call->dir, err) : r;
}

int verb_submit(const struct verb_call *call, json_t *ret_answer, struct err *err)
{
    struct plan plan;

    if (plan_derive_written(&plan, call->tree, call->dir, call->text, call->n, err) < 0)
        return -1;
    int r = verb_save_plan(call, &plan, "manifest", ret_answer, err);
    plan_clear(&plan);
    return r;
}
