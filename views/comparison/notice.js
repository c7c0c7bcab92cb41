// Tells a reader who asked for it that an experiment is over, also while another page is in front.
// That it was asked for is kept in the reader's browser: a reload, or a closed and opened page, is
// no reason to forget it.
export default function ({ data, parentElement }) {
  const button = parentElement.querySelector("button");
  const kept = `breakeven-notice-${data.experiment}`;
  const isWanted = () => localStorage.getItem(kept) !== null;
  const possible = "Notification" in window && window.isSecureContext;

  function show() {
    button.hidden = data.over || !possible;
    button.setAttribute("aria-pressed", String(isWanted()));
    button.textContent = isWanted() ? "You will be told" : "Tell me when it is over";
  }

  button.onclick = async () => {
    if (isWanted()) localStorage.removeItem(kept);
    else if ((await Notification.requestPermission()) === "granted") localStorage.setItem(kept, "");
    else button.title = "Your browser keeps this page from telling you";
    show();
  };
  if (data.over && isWanted()) {
    localStorage.removeItem(kept);
    new Notification(data.title, { body: data.body, tag: kept });
  }
  show();
}
