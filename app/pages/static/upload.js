/* Uploading by choosing or dropping files, with what has been sent so far. */
const uploading = document.getElementById("upload");
if (uploading) {
  const drop = document.getElementById("drop");
  const field = document.getElementById("file");
  const size = (bytes) => (bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);
  const list = () => {
    const chosen = document.getElementById("chosen");
    chosen.replaceChildren(...Array.from(field.files, (file) => {
      const line = document.createElement("li");
      line.textContent = `${file.name}, ${size(file.size)}`;
      return line;
    }));
  };
  field.addEventListener("change", list);
  for (const name of ["dragenter", "dragover"]) {
    drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  }
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files.length) { field.files = event.dataTransfer.files; list(); }
  });
  uploading.addEventListener("submit", (event) => {
    event.preventDefault();
    say("");
    const form = new FormData();
    for (const each of uploading.elements) {
      if (!each.name || each === field) continue;
      if (each.type === "checkbox") form.append(each.name, String(each.checked));
      else if (each.value) form.append(each.name, each.value);
    }
    for (const file of field.files) form.append("file", file, file.name);
    const request = new XMLHttpRequest();
    const button = uploading.querySelector("button");
    const shown = document.getElementById("upload-progress");
    const failed = (text) => { shown.hidden = true; button.disabled = false; say(text); };
    request.upload.addEventListener("progress", (told) => {
      shown.hidden = false;
      document.getElementById("bar").value = told.lengthComputable ? told.loaded / told.total : 0;
      document.getElementById("upload-words").textContent = `${size(told.loaded)} of ${size(told.total)}`;
    });
    request.addEventListener("load", () => {
      const told = JSON.parse(request.responseText || "{}");
      if (request.status < 300) location.assign(uploading.dataset.go + told.id);
      else failed(told.detail || "The upload was refused.");
    });
    request.addEventListener("error", () => failed("The connection broke: nothing was kept of the upload."));
    button.disabled = true;
    request.open("POST", uploading.dataset.upload);
    if (csrf) request.setRequestHeader("X-CSRF-Token", csrf);
    request.send(form);
  });
}
