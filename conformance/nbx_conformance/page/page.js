"use strict";
const search = document.getElementById("search");
const failing = document.getElementById("failing");
const counted = document.getElementById("counted");
const rows = [...document.querySelectorAll("[data-name]")];
const ops = document.querySelectorAll("#matrix [data-name]");

function shown(row, words) {
  if (failing.checked && row.dataset.failed !== "1") return false;
  return words.every((word) => row.dataset.name.includes(word));
}

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows) row.hidden = !shown(row, words);
  const left = [...ops].filter((row) => !row.hidden).length;
  counted.textContent = `${left} of ${ops.length} ops`;
}

search.addEventListener("input", filter);
failing.addEventListener("change", filter);
filter();
