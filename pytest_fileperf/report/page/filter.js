// Shows only the tests with the words and outcomes that are asked for. Without it, and on paper, all tests are shown.
"use strict";

(() => {
  const filter = document.getElementById("filter");
  if (filter === null) {
    return;
  }
  const text = filter.querySelector("input[type=search]");
  const boxes = [...filter.querySelectorAll("input[type=checkbox]")];
  const said = filter.querySelector("output");

  // All parts of each test: its rows of the overview, whose text is searched, and its section.
  const tests = new Map();
  for (const part of document.querySelectorAll("[data-test]")) {
    const name = part.dataset.test;
    const test = tests.get(name) ?? { parts: [], words: "", outcome: part.dataset.outcome };
    test.parts.push(part);
    test.words += part.tagName === "TR" ? ` ${part.textContent.toLowerCase()}` : "";
    tests.set(name, test);
  }

  const apply = () => {
    const words = text.value.toLowerCase().split(/\s+/);
    const outcomes = boxes.filter((box) => box.checked).map((box) => box.value);
    let shown = 0;
    for (const test of tests.values()) {
      const named = words.every((word) => test.words.includes(word));
      const wanted = named && (outcomes.length === 0 || outcomes.includes(test.outcome));
      test.parts.forEach((part) => part.classList.toggle("out", !wanted));
      shown += wanted;
    }
    said.value = shown === tests.size ? `all ${tests.size} shown` : `${shown} of ${tests.size} shown`;
  };

  const reset = () => {
    text.value = "";
    boxes.forEach((box) => (box.checked = false));
    apply();
  };

  filter.addEventListener("input", apply);
  filter.addEventListener("keydown", (event) => event.key === "Escape" && reset());
  // A link to a test that is not shown, as from a group, shows it.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link !== null && document.getElementById(link.hash.slice(1))?.classList.contains("out")) {
      reset();
    }
  });
  filter.hidden = false;
  apply(); // the browser may have kept what was asked for before the page was loaded again
})();
