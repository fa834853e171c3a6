/* SPDX-License-Identifier: Apache-2.0 */
/* Port 49983: what is inside a sandbox. */
#include "front/e2b/files.h"
#include "front/e2b/input.h"
#include "front/e2b/process.h"

#define PROCESS    "/process.Process"
#define FILESYSTEM "/filesystem.Filesystem"

static void health(struct call *call);
static void envs(struct call *call);

const struct route e2b_envd_routes[] = {
    {HTTP_GET, "/health", 0, 0, FOREIGN, health, "", NULL},
    {HTTP_GET, "/metrics", 0, 0, FOREIGN, e2b_metrics_inside, "", NULL},
    {HTTP_GET, "/envs", 0, 0, FOREIGN, envs, "", NULL},
    {HTTP_POST, PROCESS "/List", 0, BODY_SMALL, FOREIGN, process_list, "", NULL},
    {HTTP_POST, PROCESS "/Start", 0, BODY_EXEC, RAW | FOREIGN, process_start, "", NULL},
    {HTTP_POST, PROCESS "/Connect", 0, BODY_SMALL, RAW | FOREIGN, process_connect, "", NULL},
    {HTTP_POST, PROCESS "/SendInput", 0, BODY_EXEC, FOREIGN, process_send_input, "", NULL},
    {HTTP_POST, PROCESS "/StreamInput", 0, HTTP_BODY_STREAM, RAW | FOREIGN, process_stream_input,
     "", NULL},
    {HTTP_POST, PROCESS "/SendSignal", 0, BODY_SMALL, FOREIGN, process_signal, "", NULL},
    {HTTP_POST, PROCESS "/CloseStdin", 0, BODY_SMALL, FOREIGN, process_close_input, "", NULL},
    {HTTP_POST, PROCESS "/Update", 0, BODY_SMALL, FOREIGN, process_update, "", NULL},
    {HTTP_GET, "/files", 0, 0, FOREIGN, files_download, "", NULL},
    {HTTP_POST, "/files", 0, HTTP_BODY_STREAM, RAW | FOREIGN, files_upload, "", NULL},
    {HTTP_POST, FILESYSTEM "/Stat", 0, BODY_SMALL, FOREIGN, filesystem_stat, "", NULL},
    {HTTP_POST, FILESYSTEM "/MakeDir", 0, BODY_SMALL, FOREIGN, filesystem_make_dir, "", NULL},
    {HTTP_POST, FILESYSTEM "/Move", 0, BODY_SMALL, FOREIGN, filesystem_move, "", NULL},
    {HTTP_POST, FILESYSTEM "/ListDir", 0, BODY_SMALL, FOREIGN, filesystem_list, "", NULL},
    {HTTP_POST, FILESYSTEM "/Remove", 0, BODY_SMALL, FOREIGN, filesystem_remove, "", NULL},
    {HTTP_POST, FILESYSTEM "/WatchDir", 0, BODY_SMALL, RAW | FOREIGN, watch_stream, "", NULL},
    {HTTP_POST, FILESYSTEM "/CreateWatcher", 0, BODY_SMALL, FOREIGN, watcher_create, "", NULL},
    {HTTP_POST, FILESYSTEM "/GetWatcherEvents", 0, BODY_SMALL, FOREIGN, watcher_events, "", NULL},
    {HTTP_POST, FILESYSTEM "/RemoveWatcher", 0, BODY_SMALL, FOREIGN, watcher_remove, "", NULL},
    ROUTES_END,
};

static void health(struct call *call)
{
    call_reply(call, 204, NULL, "Cache-Control: no-store\r\n", "", 0);
}

static void envs(struct call *call)
{
    json_t *labels = json_parsed(call->workspace.labels);
    json_t *env = json_object_get(labels, E2B_LABEL "env");

    call_json(call, 200, env ? json_incref(env) : json_object());
    json_decref(labels);
}
