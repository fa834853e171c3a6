/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/wire.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct wire {
    char *at;
    char *end;
    bool writing;
    bool failed;
};

static void walk_bytes(struct wire *w, void *value, size_t n)
{
    if (w->failed || (size_t)(w->end - w->at) < n) {
        w->failed = true;
        return;
    }
    if (w->writing)
        memcpy(w->at, value, n);
    else
        memcpy(value, w->at, n);
    w->at += n;
}

static void walk_u32(struct wire *w, uint32_t *v)
{
    walk_bytes(w, v, sizeof(*v));
}

static void walk_u64(struct wire *w, uint64_t *v)
{
    walk_bytes(w, v, sizeof(*v));
}

/* Length, bytes, NUL; absent strings travel as empty ones. Reading points into the message. */
static void walk_text(struct wire *w, const char **text)
{
    uint32_t n = w->writing && *text ? (uint32_t)strlen(*text) : 0;

    walk_u32(w, &n);
    if (w->failed || (size_t)(w->end - w->at) < (size_t)n + 1) {
        w->failed = true;
        return;
    }
    if (w->writing) {
        if (n)
            memcpy(w->at, *text, n);
        w->at[n] = '\0';
    } else {
        if (w->at[n] != '\0' || memchr(w->at, '\0', n)) {
            w->failed = true;
            return;
        }
        *text = w->at;
    }
    w->at += n + 1;
}

static void walk_op(struct wire *w, struct op *op)
{
    uint32_t kind = op->kind;

    walk_u32(w, &kind);
    walk_u32(w, &op->flags);
    if (kind >= OP_KIND_COUNT_ || (op->flags & ~(uint32_t)OP_FLAGS_ALL_))
        w->failed = true;
    op->kind = (enum op_kind)kind;
    walk_u64(w, &op->attrs);
    walk_text(w, &op->source);
    walk_text(w, &op->target);
    walk_u64(w, &op->bytes);
    walk_u64(w, &op->inodes);
    walk_u32(w, &op->mode);
    walk_u32(w, &op->uid);
    walk_u32(w, &op->gid);
    walk_u64(w, &op->device);
    walk_u64(w, &op->inode);
    walk_text(w, &op->layer);
    walk_u64(w, &op->layer_device);
    walk_u64(w, &op->layer_inode);
    walk_text(w, &op->over);
    walk_u64(w, &op->over_device);
    walk_u64(w, &op->over_inode);
}

/* `count` operations from `first` on, within what a setup holds. */
static void walk_ops(struct wire *w, struct setup *s, uint32_t first, uint32_t *count)
{
    walk_u32(w, count);
    if (*count > SETUP_MAX_OPS - first)
        w->failed = true;
    for (uint32_t i = 0; !w->failed && i < *count; i++)
        walk_op(w, &s->ops[first + i]);
}

static void walk_ports(struct wire *w, struct setup *s)
{
    walk_u32(w, &s->port_count);
    if (s->port_count > SETUP_MAX_PORTS)
        w->failed = true;
    for (uint32_t i = 0; !w->failed && i < s->port_count; i++) {
        walk_u32(w, &s->ports[i]);
        if ((s->ports[i] & UINT16_MAX) == 0 || s->ports[i] > (SETUP_UDP | UINT16_MAX))
            w->failed = true;
    }
}

static void walk_frame(struct wire *w, struct setup *s)
{
    walk_u32(w, &s->flags);
    walk_u32(w, &s->namespaces);
    walk_u32(w, &s->uid);
    walk_u32(w, &s->gid);
    walk_text(w, &s->hostname);
    if (s->flags & ~(uint32_t)SETUP_FLAGS_ALL_)
        w->failed = true;
    walk_ops(w, s, 0, &s->frame_count);
    walk_u32(w, &s->limit_mask);
    if (s->limit_mask >> RLIM_NLIMITS)
        w->failed = true;
    for (int i = 0; !w->failed && i < RLIM_NLIMITS; i++) {
        walk_u64(w, &s->limits[i].soft);
        walk_u64(w, &s->limits[i].hard);
    }
    walk_u32(w, &s->filter_length);
    if (s->filter_length > SETUP_MAX_FILTER)
        w->failed = true;
    if (!w->failed)
        walk_bytes(w, s->filter, s->filter_length * sizeof(s->filter[0]));
}

static void walk_command(struct wire *w, struct command *c)
{
    walk_u32(w, &c->flags);
    walk_u32(w, &c->rows);
    walk_u32(w, &c->columns);
    walk_text(w, &c->cwd);
    walk_u32(w, &c->argc);
    walk_u32(w, &c->envc);
    if (c->argc == 0 || c->argc > SETUP_MAX_ARGS || c->envc > SETUP_MAX_ARGS ||
        (c->flags & ~(uint32_t)COMMAND_FLAGS_ALL_))
        w->failed = true;
}

static void walk_strings(struct wire *w, const char **strings, uint32_t n)
{
    for (uint32_t i = 0; !w->failed && i < n; i++)
        walk_text(w, &strings[i]);
}

size_t wire_encode_frame(const struct setup *setup, char *bytes, size_t size)
{
    struct wire w = {.at = bytes, .end = bytes + size, .writing = true};

    walk_frame(&w, (struct setup *)(uintptr_t)setup); /* only read while writing */
    return w.failed ? 0 : (size_t)(w.at - bytes);
}

size_t wire_encode_root(const struct setup *setup, char *bytes, size_t size)
{
    struct wire w = {.at = bytes, .end = bytes + size, .writing = true};
    uint32_t count = setup->op_count - setup->frame_count;

    walk_ops(&w, (struct setup *)(uintptr_t)setup, setup->frame_count, &count);
    walk_ports(&w, (struct setup *)(uintptr_t)setup);
    return w.failed ? 0 : (size_t)(w.at - bytes);
}

size_t wire_encode_command(const struct command *command, char *bytes, size_t size)
{
    struct wire w = {.at = bytes, .end = bytes + size, .writing = true};
    struct command c = *command;

    walk_command(&w, &c);
    walk_strings(&w, c.argv, c.argc);
    walk_strings(&w, c.env, c.envc);
    return w.failed ? 0 : (size_t)(w.at - bytes);
}

int wire_decode_frame(struct setup *ret, char *bytes, size_t size)
{
    struct wire w = {.at = bytes, .end = bytes + size};

    walk_frame(&w, ret);
    ret->op_count = ret->frame_count;
    return w.failed || w.at != w.end ? -EINVAL : 0;
}

int wire_decode_root(struct setup *setup, char *bytes, size_t size)
{
    struct wire w = {.at = bytes, .end = bytes + size};
    uint32_t count = 0;

    walk_ops(&w, setup, setup->frame_count, &count);
    walk_ports(&w, setup);
    setup->op_count = w.failed ? setup->frame_count : setup->frame_count + count;
    return w.failed || w.at != w.end ? -EINVAL : 0;
}

int wire_decode_command(struct command *ret, const char **pointers, size_t pointer_count,
                        char *bytes, size_t size)
{
    struct wire w = {.at = bytes, .end = bytes + size};

    walk_command(&w, ret);
    if (w.failed || (size_t)ret->argc + ret->envc + 2 > pointer_count)
        return -EINVAL;
    ret->argv = pointers;
    ret->env = pointers + ret->argc + 1;
    walk_strings(&w, ret->argv, ret->argc);
    walk_strings(&w, ret->env, ret->envc);
    ret->argv[ret->argc] = NULL;
    ret->env[ret->envc] = NULL;
    return w.failed || w.at != w.end ? -EINVAL : 0;
}
