// Loads plotly.js, once for all charts of a page.
function load(source) {
  window.breakevenPlotly ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = new URL(source, document.baseURI);
    script.onload = () => done(window.Plotly);
    script.onerror = failed;
    document.head.append(script);
  });
  return window.breakevenPlotly;
}
