// The reference of the API, which Swagger UI draws from the OpenAPI document.

const dark = matchMedia("(prefers-color-scheme: dark)");

// Swagger UI has a dark theme, but does not follow the browser's.
function follow() {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}

dark.addEventListener("change", follow);
follow();

SwaggerUIBundle({
  url: "/api/v1/openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  docExpansion: "none",
  filter: true,
  onComplete: () => {
    document.body.dataset.ready = "";
  },
});
