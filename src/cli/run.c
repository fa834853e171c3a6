/* SPDX-License-Identifier: Apache-2.0 */
/* carrel run: options -> spec -> libcarrel -> exit status. What needs JSON (--json, --policy,
 * --explain, --plan) or the network by name (--allow) goes to carrel-full, so that a plain run
 * starts fast. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/programs.h"
#include "cli/cli.h"

static const char help[] =
    "usage: carrel run [options] -- COMMAND [ARG...]\n"
    "       carrel run [options] -c LINE\n"
    "\n"
    "Runs a command that sees one directory as its whole world.\n"
    "\n" HELP_OPTIONS "\n"
    "Exit status: the command's; 128+n for signal n; when a limit was reached: 120\n"
    "memory, 121 processes, 122 output, 123 disk, 124 time; 125 when Carrel itself\n"
    "failed; 126 when the command cannot be executed, 127 when it is not found.\n"
    "\n"
    "examples:\n"
    "  carrel run --workspace desk --create -- python3 -c 'open(\"/a.txt\",\"w\").write(\"hi\")'\n"
    "  carrel run --timeout 30s -c 'make test'          # the current directory at /work\n"
    "  carrel run --ro ~/data:/data --json -- wc -l /data/log.txt\n"
    "  carrel run --explain -- true\n";

static const char *const ends[] = {
    [CARREL_ENDED_EXIT] = NULL,
    [CARREL_ENDED_SIGNAL] = NULL,
    [CARREL_ENDED_TIMEOUT] = "the time limit was reached and everything was ended (--timeout)",
    [CARREL_ENDED_OUTPUT] = "the output limit was reached and everything was ended (--max-output)",
    [CARREL_ENDED_OOM] = "the memory limit was reached and everything was ended (--memory)",
    [CARREL_ENDED_PIDS] =
        "the limit on processes was reached again and again: everything was ended (--pids)",
    [CARREL_ENDED_DISK] = "the disk limit was reached and everything was ended (--disk, --files)",
};

/* Programs read standard error too: what was denied is told there only to a person. */
static void print_denials(const struct carrel_result *result)
{
    char text[640];

    if (!isatty(STDERR_FILENO))
        return;
    for (size_t i = 0; i < result->denial_count; i++) {
        const struct carrel_denial *d = &result->denials[i];
        snprintf(text, sizeof(text), "not allowed%s: %s (%s); %s",
                 d->source == CARREL_SOURCE_INFERRED ? ", it seems" : "", d->what, d->rule, d->fix);
        cli_say_dim(text);
    }
    if (result->denials_dropped)
        cli_say_dim("further calls were refused");
}

void cli_print_end(const struct carrel_result *result)
{
    bool by_limit = result->exit_code != 128 + result->signal;

    if (result->reason == CARREL_ENDED_OUTPUT)
        cli_end_line(); /* it was cut off anywhere */
    print_denials(result);
    if (result->note[0])
        cli_say(result->note);
    else if (result->reason == CARREL_ENDED_OOM && !by_limit)
        cli_say("the kernel ended the command for lack of memory");
    else if (ends[result->reason])
        cli_say(ends[result->reason]);
}

/* Signals that a terminal or a service manager sends are the command's to handle. */
static int take_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGWINCH);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGCHLD, SIG_DFL); /* ignored by our parent, it would reap for us */
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Descriptors 0 to 2 exist from here on, so that none of ours can land there. */
static void fill_standard_files(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd >= 0 && fd < 3);
    if (fd >= 0)
        (void)close(fd);
}

int cli_call(struct run_options *options, struct carrel_result *ret)
{
    struct carrel_error error = {0};
    scoped_fd int signals = take_signals();

    options->spec.signal_fd = signals;
    options->spec.exits = true;
    int r = carrel_run(&options->spec, ret, &error);
    /* In a chroot the kernel refuses user namespaces; root can do something about it. */
    if (r < 0 && error.code == CARREL_ERROR_KERNEL && error.os_errno == EPERM && geteuid() == 0 &&
        carrel_leave_chroot() == 0)
        r = carrel_run(&options->spec, ret, &error);
    return r < 0 ? cli_fail(error.message) : 0;
}

int cli_open_files(struct run_options *options)
{
    char text[512];
    struct err err = {0};

    if (options->stdin_path) {
        int input = open(options->stdin_path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (input < 0) {
            err_set(&err, ERR_NOT_FOUND, errno, "open '%s' for --stdin", options->stdin_path);
            return cli_fail(err_text(&err, text, sizeof(text)));
        }
        (void)fcntl(input, F_SETFL, 0); /* only the open was not to wait */
        options->spec.stdin_fd = input; /* closed when the program ends */
    }
    if (!options->no_tty && !options->json && isatty(0) && isatty(1) && isatty(2) &&
        !options->stdin_path)
        options->spec.tty = true;
    options->spec.init_path =
        program_find("carrel-init", options->init_path, sizeof(options->init_path));
    if (options->spec.net_rules || options->policy_path)
        options->spec.egress_path =
            program_find("carrel-egress", options->egress_path, sizeof(options->egress_path));
    return 0;
}

static int run_plainly(struct run_options *options)
{
    struct carrel_result result;
    int status = cli_open_files(options);

    if (status == 0)
        status = cli_call(options, &result);
    if (status != 0)
        return status;
    cli_print_end(&result);
    status = result.exit_code;
    carrel_result_clear(&result);
    return status;
}

int cli_run(int argc, char **argv)
{
    static struct run_options options;
    char text[512];
    struct err err = {0};
    int status;

    fill_standard_files();
    if (run_options_parse(&options, argc, argv, &err) < 0)
        status = cli_fail(err_text(&err, text, sizeof(text)));
    else if (options.help)
        status = run_options_help(help);
    else if (options.json || options.explain || options.policy_path || options.plan ||
             options.net_rule_count)
        status = cli_run_full(&options, argv);
    else
        status = run_plainly(&options);
    run_options_clear(&options);
    return status;
}
