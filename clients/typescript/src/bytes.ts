// SPDX-License-Identifier: Apache-2.0
// Bytes as text and back. A name that is no UTF-8 is a string, too: each byte that fits nowhere becomes a lone surrogate
// U+DC80…U+DCFF, as Python's os.fsdecode has it, and comes back as that byte.

export type Path = string | Uint8Array;
/** What can be sent: text, bytes, or a stream of either. */
export type Content = string | Uint8Array | AsyncIterable<string | Uint8Array>;

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const lenient = new TextDecoder("utf-8", { ignoreBOM: true });

/** Text for people: what is no UTF-8 is replaced. */
export function text(bytes: Uint8Array): string {
    return lenient.decode(bytes);
}

function sequenceLength(first: number): number {
    return first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

export function nameOfBytes(bytes: Uint8Array): string {
    try {
        return strict.decode(bytes);
    } catch {
        // one sequence at a time
    }
    let name = "";
    for (let at = 0; at < bytes.length;) {
        const first = bytes[at] ?? 0;
        const length = sequenceLength(first);
        try {
            if (!length || at + length > bytes.length) throw new RangeError("cut off");
            name += strict.decode(bytes.subarray(at, at + length));
            at += length;
        } catch {
            name += String.fromCharCode(0xdc00 + first);
            at += 1;
        }
    }
    return name;
}

export function bytesOfName(name: Path): Buffer {
    if (typeof name !== "string") return Buffer.from(name);
    if (name.isWellFormed()) return Buffer.from(name);
    const parts: Buffer[] = [];
    for (const sign of name) {
        const code = sign.codePointAt(0) ?? 0;
        parts.push(code >= 0xdc80 && code <= 0xdcff ? Buffer.from([code - 0xdc00]) : Buffer.from(sign));
    }
    return Buffer.concat(parts);
}

/** Paths count from the workspace's root, where a command starts, too. */
export function absolute(path: Path): string {
    const name = typeof path === "string" ? path : nameOfBytes(path);
    return "/" + name.split("/").filter((part) => part !== "" && part !== ".").join("/");
}

/** A path as part of an address. */
export function pathUrl(path: Path): string {
    let url = "";
    for (const byte of bytesOfName(absolute(path))) {
        const sign = String.fromCharCode(byte);
        url += /[A-Za-z0-9_.~/-]/.test(sign) ? sign : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
    }
    return url;
}

/** A path as a member of a request. */
export function pathField(path: Path, name = "path"): Record<string, string> {
    const whole = absolute(path);
    return whole.isWellFormed() ? { [name]: whole } : { [`${name}_b64`]: bytesOfName(whole).toString("base64") };
}

export type Item = Record<string, unknown>;

/** A member that comes as text, or in base64 where it is no UTF-8. */
export function bytesField(item: Item, name: string): Buffer | undefined {
    const plain = item[name];
    if (plain !== undefined && plain !== null) return Buffer.from(String(plain));
    const raw = item[`${name}_b64`];
    return raw === undefined || raw === null ? undefined : Buffer.from(String(raw), "base64");
}

export function nameField(item: Item, name = "path"): string {
    return nameOfBytes(bytesField(item, name) ?? Buffer.alloc(0));
}

/** Without the members that nobody has given. */
export function given<T extends object>(members: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
    return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as { [K in keyof T]?: Exclude<T[K], undefined> };
}
