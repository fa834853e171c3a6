/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times work inside: the same static program runs natively and in each sandbox, in its current
 * directory, and takes the time itself, so that starting the sandbox is not part of it.
 *
 *   iobench files MIB FILES   reads and writes, small and large; a storm of metadata
 *   iobench calls MS          each kind of system call, over and over for so long
 *   iobench time COMMAND...   how long the command takes, from fork to end
 *   iobench tree DIR FILES    times nothing: makes a tree of small files
 *
 * Prints one line for each job: JOB OPERATIONS NANOSECONDS. Debian's fio measures more, but it
 * brings a hundred libraries, which a root without them cannot load, and does not do the metadata.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pace.h"

enum {
    SMALL = 4096,
    LARGE = 1 << 20,
    SMALL_OPERATIONS = 8192,
    DURABLE_OPERATIONS = 24,
    FILES_IN_DIRECTORY = 100,
    CALLS_IN_BATCH = 200,
};

static const char data_file[] = "iobench.data";
static char block[LARGE];

static void check(bool good, const char *what)
{
    if (!good)
        err(EXIT_OWN, "%s", what);
}

static void print_job(const char *name, long operations, int64_t nanoseconds)
{
    printf("%s %ld %jd\n", name, operations, (intmax_t)nanoseconds);
}

/* --- reads and writes ------------------------------------------------------------------------- */

static void write_large(int fd, long mib)
{
    int64_t begin = now();
    for (long i = 0; i < mib; i++)
        check(write(fd, block, LARGE) == LARGE, "write");
    print_job("write-large", mib, now() - begin);
    check(fsync(fd) == 0, "fsync"); /* so that writing back falls into no other job */
}

static void read_large(int fd, long mib)
{
    int64_t begin = now();
    for (long i = 0; i < mib; i++)
        check(pread(fd, block, LARGE, i * LARGE) == LARGE, "read");
    print_job("read-large", mib, now() - begin);
}

static off_t somewhere(uint64_t *random, long mib)
{
    *random = *random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (off_t)((*random >> 33) % (uint64_t)(mib * (LARGE / SMALL))) * SMALL;
}

static void read_small(int fd, long mib)
{
    uint64_t random = 1;
    int64_t begin = now();
    for (int i = 0; i < SMALL_OPERATIONS; i++)
        check(pread(fd, block, SMALL, somewhere(&random, mib)) == SMALL, "read");
    print_job("read-small", SMALL_OPERATIONS, now() - begin);
}

static void write_small(int fd, long mib)
{
    uint64_t random = 2;
    int64_t begin = now();
    for (int i = 0; i < SMALL_OPERATIONS; i++)
        check(pwrite(fd, block, SMALL, somewhere(&random, mib)) == SMALL, "write");
    print_job("write-small", SMALL_OPERATIONS, now() - begin);
    check(fsync(fd) == 0, "fsync");
}

static void write_durable(int fd, long mib)
{
    uint64_t random = 3;
    int64_t begin = now();
    for (int i = 0; i < DURABLE_OPERATIONS; i++) {
        check(pwrite(fd, block, SMALL, somewhere(&random, mib)) == SMALL, "write");
        check(fdatasync(fd) == 0, "fdatasync");
    }
    print_job("write-durable", DURABLE_OPERATIONS, now() - begin);
}

/* --- metadata --------------------------------------------------------------------------------- */

static const char *name_of(const char *kind, long i)
{
    static char name[64];

    snprintf(name, sizeof name, "iobench.%ld/%s%ld", i / FILES_IN_DIRECTORY, kind, i);
    return name;
}

static void create_file(long i)
{
    int fd = open(name_of("a", i), O_CREAT | O_WRONLY | O_EXCL | O_CLOEXEC, 0644);
    check(fd >= 0 && close(fd) == 0, "create");
}

static void stat_file(long i)
{
    struct stat st;
    check(stat(name_of("a", i), &st) == 0, "stat");
}

static void rename_file(long i)
{
    char from[64];
    snprintf(from, sizeof from, "%s", name_of("a", i));
    check(rename(from, name_of("b", i)) == 0, "rename");
}

static void unlink_file(long i)
{
    check(unlink(name_of("b", i)) == 0, "unlink");
}

static void metadata_storm(long files)
{
    static const struct {
        const char *name;
        void (*act)(long);
    } jobs[] = {{"create", create_file},
                {"stat", stat_file},
                {"rename", rename_file},
                {"unlink", unlink_file}};

    char directory[64];
    long directories = (files + FILES_IN_DIRECTORY - 1) / FILES_IN_DIRECTORY;

    for (long i = 0; i < directories; i++) {
        snprintf(directory, sizeof directory, "iobench.%ld", i);
        check(mkdir(directory, 0755) == 0, directory);
    }
    for (size_t job = 0; job < sizeof jobs / sizeof *jobs; job++) {
        int64_t begin = now();
        for (long i = 0; i < files; i++)
            jobs[job].act(i);
        print_job(jobs[job].name, files, now() - begin);
    }
    for (long i = 0; i < directories; i++) {
        snprintf(directory, sizeof directory, "iobench.%ld", i);
        check(rmdir(directory) == 0, directory);
    }
}

static void time_files(long mib, long files)
{
    int fd = open(data_file, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);
    check(fd >= 0, data_file);
    memset(block, 'c', sizeof block);
    write_large(fd, mib);
    read_large(fd, mib);
    read_small(fd, mib);
    write_small(fd, mib);
    write_durable(fd, mib);
    check(close(fd) == 0 && unlink(data_file) == 0, data_file);
    metadata_storm(files);
}

/* --- system calls ----------------------------------------------------------------------------- */

static int null_fd;

static void call_getppid(void)
{
    (void)getppid();
}

static void call_read(void)
{
    char c;
    check(read(null_fd, &c, 1) == 0, "read");
}

static void call_write(void)
{
    check(write(null_fd, "", 1) == 1, "write");
}

static void call_stat(void)
{
    struct stat st;
    check(stat(".", &st) == 0, "stat");
}

static void call_open_close(void)
{
    int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(fd >= 0 && close(fd) == 0, "open");
}

static void call_ioctl(void)
{
    int n;
    (void)ioctl(-1, FIONREAD,
                &n); /* fails at once: what is left is the way in, the filter, and out */
}

static void time_calls(long milliseconds)
{
    static const struct {
        const char *name;
        void (*call)(void);
    } jobs[] = {{"getppid", call_getppid}, {"read", call_read},   {"write", call_write},
                {"stat", call_stat},       {"ioctl", call_ioctl}, {"open+close", call_open_close}};

    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    check(null_fd >= 0, "/dev/null");
    for (size_t job = 0; job < sizeof jobs / sizeof *jobs; job++) {
        long operations = 0;
        int64_t begin = now();
        int64_t took;
        do {
            for (int i = 0; i < CALLS_IN_BATCH; i++)
                jobs[job].call();
            operations += CALLS_IN_BATCH;
            took = now() - begin;
        } while (took < milliseconds * 1000000);
        print_job(jobs[job].name, operations, took);
    }
}

/* --- the rest --------------------------------------------------------------------------------- */

static void time_command(char **argv)
{
    int status;
    int64_t begin = now();
    pid_t pid = vfork();
    if (pid == 0) {
        execvp(argv[0], argv);
        _exit(127);
    }
    check(pid > 0 && waitpid(pid, &status, 0) == pid, argv[0]);
    int64_t took = now() - begin;
    if (status != 0)
        errx(EXIT_OWN, "%s ended with status %d", argv[0], status);
    print_job("time", 1, took);
}

static void make_tree(const char *top, long files)
{
    char path[4096];

    check(mkdir(top, 0755) == 0, top);
    for (long i = 0; i < files; i++) {
        if (i % FILES_IN_DIRECTORY == 0) {
            snprintf(path, sizeof path, "%s/d%ld", top, i / FILES_IN_DIRECTORY);
            check(mkdir(path, 0755) == 0, path);
        }
        snprintf(path, sizeof path, "%s/d%ld/file%ld.txt", top, i / FILES_IN_DIRECTORY, i);
        FILE *f = fopen(path, "we");
        check(f && fprintf(f, "file %ld\n", i) > 0 && fclose(f) == 0, path);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";

    if (strcmp(what, "files") == 0 && argc == 4)
        time_files(number(argv[2]), number(argv[3]));
    else if (strcmp(what, "calls") == 0 && argc == 3)
        time_calls(number(argv[2]));
    else if (strcmp(what, "time") == 0)
        time_command(argv + 2);
    else if (strcmp(what, "tree") == 0 && argc == 4)
        make_tree(argv[2], number(argv[3]));
    else
        errx(EXIT_OWN,
             "usage: iobench files MIB FILES | calls MS | time COMMAND... | tree DIR FILES");
    return fflush(stdout) == 0 ? 0 : EXIT_OWN;
}
