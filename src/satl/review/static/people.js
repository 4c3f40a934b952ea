// Who is deciding, and how far several annotators agree.

import { get } from "./api.js";
import { byId, element, number } from "./dom.js";

const KEY = "satl-annotator";

export const rememberedName = () => localStorage.getItem(KEY) ?? "";

const shown = (name) => name || "no name";

function table(head, rows) {
  const cells = (tag, texts) => element("tr", {}, ...texts.map((text) => element(tag, tag === "th" ? { scope: "col" } : {}, text)));
  return element("table", {}, element("thead", {}, cells("th", head)), element("tbody", {}, ...rows.map((row) => cells("td", row))));
}

const kappa = (value) => (value === null ? "–" : value.toFixed(2));

async function drawAgreement(start) {
  const place = byId("agreement");
  place.replaceChildren();
  const { annotators, pairs, enough } = await get("/api/agreement");
  const names = Object.entries(annotators);
  if (!names.length || (names.length === 1 && names[0][0] === start.annotator)) return;
  place.append(element("h3", {}, "Annotators"), table(["name", "cells decided"], names.map(([name, count]) => [shown(name), number(count)])));
  if (!pairs.length) return;
  const rows = pairs.map(({ first, second, label, cells, agreed, kappa: value }) => [
    `${shown(first)}, ${shown(second)}`, label ?? "all classes", number(cells), `${((100 * agreed) / cells).toFixed(1)} %`, kappa(value),
  ]);
  place.append(element("h3", {}, "Agreement"), table(["between", "on", "cells", "alike", "kappa"], rows.slice(0, 200)),
    element("p", { class: "note" }, `Cells that both decided. Cohen's kappa is 1 for full agreement and 0 for what chance gives; it is told from ${enough} cells on.`));
}

// The name in the header opens this; asks before anything else where nobody may be without a name.
export function listenToNames(start, { change, failed }) {
  const button = byId("people-button"), dialog = byId("people"), form = byId("people-form"), input = byId("your-name");
  const must = start.ask_name && !start.annotator && !start.named_by_server;
  byId("people-name").textContent = start.annotator || "Name";
  button.classList.toggle("named", Boolean(start.annotator));
  input.disabled = start.named_by_server;
  byId("name-save").hidden = start.named_by_server;
  byId("name-fixed").hidden = !start.named_by_server;
  const open = () => {
    input.value = start.annotator;
    input.setCustomValidity("");
    drawAgreement(start).catch(failed);
    dialog.showModal();
    if (!input.disabled) input.focus();
  };
  input.addEventListener("input", () => input.setCustomValidity(""));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = input.value.trim().replace(/\s+/g, " ");
    if (!name && start.ask_name) {
      input.setCustomValidity("Give a name: it is stored with your decisions.");
      input.reportValidity();
      return;
    }
    if (name === start.annotator) dialog.close();
    else await change(() => localStorage.setItem(KEY, name));
  });
  byId("people-close").addEventListener("click", () => dialog.close());
  byId("people-close").hidden = must;
  // Browsers let a second Escape close any dialog.
  if (must) dialog.addEventListener("close", open);
  button.addEventListener("click", open);
  // Where others have left their names, a person without one should say who it is.
  const others = Object.keys(start.annotators).some((name) => name !== "");
  if (must || (others && !start.annotator && !sessionStorage.getItem("satl-name-asked"))) {
    sessionStorage.setItem("satl-name-asked", "1");
    open();
  }
  return open;
}
