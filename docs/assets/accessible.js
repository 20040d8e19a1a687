// What the theme's script adds to a page, for those who hear it or have no mouse: the buttons of a block of code are no
// landmark, and a table or an equation that is wider than the page is scrolled by keys.
function mend() {
  for (const buttons of document.querySelectorAll("nav.md-code__nav:not([role])")) {
    buttons.setAttribute("role", "none")
    for (const button of buttons.children) button.setAttribute("aria-label", button.title)
  }
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, math[display=block]")) {
    if (wide.scrollWidth > wide.clientWidth) wide.setAttribute("tabindex", "0")
    else wide.removeAttribute("tabindex")
  }
}
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true })
addEventListener("resize", mend)
mend()
