// perf: request the first data of the view while its modules load. A link that preloads could not send the secret.
{
  const addresses = document.currentScript.dataset.addresses.split(" ").filter(Boolean);
  const answers = new Map();
  try {
    const secret = localStorage.getItem("toolspan-secret");
    const zone =
      localStorage.getItem("toolspan-zone") === "UTC" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone;
    for (const address of secret ? addresses : []) {
      const answer = fetch(address, { headers: { Authorization: `Bearer ${secret}`, "X-Toolspan-Zone": zone } });
      answer.catch(() => {}); // api.js shows the error, if the view still wants the answer
      answers.set(address, answer);
    }
  } catch {
    // the browser forbids the storage
  }
  window.earlyAnswers = answers;
}
