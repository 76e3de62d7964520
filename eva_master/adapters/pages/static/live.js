// Keeps the live parts of this page as they are in the cluster, while somebody can see them.
"use strict";
(() => {
  const body = document.body;
  // Browsers make six connections to a server, for all tabs together: so many tabs hold a stream,
  // and others ask now and then.
  const STREAMS = 3;
  const ASK_MS = 2000;
  let cursor = body.dataset.cursor;
  let stop = null;

  const kept = {
    // A reader has opened it.
    beforeAttributeUpdated: (name, node) => !(name === "open" && node.nodeName === "DETAILS"),
    // A reader has had its content fetched.
    beforeNodeMorphed: (node) => !(node.dataset && node.dataset.keep !== undefined && node.firstElementChild),
  };

  function show(text) {
    const told = JSON.parse(text);
    cursor = told.at;
    for (const [id, html] of Object.entries(told.parts)) {
      const part = document.getElementById(id);
      if (part === null) { location.reload(); return; }
      Idiomorph.morph(part, html, { morphStyle: "innerHTML", ignoreActiveValue: true, callbacks: kept });
      htmx.process(part);
      part.dispatchEvent(new CustomEvent("eva:changed", { bubbles: true }));
    }
  }

  const address = (once) => "/live?" + new URLSearchParams([["on", body.dataset.topic], ["at", cursor], ...once]);
  const later = (ms, ended) => new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    ended.addEventListener("abort", () => { clearTimeout(timer); resolve(); });
  });

  // Follow the page by a stream, until it breaks or `ended` says so.
  function stream(ended) {
    return new Promise((resolve) => {
      const source = new EventSource(address([]));
      const close = () => { source.close(); resolve(); };
      source.onmessage = (event) => show(event.data);
      source.addEventListener("end", () => { close(); location.reload(); });
      source.onerror = close;
      ended.addEventListener("abort", close);
    });
  }

  async function ask(ended) {
    try {
      const answer = await fetch(address([["once", "yes"]]), { signal: ended });
      if (answer.status === 200) show(await answer.text());
      else if (answer.status === 401) location.reload();
    } catch { /* The next one may fare better. */ }
  }

  // Whether one of the places for streams was free, and the stream has ended by now.
  async function streamed(ended) {
    if (!navigator.locks) { await stream(ended); return true; }
    for (let place = 0; place < STREAMS; place += 1) {
      const free = await navigator.locks.request("eva-stream-" + place, { ifAvailable: true },
        (lock) => (lock === null ? false : stream(ended).then(() => true)));
      if (free || ended.aborted) return true;
    }
    return false;
  }

  async function follow(ended) {
    while (!ended.aborted) {
      const whole = await streamed(ended);
      if (ended.aborted) return;
      await later(whole ? ASK_MS * Math.random() : 0, ended);
      if (ended.aborted) return;
      await ask(ended);
      await later(ASK_MS, ended);
    }
  }

  function open() {
    if (stop !== null || !body.dataset.topic || document.hidden) return;
    stop = new AbortController();
    follow(stop.signal);
  }

  function close() {
    if (stop !== null) { stop.abort(); stop = null; }
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) for (const button of document.querySelectorAll("button")) button.disabled = false;
    open();
  });
  document.addEventListener("submit", (event) => {
    for (const button of event.target.querySelectorAll("button")) setTimeout(() => { button.disabled = true; });
  });
  open();
})();
