// The page of a plan: the slider chooses one of the epsilons that were planned, and shows its section. There is nothing between.

const slider = document.getElementById("epsilon");
const sections = [...document.querySelectorAll("section.step")];

function show() {
  const place = slider.valueAsNumber;
  sections.forEach((section, number) => { section.hidden = number !== place; });
  for (const mark of document.querySelectorAll("[data-place]")) {
    mark.classList.toggle("chosen", mark.dataset.place === slider.value);
  }
  const words = `epsilon ${sections[place].dataset.epsilon}`;
  slider.setAttribute("aria-valuetext", words);
  document.getElementById("shown").textContent = words;
}

document.getElementById("choice").hidden = false;
slider.addEventListener("input", show);
show();
