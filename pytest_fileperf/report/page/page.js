// Shows only the tests with the words and outcomes that are asked for, and copies commands. Without it all is shown.
"use strict";

(() => {
  for (const command of navigator.clipboard ? document.querySelectorAll(".command") : []) {
    const button = document.createElement("button");
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = "copied";
    });
    command.after(button);
  }

  const filter = document.getElementById("filter");
  if (filter === null) {
    return;
  }
  const text = filter.querySelector("input[type=search]");
  const boxes = [...filter.querySelectorAll("input[type=checkbox]")];
  const said = filter.querySelector("output");
  const calm = document.getElementById("calm");
  const tests = [...document.querySelectorAll(".test")];
  const wordsOf = new Map(); // filled when first asked for: it takes all text of the page

  const apply = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const outcomes = boxes.filter((box) => box.checked).map((box) => box.value);
    let shown = 0;
    for (const test of tests) {
      if (words.length > 0 && !wordsOf.has(test)) {
        wordsOf.set(test, test.textContent.toLowerCase());
      }
      const wanted =
        words.every((word) => wordsOf.get(test).includes(word)) &&
        (outcomes.length === 0 || outcomes.includes(test.dataset.outcome));
      test.classList.toggle("out", !wanted);
      shown += wanted;
    }
    said.value = shown === tests.length ? "" : `${shown} of ${tests.length} shown`;
    if (calm !== null && shown < tests.length) {
      calm.open = true;
    }
  };

  const reset = () => {
    text.value = "";
    boxes.forEach((box) => (box.checked = false));
    apply();
  };

  filter.addEventListener("input", apply);
  filter.addEventListener("keydown", (event) => event.key === "Escape" && reset());
  // A link to a test that is folded or not shown, as from a group, shows it.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    const test = link && document.getElementById(link.hash.slice(1));
    if (test) {
      test.classList.contains("out") && reset();
      for (let part = test; part !== null; part = part.parentElement.closest("details")) {
        part.open = true;
      }
    }
  });
  filter.hidden = false;
  apply(); // the browser may have kept what was asked for before the page was loaded again
})();
