/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/command_streams.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/weak.h"

#define CAPTURE_DEFAULT_BYTES (16UL << 20)

static int make_pipe(int *ret_read, int *ret_write, struct err *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_set(err, ERR_LIMIT, errno, "make a pipe");
    *ret_read = ends[0];
    *ret_write = ends[1];
    return 0;
}

static int open_input(struct command_streams *s, struct err *err)
{
    struct stream *in = &s->of[IN];
    struct stat st;
    int fd = s->spec->stdin_fd;

    if (fd < 0) {
        s->fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        s->close[0] = true;
        return s->fds[0] < 0 ? err_set(err, ERR_IO, errno, "open '/dev/null'") : 0;
    }
    if (stream_check(fd, "input", err) < 0)
        return -1;
    if (stream_can_pass(fd)) {
        s->fds[0] = fd;
        return 0;
    }
    int write_end = -1;
    if (fstat(fd, &st) < 0 || make_pipe(&s->fds[0], &write_end, err) < 0)
        return -1;
    s->close[0] = true;
    if (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode))
        s->stdin_pipe = fcntl(s->fds[0], F_DUPFD_CLOEXEC, 3);
    if (S_ISFIFO(st.st_mode) && s->stdin_pipe >= 0 && stream_copy_pipe(in, fd, write_end) == 0)
        return 0;
    in->from = fd;
    in->to = write_end;
    in->own_to = true;
    if (fcntl(in->to, F_SETFL, O_NONBLOCK) < 0)
        return err_set(err, ERR_IO, errno, "set up standard input");
    return 0;
}

static int open_output(struct command_streams *s, int which, int fd, const char *name,
                       struct err *err)
{
    struct stream *out = &s->of[which];
    bool capture = s->spec->capture;

    if (!capture && stream_check(fd, name, err) < 0)
        return -1;
    if (!capture && !s->bounded && stream_can_pass(fd)) {
        s->fds[which] = fd;
        return 0;
    }
    if (make_pipe(&out->from, &s->fds[which], err) < 0)
        return -1;
    out->own_from = s->close[which] = true;
    if (fcntl(out->from, F_SETFL, O_NONBLOCK) < 0)
        return err_set(err, ERR_IO, errno, "set up standard %s", name);
    out->capturing = capture;
    buf_init(&out->captured, SIZE_MAX / 2);
    if (!capture)
        stream_set_sink(out, fd);
    return 0;
}

/* Output and errors that go to one place keep their order only in one pipe. */
static bool are_one_file(int a, int b)
{
    struct stat x;
    struct stat y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int command_streams_open(struct command_streams *s, const struct carrel_spec *spec, struct err *err)
{
    uint64_t bound = spec->output_bytes * (weak("output") ? 64 : 1);

    if (!bound && spec->capture)
        bound = CAPTURE_DEFAULT_BYTES;
    s->spec = spec;
    s->bounded = bound != 0;
    s->budget.left = bound;
    s->errors_in_output = spec->tty || (!spec->capture && are_one_file(1, 2));
    if (spec->tty) {
        if (spec->stdin_fd >= 0)
            return stream_check(spec->stdin_fd, "input", err);
        return 0;
    }
    if (open_input(s, err) < 0 || open_output(s, OUT, 1, "output", err) < 0)
        return -1;
    if (s->errors_in_output) {
        s->fds[2] = fcntl(s->fds[1], F_DUPFD_CLOEXEC, 3);
        s->close[2] = true;
        return s->fds[2] < 0 ? err_set(err, ERR_LIMIT, errno, "open files") : 0;
    }
    return open_output(s, ERR, 2, "error", err);
}

void command_streams_close(struct command_streams *s)
{
    for (int i = 0; i < 3; i++) {
        if (s->close[i])
            scope_close(&s->fds[i]);
        s->close[i] = false;
    }
}

void command_streams_give(struct command_streams *s, const struct identity *id)
{
    for (int i = 0; i < 3 && id->range; i++) {
        if (s->close[i] && !stream_can_pass(s->fds[i]))
            ignore(fchown(s->fds[i], identity_outside_uid(id), identity_outside_gid(id)));
    }
}

void command_streams_copy_size(const struct command_streams *s, int master)
{
    struct winsize size;

    if (ioctl(s->spec->stdin_fd, TIOCGWINSZ, &size) == 0)
        (void)ioctl(master, TIOCSWINSZ, &size);
}

static void make_raw(struct command_streams *s)
{
    struct termios raw;

    if (s->spec->stdin_fd < 0 || tcgetattr(s->spec->stdin_fd, &s->cooked) < 0)
        return;
    raw = s->cooked;
    cfmakeraw(&raw);
    if (tcsetattr(s->spec->stdin_fd, TCSADRAIN, &raw) == 0)
        s->raw = true;
}

int command_streams_adopt_terminal(struct command_streams *s, int master)
{
    const struct carrel_spec *spec = s->spec;

    if (!stream_is_terminal(master) || fcntl(master, F_SETFL, O_NONBLOCK) < 0)
        return -EPROTO;
    struct stream *out = &s->of[OUT];
    struct stream *in = &s->of[IN];
    out->from = master;
    out->own_from = true;
    out->capturing = spec->capture;
    buf_init(&out->captured, SIZE_MAX / 2);
    if (!spec->capture)
        stream_set_sink(out, 1);
    in->from = spec->stdin_fd;
    in->to = fcntl(master, F_DUPFD_CLOEXEC, 3);
    in->own_to = true;
    command_streams_copy_size(s, master);
    make_raw(s);
    return 0;
}

void command_streams_return_input(struct command_streams *s)
{
    struct stream *in = &s->of[IN];
    int unread = 0;

    if (s->stdin_pipe < 0 || ioctl(s->stdin_pipe, FIONREAD, &unread) < 0)
        return;
    if (in->copying) {
        in->from = s->spec->stdin_fd;
        stream_settle(in, (size_t)unread);
        return;
    }
    uint64_t back = (uint64_t)unread + (in->n - in->at);
    if (back > in->taken)
        back = in->taken;
    if (back > 0)
        (void)lseek(s->spec->stdin_fd, -(off_t)back, SEEK_CUR);
}

void command_streams_init(struct command_streams *s)
{
    s->stdin_pipe = -1;
    for (int i = 0; i < STREAMS; i++)
        stream_init(&s->of[i]);
}

void command_streams_clear(struct command_streams *s)
{
    if (s->raw) /* a terminal's late answers are not typed */
        (void)tcsetattr(s->spec->stdin_fd, TCSAFLUSH, &s->cooked);
    command_streams_close(s);
    scope_close(&s->stdin_pipe);
    for (int i = 0; i < STREAMS; i++)
        stream_clear(&s->of[i]);
}
