// Draws the page's charts with plotly.js, each when it comes into view, in the page's own colours; all of them on paper.
"use strict";

(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const places = [...document.querySelectorAll("[data-chart]")];
  const drawn = new Set();
  const root = document.documentElement;
  const mouse = matchMedia("(hover: hover)").matches;

  // `var(--first)` as the colour it stands for now.
  const coloured = (value) => {
    if (typeof value === "string") {
      return value.replace(/^var\((--[a-z-]+)\)$/, (_, name) => getComputedStyle(root).getPropertyValue(name).trim());
    }
    if (Array.isArray(value)) {
      return value.map(coloured);
    }
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item)]));
    }
    return value;
  };

  const axis = {
    automargin: true,
    gridcolor: "var(--grid)",
    linecolor: "var(--quiet)",
    zerolinecolor: "var(--quiet)",
    exponentformat: "none",
    separatethousands: true,
  };

  const layoutOf = (chart) => {
    const size = parseFloat(getComputedStyle(root).fontSize);
    const notes = chart.layout.annotations ?? [];
    return {
      showlegend: chart.traces.length > 1,
      dragmode: mouse ? "zoom" : false,
      ...chart.layout,
      annotations: notes.map((note) => ({ showarrow: false, font: { size: 0.66 * size }, ...note })),
      xaxis: { ...axis, ...chart.layout.xaxis },
      yaxis: { ...axis, ...chart.layout.yaxis },
      autosize: true,
      font: { color: "var(--muted)", family: getComputedStyle(document.body).fontFamily, size: 0.75 * size },
      hoverlabel: { bgcolor: "var(--panel)", bordercolor: "var(--rule)", font: { color: "var(--ink)" } },
      // Above the notes, which stand on the upper edge.
      legend: { orientation: "h", x: 0, xanchor: "left", y: notes.length ? 1.09 : 1.02, yanchor: "bottom" },
      margin: { b: 8, l: 8, r: 12, t: size },
      modebar: { activecolor: "var(--ink)", bgcolor: "transparent", color: "var(--quiet)" },
      paper_bgcolor: "transparent",
      plot_bgcolor: "transparent",
    };
  };

  const draw = (place) => {
    const chart = charts[Number(place.dataset.chart)];
    drawn.add(place);
    return Plotly.react(place, coloured(chart.traces), coloured(layoutOf(chart)), {
      displaylogo: false,
      displayModeBar: mouse ? "hover" : false,
      modeBarButtons: [["toImage", "resetScale2d"]],
      responsive: true,
    });
  };

  const redraw = (which) => [...which].forEach(draw);

  const view = new IntersectionObserver(
    (seen) =>
      seen
        .filter((entry) => entry.isIntersecting)
        .forEach((entry) => {
          view.unobserve(entry.target);
          draw(entry.target);
        }),
    { rootMargin: "600px" },
  );
  // What is in view at first is drawn before the page counts as loaded: that is when pictures of it are taken.
  const inView = places.filter((place) => place.getBoundingClientRect().top < innerHeight);
  inView.forEach(draw);
  places.slice(inView.length).forEach((place) => view.observe(place));

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(drawn));

  addEventListener("beforeprint", () => {
    root.classList.add("paper");
    redraw(places);
  });
  addEventListener("afterprint", () => {
    root.classList.remove("paper");
    redraw(drawn);
  });
})();
