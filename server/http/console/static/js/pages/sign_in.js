// Signing in, where the server wants a password.

import { html, useEffect, useRef, useState } from "../../vendor/htm/preact.js";
import { lastSignedIn, setCredentials, statement } from "../api.js";
import { Failure } from "../ui.js";

export function SignIn({ message, onDone }) {
  const user = useRef(null);
  const password = useRef(null);
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState(message ? { message } : null);
  useEffect(() => {
    document.title = "Sign in · Foreshore";
    (user.current.value ? password : user).current.focus();
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setCredentials({ user: user.current.value, password: password.current.value });
    try {
      await statement("SELECT 1");
      onDone();
    } catch (error) {
      setCredentials(null);
      setFailure(error);
      setBusy(false);
      password.current.select();
    }
  };
  return html`<main class="sign-in">
    <form onSubmit=${submit}>
      <img src="icon.svg" alt="" width="44" height="44" />
      <h1>Sign in to Foreshore</h1>
      <label>Role<input ref=${user} name="user" autocomplete="username" required spellcheck="false" autocapitalize="off"
        defaultValue=${lastSignedIn()} /></label>
      <label>Password<input ref=${password} name="password" type="password" autocomplete="current-password" /></label>
      <${Failure} error=${failure} />
      <button class="primary" disabled=${busy}>${busy ? "Signing in …" : "Sign in"}</button>
      <p class="dim">The password is kept in this tab until you close it or sign out.</p>
    </form>
  </main>`;
}
