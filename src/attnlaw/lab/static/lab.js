'use strict';
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
  for (const button of document.querySelectorAll('button[aria-haspopup="menu"]:not([aria-label])')) {
    button.setAttribute('aria-label', 'Menu');
  }
}).observe(document.documentElement, { childList: true, subtree: true });
