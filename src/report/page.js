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

  // A step is lit with what it was made of, and the lines between them.
  const steps = [...document.querySelectorAll(".steps li")];
  const lines = [...document.querySelectorAll(".graph [data-from]")];
  const light = (step) => {
    const from = new Set(step ? [...step.querySelectorAll(".from")].map((it) => it.hash) : []);
    for (const it of steps) it.classList.toggle("lit", it === step || from.has(`#${it.id}`));
    for (const it of lines)
      it.classList.toggle("lit", !!step && (it.dataset.from === step.dataset.step || it.dataset.to === step.dataset.step));
  };
  for (const step of steps) {
    step.addEventListener("mouseenter", () => light(step));
    step.addEventListener("mouseleave", () => light(null));
    step.addEventListener("focusin", () => light(step));
    step.addEventListener("focusout", () => light(null));
  }

  // Events are many and thin: one is chosen with the arrows, or by the pointer, and said below the drawing.
  const lanes = document.querySelector(".lanes"), said = document.querySelector(".event");
  const marks = lanes ? [...lanes.querySelectorAll("rect")] : [];
  if (marks.length > 0) {
    const left = (mark) => mark.x.baseVal.value;
    marks.sort((a, b) => left(a) - left(b));
    let chosen = marks.length - 1;
    const choose = (number) => {
      marks[chosen].classList.remove("chosen");
      chosen = Math.max(0, Math.min(marks.length - 1, number));
      marks[chosen].classList.add("chosen");
      said.textContent = marks[chosen].textContent;
      lanes.setAttribute("aria-valuenow", chosen + 1);
      lanes.setAttribute("aria-valuetext", marks[chosen].textContent);
    };
    for (const [name, value] of Object.entries({ role: "slider", tabindex: 0, "aria-valuemin": 1, "aria-valuemax": marks.length }))
      lanes.setAttribute(name, value);
    said.hidden = false;
    choose(chosen);
    const far = Math.ceil(marks.length / 20);
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -far, PageUp: far, Home: -marks.length, End: marks.length };
    lanes.addEventListener("keydown", (event) => {
      if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      choose(chosen + moves[event.key]);
    });
    lanes.addEventListener("mouseover", (event) => {
      if (marks.includes(event.target)) choose(marks.indexOf(event.target));
    });
  }

  addEventListener("beforeprint", () => {
    for (const it of document.querySelectorAll("details:not(.long)")) it.open = true;
  });
})();
