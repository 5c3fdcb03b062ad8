/* The cohort builder: codes picked by what they are called, an estimate while one types, a preview, and the request. */
const builder = document.getElementById("builder");
if (builder) {
  const overTime = "overTime" in builder.dataset;
  const asked = { all_of: [], any_of: [], none_of: [], targets: [], ever: [], never: [], first: [], then: [], start: [] }; // and any_of-2 ...
  const estimate = document.getElementById("estimate");
  const preview = document.getElementById("preview");

  const codes = (kind) => asked[kind].map((each) => each.code);
  const bounds = () => Object.fromEntries(
    [...builder.querySelectorAll("[data-bound]")].filter((each) => each.value !== "").map((each) => [each.name, Number(each.value)]));
  const shares = () => asked.targets.map((each) => ({ codes: [each.code], share: each.share }));
  const system = (code) => code.split(":")[0];
  const bySystem = (kind) => // of several age bands one, and of several sexes
    [...new Set(codes(kind).map(system))].map((name) => codes(kind).filter((code) => system(code) === name));
  const ofHistories = () => ({
    model_id: builder.elements.model_id.value,
    targets: shares(),
    history: {
      start: { any_of: bySystem("start") },
      ever: codes("ever"),
      never: codes("never"),
      before: codes("first").flatMap((first) => codes("then").map((then) => ({ first, then }))),
      ...bounds(),
    },
  });
  const ofRecords = () => ({
    model_id: builder.elements.model_id.value,
    conditions: {
      all_of: asked.all_of.map((each) => each.code),
      any_of: Object.keys(asked)
        .filter((kind) => kind.startsWith("any_of") && asked[kind].length)
        .map((kind) => asked[kind].map((each) => each.code)),
      none_of: asked.none_of.map((each) => each.code),
    },
    targets: shares(),
  });
  const request = overTime ? ofHistories : ofRecords;
  const whole = () => ({
    ...request(),
    n: Number(builder.elements.n.value),
    seed: Number(builder.elements.seed.value || 0),
    ...(builder.elements.sampling ? { sampling: builder.elements.sampling.value } : {}),
  });

  let waiting = 0, latest = 0;
  const ask = async () => {
    const number = ++latest;
    if (!builder.checkValidity()) return;
    try {
      const text = await piece("/app/cohorts/estimate", whole());
      if (number === latest) estimate.innerHTML = text;
    } catch (error) {
      if (number === latest) estimate.textContent = error.message;
    }
  };
  const soon = () => { clearTimeout(waiting); waiting = setTimeout(ask, 250); preview.replaceChildren(); };

  const draw = (section) => {
    const kind = section.dataset.picker;
    const chips = asked[kind].map((each, place) => {
      const chip = document.createElement("li");
      const text = document.createElement("span");
      text.textContent = each.name ? `${each.name} (${each.code})` : each.code;
      chip.append(text);
      if (kind === "targets") {
        const share = Object.assign(document.createElement("input"), { type: "number", min: 0, max: 100, value: Math.round(each.share * 100) });
        share.setAttribute("aria-label", `Share with ${each.code} in per cent`);
        share.addEventListener("input", () => { each.share = Math.min(Math.max(Number(share.value) / 100, 0), 1); soon(); });
        chip.append(share, "%");
      }
      const away = Object.assign(document.createElement("button"), { type: "button", textContent: "×" });
      away.setAttribute("aria-label", `Remove ${each.code}`);
      away.addEventListener("click", () => { asked[kind].splice(place, 1); draw(section); soon(); section.querySelector("[role=combobox]").focus(); });
      chip.append(away);
      return chip;
    });
    section.querySelector(".chips").replaceChildren(...chips);
  };

  const equip = (section) => {
    const field = section.querySelector("[role=combobox]");
    const list = section.querySelector("[role=listbox]");
    const kind = section.dataset.picker;
    let found = [], at = -1, typed = 0;
    const close = () => { list.hidden = true; at = -1; field.setAttribute("aria-expanded", "false"); field.removeAttribute("aria-activedescendant"); };
    const take = (code, name) => {
      if (code && !asked[kind].some((each) => each.code === code)) asked[kind].push({ code, name, share: 0.5 });
      field.value = "";
      close();
      draw(section);
      soon();
    };
    const mark = () => {
      [...list.children].forEach((option, place) => option.setAttribute("aria-selected", String(place === at)));
      if (at >= 0) { field.setAttribute("aria-activedescendant", list.children[at].id); list.children[at].scrollIntoView({ block: "nearest" }); }
    };
    const look = async () => {
      const words = field.value.trim();
      if (!words) { close(); return; }
      const told = await send("GET", `${builder.dataset.codes}?limit=12&search=${encodeURIComponent(words)}`);
      if (words !== field.value.trim()) return;
      found = told.items;
      list.replaceChildren(...found.map((each, place) => {
        const option = document.createElement("li");
        option.id = `${kind}-option-${place}`;
        option.setAttribute("role", "option");
        option.setAttribute("aria-selected", "false");
        option.textContent = each.description ? `${each.description} (${each.code})` : each.code;
        option.addEventListener("pointerdown", (event) => { event.preventDefault(); take(each.code, each.description); });
        return option;
      }));
      at = -1;
      list.hidden = !found.length;
      field.setAttribute("aria-expanded", String(found.length > 0));
    };
    field.addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(() => look().catch((error) => say(error.message)), 150); });
    field.addEventListener("blur", close);
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !list.hidden) {
        at = (at + (event.key === "ArrowDown" ? 1 : found.length)) % found.length;
        if (at < 0) at = found.length - 1;
        mark();
      } else if (event.key === "Enter") {
        if (at >= 0) take(found[at].code, found[at].description);
        else if (field.value.trim()) take(field.value.trim(), null);
        else return;
      } else return;
      event.preventDefault();
    });
  };
  builder.querySelectorAll("[data-picker]").forEach(equip);

  document.getElementById("another-group")?.addEventListener("click", () => {
    const groups = builder.querySelectorAll("[data-picker^=any_of]");
    const kind = `any_of-${groups.length + 1}`;
    const section = groups[0].cloneNode(true);
    section.dataset.picker = kind;
    for (const each of [section, ...section.querySelectorAll("*")]) {
      for (const name of ["id", "aria-controls", "aria-labelledby", "aria-describedby"]) {
        if (each.hasAttribute(name)) each.setAttribute(name, each.getAttribute(name).replace("any_of", kind));
      }
    }
    section.querySelector("h2").textContent = `and at least one of (group ${groups.length + 1})`;
    section.querySelector(".chips").replaceChildren();
    section.querySelector("[role=listbox]").replaceChildren();
    section.querySelector("[role=combobox]").value = "";
    asked[kind] = [];
    groups[groups.length - 1].after(section);
    equip(section);
    section.querySelector("[role=combobox]").focus();
  });

  builder.elements.model_id.addEventListener("change", () => location.assign(`/app/cohorts/new?model=${builder.elements.model_id.value}`));
  builder.elements.n.addEventListener("input", soon);
  builder.elements.sampling?.addEventListener("change", soon);
  builder.querySelectorAll("[data-bound]").forEach((each) => each.addEventListener("input", soon));
  document.getElementById("preview-button").addEventListener("click", (event) =>
    doing(event.target, async () => {
      preview.innerHTML = await piece("/app/cohorts/preview", { ...request(), n: overTime ? 5 : 20 });
      preview.scrollIntoView({ block: "nearest" });
    }));
  builder.addEventListener("submit", (event) => {
    event.preventDefault();
    doing(event.submitter, async () => location.assign(`/app/jobs/${(await send("POST", "/generate", whole())).id}`));
  });
  ask();
}
