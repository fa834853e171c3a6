/* SPDX-License-Identifier: Apache-2.0 */
/* Signed heads of the record, rotation and retention. */
#pragma once

#include "broker/broker.h"

/* Once the record is open. An error when it is not the one that was signed before. */
int heads_start(struct broker *broker, struct err *err);
/* Signs for the beginning of a record that has no head yet. */
void heads_first(struct broker *broker);
/* Signs for all up to `last`, once that is on disk and nothing more is written. */
void heads_stop(struct broker *broker, uint64_t last);
/* Once in each turn of the loop: whether a segment was begun. */
void heads_look(struct broker *broker);
