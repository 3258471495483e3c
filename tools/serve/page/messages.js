// Draws the messages of a conversation, with the buttons that belong to each.
import { Markdown, copy, make } from "./markdown.js";

function button(name, text, label, action) {
  const out = make("button", { type: "button", textContent: text, title: label, onclick: action });
  out.dataset.name = name;
  out.setAttribute("aria-label", label);
  return out;
}

// One message on the page. `state` has: branches (all of them), busy (its answer is under way), last
// (it is the last one), name (whose it is); `act` has a function for each button.
export class MessageView {
  constructor(message, state, act) {
    this.message = message;
    this.state = state;
    this.act = act;
    this.thoughts = make("details", { className: "thoughts" },
      this.thoughtsTitle = make("summary", { textContent: "Thoughts" }), make("div"));
    this.body = make("div", { className: "text" });
    this.calls = make("div", { className: "calls" });
    this.error = make("p", { className: "error" });
    this.note = make("p", { className: "stats" });
    this.actions = make("div", { className: "actions" });
    this.element = make("li", { className: "message " + message.role },
      make("h3", { className: "hidden", textContent: state.name }),
      this.thoughts, this.body, this.calls, this.error, this.note, this.actions);
    this.element.dataset.id = message.id;
    this.markdown = new Markdown(this.body);
    this.marksOfThoughts = new Markdown(this.thoughts.lastChild);
    this.update();
    this.drawActions();
  }

  // Draws what the message says now.
  update() {
    const { message, state } = this;
    const thinks = state.busy && !message.content;
    this.thoughts.hidden = !message.reasoning;
    this.thoughtsTitle.textContent = thinks && message.reasoning ? "Thinking…" : "Thoughts";
    if (message.reasoning) this.marksOfThoughts.update(message.reasoning);
    if (message.role === "user") this.body.textContent = message.content;
    else this.markdown.update(message.content);
    this.body.classList.toggle("waits", Boolean(state.busy && !message.content && !message.reasoning));
    this.calls.replaceChildren(...(message.calls ?? []).map((call) => make("div", { className: "code" },
      make("div", { className: "code-head" }, make("span", { textContent: "calls " + call.name })),
      make("pre", { tabIndex: 0 }, make("code", { textContent: call.arguments })))));
    this.error.textContent = message.error ?? "";
    this.error.hidden = !message.error;
    this.note.textContent = message.stats ?? "";
    this.note.hidden = !message.stats;
  }

  drawActions() {
    const { message, state, act } = this;
    const out = [];
    if (state.branches.length > 1) {
      const at = state.branches.indexOf(message);
      const to = (step) => () => act.show(state.branches[at + step], step);
      const before = button("before", "‹", "Show the branch before", to(-1));
      const after = button("after", "›", "Show the next branch", to(1));
      before.disabled = at === 0;
      after.disabled = at === state.branches.length - 1;
      const place = make("span", { textContent: `${at + 1}/${state.branches.length}` });
      place.setAttribute("aria-label", `Branch ${at + 1} of ${state.branches.length}`);
      place.setAttribute("role", "img");
      out.push(make("span", { className: "branches" }, before, place, after));
    }
    if (!state.busy) {
      const copies = button("copy", "Copy", "Copy this message", () => copy(message.content, copies));
      out.push(copies);
      if (message.role === "user") {
        out.push(button("edit", "Edit", "Edit this message; its answers stay as a branch", () => this.edit()));
      } else {
        const again = message.error ? "Try again" : "Regenerate";
        out.push(button("again", again, "Make another answer; this one stays as a branch", () => act.again(message)));
        const goes = state.last && message.cut && message.content && !message.reasoning && !message.calls;
        if (goes) out.push(button("on", "Continue", "Continue this answer", () => act.goOn(message)));
      }
    }
    this.actions.replaceChildren(...out);
  }

  setBusy(busy) {
    this.state.busy = busy;
    this.update();
    this.drawActions();
  }

  // Puts a field in place of the text of a user's message.
  edit() {
    const field = make("textarea", { value: this.message.content, rows: 3 });
    field.setAttribute("aria-label", "Edit the message");
    const end = () => {
      this.update();
      this.drawActions();
      this.actions.querySelector('[data-name="edit"]').focus();
    };
    const send = () => {
      if (field.value.trim()) this.act.edited(this.message, field.value);
    };
    field.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        send();
      } else if (event.key === "Escape") {
        event.stopPropagation();
        end();
      }
    });
    this.body.replaceChildren(field);
    this.actions.replaceChildren(
      button("send-edit", "Send", "Send the changed message", send),
      button("cancel-edit", "Cancel", "Leave the message as it is", end));
    field.style.height = Math.min(field.scrollHeight + 4, innerHeight / 2) + "px";
    field.focus();
  }
}
