/* SPDX-License-Identifier: Apache-2.0 */
/* carrel env setup: its options, and what the daemon's settings say instead. */
#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/where.h"
#include "client/workspace/provision.h"
#include "protocol/settings.h"

static const char help[] =
    "usage: carrel env setup [--index URL] [--registry URL] [--ca FILE] [--offline]\n"
    "                        [--uv VERSION] [--pip VERSION] [--bun VERSION]\n"
    "                        [--timeout SECONDS] [--config FILE]\n"
    "\n"
    "Fetches uv and pip from an index of Python packages and bun from npm's registry,\n"
    "checks them against the hashes given there, and puts them where every workspace sees\n"
    "them as /opt/carrel, read-only. Run it again to look for newer versions. If something\n"
    "fails, the existing tools stay.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel env setup\n"
    "  carrel env setup --index https://mirror.example/simple --ca /etc/ssl/mirror.pem\n";

struct setup {
    struct args_common common;
    const char *index;
    const char *registry;
    const char *ca;
    const char *config;
    const char *timeout;
    const char *uv;
    const char *pip;
    const char *bun;
    bool offline;
};

/* What was not said on the command line. */
static int take_settings(struct setup *s, struct settings *settings, struct err *err)
{
    settings_init(settings);
    if (s->config && settings_read_file(settings, s->config, err) < 0)
        return -1;

    const struct {
        const char **option;
        const char *setting;
    } others[] = {{&s->index, settings->package_index},
                  {&s->registry, settings->package_registry},
                  {&s->ca, settings->package_ca},
                  {&s->common.state, settings->state}};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (!*others[i].option && *others[i].setting)
            *others[i].option = others[i].setting;
    }
    s->offline = s->offline || settings->package_offline;
    return 0;
}

static int set_up(struct setup *s)
{
    static struct settings settings;
    static char state[WHERE_PATH];
    struct provision p;
    struct err err = {0};

    if (take_settings(s, &settings, &err) < 0 ||
        where_state(s->common.state, state, sizeof(state), &err) < 0)
        return client_fail(&err);
    provision_begin(&p, "env-setup");
    provision_add(&p, "state", state);
    provision_flag(&p, "make-state", !s->common.state);
    provision_add(&p, "index", s->index);
    provision_add(&p, "registry", s->registry);
    provision_add(&p, "ca", s->ca);
    provision_add(&p, "timeout", s->timeout);
    provision_add(&p, "uv", s->uv);
    provision_add(&p, "pip", s->pip);
    provision_add(&p, "bun", s->bun);
    provision_flag(&p, "offline", s->offline);
    provision_flag(&p, "json", s->common.json);
    return provision_run(&p);
}

int env_setup(char **argv)
{
    struct setup s = {.common = {.verb = "env setup"}};
    const struct args_rule rules[] = {
        {"--index", "URL",
         "fetch Python packages from this index\nelse package_index of --config, else "
         "UV_DEFAULT_INDEX,\nUV_INDEX_URL, PIP_INDEX_URL, else that of pip",
         ARGS_TEXT, &s.index},
        {"--registry", "URL",
         "fetch Node packages from this registry\nelse package_registry of --config, "
         "else\nnpm_config_registry, else that of npm",
         ARGS_TEXT, &s.registry},
        {"--ca", "FILE",
         "trust these certificate authorities\nelse package_ca of --config, else SSL_CERT_FILE, "
         "else\nthe system's",
         ARGS_TEXT, &s.ca},
        {"--config", "FILE", "read the daemon's settings, as carrel serve does", ARGS_TEXT,
         &s.config},
        {"--timeout", "SECONDS", "fail when a server sends nothing for SECONDS (default 30)",
         ARGS_TEXT, &s.timeout},
        {"--uv", "VERSION", "fetch this version of uv, not the newest", ARGS_TEXT, &s.uv},
        {"--pip", "VERSION", "fetch this version of pip, not the newest", ARGS_TEXT, &s.pip},
        {"--bun", "VERSION", "fetch this version of bun, not the newest", ARGS_TEXT, &s.bun},
        {"--offline", NULL, "fetch nothing; check that the tools are there and whole", ARGS_FLAG,
         &s.offline},
        {0},
    };
    const char *words[1];
    int status = client_begin(argv + 1, help, rules, &s.common, words, 0);
    if (status >= 0)
        return status;
    return set_up(&s);
}
