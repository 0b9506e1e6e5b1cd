// Tell that the connection is lost, and sign a browser in.
import { html, useState } from "../lib.js";
import { reconnect, signIn, useConnection } from "../api.js";

export function ConnectionBar() {
  if (useConnection() !== "lost") return null;
  return html`<div class="connection" role="alert"><span>
    <b>Connection lost.</b> The numbers on this page may be old. toolspan ui is asked again every few seconds.</span>
    <button type="button" class="small" onClick=${reconnect}>Try now</button></div>`;
}

// The page of a browser that has no valid secret. Another tab that signs in reloads this one at its address.
export function SignIn() {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    try {
      await signIn(/[?&]token=([^&#]+)/.exec(text)?.[1] ?? text.trim());
      location.reload();
    } catch (error) {
      setProblem(error.message);
    }
  };
  return html`<section class="page sign-in"><h1>Sign in</h1>
    <p>This browser is not signed in, or toolspan ui was started with another secret.</p>
    <p>Run <code>toolspan ui</code> in a terminal. It opens a tab that signs this browser in, and this page continues
      where it is.</p>
    <form onSubmit=${submit}><label for="token">Or paste the address that it prints:</label>
      <input id="token" type="text" autocomplete="off" spellcheck=${false} value=${text}
        onInput=${(event) => setText(event.target.value)} />
      <button class="primary" disabled=${!text.trim()}>Sign in</button></form>
    ${problem ? html`<p class="tone-bad" role="alert">${problem}</p>` : null}</section>`;
}

// Exchange the token in the address, and remove it from the address. Errors are those of the page that follows.
export async function signInWithAddress() {
  const address = new URL(location.href);
  const token = address.searchParams.get("token");
  if (token === null) return;
  address.searchParams.delete("token");
  await signIn(token).catch(() => {});
  history.replaceState(null, "", address);
}
