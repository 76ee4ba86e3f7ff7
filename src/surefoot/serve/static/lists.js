"use strict";
// The report is made in the background: show the progress, then a link.

const report = document.getElementById("report");

async function follow() {
  const response = await fetch("/api/standing");
  const standing = await response.json();
  const words = report.querySelector("span");
  if (standing.report === "working") {
    const seconds = standing.fit.running === null ? 0 : Math.round(standing.fit.running);
    words.textContent = `The report is being made (${seconds} s)…`;
    setTimeout(follow, 1000);
  } else if (standing.report === "ready") {
    const link = document.createElement("a");
    link.href = "/download/report.html";
    link.setAttribute("download", "");
    link.textContent = "Open the report";
    words.replaceChildren(link);
  } else if (standing.report === "failed") {
    words.textContent = `The report could not be made: ${standing.problem}`;
  }
}

if (report && report.dataset.state !== "none") follow();

// A large file takes a while: show the progress and any error next to its name. Without script the links work too.
async function download(link, words) {
  const before = words.textContent, began = performance.now();
  const timer = setInterval(() => {
    words.textContent = `The file is being made (${Math.round((performance.now() - began) / 1000)} s)…`;
  }, 500);
  try {
    const response = await fetch(link.href);
    if (!response.ok || response.redirected) throw new Error(`the server answered ${response.status}`);
    const name = /filename\*=UTF-8''(\S+)/.exec(response.headers.get("content-disposition"));
    const made = document.createElement("a");
    made.href = URL.createObjectURL(await response.blob());
    made.download = decodeURIComponent(name[1]);
    made.click();
    setTimeout(() => URL.revokeObjectURL(made.href), 60000);
    words.textContent = before;
  } catch (error) {
    words.textContent = `The file could not be made: ${error.message}.`;
  } finally {
    clearInterval(timer);
  }
}

for (const link of document.querySelectorAll(".files a")) {
  link.addEventListener("click", event => {
    event.preventDefault();
    download(link, link.parentElement.querySelector("span"));
  });
}
