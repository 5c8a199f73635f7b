// The API, and its errors in words that help.

export class ApiError extends Error {}

async function call(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Is “latentalign serve” still running?");
  }
  let content = null;
  try {
    content = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (answer.ok && content) return content;
  const told = content?.error?.message ?? `The server answered ${answer.status}.`;
  throw new ApiError(told);
}

export const get = (path) => call(path, {});

export const post = (path, body, signal) =>
  call(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

// Of several requests of one place only the last one counts.
export class Latest {
  #controller = null;

  async run(work) {
    this.#controller?.abort();
    const controller = (this.#controller = new AbortController());
    try {
      const found = await work(controller.signal);
      return controller.signal.aborted ? undefined : found;
    } catch (error) {
      if (error.name === "AbortError" || controller.signal.aborted) return undefined;
      throw error;
    }
  }
}
