"use strict";
(() => {
  const sections = [...document.querySelectorAll("section")];
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || (event.key !== "j" && event.key !== "k")) return;
    const at = sections.findIndex((it) => it === document.activeElement || it.contains(document.activeElement));
    const next = sections[event.key === "j" ? Math.min(at + 1, sections.length - 1) : Math.max(at - 1, 0)];
    if (!next) return;
    next.focus({ preventScroll: true });
    next.scrollIntoView();
  });
  const steps = [...document.querySelectorAll(".steps li")];
  const light = (step) => {
    const number = step && step.dataset.step;
    const from = step ? step.dataset.from.split(" ") : [];
    for (const it of steps) it.classList.toggle("lit", from.includes(it.dataset.step));
    for (const path of document.querySelectorAll(".graph path"))
      path.classList.toggle("lit", path.dataset.a === number || path.dataset.b === number);
  };
  for (const step of steps) {
    step.title = step.textContent;
    step.addEventListener("mouseenter", () => light(step));
    step.addEventListener("mouseleave", () => light(null));
    step.addEventListener("focus", () => light(step));
  }
  addEventListener("beforeprint", () => {
    for (const it of document.querySelectorAll("details:not(.long)")) it.open = true;
  });
})();
