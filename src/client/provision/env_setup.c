/* SPDX-License-Identifier: Apache-2.0 */
/* carrel env setup: uv, pip and bun from their registries into DIR/.carrel/tools. No daemon has a
 * part in it; one that runs shows the new ones to the sandboxes it starts from then on.
 *
 *   look (index) --> same as recorded: nothing to do
 *                --> load, check the hash, unpack beside --> all that could be had: publish
 *
 * A tool that cannot be had now stays as it is there; which, and why, is said. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "base/fd.h"
#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/text.h"
#include "client/provision/env_setup.h"
#include "client/provision/fetch.h"
#include "client/provision/packages.h"
#include "client/provision/registries.h"
#include "client/provision/toolbox.h"
#include "policy/units.h"
#include "protocol/settings.h"

enum {
    PAGE_MOST = 64 * 1024 * 1024,
    PATIENCE_S = 30,
    LONGEST_S = 3600,
};

static const char help[] =
    "usage: carrel env setup [--index URL] [--registry URL] [--ca FILE] [--offline]\n"
    "                        [--uv VERSION] [--pip VERSION] [--bun VERSION] [--config FILE]\n"
    "\n"
    "Fetches uv and pip from an index of Python packages and bun from npm's registry,\n"
    "checks them against the hashes given there, and puts them where every workspace sees\n"
    "them as /opt/carrel, read-only. Run again, it looks for newer ones. Whatever fails,\n"
    "the tools that are there stay.\n"
    "\n"
    "  --index URL       of Python packages; else package_index of --config, else\n"
    "                    UV_DEFAULT_INDEX, UV_INDEX_URL, PIP_INDEX_URL, else that of pip\n"
    "  --registry URL    of Node packages; else package_registry of --config, else\n"
    "                    npm_config_registry, else that of npm\n"
    "  --ca FILE         certificate authorities; else package_ca of --config, else\n"
    "                    SSL_CERT_FILE, else the system's\n"
    "  --uv, --pip, --bun VERSION   this one, not the newest\n"
    "  --offline         fetch nothing: look whether they are there, whole\n"
    "  --timeout SECONDS how long a server may send nothing (30)\n"
    "  --config FILE     the daemon's settings: what carrel serve is given\n"
    "  --json            print one JSON object\n"
    "  --state DIR       the daemon's state directory\n"
    "\n"
    "examples:\n"
    "  carrel env setup\n"
    "  carrel env setup --index https://mirror.example/simple --ca /etc/ssl/mirror.pem\n";

struct setup {
    struct args_common common;
    const char *index;
    const char *registry;
    char index_room[PACKAGE_URL];
    char registry_room[PACKAGE_URL];
    const char *ca;
    const char *config;
    const char *timeout;
    const char *versions[TOOL_COUNT_];
    bool offline;
    struct settings settings;
    char state[WHERE_PATH];
    bool make_state;
    struct platform host;
    struct utsname name;
    struct toolbox box;
    json_t *report;
    bool added;
    bool failed;
};

/* --- what is asked for --- */

static const char *first_of(const char *a, const char *b, const char *const *variables)
{
    if (a || (b && *b))
        return a ? a : b;
    for (; *variables; variables++) {
        const char *value = where_env(*variables);
        if (value)
            return value;
    }
    return NULL;
}

/* Clients are asked only when something is to be fetched: it takes them a while to answer. */
static int find_index(struct setup *s, struct err *err)
{
    if (!s->index)
        s->index = registries_of_pip(s->index_room, sizeof(s->index_room));
    if (!s->index)
        return err_set(err, ERR_NOT_FOUND, 0,
                       "no index of Python packages is known here: give --index URL (or the "
                       "setting package_index), or install pip, whose own is used then");
    return 0;
}

static int find_registry(struct setup *s, struct err *err)
{
    if (!s->registry)
        s->registry = registries_of_npm(s->registry_room, sizeof(s->registry_room));
    if (!s->registry)
        return err_set(err, ERR_NOT_FOUND, 0,
                       "no registry of Node packages is known here: give --registry URL (or the "
                       "setting package_registry), or install npm, whose own is used then");
    return 0;
}

static int read_config(struct setup *s, struct err *err)
{
    static const char *const index_names[] = {"UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL",
                                              NULL};
    static const char *const registry_names[] = {"npm_config_registry", "NPM_CONFIG_REGISTRY",
                                                 NULL};
    static const char *const ca_names[] = {"SSL_CERT_FILE", NULL};

    settings_init(&s->settings);
    if (s->config && settings_read_file(&s->settings, s->config, err) < 0)
        return -1;
    s->index = first_of(s->index, s->settings.package_index, index_names);
    s->registry = first_of(s->registry, s->settings.package_registry, registry_names);
    s->ca = first_of(s->ca, s->settings.package_ca, ca_names);
    s->offline = s->offline || s->settings.package_offline;
    const char *state = s->common.state      ? s->common.state
                        : *s->settings.state ? s->settings.state
                                             : NULL;
    s->make_state = !state;
    return where_state(state, s->state, sizeof(s->state), err);
}

static int check_options(struct setup *s, struct fetch *f, struct err *err)
{
    uint64_t seconds = PATIENCE_S;

    if (s->timeout && units_parse_count(s->timeout, LONGEST_S, &seconds) < 0)
        return err_set(err, ERR_INVALID, 0, "--timeout '%.40s': write seconds, from 1 to %d",
                       s->timeout, LONGEST_S);
    if (s->ca && access(s->ca, R_OK) < 0)
        return err_set(err, ERR_NOT_FOUND, errno,
                       "the file of certificate authorities '%.200s' cannot be read", s->ca);
    *f = (struct fetch){.ca = s->ca,
                        .patience_s = (long)seconds,
                        .shows_progress = !s->common.json && isatty(STDERR_FILENO)};
    return 0;
}

static void read_host(struct setup *s)
{
    s->host = (struct platform){.machine = "unknown", .musl = true};
    if (uname(&s->name) == 0)
        s->host.machine = s->name.machine;
#ifdef __GLIBC__
    const char *minor = strchr(gnu_get_libc_version(), '.');
    s->host.musl = false;
    s->host.glibc = minor ? (unsigned)strtoul(minor + 1, NULL, 10) : 0;
#endif
#ifdef __x86_64__
    s->host.avx2 = __builtin_cpu_supports("avx2");
#endif
}

/* --- the report --- */

static void note(struct setup *s, enum tool tool, const char *state, const char *version,
                 const char *why)
{
    json_object_set_new(
        s->report, tool_names[tool],
        json_pack("{s:s, s:s?, s:s?}", "state", state, "version", version, "error", why));
}

static void say(const char *tool, const json_t *entry)
{
    const char *version = client_text(entry, "version");
    const char *why = client_text(entry, "error");
    char line[640];

    if (!why) {
        printf("%s %s %s\n", tool, version, client_text(entry, "state"));
        return;
    }
    snprintf(line, sizeof(line), "%s%s%.40s: %s", tool, version ? " stays at " : " is missing",
             version ? version : "", why);
    cli_say(line);
}

static const char *version_of(const json_t *entry)
{
    return client_text(entry, "version");
}

/* Why there is no new one; the old one, if there is one, stays. */
static void note_failure(struct setup *s, enum tool tool, const struct err *err)
{
    char why[512];

    s->failed = true;
    note(s, tool, "failed", version_of(toolbox_find(&s->box, tool)),
         err_text(err, why, sizeof(why)));
}

/* --- one tool --- */

static int look_in_index(struct setup *s, struct fetch *f, enum tool tool, struct package *ret,
                         char *place, struct err *err)
{
    scoped_buf struct buf page;
    char url[PACKAGE_URL];
    size_t n = strlen(s->index);

    buf_init(&page, PAGE_MOST);
    f->option = "--index";
    while (n > 0 && s->index[n - 1] == '/')
        n--;
    snprintf(url, sizeof(url), "%.*s/%s/", (int)n, s->index, tool_names[tool]);
    if (fetch_page(f, url,
                   "Accept: application/vnd.pypi.simple.v1+json, text/html;q=0.5, */*;q=0.1", &page,
                   place, err) < 0)
        return -1;
    const struct wheel_wish wish = {tool_names[tool], s->versions[tool], &s->host};
    return packages_wheel(page.p, page.n, &wish, ret, err);
}

/* A registry that passes another's answers on names the other's addresses; the files are to be had
 * from it. */
static void use_registry(const char *registry, size_t n, struct package *package)
{
    const char *host = strstr(package->url, "://");
    const char *path = host ? strchr(host + 3, '/') : NULL;
    char url[PACKAGE_URL];

    if (!path || strncmp(path, "/@oven/", 7) != 0)
        return;
    snprintf(url, sizeof(url), "%.*s%s", (int)n, registry, path);
    memcpy(package->url, url, strlen(url) + 1);
}

static int look_in_registry(struct setup *s, struct fetch *f, enum tool tool, struct package *ret,
                            char *place, struct err *err)
{
    scoped_buf struct buf page;
    char url[PACKAGE_URL];
    const char *name = packages_bun(&s->host);
    size_t n = strlen(s->registry);

    buf_init(&page, PAGE_MOST);
    f->option = "--registry";
    if (!name)
        return err_set(err, ERR_KERNEL, 0, "there is no bun for %s", s->host.machine);
    while (n > 0 && s->registry[n - 1] == '/')
        n--;
    const char *slash = strchr(name, '/');
    snprintf(url, sizeof(url), "%.*s/%.*s%%2f%s", (int)n, s->registry, (int)(slash - name), name,
             slash + 1);
    if (fetch_page(f, url, "Accept: application/vnd.npm.install-v1+json, application/json;q=0.5",
                   &page, place, err) < 0 ||
        packages_npm(page.p, page.n, s->versions[tool], ret, err) < 0)
        return -1;
    use_registry(s->registry, n, ret);
    return 0;
}

static int load(struct setup *s, const struct fetch *f, enum tool tool, const char *place,
                const struct package *package, struct err *err)
{
    char hash[PACKAGE_HASH + 16];

    if (toolbox_begin(&s->box, err) < 0)
        return -1;
    scoped_fd int fd = toolbox_spare(&s->box, err);
    if (fd < 0 || fetch_package(f, place, package, fd, err) < 0)
        return -1;
    snprintf(hash, sizeof(hash), "%s:%s", package->algorithm, package->hash);
    const struct toolbox_archive archive = {
        .fd = fd, .name = package->file, .version = package->version, .hash = hash};
    return toolbox_add(&s->box, tool, &archive, err);
}

static bool is_the_same(const json_t *there, const struct package *package)
{
    const char *hash = client_text(there, "hash");
    size_t n = strlen(package->algorithm);

    return hash && strncmp(hash, package->algorithm, n) == 0 && hash[n] == ':' &&
           strcmp(hash + n + 1, package->hash) == 0;
}

/* A tool that is there, and stays; the names it is called by are Carrel's, and made anew if they
 * are not as they should be. */
static void keep(struct setup *s, enum tool tool, const json_t *there, const char *state)
{
    bool right = toolbox_names_are_right(&s->box, tool);

    s->added = s->added || !right;
    note(s, tool, right ? state : "is there, and its script is new", version_of(there), NULL);
}

static void bring(struct setup *s, struct fetch *f, enum tool tool)
{
    struct package package = {.algorithm = ""};
    struct err err = {0};
    char place[PACKAGE_URL];
    const json_t *there = toolbox_find(&s->box, tool);
    int r = tool == TOOL_BUN ? find_registry(s, &err) : find_index(s, &err);

    if (r == 0)
        r = tool == TOOL_BUN ? look_in_registry(s, f, tool, &package, place, &err)
                             : look_in_index(s, f, tool, &package, place, &err);
    if (r == 0 && is_the_same(there, &package)) {
        keep(s, tool, there, "is up to date");
        return;
    }
    if (r == 0)
        r = load(s, f, tool, place, &package, &err);
    if (r < 0) {
        note_failure(s, tool, &err);
        return;
    }
    s->added = true;
    note(s, tool, there ? "is new" : "is there now", package.version, NULL);
}

static void only_look(struct setup *s, enum tool tool)
{
    const json_t *there = toolbox_find(&s->box, tool);
    struct err err;

    if (there) {
        keep(s, tool, there, "is there");
        return;
    }
    err_set(&err, ERR_NOT_FOUND, 0, "run 'carrel env setup' without --offline");
    note_failure(s, tool, &err);
}

static int set_up(struct setup *s, struct err *err)
{
    struct fetch f;

    if (read_config(s, err) < 0 || check_options(s, &f, err) < 0)
        return -1;
    read_host(s);
    if (toolbox_open(&s->box, s->state, s->make_state, err) < 0)
        return -1;
    for (enum tool tool = TOOL_UV; tool < TOOL_COUNT_; tool++) {
        if (s->offline)
            only_look(s, tool);
        else
            bring(s, &f, tool);
    }
    return s->added ? toolbox_publish(&s->box, err) : 0;
}

static int show(struct setup *s)
{
    if (s->common.json)
        return client_print(json_pack("{s:s, s:b, s:O}", "directory", s->box.path, "changed",
                                      s->added, "tools", s->report));
    for (enum tool tool = TOOL_UV; tool < TOOL_COUNT_; tool++)
        say(tool_names[tool], json_object_get(s->report, tool_names[tool]));
    return fflush(stdout) == 0 ? 0 : cli_fail("standard output cannot be written");
}

static int finish(struct setup *s, int r, const struct err *err)
{
    int status = r < 0 ? client_fail(err) : show(s);

    if (status == 0 && s->failed)
        status = CLI_FAILED;
    toolbox_close(&s->box);
    json_decref(s->report);
    return status;
}

int env_setup(char **argv)
{
    static struct setup s = {.common = {.verb = "env setup"},
                             .box = {.top = -1, .lock = -1, .old = -1, .fresh = -1}};
    const struct args_rule rules[] = {
        {"--index", ARGS_TEXT, &s.index},
        {"--registry", ARGS_TEXT, &s.registry},
        {"--ca", ARGS_TEXT, &s.ca},
        {"--config", ARGS_TEXT, &s.config},
        {"--timeout", ARGS_TEXT, &s.timeout},
        {"--uv", ARGS_TEXT, &s.versions[TOOL_UV]},
        {"--pip", ARGS_TEXT, &s.versions[TOOL_PIP]},
        {"--bun", ARGS_TEXT, &s.versions[TOOL_BUN]},
        {"--offline", ARGS_FLAG, &s.offline},
        {NULL, ARGS_FLAG, NULL},
    };
    const char *words[1];
    struct err err = {0};

    if (args_all(argv + 1, rules, &s.common, words, 0, &err) < 0)
        return client_fail(&err);
    if (s.common.help)
        return cli_put(help);
    s.report = json_object();
    return finish(&s, set_up(&s, &err), &err);
}
