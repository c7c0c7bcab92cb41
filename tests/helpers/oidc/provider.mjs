// A real provider of OpenID Connect, certified `oidc-provider`, for tests of the sign-in.
// node provider.mjs PORT CLIENT_SECRET REDIRECT_URI...   Any password is taken; accounts are below.
import { Provider } from "oidc-provider";

const [port, secret, ...redirects] = process.argv.slice(2);
const accounts = {
  ada: { groups: ["ml-ops"] },
  vic: { groups: ["ml", "<img src=x onerror=alert(1)>"] },
  eve: { groups: [] },
  // Says of herself that she is Ada; nobody verified it.
  mal: { groups: [], email: "ada@example.org", email_verified: false },
  // So many groups that the cookie is cut into pieces.
  big: { groups: ["ml-ops", ...Array.from({ length: 300 }, (_, number) => `group-number-${number}`)] },
};

const provider = new Provider(`http://localhost:${port}`, {
  clients: [
    {
      client_id: "breakeven",
      client_secret: secret,
      redirect_uris: redirects,
      post_logout_redirect_uris: redirects,
    },
  ],
  claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
  scopes: ["openid", "email", "groups"],
  conformIdTokenClaims: false, // Claims stand in the ID token, where dashboards look for them.
  cookies: { keys: ["only for tests"] },
  ttl: { Session: 3600, Grant: 3600, IdToken: 600, AccessToken: 600, Interaction: 600 },
  findAccount: async (_context, id) =>
    id in accounts && {
      accountId: id,
      claims: async () => ({
        sub: id, email: `${id}@example.org`, email_verified: true, ...accounts[id],
      }),
    },
});
provider.listen(Number(port), "localhost", () => console.log("listening"));
