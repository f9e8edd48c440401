"use strict";

const csrf = document.querySelector('meta[name="csrf"]')?.content;
const find = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// Sends a request that changes something.
const send = (path, body) => fetch(path, {
  method: "POST",
  credentials: "same-origin",
  redirect: "error",
  headers: { "Content-Type": "application/json", ...(csrf && { "X-Callboard-Csrf": csrf }) },
  body: typeof body === "string" ? body : JSON.stringify(body ?? {}),
});

const read = (path) => fetch(path, { credentials: "same-origin", redirect: "error" });

// ---- Signing in and out

const signIn = async (status) => {
  const secret = location.hash.slice(1);
  if (secret) {
    // Neither the history nor the address bar keeps it.
    history.replaceState(null, "", "/sign-in");
    status.textContent = "Signing in …";
    try {
      const answer = await send("/sign-in", { secret });
      if (answer.ok) return location.replace(pageAsked());
      const problem = await answer.json();
      status.textContent = `${problem.detail}. Run this in the folder of the project for another one:`;
    } catch {
      status.textContent = "The server does not answer. Run this in the folder of the project, once it does:";
    }
    return;
  }
  // A page that is opened from another site is sent without the cookie.
  const answer = await read("/session").catch(() => null);
  if (answer?.status === 204) location.replace(pageAsked());
};

// The page that somebody has opened who was not signed in, within the last minutes: a path of this origin.
const ASKED = "asked";
const pageAsked = () => {
  const { path, at } = JSON.parse(localStorage.getItem(ASKED) ?? "{}");
  localStorage.removeItem(ASKED);
  const url = path && Date.now() - at < 600_000 ? new URL(path, location.origin) : null;
  return url?.origin === location.origin && url.pathname !== "/sign-in" ? url.pathname + url.search : "/";
};

const status = find("[data-sign-in] [data-status]");
if (status) {
  const path = location.pathname + location.search;
  if (location.pathname !== "/sign-in") localStorage.setItem(ASKED, JSON.stringify({ path, at: Date.now() }));
  signIn(status);
  // The page of another link may be open already.
  addEventListener("hashchange", () => signIn(status));
}

find("[data-sign-out]")?.addEventListener("click", async () => {
  await send("/sign-out").catch(() => null);
  location.replace("/");
});

const menu = find("details.menu");
addEventListener("click", (event) => {
  if (menu && !menu.contains(event.target)) menu.open = false;
});
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !menu?.open) return;
  menu.open = false;
  find("summary", menu).focus();
});

// ---- Times, in the zone of the reader

const day = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });
const hour = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

const timeText = (at) => {
  const isToday = day.format(at) === day.format(new Date());
  return isToday ? hour.format(at) : `${day.format(at)}, ${hour.format(at)}`;
};

const showTimes = (within) => {
  for (const time of all("time[datetime]", within)) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.textContent = timeText(at);
    time.title = whole.format(at);
  }
};

// ---- Decisions

const DONE = {
  approve: "Approved", deny: "Denied", edit: "Replaced with other arguments", answer: "Answered", resume: "Continued",
  restart: "Started again", retry: "Tried again", drop: "Dropped", overwrite: "Written over", read_again: "Read again",
};

// Times in the texts of the server.
const inZone = (text) => text.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, (at) => timeText(new Date(at)));

// A text that is shown as it is.
const shownText = (text) => {
  const shown = document.createElement("pre");
  shown.className = "text";
  shown.textContent = text;
  return shown;
};

// What is decided is "done" or "denied"; "voted" if others have to approve as well; "gone" if it was decided elsewhere; "wrong" if nothing
// has changed.
const finish = (item, state, text, edited = "") => {
  const height = item.offsetHeight;
  item.classList.remove("wrong", "gone", "voted");
  item.classList.add(state);
  find(".result", item).textContent = text;
  if (state === "wrong") return;
  delete item.dataset.unknown;
  // Who had decided until then.
  if (state !== "voted") for (const part of all(".deciders, .standing", item)) part.remove();
  // What is below does not move while somebody looks at it; a form that its reader had opened is gone.
  item.style.minHeight = `${height}px`;
  const release = () => item.style.removeProperty("min-height");
  if (item.matches(":hover")) item.addEventListener("pointerleave", release, { once: true });
  else if (state !== "gone") item.addEventListener("focusout", release, { once: true });
  if (edited) find("[data-text]", item)?.replaceChildren(shownText(edited));
  const hadFocus = item.contains(document.activeElement);
  for (const control of all(".actions, .more, .pick", item)) control.hidden = true;
  const pick = find("[data-pick]", item);
  if (pick) pick.checked = false;
  showBatch();
  if (hadFocus) item.focus();
};

const isOver = (item) => item.matches(".done, .denied, .gone, [data-sent]");

const show = (item, { response, reason, value }, result, edited) => {
  // It is known with the next part of the page.
  if (result.problem?.status === 0) item.dataset.unknown = "";
  // Somebody was first, or it no longer waits.
  if (result.problem) return finish(item, [404, 409].includes(result.problem.status) ? "gone" : "wrong", inZone(result.problem.detail));
  const missing = result.missing ?? 0;
  const needs = missing ? ` · ${missing} more ${missing === 1 ? "person has" : "people have"} to approve` : "";
  const said = reason ?? value;
  const why = said ? ` · “${said}”` : "";
  const state = missing ? "voted" : ["deny", "drop"].includes(response) ? "denied" : "done";
  const done = response === "edit" && result.outcome !== "replaced" ? "Approved" : DONE[response];
  finish(item, state, `${done} by ${result.by} · ${timeText(new Date())}${why}${needs}`, edited);
  if (!result.retried_as) return;
  const link = document.createElement("a");
  link.href = `/runs/${encodeURIComponent(result.retried_as)}`;
  link.textContent = "the run that tries it again";
  find(".result", item).append(" · ", link);
};

// Decides the same about each item. `json` are fields as JSON, whose numbers stay as they were written.
const decide = async (items, body, json = {}) => {
  const controls = items.flatMap((item) => all("button, input, textarea", item));
  const used = document.activeElement;
  const focused = items.find((item) => item.contains(used));
  for (const control of controls) control.disabled = true;
  // A control that is disabled loses the focus, and the keyboard its place.
  focused?.focus();
  // The stream may report it before the answer is here.
  for (const item of items) item.dataset.sent = "";
  const decisions = items.map((item) => {
    const fields = Object.entries({ ...body, id: item.dataset.id }).map(([name, value]) => [name, JSON.stringify(value)]);
    return `{${[...fields, ...Object.entries(json)].map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(",")}}`;
  });
  let results;
  try {
    const answer = await send("/v1/inbox/decisions", `{"decisions":[${decisions.join(",")}]}`);
    if (answer.status === 401) return location.reload();
    const content = await answer.json();
    results = answer.ok ? content.results : items.map(() => ({ problem: content }));
  } catch {
    const detail = "The server did not answer: it is not known whether it has decided.";
    results = items.map(() => ({ problem: { status: 0, detail } }));
  }
  for (const control of controls) control.disabled = false;
  items.forEach((item, at) => {
    delete item.dataset.sent;
    show(item, body, results[at], json.arguments);
  });
  if (focused && !isOver(focused) && document.activeElement === focused) used.focus();
};

// ---- Several items at a time

const batch = find("#batch");
const picked = () => all("#items > .item").filter((item) => find("[data-pick]:checked", item));
const kindOf = (item) => find(".kind", item).textContent;

const showBatch = () => {
  if (!batch) return;
  const items = picked();
  batch.hidden = items.length === 0;
  find("[data-count]", batch).textContent = items.length;
  const can = items.map((item) => item.dataset.can.split(" "));
  const common = (can[0] ?? []).filter((response) => can.every((other) => other.includes(response)));
  const buttons = common.map((response) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.batch = response;
    button.textContent = { approve: "Approve", deny: "Deny", resume: "Continue", restart: "Start again", retry: "Try again", drop: "Drop", read_again: "Read again" }[response];
    return button;
  });
  find("[data-buttons]", batch).replaceChildren(...(buttons.length || !items.length ? buttons : ["These have no action in common."]));
};

document.addEventListener("change", (event) => {
  if (event.target.dataset.pick !== undefined) showBatch();
});

batch?.addEventListener("click", (event) => {
  const { batch: response, all: everything, none } = event.target.dataset;
  if (response) {
    const field = find("[name=reason]", batch);
    decide(picked(), { response, ...(field.value && { reason: field.value }) });
    field.value = "";
  } else if (everything !== undefined || none !== undefined) {
    const kinds = new Set(picked().map(kindOf));
    for (const item of all("#items > .item[data-can]")) {
      if (!isOver(item)) find("[data-pick]", item).checked = none === undefined && kinds.has(kindOf(item));
    }
    showBatch();
  }
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  const item = form.closest(".item");
  if (!item && form !== batch) return;
  event.preventDefault();
  if (!item) return;
  const [body, json] = [{ response: form.dataset.response }, {}];
  const field = find("[name]", form);
  if (field?.dataset.json !== undefined) {
    try {
      JSON.parse(field.value);
      json[field.name] = field.value;
    } catch (error) {
      return finish(item, "wrong", `This is no JSON: ${error.message}.`);
    }
  } else if (field) {
    body[field.name] = event.submitter?.dataset.value ?? field.value;
    if (form.dataset.response === "answer" && !body[field.name].trim()) return finish(item, "wrong", "Write an answer.");
  }
  decide([item], body, json);
});

// Opens a form of an item, or closes it.
const toggle = async (button, item) => {
  const name = button.dataset.opens;
  let form = find(`form[data-response="${name}"]`, item);
  if (form) {
    form.hidden = !form.hidden;
  } else {
    form = find(`template[data-form="${name}"]`).content.firstElementChild.cloneNode(true);
    find(".result", item).before(form);
  }
  button.setAttribute("aria-expanded", String(!form.hidden));
  if (form.hidden) return;
  const field = find("input, textarea", form);
  if (field.dataset.fill !== undefined && !field.value) {
    const answer = await read(`/parts/arguments?id=${encodeURIComponent(item.dataset.id)}`).catch(() => null);
    if (answer?.ok) field.value = field.dataset.asked = await answer.text();
  }
  field.focus();
};

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  const item = button?.closest(".item");
  if (!item) return;
  if (button.dataset.value !== undefined && !button.form) {
    decide([item], { response: "answer", value: button.dataset.value });
  } else if (button.dataset.response) {
    // What would be approved is not what was written.
    const draft = find('form[data-response="edit"]:not([hidden]) textarea', item);
    if (draft && draft.value !== draft.dataset.asked && button.dataset.response === "approve") {
      return finish(item, "wrong", "You have changed the arguments: approve these, or close the form to approve what was asked.");
    }
    decide([item], { response: button.dataset.response, ...(button.dataset.forRun !== undefined && { for_run: true }) });
  } else if (button.dataset.opens) {
    toggle(button, item);
  } else if (button.dataset.whole !== undefined) {
    const answer = await read(`/parts/whole?id=${encodeURIComponent(item.dataset.id)}`).catch(() => null);
    if (!answer?.ok) return;
    const text = fragment(await answer.text());
    button.closest("[data-text]").replaceChildren(...all("pre.text", text).map((part) => document.adoptNode(part)));
  }
});

// Closes the form that a field is in, if it was opened.
const close = (field) => {
  const [item, form] = [field.closest(".item"), field.closest("form[data-response]")];
  const button = form && item && find(`[data-opens="${form.dataset.response}"]`, item);
  if (button) toggle(button, item).then(() => button.focus());
  else item?.focus();
};

// Enter sends an answer, and Shift+Enter begins another line of it.
document.addEventListener("keydown", (event) => {
  const field = event.target;
  if (field.localName === "textarea" && field.closest(".item") && event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    field.form?.requestSubmit();
  }
  const isTyping = ["input", "textarea"].includes(field.localName);
  if (event.key === "Escape" && isTyping) close(field);
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !["j", "k"].includes(event.key)) return;
  const items = all(".item");
  const at = items.indexOf(document.activeElement?.closest(".item"));
  const next = event.key === "j" ? Math.min(at + 1, items.length - 1) : Math.max(at - 1, 0);
  items[next]?.focus();
});

// ---- What changes while it is shown

const part = find("[data-part]");

const fragment = (text) => new DOMParser().parseFromString(text, "text/html");

// What has become of an item that is no longer listed.
const ended = async (item) => {
  const answer = await read(`/parts/ended?id=${encodeURIComponent(item.dataset.id)}`).catch(() => null);
  const { waits, how } = answer?.ok ? await answer.json() : { waits: true };
  // Others may have taken its place in a list that is not whole.
  if (waits || isOver(item)) return;
  finish(item, "gone", how ? inZone(`${how[0].toUpperCase()}${how.slice(1)}`) : "This no longer waits: its time is over, or its run has ended.");
};

// Shows who has decided since about an item, and whether its reader still does.
const renew = (item, other) => {
  if (item.dataset.unknown !== undefined) {
    delete item.dataset.unknown;
    finish(item, "wrong", "The server had not answered, and this still waits: decide again.");
  }
  for (const part of [".deciders", ".standing"]) {
    const [own, now] = [find(part, item), find(part, other)];
    if (own && now && own.innerHTML !== now.innerHTML) own.replaceWith(document.adoptNode(now));
  }
  const [could, can] = [find(".actions", item) !== null, find(".actions", other) !== null];
  if (could !== can && !item.matches(".voted")) item.replaceWith(document.adoptNode(other));
};

// What is there keeps its place and what was typed in it; what is new is appended.
const merge = (text) => {
  const news = fragment(text);
  for (const id of ["line", "notes", "filters"]) {
    const [own, other] = [find(`#${id}`), find(`#${id}`, news)];
    if (own && other && own.innerHTML !== other.innerHTML) own.replaceWith(document.adoptNode(other));
  }
  const [list, others] = [find("#items"), all("#items > .item", news)];
  const known = new Map(all(".item", list).map((item) => [item.dataset.id, item]));
  const open = new Set(others.map((item) => item.dataset.id));
  for (const [id, item] of known) {
    if (!open.has(id) && !isOver(item)) ended(item);
  }
  for (const other of others) {
    const item = known.get(other.dataset.id);
    showTimes(other);
    if (!item) list.append(document.adoptNode(other));
    else if (!isOver(item)) renew(item, other);
  }
  find("#empty").hidden = list.children.length > 0;
  find("#waiting").hidden = list.children.length === 0;
};

const watch = () => {
  const state = find("#state");
  const source = new EventSource(part.dataset.events);
  const update = async () => {
    const answer = await read(part.dataset.part).catch(() => null);
    if (answer?.status === 401) return location.reload();
    if (answer?.ok) merge(await answer.text());
    // No other event may come.
    else setTimeout(changed, 2000);
  };
  let [isReading, isDue] = [false, false];
  // One request at a time, and one more if something has changed meanwhile.
  const changed = async () => {
    isDue = true;
    if (isReading) return;
    isReading = true;
    while (isDue) {
      isDue = false;
      await update();
    }
    isReading = false;
  };
  source.addEventListener("open", () => {
    state.textContent = "Live";
    state.classList.remove("off");
  });
  source.addEventListener("error", () => {
    state.textContent = "Not connected: what is shown may be old. Connecting again …";
    state.classList.add("off");
    // A session that has ended is not connected again.
    if (source.readyState === EventSource.CLOSED) read(part.dataset.part).then((answer) => answer.status === 401 && location.reload(), () => setTimeout(watch, 5000));
  });
  // The first comes at once.
  source.addEventListener("changed", changed);
};

showTimes(document);
if (part) watch();
