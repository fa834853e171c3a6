/* SPDX-License-Identifier: Apache-2.0 */
/* What a workspace uses now: of the processor, of memory, of the disk that it lies on. */
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "front/workspaces/routes.h"
#include "protocol/broker.h"

static void put_disk(const struct front *front, json_t *object)
{
    struct statvfs st;

    if (fstatvfs(front->spools, &st) < 0)
        return;
    uint64_t total = st.f_blocks * st.f_frsize;
    uint64_t left = st.f_bavail * st.f_frsize;
    json_object_set_new(object, "disk_total_bytes", json_integer((json_int_t)total));
    json_object_set_new(object, "disk_free_bytes", json_integer((json_int_t)left));
}

static void counted(struct call *call, struct answer *answer)
{
    uint64_t n[USAGE_NUMBERS] = {0};
    const char **texts = call_texts(call, answer, USAGE_NUMBERS);

    if (!texts)
        return;
    for (size_t i = 0; texts[i]; i++)
        n[i] = strtoull(texts[i], NULL, 10);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    json_int_t memory = (json_int_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    json_t *object =
        json_pack("{s:s, s:o, s:I, s:f, s:I, s:I, s:I, s:I}", "state",
                  front_state(call->front, call->workspace.id), "since", time_json((int64_t)n[0]),
                  "cpu_ms", (json_int_t)n[1], "cpus_used", (double)n[2] / 1000, "memory_bytes",
                  (json_int_t)n[3], "threads", (json_int_t)n[4], "cpus",
                  (json_int_t)(cpus > 0 ? cpus : 1), "memory_total_bytes", memory);
    put_disk(call->front, object);
    call_json(call, 200, object);
}

void workspaces_usage(struct call *call)
{
    call_ask(call, REQUEST_USAGE, call->workspace.id, NULL, NULL, counted);
}
