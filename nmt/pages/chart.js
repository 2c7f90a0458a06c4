// The arrow keys move between the points of a chart, which is a single tab stop.
for (const box of document.querySelectorAll(".points")) box.addEventListener("keydown", event => {
  const by = {ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9}[event.key];
  if (!by) return;
  const all = [...box.children], here = all.indexOf(document.activeElement);
  const next = all[Math.min(Math.max(here + by, 0), all.length - 1)];
  all[here].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  event.preventDefault();
});
