/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes prepared ahead: pid 1 in its namespaces and cgroup, with the frame standing; only the
 * tenant's tree and the command are missing. Nothing of a tenant has ever been in one. */
#pragma once

#include "sandbox/run.h"

struct live;

/* Looks for one that suits the run and makes it run->taken, together with its identity and cgroup;
 * leaves run->taken NULL when there is none. */
void pool_take(struct carrel_pool *pool, struct run *run);
/* Moves pid 1 out of it. */
void pool_hand_over(struct prepared *taken, struct live *live);
/* After the run: what is left of run->taken, with the run's identity and cgroup, is cleared away in
 * the background. */
void pool_give_back(struct carrel_pool *pool, struct run *run);
