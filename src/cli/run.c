/* SPDX-License-Identifier: Apache-2.0 */
/* carrel run: options -> spec -> libcarrel -> exit status or one JSON object. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "cli/encode.h"

static const char help[] =
    "usage: carrel run [options] -- COMMAND [ARG...]\n"
    "       carrel run [options] -c 'shell line'\n"
    "\n"
    "Runs a command that sees one directory as its whole world.\n"
    "\n"
    "  --workspace DIR    DIR becomes / (default: the current directory appears at /work)\n"
    "  --create           make DIR if it is missing\n"
    "  --at PATH          where the current directory appears without --workspace\n"
    "  --level LEVEL      ns: isolated (default); dir: a directory, isolates nothing; auto\n"
    "  --net none|host    none: a loopback of its own (default); host: the host's network\n"
    "  --ro SRC[:DST]     show SRC read-only at DST\n"
    "  --rw SRC[:DST]     show SRC read-write at DST\n"
    "  --env NAME=VALUE   set a variable (nothing else of your environment comes in)\n"
    "  --cwd PATH         start in PATH inside\n"
    "  --user user|root   who the command is inside (root has no privileges either)\n"
    "  --timeout TIME     end everything after TIME: 500ms, 30s, 5m, 1h\n"
    "  --max-output SIZE  end everything after SIZE bytes of output: 100K, 16M\n"
    "  --tmp-size SIZE    size of each of /tmp, /.cache and /dev/shm (default 512M)\n"
    "  --stdin FILE       read standard input from FILE\n"
    "  --tty, --no-tty    give the command a terminal (default: when you are on one)\n"
    "  --policy FILE      keep to the JSON policy in FILE; options can only narrow it\n"
    "  --json             print one JSON object with output, exit code, usage\n"
    "  --explain          print everything that would be done, and do nothing\n"
    "\n"
    "Exit status: the command's; 128+n for signal n; 124 timeout; 122 output limit;\n"
    "125 Carrel itself failed; 126 not executable; 127 not found.\n"
    "\n"
    "examples:\n"
    "  carrel run --workspace desk --create -- python3 -c 'open(\"/a.txt\",\"w\").write(\"hi\")'\n"
    "  carrel run --timeout 30s -c 'make test'          # the current directory at /work\n"
    "  carrel run --ro ~/data:/data --json -- wc -l /data/log.txt\n"
    "  carrel run --explain -- true\n";

static const char *const reasons[] = {
    [CARREL_ENDED_EXIT] = "exit",     [CARREL_ENDED_SIGNAL] = "signal",
    [CARREL_ENDED_TIMEOUT] = "timeout", [CARREL_ENDED_OUTPUT] = "output",
    [CARREL_ENDED_OOM] = "oom",
};

static void print_json(const struct carrel_result *result)
{
    json_t *usage = json_pack("{s:f, s:f, s:I}", "cpu_user_ms", result->usage.cpu_user_ms,
                              "cpu_system_ms", result->usage.cpu_system_ms, "peak_rss_bytes",
                              (json_int_t)result->usage.peak_rss_bytes);
    json_t *object = json_pack("{s:i}", "exit_code", result->exit_code);

    json_object_set_new(object, "signal",
                        result->signal ? json_integer(result->signal) : json_null());
    json_object_set_new(object, "reason", json_string(reasons[result->reason]));
    json_object_set_new(object, "timed_out",
                        json_boolean(result->reason == CARREL_ENDED_TIMEOUT));
    json_object_set_new(object, "oom_killed", json_boolean(result->reason == CARREL_ENDED_OOM));
    encode_bytes(object, "stdout", result->out, result->out_size);
    if (result->note[0])
        encode_bytes(object, "stderr", result->note, strlen(result->note));
    else
        encode_bytes(object, "stderr", result->err, result->err_size);
    json_object_set_new(object, "truncated", json_boolean(result->truncated));
    json_object_set_new(object, "duration_ms", json_real(result->duration_ms));
    json_object_set_new(object, "usage", usage);
    json_object_set_new(object, "level",
                        json_string(result->level == CARREL_LEVEL_DIR ? "dir" : "ns"));
    json_object_set_new(object, "denials", json_array());
    json_dumpf(object, stdout, JSON_REAL_PRECISION(6));
    fputc('\n', stdout);
    json_decref(object);
}

static void print_end(const struct carrel_result *result)
{
    if (result->note[0])
        fprintf(stderr, "carrel: %s\n", result->note);
    else if (result->reason == CARREL_ENDED_TIMEOUT)
        fputs("carrel: the time limit was reached and everything was ended (--timeout)\n", stderr);
    else if (result->reason == CARREL_ENDED_OUTPUT)
        fputs("carrel: the output limit was reached and everything was ended (--max-output)\n",
              stderr);
    else if (result->reason == CARREL_ENDED_OOM)
        fputs("carrel: the kernel ended the command for lack of memory\n", stderr);
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
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
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

static int run_it(struct run_options *options)
{
    struct carrel_error error = {0};
    struct carrel_result result;
    scoped_fd int signals = take_signals();

    options->spec.signal_fd = signals;
    int r = carrel_run(&options->spec, &result, &error);
    /* In a chroot the kernel refuses user namespaces; root can do something about it. */
    if (r < 0 && error.code == CARREL_ERROR_KERNEL && error.os_errno == EPERM && geteuid() == 0 &&
        carrel_leave_chroot() == 0)
        r = carrel_run(&options->spec, &result, &error);
    if (r < 0)
        return cli_fail(error.message);
    if (options->json)
        print_json(&result);
    else
        print_end(&result);
    int status = result.exit_code;
    carrel_result_clear(&result);
    if (fflush(stdout) != 0)
        return cli_fail("write the result: standard output cannot be written");
    return status;
}

static int explain_it(const struct run_options *options)
{
    struct carrel_error error = {0};
    char *text = NULL;

    if (carrel_explain(&options->spec, options->json ? CARREL_JSON : CARREL_TEXT, &text, &error) < 0)
        return cli_fail(error.message);
    fputs(text, stdout);
    free(text);
    return fflush(stdout) == 0 ? 0 : CLI_FAILED;
}

static int load_policy(struct run_options *options, struct err *err)
{
    struct policy *policy = arena_alloc(&options->arena, sizeof(*policy));

    if (!policy)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    if (policy_load(policy, &options->arena, options->policy_path, err) < 0)
        return -1;
    return policy_apply(policy, &options->arena, &options->spec, err);
}

static int run_with(struct run_options *options, char *init_path, size_t size)
{
    char text[512];
    struct err err = {0};
    scoped_fd int input = -1;

    if (options->policy_path && load_policy(options, &err) < 0)
        return cli_fail(err_text(&err, text, sizeof(text)));
    if (options->stdin_path) {
        input = open(options->stdin_path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (input < 0) {
            err_set(&err, ERR_NOT_FOUND, errno, "open '%s' for --stdin", options->stdin_path);
            return cli_fail(err_text(&err, text, sizeof(text)));
        }
        (void)fcntl(input, F_SETFL, 0); /* only the open was not to wait */
        options->spec.stdin_fd = input;
    }
    options->spec.capture = options->json;
    if (!options->no_tty && !options->json && isatty(0) && isatty(1) && !options->stdin_path)
        options->spec.tty = true;
    options->spec.init_path = cli_init_path(init_path, size);
    return options->explain ? explain_it(options) : run_it(options);
}

int cli_run(int argc, char **argv)
{
    static struct run_options options;
    char init_path[4096];
    char text[512];
    struct err err = {0};
    int status;

    fill_standard_files();
    if (run_options_parse(&options, argc, argv, &err) < 0)
        status = cli_fail(err_text(&err, text, sizeof(text)));
    else if (options.help)
        status = fputs(help, stdout) < 0 ? CLI_FAILED : 0;
    else
        status = run_with(&options, init_path, sizeof(init_path));
    run_options_clear(&options);
    return status;
}
