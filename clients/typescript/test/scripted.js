// SPDX-License-Identifier: Apache-2.0
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessage } from "@langchain/core/messages";

/** A model that says what it was told to say: a text, or the name of a tool and its arguments. */
export class Scripted extends BaseChatModel {
    /** @param {(string | [string, object])[]} script */
    constructor(script) {
        super({});
        this.script = [...script];
    }

    /** @override */
    _llmType() { return "scripted"; }

    /** @override */
    bindTools() { return this; }

    /** @override */
    async _generate() {
        const next = this.script.shift() ?? "done";
        const message = typeof next === "string" ? new AIMessage(next)
            : new AIMessage({ content: "", tool_calls: [{ name: next[0], args: /** @type {any} */ (next[1]), id: `c${this.script.length}`, type: "tool_call" }] });
        return { generations: [{ text: String(message.content), message }] };
    }
}
