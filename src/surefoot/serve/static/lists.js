"use strict";
// The report is made in the background: say so while it is, and offer it when it is there.

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
    link.textContent = "Take the report";
    words.replaceChildren(link);
  } else if (standing.report === "failed") {
    words.textContent = `The report could not be made: ${standing.problem}`;
  }
}

if (report && report.dataset.state !== "none") follow();
