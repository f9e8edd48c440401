"use strict";

// ---- The page of a run

const runPage = find("[data-run-part]");

// What each part was when the server wrote it: the script changes times, and people open details.
const written = new Map(all("[data-swap]").map((own) => [own.id, own.innerHTML]));

// Replaces what is in an element. Details that a person opened stay open.
const fill = (own, other) => {
  const states = new Map(all("details[data-key]", own).map((it) => [it.dataset.key, it.open]));
  own.replaceChildren(...[...other.childNodes].map((node) => document.adoptNode(node)));
  for (const it of all("details[data-key]", own)) it.open = states.get(it.dataset.key) ?? it.open;
  showTimes(own);
};

// Whether somebody has selected a text there, which would be lost.
const isSelected = (own) => {
  const selection = getSelection();
  return !selection.isCollapsed && own.contains(selection.anchorNode);
};

let isKept = false;

const swap = (text) => {
  const news = fragment(text);
  isKept = false;
  for (const other of all("[data-swap]", news)) {
    const own = document.getElementById(other.id);
    const html = other.innerHTML;
    const hasInput = own?.matches(":has(input:focus)");
    if (!own || hasInput || written.get(other.id) === html) continue;
    if (isSelected(own)) {
      isKept = true;
      continue;
    }
    written.set(other.id, html);
    const focused = own.contains(document.activeElement) ? document.activeElement : null;
    const key = focused?.closest("details[data-key]")?.dataset.key;
    const address = focused?.getAttribute("href");
    fill(own, other);
    const again = key ? find(`details[data-key="${key}"] > summary`, own) : address && all("a", own).find((link) => link.getAttribute("href") === address);
    again?.focus();
  }
};

const watchRun = () => {
  const state = find("#run-state");
  const source = new EventSource(runPage.dataset.runEvents);
  let [isReading, isDue, hasEnded] = [false, false, false];
  const changed = async () => {
    isDue = true;
    if (isReading) return;
    isReading = true;
    while (isDue) {
      isDue = false;
      const answer = await read(runPage.dataset.runPart).catch(() => null);
      if (answer?.status === 401) return location.reload();
      if (answer?.ok) swap(await answer.text());
    }
    isReading = false;
    if (hasEnded) state.textContent = "";
  };
  source.addEventListener("open", () => {
    state.textContent = "Live";
    state.classList.remove("off");
  });
  source.addEventListener("error", () => {
    if (hasEnded) return;
    state.textContent = "Not connected: what is shown may be old. Connecting again …";
    state.classList.add("off");
    if (source.readyState === EventSource.CLOSED) read(runPage.dataset.runPart).then((answer) => answer.status === 401 && location.reload(), () => setTimeout(watchRun, 5000));
  });
  source.addEventListener("changed", changed);
  document.addEventListener("selectionchange", () => isKept && getSelection().isCollapsed && changed());
  source.addEventListener("ended", () => {
    hasEnded = true;
    source.close();
    changed();
  });
};

// What a form asks for, as a text of JSON: numbers are sent with all of their digits.
const asked = (form) => {
  const field = (name) => find(`[name=${name}]`, form);
  const json = (name) => {
    JSON.parse(field(name).value);
    return field(name).value;
  };
  const fields = [];
  if (form.dataset.workflow) {
    const inputs = all("[data-input]", form).map((input) => {
      const isJson = all("[data-is-json]", form).some((box) => box.dataset.isJson === input.dataset.input && box.checked);
      if (isJson) JSON.parse(input.value);
      return `${JSON.stringify(input.dataset.input)}:${isJson ? input.value : JSON.stringify(input.value)}`;
    });
    fields.push(`"workflow":${JSON.stringify(form.dataset.workflow)},"body":${JSON.stringify(field("body").value)},"input":{${inputs.join(",")}}`);
  }
  if (form.dataset.turn) fields.push(`"turn":${form.dataset.turn}`);
  if (field("reason")?.value) fields.push(`"reason":${JSON.stringify(field("reason").value)}`);
  if (field("input") && field("input").value !== field("input").defaultValue) fields.push(`"input":${json("input")}`);
  if (field("channel")?.value) fields.push(`"set":{${JSON.stringify(field("channel").value)}:${json("value")}}`);
  return `{${fields.join(",")}}`;
};

document.addEventListener("submit", async (event) => {
  const form = event.target;
  const path = form.dataset.runAction;
  if (!path) return;
  event.preventDefault();
  const result = find(".result", form);
  const button = find("button", form);
  let body;
  try {
    body = asked(form);
  } catch (error) {
    result.textContent = `This is no JSON: ${error.message}.`;
    return;
  }
  button.disabled = true;
  try {
    const answer = await send(path, body);
    if (answer.status === 401) return location.reload();
    const content = await answer.json();
    // A turn that is tried again, a fork and a workflow are runs of their own.
    if (answer.ok && content.request_id && !path.endsWith("/cancel")) return location.assign(`/runs/${encodeURIComponent(content.request_id)}`);
    result.textContent = answer.ok ? "Done." : content.detail;
    button.disabled = answer.ok;
    if (!answer.ok) return;
    // The form goes with what it was for.
    document.activeElement?.blur();
    const parts = runPage && await read(runPage.dataset.runPart);
    if (parts?.ok) swap(await parts.text());
  } catch {
    result.textContent = "The server did not answer: it is not known whether it was done.";
    button.disabled = false;
  }
});

if (runPage) watchRun();

// A drawing that is wider than the window is shown from its middle, where its first node is.
const showMiddle = (drawing) => {
  drawing.scrollLeft = (drawing.scrollWidth - drawing.clientWidth) / 2;
};
for (const picture of all(".drawing img")) {
  picture.addEventListener("load", () => showMiddle(picture.parentElement), { once: true });
  if (picture.complete) showMiddle(picture.parentElement);
}

// ---- The journal of a run

const watchJournal = (journal) => {
  const [control, output, moment] = [find("[name=event]", journal), find("output", journal), find("#moment")];
  find("button", journal).hidden = true;
  let [isReading, wanted] = [false, null];
  control.addEventListener("input", async () => {
    wanted = control.value;
    output.textContent = `${wanted} of ${control.max}`;
    if (isReading) return;
    isReading = true;
    while (wanted !== null) {
      const event = wanted;
      wanted = null;
      const answer = await read(`${journal.dataset.journal}&event=${event}`).catch(() => null);
      if (answer?.status === 401) return location.reload();
      if (answer?.ok) fill(moment, fragment(await answer.text()).body);
      else output.textContent = `${event} of ${control.max}: the server did not answer`;
      if (wanted === null) history.replaceState(null, "", `?event=${event}`);
    }
    isReading = false;
  });
};

const journal = find("[data-journal]");
if (journal) watchJournal(journal);

// ---- Several runs at a time

const runBatch = find("[data-run-batch]");
const pickedRuns = () => all("[data-run]:checked");

const sendBatch = async (event) => {
  event.preventDefault();
  const [action, reason, result] = [event.submitter.value, find("[name=reason]", runBatch).value, find(".result", runBatch)];
  const [picked, done, refused] = [pickedRuns(), [], []];
  // What came of those before stays to be read.
  if (picked.length === 0) return;
  for (const box of picked) {
    const body = action === "cancel" && reason ? { reason } : {};
    const answer = await send(`/v1/delegations/${box.dataset.run}/${action}`, body).catch(() => null);
    if (answer?.status === 401) return location.reload();
    if (answer?.ok) done.push(box);
    else refused.push(answer ? (await answer.json()).detail : "the server did not answer: it is not known whether it was done");
    box.checked = false;
  }
  if (refused.length === 0) return location.reload();
  result.textContent = `${done.length} done, ${refused.length} not: ${refused[0]}`;
};

if (runBatch) {
  document.addEventListener("change", () => {
    const count = pickedRuns().length;
    runBatch.hidden = count === 0;
    find("[data-count]", runBatch).textContent = count;
  });
  runBatch.addEventListener("submit", sendBatch);
}
