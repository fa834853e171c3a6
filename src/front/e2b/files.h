/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct call;

void files_download(struct call *call);
void files_upload(struct call *call);

void filesystem_stat(struct call *call);
void filesystem_make_dir(struct call *call);
void filesystem_move(struct call *call);
void filesystem_list(struct call *call);
void filesystem_remove(struct call *call);

void watch_stream(struct call *call);
void watcher_create(struct call *call);
void watcher_events(struct call *call);
void watcher_remove(struct call *call);
