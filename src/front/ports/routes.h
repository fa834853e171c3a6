/* SPDX-License-Identifier: Apache-2.0 */
/* Ports of workspaces: opened and closed like any resource (routes.c), and the way through the
 * daemon to the server that listens on one (proxy.c). The latter is no route of the interface:
 * paths and methods below an address are that server's. */
#pragma once

#include "front/core/router.h"

extern const struct route port_routes[];

void ports_list(struct call *call);
void ports_open(struct call *call);
void ports_close(struct call *call);

/* Whether a request is for a port: by its path, /p/TOKEN/…, or by the name it asks for,
 * TOKEN.anything. Sets params[0] and rest, which is "" without a slash behind the token. */
bool port_takes(struct call *call);
/* A request whose route was found otherwise, and which may, to this port of its workspace. */
void port_pass(struct call *call, unsigned port);
/* Where such a request goes. */
extern const struct route port_route;
/* Cuts what is connected to a port of this workspace; port 0: to any in this sandbox, by the name
 * that the broker has for it. */
void port_cut(struct front *front, const char *where, unsigned port);

/* What a setting of the daemon allows of who may reach ports. */
bool ports_allow(const struct front *front, const char *access);
