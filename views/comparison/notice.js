// Notifies a reader who requested it that an experiment is over, also while another page is in front.
// The reader's browser stores the request, so that it outlives a reload and a closed page.
export default function ({ data, parentElement }) {
  const button = parentElement.querySelector("button");
  const key = `breakeven-notice-${data.experiment}`;
  const isWanted = () => localStorage.getItem(key) !== null;
  const possible = "Notification" in window && window.isSecureContext;

  function show() {
    button.hidden = data.over || !possible;
    button.setAttribute("aria-pressed", String(isWanted()));
    button.textContent = isWanted() ? "You will be told" : "Tell me when it is over";
  }

  button.onclick = async () => {
    if (isWanted()) localStorage.removeItem(key);
    else if ((await Notification.requestPermission()) === "granted") localStorage.setItem(key, "");
    else button.title = "Your browser keeps this page from telling you";
    show();
  };
  if (data.over && isWanted()) {
    localStorage.removeItem(key);
    new Notification(data.title, { body: data.body, tag: key });
  }
  show();
}
