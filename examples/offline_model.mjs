// SPDX-License-Identifier: Apache-2.0
// A model for the examples that needs no network: it says what a script tells it to. Put your own in its place.
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessage } from "@langchain/core/messages";

/** script: one item a turn, a text to say or a list of [tool, arguments] to call. */
export class ScriptedModel extends BaseChatModel {
    #script;
    #turn = 0;

    constructor(script) {
        super({});
        this.#script = script;
    }

    _llmType() {
        return "scripted";
    }

    bindTools() {
        return this;
    }

    async _generate() {
        const turn = this.#turn++;
        const item = this.#script[turn];
        const calls = typeof item === "string" ? [] : item.map(([name, args], n) => ({ name, args, id: `call-${turn}-${n}`, type: "tool_call" }));
        const message = new AIMessage({ content: typeof item === "string" ? item : "", tool_calls: calls });
        return { generations: [{ text: String(message.content), message }] };
    }
}
