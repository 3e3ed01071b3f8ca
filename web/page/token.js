// The token of the page that a controller serves (--web). It is kept for this tab only, and sent with every call.
import {h, message} from "./text.js";

export const tokenOf = () => sessionStorage.getItem("token") || "";

let asking = null;

// Asks until a token is given; calls that fail meanwhile wait for the same answer. why: a sentence.
export function askToken(why) {
  asking ??= new Promise((resolve) => {
    const failure = h("div", {}, message(why));
    const input = h("input", {id: "token", type: "password", autocomplete: "off", required: true, autofocus: true});
    const form = h("form", {}, h("h2", {id: "token-title"}, "Token"), failure, h("p", {}, h("label", {for: "token"}, "Your token "), input),
      h("p", {}, "An administrator makes one with trainyard token create. This tab forgets it when it is closed."),
      h("div", {class: "bar"}, h("span", {class: "fill"}), h("button", {type: "submit"}, "Continue")));
    const dialog = h("dialog", {"aria-labelledby": "token-title", oncancel: (e) => e.preventDefault()}, form);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const token = input.value.trim();
      if (!/^[\x21-\x7e]+$/.test(token)) { failure.replaceChildren(message("This is not a token.")); return; }
      sessionStorage.setItem("token", token);
      dialog.remove();
      asking = null;
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
  return asking;
}
