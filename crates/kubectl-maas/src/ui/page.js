"use strict";
// The page keeps all received objects in one Map and draws the chosen view from it. All text is inserted as text, never as markup.
const token = new URLSearchParams(location.search).get("token");
const ask = (path) => fetch(path, { headers: { Authorization: `Bearer ${token}` }, cache: "no-store" });
const objects = new Map();
const byId = (id) => document.getElementById(id);
const view = { name: "clusters", filter: [], health: null, use: null, by: "zone and pool", open: null };
const MANY = 150; // with more machines than this, tiles show only a mark
const ROWS = 400; // the most rows of a table that are drawn; the filter finds the others
const WAITS = 20; // the most machines of a cluster that show what they wait for; fewer with small tiles

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "share") made.style.flex = `${value} 0 0`;
    else if (name === "percent") made.style.width = `${value}%`;
    else made.setAttribute(name, value);
  }
  made.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

// Turns the current nodes into the wanted ones and touches nothing else, so that selection, focus and scroll position are kept.
function patch(parent, wanted) {
  wanted.forEach((child, index) => {
    const there = parent.childNodes[index];
    if (!there) return parent.append(child);
    if (there.isEqualNode(child)) return;
    if (there.nodeName !== child.nodeName || there.nodeType !== Node.ELEMENT_NODE) return there.replaceWith(child);
    for (const { name } of [...there.attributes]) if (!child.hasAttribute(name)) there.removeAttribute(name);
    // The page's policy refuses styles that are set as attributes.
    for (const { name, value } of child.attributes) if (name !== "style") there.setAttribute(name, value);
    there.style.cssText = child.style.cssText;
    patch(there, [...child.childNodes]);
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild.remove();
}

const all = (kind) => [...objects].filter(([key]) => key.startsWith(`${kind}/`)).map(([key, value]) => ({ key, ...value }));
const values = (it) => (it && typeof it === "object" ? Object.values(it).map(values).join("\n") : String(it ?? ""));
const has = (text) => view.filter.every((word) => text.includes(word));
const matches = (...of) => !view.filter.length || has(of.map(values).join("\n").toLowerCase());
const sorted = (list, of) => list.sort((a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0));
const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;

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
  if (seconds < 1) return "under 1 s";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} days`;
}

function clock(time) {
  const at = new Date(time);
  return at.toDateString() === new Date().toDateString() ? at.toLocaleTimeString() : at.toLocaleString();
}

// Ages are updated every second, without redrawing anything else.
const since = (time) => `for ${duration(Math.max(0, (Date.now() - Date.parse(time)) / 1000))}`;
const age = (time) => (time ? element("time", { class: "faint nowrap", datetime: time, title: clock(time), "data-age": "" }, since(time)) : null);
const pill = (colour, text) => element("span", { class: `pill ${colour || ""}` }, text);

const HEALTH = { ready: ["✓", "ready"], waiting: ["…", "waiting"], trouble: ["!", "needs attention"], leaving: ["×", "being deleted"] };

// Buttons that filter a view by one value, with the count of each.
function chips(field, sorts, list, of, more) {
  const button = (value, words, number) =>
    element("button", { "data-only": field, "data-value": value, "aria-pressed": String((view[field] ?? "") === value) }, `${words} ${number}`);
  return element("div", { class: "chips" }, button("", "all", list.length),
    sorts.map(([value, words]) => button(value, words, list.filter((it) => of(it) === value).length)), more);
}

function tile(machine, small) {
  const [mark] = HEALTH[machine.health];
  const words = `${machine.name}, ${machine.state || "nothing in MAAS"}, waits for ${machine.waitsFor}`;
  return element("button", {
    class: `tile item ${machine.health}${small ? " small" : ""}`, title: words, "aria-label": words,
    "data-machine": `${machine.namespace}/${machine.name}`, "data-state": machine.state,
  }, small ? mark : [`${mark} ${machine.controlPlane ? "◆ " : ""}${machine.name}`,
    machine.health === "ready" ? null : element("span", { class: "sub" }, machine.state || "nothing in MAAS yet")]);
}

function places(machines, zones, small) {
  const empty = (zones || []).filter((zone) => !machines.some((it) => it.zone === zone)).map((zone) => [zone, []]);
  return sorted([...grouped(machines, (it) => it.zone), ...empty], ([zone]) => zone || "~").map(([zone, inZone]) =>
    element("div", { class: "zone", "data-zone": zone }, element("h3", {}, zone ? `zone ${zone}` : "no zone yet"),
      inZone.length ? null : element("div", { class: "place none" }, "no machines"),
      grouped(inZone, (it) => (it.vm ? it.host : " ")).map(([host, here]) =>
        element("div", { class: "place", "data-host": host.trim() }, element("h3", {}, host === " " ? "metal" : host ? `VMs on ${host}` : "VMs without a host yet"),
          element("div", { class: "tiles" }, sorted(here, (it) => `${it.controlPlane ? 0 : 1}${it.name}`).map((it) => tile(it, small)))))));
}

function waitingList(machines, most) {
  const unready = sorted(machines.filter((it) => it.health !== "ready"), (it) => `${it.health === "trouble" ? 0 : 1}${it.since}`);
  const shown = unready.slice(0, most).map((it) => element("li", {},
    element("button", { class: `named ${it.health}`, "data-machine": `${it.namespace}/${it.name}` }, it.name), element("span", { title: it.waitsFor }, it.waitsFor), age(it.since)));
  if (unready.length > shown.length) shown.push(element("li", { class: "faint" }, `and ${unready.length - shown.length} more`));
  return shown.length ? element("ul", { class: "waits" }, shown) : null;
}

function drawClusters() {
  const machines = all("machine");
  const clusters = sorted(all("cluster"), (it) => it.key);
  const known = new Set(clusters.map((it) => `${it.namespace}/${it.name}`));
  const lonely = machines.filter((it) => !known.has(`${it.namespace}/${it.cluster}`));
  if (lonely.length) clusters.push({ key: "cluster//", namespace: "", name: "Machines without a cluster", lonely: true });
  const of = (cluster) => (it) => (cluster.lonely ? !known.has(`${it.namespace}/${it.cluster}`) : it.namespace === cluster.namespace && it.cluster === cluster.name);
  const found = new Map(clusters.map((cluster) => [cluster, machines.filter(of(cluster)).filter((it) => matches(it, cluster))]));
  const everybody = [...found.values()].flat();
  const isMeant = (it) => !view.health || it.health === view.health;
  const small = everybody.filter(isMeant).length > MANY;
  const cards = clusters.map((cluster) => {
    const mine = found.get(cluster), shown = mine.filter(isMeant);
    if (!shown.length && (view.health || !matches(cluster))) return null;
    const ready = mine.filter((it) => it.health === "ready").length;
    return element("section", { class: "card", "data-cluster": `${cluster.namespace}/${cluster.name}` },
      element("div", { class: "head" },
        element("h2", {}, cluster.namespace ? `${cluster.namespace}/${cluster.name}` : cluster.name),
        pill(`count ${mine.length && ready === mine.length ? "ready" : "waiting"}`, `${ready} of ${mine.length} ready`),
        cluster.deleting ? pill("leaving", "being deleted") : cluster.phase ? pill("", cluster.phase) : null,
        cluster.endpoint ? element("span", { class: "faint" }, cluster.endpoint) : null),
      cluster.waitsFor ? element("p", { class: "says waiting" }, `${cluster.waitsFor} `, age(cluster.since)) : null,
      cluster.evacuating ? element("p", { class: "says leaving" }, cluster.evacuating) : null,
      element("div", { class: "zones" }, places(shown, !view.health && !view.filter.length && cluster.zones, small)), waitingList(shown, small ? WAITS / 4 : WAITS));
  }).filter(Boolean);
  if (!clusters.length) return [nothing("kubernetes", "No clusters here. Others may be in other namespaces: -n or -A.")];
  const key = element("span", { class: "faint right" }, "◆ control plane");
  return [chips("health", Object.entries(HEALTH).map(([health, [mark, words]]) => [health, `${mark} ${words}`]), everybody, (it) => it.health, key),
    ...(cards.length ? cards : [element("p", { class: "faint" }, "Nothing matches.")])];
}

// Before the first answer it is not known whether there is anything.
const nothing = (source, words) => element("p", { class: "faint" }, objects.has(source) ? (objects.get(source).error ? "Nothing could be read yet." : words) : "Reading …");

function bar(name, { used, total }) {
  const percent = total > 0 ? Math.min(100, (100 * used) / total) : 0;
  const colour = percent >= 95 ? "full" : percent >= 80 ? "tight" : "";
  const words = `${name}: ${used} of ${total}`;
  return element("div", { class: "bar" }, element("span", {}, name),
    element("div", { class: "meter", role: "meter", title: words, "aria-label": words, "aria-valuenow": used, "aria-valuemin": 0, "aria-valuemax": Math.max(total, used) },
      element("i", { class: colour, percent })), element("span", {}, `${used}/${total}`));
}

function hostCard(host, ours) {
  const evacuating = ours.get(host.machine)?.evacuating;
  const vms = sorted([...host.vms], (it) => it.hostname || "").map((vm) => (ours.has(vm.id) ? tile(ours.get(vm.id), false) : element("span", { class: "named pill" }, vm.hostname || vm.id)));
  return element("div", { class: "card item", tabindex: 0, "data-host": host.name },
    element("div", { class: "head" }, element("h2", {}, host.name), element("span", { class: "faint" }, `pool ${host.pool || "none"}`),
      element("span", { class: "faint right" }, host.vms.length ? count(host.vms.length, "VM", "VMs") : host.cores.used > 0 ? "VMs that your key does not show" : "no VMs")),
    host.state === "ok" ? null : element("p", { class: `says ${host.trouble ? "trouble" : "leaving"}` }, host.state),
    evacuating ? element("p", { class: "says leaving" }, evacuating) : null,
    bar("cores", host.cores), bar("memory GiB", host.memoryGiB), bar("disk GB", host.diskGB),
    vms.length ? element("div", { class: "tiles" }, vms) : null);
}

function drawHosts() {
  const hosts = sorted(all("host").filter((it) => matches(it)), (it) => it.name);
  const ours = new Map(all("machine").filter((it) => it.systemID).map((it) => [it.systemID, it]));
  if (!hosts.length) return [nothing("maas", "No VM hosts.")];
  return [element("div", { class: "by-zone" }, grouped(hosts, (it) => it.zone).map(([zone, here]) => element("section", {},
    element("h2", {}, zone ? `zone ${zone}` : "no zone"), element("div", { class: "hosts" }, here.map((host) => hostCard(host, ours))))))];
}

const USES = [["free", "ready"], ["ours", "mine"], ["somebody's", ""], ["quarantined", "leaving"], ["broken", "trouble"], ["not ready", ""]];
const COLOURS = Object.fromEntries(USES);
const BY = { "zone and pool": (it) => [`${it.zone || "no zone"} · ${it.pool || "no pool"}`], tag: (it) => (it.tags.length ? it.tags : ["no tag"]), state: (it) => [it.state || "unknown"] };

function rows(titles, list, row) {
  const body = list.slice(0, ROWS).map((it) => element("tr", { class: "item", tabindex: 0, "data-row": it.key, "data-machine": it.opens },
    row(it).map((cell) => element("td", {}, cell))));
  const more = list.length > ROWS ? element("p", { class: "faint" }, `${list.length - ROWS} more: filter to see them`) : null;
  return element("div", { class: "card scroll" }, element("table", {}, element("thead", {}, element("tr", {}, titles.map((it) => element("th", { scope: "col" }, it)))), element("tbody", {}, body)), more);
}

function metalSummary(metal) {
  const one = ([place, here]) => {
    const uses = USES.map(([use]) => [use, here.filter((it) => it.use === use).length]);
    const colour = (use) => (["free", "quarantined", "broken"].includes(use) ? use : use === "ours" ? "" : "other");
    return element("tr", { class: "number", "data-place": place }, element("th", { scope: "row" }, place),
      uses.map(([use, number]) => element("td", { "data-use": use, class: number ? null : "none" }, String(number))), element("td", {}, String(here.length)),
      element("td", {}, element("div", { class: "meter", "aria-hidden": "true" }, uses.map(([use, number]) => (number ? element("i", { class: colour(use), share: number, title: `${number} ${use}` }) : null)))));
  };
  const places = grouped(metal.flatMap((it) => BY[view.by](it).map((place) => ({ ...it, place }))), (it) => it.place);
  const titles = [view.by, ...USES.map(([use]) => use), "all", ""];
  return element("div", { class: "card scroll" }, element("table", { class: "summary" },
    element("thead", {}, element("tr", { class: "number" }, titles.map((it) => element("th", { scope: "col" }, it)))), element("tbody", {}, places.map(one))));
}

function drawMetal() {
  const metal = sorted(all("metal").filter((it) => matches(it)), (it) => `${it.zone}/${it.pool}/${it.hostname}`);
  if (!metal.length) return [nothing("maas", "MAAS shows no metal to this key.")];
  const shown = metal.filter((it) => !view.use || it.use === view.use);
  const by = element("span", { class: "right chips" }, "grouped by", Object.keys(BY).map((it) =>
    element("button", { "data-only": "by", "data-value": it, "aria-pressed": String(view.by === it) }, it)));
  const known = (it) => ({ ...it, opens: objects.has(`machine/${it.for}`) ? it.for : null });
  return [chips("use", USES.map(([use]) => [use, use]), metal, (it) => it.use, by), metalSummary(metal),
    rows(["Machine", "Use", "State", "Zone", "Pool", "Cores", "Memory", "Tags", "Used by"], shown.map(known), (it) => [
      [`${it.hostname} `, element("span", { class: "faint" }, it.id)], [pill(COLOURS[it.use], it.use), it.vmHost ? [" ", pill("", "VM host")] : null], it.state || "", it.zone || "",
      it.pool || "", String(it.cores ?? ""), it.memoryGiB === null ? "" : `${it.memoryGiB} GiB`, it.tags.map((tag) => [pill("", tag), " "]), it.for || it.owner || ""])];
}

const eventRow = (it) => [element("span", { class: "nowrap", title: new Date(it.time).toLocaleString() }, clock(it.time)),
  [pill(it.type === "Warning" ? "waiting" : "", it.reason), it.count > 1 ? element("span", { class: "nowrap" }, ` ×${it.count}`) : null], element("span", { class: "note" }, it.note)];

function drawEvents() {
  const events = sorted(all("event").filter((it) => matches(it)), (it) => it.time).reverse();
  if (!events.length) return [nothing("kubernetes", "No events.")];
  const known = (it) => ({ ...it, opens: objects.has(`machine/${it.namespace}/${it.name}`) ? `${it.namespace}/${it.name}` : null });
  return [rows(["When", "Reason", "Message", "Object"], events.map(known), (it) => [...eventRow(it), `${it.kind} ${it.namespace}/${it.name}`])];
}

const DRAW = { clusters: drawClusters, hosts: drawHosts, metal: drawMetal, events: drawEvents };
const identity = (it) => it.dataset.machine || it.dataset.row || it.dataset.host || `${it.dataset.only} ${it.dataset.value}`;

function redraw() {
  const main = byId("view"), focused = main.contains(document.activeElement) ? identity(document.activeElement) : null;
  patch(main, DRAW[view.name]());
  if (focused && identity(document.activeElement) !== focused)
    [...main.querySelectorAll(".item, [data-only]")].find((it) => identity(it) === focused)?.focus({ preventScroll: true });
  const errors = [["Kubernetes", "kubernetes"], ["MAAS", "maas"]].filter(([, it]) => objects.get(it)?.error)
    .map(([name, it]) => `${name}: ${objects.get(it).error}${objects.get(it).since ? ` (showing data from ${clock(objects.get(it).since)})` : ""}`);
  byId("trouble").hidden = !errors.length;
  if (byId("trouble").textContent !== errors.join("\n")) byId("trouble").textContent = errors.join("\n");
  const about = objects.get("about");
  byId("trouble").classList.toggle("hint", !objects.get("kubernetes")?.error && !about?.maas);
  if (about) byId("about").textContent = [about.namespace ? `namespace ${about.namespace}` : "all namespaces", about.server].join(" · ");
  byId("about").title = about?.maas ? `MAAS ${about.maas}` : "";
}

let planned = false;
function draw() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => { planned = false; redraw(); });
}

function lifeOf(told) {
  // Without a duration before the last step it is unknown when the node was ready for the first time.
  const done = told.timeline.length > 1 && !told.timeline.at(-1).open && told.timeline.at(-2).seconds !== null;
  const whole = done ? (Date.parse(told.timeline.at(-1).at) - Date.parse(told.timeline[0].at)) / 1000 : null;
  const spans = told.timeline.filter((step) => step.seconds !== null);
  return [element("h3", {}, `Timeline${whole === null ? "" : `: ready after ${duration(whole)}`}`),
    element("div", { class: "span", "aria-hidden": "true" }, spans.map((step) => element("i", { class: step.open ? "open" : null, share: Math.max(step.seconds, 0.1), title: `${step.what}: ${duration(step.seconds)}` }))),
    element("ol", { class: "life" }, told.timeline.map((step) => element("li", { class: step.open ? "open" : null, "data-step": step.what },
      element("strong", {}, step.what), element("time", { class: "faint", datetime: step.at }, clock(step.at)),
      step.open ? age(step.at) : step.seconds === null ? element("span") : element("span", { class: "faint" }, duration(step.seconds)))))];
}

function panelOf(told) {
  const it = told.machine;
  const fact = (name, value) => (value ? [element("dt", {}, name), element("dd", {}, value)] : null);
  const addresses = [...new Set((told.addresses || []).map((address) => address.address))].join(", ");
  const size = [told.spec.minCPU && `${told.spec.minCPU} cores`, told.spec.minMemory && `${told.spec.minMemory} MiB`].filter(Boolean).join(", ");
  return [element("h2", {}, `${it.namespace}/${it.name}`),
    element("p", { class: `says ${it.health}` }, it.health === "ready" ? "Ready" : [`Waits for ${it.waitsFor} `, age(it.since)]),
    element("dl", {}, fact("Cluster", it.cluster), fact("State in MAAS", it.state), fact("Machine", [it.hostname, it.systemID].filter(Boolean).join(" · ")), fact("Zone", it.zone),
      fact("LXD host", it.host), fact("Requested", size && `at least ${size}`), fact("Image", told.spec.image), fact("Provider ID", told.providerID), fact("Addresses", addresses)),
    ...lifeOf(told),
    ...(told.placement ? [element("h3", {}, "Placement, host by host"), element("table", { class: "placement" }, element("tbody", {}, told.placement.map((host) =>
      element("tr", {}, element("th", { scope: "row" }, host.host), element("td", {}, host.chosen ? pill("ready long", host.why) : host.why)))))] :
      told.placementExpired ? [element("h3", {}, "Placement, host by host"), element("p", { class: "faint" },
        `The verdicts on each host have expired with their event; kubectl maas explain ${it.name} shows the reason that is left.`)] : []),
    element("h3", {}, "Conditions"), element("table", {}, element("tbody", {}, told.conditions.map((condition) => element("tr", {},
      element("td", {}, condition.type), element("td", {}, pill(condition.good ? "ready" : "waiting", condition.status)),
      element("td", { class: "note" }, [condition.reason, condition.message].filter(Boolean).join(": "),
        condition.action ? element("div", {}, element("strong", {}, "What to do: "), condition.action) : null))))),
    element("h3", {}, "Events"), told.eventsError ? element("p", { class: "says trouble" }, told.eventsError) : told.events.length ? element("table", {}, element("tbody", {}, [...told.events].reverse().map((event) =>
      element("tr", {}, eventRow(event).map((cell) => element("td", {}, cell)))))) : element("p", { class: "faint" }, "None in the last hour.")];
}

// Opens a machine, or reads the open one again.
let unfinished = false;
async function open(name) {
  const anew = view.open !== name;
  view.open = name;
  const [namespace, machine] = name.split("/").map(encodeURIComponent);
  const answer = await ask(`/machine?namespace=${namespace}&name=${machine}`).catch(() => null);
  const told = answer?.ok ? await answer.json() : null;
  const failed = answer ? (told ? null : await answer.text()) : "kubectl maas ui does not answer";
  if (view.open !== name) return;
  unfinished = Boolean(told?.timeline.at(-1)?.open);
  patch(byId("details"), [element("button", { id: "close" }, "Close ", element("kbd", {}, "Esc")), ...(told ? panelOf(told) : [element("p", { class: "says trouble" }, failed)])]);
  byId("details").hidden = false;
  if (anew) { byId("details").scrollTop = 0; byId("close").focus(); }
}

function shut() {
  const was = view.open;
  view.open = null;
  byId("details").hidden = true;
  [...document.querySelectorAll("#view .item")].find((it) => it.dataset.machine === was)?.focus();
}

function choose(name) {
  view.name = name in DRAW ? name : "clusters";
  history.replaceState(null, "", `#${view.name}`);
  for (const button of document.querySelectorAll("[data-view]"))
    button.dataset.view === view.name ? button.setAttribute("aria-current", "page") : button.removeAttribute("aria-current");
  scrollTo(0, 0);
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
  byId("look").textContent = `Theme: ${look}`;
  byId("look").dataset.look = look;
  document.documentElement.dataset.look = look === "system" ? (dark.matches ? "dark" : "light") : look;
}
const nextLook = () => setLook(LOOKS[(LOOKS.indexOf(byId("look").dataset.look) + 1) % LOOKS.length]);

document.addEventListener("click", (event) => {
  const it = event.target.closest("[data-machine], [data-view], [data-only], #close, #look");
  if (!it || !getSelection().isCollapsed) return;
  if (it.id === "close") shut();
  else if (it.id === "look") nextLook();
  else if (it.dataset.view) choose(it.dataset.view);
  else if (it.dataset.only) { view[it.dataset.only] = it.dataset.value || null; draw(); }
  else open(it.dataset.machine);
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const on = document.activeElement;
  if (event.key === "Escape") return view.open ? shut() : on.blur();
  if (on === byId("filter")) return;
  if (event.key === "Enter" && on.dataset.machine && on.nodeName !== "BUTTON") return open(on.dataset.machine);
  const keys = { 1: () => choose("clusters"), 2: () => choose("hosts"), 3: () => choose("metal"), 4: () => choose("events"),
    "/": () => byId("filter").focus(), j: () => move(1), k: () => move(-1), d: nextLook };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});
byId("filter").addEventListener("input", (event) => { view.filter = event.target.value.toLowerCase().split(/\s+/).filter(Boolean); draw(); });
dark.addEventListener("change", () => setLook(byId("look").dataset.look));
setInterval(() => { for (const it of document.querySelectorAll("[data-age]")) it.textContent = since(it.dateTime); }, 1000);
// That a Node has joined shows in the Machine, whose changes the page does not receive.
setInterval(() => { if (view.open && unfinished) open(view.open); }, 5000);
setLook("system");
choose(location.hash.slice(1));

function take(change) {
  if (change.reset) objects.clear();
  for (const [key, value] of Object.entries(change.set || {})) objects.set(key, value);
  for (const key of change.gone || []) objects.delete(key);
  draw();
  const isOpen = ([key, it]) => /^(machine|event)\//.test(key) && `${it.namespace}/${it.name}` === view.open;
  if (view.open && (Object.entries(change.set || {}).some(isOpen) || (change.gone || []).includes(`machine/${view.open}`))) open(view.open);
}

function tell(words, on) {
  byId("live").textContent = words;
  byId("live").classList.toggle("on", on);
}

// Server-sent events, read by fetch: an EventSource could not carry the token in a header.
async function listen() {
  for (;;) {
    try {
      const answer = await ask("/live");
      if (answer.status === 401) return tell("this page belongs to another run: open the URL that kubectl maas ui printed", false);
      if (!answer.ok) throw new Error(String(answer.status));
      tell("live", true);
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
    tell("not connected: is kubectl maas ui still running?", false);
    await new Promise((later) => setTimeout(later, 2000));
  }
}
listen();
