// The page by which a browser hands a trace to Perfetto's interface. That runs at another address, which may not read
// ours: it is opened in a window, asked until it answers, and given the bytes (Perfetto's documentation, "Deep linking to
// the Perfetto UI"). A browser opens a window only when somebody clicks.
const ASK_MS = 50;
const body = document.body;
const ui = body.dataset.ui ?? "";
const origin = new URL(ui).origin;
const button = document.querySelector("button") as HTMLButtonElement;
const state = document.querySelector("output") as HTMLOutputElement;

function say(text: string): void {
  state.textContent = text;
}

async function handOver(): Promise<void> {
  const other = window.open(ui);
  if (!other) {
    say("The browser has opened no window: permit it for this page, or save the trace and open it there.");
    return;
  }
  say("Reading the trace ...");
  const answer = await fetch("trace.pftrace");
  if (!answer.ok) {
    say("laggard view does not answer: it has ended.");
    return;
  }
  const buffer = await answer.arrayBuffer();
  const bytes = buffer.byteLength;
  say("Waiting for " + origin + " ...");
  const timer = window.setInterval(() => other.postMessage("PING", origin), ASK_MS);
  window.addEventListener("message", function answered(e: MessageEvent): void {
    if (e.source !== other || e.origin !== origin || e.data !== "PONG") return;
    window.clearInterval(timer);
    window.removeEventListener("message", answered);
    other.postMessage({ perfetto: { buffer, title: body.dataset.title ?? "laggard" } }, origin, [buffer]);
    say("Handed over: " + bytes + " bytes.");
  });
}

button.addEventListener("click", () => {
  handOver().catch((e: unknown) => say("This did not work: " + String(e)));
});
export {};
