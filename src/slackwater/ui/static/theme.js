// Sets the theme before the first paint, so that a dark page does not flash.
try {
  const theme = localStorage.getItem("slackwater.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* storage is disabled */ }
