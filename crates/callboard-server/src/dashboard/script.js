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
  body: JSON.stringify(body ?? {}),
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
      if (answer.ok) return location.replace("/");
      const problem = await answer.json();
      status.textContent = `${problem.detail}. Run this in the folder of the project for another one:`;
    } catch {
      status.textContent = "The server does not answer. Run this in the folder of the project, once it does:";
    }
    return;
  }
  // A page that is opened from another site is sent without the cookie.
  const answer = await read("/session").catch(() => null);
  if (answer?.status === 204) location.replace("/");
};

const status = find("[data-sign-in] [data-status]");
if (status) {
  signIn(status);
  // The page of another link may be open already.
  addEventListener("hashchange", () => signIn(status));
}

find("[data-sign-out]")?.addEventListener("click", async () => {
  await send("/sign-out").catch(() => null);
  location.replace("/");
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
  approve: "Approved", deny: "Denied", answer: "Answered", resume: "Continued", restart: "Started again", retry: "Tried again",
  drop: "Dropped", overwrite: "Written over", read_again: "Read again",
};

const finish = (item, state, text) => {
  item.classList.remove("wrong", "gone");
  item.classList.add(state);
  find(".result", item).textContent = text;
  const isOver = state === "done" || state === "gone";
  if (!isOver) return;
  // What is below does not move under the pointer.
  item.style.minHeight = `${item.offsetHeight}px`;
  const hadFocus = item.contains(document.activeElement);
  for (const control of all(".actions, .more", item)) control.hidden = true;
  if (hadFocus) item.focus();
};

const decide = async (item, body) => {
  const controls = all("button, input, textarea", item);
  for (const control of controls) control.disabled = true;
  // The stream may report it before the answer is here.
  item.dataset.sent = "";
  const enable = () => {
    delete item.dataset.sent;
    for (const control of controls) control.disabled = false;
  };
  try {
    const answer = await send("/v1/inbox/decisions", { decisions: [{ ...body, id: item.dataset.id }] });
    if (answer.status === 401) return location.reload();
    const content = await answer.json();
    const [result] = answer.ok ? content.results : [{ problem: content }];
    if (!result.problem) {
      const missing = result.missing ?? 0;
      const needs = missing ? ` · ${missing} more ${missing === 1 ? "person has" : "people have"} to approve` : "";
      finish(item, "done", `${DONE[body.response]} by ${result.by} · ${timeText(new Date())}${needs}`);
    } else {
      // Somebody was first, or it no longer waits.
      finish(item, [404, 409].includes(result.problem.status) ? "gone" : "wrong", result.problem.detail);
      enable();
    }
  } catch {
    finish(item, "wrong", "The server did not answer: it is not known whether it has decided.");
    enable();
  }
};

document.addEventListener("submit", (event) => {
  const form = event.target;
  const item = form.closest(".item");
  if (!item) return;
  event.preventDefault();
  const body = { response: form.dataset.response };
  const field = find("[name]", form);
  if (field) body[field.name] = event.submitter?.dataset.value ?? field.value;
  if (field?.dataset.json !== undefined) {
    try {
      body[field.name] = JSON.parse(field.value);
    } catch {
      return finish(item, "wrong", "This is no JSON: write an object, such as {\"channel\": \"value\"}.");
    }
  }
  decide(item, body);
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  const item = button?.closest(".item");
  if (!item) return;
  if (button.dataset.value !== undefined && !button.form) {
    decide(item, { response: "answer", value: button.dataset.value });
  } else if (button.dataset.response) {
    decide(item, { response: button.dataset.response });
  } else if (button.dataset.opens) {
    const form = find(`[data-form="${button.dataset.opens}"]`, item);
    form.hidden = !form.hidden;
    button.setAttribute("aria-expanded", String(!form.hidden));
    if (!form.hidden) find("input, textarea", form).focus();
  } else if (button.dataset.whole !== undefined) {
    const answer = await read(`/parts/whole?id=${encodeURIComponent(item.dataset.id)}`).catch(() => null);
    if (!answer?.ok) return;
    const text = fragment(await answer.text());
    find("pre.text", item).replaceWith(find("pre.text", text));
    button.closest(".cut").remove();
  }
});

// Enter sends an answer, and Shift+Enter begins another line of it.
document.addEventListener("keydown", (event) => {
  const field = event.target;
  if (field.localName === "textarea" && event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    field.form?.requestSubmit();
  }
  const isTyping = ["input", "textarea"].includes(field.localName);
  if (event.key === "Escape" && isTyping) field.closest(".item")?.focus();
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !["j", "k"].includes(event.key)) return;
  const items = all(".item");
  const at = items.indexOf(document.activeElement?.closest(".item"));
  const next = event.key === "j" ? Math.min(at + 1, items.length - 1) : Math.max(at - 1, 0);
  items[next]?.focus();
});

// ---- What changes while it is shown

const part = find("[data-part]");

const fragment = (text) => new DOMParser().parseFromString(text, "text/html");

// What is there keeps its place and what was typed in it; what is new is appended.
const merge = (text) => {
  const news = fragment(text);
  for (const id of ["line", "notes"]) {
    const [own, other] = [find(`#${id}`), find(`#${id}`, news)];
    if (own && other && own.innerHTML !== other.innerHTML) own.replaceWith(document.adoptNode(other));
  }
  const [list, others] = [find("#items"), all("#items > .item", news)];
  const known = new Map(all(".item", list).map((item) => [item.dataset.id, item]));
  const open = new Set(others.map((item) => item.dataset.id));
  const isCut = find("#items", news).dataset.cut !== undefined;
  for (const [id, item] of known) {
    if (open.has(id) || item.matches(".done, .gone, [data-sent]")) continue;
    // Others may have taken its place in a list that is not whole.
    const waits = isCut ? read(`/parts/whole?id=${encodeURIComponent(id)}`).then((answer) => answer.status !== 404, () => true) : Promise.resolve(false);
    waits.then((does) => {
      if (!does && !item.matches(".done, .gone, [data-sent]")) finish(item, "gone", "This no longer waits: it was decided elsewhere, or its time is over.");
    });
  }
  for (const item of others) {
    if (known.has(item.dataset.id)) continue;
    showTimes(item);
    list.append(document.adoptNode(item));
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
