"use strict";

// ---- The page of a run

const runPage = find("[data-run-part]");

// What each part was when the server wrote it: the script changes times, and people open details.
const written = new Map(all("[data-swap]").map((own) => [own.id, own.innerHTML]));

const swap = (text) => {
  const news = fragment(text);
  for (const other of all("[data-swap]", news)) {
    const own = document.getElementById(other.id);
    const html = other.innerHTML;
    const hasInput = own?.matches(":has(input:focus)");
    if (!own || hasInput || written.get(other.id) === html) continue;
    written.set(other.id, html);
    const states = new Map(all("details[data-key]", own).map((it) => [it.dataset.key, it.open]));
    const focused = own.contains(document.activeElement) ? document.activeElement : null;
    const key = focused?.closest("details[data-key]")?.dataset.key;
    const address = focused?.getAttribute("href");
    own.replaceChildren(...[...other.childNodes].map((node) => document.adoptNode(node)));
    for (const it of all("details[data-key]", own)) it.open = states.get(it.dataset.key) ?? it.open;
    showTimes(own);
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
  source.addEventListener("ended", () => {
    hasEnded = true;
    source.close();
    changed();
  });
};

document.addEventListener("submit", async (event) => {
  const form = event.target;
  const path = form.dataset.runAction;
  if (!path) return;
  event.preventDefault();
  const result = find(".result", form);
  const button = find("button", form);
  button.disabled = true;
  try {
    const reason = find("[name=reason]", form)?.value;
    const answer = await send(path, reason ? { reason } : {});
    if (answer.status === 401) return location.reload();
    const content = await answer.json();
    // A turn that is tried again is in a run of its own.
    if (answer.ok && content.request_id && path.endsWith("/retry")) return location.assign(`/runs/${encodeURIComponent(content.request_id)}`);
    result.textContent = answer.ok ? "Done." : content.detail;
    button.disabled = answer.ok;
    if (!answer.ok) return;
    // The form goes with what it was for.
    document.activeElement?.blur();
    const parts = await read(runPage.dataset.runPart);
    if (parts.ok) swap(await parts.text());
  } catch {
    result.textContent = "The server did not answer: it is not known whether it was done.";
    button.disabled = false;
  }
});

if (runPage) watchRun();
