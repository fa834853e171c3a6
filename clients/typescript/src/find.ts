// SPDX-License-Identifier: Apache-2.0
// Where the daemon is: found as the command line finds it.
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { InvalidRequest } from "./errors.js";

export interface Where {
    url: string;
    /** The path of the Unix socket; undefined: TCP. */
    socket?: string;
    key?: string;
}

const SOCKET_PATH_MOST = 107; // bytes that the kernel has room for

/** The state directory of a daemon that was given none. */
function stateDir(): string {
    if (process.geteuid?.() === 0) return "/var/lib/carrel";
    const base = process.env.XDG_STATE_HOME ?? ""; // relative ones are to be ignored, its specification says
    return join(base.startsWith("/") ? base : join(homedir(), ".local", "state"), "carrel");
}

function atSocket(path: string, key: string | undefined): Where {
    const socket = resolve(path);
    if (Buffer.byteLength(socket) > SOCKET_PATH_MOST) {
        throw new InvalidRequest(`the path of the socket, '${socket}', is too long for the kernel (${SOCKET_PATH_MOST} bytes); name a shorter one`);
    }
    return { url: "http://carrel", socket, ...(key ? { key } : {}) };
}

function atUrl(address: string, name: string, key: string | undefined): Where {
    if (!/^https?:\/\//.test(address) || !URL.canParse(address)) {
        throw new InvalidRequest(`${name} '${address}': write an address such as http://127.0.0.1:7070`);
    }
    return { url: address.replace(/\/+$/, ""), ...(key ? { key } : {}) };
}

/** url: an http(s) address, or the path of a socket; else socket; else CARREL_URL, CARREL_SOCKET, the default state directory. */
export function find(given: { url?: string | undefined; socket?: string | undefined; key?: string | undefined } = {}): Where {
    const key = given.key || process.env.CARREL_KEY || undefined;
    if (given.url && given.socket) throw new InvalidRequest("url and socket: give one of them");
    if (given.url?.startsWith("unix:")) return atSocket(given.url.slice(5), key);
    if (given.url?.startsWith("/")) return atSocket(given.url, key);
    if (given.url) return atUrl(given.url, "url", key);
    if (given.socket) return atSocket(given.socket, key);
    if (process.env.CARREL_URL) return atUrl(process.env.CARREL_URL, "CARREL_URL", key);
    return atSocket(process.env.CARREL_SOCKET || join(stateDir(), "carrel.sock"), key);
}
