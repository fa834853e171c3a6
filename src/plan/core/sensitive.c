/* SPDX-License-Identifier: Apache-2.0 */
/* Files that other programs act upon without being asked to run them: by them a change to a
 * directory becomes a command on the machine of whoever opens it. A Makefile is not one of them, as
 * little as any other program: somebody has to start it. */
#include <string.h>

#include "plan/core/fold.h"
#include "plan/core/rules.h"

enum where {
    AND_BELOW, /* it, and everything in it */
    ITSELF,
};

/* Names anywhere in a path, in small letters; "*" once in a name stands for any bytes, "**"
 * before the last name for any names. */
static const struct place {
    const char *names;
    enum where where;
    const char *why;
} places[] = {

#define GIT "git runs or obeys it"
    {".git", ITSELF, GIT},
    {".git/hooks", AND_BELOW, GIT},
    {".git/config", AND_BELOW, GIT},
    {".git/config.worktree", AND_BELOW, GIT},
    {".git/commondir", AND_BELOW, GIT},
    {".git/info/attributes", AND_BELOW, GIT},
    {".git/modules", ITSELF, GIT},
    {".git/modules/**/hooks", AND_BELOW, GIT},
    {".git/modules/**/config", AND_BELOW, GIT},
    {".git/modules/**/config.worktree", AND_BELOW, GIT},
    {".git/modules/**/commondir", AND_BELOW, GIT},
    {".git/worktrees/*/config.worktree", AND_BELOW, GIT},
    {".git/worktrees/*/commondir", AND_BELOW, GIT},
    {".git/worktrees/*/gitdir", AND_BELOW, GIT},
    {".gitmodules", AND_BELOW, GIT},
    {".gitconfig", AND_BELOW, GIT},
    {".config/git", AND_BELOW, GIT},
    {".husky", AND_BELOW, GIT},
    {".githooks", AND_BELOW, GIT},
    {".pre-commit-config.yaml", AND_BELOW, GIT},
    {"lefthook*", AND_BELOW, GIT},
    {".hg/hgrc", AND_BELOW, "Mercurial obeys it"},
    {".jj/**/config.toml", AND_BELOW, "Jujutsu obeys it"},
#define SHELL "a shell reads it when it starts"
    {".*rc", AND_BELOW, "programs read it when they start"},
    {".*rc.*", AND_BELOW, "programs read it when they start"},
    {".bash_*", AND_BELOW, SHELL},
    {".profile", AND_BELOW, SHELL},
    {".zshenv", AND_BELOW, SHELL},
    {".zprofile", AND_BELOW, SHELL},
    {".zlog*", AND_BELOW, SHELL},
    {".login", AND_BELOW, SHELL},
    {".logout", AND_BELOW, SHELL},
    {".xprofile", AND_BELOW, SHELL},
    {".xsession*", AND_BELOW, SHELL},
    {".pam_environment", AND_BELOW, SHELL},
    {".config/fish", AND_BELOW, SHELL},
    {".config/environment.d", AND_BELOW, SHELL},
    {".rprofile", AND_BELOW, "programs read it when they start"},
    {"mise.toml", AND_BELOW, SHELL},
    {".mise.toml", AND_BELOW, SHELL},
    {".gdbinit", AND_BELOW, "a debugger runs it when it starts"},
    {".lldbinit*", AND_BELOW, "a debugger runs it when it starts"},
#define CI "a build server runs it"
    {".github", AND_BELOW, CI},
    {".gitlab", AND_BELOW, CI},
    {".gitlab-ci*", AND_BELOW, CI},
    {".forgejo", AND_BELOW, CI},
    {".gitea", AND_BELOW, CI},
    {".circleci", AND_BELOW, CI},
    {".buildkite", AND_BELOW, CI},
    {".woodpecker*", AND_BELOW, CI},
    {".travis.yml", AND_BELOW, CI},
    {".drone.yml", AND_BELOW, CI},
    {".appveyor.yml", AND_BELOW, CI},
    {"appveyor.yml", AND_BELOW, CI},
    {"jenkinsfile*", AND_BELOW, CI},
    {"azure-pipelines*", AND_BELOW, CI},
    {"bitbucket-pipelines.yml", AND_BELOW, CI},
#define EDITOR "an editor obeys it when it opens the directory"
    {".vscode", AND_BELOW, EDITOR},
    {"*.code-workspace", AND_BELOW, EDITOR},
    {".idea", AND_BELOW, EDITOR},
    {".devcontainer*", AND_BELOW, EDITOR},
    {".dir-locals.el", AND_BELOW, EDITOR},
    {".zed", AND_BELOW, EDITOR},
    {".nvim.lua", AND_BELOW, EDITOR},
    {".config/nvim", AND_BELOW, EDITOR},
    {".emacs", AND_BELOW, EDITOR},
    {".emacs.d", AND_BELOW, EDITOR},
#define AGENT "an agent takes it for instructions"
    {".claude", AND_BELOW, AGENT},
    {"claude.md", AND_BELOW, AGENT},
    {"claude.local.md", AND_BELOW, AGENT},
    {".codex", AND_BELOW, AGENT},
    {"agents.md", AND_BELOW, AGENT},
    {".gemini", AND_BELOW, AGENT},
    {"gemini.md", AND_BELOW, AGENT},
    {".cursor*", AND_BELOW, AGENT},
    {".windsurf*", AND_BELOW, AGENT},
    {".aider*", AND_BELOW, AGENT},
    {".continue", AND_BELOW, AGENT},
    {".mcp.json", AND_BELOW, AGENT},
    {".clinerules", AND_BELOW, AGENT},
    {".roo", AND_BELOW, AGENT},
    {".kiro", AND_BELOW, AGENT},
    {"opencode.json*", AND_BELOW, AGENT},
#define PACKAGE "installing or building the package runs it"
    {"package.json", AND_BELOW, PACKAGE},
    {"setup.py", AND_BELOW, PACKAGE},
    {"build.rs", AND_BELOW, PACKAGE},
    {".cargo", AND_BELOW, PACKAGE},
    {".mvn", AND_BELOW, PACKAGE},
    {".pnpmfile.cjs", AND_BELOW, PACKAGE},
    {".yarn/releases", AND_BELOW, PACKAGE},
    {".yarn/plugins", AND_BELOW, PACKAGE},
    {"conftest.py", AND_BELOW, "Python's tests run it"},
    {"sitecustomize.py", AND_BELOW, "Python runs it when it starts"},
    {"usercustomize.py", AND_BELOW, "Python runs it when it starts"},
    {"*.pth", AND_BELOW, "Python runs it when it starts"},
#define CLOCK "it is run by the clock or at login"
    {"crontab*", AND_BELOW, CLOCK},
    {".crontab", AND_BELOW, CLOCK},
    {"cron.*", AND_BELOW, CLOCK},
    {".config/systemd", AND_BELOW, CLOCK},
    {".config/autostart", AND_BELOW, CLOCK},
#define KEYS "it holds keys, or says which are trusted"
    {".ssh", AND_BELOW, KEYS},
    {".gnupg", AND_BELOW, KEYS},
    {".aws", AND_BELOW, KEYS},
    {".azure", AND_BELOW, KEYS},
    {".kube", AND_BELOW, KEYS},
    {".docker", AND_BELOW, KEYS},
    {".config/gcloud", AND_BELOW, KEYS},
    {".netrc", AND_BELOW, KEYS},
    {".pgpass", AND_BELOW, KEYS},
    {".git-credentials", AND_BELOW, KEYS},
};

/* `name` up to its end or slash; letters of any case. */
static bool name_matches(const char *pattern, size_t n, const char *name, size_t length)
{
    const char *star = memchr(pattern, '*', n);
    size_t front = star ? (size_t)(star - pattern) : n;
    const char *rest = star ? star + 1 : NULL;
    size_t behind = rest ? n - front - 1 : 0;
    /* A second star, as in ".*rc.*", must be at the end: what is behind it does not matter. */
    bool open = behind > 0 && rest[behind - 1] == '*';

    if (star ? length < front + behind - open : length != front)
        return false;
    for (size_t i = 0; i < front; i++) {
        if (fold(name[i]) != (unsigned char)pattern[i])
            return false;
    }
    behind -= open;
    for (size_t at = open ? front : length - behind; star && at + behind <= length; at++) {
        size_t i = 0;
        while (i < behind && fold(name[at + i]) == (unsigned char)rest[i])
            i++;
        if (i == behind)
            return true;
    }
    return !star;
}

/* The length of a name: up to its end or slash. */
static size_t name_length(const char *name)
{
    const char *slash = strchrnul(name, '/');

    return (size_t)(slash - name);
}

/* Whether the place begins at `path`, a name within a path. */
static bool begins_here(const struct place *place, const char *path, bool arrives)
{
    const char *pattern = place->names;
    bool anywhere = false; /* the last name, in what is left of the path */

    while (*path) {
        size_t n = name_length(pattern);
        size_t length = name_length(path);
        if (n == 2 && memcmp(pattern, "**", 2) == 0) {
            anywhere = true;
            pattern += 3;
            continue;
        }
        bool matches = name_matches(pattern, n, path, length);
        if (!matches && !anywhere)
            return false;
        path += length + (path[length] == '/');
        if (!matches)
            continue;
        pattern += n + (pattern[n] == '/');
        if (!*pattern)
            return place->where == AND_BELOW || !*path;
    }
    return arrives; /* it may bring the rest of the place along */
}

/* Paths have thousands of names: most places are ruled out by two letters. */
static bool may_begin(const char *pattern, const char *name)
{
    for (size_t i = 0; i < 2 && pattern[i] != '*'; i++) {
        if (fold(name[i]) != (unsigned char)pattern[i])
            return false;
    }
    return true;
}

const char *plan_sensitive(const char *path, bool arrives)
{
    for (const char *name = path; *name;) {
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
            if (may_begin(places[i].names, name) && begins_here(&places[i], name, arrives))
                return places[i].why;
        }
        name += name_length(name);
        name += *name == '/';
    }
    return NULL;
}
