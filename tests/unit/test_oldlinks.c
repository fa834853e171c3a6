/* SPDX-License-Identifier: Apache-2.0 */
/* front/workspaces/oldlinks: the text of a link in, one of the bucket's own directories out, or
 * nothing. */
#include "unit.h"

#include <string.h>

#include "front/workspaces/oldlinks.h"

#define SKILLS ".solven/skills/system"

/* What it names and where inside, as "names at place"; "" : nothing. */
static const char *read_link(const char *at, const char *target)
{
    static char text[OLDLINK_PATH + 128];
    struct oldlink link;

    if (!oldlink_read("/mnt/r2/agents", "t1", at, target, &link))
        return "";
    snprintf(text, sizeof(text), "%s at %s", link.names, link.place);
    return text;
}

#define READS(at, target, expected) CHECK(strcmp(read_link(at, target), expected) == 0)

TEST(an_absolute_link_leads_to_the_same_path_inside)
{
    READS(SKILLS, "/mnt/r2/agents/skills/system", "skills/system at mnt/r2/agents/skills/system");
    READS(SKILLS, "/mnt//r2/./agents/skills/u1/", "skills/u1 at mnt/r2/agents/skills/u1");
    READS(".ticket", "/mnt/r2/agents/threads/t2", "threads/t2 at mnt/r2/agents/threads/t2");
    return 0;
}

TEST(a_relative_link_ends_at_the_root_inside)
{
    READS(SKILLS, "../../../../skills/system", "skills/system at skills/system");
    READS(SKILLS, "../../../../../agents/skills/system", "skills/system at agents/skills/system");
    READS(".ticket", "../t2", "threads/t2 at t2");
    READS(".ticket", "./../../threads/t2", "threads/t2 at threads/t2");
    READS("a/.ticket", "../../t2", "threads/t2 at t2");
    return 0;
}

TEST(nothing_else_is_taken)
{
    static const char *const others[] = {
        "",
        "/",
        ".",
        "..",
        "/etc",
        "/mnt/r2/agents",
        "/mnt/r2/agents/skills",
        "/mnt/r2/agents/skills/",
        "/mnt/r2/agents/skills/.hidden",
        "/mnt/r2/agents/skills/system/deeper",
        "/mnt/r2/agents/.carrel/t1",
        "/mnt/r2/agentsskills/system",
        "/mnt/r2/agents2/skills/system",
        "/mnt/r2/other/skills/system",
        "/mnt/r2/agents/db",
        "/mnt/r2/agents/skills/../skills/system", /* if it is a symlink, who knows where that is */
        "../../../skills/system",
        "skills/system",
        "../../../../skills/../../x/skills/system",
    };
    char longest[8192];

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        READS(SKILLS, others[i], "");
        READS(".ticket", others[i], "");
    }
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    READS(SKILLS, longest, "");
    memcpy(longest, "/mnt/r2/agents/skills/", 22);
    READS(SKILLS, longest, "");
    return 0;
}
