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
  // The page's own rows are about to be replaced: laying out 1,000 of them takes Chromium longer
  // than everything else. The first of them stay meanwhile, so that nothing moves.
  const others = table.tBodies[1];
  if (others) others.hidden = true;

  const unpacked = (base64) => {
    const chars = atob(base64);
    const bytes = new Uint8Array(chars.length);
    for (let i = 0; i < chars.length; i++) bytes[i] = chars.charCodeAt(i);
    const stream = new Response(bytes).body.pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  };

  // Packed data lie in blocks of so many lines, of which each is unpacked when it is wanted first.
  const blocksOf = (data, prepared = (block) => block) => {
    const size = Number(data.dataset.block);
    const texts = data.textContent.split(" ");
    const opened = texts.map(() => undefined); // promises
    const ready = texts.map(() => undefined);
    const open = (number) => (opened[number] ??= unpacked(texts[number]).then((block) => {
      texts[number] = undefined;
      return (ready[number] = prepared(block));
    }));
    return {
      size,
      at: (place) => ready[Math.floor(place / size)],
      whole: () => !ready.includes(undefined),
      openAt: (place) => open(Math.floor(place / size)),
      openAll: () => Promise.all(texts.map((_, number) => open(number))),
    };
  };

  const withIds = (columns) => {
    let decision = 0;
    columns.decision = columns.decision_step.map((step) => (decision += step));
    columns.id = columns.attempt.map((attempt, at) =>
      attempt ? `${columns.decision[at]}.${attempt}` : String(columns.decision[at]));
    return columns;
  };
  const lines = blocksOf(packed, withIds);
  const details = blocksOf(byId("attempts-details"));
  const places = Array.from({ length: Number(packed.dataset.lines) }, (_, place) => place);
  const cell = (name, place) => lines.at(place)[name][place % lines.size];
  const told = (place) => details.at(place)[place % details.size];

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

  const haystack = (place) => [
    "D" + cell("id", place), cell("proposal", place), cell("disposition", place), cell("result", place),
    ...cell("checks", place).flat(), ...told(place).flat(),
  ].join(" ").toLowerCase();
  let haystacks; // made by the first search

  const searched = () => inputs.text.value.trim().toLowerCase();
  const matches = (place) => {
    if (inputs.verdict.value && cell("verdict", place) !== inputs.verdict.value) return false;
    if (inputs.check.value && !cell("rejected_by", place).includes(inputs.check.value)) return false;
    if (inputs.source.value && cell("source", place) !== inputs.source.value) return false;
    if (narrowed.decision && String(cell("decision", place)) !== narrowed.decision) return false;
    if (narrowed.attempt && String(cell("attempt", place)) !== narrowed.attempt) return false;
    const wanted = searched();
    return !wanted || haystacks[place].includes(wanted);
  };

  const sorted = (found) => {
    if (order.column === "place") return order.down ? found.reverse() : found;
    const keys = new Map(found.map((place) => {
      const key = cell(order.column, place);
      return [place, Array.isArray(key) ? key.join(" ") : key];
    }));
    return found.sort((one, other) => {
      const [a, b] = [keys.get(one), keys.get(other)];
      if (a === b) return one - other;
      if (a === null || a === "") return 1; // nothing to sort by: last, in both directions
      if (b === null || b === "") return -1;
      return (a < b ? -1 : 1) * (order.down ? -1 : 1);
    });
  };

  const detailsOf = async (place) => {
    const list = element("dl");
    await details.openAt(place);
    for (const [label, text] of told(place)) {
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

  const chosen = async () => {
    const plain = order.column === "place" && !order.down && !searched() && !Object.keys(narrowed).length
      && [inputs.verdict, inputs.check, inputs.source].every((input) => !input.value);
    if (plain) return places;
    if (!lines.whole()) count.textContent = "searching";
    await lines.openAll();
    if (searched() && !haystacks) {
      count.textContent = "searching";
      await details.openAll();
      haystacks ??= places.map(haystack); // or the next letter has made them meanwhile
    }
    return sorted(places.filter(matches));
  };

  let asked = 0;
  const show = async () => {
    const mine = ++asked;
    const found = await chosen();
    if (mine !== asked) return; // something else was chosen meanwhile
    if (first >= found.length) first = 0;
    const shown = found.slice(first, first + size);
    await Promise.all(shown.map(lines.openAt));
    if (mine !== asked) return;
    table.tBodies[0].replaceChildren(...shown.map(rowOf));
    const only = Object.entries(narrowed).map(([name, value]) => `, ${name} ${value}`).join("");
    count.textContent = found.length === places.length
      ? `${places.length} lines` : `${found.length} of ${places.length} lines${only}`;
    pages.hidden = found.length <= size;
    where.textContent = `${first + 1} to ${first + shown.length} of ${found.length}`;
    earlier.disabled = first === 0;
    later.disabled = first + shown.length === found.length;
  };
  const restart = () => { first = 0; return show(); };
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
  byId("filters").addEventListener("focusin", () => lines.openAll(), { once: true });
  byId("filter-reset").addEventListener("click", () => { clear(); restart(); });

  // `#check=spacing&attempt=2` chooses these attempts; `#results` is a place on the page.
  const chosenByAddress = () => {
    if (!location.hash.includes("=")) return false;
    const named = new URLSearchParams(location.hash.slice(1));
    clear();
    for (const name of Object.keys(inputs)) inputs[name].value = named.get(name) ?? "";
    for (const name of ["decision", "attempt"]) {
      if (named.has(name)) narrowed[name] = named.get(name);
    }
    return true;
  };
  window.addEventListener("hashchange", () => {
    if (!chosenByAddress()) return;
    restart();
    byId("filters").scrollIntoView();
  });
  window.addEventListener("beforeprint", () => { size = PRINTED; restart(); });
  window.addEventListener("afterprint", () => { size = PAGE; restart(); });

  const led = chosenByAddress();
  await show();
  others?.remove();
  byId("filters").hidden = false;
  if (led) byId("filters").scrollIntoView();
})().finally(() => {
  const others = document.getElementById("attempts-table")?.tBodies[1];
  if (others) others.hidden = false;
});
