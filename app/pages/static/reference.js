/* Examples of the page about the API, sent from it. */
document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-try]");
  if (!form) return;
  event.preventDefault();
  const place = form.querySelector(".answer");
  let address = form.dataset.path;
  const query = new URLSearchParams();
  const more = {};
  for (const field of form.querySelectorAll("input[data-place]")) {
    if (field.dataset.place === "path") address = address.replace(`{${field.name}}`, encodeURIComponent(field.value));
    else if (field.value && field.dataset.place === "query") query.append(field.name, field.value);
    else if (field.value) more[field.name] = field.value;
  }
  const body = form.querySelector("textarea")?.value;
  if (body !== undefined) more["Content-Type"] = "application/json";
  doing(form.querySelector("button"), async () => {
    const answer = await fetch(query.size ? `${address}?${query}` : address, { method: form.dataset.try, headers: headers(more), body });
    const kind = answer.headers.get("content-type") || "";
    const stop = kind.includes("event-stream");
    const text = stop ? "a stream of events: follow it with curl" : /json|text/.test(kind) ? await answer.text() : `${(await answer.blob()).size} bytes of ${kind}`;
    place.hidden = false;
    const told = kind.includes("json") ? JSON.stringify(JSON.parse(text), null, 2) : text;
    place.textContent = `${answer.status} ${answer.statusText}\n\n${told.slice(0, 20000)}`;
    place.focus();
  });
});
