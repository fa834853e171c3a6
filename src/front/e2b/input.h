/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct call;

void process_list(struct call *call);
void process_send_input(struct call *call);
void process_close_input(struct call *call);
void process_update(struct call *call);
void process_signal(struct call *call);
void process_stream_input(struct call *call);
