// Tells the stage which clicks of this page were acknowledged: those that the beacon was told of.
{
  const { fetch } = window;
  let underWay = 0;

  const acknowledged = (body, receipt) => {
    const sent = [JSON.parse(body)].flat();
    const left = new Set();
    for (const { index, status } of receipt.exceptions) {
      if (status === "filtered" || status === "rejected") left.add(index);
    }
    return sent.filter((_, index) => !left.has(index)).map((click) => click.id);
  };

  window.fetch = async (address, options) => {
    if (!/\/clicks\?/.test(address)) return fetch(address, options);
    underWay += 1;
    try {
      const answer = await fetch(address, options);
      if (answer.ok) {
        const ids = acknowledged(options.body, await answer.clone().json());
        const headers = { "content-type": "application/json" };
        await fetch("/acknowledged", { method: "POST", body: JSON.stringify(ids), headers, keepalive: true });
      }
      return answer;
    } finally {
      underWay -= 1;
    }
  };

  /** How many clicks, or requests with clicks, have no answer yet. */
  window.clicksUnderWay = () => underWay;
}
