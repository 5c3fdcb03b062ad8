"use strict";
/* The script of the web application: it sends what forms and buttons ask of the public API, and fetches pieces of pages. */

const csrf = document.querySelector("meta[name=csrf-token]").content;

function say(text) {
  document.getElementById("said").textContent = text;
  if (text) document.getElementById("said").scrollIntoView({ block: "nearest" });
}

function headers(more) {
  return csrf ? { "X-CSRF-Token": csrf, ...more } : { ...more };
}

async function send(method, address, body) {
  const options = { method, headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }) };
  if (body !== undefined) options.body = JSON.stringify(body);
  const answer = await fetch(address, options);
  if (answer.status === 204) return {};
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.detail || told.title || answer.statusText);
  return told;
}

async function piece(address, body) {
  const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  options.headers = headers(body === undefined ? {} : { "Content-Type": "application/json" });
  const answer = await fetch(address, options);
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).detail || answer.statusText);
  return answer.text();
}

async function doing(button, work) {
  say("");
  if (button) button.disabled = true;
  try {
    await work();
  } catch (error) {
    say(error.message);
  } finally {
    if (button) button.disabled = false;
  }
}

/* Forms whose fields are the fields of a request: `a.b` is b inside of a. What is left empty is left out. */
function bodyOf(form) {
  const body = {};
  const cut = (text, at) => text.split(at).map((each) => each.trim()).filter(Boolean);
  for (const field of form.elements) {
    if (!field.name || (field.type === "radio" && !field.checked)) continue;
    if (!field.value && !("empty" in form.dataset)) continue;
    let value = field.value;
    if (field.type === "checkbox") value = field.checked;
    else if ("list" in field.dataset) value = cut(value, ",");
    else if ("lines" in field.dataset) value = cut(value, "\n");
    else if ("number" in field.dataset) value = Number(value);
    const path = field.name.split("."), last = path.pop();
    path.reduce((inside, name) => (inside[name] ??= {}), body)[last] = value;
  }
  return body;
}

document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-api]");
  if (!form) return;
  event.preventDefault();
  doing(form.querySelector("button"), async () => {
    const told = await send(form.dataset.method || "POST", form.dataset.api, bodyOf(form));
    location.assign("here" in form.dataset ? form.dataset.go : form.dataset.go + told.id);
  });
});

/* Buttons that are one request. */
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-post], [data-delete], [data-more]");
  if (!button) return;
  if (button.dataset.sure && !confirm(button.dataset.sure)) return;
  doing(button, async () => {
    if (button.dataset.more) {
      const place = button.closest("p");
      place.insertAdjacentHTML("afterend", await piece(button.dataset.more));
      place.remove();
    } else if (button.dataset.delete) {
      await send("DELETE", button.dataset.delete);
      location.assign(button.dataset.next);
    } else {
      await send("POST", button.dataset.post);
      location.reload();
    }
  });
});

/* Pieces that are asked for again until they say that there is nothing more to come. */
for (const place of document.querySelectorAll("[data-live]")) {
  const again = async () => {
    if (place.querySelector("[data-ended]")) return;
    if (!document.hidden) {
      try {
        const text = await piece(place.dataset.live);
        const focused = place.contains(document.activeElement);
        if (!focused || text.includes("data-ended")) place.innerHTML = text;
      } catch (error) {
        say(error.message);
      }
    }
    setTimeout(again, 1000);
  };
  setTimeout(again, 700);
}

/* Searching while typing. */
for (const form of document.querySelectorAll("form[data-search]")) {
  const into = document.getElementById(form.dataset.into);
  const field = form.elements.search;
  let waiting = 0;
  const search = async () => {
    into.setAttribute("aria-busy", "true");
    const asked = field.value;
    const text = await piece(`${form.dataset.search}?search=${encodeURIComponent(asked)}`);
    if (asked === field.value) into.innerHTML = text;
    into.setAttribute("aria-busy", "false");
  };
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => search().catch((error) => say(error.message)), 200);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    search().catch((error) => say(error.message));
  });
}
