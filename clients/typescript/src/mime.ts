// SPDX-License-Identifier: Apache-2.0
// What kind of file a name stands for: which a model reads line by line, and which it looks at. What has no row is text. As in
// deepagents, which sends what is no text in base64.

const KINDS: Record<string, string> = {
    "image/png": "png", "image/jpeg": "jpg jpeg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg", "image/heic": "heic",
    "image/heif": "heif",
    "audio/mpeg": "mp3", "audio/wav": "wav", "audio/aiff": "aiff", "audio/aac": "aac", "audio/ogg": "ogg", "audio/flac": "flac",
    "video/mp4": "mp4", "video/webm": "webm", "video/mpeg": "mpeg mpg", "video/quicktime": "mov", "video/x-msvideo": "avi",
    "video/x-flv": "flv", "video/x-ms-wmv": "wmv", "video/3gpp": "3gpp",
    "application/pdf": "pdf", "application/vnd.ms-powerpoint": "ppt", "application/json": "json", "application/javascript": "js mjs cjs",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
};
const BY_ENDING = new Map(Object.entries(KINDS).flatMap(([kind, endings]) => endings.split(" ").map((ending) => [ending, kind] as const)));

export function mimeType(path: string): string {
    const name = path.slice(path.lastIndexOf("/") + 1);
    const dot = name.lastIndexOf(".");
    return (dot > 0 ? BY_ENDING.get(name.slice(dot + 1).toLowerCase()) : undefined) ?? "text/plain";
}

export function isText(mime: string): boolean {
    return mime.startsWith("text/") || mime === "application/json" || mime === "application/javascript" || mime === "image/svg+xml";
}
