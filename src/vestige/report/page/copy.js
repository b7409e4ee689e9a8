// Buttons that copy a command, a row or a link, and that write a table as CSV.

function copyButton(words, text) {
  const button = el("button", { type: "button", class: "copy" }, words);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "copied";
    } catch {
      // Without leave to write, the text can still be marked and copied by hand.
      window.prompt("Copy this text:", text());
    }
    setTimeout(() => { button.textContent = words; }, 1500);
  });
  return button;
}

// A field that begins with =, +, @ or a tab would act in a spreadsheet. Numbers may begin with a minus.
function csvField(value) {
  const text = String(value ?? "").replaceAll("−", "-");
  const safe = /^[=+@\t\r]/.test(text) || /^-(?![\d.])/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function csvLines(rows) {
  return rows.map((row) => row.map(csvField).join(",")).join("\r\n") + "\r\n";
}

function csvButton(file, rows) {
  const button = el("button", { type: "button", class: "copy" }, "CSV");
  button.addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob([csvLines(rows())], { type: "text/csv" }));
    el("a", { href: address, download: `${file}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  });
  return button;
}

function shownRows(table) {
  const words = (cell) => [...cell.childNodes].filter((node) => node.className !== "copy").map((node) => node.innerText ?? node.textContent).join(" ").trim().replaceAll(/\s+/g, " ");
  return [...table.rows].filter((row) => !row.classList.contains("drawer")).map((row) => [...row.cells].map(words));
}

// Each table that stands in the page has a button, and so has each command.
function pageTools() {
  [...document.querySelectorAll("main table:not(.estimates)")].filter((table) => table.tHead).forEach((table, i) => {
    const place = table.closest(".scroll") ?? table;
    const name = table.classList[0] ?? "table";
    const button = csvButton(`${name}-${i + 1}`, () => shownRows(table));
    // The first screen has no room for a line more.
    if (table.matches(".levels, .verdicts")) table.rows[0].cells[0].append(" ", button);
    else place.before(el("p", { class: "tools" }, button));
  });
  for (const code of document.querySelectorAll("main code")) {
    const text = code.textContent.trim();
    if (text.startsWith("vestige ")) code.after(" ", copyButton("copy", () => text));
  }
}
