"use strict";

const csrf = document.querySelector('meta[name="csrf"]')?.content;

// Sends a request that changes something.
const send = (method, path, body) => fetch(path, {
  method,
  credentials: "same-origin",
  redirect: "error",
  headers: { "Content-Type": "application/json", ...(csrf && { "X-Callboard-Csrf": csrf }) },
  body: JSON.stringify(body ?? {}),
});

const signIn = async (status) => {
  const secret = location.hash.slice(1);
  if (secret) {
    // Neither the history nor the address bar keeps it.
    history.replaceState(null, "", "/sign-in");
    status.textContent = "Signing in …";
    try {
      const answer = await send("POST", "/sign-in", { secret });
      if (answer.ok) return location.replace("/");
      const problem = await answer.json();
      status.textContent = `${problem.detail}. Run this in the folder of the project for another one:`;
    } catch {
      status.textContent = "The server does not answer. Run this in the folder of the project, once it does:";
    }
    return;
  }
  // A page that is opened from another site is sent without the cookie.
  const answer = await fetch("/session", { credentials: "same-origin" }).catch(() => null);
  if (answer?.status === 204) location.replace("/");
};

const status = document.querySelector("[data-sign-in] [data-status]");
if (status) signIn(status);
// The page of another link may be open already.
if (status) addEventListener("hashchange", () => signIn(status));

document.querySelector("[data-sign-out]")?.addEventListener("click", async () => {
  await send("POST", "/sign-out").catch(() => null);
  location.replace("/");
});
