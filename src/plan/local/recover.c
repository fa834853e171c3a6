/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/local/recover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#include "base/fd.h"
#include "plan/local/files.h"
#include "plan/local/tool.h"

static bool is_interrupted(const json_t *state)
{
    return plan_state_allows(plan_state_of(state), PLAN_ACT_SETTLE);
}

int plan_make_whole(int tree, int place, struct err *err)
{
    json_t *state = plan_read_state(place);
    json_t *answer = NULL;
    int r = 0;

    if (is_interrupted(state)) {
        r = plan_tool_answer(tree, place, "recover", "{}", &answer, err);
        if (r == 0) {
            json_object_set_new(answer, "at", plan_time_now());
            json_object_set(state, "recover", answer); /* what was kept aside is told there */
            r = plan_change_state(place, state, PLAN_EVENT_SETTLED_CLOSED, plan_in_force(answer),
                                  err);
        }
    }
    json_decref(answer);
    json_decref(state);
    return r;
}

static int look_at(int tree, int home, const char *id, struct err *err)
{
    scoped_fd int place = plan_open_place(home, id);
    json_t *state = place < 0 ? NULL : plan_read_state(place);
    bool interrupted = is_interrupted(state);

    json_decref(state);
    if (!interrupted)
        return 0;
    scoped_fd int lock = plan_lock(place, id, err);
    if (lock < 0 || plan_lock_layer(place, id, err) < 0)
        return -1;
    return plan_make_whole(tree, place, err);
}

int plans_make_whole(int tree, int home, struct err *err)
{
    scoped_fd int again = home < 0 ? -1 : openat(home, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct dirent *entry;
    int r = 0;

    if (home < 0)
        return 0;
    DIR *stream = again < 0 ? NULL : fdopendir(again);
    if (!stream)
        return err_set(err, ERR_IO, errno, "look for plans that were interrupted");
    (void)take_fd(&again);
    while (r == 0 && (entry = readdir(stream))) /* one thread; NOLINT(concurrency-mt-unsafe) */
        r = look_at(tree, home, entry->d_name, err);
    (void)closedir(stream);
    return r;
}
