// The search of the site. The index is in scripts that are loaded when a query needs them, because a page that was opened as a file may load
// scripts but may not read files. All texts are inserted as text.
"use strict";
(() => {
  const root = new URL(".", document.currentScript.src);
  const MOST_SHOWN = 20;
  const MOST_WORDS = 8;
  // The most files of words that a prefix loads. A longer prefix needs fewer.
  const MOST_FILES = 6;

  // Loading of files. Each is loaded once; its script hands over what it has.

  const handed = new Map();
  const loading = new Map();
  globalThis.callboardSearch = {
    directory: (entries, entriesOfFile, first) => handed.set("directory", { entries, entriesOfFile, first }),
    words: (number, words) => handed.set(`words-${number}`, words),
    entries: (number, entries) => handed.set(`entries-${number}`, entries),
  };

  function load(name) {
    if (!loading.has(name)) {
      loading.set(name, new Promise((resolve, reject) => {
        const script = document.createElement("script");
        const failed = () => {
          // The next query tries again.
          loading.delete(name);
          script.remove();
          reject(new Error(name));
        };
        script.src = new URL(`search/${name}.js`, root).href;
        script.onload = () => (handed.has(name) ? resolve(handed.get(name)) : failed());
        script.onerror = failed;
        document.head.append(script);
      }));
    }
    return loading.get(name);
  }

  // Words, by the rule by which the index was made.

  const WITHOUT_SPACES = /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\u{20000}-\u{3ffff}]/u;

  function isIdentifier(word) {
    const within = word.replace(/^_+|_+$/gu, "");
    return within.includes("_") || /\p{Lowercase}\p{Uppercase}/u.test(within);
  }

  // Cuts an identifier at underscores, at changes of case and between letters and digits.
  function partsOf(word) {
    const ends = /(?<=\p{Lowercase})(?=\p{Uppercase})|(?<=.)(?=\p{Uppercase}\p{Lowercase})|(?<=\p{N})(?=\P{N})|(?<=\P{N})(?=\p{N})|_/u;
    return word.split(ends).filter((part) => part);
  }

  // Returns the words of a query, and its identifiers as they are written: these only put what has them first, because an identifier is found in
  // each way of writing it by its parts.
  function wordsOf(query) {
    const [words, whole] = [[], []];
    const add = (word) => {
      const chars = Array.from(word.toLowerCase());
      if (!WITHOUT_SPACES.test(word) || chars.length === 1) {
        words.push(chars.join(""));
      } else {
        for (let at = 0; at + 1 < chars.length; at += 1) words.push(chars[at] + chars[at + 1]);
      }
    };
    for (const run of query.normalize("NFKC").split(/[^\p{Alphabetic}\p{N}\p{M}_]+/u)) {
      if (!/[\p{Alphabetic}\p{N}]/u.test(run)) continue;
      const word = Array.from(run).slice(0, 64).join("");
      if (isIdentifier(word)) {
        partsOf(word).forEach(add);
        whole.push(word.toLowerCase());
      } else {
        add(word);
      }
    }
    return { words: [...new Set(words)].slice(0, MOST_WORDS), whole: [...new Set(whole)].slice(0, MOST_WORDS) };
  }

  // The index is in the order of code points; comparing strings compares their UTF-16 units.
  function isBefore(one, other) {
    if (!/[\ud800-\udfff]/.test(one + other)) return one < other;
    const [a, b] = [Array.from(one), Array.from(other)];
    for (let at = 0; at < Math.min(a.length, b.length); at += 1) {
      if (a[at] !== b[at]) return a[at].codePointAt(0) < b[at].codePointAt(0);
    }
    return a.length < b.length;
  }

  // Returns the words of the index that begin with a prefix.
  async function beginningWith(prefix, directory) {
    let from = directory.first.findIndex((first) => isBefore(prefix, first));
    from = Math.max((from === -1 ? directory.first.length : from) - 1, 0);
    const names = [];
    for (let at = from; at < directory.first.length && names.length < MOST_FILES; at += 1) {
      if (at > from && !directory.first[at].startsWith(prefix)) break;
      names.push(`words-${at}`);
    }
    const files = await Promise.all(names.map(load));
    return files.flat().filter(([word]) => word.startsWith(prefix));
  }

  // Returns the numbers of the entries that have the most words of a query, the best first, and whether they have all of them. Of a word that
  // very many entries have, the index has not all: an entry without it may have it, so such a word does not decide.
  async function find(query) {
    const directory = await load("directory");
    const { words, whole } = wordsOf(query);
    const scores = new Map();
    let deciding = 0;
    const found = await Promise.all(words.map((word) => beginningWith(word, directory)));
    const exact = await Promise.all(whole.map((word) => beginningWith(word, directory)));
    for (const [place, all] of found.entries()) {
      const best = new Map();
      for (const [word, , postings] of all) {
        const share = word === words[place] ? 1 : (0.9 * words[place].length) / word.length;
        let entry = 0;
        for (let at = 0; at < postings.length; at += 2) {
          entry += postings[at];
          const score = Math.log2(1 + postings[at + 1]) * share;
          if (score > (best.get(entry) ?? 0)) best.set(entry, score);
        }
      }
      const isWhole = all.every(([, count, postings]) => count * 2 === postings.length);
      if (isWhole) deciding += 1;
      const count = Math.max(1, best.size, ...all.map(([, entries]) => entries));
      const rarity = Math.log(1 + directory.entries / count);
      for (const [entry, score] of best) {
        const before = scores.get(entry) ?? { deciding: 0, words: 0, whole: 0, score: 0 };
        const decides = before.deciding + (isWhole ? 1 : 0);
        scores.set(entry, { deciding: decides, words: before.words + 1, whole: 0, score: before.score + score * rarity });
      }
    }
    for (const [, , postings] of exact.flat().filter(([word]) => whole.includes(word))) {
      let entry = 0;
      for (let at = 0; at < postings.length; at += 2) {
        entry += postings[at];
        const score = scores.get(entry);
        if (score) score.whole += 1;
      }
    }
    let most = 0;
    for (const score of scores.values()) most = Math.max(most, score.deciding);
    const best = [...scores].filter(([, score]) => score.deciding === most);
    best.sort(([one, a], [other, b]) => b.words - a.words || b.whole - a.whole || b.score - a.score || one - other);
    return { words: [...whole, ...words], numbers: best.map(([number]) => number), all: most === deciding, directory };
  }

  async function entriesOf(numbers, { entriesOfFile }) {
    const files = numbers.map((number) => load(`entries-${Math.floor(number / entriesOfFile)}`));
    return (await Promise.all(files)).map((entries, at) => entries[numbers[at] % entriesOfFile]);
  }

  // What is shown.

  const input = document.getElementById("kb:query");
  const results = document.getElementById("kb:results");
  const status = document.getElementById("kb:status");
  const panel = results.parentElement;
  const STATES = new Set(["current", "disputed", "invalid", "untrusted"]);
  let selected = -1;
  let turn = 0;

  function element(name, className, text) {
    const made = document.createElement(name);
    made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // Returns where a word of the text begins with these letters.
  function beginning(text, letters, from) {
    let place = text.indexOf(letters, from);
    while (place > 0 && !WITHOUT_SPACES.test(letters) && /[\p{L}\p{N}]$/u.test(text.slice(Math.max(0, place - 2), place))) {
      place = text.indexOf(letters, place + 1);
    }
    return place;
  }

  function emphasised(parent, text, words) {
    const letters = text.normalize("NFC");
    const lower = letters.toLowerCase();
    // Lower case can have another length; then nothing is emphasised.
    let at = 0;
    while (lower.length === letters.length && at < lower.length) {
      let [next, length] = [-1, 0];
      for (const word of words) {
        const place = beginning(lower, word, at);
        if (place !== -1 && (next === -1 || place < next || (place === next && word.length > length))) [next, length] = [place, word.length];
      }
      if (next === -1) break;
      parent.append(letters.slice(at, next), element("mark", "", letters.slice(next, next + length)));
      at = next + length;
    }
    parent.append(letters.slice(at));
    return parent;
  }

  function shown([target, title, context, kind, excerpt], place, words) {
    const item = element("li", "");
    item.id = `kb:result-${place}`;
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", "false");
    item.dataset.target = new URL(target, root).href;
    item.append(emphasised(element("span", "title"), title, words));
    if (kind) item.append(" ", element("span", STATES.has(kind) ? `state ${kind}` : "state", kind));
    if (context) item.append(element("span", "context", context));
    if (excerpt) item.append(emphasised(element("span", "excerpt"), excerpt, words));
    return item;
  }

  function select(place) {
    const items = [...results.children];
    selected = items.length === 0 ? -1 : (place + items.length) % items.length;
    items.forEach((item, at) => item.setAttribute("aria-selected", String(at === selected)));
    if (selected === -1) {
      input.removeAttribute("aria-activedescendant");
    } else {
      input.setAttribute("aria-activedescendant", items[selected].id);
      items[selected].scrollIntoView({ block: "nearest", behavior: "instant" });
    }
  }

  function close() {
    turn += 1;
    panel.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function open(text, items) {
    status.textContent = text;
    results.replaceChildren(...items);
    panel.hidden = false;
    results.scrollTop = 0;
    input.setAttribute("aria-expanded", "true");
    select(items.length > 0 ? 0 : -1);
  }

  function summary({ numbers, all }, shownCount) {
    if (numbers.length === 0) return "Nothing found.";
    const count = numbers.length === 1 ? "1 result" : `${numbers.length.toLocaleString("en")} results`;
    const best = numbers.length > shownCount ? `, the best ${shownCount}` : "";
    return `${count}${best}${all ? "" : "; none has all of the words"}.`;
  }

  async function search() {
    turn += 1;
    const own = turn;
    if (wordsOf(input.value).words.length === 0) {
      close();
      return;
    }
    try {
      const found = await find(input.value);
      const numbers = found.numbers.slice(0, MOST_SHOWN);
      const entries = await entriesOf(numbers, found.directory);
      // Another query came meanwhile.
      if (own !== turn) return;
      open(summary(found, numbers.length), entries.map((entry, place) => shown(entry, place, found.words)));
    } catch {
      if (own === turn) open("The index of the search could not be loaded. Copy the whole folder of the site, with the folder \u201csearch\u201d.", []);
    }
  }

  function follow(item, isNewTab) {
    if (isNewTab) {
      window.open(item.dataset.target, "_blank", "noopener");
      return;
    }
    close();
    input.blur();
    location.assign(item.dataset.target);
  }

  // Blocks that can be scrolled can be reached by the keyboard, also in browsers that do not see to it themselves.
  new ResizeObserver(() => {
    for (const block of document.querySelectorAll("main pre, main .table")) {
      if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
      else block.removeAttribute("tabindex");
    }
  }).observe(document.body);

  input.addEventListener("input", search);
  input.addEventListener("focus", () => { if (input.value) search(); });
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") {
      if (panel.hidden) input.blur();
      close();
      event.preventDefault();
    } else if (panel.hidden) {
      if (event.key === "ArrowDown" || event.key === "Enter") search();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      select(selected + (event.key === "ArrowDown" ? 1 : -1));
      event.preventDefault();
    } else if (event.key === "Enter" && selected >= 0) {
      follow(results.children[selected], event.ctrlKey || event.metaKey);
      event.preventDefault();
    }
  });
  results.addEventListener("mousedown", (event) => event.preventDefault());
  results.addEventListener("click", (event) => {
    const item = event.target.closest("li");
    if (item) follow(item, event.ctrlKey || event.metaKey);
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      input.focus();
      input.select();
    }
  });
  document.addEventListener("click", (event) => {
    if (!input.parentElement.contains(event.target)) close();
  });
  input.addEventListener("blur", (event) => {
    if (!panel.contains(event.relatedTarget)) close();
  });
})();
