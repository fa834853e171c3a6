/* SPDX-License-Identifier: Apache-2.0
 *
 * Attack on kernel keyrings, which no namespace cuts. "plant" is the host's side: it puts a key
 * into a session keyring of its own and becomes the command that follows, as a daemon with a key in
 * its session would start Carrel.
 */
#include "probe.h"

#include <linux/keyctl.h>

#define KEY_SPEC_SESSION -3
#define FLOOD            10000
#define ANYONE           0x3f3f3f3f

static const char name[] = "carrel-host-key";

static void plant(char **args)
{
    static const char secret[] = "secret";

    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0)
        unclear("join a session keyring");
    long key = syscall(SYS_add_key, "user", name, secret, sizeof(secret), KEY_SPEC_SESSION);
    if (key < 0 || syscall(SYS_keyctl, KEYCTL_SETPERM, key, ANYONE) < 0)
        unclear("plant a key");
    execv(args[0], args);
    unclear(args[0]);
}

static void steal(char **args)
{
    char payload[64];
    long made = 0;

    (void)args;
    long key = syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_SESSION, "user", name, 0);
    refused("search the host's key", key, EPERM);
    if (key >= 0)
        refused("read the host's key",
                syscall(SYS_keyctl, KEYCTL_READ, key, payload, sizeof(payload)), EPERM);
    refused("request_key", syscall(SYS_request_key, "user", name, NULL, 0), EPERM);
    refused("join a session keyring", syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL),
            EPERM);
    for (int i = 0; i < FLOOD; i++) {
        char each[32];
        snprintf(each, sizeof(each), "flood-%d", i);
        made += syscall(SYS_add_key, "user", each, "x", 1, KEY_SPEC_SESSION) >= 0;
    }
    if (made > 0)
        escaped("%ld of %d keys were added", made, FLOOD);
}

static const struct attack attacks[] = {
    {"plant", plant},
    {"steal", steal},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
