// SPDX-License-Identifier: Apache-2.0
// Patterns as deepagents for JavaScript reads them: compared with the whole path below the directory, names that begin with a dot are
// matched like any other, * stays within a name, ** does not.

const BRACES_MOST = 256;

function quoted(sign: string): string {
    return /[\\^$.*+?()[\]{}|/]/.test(sign) ? `\\${sign}` : sign;
}

/** "{a,b}c" as "ac" and "bc". */
function alternatives(pattern: string): string[] {
    const group = /\{([^{}]*,[^{}]*)\}/.exec(pattern);
    if (!group) return [pattern];
    const [whole, inner = ""] = group;
    const [head, tail] = [pattern.slice(0, group.index), pattern.slice(group.index + whole.length)];
    const all = inner.split(",").flatMap((one) => alternatives(head + one + tail));
    if (all.length > BRACES_MOST) throw new RangeError("the pattern's braces stand for too many patterns");
    return all;
}

function classAt(pattern: string, at: number): { source: string; end: number } | undefined {
    const end = pattern.indexOf("]", at + 2);
    if (end < 0) return undefined;
    const inner = pattern.slice(at + 1, end);
    const not = inner.startsWith("!") || inner.startsWith("^");
    const members = inner.slice(not ? 1 : 0).replace(/[\\\]^[]/g, "\\$&");
    return members === "" ? undefined : { source: not ? `[^/${members}]` : `[${members}]`, end };
}

function sourceOf(pattern: string): string {
    let source = "";
    for (let at = 0; at < pattern.length; at++) {
        const sign = pattern.charAt(at);
        const group = sign === "[" ? classAt(pattern, at) : undefined;
        if (pattern.startsWith("**/", at)) {
            source += "(?:.*/)?";
            at += 2;
        } else if (pattern.startsWith("**", at)) {
            source += ".*";
            at += 1;
        } else if (sign === "*" || sign === "?") {
            source += sign === "*" ? "[^/]*" : "[^/]";
        } else if (group) {
            source += group.source;
            at = group.end;
        } else {
            source += quoted(sign);
        }
    }
    return source;
}

export interface Wanted {
    /** The directories that the pattern begins with, without signs: only what is below them is looked at. */
    base: string;
    /** How far below; undefined: all of it. */
    depth: number | undefined;
    /** Of the path below the directory that was searched. */
    matches: (path: string) => boolean;
}

export function wantedOf(pattern: string): Wanted {
    const plain = pattern.replace(/^\/+/, "");
    const regex = new RegExp(`^(?:${alternatives(plain).map(sourceOf).join("|")})$`, "su");
    const parts = plain.split("/");
    const first = parts.findIndex((part) => /[*?[{]/.test(part));
    const fixed = parts.slice(0, first < 0 ? parts.length - 1 : first);
    // Braces may hold a slash, and then say nothing about how deep.
    const deep = plain.includes("**") || /\{[^}]*\//.test(plain);
    return { base: fixed.join("/"), depth: deep ? undefined : parts.length - fixed.length, matches: (path) => regex.test(path) };
}
