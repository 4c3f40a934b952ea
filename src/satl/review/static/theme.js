// Before anything is painted: the colours that this person chose, if not those of the system.
"use strict";
{
  const chosen = localStorage.getItem("satl-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
}
