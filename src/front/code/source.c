/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' programs are in ours, as a front that is confined cannot open them later, and go in
 * over standard input: nothing is mounted or written for them, and they run in any root that has
 * the language. What starts them reads a length in eight digits, then so many bytes. */
#include "front/code/code.h"

#include <string.h>

extern const char code_kernel_py[];
extern const char code_kernel_js[];

__asm__(".section .rodata\n"
        ".global code_kernel_py\n"
        "code_kernel_py:\n"
        ".incbin \"src/front/code/kernel.py\"\n"
        ".byte 0\n"
        ".global code_kernel_js\n"
        "code_kernel_js:\n"
        ".incbin \"src/front/code/kernel.js\"\n"
        ".byte 0\n"
        ".previous\n");

static const char start_python[] = "import os\n"
                                   "def r(n):\n"
                                   " b=b''\n"
                                   " while len(b)<n:\n"
                                   "  c=os.read(0,n-len(b))\n"
                                   "  if not c: os._exit(0)\n"
                                   "  b+=c\n"
                                   " return b\n"
                                   "exec(compile(r(int(r(8))),'<carrel>','exec'))";
static const char start_node[] =
    "{const f=require('fs');const r=n=>{const b=Buffer.alloc(n);for(let i=0;i<n;){"
    "const k=f.readSync(0,b,i,n-i);if(!k)process.exit(0);i+=k}return b};"
    "new Function('require','read',r(+r(8)).toString())(require,r)}";

/* Without the language a shell says so: 127. */
static const char *const python[] = {"sh", "-c", "exec python3 -c \"$0\"", start_python, NULL};
/* Code that is broken off leaves Node's own count of what called what behind, which ends Node
 * where it checks that. */
static const char *const node[] = {"sh", "-c", "exec node --no-force-async-hooks-checks -e \"$0\"",
                                   start_node, NULL};

static const struct code_program programs[CODE_LANGUAGES] = {
    [CODE_PYTHON] = {"python", "py", python, code_kernel_py, "python3"},
    [CODE_JAVASCRIPT] = {"javascript", "js", node, code_kernel_js, "node"},
    [CODE_TYPESCRIPT] = {"typescript", "ts", node, code_kernel_js, "node"},
    [CODE_BASH] = {"bash", "sh", python, code_kernel_py, "python3 (which looks after bash)"},
};

const struct code_program *code_program(enum code_language language)
{
    return &programs[language];
}

bool code_language_of(const char *name, enum code_language *ret)
{
    for (int i = 0; i < CODE_LANGUAGES; i++) {
        if (strcmp(name, programs[i].name) == 0 || strcmp(name, programs[i].other) == 0) {
            *ret = (enum code_language)i;
            return true;
        }
    }
    return false;
}
