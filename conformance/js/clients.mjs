// Runs one conformance case with the Azure SDK for JavaScript.
//
// Usage: node clients.mjs CALL:CREDENTIAL < inputs.json
//
// Standard input is a JSON object with the inputs. Standard output is a JSON object: the result of the call, or
// {"refused": {"code", "status", "message"}} with the error that the client reported. It does not report the inner
// code of a vault's error. The clients are unmodified: only HTTPS_PROXY and NODE_EXTRA_CA_CERTS direct their
// requests to the local Azure.

import { createHash } from "node:crypto";
import { text } from "node:stream/consumers";

import {
  ClientCertificateCredential,
  ClientSecretCredential,
  ManagedIdentityCredential,
  WorkloadIdentityCredential,
} from "@azure/identity";
import { SecretClient } from "@azure/keyvault-secrets";

const credentials = {
  "certificate": (it) => new ClientCertificateCredential(it.tenant, it.client, it.certificate),
  "secret": (it) => new ClientSecretCredential(it.tenant, it.client, it.client_secret),
  "wrong-secret": (it) => new ClientSecretCredential(it.tenant, it.client, "not-the-secret"),
  "federated": (it) =>
    new WorkloadIdentityCredential({
      tenantId: it.tenant,
      clientId: it.client,
      tokenFilePath: it.token_file,
    }),
  "managed-identity": (it) => new ManagedIdentityCredential({ clientId: it.client }),
};

const calls = {
  async token(credential, inputs) {
    const { token } = await credential.getToken(inputs.scope);
    const claims = JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
    return { token: { appid: claims.appid, tid: claims.tid } };
  },
  async vault(credential, inputs) {
    const client = new SecretClient(inputs.vault, credential);
    const { name, value, properties } = await client.getSecret(inputs.secret_name);
    const sha256 = createHash("sha256").update(value).digest("hex");
    return { secret: { name, version: properties.version, sha256 } };
  },
};

// The code is the AADSTS code of Entra, or that of the vault.
function errorDetails(error) {
  const entra = /AADSTS\d+/.exec(error.message);
  return {
    code: entra?.[0] ?? error.code,
    status: error.statusCode,
    message: error.message,
  };
}

const [call, credential] = (process.argv[2] ?? "").split(":");
if (!calls[call] || !credentials[credential]) {
  throw new Error(`unknown case ${process.argv[2]}`);
}
const inputs = JSON.parse(await text(process.stdin));
const answer = await calls[call](credentials[credential](inputs), inputs).catch((error) => ({
  refused: errorDetails(error),
}));
console.log(JSON.stringify(answer));
