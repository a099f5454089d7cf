"use strict";
// The page keeps everything it was told in one Map and draws the chosen view from it. All text is put in as text, never as markup.
const token = new URLSearchParams(location.search).get("token");
const ask = (path, signal) => fetch(path, { headers: { Authorization: `Bearer ${token}` }, cache: "no-store", signal });
const objects = new Map();
const byId = (id) => document.getElementById(id);
const view = { name: "clusters", filter: "", open: null };
const MANY = 60; // from so many machines at one place on, tiles show only a mark
const ROWS = 400; // as many rows of a table are drawn; the filter finds the others

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "click") made.addEventListener("click", value);
    else made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

const all = (kind) => [...objects].filter(([key]) => key.startsWith(`${kind}/`)).map(([key, value]) => ({ key, ...value }));
const matches = (object) => !view.filter || JSON.stringify(object).toLowerCase().includes(view.filter);
const sorted = (list, of) => list.sort((a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0));

function grouped(list, of) {
  const groups = new Map();
  for (const item of list) {
    const key = of(item) || "";
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return sorted([...groups], ([key]) => key);
}

function duration(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} days`;
}

// Ages go on by themselves, so each is drawn anew every second without anything else being drawn.
const age = (time) => (time ? element("time", { class: "faint", datetime: time, "data-age": "" }, since(time)) : null);
const since = (time) => `for ${duration(Math.max(0, (Date.now() - Date.parse(time)) / 1000))}`;
const MARKS = { ready: "✓", waiting: "…", trouble: "!", leaving: "×" };

function tile(machine, small) {
  const words = `${machine.name}, ${machine.state || "nothing in MAAS"}, waits for ${machine.waitsFor}`;
  return element("button", {
    class: `tile item ${machine.health}${small ? " small" : ""}`, title: words, "aria-label": words,
    "data-machine": `${machine.namespace}/${machine.name}`, "data-state": machine.state, click: () => open(machine),
  }, small ? MARKS[machine.health] : `${MARKS[machine.health]} ${machine.controlPlane ? "◆ " : ""}${machine.name}`);
}

function places(machines) {
  return grouped(machines, (it) => it.zone).map(([zone, inZone]) =>
    element("div", { class: "zone", "data-zone": zone }, element("h3", {}, zone ? `zone ${zone}` : "no zone yet"),
      grouped(inZone, (it) => (it.vm ? it.host || "no host yet" : "")).map(([host, here]) =>
        element("div", { class: "place", "data-host": host }, element("h3", {}, host ? `on ${host}` : "metal"),
          element("div", { class: "tiles" }, sorted(here, (it) => it.name).map((it) => tile(it, here.length > MANY)))))));
}

function waitingList(machines) {
  const unready = sorted(machines.filter((it) => it.health !== "ready"), (it) => it.since || "");
  const shown = unready.slice(0, ROWS / 20).map((it) =>
    element("li", {}, element("span", { class: it.health }, it.name), element("span", { class: "grow" }, it.waitsFor), age(it.since)));
  if (unready.length > shown.length) shown.push(element("li", { class: "faint" }, `and ${unready.length - shown.length} more`));
  return shown.length ? element("ul", { class: "waits" }, shown) : null;
}

function drawClusters() {
  const machines = all("machine");
  const clusters = sorted(all("cluster"), (it) => it.key);
  const known = new Set(clusters.map((it) => `${it.namespace}/${it.name}`));
  const lonely = machines.filter((it) => !known.has(`${it.namespace}/${it.cluster}`));
  if (lonely.length) clusters.push({ key: "cluster//", namespace: "", name: "Machines without a cluster", lonely });
  const cards = clusters.map((cluster) => {
    const mine = (cluster.lonely || machines.filter((it) => it.namespace === cluster.namespace && it.cluster === cluster.name))
      .filter((it) => matches(it) || matches({ ...cluster, lonely: null }));
    if (!mine.length && !matches({ ...cluster, lonely: null })) return null;
    const ready = mine.filter((it) => it.health === "ready").length;
    return element("section", { class: "card", "data-cluster": `${cluster.namespace}/${cluster.name}` },
      element("div", { class: "head" },
        element("h2", {}, cluster.namespace ? `${cluster.namespace}/${cluster.name}` : cluster.name),
        element("span", { class: "count" }, `${ready} of ${mine.length} ready`),
        element("span", { class: "faint" }, [cluster.phase, cluster.endpoint].filter(Boolean).join(" · ")),
        cluster.waitsFor ? element("span", { class: "waiting" }, cluster.waitsFor) : null, age(cluster.since)),
      element("div", { class: "zones" }, places(mine)), waitingList(mine));
  });
  return cards.some(Boolean) ? cards : [element("p", { class: "faint" }, "No clusters here. Others may be in other namespaces: -A.")];
}

function bar(name, { used, total }) {
  return element("div", { class: "bar" }, element("span", {}, name),
    element("progress", { max: Math.max(total, 1), value: Math.min(used, total), "aria-label": `${name}: ${used} of ${total}` }),
    element("span", {}, `${used}/${total}`));
}

function drawHosts() {
  const hosts = sorted(all("host").filter(matches), (it) => `${it.zone}/${it.name}`);
  if (!hosts.length) return [element("p", { class: "faint" }, "No VM hosts.")];
  return grouped(hosts, (it) => it.zone).map(([zone, here]) =>
    element("section", {}, element("h2", {}, `zone ${zone || "none"}`), element("div", { class: "zones" }, here.map((host) =>
      element("div", { class: "card item", tabindex: 0, "data-host": host.name },
        element("div", { class: "head" }, element("h2", {}, host.name), element("span", { class: "faint" }, `pool ${host.pool}`),
          host.trouble ? element("span", { class: "trouble" }, host.trouble) : null,
          host.closedBy ? element("span", { class: "leaving" }, `takes no new VMs: ${host.closedBy}`) : null),
        bar("cores", host.cores), bar("memory GiB", host.memoryGiB), bar("disk GB", host.diskGB),
        element("p", { class: "faint vms" }, host.vms.length ? `${host.vms.length} VMs: ${host.vms.join(", ")}` : "no VMs"))))));
}

const USES = ["free", "ours", "somebody's", "quarantined", "broken", "not ready"];
const COLOURS = { free: "ready", ours: "waiting", quarantined: "leaving", broken: "trouble" };

function rows(titles, list, row) {
  const body = list.slice(0, ROWS).map((it) => element("tr", { class: "item", tabindex: 0, "data-row": it.key }, row(it).map((cell) => element("td", {}, cell))));
  const more = list.length > ROWS ? element("p", { class: "faint" }, `${list.length - ROWS} more: filter to see them`) : null;
  return [element("table", {}, element("thead", {}, element("tr", {}, titles.map((it) => element("th", { scope: "col" }, it)))), element("tbody", {}, body)), more];
}

function drawMetal() {
  const metal = sorted(all("metal").filter(matches), (it) => `${it.zone}/${it.pool}/${it.hostname}`);
  const counts = grouped(metal, (it) => `${it.zone} · ${it.pool}`).map(([place, here]) =>
    element("tr", { "data-place": place }, element("th", { scope: "row" }, place),
      USES.map((use) => element("td", { "data-use": use }, String(here.filter((it) => it.use === use).length)))));
  const summary = element("table", { class: "summary" }, element("thead", {}, element("tr", {},
    ["Zone · pool", ...USES].map((it) => element("th", { scope: "col" }, it)))), element("tbody", {}, counts));
  return [summary, ...rows(["Machine", "Use", "State", "Zone", "Pool", "Cores", "Memory", "Tags", "For"], metal, (it) => [
    `${it.hostname} (${it.id})`, element("span", { class: COLOURS[it.use] }, it.use + (it.vmHost ? ", VM host" : "")), it.state || "", it.zone || "",
    it.pool || "", String(it.cores ?? ""), it.memoryGiB === null ? "" : `${it.memoryGiB} GiB`, it.tags.join(", "), it.for || it.owner || ""])];
}

function drawEvents() {
  const events = sorted(all("event").filter(matches), (it) => it.time).reverse();
  return rows(["When", "About", "Reason", "What"], events, (it) => [
    element("time", { datetime: it.time }, new Date(it.time).toLocaleString()), `${it.kind} ${it.namespace}/${it.name}`,
    element("span", { class: it.type === "Warning" ? "trouble" : "" }, it.reason + (it.count > 1 ? ` ×${it.count}` : "")),
    element("span", { class: "note" }, it.note)]);
}

const DRAW = { clusters: drawClusters, hosts: drawHosts, metal: drawMetal, events: drawEvents };

// Whoever was looked at stays so: by what it is about, not by the element, which is a new one.
const identity = (it) => it && ["machine", "host", "row"].map((name) => it.dataset?.[name]).find(Boolean);
let planned = false;
function draw() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => {
    planned = false;
    const main = byId("view"), focused = main.contains(document.activeElement) ? identity(document.activeElement) : null;
    main.replaceChildren(...DRAW[view.name]().filter(Boolean));
    if (focused) [...main.querySelectorAll(".item")].find((it) => identity(it) === focused)?.focus({ preventScroll: true });
    const errors = ["kubernetes", "maas"].map((it) => objects.get(it)?.error).filter(Boolean);
    byId("trouble").hidden = !errors.length;
    byId("trouble").textContent = errors.join("\n");
  });
}

async function open(machine) {
  view.open = machine;
  const panel = byId("details");
  const answer = await ask(`/machine?namespace=${encodeURIComponent(machine.namespace)}&name=${encodeURIComponent(machine.name)}`);
  if (view.open !== machine) return;
  const close = element("button", { id: "close", click: shut, "aria-label": "Close" }, "Close");
  panel.hidden = false;
  if (!answer.ok) return panel.replaceChildren(close, element("p", { class: "trouble" }, await answer.text()));
  const told = await answer.json();
  const fact = (name, value) => (value ? element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)) : null);
  const addresses = (told.addresses || []).map((it) => it.address).join(", ");
  panel.replaceChildren(close, element("h2", {}, `${told.machine.namespace}/${told.machine.name}`),
    element("p", { class: told.machine.health }, `Waits for ${told.waitsFor} `, age(told.machine.since)),
    element("table", {}, element("tbody", {}, fact("State", told.machine.state), fact("Machine", told.machine.hostname), fact("System ID", told.machine.systemID),
      fact("Zone", told.machine.zone), fact("LXD host", told.machine.host), fact("Image", told.spec.image), fact("Provider ID", told.providerID), fact("Addresses", addresses))),
    element("h3", {}, "Its life"), element("ol", { class: "life" }, told.timeline.map((step) => element("li", { class: step.open ? "open" : "", "data-step": step.what },
      element("strong", {}, step.what), " ", element("time", { class: "faint", datetime: step.at }, new Date(step.at).toLocaleString()),
      step.seconds === null ? null : element("div", { class: "faint" }, `${duration(step.seconds)}${step.open ? " so far" : ""}`)))),
    told.placement ? element("h3", {}, "Placement, host by host") : null, told.placement ? element("p", { class: "note placement" }, told.placement) : null,
    element("h3", {}, "Conditions"), element("table", {}, element("tbody", {}, (told.conditions || []).map((it) => element("tr", {},
      element("td", {}, it.type), element("td", { class: it.status === "True" || (["Paused", "Deleting"].includes(it.type) && it.status === "False") ? "ready" : "waiting" }, it.status),
      element("td", { class: "note" }, [it.reason, it.message].filter(Boolean).join(": ")))))),
    element("h3", {}, "Events"), ...rows(["When", "Reason", "What"], told.events.reverse(), (it) => [new Date(it.time).toLocaleString(), it.reason, element("span", { class: "note" }, it.note)]));
  close.focus();
}

function shut() {
  const was = view.open && `${view.open.namespace}/${view.open.name}`;
  view.open = null;
  byId("details").hidden = true;
  [...document.querySelectorAll("#view .item")].find((it) => it.dataset.machine === was)?.focus();
}

function choose(name) {
  view.name = name;
  for (const tab of document.querySelectorAll("[role=tab]")) tab.setAttribute("aria-selected", String(tab.dataset.view === name));
  draw();
}

function move(by) {
  const items = [...document.querySelectorAll("#view .item")];
  const at = items.indexOf(document.activeElement);
  items[Math.max(0, Math.min(items.length - 1, at + by))]?.focus();
}

const LOOKS = ["system", "light", "dark"];
const dark = matchMedia("(prefers-color-scheme: dark)");
function setLook(look) {
  byId("look").textContent = `Look: ${look}`;
  byId("look").dataset.look = look;
  document.documentElement.dataset.look = look === "system" ? (dark.matches ? "dark" : "light") : look;
}
const nextLook = () => setLook(LOOKS[(LOOKS.indexOf(byId("look").dataset.look) + 1) % LOOKS.length]);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") return view.open ? shut() : document.activeElement.blur();
  if (document.activeElement === byId("filter")) return;
  const keys = { 1: () => choose("clusters"), 2: () => choose("hosts"), 3: () => choose("metal"), 4: () => choose("events"),
    "/": () => byId("filter").focus(), j: () => move(1), k: () => move(-1), d: nextLook };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});
for (const tab of document.querySelectorAll("[role=tab]")) tab.addEventListener("click", () => choose(tab.dataset.view));
byId("filter").addEventListener("input", (event) => { view.filter = event.target.value.toLowerCase(); draw(); });
byId("look").addEventListener("click", nextLook);
dark.addEventListener("change", () => setLook(byId("look").dataset.look));
setInterval(() => { for (const it of document.querySelectorAll("[data-age]")) it.textContent = since(it.dateTime); }, 1000);
setLook("system");

function take(change) {
  if (change.reset) objects.clear();
  for (const [key, value] of Object.entries(change.set || {})) objects.set(key, value);
  for (const key of change.gone || []) objects.delete(key);
  draw();
}

// Server-sent events, read by fetch: an EventSource could not carry the token in a header.
async function listen() {
  for (;;) {
    try {
      const answer = await ask("/live");
      if (answer.status === 401) { byId("live").textContent = "this page is of another run: open the address that kubectl maas ui printed"; return; }
      if (!answer.ok) throw new Error(String(answer.status));
      byId("live").textContent = "live";
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = "";;) {
        const { done, value } = await reader.read();
        if (done) break;
        text += value;
        const parts = text.split("\n\n");
        text = parts.pop();
        for (const part of parts) if (part.startsWith("data: ")) take(JSON.parse(part.slice(6)));
      }
    } catch { /* it is tried again below */ }
    byId("live").textContent = "not connected: is kubectl maas ui still running?";
    await new Promise((later) => setTimeout(later, 2000));
  }
}
listen();
