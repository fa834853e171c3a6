/* SPDX-License-Identifier: Apache-2.0 */
/* The pool through the public interface, with real sandboxes: carrel-init lies beside the tests. */
#include <carrel.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "unit.h"

enum {
    SIZE = 3,
    THREADS = 4,
    RUNS = 6
};

static const char *init_path(void)
{
    static char path[4200];
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    self[n > 0 ? n : 0] = '\0';
    *strrchr(self, '/') = '\0';
    *strrchr(self, '/') = '\0';
    snprintf(path, sizeof(path), "%s/carrel-init", self);
    return path;
}

static struct carrel_spec spec_of(const char *workspace, char *const *argv)
{
    return (struct carrel_spec){.workspace = workspace,
                                .create = true,
                                .argv = argv,
                                .capture = true,
                                .stdin_fd = -1,
                                .init_path = init_path()};
}

static struct carrel_pool *open_pool(const struct carrel_spec *like, uint64_t idle_ms)
{
    struct carrel_pool_options options = {.like = *like, .size = SIZE, .idle_ms = idle_ms};
    struct carrel_pool *pool = NULL;
    struct carrel_error error;

    if (carrel_pool_open(&options, &pool, &error) < 0)
        printf("%s\n", error.message);
    return pool;
}

/* Waits until so many are ready; a machine may be slow, but not for ever. */
static bool becomes_ready(struct carrel_pool *pool, unsigned wanted)
{
    struct timespec pause = {.tv_nsec = 5000000};
    struct carrel_pool_stats stats;

    for (int i = 0; i < 4000; i++) {
        carrel_pool_stats(pool, &stats);
        if (stats.ready == wanted)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

static unsigned open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static bool prints(const struct carrel_spec *spec, const char *expected)
{
    struct carrel_result result;
    struct carrel_error error;

    if (carrel_run(spec, &result, &error) < 0) {
        printf("%s\n", error.message);
        return false;
    }
    bool same = result.exit_code == 0 && result.out_size == strlen(expected) &&
                memcmp(result.out, expected, result.out_size) == 0;
    if (!same)
        printf("got %d '%.*s' '%.*s'\n", result.exit_code, (int)result.out_size, result.out,
               (int)result.err_size, result.err);
    carrel_result_clear(&result);
    return same;
}

TEST(a_run_takes_what_is_ready_and_sees_its_own_workspace)
{
    char *const write_a[] = {"sh", "-c", "echo a >/mine; touch /tmp/t; cat /mine; ls /tmp", NULL};
    char *const look[] = {"sh", "-c", "ls /mine /tmp 2>/dev/null; id -u; echo $$ >/dev/null", NULL};
    struct carrel_spec a = spec_of("pool-a", write_a);
    struct carrel_spec b = spec_of("pool-b", look);
    struct carrel_pool_stats stats;
    struct carrel_pool *pool = open_pool(&a, 0);

    CHECK(pool != NULL);
    a.pool = b.pool = pool;
    for (int i = 0; i < 3; i++) {
        CHECK(becomes_ready(pool, SIZE));
        CHECK(prints(&a, "a\nt\n"));
        CHECK(becomes_ready(pool, SIZE));
        CHECK(prints(&b, "/tmp:\n1000\n")); /* nothing of the other one's */
    }
    carrel_pool_stats(pool, &stats);
    CHECK(stats.taken == 6 && stats.missed == 0 && stats.cpu_ms > 0);
    struct stat st;
    CHECK(stat("pool-a/mine", &st) == 0 && stat("pool-b/mine", &st) < 0);
    CHECK(st.st_uid == geteuid());
    carrel_pool_close(pool);
    return 0;
}

/* A sandbox made ahead knows nothing of ports: whom it may connect to is asked during the run. */
TEST(metadata_addresses_and_ports_of_ours_are_refused_in_a_prepared_one_too)
{
    char *const argv[] = {"bash", "-c", "</dev/tcp/169.254.169.254/80; </dev/tcp/127.0.0.1/9",
                          NULL};
    struct carrel_spec spec = spec_of("pool-net", argv);
    struct carrel_pool_stats stats;
    struct carrel_result result;
    struct carrel_error error;

    spec.net = CARREL_NET_HOST;
    struct carrel_pool *pool = open_pool(&spec, 0);
    CHECK(pool != NULL && becomes_ready(pool, SIZE));
    spec.pool = pool;
    spec.own_ports[0] = 9;
    CHECK(carrel_run(&spec, &result, &error) == 0);
    carrel_pool_stats(pool, &stats);
    CHECK(stats.taken == 1);
    CHECK(result.denial_count == 2);
    CHECK(strcmp(result.denials[0].what, "connect 169.254.169.254:80") == 0);
    CHECK(strcmp(result.denials[0].rule, "metadata address") == 0);
    CHECK(strcmp(result.denials[1].rule, "Carrel's own port") == 0);
    carrel_result_clear(&result);
    carrel_pool_close(pool);
    return 0;
}

TEST(what_does_not_fit_is_made_afresh)
{
    char *const argv[] = {"sh", "-c", "id -u", NULL};
    struct carrel_spec like = spec_of("pool-c", argv);
    struct carrel_pool_stats stats;
    struct carrel_pool *pool = open_pool(&like, 0);

    CHECK(pool != NULL && becomes_ready(pool, SIZE));
    struct carrel_spec other = like;
    other.pool = pool;
    other.user = CARREL_USER_ROOT;
    CHECK(prints(&other, "0\n"));
    other.user = CARREL_USER_DEFAULT;
    other.tmp_bytes = 1 << 20;
    CHECK(prints(&other, "1000\n"));
    carrel_pool_stats(pool, &stats);
    CHECK(stats.taken == 0 && stats.missed == 2);
    /* Extra mounts, variables and the current directory at /work belong to the run: they fit. */
    struct carrel_mount mount = {"pool-c", "/data", false, NULL, 0};
    const char *const env[] = {"X=1", NULL};
    other = like;
    other.pool = pool;
    other.workspace = NULL;
    other.create = false;
    other.mounts = &mount;
    other.mount_count = 1;
    other.env = env;
    char *const ask[] = {"sh", "-c", "echo $X; pwd; touch /data/x 2>/dev/null || echo read-only",
                         NULL};
    other.argv = ask;
    CHECK(prints(&other, "1\n/work\nread-only\n"));
    carrel_pool_stats(pool, &stats);
    CHECK(stats.taken == 1);
    carrel_pool_close(pool);
    return 0;
}

TEST(a_pool_nobody_uses_empties_itself_and_fills_again)
{
    char *const argv[] = {"true", NULL};
    struct carrel_spec spec = spec_of("pool-d", argv);
    struct carrel_pool *pool = open_pool(&spec, 3000);

    CHECK(pool != NULL);
    CHECK(becomes_ready(pool, 0));
    spec.pool = pool;
    CHECK(prints(&spec, ""));
    CHECK(becomes_ready(pool, SIZE));
    CHECK(becomes_ready(pool, 0));
    carrel_pool_close(pool);
    return 0;
}

TEST(a_pool_opens_even_when_its_first_one_is_let_go_at_once)
{
    char *const argv[] = {"true", NULL};
    struct carrel_spec spec = spec_of("pool-h", argv);

    for (int i = 0; i < 5; i++) {
        struct carrel_pool *pool = open_pool(&spec, 1);

        CHECK(pool != NULL);
        carrel_pool_close(pool);
    }
    return 0;
}

static struct carrel_spec shared;
static int wrong;

static void *run_many(void *unused)
{
    (void)unused;
    for (int i = 0; i < RUNS; i++) {
        if (!prints(&shared, "hi\n"))
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

TEST(many_threads_share_a_pool_and_nothing_is_left_of_it)
{
    char *const argv[] = {"sh", "-c", "sleep 0 & echo hi", NULL};
    pthread_t threads[THREADS];
    unsigned before = open_files();

    shared = spec_of("pool-e", argv);
    shared.pool = open_pool(&shared, 0);
    CHECK(shared.pool != NULL);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run_many, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(wrong == 0);
    carrel_pool_close(shared.pool);
    CHECK(open_files() == before);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    return 0;
}

TEST(a_deadline_is_the_runs_own)
{
    char *const argv[] = {"sleep", "60", NULL};
    struct carrel_spec spec = spec_of("pool-f", argv);
    struct carrel_pool *pool = open_pool(&spec, 0);
    struct carrel_result result;
    struct carrel_error error;

    CHECK(pool != NULL && becomes_ready(pool, SIZE));
    spec.pool = pool;
    spec.timeout_ms = 200;
    CHECK(carrel_run(&spec, &result, &error) == 0);
    CHECK(result.reason == CARREL_ENDED_TIMEOUT && result.exit_code == 124);
    carrel_result_clear(&result);
    carrel_pool_close(pool);
    return 0;
}

TEST(pools_that_cannot_be_are_refused_in_words)
{
    char *const argv[] = {"true", NULL};
    struct carrel_pool_options options = {.like = spec_of("pool-g", argv), .size = 1};
    struct carrel_pool *pool = NULL;
    struct carrel_error error = {0};

    options.size = 0;
    CHECK(carrel_pool_open(&options, &pool, &error) < 0 && strstr(error.message, "1 to"));
    options.size = 1;
    options.like.level = CARREL_LEVEL_DIR;
    CHECK(carrel_pool_open(&options, &pool, &error) < 0 && strstr(error.message, "dir"));
    options.like.level = CARREL_LEVEL_AUTO;
    options.like.limits.io_bytes = 1;
    CHECK(carrel_pool_open(&options, &pool, &error) < 0 && strstr(error.message, "io"));
    options.like.limits.io_bytes = 0;
    options.like.init_path = "/nowhere/carrel-init";
    CHECK(carrel_pool_open(&options, &pool, &error) < 0 && strstr(error.message, "/nowhere"));
    CHECK(pool == NULL);
    return 0;
}
