/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs that talk to the daemon, and what they share. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "client/core/args.h"
#include "client/core/http.h"

struct table;

/* argv[0] is the verb, and argv ends with NULL; each returns the exit status. */
int client_ws(char **argv);
int client_exec(char **argv);
int client_shell(char **argv);
int client_ps(char **argv);
int client_logs(char **argv);
int client_kill(char **argv);
int client_key(char **argv);
int client_port(char **argv);
int client_net(char **argv);
int client_secret(char **argv);
int client_store(char **argv);
int client_plan(char **argv);
int client_template(char **argv);
int client_snapshot(char **argv);
int client_fork(char **argv);
int client_merge(char **argv);
int client_diff(char **argv);
int client_env(char **argv);
int client_base(char **argv);
int client_events(char **argv);
int client_audit(char **argv);
int client_ls(char **argv);
int client_tree(char **argv);
int client_stat(char **argv);
int client_glob(char **argv);
int client_grep(char **argv);
int client_watch(char **argv);
int client_cat(char **argv);
int client_put(char **argv);
int client_get(char **argv);
int client_edit(char **argv);
int client_rm(char **argv);
int client_mv(char **argv);
int client_cp(char **argv);
int client_mkdir(char **argv);
int client_doctor(char **argv);
int client_mcp(char **argv);

/* Takes the options and words of a verb, as args_all does. Returns -1 for it to go on; else its
 * exit status, after printing the help that was asked for, or what is wrong. */
int client_begin(char **argv, const char *help, const struct args_rule *rules,
                 struct args_common *common, const char **words, size_t most);
/* Says it and returns 125. */
int client_fail(const struct err *err);
/* Says what can be done (`says`), and of the table `rows` what `word` (or NULL) is near to; 125. */
int client_no_action(const char *says, const char *word, const void *rows, size_t count,
                     size_t size);
/* Prints one line of JSON, consumes it and returns the exit status. */
int client_print(json_t *value);
/* Prints the objects of an answer's list `member`, a row for each, or as `json` the answer, which
 * is consumed. Returns the exit status. */
int client_table(json_t *answer, const char *member, const char *const *heads,
                 void (*add_row)(struct table *table, const json_t *object), bool json);
/* Prints the id in an answer, or as `json` the answer, which is consumed. Returns the exit status.
 */
int client_id(json_t *answer, bool json);
/* Deletes what is at `path`, which is consumed. Returns the exit status. */
int client_delete(struct daemon *daemon, struct buf *path, bool json, struct err *err);
/* A member that is text, or NULL. */
const char *client_text(const json_t *object, const char *name);
/* A member that is a time, as "3m ago"; NULL without one. `ret` has TEXT_SHORT bytes. */
const char *client_ago(const json_t *object, const char *name, char *ret);
/* A member that is a number, as text. `ret` has TEXT_SHORT bytes. */
const char *client_number(const json_t *object, const char *name, char *ret);
/* The command of an exec, as one line. */
void client_command(const json_t *exec, struct buf *b);
/* "/v1/workspaces/ID" and what follows. The buffer is begun here. */
void client_workspace_path(struct buf *b, const char *workspace, const char *rest);
/* One question whose answer is printed as JSON, or not at all. Both buffers are consumed. */
int client_do(struct daemon *daemon, const char *method, struct buf *path, json_t *body,
              json_t **ret, struct err *err);
/* Puts what a file holds into the body as "policy". The daemon judges what is in it; here it only
 * has to be JSON. */
int client_add_policy(json_t *body, const char *path, struct err *err);
/* Reads a whole file ("-": standard input) of at most `most` bytes. */
int client_read_file(const char *path, struct buf *ret, struct err *err);
