/* SPDX-License-Identifier: Apache-2.0 */
/* What pid 1 and its keepers share: messages of the engine, answers to it, the start of a command.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/init.h"

enum {
    LEAST_ROOM = 16384
};

static bool make_room(struct message *message)
{
    size_t need = message->head.length + 1UL;

    if (message->room >= need)
        return true;
    talk_release(message);
    need = need < LEAST_ROOM ? LEAST_ROOM : need;
    message->bytes = mmap(NULL, need, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    message->room = message->bytes == MAP_FAILED ? 0 : need;
    return message->room > 0;
}

bool talk_receive(int socket, struct message *message)
{
    return message_receive_head(socket, &message->head, message->fds) > 0 && make_room(message) &&
           message_read_exactly(socket, message->bytes, message->head.length) == 0;
}

void talk_release(struct message *message)
{
    if (message->room)
        (void)munmap(message->bytes, message->room);
    message->room = 0;
}

void talk_answer(int socket, const struct reply *reply, int fd)
{
    ignore(message_send(socket, reply->kind, reply, sizeof(*reply), &fd, fd >= 0 ? 1 : 0));
}

static int open_terminal(int socket, const struct command *command, int *ret_slave, struct err *err)
{
    struct reply reply = {.kind = REPLY_TERMINAL};
    int master;

    if (command_open_terminal(command, &master, ret_slave, err) < 0)
        return -1;
    talk_answer(socket, &reply, master);
    (void)close(master);
    return 0;
}

int talk_decode(const struct message *message, struct command *ret, struct err *err)
{
    static const char *pointers[2 * SETUP_MAX_ARGS + 2];

    *ret = (struct command){0};
    if (wire_decode_command(ret, pointers, 2 * SETUP_MAX_ARGS + 2, message->bytes,
                            message->head.length) < 0)
        return err_set(err, ERR_INVALID, 0, "the command message is malformed");
    return 0;
}

int talk_start_decoded(int socket, const struct message *message, const struct command *command,
                       int *ret_pid, int *ret_status, struct err *err)
{
    scoped_fd int slave = -1;

    *ret_status = STATUS_CARREL_FAILED;
    if (!(command->flags & COMMAND_TTY)) {
        if (message->head.fd_count != 3)
            return err_set(err, ERR_INVALID, 0, "the command message came without its files");
        return command_start(command, message->fds, ret_pid, ret_status, err);
    }
    if (open_terminal(socket, command, &slave, err) < 0)
        return -1;
    const int files[3] = {slave, slave, slave};
    return command_start(command, files, ret_pid, ret_status, err);
}

int talk_start(int socket, struct message *message, int *ret_pid, int *ret_status, struct err *err)
{
    struct command command;

    *ret_status = STATUS_CARREL_FAILED;
    if (talk_decode(message, &command, err) < 0)
        return -1;
    return talk_start_decoded(socket, message, &command, ret_pid, ret_status, err);
}

void talk_close_files(struct message *message)
{
    for (size_t i = 0; i < message->head.fd_count; i++)
        (void)close(message->fds[i]);
    message->head.fd_count = 0;
}
