"use strict";
// Filters, sorts and opens the lines of the table of attempts. Without it the page's own rows stay.
// Everything in the data is a stranger's text: it becomes text nodes and attribute values of our
// own choosing, and never markup.
(async () => {
  const PAGE = 100;
  const PRINTED = 1000;
  const GLYPHS = { pass: "✓", fail: "✗", soft: "≈" };
  const byId = (id) => document.getElementById(id);
  const packed = byId("attempts-data");
  if (!packed || !("DecompressionStream" in window)) return;

  const table = byId("attempts-table");
  // 1,000 rows take Chromium half a second to lay out, for nothing: they are about to be replaced.
  table.hidden = true;

  const unpacked = (base64) => {
    const chars = atob(base64);
    const bytes = new Uint8Array(chars.length);
    for (let i = 0; i < chars.length; i++) bytes[i] = chars.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  };

  const columns = await unpacked(packed.textContent);
  const lines = columns.id.map((_, place) => place);
  const cell = (name, place) => columns[name][place];

  // Details are unpacked block by block, when one of them is looked at or searched.
  const details = byId("attempts-details");
  const BLOCK = Number(details.dataset.block);
  const blocks = details.textContent.split(" ");
  const opened = blocks.map(() => undefined);
  const block = (number) => (opened[number] ??= unpacked(blocks[number]));
  const detailsAt = async (place) => (await block(Math.floor(place / BLOCK)))[place % BLOCK];

  const inputs = {
    text: byId("filter-text"), verdict: byId("filter-verdict"),
    check: byId("filter-check"), source: byId("filter-source"),
  };
  let narrowed = {}; // by a link: decision and attempt, which have no input
  let order = { column: "place", down: false };
  let first = 0;
  let size = PAGE;

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  const haystack = (place, told) => [
    "D" + cell("id", place), cell("proposal", place), cell("disposition", place), cell("result", place),
    ...cell("checks", place).flat(), ...told.flat(),
  ].join(" ").toLowerCase();
  let haystacks; // made by the first search
  const prepare = async () => {
    if (haystacks) return;
    count.textContent = "searching";
    const all = (await Promise.all(blocks.map((_, number) => block(number)))).flat();
    haystacks = lines.map((place) => haystack(place, all[place]));
  };

  const matches = (place) => {
    if (inputs.verdict.value && cell("verdict", place) !== inputs.verdict.value) return false;
    if (inputs.check.value && !cell("rejected_by", place).includes(inputs.check.value)) return false;
    if (inputs.source.value && cell("source", place) !== inputs.source.value) return false;
    if (narrowed.decision && String(cell("decision", place)) !== narrowed.decision) return false;
    if (narrowed.attempt && String(cell("attempt", place)) !== narrowed.attempt) return false;
    const wanted = inputs.text.value.trim().toLowerCase();
    return !wanted || haystacks[place].includes(wanted);
  };

  const keyOf = (place) => {
    if (order.column === "place") return place;
    const key = cell(order.column, place);
    return Array.isArray(key) ? key.join(" ") : key;
  };
  const compare = (one, other) => {
    const [a, b] = [keyOf(one), keyOf(other)];
    if (a === b) return one - other;
    if (a === null || a === "") return 1; // nothing to sort by: last, in both directions
    if (b === null || b === "") return -1;
    return (a < b ? -1 : 1) * (order.down ? -1 : 1);
  };

  const detailsOf = async (place) => {
    const list = element("dl");
    for (const [label, text] of await detailsAt(place)) {
      list.append(element("dt", label), element("dd", text));
    }
    const row = element("tr", undefined, "details");
    const wide = element("td");
    wide.colSpan = table.tHead.rows[0].cells.length;
    wide.append(list);
    row.append(wide);
    return row;
  };

  const isOpen = (button) => button.getAttribute("aria-expanded") === "true";
  const toggle = async (button, row, place) => {
    button.setAttribute("aria-expanded", String(!isOpen(button)));
    const made = isOpen(button) ? await detailsOf(place) : undefined;
    // Meanwhile it may have been chosen again.
    if (row.nextSibling?.className === "details") row.nextSibling.remove();
    if (made && isOpen(button)) row.after(made);
  };

  const rowOf = (place) => {
    const row = element("tr");
    const name = element("th");
    name.scope = "row";
    const button = element("button", "D" + cell("id", place));
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => toggle(button, row, place));
    name.append(button, element("span", cell("source", place), cell("source", place)));
    const checks = element("td");
    for (const [check, mark] of cell("checks", place)) {
      checks.append(element("span", GLYPHS[mark] + " " + check, mark));
    }
    for (const [, , reasons] of cell("checks", place)) {
      if (reasons) checks.append(element("div", reasons, "why"));
    }
    row.append(
      name,
      element("td", cell("proposal", place), "proposal"),
      checks,
      element("td", cell("verdict", place), "verdict " + cell("verdict", place)),
      element("td", cell("disposition", place)),
      element("td", cell("result", place)),
    );
    return row;
  };

  const count = byId("filter-count");
  const pages = byId("pages");
  const earlier = element("button", "Earlier");
  const later = element("button", "Later");
  const where = element("span");
  pages.append(earlier, where, later);

  const show = async () => {
    if (inputs.text.value.trim()) await prepare();
    const found = lines.filter(matches).sort(compare);
    if (first >= found.length) first = 0;
    const end = Math.min(first + size, found.length);
    table.tBodies[0].replaceChildren(...found.slice(first, end).map(rowOf));
    const only = Object.entries(narrowed).map(([name, value]) => `, ${name} ${value}`).join("");
    count.textContent = found.length === lines.length
      ? `${lines.length} lines` : `${found.length} of ${lines.length} lines${only}`;
    pages.hidden = found.length <= size;
    where.textContent = `${first + 1} to ${end} of ${found.length}`;
    earlier.disabled = first === 0;
    later.disabled = end === found.length;
  };
  const restart = () => { first = 0; show(); };
  const turn = (by) => { first = Math.max(0, first + by); show(); };
  earlier.addEventListener("click", () => turn(-size));
  later.addEventListener("click", () => turn(size));

  const SORTED_BY = ["place", "proposal", "rejected_by", "verdict", "disposition", "value"];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    const button = element("button", head.textContent);
    button.type = "button";
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const column = SORTED_BY[place];
      order = { column, down: order.column === column && !order.down };
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      restart();
    });
  });

  const clear = () => {
    for (const input of Object.values(inputs)) input.value = "";
    narrowed = {};
  };
  for (const input of Object.values(inputs)) {
    input.addEventListener("input", () => { narrowed = {}; restart(); });
  }
  byId("filter-reset").addEventListener("click", () => { clear(); restart(); });

  // `#check=spacing&attempt=2` shows these attempts; `#results` is a place on the page.
  const follow = () => {
    const asked = new URLSearchParams(location.hash.slice(1));
    if (!location.hash.includes("=")) return;
    clear();
    for (const name of Object.keys(inputs)) inputs[name].value = asked.get(name) ?? "";
    for (const name of ["decision", "attempt"]) {
      if (asked.has(name)) narrowed[name] = asked.get(name);
    }
    restart();
    byId("filters").scrollIntoView();
  };
  window.addEventListener("hashchange", follow);
  window.addEventListener("beforeprint", () => { size = PRINTED; restart(); });
  window.addEventListener("afterprint", () => { size = PAGE; restart(); });

  byId("filters").hidden = false;
  await show();
  follow();
})().finally(() => {
  const table = document.getElementById("attempts-table");
  if (table) table.hidden = false;
});
