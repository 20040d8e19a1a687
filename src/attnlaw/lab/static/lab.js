'use strict';
// A page is blank until marimo has loaded, so this line is there first. Later it shows that the page computes:
// the server reports the beginning and the end of every computation on its WebSocket.
const wait = document.createElement('p');
wait.id = 'lab-wait';
wait.setAttribute('role', 'status');
wait.textContent = 'Starting the lab ...';
document.documentElement.append(wait);
let computing = 0;
const settle = (busy) => {
  clearTimeout(computing);
  if (!busy) { wait.hidden = true; return; }
  computing = setTimeout(() => { wait.textContent = 'Computing ...'; wait.hidden = false; }, 250);
};
const Socket = window.WebSocket;
window.WebSocket = class extends Socket {
  constructor(...words) {
    super(...words);
    this.addEventListener('message', (event) => {
      const text = typeof event.data === 'string' ? event.data : '';
      if (text.includes('"completed-run"')) settle(false);
      else if (text.includes('"status":"queued"') || text.includes('"status":"running"')) settle(true);
    });
    this.addEventListener('close', () => settle(false));
  }
};
// Copy the words that repeat a state; the page redraws often, so one listener serves all buttons.
document.documentElement.lang = 'en';
document.addEventListener('click', async (event) => {
  const button = event.composedPath().find((node) => node.dataset && node.dataset.copies);
  if (!button) return;
  const words = button.parentElement.querySelector('[data-words]').textContent;
  await navigator.clipboard.writeText(words);
  const said = button.textContent;
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = said; }, 1200);
});
// marimo's menu has a picture for a name.
new MutationObserver(() => {
  if (document.body && wait.parentNode !== document.body) document.body.append(wait);
  for (const button of document.querySelectorAll('button[aria-haspopup="menu"]:not([aria-label])')) {
    button.setAttribute('aria-label', 'Menu');
  }
}).observe(document.documentElement, { childList: true, subtree: true });
