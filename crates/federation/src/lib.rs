//! OIDC issuers for Kubernetes service account tokens: the signing key, the discovery document and
//! the key set that Entra ID fetches.
