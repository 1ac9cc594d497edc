// Shows the token once; the server answers with a cookie that scripts cannot read.
"use strict";

document.getElementById("door").addEventListener("submit", async (event) => {
  event.preventDefault();
  const notice = document.getElementById("notice");
  const token = document.getElementById("token");
  try {
    const answer = await fetch("login", {
      method: "POST",
      headers: { "X-Consumer-Sdk": "1" },
      body: token.value,
    });
    if (answer.ok) {
      location.reload();
      return;
    }
    notice.textContent = (await answer.json()).error;
  } catch {
    notice.textContent = "the consumer does not answer";
  }
  notice.hidden = false;
  token.select();
});
