/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a file for a model: text by lines, an image as an image, and nothing else. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "front/mcp/mcp.h"

enum {
    IMAGE_MOST = 5 << 20,
    PAGE_MOST = 6 << 20, /* 500 KiB of lines, as JSON may write them */
};

static const char *path_of(const struct mcp_ask *ask)
{
    return json_string_value(json_object_get(ask->args, "path"));
}

/* By what it begins with; NULL: it is none. */
static const char *image_type(const char *bytes, size_t n)
{
    static const struct {
        const char *begin;
        size_t n;
        const char *type;
    } types[] = {{"\x89PNG\r\n\x1a\n", 8, "image/png"},
                 {"\xff\xd8\xff", 3, "image/jpeg"},
                 {"GIF87a", 6, "image/gif"},
                 {"GIF89a", 6, "image/gif"}};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (n > types[i].n && memcmp(bytes, types[i].begin, types[i].n) == 0)
            return types[i].type;
    }
    return n > 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0
               ? "image/webp"
               : NULL;
}

static bool is_named_image(const char *path)
{
    static const char *const ends[] = {".png", ".jpg", ".jpeg", ".gif", ".webp",
                                       ".PNG", ".JPG", ".JPEG", ".GIF", ".WEBP"};
    size_t n = strlen(path);

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t end = strlen(ends[i]);
        if (n > end && strcmp(path + n - end, ends[i]) == 0)
            return true;
    }
    return false;
}

static void heard_image(struct mcp_ask *ask, const struct mcp_heard *heard)
{
    const char *type = heard->status == 200 ? image_type(heard->bytes, heard->n) : NULL;
    scoped_buf struct buf b = {.n = 0};

    if (heard->status >= 400) {
        mcp_tool_refused(ask, heard);
        return;
    }
    if (heard->status == 0) {
        mcp_tool_failed(ask, "%s has more than %d bytes, which is the most of an image here",
                        path_of(ask), IMAGE_MOST);
        return;
    }
    if (!type) {
        mcp_tool_failed(ask, "%s is named like an image, and is none that can be shown (%zu bytes)",
                        path_of(ask), heard->n);
        return;
    }
    buf_init(&b, 2UL * IMAGE_MOST);
    bytes_add_base64(&b, heard->bytes, heard->n);
    json_t *data = buf_done(&b) == 0 ? json_stringn(b.p, b.n) : NULL;
    mcp_result(ask, json_pack("{s:[{s:s, s:o, s:s}], s:{s:s, s:I, s:s}, s:b}", "content", "type",
                              "image", "data", data, "mimeType", type, "structuredContent", "path",
                              path_of(ask), "size", (json_int_t)heard->n, "mime_type", type,
                              "isError", 0));
}

static void heard_text(struct mcp_ask *ask, const struct mcp_heard *heard)
{
    static const char *const kept[] = {"start_line",  "end_line",  "total_lines",
                                       "next_offset", "truncated", "size"};

    if (heard->status != 200) {
        mcp_tool_refused(ask, heard);
        return;
    }
    json_t *page = json_loadb(heard->bytes, heard->n, JSON_ALLOW_NUL, NULL);
    json_t *content = json_object_get(page, "content");
    if (!content || json_is_true(json_object_get(page, "binary"))) {
        mcp_tool_failed(ask, "%s is no text: %lld bytes; look at it by a command", path_of(ask),
                        (long long)json_integer_value(json_object_get(page, "size")));
        json_decref(page);
        return;
    }
    json_t *structured = json_pack("{s:s, s:O}", "path", path_of(ask), "content", content);
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        json_t *value = json_object_get(page, kept[i]);
        if (value)
            json_object_set(structured, kept[i], value);
    }
    json_incref(content);
    json_decref(page);
    mcp_tool_result(ask, content, structured);
}

void mcp_read_file(struct mcp_ask *ask)
{
    const json_t *offset = json_object_get(ask->args, "offset");
    const json_t *limit = json_object_get(ask->args, "limit");
    struct mcp_request wanted = {.method = HTTP_GET, .target = ask->target, .most = IMAGE_MOST};
    scoped_buf struct buf target = {.n = 0};

    if (is_named_image(path_of(ask))) {
        (void)mcp_fetch(ask, &wanted, heard_image);
        return;
    }
    buf_init(&target, HTTP_MAX_TARGET);
    buf_printf(&target, "%s?format=text&offset=%lld", ask->target,
               (long long)json_integer_value(offset));
    if (limit)
        buf_printf(&target, "&limit=%lld", (long long)json_integer_value(limit));
    if (buf_done(&target) < 0) {
        mcp_error(ask, 200, MCP_BAD_PARAMS, NULL, "read_file: the path is too long");
        return;
    }
    wanted.target = target.p;
    wanted.most = PAGE_MOST;
    (void)mcp_fetch(ask, &wanted, heard_text);
}
